"""Files, encrypted: uploads, records and weights, with their keys and places."""
