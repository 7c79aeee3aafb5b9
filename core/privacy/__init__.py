"""What privacy costs: events, their Renyi prices, conversions, and the rule that admits a job to a budget."""
