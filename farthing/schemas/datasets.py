"""Datasets: their public facts, and the answers for their owners about an upload."""

from collections.abc import Iterator
from typing import Any, Literal

from farthing.schemas.base import Shown, View
from farthing.schemas.drafts import CellCounts
from farthing.schemas.provenance import Declared, Drawn, Operational, OwnerOnly, Timed


class Dataset(Shown):
    """A dataset's public facts: none of them was computed from the records but their declared number."""

    id: Drawn[str]
    """`ds_...`."""
    object: Literal["dataset"] = "dataset"
    name: Declared[str]
    """That its owner gave it."""
    owner: Drawn[str]
    """The principal who uploaded it, `pr_...`."""
    state: Operational[str]
    """pending, draft, ready, erasing or erased; jobs read a ready one only, and its owner alone sees a draft."""
    scope: Drawn[str | None]
    """Scope that its jobs are charged to, `sc_...`; null until it has records."""
    unit: Declared[Any]
    """Protected unit: `record`, or a mapping with the user column."""
    adjacency: Declared[str]
    """Definition of neighbouring data: zero_out or replace_one."""
    rows: Declared[int | None]
    """Records, by the owner's word; null while pending."""
    columns: Declared[list[Any]]
    """As declared, with their bounds and levels: a mapping each, so that an older client reads a newer kind."""
    fingerprint: Drawn[str | None]
    """Random, drawn when its records came; says nothing of them; null while pending."""
    site: Operational[str]
    """That keeps the records; empty: the service's own."""
    created_at: Timed[str]
    """When it was declared."""

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from (("id", self.id), ("name", self.name), ("state", self.state), ("rows", self.rows))


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


class RemovalView(View):
    """A record that was removed, for the owner alone."""

    object: Literal["removal"] = "removal"
    dataset: Drawn[str]
    """`ds_...`."""
    row: Declared[int]
    """Of the file, the first row of data being 1; it is excluded from every model, also where it was before."""
    destroyed: Operational[bool]
    """Whether the earlier file is destroyed, too; its key is gone. If not, jobs that began before may read it."""


class ValidationView(Shown):
    """The owner's report on an upload; its counts are private."""

    dataset: Drawn[str]
    """`ds_...`."""
    rows: OwnerOnly[int]
    """Records of the file."""
    incomplete_rows: OwnerOnly[int]
    """Records that still lack a value in some declared column; models that use it leave them out."""
    columns: list[CellCounts]
    """Counts of each column's cells as they were read."""

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from (("dataset", self.dataset), ("rows", self.rows), ("incomplete_rows", self.incomplete_rows))
