"""The truth: tables, the ledger, jobs and records. SQL is written here and nowhere else."""
