"""Methods for second-order stationary points, and what they share."""
