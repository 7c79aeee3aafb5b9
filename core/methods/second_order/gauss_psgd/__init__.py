"""Gauss-PSGD: descent on noised gradients, and rounds of escape."""
