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


class Overlap(View):
    """An earlier dataset of the same owner's with more than half of the rows in common, of the smaller one's."""

    dataset: str
    """`ds_...`."""
    scope: str
    """Its scope, `sc_...`."""
    share: float
    """Of the smaller one's rows, an estimate."""


class Identity(View):
    """Rows that an upload had in common with its owner's earlier ones when it came."""

    dataset: str
    """`ds_...`."""
    overlaps: list[Overlap] = []
    """The largest shares first; empty: none above a half was found."""
    distinct_because: str | None = None
    """The owner's statement then; None: nothing."""


class ColumnValidation(View):
    """Counts of one column's cells as they were read."""

    name: str
    """The column's."""
    clamped_low: int = 0
    """Cells below its bounds, moved to the lower one."""
    clamped_high: int = 0
    """Cells above its bounds, moved to the upper one."""
    rounded: int = 0
    """Cells of a whole-number column that had a fraction."""
    unknown: int = 0
    """Cells with a level that was not declared."""
    unreadable: int = 0
    """Cells that are no value of its kind."""
    missing: int = 0
    """Empty cells."""
    filled: int = 0
    """Cells that were given the column's declared filling."""


class Validation(View):
    """The owner's report on an upload; its counts are private."""

    rows: int
    """Records that were read."""
    incomplete_rows: int
    """Of them, those with a missing value."""
    columns: list[ColumnValidation]
    """One a declared column."""


class PretrainedWeights(View):
    """Public weights that networks may start from; `tensors` has the shape of each, by name."""

    id: str
    """`wts_...`."""
    name: str
    """That the uploader gave them."""
    tensors: dict[str, tuple[int, ...]]
    """Shape of each, by name."""
    parameters: int
    """Numbers in all of them."""
    bytes: int
    """Of the file."""
    digest: str
    """SHA-256 of the file."""
    created_at: str | None = None
    """When they were uploaded; None: not given."""


class Shares(View):
    """The parts of a budget: decimal strings from 0 to 1, as the ledger counts it."""

    spent: str
    """Drawn and gone."""
    reserved: str
    """Held by jobs that have not ended."""
    remaining: str
    """That new jobs may reserve."""


class Gap(View):
    """A range of time in which entries may be missing: the ledger went on without its witness."""

    entry: int
    """Number of the entry that says so."""
    since: str
    """When the last entry before it was made."""
    until: str
    """When the ledger went on."""
    accepted: int | None = None
    """Number of the entry by which the owner has accepted it; None: no job is admitted until then."""


class Budget(View):
    """The budget that is left for everybody who asks about the same people."""

    scope: str
    """The scope of the budget, `sc_...`."""
    adjacency: str
    """Under which all figures hold."""
    delta: str
    """At which the epsilons hold."""
    epsilon: dict[str, str | None]
    """The budget as epsilons: total, spent and remaining; None where a figure is not given."""
    budget_share: Shares
    """The budget as the ledger counts it."""
    rho: dict[str, str | None] | None = None
    """The budget in zero-concentrated terms: total, spent, reserved and remaining; None: not given."""
    entries: int
    """Lines of the ledger so far."""
    head: str
    """SHA-256 of the last line, over all before it."""
    frozen: str | None = None
    """Why nothing is admitted now; None: jobs are."""
    unwitnessed: tuple[Gap, ...] = ()
    """Where entries may be missing, so that more may have been spent than the figures say."""
    label: str | None = None
    """guarantee, or informational where answers decided how much was drawn; None: not given."""
    implies: dict[str, Any] = {}
    """The promise of the spent figures under the other adjacencies."""
    cap: "Cap | None" = None
    """The caller's own cap here; None: the budget is its own, or it has no access."""


