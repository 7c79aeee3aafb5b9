"""The papers' experiments: instances, runners, benchmarks and their tests.

Studies import the product, and nothing imports studies: they are in no image and in no wheel. `make test-studies` runs
their tests, which gate no change.
"""
