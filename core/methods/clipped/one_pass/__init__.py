"""Clipped SGD with a bound that is proved: one pass over disjoint batches."""
