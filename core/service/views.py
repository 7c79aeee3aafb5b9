"""Views that name the types of what owners declare, and the form of their times.

Each view is made inside the transaction that reads it, so it is one snapshot.

Times are RFC 3339 in UTC; figures of privacy are decimal strings; statistics are numbers or null.
"""

from datetime import UTC, datetime
from typing import overload

from core.data.columns import Column, Unit
from farthing.schemas.budgets import Scope
from farthing.schemas.datasets import Dataset
from farthing.schemas.provenance import Declared


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


class DatasetView(Dataset):
    """A dataset's public facts: none of them was computed from the records but their declared number."""

    unit: Declared[Unit]
    """Protected unit: a record, or all records of one user."""
    columns: Declared[list[Column]]
    """As declared, with their bounds and levels."""


class ScopeView(Scope):
    """A budget and the rules it was made with; they never change."""

    unit: Declared[Unit]
    """Protected unit: a record, or all records of one user."""
