"""Validation of clipped stochastic descent on laws with heavy tails; its paper has no experiments of its own."""
