"""Clipped stochastic gradient descent."""
