"""The proximal-point method."""
