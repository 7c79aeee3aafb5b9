"""Adaptive noisy gradient descent."""
