"""Least squares from noised sums."""
