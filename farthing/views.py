"""What the service answers, typed. Fields that a newer service adds are kept, not refused."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class View(BaseModel):
    """An answer of the service."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Dataset(View):
    """A dataset's public facts; `site` keeps its records: empty, the service itself."""

    id: str
    name: str
    owner: str | None = None
    scope: str | None = None
    state: str | None = None
    adjacency: str | None = None
    rows: int | None = None
    digest: str | None = None
    site: str = ""
    columns: list[dict[str, Any]] = []
    created_at: str | None = None


class ColumnValidation(View):
    """How the cells of one column were read."""

    name: str
    clamped_low: int = 0
    clamped_high: int = 0
    rounded: int = 0
    unknown: int = 0
    unreadable: int = 0
    missing: int = 0
    filled: int = 0


class Validation(View):
    """The owner's report on an upload; its counts are private."""

    rows: int
    incomplete_rows: int
    columns: list[ColumnValidation]


class Cost(View):
    """What a job costs: per cent of the scope's budget, and figures under the scope's adjacency, as strings."""

    percent: str | None = None
    epsilon_alone: str | None = None
    rho: str | None = None
    mu: str | None = None


class PretrainedWeights(View):
    """Public weights that networks may start from; `tensors` has the shape of each, by name."""

    id: str
    name: str
    tensors: dict[str, tuple[int, ...]]
    parameters: int
    bytes: int
    digest: str
    created_at: str | None = None


class EstimateCost(Cost):
    """What a job would cost, and what it would reserve beside that to pay for lost chunks again."""

    retry_allowance: Cost | None = None


class Bound(View):
    """What the theory predicts, beside what is known without training."""

    quantity: str
    value: float | None
    confidence: float | None
    trivial: float | None
    vacuous: bool
    source: str


class PredictedWidth(View):
    """How wide a coefficient's interval will be, going by public facts, and would be without privacy."""

    name: str
    width: float
    nonprivate_width: float
    ratio: float


class UsefulFrom(View):
    """From where on private intervals are at most twice as wide as non-private ones; null: from nowhere."""

    mu: str | None
    units: int | None


class Prediction(View):
    """Interval widths as predicted before any record is read."""

    level: float
    coefficients: list[PredictedWidth]
    useful_from: UsefulFrom


class Goal(View):
    """What a wanted width takes."""

    coefficient: str
    at_most: float
    predicted: float
    met: bool
    nonprivate_width: float
    mu: str | None
    units: int | None


class ExcessGoal(View):
    """What a wanted excess risk takes."""

    at_most: float
    predicted: float | None
    met: bool
    mu: str | None
    rho: str | None
    units: int | None


class Excess(View):
    """What is promised of the excess risk, beside what is known without training and what no private method beats."""

    value: float | None
    confidence: float | None
    trivial: float | None
    vacuous: bool
    lower: dict[str, Any] | None = None
    rounds: int | None = None
    noise: float | None = None
    regimes: dict[str, float] | None = None


class ClientEstimate(View):
    """What a federated job would cost one client; how many would still fit only where this key has a grant."""

    dataset: str
    rows: int
    plan: dict[str, Any]
    cost: EstimateCost
    fits: bool
    jobs_that_still_fit: int | None = None


class Estimate(View):
    """The price of a job, its plan, and what a lost worker does to it; of a federated one the price is in `clients`."""

    cost: Annotated[EstimateCost, BeforeValidator(lambda cost: cost or {})]
    plan: dict[str, Any]
    bound: Bound | None
    fits: bool
    jobs_that_still_fit: int | None
    clients: list[ClientEstimate] | None = None
    compute: dict[str, float] = {}
    prediction: Prediction | None = None
    excess: Excess | None = None
    goal: Goal | ExcessGoal | None = None
    chunks: int = 0
    if_lost: str | None = None


class Progress(View):
    """Steps done, of steps planned."""

    step: int
    steps: int


