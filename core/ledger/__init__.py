"""The ledger: accounts and their chains, from reservation to settlement, correction and recomputation."""
