"""Private selection among released models."""
