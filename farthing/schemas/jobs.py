"""Jobs: their prices, their state and history, and the files that they leave."""

from collections.abc import Iterator
from typing import Any, Final, Literal

from farthing.schemas.base import Shown, View
from farthing.schemas.models import ReleaseDecision
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid, Timed


class MethodSource(View):
    """Which method a job runs, and whose it is."""

    kind: str
    """As a job names it, such as noisy_newton."""
    title: str
    """As people call it."""
    source: str
    """A paper's, or ours."""


class CostFigures(View):
    """A cost under the scope's adjacency."""

    budget_share: Paid[str]
    """Of the scope's whole budget, from 0 to 1."""
    epsilon_alone: Declared[str]
    """At the scope's delta, had nothing else been drawn."""
    rho: Declared[str | None]
    """In zero-concentrated terms; null where it has none."""
    mu: Declared[str | None]
    """Of Gaussian answers alone; null where others are among them."""


class ProgressView(View):
    """Steps done, of steps planned."""

    step: Paid[int]
    """Done so far."""
    steps: Declared[int]
    """Planned."""
    left: Paid[int]
    """Still to do by the plan; 0 once the job has ended. No seconds: the speed of a step could tell of the records."""


class JobCost(View):
    """Its cost, the reservation beside it that pays lost chunks again, and its cost by now.

    `returned` is what was reserved of the worst case, never drawn, and given back; null until the job has ended.
    """

    reserved: CostFigures
    """The most it may cost."""
    retry_allowance: CostFigures
    """Reserved beside that, to pay lost chunks again."""
    spent: Paid[CostFigures]
    """By now."""
    returned: Paid[CostFigures | None]
    """Of `reserved`, given back for good; null until the job has ended."""
    delta: Declared[str]
    """The scope's, at which `epsilon_alone` holds."""


class FailureView(View):
    """Why a job failed, from a closed list."""

    code: Paid[str]
    """Stable; docs/reference/errors.md lists all."""


class ResultView(View):
    """Release of a job."""

    model: Drawn[str]
    """Its model, `mdl_...`."""


class SiteView(View):
    """A site of a federated job; its dataset, scope, site, job and cost only for those who may see that job."""

    place: Declared[int]
    """From 0, in the order of the job's datasets."""
    state: Paid[str]
    """As a job's."""
    dataset: Drawn[str | None]
    """`ds_...`; null where it is not the caller's to see."""
    scope: Drawn[str | None]
    """Scope that pays, `sc_...`; null as above."""
    site: Operational[str | None]
    """That keeps its records; empty: the service's own; null as above."""
    job: Drawn[str | None]
    """The site's own, `job_...`; null as above."""
    cost: JobCost | None
    """Payment of its scope; null as above."""
    error: FailureView | None
    """Why it failed; null where it has not, or as above."""


class FederationView(View):
    """Part of a job in a federated one: the job itself, with its sites, or the site at a place."""

    job: Drawn[str]
    """The federated job's id."""
    place: Declared[int | None]
    """The site's, from 0; null: it is the federated job itself."""
    quorum: Declared[int | None]
    """Sites that must be left; null of a site's own job."""
    sites: list[SiteView] | None
    """By place; null of a site's own job."""


_ASKED: Final = ("model", "models", "optimizer", "privacy", "inference", "resources", "retry_allowance", "labels")
"""Fields of a job that are fields of its request too."""


