"""The experiments on the KL condition: rates in n, d and the budget, controls that must fail, and rival methods.

Each runs the code that jobs run behind simulated oracles; most have problems whose constants are exactly known, at any
n.
"""
