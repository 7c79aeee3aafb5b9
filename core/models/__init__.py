"""Models: their kinds and terms, and the encoding of declared columns."""
