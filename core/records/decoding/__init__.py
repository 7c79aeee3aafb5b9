"""From a stranger's file to canonical columns, cell by cell, in a child under limits that sees no table."""
