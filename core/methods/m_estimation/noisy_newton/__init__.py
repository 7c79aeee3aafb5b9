"""Noisy Newton steps, then gradient steps with the last matrix."""
