"""KL-Spider."""
