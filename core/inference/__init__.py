"""From noised values to covariances, intervals and tests: nothing here reads a record by itself."""
