"""Prices of privacy: events, their Renyi prices, conversions, and the rule that admits a job to a budget."""