class JobCost(View):
    """What was reserved, what beside it to pay for lost chunks again, and what was spent.

    `returned` is what was reserved, never drawn, and given back; None until the job has ended.
    """

    reserved: Cost
    retry_allowance: Cost | None = None
    spent: Cost
    returned: Cost | None = None


class Failure(View):
    """Why a job failed: a code from a closed list."""

    code: str


class Result(View):
    """What a job released."""

    model: str


class Client(View):
    """A client of a federated job; dataset, site, job and cost are None where this key may not see them."""

    place: int
    state: str
    dataset: str | None = None
    site: str | None = None
    job: str | None = None
    cost: JobCost | None = None
    error: Failure | None = None


class Federation(View):
    """How a job takes part in a federated one: as the job itself, with its clients, or as the client at a place."""

    job: str
    place: int | None = None
    quorum: int | None = None
    clients: list[Client] | None = None


class Job(View):
    """A training job. Its release may wait for approval; `waits_for` and `failed_for` say in words what for, and why.

    A federated job has no cost of its own, so that its figures are None; each client has, in `federation.clients`.
    """

    id: str
    state: str
    dataset: str | None = None
    site: str | None = None
    """That keeps its records; empty: the service's own; None of a federated job, whose clients tell theirs."""
    models: list[str] = []
    optimizer: dict[str, Any] = {}
    progress: Progress
    cost: Annotated[JobCost, BeforeValidator(lambda cost: cost or {"reserved": {}, "spent": {}})]
    attempt: int = 0
    error: Failure | None = None
    result: Result | None = None
    approval: str | None = None
    labels: dict[str, str] = {}
    federation: Federation | None = None
    waits_for: str | None = None
    failed_for: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in {"succeeded", "failed", "cancelled", "expired"}

    @property
    def model(self) -> str | None:
        """The model's id, once succeeded and open to this key."""
        return self.result.model if self.result else None


class Event(View):
    """A line of a job's history."""

    seq: int
    kind: str
    data: dict[str, Any]
    created_at: str


class Percent(View):
    """Shares of the scope's budget, in per cent, as strings."""

    spent: str
    reserved: str
    remaining: str


class Budget(View):
    """What is left for everybody who asks about the same people."""

    scope: str
    adjacency: str
    delta: str
    epsilon: dict[str, str | None]
    percent: Percent
    rho: dict[str, str | None] | None = None
    entries: int
    head: str
    frozen: str | None = None
    label: str | None = None
    implies: dict[str, Any] = {}
    grant: "Grant | None" = None


class Grant(View):
    """A principal's own ceiling inside a scope's budget."""

    id: str
    scope: str
    principal: str
    epsilon: str
    delta: str
    percent: Percent


class Scope(View):
    """The people behind some datasets, and the terms of their budget."""

    id: str
    owner: str
    adjacency: str
    units: int
    epsilon: str
    delta: str
    approval: bool = False
    frozen: str | None = None
    entries: int
    head: str
    datasets: list[str] = []


class Entry(View):
    """A line of a scope's ledger; `hash` covers `prev_hash`, a line feed and `body`."""

    seq: int
    kind: str
    job: str | None = None
    attempt: int | None = None
    chunk: int | None = None
    body: str
    prev_hash: str
    hash: str
    created_at: str


class AuditLine(View):
    """One request, who asked, and how it was answered."""

    id: str
    principal: str | None
    action: str
    target: str | None
    status: int
    code: str | None
    request_id: str
    created_at: str


class Worker(View):
    """A supervisor of trainers, the site whose records it reads (empty: the service's own), and when it was seen."""

    name: str
    queues: tuple[str, ...]
    slots: int
    gpus: int
    site: str = ""
    version: str
    alive: bool
    started_at: str
    seen_at: str


class Verification(View):
    """Whether a scope's chain of entries is whole."""

    ok: bool
    entries: int | None = None
    head: str | None = None
    first_bad: int | None = None
    reason: str | None = None
