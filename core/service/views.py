"""Views: the data that leave the service.

Each view is made inside the transaction that reads it, so it is one snapshot.

Times are RFC 3339 in UTC; figures of privacy are decimal strings; statistics are numbers or null.
"""

from datetime import UTC, datetime
from typing import Any, Literal, overload

from core.data.columns import Column, Unit
from farthing.schemas.base import View
from farthing.schemas.models import ReleaseDecision
from farthing.schemas.provenance import Declared, Drawn, Operational, OwnerOnly, Paid, Timed


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


class EpsilonView(View):
    """Epsilon at the scope's delta; informational, never what admits a job."""

    total: Declared[str]
    """Of the budget, for good."""
    spent: Paid[str]
    """Of all that was drawn; informational. Until the smallest one is found, a larger one, which holds, too."""
    remaining: Paid[str]
    """The largest that one more job could ask, alone."""


class SharesView(View):
    """Division of a budget at its ledger's present head: decimal strings from 0 to 1, in the ledger's units."""

    spent: Paid[str]
    """Drawn and gone."""
    reserved: Paid[str]
    """Held by jobs that have not ended."""
    remaining: Paid[str]
    """That new jobs may reserve."""


class RhoView(View):
    """Zero-concentrated figures; null once any charge was not of that kind."""

    total: Declared[str | None]
    """That the budget is worth; null once a charge had none."""
    spent: Paid[str | None]
    """Drawn; null once a charge had none."""
    reserved: Paid[str | None]
    """Held by jobs that have not ended; null once a charge had none."""
    remaining: Paid[str | None]
    """Left to new jobs; null once a charge had none."""


class CapView(View):
    """The most that a principal may use of a scope's budget, and what of it is used."""

    budget_cap: Declared[str | dict[str, str]]
    """As the owner wrote it: all, or a budget_share, an epsilon or a rho."""
    epsilon: Declared[str | None]
    """That the cap alone promises at `delta`; null of a share and of all, which the budget's own promise covers."""
    delta: Declared[str]
    """At which the cap is counted."""
    used: SharesView
    """Used part of the cap, in shares of it, since the access was first given in this scope."""


class AccessView(CapView):
    """Access of a principal to a dataset, and its cap."""

    object: Literal["access"] = "access"
    dataset: Drawn[str]
    """`ds_...`."""
    principal: Drawn[str]
    """Principal with access, `pr_...`."""
    name: Declared[str]
    """Of the principal."""
    role: Declared[str]
    """owner, analyst, auditor or admin."""
    disabled: Operational[bool]
    """Whether the principal is shut out of the service."""
    scope: Drawn[str]
    """Scope of the cap, `sc_...`; there is one cap for each scope and principal."""
    datasets: Drawn[list[str]]
    """All of the scope that this principal may use; jobs on any of them count against this cap."""
    given_at: Timed[str]
    """When access to this dataset was given."""
    version: Operational[str]
    """Changes with the cap; send it in If-Match."""


class GapView(View):
    """A range of time in which entries may be missing: the ledger went on without its witness."""

    entry: Operational[int]
    """Number of the entry that says so."""
    since: Timed[str]
    """When the last entry before it was made."""
    until: Timed[str]
    """When the ledger went on."""
    accepted: Operational[int | None]
    """Number of the entry by which the owner has accepted it; null: no job is admitted until then."""


class BudgetView(View):
    """Remaining budget of the people behind a dataset."""

    scope: Drawn[str]
    """Scope of the budget, `sc_...`."""
    adjacency: Declared[str]
    """Under which all figures hold."""
    delta: Declared[str]
    """At which the epsilons hold."""
    epsilon: EpsilonView
    """The remaining budget as epsilons."""
    budget_share: SharesView
    """The remaining budget in the ledger's units."""
    rho: RhoView
    """The remaining budget as zCDP."""
    entries: Paid[int]
    """Lines of the ledger so far."""
    head: Drawn[str]
    """SHA-256 of the last line, over all before it."""
    frozen: Operational[str | None]
    """Why nothing is admitted now; null: jobs are."""
    unwitnessed: list[GapView]
    """Ranges where entries may be missing, so that more may have been spent than is shown; empty: none."""
    label: Paid[str]
    """guarantee, or informational where answers decided how much was drawn."""
    implies: Paid[dict[str, Any]]
    """Promise of the spent figures under the other adjacencies."""
    cap: CapView | None = None
    """The caller's own cap here; null: the budget is its own, or it has no access."""


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


class HeadView(View):
    """Where a scope's chain stands."""

    scope: Drawn[str]
    """`sc_...`."""
    seq: Paid[int]
    """The last line's number, from 1; 0: none yet."""
    head: Drawn[str]
    """SHA-256 of the last line, over all before it."""


