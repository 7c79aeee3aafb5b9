"""Everything that is neither HTTP nor processes: privacy, mechanisms, problems, optimizers, the ledger, use cases."""
