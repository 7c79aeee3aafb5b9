"""What the service answers, typed. Fields that a newer service adds are kept, not refused."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """An answer of the service."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Dataset(View):
    """A dataset's public facts."""

    id: str
    name: str
    scope: str | None = None
    state: str | None = None
    rows: int | None = None
    digest: str | None = None
    columns: list[dict[str, Any]] = []


class Cost(View):
    """What a job costs: per cent of the scope's budget, and figures under the scope's adjacency, as strings."""

    percent: str | None = None
    epsilon_alone: str | None = None
    rho: str | None = None
    mu: str | None = None


class Bound(View):
    """What the theory predicts, beside what is known without training."""

    quantity: str
    value: float | None
    confidence: float | None
    trivial: float | None
    vacuous: bool
    source: str


class Estimate(View):
    """The price of a job and its plan; no record was read."""

    cost: Cost
    plan: dict[str, Any]
    bound: Bound | None
    fits: bool
    jobs_that_still_fit: int


class Progress(View):
    """Steps done, of steps planned."""

    step: int
    steps: int


class JobCost(View):
    """What was reserved and what was spent."""

    reserved: Cost
    spent: Cost


class Job(View):
    """A training job."""

    id: str
    state: str
    dataset: str | None = None
    optimizer: dict[str, Any] = {}
    progress: Progress
    cost: JobCost
    attempt: int = 0
    error: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    labels: dict[str, str] = {}
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in {"succeeded", "failed", "cancelled", "expired"}

    @property
    def model(self) -> str | None:
        """The model's id, once succeeded."""
        return self.result.get("model") if self.result else None


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


class Coefficient(View):
    """One line of a coefficient table, in the units of the declared columns."""

    name: str
    estimate: float | None
    std_error: float | None
    z: float | None
    p_value: float | None
    interval: tuple[float | None, float | None] | None


class Summary(View):
    """A coefficient table with private intervals and what it cost."""

    model: str
    job: str
    optimizer: str
    n: int
    level: float | None = None
    correction: str | None = None
    coefficients: list[Coefficient]
    flags: dict[str, Any] = {}
    privacy: dict[str, Any] = {}


class Key(View):
    """An API key; `key` is the secret and is shown once."""

    id: str
    role: str
    name: str | None = None
    key: str | None = None


class Verification(View):
    """Whether a scope's chain of entries is whole."""

    ok: bool
    entries: int | None = None
    head: str | None = None
