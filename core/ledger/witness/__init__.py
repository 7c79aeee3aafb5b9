"""What remembers, outside the database, how far each chain had come."""
