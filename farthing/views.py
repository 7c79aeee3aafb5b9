"""Answers of the service, typed. Fields that a newer service adds are kept, not refused.

Times are RFC 3339 in UTC; figures of privacy are decimal strings, so that none is rounded on its way.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """An answer of the service."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Dataset(View):
    """A dataset's public facts; `site` keeps its records: empty, the service itself."""

    id: str
    """`ds_...`."""
    name: str
    """That its owner gave it."""
    owner: str | None = None
    """The principal who uploaded it, `pr_...`; None: not given."""
    scope: str | None = None
    """The scope that its jobs are charged to, `sc_...`; None until it has records."""
    state: str | None = None
    """pending, draft, ready, erasing or erased; jobs read a ready one only; None: not given."""
    adjacency: str | None = None
    """Relation of neighbouring data: zero_out or replace_one; None: not given."""
    rows: int | None = None
    """Records, by the owner's word; None while pending."""
    fingerprint: str | None = None
    """Random, drawn when its records came; None while pending."""
    site: str = ""
    """That keeps its records; empty: the service's own."""
    columns: list[dict[str, Any]] = []
    """As declared, with their bounds and levels."""
    created_at: str | None = None
    """When it was declared; None: not given."""


class Scope(View):
    """The people behind some datasets, and the terms of their budget."""

    id: str
    """`sc_...`."""
    owner: str
    """The principal whose data it covers, `pr_...`."""
    adjacency: str
    """Relation of neighbouring data: zero_out or replace_one."""
    units: int
    """Number of protected units, by the owner's word."""
    epsilon: str
    """The most that may ever be spent, at `delta`."""
    delta: str
    """At which `epsilon` holds."""
    approval: bool = False
    """Whether its owner approves each release before others see it."""
    frozen: str | None = None
    """Why nothing is admitted now; None: jobs are."""
    entries: int
    """Lines of its ledger so far."""
    head: str
    """SHA-256 of the last line, over all before it."""
    datasets: list[str] = []
    """Those of it that the caller may see."""
