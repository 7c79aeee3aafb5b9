"""Losses: public constants and cards, and per-record code beside them in `*_torch` modules."""
