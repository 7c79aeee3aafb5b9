"""Data as their owner declares them: columns, datasets, and what one cell means."""
