"""Answers about drafts: datasets that their owners look at before they seal them."""

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
    expires_at: Timed[str]
    """When the draft is erased, unless it is sealed before."""
