"""The best of several settings by a private score."""
