"""Validation of clipped stochastic descent on laws with heavy tails; the papers have no experiments of their own."""
