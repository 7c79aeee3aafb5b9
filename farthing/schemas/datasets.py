"""Datasets: the answers for their owners about an upload."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.drafts import CellCounts
from farthing.schemas.provenance import Drawn, OwnerOnly


class OverlapView(View):
    """An earlier dataset of the same owner's with more than half of the rows in common, of the smaller one's."""

    dataset: OwnerOnly[str]
    """`ds_...`."""
    scope: OwnerOnly[str]
    """Its scope, `sc_...`."""
    share: OwnerOnly[float]
    """Of the smaller one's rows, an estimate: within about .05 of the truth where both are of a size."""


class IdentityView(View):
    """Overlap of an upload with its owner's earlier ones, for the owner alone."""

    object: Literal["identity"] = "identity"
    dataset: Drawn[str]
    """`ds_...`."""
    overlaps: list[OverlapView]
    """The largest shares first; empty: none above a half was found."""
    distinct_because: OwnerOnly[str | None]
    """The owner's statement at its upload; null: none."""


class ValidationView(View):
    """The owner's report on an upload; its counts are private."""

    dataset: Drawn[str]
    """`ds_...`."""
    rows: OwnerOnly[int]
    """Records of the file."""
    incomplete_rows: OwnerOnly[int]
    """Records that still lack a value in some declared column; models that use it leave them out."""
    columns: list[CellCounts]
    """Counts of each column's cells as they were read."""
