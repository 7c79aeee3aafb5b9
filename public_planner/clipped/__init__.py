"""Clipped descent, planned with the least bound that its theorems certify."""
