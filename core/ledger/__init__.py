"""The ledger: accounts and their chains; what is reserved, spent, settled, corrected, and recomputed."""