class EntryView(View):
    """One line of the ledger; `body` is the exact text that `hash` covers, after `prev_hash`."""

    object: Literal["entry"] = "entry"
    seq: Operational[int]
    """Its number in the scope's chain, from 1."""
    kind: Operational[str]
    """Kind of entry: open, upload, grant, reserve, read, spend, charge, settle, compensate, freeze, unfreeze,
    reconcile, unwitnessed or accept."""
    job: Drawn[str | None]
    """That it is about; null: none."""
    attempt: Paid[int | None]
    """Of that job, from 1; 0 for what happens once a job; null: it is about no job."""
    chunk: Paid[int | None]
    """That was paid, from 0; 0 for what happens once a job; null: it is about no job."""
    body: Drawn[str]
    """Canonical JSON: amounts, events, who and why."""
    prev_hash: Drawn[str]
    """Of the line before."""
    hash: Drawn[str]
    """SHA-256 of `prev_hash`, a line feed and `body`."""
    created_at: Timed[str]
    """When it was written."""


class VerificationView(View):
    """Whether a chain and its sums recompute, as the last pass over all of it has found; `running`: another goes on.

    A pass is done beside requests. The answer comes within seconds. It has the outcome of the requested pass if that
    has ended, and else that of the one before; ask again to get the outcome.
    """

    scope: Drawn[str]
    """`sc_...`."""
    running: Operational[bool]
    """Whether the pass that was asked for goes on; the rest is of the last one before it."""
    ok: Operational[bool | None]
    """Whether all of it recomputes; null: this process has ended no pass yet, and neither has the rest a value."""
    entries: Paid[int | None]
    """Lines that were read; null: no pass has ended yet."""
    head: Drawn[str | None]
    """SHA-256 of the last line that was read; null: no pass has ended yet."""
    verified_at: Timed[str | None]
    """When the last line was read, and the sums were compared; null: no pass has ended yet."""
    first_bad: Operational[int | None]
    """Number of the first line that does not recompute; null: all do."""
    reason: Operational[str | None]
    """Its fault; null: none."""
    unwitnessed: list[GapView]
    """Ranges where entries may be missing: the rest of the chain recomputes, and does not show their content."""


class ModelView(View):
    """A released model; a federated job's is of no one dataset. `models` are those that its job was about.

    `certificates` are what jobs of the kind `certify` said of it, as far as the caller may see these jobs.
    """

    id: Drawn[str]
    """`mdl_...`."""
    object: Literal["model"] = "model"
    job: Drawn[str]
    """That released it, `job_...`."""
    dataset: Drawn[str | None]
    """Dataset that it was made of, `ds_...`; null of a federated job's."""
    models: Drawn[list[str]]
    """That its job was about, `mdl_...`; mostly none."""
    approval: Operational[str]
    """not-needed, pending, approved, rejected, retired or retracted."""
    decision: ReleaseDecision | None
    """The owner's comment on the release; null without one. Sites of a federated job have their own."""
    release: Paid[dict[str, Any]]
    """The whole release; of a network without the parameters themselves."""
    certificates: Paid[list[dict[str, Any]]]
    """Newest last, each with its model and job."""
    created_at: Timed[str]
    """When it was released, on a coarse grid of time."""


class WeightsView(View):
    """Public weights that networks may start from; `tensors` has the shape of each, by name."""

    id: Drawn[str]
    """`wts_...`."""
    object: Literal["pretrained"] = "pretrained"
    name: Declared[str]
    """That the uploader gave them."""
    owner: Drawn[str]
    """Their uploader, `pr_...`."""
    tensors: Declared[dict[str, list[int]]]
    """Shape of each, by name."""
    parameters: Declared[int]
    """Numbers in all of them."""
    bytes: Declared[int]
    """Of the file."""
    digest: Declared[str]
    """SHA-256 of the file."""
    created_at: Timed[str]
    """When they were uploaded."""


class AuditView(View):
    """One request, who asked, and how it was answered."""

    id: Drawn[str]
    """`evt_...`."""
    object: Literal["audit"] = "audit"
    principal: Drawn[str | None]
    """Principal of the request, `pr_...`; null: no key was recognised."""
    action: Operational[str]
    """Method and route."""
    target: Drawn[str | None]
    """Object of the request; null: none."""
    status: Operational[int]
    """HTTP status of the answer."""
    code: Operational[str | None]
    """Of the refusal; null where there was none."""
    request_id: Drawn[str]
    """As in the answer, for the operator's log."""
    created_at: Timed[str]
    """When it was answered."""


class WorkerView(View):
    """A supervisor of trainers, and when it was last seen."""

    name: Drawn[str]
    """Its own, one for each process."""
    object: Literal["worker"] = "worker"
    queues: Operational[list[str]]
    """Devices that it serves."""
    slots: Operational[int]
    """Jobs at a time."""
    gpus: Operational[int]
    """That it has."""
    site: Operational[str]
    """Site whose records it reads; empty: the service's own."""
    version: Operational[str]
    """Of its code."""
    alive: Operational[bool]
    """Whether it was seen within a few leases."""
    started_at: Timed[str]
    """When it registered."""
    seen_at: Timed[str]
    """When it last said that it is there."""
