"""Answers about drafts: datasets that their owners look at before they seal them."""

from collections.abc import Mapping
from typing import Any, Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, OwnerOnly, Timed


class CellCounts(View):
    """Counts of one column's cells as they were read; the counts are private."""

    name: Declared[str]
    """The column's."""
    clamped_low: OwnerOnly[int] = 0
    """Cells below its bounds, moved to the lower one."""
    clamped_high: OwnerOnly[int] = 0
    """Cells above its bounds, moved to the upper one."""
    rounded: OwnerOnly[int] = 0
    """Cells of a whole-number column that had a fraction."""
    unknown: OwnerOnly[int] = 0
    """Cells with a level that was not declared."""
    unreadable: OwnerOnly[int] = 0
    """Cells that are no value of the column's type."""
    missing: OwnerOnly[int] = 0
    """Empty and unreadable cells, before `fill`."""
    filled: OwnerOnly[int] = 0
    """Cells that took the column's declared filling."""


class DoubtView(View):
    """A part of a draft's file that could be read in another way as well."""

    pointer: OwnerOnly[str]
    """Of the field of the metadata that decides it."""
    taken: OwnerOnly[str]
    """The reading that was taken."""
    other: OwnerOnly[str]
    """The other one, or several."""
    cells: OwnerOnly[int | None]
    """Cells of the first rows that would have another value; null: it is about letters."""


class SniffedView(View):
    """The reading that a draft's file was given, which sealing declares."""

    reading: OwnerOnly[dict[str, Any]]
    """As the metadata have it."""
    formats: OwnerOnly[dict[str, list[str]]]
    """Forms of dates beside ISO 8601, by column."""
    doubts: list[DoubtView]
    """Where the file could be read otherwise; empty: nothing else fits."""


def sniffed_words(found: SniffedView) -> list[str]:
    """Return what was taken of a draft's file, and then each doubt, in words."""
    dates = [f"Dates of {name}: {', '.join(forms)}, and ISO 8601." for name, forms in found.formats.items()]
    doubts = [
        f"{one.pointer} may be wrong: {one.taken} was taken, and {one.other} "
        + ("gives other letters." if one.cells is None else f"gives other values to {one.cells:,} cells.")
        for one in found.doubts
    ]
    return [f"Taken from the file: {reading_words(found.reading)}.", *dates, *doubts]


def reading_words(reading: Mapping[str, Any]) -> str:
    """Return the form of a CSV file in words."""
    signs = {"\t": "tab", " ": "blank"}
    parts = {name: value and f"{name} “{signs.get(value, value)}”" for name, value in reading.items()}
    return ", ".join(part or f"no {name}" for name, part in parts.items())


class DraftView(View):
    """A dataset that is not sealed yet, for its owner alone."""

    object: Literal["draft"] = "draft"
    dataset: Drawn[str]
    """`ds_...`."""
    declared: Declared[dict[str, Any]]
    """The metadata as the owner gave them, with all changes."""
    rows: OwnerOnly[int | None]
    """Records of the file; null until there is one."""
    excluded: OwnerOnly[int | None]
    """Records with a missing or unreadable cell; null until there is a file."""
    many_excluded: OwnerOnly[bool]
    """Whether more than 5 % of the records are excluded."""
    columns: OwnerOnly[list[CellCounts]]
    """Counts of each column's cells as they were read; empty until there is a file."""
    sniffed: SniffedView | None
    """The reading that was taken where the metadata say `sniff`; null without a file, or where one is declared."""
    expires_at: Timed[str]
    """When the draft is erased, unless it is sealed before."""