class JobView(Shown):
    """A training job; a federated one has sites in place of a dataset and a cost.

    `models` are the released ones that it is about; of most jobs none. `waits_for` says, in words, which worker a
    queued job lacks; null: one is alive, perhaps busy. `failed_for` says why a failed one has, and what to do: from its
    code and what it asked for.
    """

    id: Drawn[str]
    """`job_...`."""
    object: Literal["job"] = "job"
    state: Paid[str]
    """queued, running, cancelling, succeeded, failed, cancelled or expired."""
    dataset: Drawn[str | None]
    """That it reads, `ds_...`; null of a federated job."""
    scope: Drawn[str | None]
    """Scope that pays, `sc_...`; null of a federated job, whose sites have theirs, and of a mock job."""
    site: Operational[str | None]
    """That keeps its records; empty: the service's own; null of a federated job and of a mock job."""
    owner: Drawn[str]
    """Its submitter, `pr_...`."""
    owner_name: Declared[str]
    """The name of the principal who submitted it."""
    model: Declared[dict[str, Any]]
    """The model, with every setting filled."""
    models: Drawn[list[str]]
    """Released ones that it is about, `mdl_...`; mostly none."""
    method: Declared[MethodSource]
    """That fits it, the default where the request named none, and whose it is."""
    optimizer: Declared[dict[str, Any]]
    """The method's settings, nothing left open."""
    privacy: Declared[dict[str, Any]]
    """The target it was planned for."""
    inference: Declared[dict[str, Any]]
    """Which intervals, nothing left open."""
    resources: Declared[dict[str, Any]]
    """Resources of its trainer and its way of waiting, with defaults filled."""
    retry_allowance: Declared[int]
    """Chunks reserved beside the price, to pay again for what is lost with a worker."""
    progress: ProgressView
    """Its progress."""
    cost: JobCost | None
    """Its cost; null of a federated job, whose sites have one each."""
    attempt: Operational[int]
    """Times that it was started; 0: not yet."""
    created_at: Timed[str]
    """When it was submitted."""
    started_at: Timed[str | None]
    """When it was first claimed; null: not yet."""
    finished_at: Timed[str | None]
    """When it ended; null: not yet."""
    error: FailureView | None
    """Why it failed; null where it has not."""
    result: ResultView | None
    """Its release; null until it succeeded, and where the caller may not see it."""
    approval: Operational[str | None]
    """not-needed, pending, approved, rejected, retired or retracted; null until something was released."""
    decision: ReleaseDecision | None = None
    """The owner's comment on the release; null without one. Sites of a federated job have their own."""
    labels: Declared[dict[str, str]]
    """As submitted."""
    clone_of: Drawn[str | None] = None
    """The job that it repeats, `job_...`; null where it is no clone."""
    federation: FederationView | None = None
    """Its part in a federated job; null: none."""
    mock: Declared[bool] = False
    """Whether it trains on rows drawn from the declaration, and never on records; `cost` is what it would cost then."""
    mock_rows: Declared[int | None] = None
    """Rows that a mock job draws; null of any other."""
    waits_for: Operational[str | None] = None
    """In words, why a queued job cannot start now; null: it can."""
    failed_for: Paid[str | None] = None
    """In words, why it failed and what to do; null where it has not."""

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from (("id", self.id), ("state", self.state), ("step", self.progress.step))
        yield from (("steps", self.progress.steps), ("released", self.released))

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in {"succeeded", "failed", "cancelled", "expired"}

    @property
    def released(self) -> str | None:
        """The model's id, once succeeded and open to this key."""
        return self.result.model if self.result else None

    @property
    def withheld(self) -> str | None:
        """In words, what became of the release of a job that succeeded; None where it is open to this key."""
        if self.state != "succeeded" or self.released is not None:
            return None
        words = {
            "pending": "waits for the owner's approval",
            "retired": "is past its time of keeping",
            "retracted": "was retracted by the submitter of the job or by an owner of the data",
        }
        reason = f": {self.decision.reason}" if self.decision is not None and self.decision.reason else ""
        return words.get(self.approval or "", f"was {self.approval} by the owner{reason}")

    @property
    def spec(self) -> dict[str, Any] | None:
        """The request, filled: `client.submit` takes it for the same job once more, at a new charge.

        None where it is not known: of a federated job with sites that this key may not see.
        """
        asked = self.model_dump(mode="json", include={*_ASKED})
        if self.federation is None or self.federation.sites is None:
            return {"dataset": self.dataset, **asked}
        datasets = [site.dataset for site in self.federation.sites]
        if None in datasets:
            return None
        return {"federation": {"datasets": datasets, "quorum": self.federation.quorum}, **asked}


class EventView(View):
    """A line of a job's history."""

    object: Literal["event"] = "event"
    seq: Paid[int]
    """Its number in the job's history, from 1."""
    kind: Paid[str]
    """Kind of event, such as queued, running, progress or succeeded."""
    data: Paid[dict[str, Any]]
    """Data of the event."""
    created_at: Timed[str]
    """When it happened; progress and ends on a coarse grid of time."""


class AttemptView(View):
    """One claim of a job by a supervisor."""

    object: Literal["attempt"] = "attempt"
    number: Operational[int]
    """From 1."""
    started_at: Timed[str]
    """When it was claimed."""
    opened_at: Timed[str | None]
    """When records were opened; null: they were not."""
    ended_at: Timed[str | None]
    """When it ended; null: not yet."""
    outcome: Paid[str | None]
    """Its outcome; null: not yet ended."""


class ArtifactView(View):
    """Something a job left behind, and where to get it."""

    object: Literal["artifact"] = "artifact"
    name: Operational[str]
    """A file name to keep it under."""
    media_type: Operational[str]
    """Of its bytes."""
    href: Drawn[str]
    """Where to get it, below the service's address."""
