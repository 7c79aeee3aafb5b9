"""What leaves the house. Views are made inside the transaction that reads them, so each is one snapshot.

Times are RFC 3339 in UTC; figures of privacy are decimal strings; statistics are numbers or null.
"""

from datetime import UTC, datetime
from typing import Any, Literal, overload

from pydantic import BaseModel, ConfigDict

from core.catalogue.columns import Column, Unit
from core.catalogue.excess import ExcessForecast, ReachedExcess
from core.catalogue.forecast import Forecast, Reached
from core.catalogue.method import Bound


class View(BaseModel):
    """A public answer."""

    model_config = ConfigDict(frozen=True)


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

    id: str
    object: Literal["dataset"] = "dataset"
    name: str
    owner: str
    state: str
    scope: str | None
    unit: Unit
    adjacency: str
    rows: int | None
    columns: list[Column]
    digest: str | None
    site: str
    """That keeps the records; empty: the service's own."""
    created_at: str


class AccessView(View):
    """Who may see a dataset."""

    dataset: str
    principal: str


class EpsilonView(View):
    """Epsilon at the scope's delta; informational, never what admits a job."""

    total: str
    spent: str | None
    remaining: str


class PercentView(View):
    """The ledger's own figures at its present head."""

    spent: str
    reserved: str
    remaining: str


class RhoView(View):
    """Zero-concentrated figures; null once any charge was not of that kind."""

    total: str | None
    spent: str | None
    reserved: str | None
    remaining: str | None


class GrantView(View):
    """An analyst's own ceiling inside a scope's budget."""

    id: str
    object: Literal["grant"] = "grant"
    scope: str
    principal: str
    declared: dict[str, Any]
    epsilon: str
    delta: str
    percent: PercentView
    version: str


class BudgetView(View):
    """What is left of the budget of the people behind a dataset."""

    scope: str
    adjacency: str
    delta: str
    epsilon: EpsilonView
    percent: PercentView
    rho: RhoView
    entries: int
    head: str
    frozen: str | None
    label: str
    implies: dict[str, Any]
    grant: GrantView | None = None


class ScopeView(View):
    """A budget and the rules it was made with; they never change."""

    id: str
    object: Literal["scope"] = "scope"
    owner: str
    unit: Unit
    adjacency: str
    units: int
    epsilon: str
    delta: str
    orders: list[int]
    weights: list[str]
    caps_nano: list[int]
    approval: bool
    frozen: str | None
    entries: int
    head: str
    datasets: list[str]
    created_at: str


class HeadView(View):
    """Where a scope's chain stands."""

    scope: str
    seq: int
    head: str


class EntryView(View):
    """One line of the ledger; `body` is the exact text that `hash` covers, after `prev_hash`."""

    object: Literal["entry"] = "entry"
    seq: int
    kind: str
    job: str | None
    attempt: int | None
    chunk: int | None
    body: str
    prev_hash: str
    hash: str
    created_at: str


class VerificationView(View):
    """Whether a chain and its sums recompute; `first_bad` is the first entry that does not."""

    scope: str
    ok: bool
    entries: int
    head: str
    first_bad: int | None
    reason: str | None


class CostFigures(View):
    """What something costs, under the scope's adjacency."""

    percent: str
    epsilon_alone: str | None
    rho: str | None
    mu: str | None


class EstimateCost(CostFigures):
    """What a job would cost, and what it would reserve beside that to pay lost chunks again."""

    retry_allowance: CostFigures


class ClientEstimate(View):
    """What a federated job would cost one client; how many more would fit is for those with a grant there to know."""

    dataset: str
    rows: int
    plan: dict[str, Any]
    cost: EstimateCost
    fits: bool
    jobs_that_still_fit: int | None


class EstimateView(View):
    """What a job would cost and what the theory predicts; no record was read.

    Of a federated job each client has its own price, and the plan is what they have in common. `if_lost` says, in words
    and of a job on one dataset, what becomes of it if its worker is lost.
    """

    cost: EstimateCost | None
    plan: dict[str, Any]
    bound: Bound
    fits: bool
    jobs_that_still_fit: int | None
    steps: int
    chunks: int
    rows: int
    coefficients: int
    compute: dict[str, float]
    head: str | None
    clients: list[ClientEstimate] | None = None
    prediction: Forecast | None = None
    excess: ExcessForecast | None = None
    goal: Reached | ReachedExcess | None = None
    if_lost: str | None = None


