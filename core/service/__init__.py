"""Use cases of the HTTP interface. Each owns its transactions; none imports torch or reads a record."""
