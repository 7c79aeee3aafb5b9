"""Rows that the studies of clipped descent share."""

from studies.inference.results import Row
from studies.kl.reports import control, log_log

__all__ = ["control", "log_log", "seen", "within"]


def seen(what: str, elsewhere: float, ours: float) -> Row:
    """Return a row beside what an independent simulation gave, of whose seeds and errors nothing is known."""
    return Row(f"{what}, by independent simulators", elsewhere, ours)


def within(what: str, least: float, value: float, most: float) -> Row:
    """Return a row that agrees where a value is in a band; 1 where it is."""
    return Row(f"{what} ({value:.4g}) in [{least:g}, {most:g}]", 1.0, float(least <= value <= most), 0.0)