class ProgressView(View):
    """Steps done, of steps planned."""

    step: int
    steps: int


class JobCost(View):
    """What it costs, what is reserved beside that to pay lost chunks again, and what it has cost so far.

    `returned` is what was reserved of the worst case, never drawn, and given back; null until the job has ended.
    """

    reserved: CostFigures
    retry_allowance: CostFigures
    spent: CostFigures
    returned: CostFigures | None


class FailureView(View):
    """Why a job failed, from a closed list."""

    code: str


class ResultView(View):
    """What a job released."""

    model: str


class ClientView(View):
    """A client of a federated job; its dataset, site, job and cost only for those who may see that job."""

    place: int
    state: str
    dataset: str | None
    site: str | None
    """That keeps its records; empty: the service's own."""
    job: str | None
    cost: JobCost | None
    error: FailureView | None


class FederationView(View):
    """How a job takes part in a federated one: as the job itself, with its clients, or as the client at a place."""

    job: str
    place: int | None
    quorum: int | None
    clients: list[ClientView] | None


class JobView(View):
    """A training job; a federated one has clients in place of a dataset and a cost.

    `models` are the released ones that it is about; of most jobs none. `waits_for` says, in words, why a queued job
    cannot start now; `failed_for` why a failed one has, and what to do: from its code and what it asked for.
    """

    id: str
    object: Literal["job"] = "job"
    state: str
    dataset: str | None
    site: str | None
    """That keeps its records; empty: the service's own; null of a federated job, whose clients tell theirs."""
    owner: str
    model: dict[str, Any]
    models: list[str]
    optimizer: dict[str, Any]
    privacy: dict[str, Any]
    inference: dict[str, Any]
    progress: ProgressView
    cost: JobCost | None
    attempt: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    error: FailureView | None
    result: ResultView | None
    approval: str | None
    labels: dict[str, str]
    federation: FederationView | None = None
    waits_for: str | None = None
    failed_for: str | None = None


class EventView(View):
    """A line of a job's history."""

    object: Literal["event"] = "event"
    seq: int
    kind: str
    data: dict[str, Any]
    created_at: str


class AttemptView(View):
    """One claim of a job by a supervisor."""

    object: Literal["attempt"] = "attempt"
    number: int
    started_at: str
    opened_at: str | None
    ended_at: str | None
    outcome: str | None


class ArtifactView(View):
    """Something a job left behind, and where to get it."""

    object: Literal["artifact"] = "artifact"
    name: str
    media_type: str
    href: str


class ModelView(View):
    """A released model; a federated job's is of no one dataset. `models` are those that its job was about.

    `certificates` are what jobs of the kind `certify` said of it, as far as the caller may see these jobs.
    """

    id: str
    object: Literal["model"] = "model"
    job: str
    dataset: str | None
    models: list[str]
    approval: str
    release: dict[str, Any] | None
    certificates: list[dict[str, Any]]
    created_at: str


class WeightsView(View):
    """Public weights that networks may start from; `tensors` has the shape of each, by name."""

    id: str
    object: Literal["pretrained"] = "pretrained"
    name: str
    owner: str
    tensors: dict[str, list[int]]
    parameters: int
    bytes: int
    digest: str
    created_at: str


class AuditView(View):
    """One request, who asked, and how it was answered."""

    id: str
    object: Literal["audit"] = "audit"
    principal: str | None
    action: str
    target: str | None
    status: int
    code: str | None
    request_id: str
    created_at: str


class WorkerView(View):
    """A supervisor of trainers, and when it was last seen."""

    name: str
    object: Literal["worker"] = "worker"
    queues: list[str]
    slots: int
    gpus: int
    site: str
    """Whose records it reads; empty: the service's own."""
    version: str
    alive: bool
    started_at: str
    seen_at: str