class Cap(View):
    """The most that a principal may use of a scope's budget, and what of it is used."""

    budget_cap: str | dict[str, str]
    """As the owner wrote it: all, or a budget_share, an epsilon or a rho."""
    epsilon: str | None = None
    """That the cap alone promises at `delta`; None of a share and of all."""
    delta: str
    """At which the cap is counted."""
    used: Shares
    """The used part of the cap, in shares of it."""


class Access(Cap):
    """A principal's access to a dataset: the right to see it and to send jobs to it, under a cap."""

    dataset: str
    """`ds_...`."""
    principal: str
    """The principal who may use it, `pr_...`."""
    name: str
    """Of the principal."""
    role: str
    """owner, analyst, auditor or admin."""
    disabled: bool = False
    """Whether the principal is shut out of the service."""
    scope: str
    """The scope of the budget that the cap is a part of, `sc_...`; there is one cap for each scope and principal."""
    datasets: list[str] = []
    """All of the scope that this principal may use; jobs on any of them count against this cap."""
    given_at: str
    """When access to this dataset was given."""
    version: str
    """Changes with the cap; a change of the cap names it."""


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


class Entry(View):
    """A line of a scope's ledger; `hash` covers `prev_hash`, a line feed and `body`."""

    seq: int
    """Its number in the scope's chain, from 1."""
    kind: str
    """Its action: open, upload, grant, reserve, read, spend, charge, settle, compensate, freeze, unfreeze,
    reconcile, unwitnessed, accept, recovery."""
    job: str | None = None
    """That it is about; None: none."""
    attempt: int | None = None
    """Of that job, from 1; 0 for what happens once a job; None: it is about no job."""
    chunk: int | None = None
    """That was paid, from 0; 0 for what happens once a job; None: it is about no job."""
    body: str
    """Canonical JSON: amounts, events, who and why."""
    prev_hash: str
    """Of the line before."""
    hash: str
    """SHA-256 of `prev_hash`, a line feed and `body`."""
    created_at: str
    """When it was written."""


class AuditLine(View):
    """One request, who asked, and how it was answered."""

    id: str
    """`evt_...`."""
    principal: str | None
    """The principal who asked, `pr_...`; None: no key was recognised."""
    action: str
    """Method and route."""
    target: str | None
    """Its subject; None: nothing of its own."""
    status: int
    """HTTP status of the answer."""
    code: str | None
    """Of the refusal; None where there was none."""
    request_id: str
    """As the answer had it, for the operator's log."""
    created_at: str
    """When it was answered."""


class Method(View):
    """Which method fits a model, and whose it is."""

    kind: str
    """As a job names it, such as noisy_newton."""
    title: str
    """As people call it."""
    source: str
    """A paper's, or ours."""


class Worker(View):
    """A supervisor of trainers, the site whose records it reads (empty: the service's own), and when it was seen."""

    name: str
    """Its own, one for each process."""
    queues: tuple[str, ...]
    """Devices that it serves."""
    slots: int
    """Jobs at a time."""
    gpus: int
    """That it has."""
    site: str = ""
    """The site whose records it reads; empty: the service's own."""
    version: str
    """Of its code."""
    alive: bool
    """Whether it was seen within a few leases."""
    started_at: str
    """When it registered."""
    seen_at: str
    """When it last said that it is there."""


class Verification(View):
    """Whether a scope's chain of entries is whole, as the service's last pass over all of it has found."""

    running: bool = False
    """Whether the pass that was asked for goes on; the rest is of the last one before it."""
    ok: bool | None
    """Whether all of it recomputes; None: no pass has ended yet."""
    entries: int | None = None
    """Lines that were read; None: not given."""
    head: str | None = None
    """SHA-256 of the last line that was read; None: not given."""
    verified_at: str | None = None
    """When the last line was read; None: not given."""
    first_bad: int | None = None
    """Number of the first line that does not recompute; None: all do."""
    reason: str | None = None
    """The fault in it; None: none."""
    unwitnessed: tuple[Gap, ...] = ()
    """Where entries may be missing."""
