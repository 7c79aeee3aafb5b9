"""A public planner: plans from public figures alone, before there is a dataset or a budget (`POST /v1/plans`).

The package is optional. Where it is absent, the route is 404 and everything else works.
"""
