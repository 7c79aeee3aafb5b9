"""The experiments on second-order stationary points: certificates against the truth, controls that must fail, rivals.

Each runs the code that jobs run behind simulated oracles, on populations whose saddles are known.
"""
