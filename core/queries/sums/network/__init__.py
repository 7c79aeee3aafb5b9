"""Networks: every record's own gradient, clipped and summed under a proof."""
