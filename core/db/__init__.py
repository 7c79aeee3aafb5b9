"""The database: tables, transactions, its clock, idempotency, and reads that the use cases share."""
