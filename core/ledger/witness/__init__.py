"""The witness: heads of each chain, remembered outside the database."""
