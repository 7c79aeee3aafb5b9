"""Rounds of escape at a released point, which stays as it is."""
