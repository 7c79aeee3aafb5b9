"""Clipped SGD as it is used: Poisson samples, momentum or Adam, averages; no theorem."""
