"""Jobs and their prices as they leave the house; as `views`."""

from typing import Any, Literal

from pydantic import Field

from core.methods.base import Bound
from core.methods.registry import MethodSource
from core.planning.excess import ExcessForecast, ReachedExcess
from core.planning.forecast import Forecast, Reached
from farthing.schemas.base import View
from farthing.schemas.models import ReleaseDecision
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid, Timed


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


class EstimateCost(CostFigures):
    """Cost of a planned job, and the reservation beside it that pays lost chunks again."""

    retry_allowance: CostFigures
    """Reserved beside the price, and given back where it is not needed."""
    delta: Declared[str]
    """The scope's, at which `epsilon_alone` holds."""


class SiteEstimate(View):
    """Cost of a planned federated job for one site."""

    dataset: Drawn[str]
    """The site's, `ds_...`."""
    rows: Declared[int]
    """Its units, public by the owner's word."""
    plan: Declared[dict[str, Any]]
    """The method's settings as planned for it."""
    cost: EstimateCost
    """Charge to its own scope."""
    fits: Paid[bool]
    """Whether its budget admits its part now."""
    jobs_that_still_fit: Paid[int]
    """Number of such draws, one after the other."""


class EstimateView(View):
    """Cost of a planned job, and the theory's predictions; no record was read.

    Of a federated job each site has its own price, and the plan is what they have in common. `if_lost` says, in words
    and of a job on one dataset, what becomes of it if its worker is lost.
    """

    cost: EstimateCost | None
    """At the ledger's present head; null of a federated job, whose sites have one each."""
    method: Declared[MethodSource]
    """That would run, the default where the request names none, and whose it is."""
    plan: Declared[dict[str, Any]]
    """The settings that would run, nothing left open."""
    bound: Declared[Bound]
    """Promise of the method's theorem."""
    fits: Paid[bool]
    """Whether the budget, and the caller's cap, admit it now."""
    jobs_that_still_fit: Paid[int]
    """Number of such draws, one after the other."""
    steps: Declared[int]
    """That it would take."""
    chunks: Declared[int]
    """In which it is paid, each before it reads."""
    rows: Declared[int]
    """Units it would read, public by the owner's word."""
    coefficients: Declared[int]
    """That are estimated, encoded."""
    compute: Declared[dict[str, float]]
    """Work: multiplications, and bytes of all records."""
    head: Drawn[str | None]
    """Of the ledger when it was priced; null of a federated job, and of data that are not uploaded yet."""
    sites: list[SiteEstimate] | None = None
    """Each site's price, by place; null of a job on one dataset."""
    prediction: Declared[Forecast | None] = None
    """Interval widths to expect; null without intervals, and of a federated job."""
    excess: Declared[ExcessForecast | None] = None
    """Promised excess risk; null of methods that promise none."""
    goal: Declared[Reached | ReachedExcess | None] = None
    """Needs of the wanted width or excess risk; null where none was requested."""
    if_lost: Declared[str | None] = None
    """Effect of a lost worker on it; null of a federated job."""
    notes: Declared[list[str]] = Field(default_factory=list)
    """Effects of interactions, an offset or sampling weights on the meaning of coefficients; a sentence each."""


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


class JobView(View):
    """A training job; a federated one has sites in place of a dataset and a cost.

    `models` are the released ones that it is about; of most jobs none. `waits_for` says, in words, why a queued job
    cannot start now; `failed_for` why a failed one has, and what to do: from its code and what it asked for.
    """

    id: Drawn[str]
    """`job_...`."""
    object: Literal["job"] = "job"
    state: Paid[str]
    """queued, running, cancelling, succeeded, failed, cancelled or expired."""
    dataset: Drawn[str | None]
    """That it reads, `ds_...`; null of a federated job."""
    scope: Drawn[str | None]
    """Scope that pays, `sc_...`; null of a federated job, whose sites have theirs."""
    site: Operational[str | None]
    """That keeps its records; empty: the service's own; null of a federated job, whose sites tell theirs."""
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
    waits_for: Operational[str | None] = None
    """In words, why a queued job cannot start now; null: it can."""
    failed_for: Paid[str | None] = None
    """In words, why it failed and what to do; null where it has not."""


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
