"""Jobs as the service answers, typed."""

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from farthing.schemas.models import ReleaseDecision
from farthing.views import Method, View

_ASKED: Final = ("models", "optimizer", "privacy", "inference", "resources", "retry_allowance", "labels")
"""Fields of a job that are fields of its request too, beside `model`, whose name in Python is the released one's."""


class Cost(View):
    """The cost of a job: its share of the scope's budget, and figures under the scope's adjacency, as strings."""

    budget_share: str | None = None
    """Of the scope's whole budget, from 0 to 1; None of a federated job."""
    epsilon_alone: str | None = None
    """At the scope's delta, had nothing else been drawn; None of a federated job."""
    rho: str | None = None
    """In zero-concentrated terms; None where it has none, and of a federated job."""
    mu: str | None = None
    """Of Gaussian answers alone; None where others are among them, and of a federated job."""


class Progress(View):
    """Steps done, of steps planned."""

    step: int
    """Done so far."""
    steps: int
    """Planned."""
    left: int | None = None
    """Still to do by the plan; 0 once the job has ended; None: not given."""


class JobCost(View):
    """The reservation, the reserve beside it that pays for lost chunks again, and the spent part.

    `returned` is the part that was reserved, never drawn, and given back; None until the job has ended.
    """

    reserved: Cost
    """The most it may cost."""
    retry_allowance: Cost | None = None
    """Reserved beside that, to pay lost chunks again; None of a federated job."""
    spent: Cost
    """Spent up to now."""
    returned: Cost | None = None
    """Of `reserved`, given back for good; None until the job has ended, and of a federated one."""
    delta: str | None = None
    """The scope's, at which each `epsilon_alone` holds; None of a federated job."""


class Failure(View):
    """Why a job failed: a code from a closed list."""

    code: str
    """Stable; docs/reference/errors.md lists all."""


class Result(View):
    """The release of a job."""

    model: str
    """The model that may be read, `mdl_...`."""


class Site(View):
    """A site of a federated job; dataset, scope, site, job and cost are None where this key may not see them."""

    place: int
    """From 0, in the order of the job's datasets."""
    state: str
    """As a job's."""
    dataset: str | None = None
    """`ds_...`; None where this key may not see it."""
    scope: str | None = None
    """The scope that pays, `sc_...`; None as above."""
    site: str | None = None
    """That keeps its records; empty: the service's own; None as above."""
    job: str | None = None
    """The site's own, `job_...`; None as above."""
    cost: JobCost | None = None
    """The cost that its scope pays; None as above."""
    error: Failure | None = None
    """Why it failed; None where it has not, or as above."""


class Federation(View):
    """The part of a job in a federated one: the job itself, with its sites, or the site at a place."""

    job: str
    """The federated job's id."""
    place: int | None = None
    """The site's, from 0; None: it is the federated job itself."""
    quorum: int | None = None
    """Sites that must be left; None of a site's own job."""
    sites: list[Site] | None = None
    """By place; None of a site's own job."""


class Job(View):
    """A training job. Its release may wait for approval; `waits_for` and `failed_for` say in words what for, and why.

    A federated job has no cost of its own, so that its figures are None; each site has, in `federation.sites`.
    """

    id: str
    """`job_...`."""
    state: str
    """queued, running, cancelling, succeeded, failed, cancelled or expired."""
    dataset: str | None = None
    """That it reads, `ds_...`; None of a federated job."""
    scope: str | None = None
    """The scope that pays, `sc_...`; None of a federated job, each of its sites has its own."""
    site: str | None = None
    """That keeps its records; empty: the service's own; None of a federated job, each of its sites has its own."""
    owner: str | None = None
    """The principal who submitted it, `pr_...`; None: not given."""
    owner_name: str | None = None
    """The name of the principal who submitted it; None: not given."""
    models: list[str] = Field(default_factory=list)
    """Released ones that it is about, `mdl_...`; mostly none."""
    method: Method | None = None
    """That fits it, the default where the request named none; None: not given."""
    optimizer: dict[str, Any] = Field(default_factory=dict)
    """The method's settings, nothing left open."""
    privacy: dict[str, Any] = Field(default_factory=dict)
    """The target it was planned for."""
    inference: dict[str, Any] = Field(default_factory=dict)
    """Which intervals, nothing left open."""
    resources: dict[str, Any] = Field(default_factory=dict)
    """Resources of its trainer, and its way of waiting for them; values that were left out are filled in."""
    retry_allowance: int | None = None
    """Chunks reserved beside the price, to pay again for chunks that are lost with a worker; None: not given."""
    progress: Progress
    """Its progress."""
    # A federated job has null here; empty figures leave callers one type.
    cost: Annotated[JobCost, BeforeValidator(lambda cost: cost or {"reserved": {}, "spent": {}})]
    """Its cost; without figures for a federated job, whose sites have one each."""
    attempt: int = 0
    """Times that it was started; 0: not yet."""
    error: Failure | None = None
    """Why it failed; None where it has not."""
    result: Result | None = None
    """Its release; None until it succeeded, and where the caller may not see it."""
    approval: str | None = None
    """not-needed, pending, approved, rejected, retired or retracted; None until something was released."""
    decision: ReleaseDecision | None = None
    """The owner's word on the release; None where nothing was said. Sites of a federated job have their own."""
    labels: dict[str, str] = Field(default_factory=dict)
    """As submitted."""
    clone_of: str | None = None
    """The job that it repeats, `job_...`; None where it is no clone."""
    federation: Federation | None = None
    """Its part in a federated job; None: it has none."""
    waits_for: str | None = None
    """In words, why a queued job cannot start now; None: it can."""
    failed_for: str | None = None
    """In words, why it failed and what to do; None where it has not."""
    created_at: str | None = None
    """When it was submitted; None: not given."""
    started_at: str | None = None
    """When it was first claimed; None: not yet."""
    finished_at: str | None = None
    """When it ended; None: not yet."""

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in {"succeeded", "failed", "cancelled", "expired"}

    @property
    def withheld(self) -> str | None:
        """In words, what became of the release of a job that succeeded; None where it is open to this key."""
        if self.state != "succeeded" or self.model is not None:
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
        # The dump also has `model` of the request, which `extra="allow"` keeps beside the property of that name.
        told = self.model_dump(mode="json")
        asked = {name: told[name] for name in ("model", *_ASKED) if told.get(name) is not None}
        if self.federation is None or self.federation.sites is None:
            return {"dataset": self.dataset, **asked}
        datasets = [site.dataset for site in self.federation.sites]
        if None in datasets:
            return None
        return {"federation": {"datasets": datasets, "quorum": self.federation.quorum}, **asked}

    @property
    def model(self) -> str | None:
        """The model's id, once succeeded and open to this key."""
        return self.result.model if self.result else None


class Event(View):
    """A line of a job's history."""

    seq: int
    """Its number in the job's history, from 1."""
    kind: str
    """The event, such as queued, running, progress or succeeded."""
    data: dict[str, Any]
    """Facts that belong to it."""
    created_at: str
    """When it happened; progress and ends on a coarse grid of time."""
