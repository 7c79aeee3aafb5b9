"""`POST /v1/plans`: plans from public figures alone, before there is a dataset or a budget.

The package is optional. Where it is absent, the route is 404 and everything else works.
"""
