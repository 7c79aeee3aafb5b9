"""What is kept in files, encrypted: uploads, records, weights; under which keys, and where."""
