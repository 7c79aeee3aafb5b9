"""Views: the data that leave the service.

Each view is made inside the transaction that reads it, so it is one snapshot.

Times are RFC 3339 in UTC; figures of privacy are decimal strings; statistics are numbers or null.
"""

from datetime import UTC, datetime
from typing import Literal, overload

from core.data.columns import Column, Unit
from farthing.schemas.base import View
from farthing.schemas.budgets import GapView
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid, Timed


@overload
def rfc3339(seconds: float) -> str: ...
@overload
def rfc3339(seconds: None) -> None: ...
@overload
def rfc3339(seconds: float | None) -> str | None: ...
def rfc3339(seconds: float | None) -> str | None:
    """Return a time in seconds since the epoch as RFC 3339 text in UTC, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class DatasetView(View):
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
    unit: Declared[Unit]
    """Protected unit: a record, or all records of one user."""
    adjacency: Declared[str]
    """Definition of neighbouring data: zero_out or replace_one."""
    rows: Declared[int | None]
    """Records, by the owner's word; null while pending."""
    columns: Declared[list[Column]]
    """As declared, with their bounds and levels."""
    fingerprint: Drawn[str | None]
    """Random, drawn when its records came; says nothing of them; null while pending."""
    site: Operational[str]
    """That keeps the records; empty: the service's own."""
    created_at: Timed[str]
    """When it was declared."""


class ScopeView(View):
    """A budget and the rules it was made with; they never change."""

    id: Drawn[str]
    """`sc_...`."""
    object: Literal["scope"] = "scope"
    owner: Drawn[str]
    """The principal whose data it covers, `pr_...`."""
    unit: Declared[Unit]
    """Protected unit: a record, or all records of one user."""
    adjacency: Declared[str]
    """Definition of neighbouring data: zero_out or replace_one."""
    units: Declared[int]
    """Number of protected units, by the owner's statement."""
    epsilon: Declared[str]
    """Total that may ever be spent, at `delta`."""
    delta: Declared[str]
    """At which `epsilon` holds."""
    orders: Declared[list[int]]
    """Renyi orders that the ledger keeps."""
    weights: Declared[list[str]]
    """The part of delta that each order answers for, in order."""
    caps_nano: Declared[list[int]]
    """The most that may be spent at each order, in nano-nats."""
    approval: Declared[bool]
    """Whether its owner approves each release before others see it."""
    frozen: Operational[str | None]
    """Why nothing is admitted now; null: jobs are."""
    unwitnessed: list[GapView]
    """Ranges where entries may be missing, so that more may have been spent than is shown; empty: none."""
    entries: Paid[int]
    """Lines of its ledger so far."""
    head: Drawn[str]
    """SHA-256 of the last line, over all before it."""
    datasets: Drawn[list[str]]
    """Those of it that the caller may see."""
    created_at: Timed[str]
    """When its first dataset was declared."""
