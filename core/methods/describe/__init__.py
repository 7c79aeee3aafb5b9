"""Description of columns: counts, quantiles, means and correlations."""
