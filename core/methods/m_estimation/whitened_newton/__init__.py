"""Whitened Newton: a private look at the columns, a public re-encoding, short Newton steps."""
