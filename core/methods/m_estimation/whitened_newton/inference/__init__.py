"""Whitened Newton's inference: its last step, covariance and checks, from noised answers that are paid for."""
