"""Ratios measured side by side in one run: one command each, a table out; `python -m benchmarks` runs them all."""
