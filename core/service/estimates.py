"""Estimates: the price of a job and the theory's predictions, from public facts alone."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from threading import Lock
from typing import Any, Final, NamedTuple

from pydantic import Field, TypeAdapter
from sqlalchemy.orm import Session

from core.base.errors import FieldError, Invalid, Refusal
from core.data.columns import Column
from core.db import reads as queries
from core.db.tables import Dataset, Scope
from core.ledger.accounts import Balance, balance_of
from core.ledger.allowance import promised
from core.ledger.ledger import balance
from core.ledger.schedules import Schedule
from core.methods.registry import source_of
from core.models.kinds import NetworkModel
from core.models.term_words import term_notes
from core.planning.diagnose import figures_at_fault
from core.planning.excess import foresee_excess, reach_excess, within_reach
from core.planning.federating import refuse_absent
from core.planning.forecast import Asker, Goal, forecast, reach
from core.planning.job import JobSpec
from core.planning.memory import refuse_small_memory
from core.planning.networks import multiplications
from core.planning.planner import PlannedJob, composed
from core.privacy.amounts import PrivacyTarget, write_figure
from core.privacy.events import Event
from core.privacy.facts import Adjacency
from core.privacy.renyi import cost_nano
from core.service import about, weights
from core.service.budgets import NO_COST, allowance_figures, cost_figures, estimated_cost, has_room, still_fit
from core.service.context import Caller, Context
from core.service.failure_messages import if_lost
from core.service.visibility import find_dataset, refuse_unready
from farthing.schemas.estimates import EstimateView, ExcessForecast, Forecast, Reached, ReachedExcess
from farthing.schemas.jobs import JobCost

COLUMNS: TypeAdapter[list[Column]] = TypeAdapter(list[Column])
"""Reads the columns that a dataset declared."""


@dataclass(frozen=True)
class EstimatedJob:
    """A planned job and the dataset it reads; nothing of it ever changes but what its account holds."""

    planned: PlannedJob
    dataset_id: str
    scope_id: str
    account: Balance
    """Of the scope, when the plan was made; its terms are fixed."""
    site: str
    """That keeps the records."""

    @cached_property
    def schedule(self) -> Schedule:
        """Its draws, chunk by chunk, and the allowance beside, with their costs."""
        planned = self.planned
        draws = planned.draws
        return Schedule(planned.schedule, planned.spec.retry_allowance, draws=draws.most, whole_runs=draws.runs)

    @cached_property
    def cost(self) -> JobCost:
        """Its cost, before any of it is spent."""
        schedule, times = self.planned.schedule, self.planned.spec.retry_allowance
        return JobCost(
            reserved=cost_figures(composed(schedule), self.account, at_head=False),
            retry_allowance=allowance_figures(schedule, times, self.account, at_head=False),
            spent=NO_COST,
            returned=None,
            delta=write_figure(self.account.terms.delta),
        )

    @cached_property
    def stored_spec(self) -> dict[str, Any]:
        """The filled settings, JSON-ready."""
        return self.planned.spec.model_dump(mode="json")

    @property
    def parts(self) -> tuple["EstimatedJob", ...]:
        """The plans that are paid for: itself."""
        return (self,)

    @property
    def steps(self) -> int:
        """The public number of steps."""
        steps = self.planned.spec.optimizer.steps
        assert steps is not None, "a planned job leaves nothing open"
        return steps


@dataclass(frozen=True)
class Quote(EstimatedJob):
    """A plan with its price, and the accounts that would pay, at one head."""

    price: Event
    grant_id: str | None
    head: str
    grant: Balance | None
    columns: tuple[Column, ...]
    """As the dataset declares them."""


class Plans:
    """Plans of jobs that were asked for before, so that the same job is planned once.

    A plan follows from the request and from public facts that never change: a ready dataset's columns and size, its
    scope's adjacency and terms. The right to submit it, and its fit, are checked each time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str | None, str], EstimatedJob] = OrderedDict()
        self._lock = Lock()

    def find(self, spec: JobSpec, digest: str) -> EstimatedJob | None:
        """Return the plan of a job; None where there is none, or where it depends on what is there now.

        GPUs, weights to start from and models to be about do so too; plans of several sites are not kept.

        Args:
            spec: the request.
            digest: of its canonical text.
        """
        named = spec.federation or spec.models or getattr(spec.model, "pretrained", None) is not None
        if named or spec.resources.served_by == "cuda":
            return None
        with self._lock:
            return self._kept.get((spec.dataset, digest))

    def keep(self, quoted: Quote, digest: str) -> EstimatedJob:
        """Remember a quote's plan; return it."""
        with self._lock:
            self._kept[quoted.dataset_id, digest] = quoted
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return quoted


PLANS: Final = Plans(1024)


class _Asked(NamedTuple):
    """A job, and all that its plan follows from, as it stands now."""

    asker: Asker
    dataset: Dataset
    scope: Scope
    account: Balance


def _asked(session: Session, context: Context, caller: Caller, spec: JobSpec) -> _Asked:
    """Look up what a job asks for; raises as `quote` does, but for what only its plan tells."""
    if spec.dataset is None:
        raise Invalid("A job needs a dataset.", FieldError("/dataset", "name a dataset, or several in a federation"))
    refuse_absent(spec)
    resources = spec.resources
    most = context.settings.max_gpu_processes if resources.served_by == "cuda" else context.settings.max_processes
    if resources.processes > most:
        raise Invalid(
            f"A job may have {most} processes on such a device here.",
            FieldError("/resources/processes", f"ask for at most {most}"),
        )
    dataset = find_dataset(session, caller, spec.dataset)
    refuse_unready(dataset, FieldError("/dataset", "use another"))
    scope = session.get_one(Scope, dataset.scope_id)
    account = balance(session, scope.id)
    columns = COLUMNS.validate_python(dataset.columns)
    units = scope.units if dataset.rows is None else dataset.rows
    asker = Asker(spec, columns, units, Adjacency(scope.adjacency), account.terms)
    return _Asked(asker, dataset, scope, account)


def quote(session: Session, context: Context, caller: Caller, spec: JobSpec) -> Quote:
    """Plan and price a job; reads the scope's present balance and no record.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Conflict: the dataset has no records yet, or none any more.
        Invalid: the job does not fit the dataset, asks for more processes than there may be, or for too little memory.
    """
    asker, dataset, scope, account = _asked(session, context, caller, spec)
    grant = queries.grant(session, scope.id, caller.id)
    planned = _plan(asker)
    refuse_small_memory(planned, context.settings)
    if isinstance(planned.spec.model, NetworkModel):
        weights.check(session, caller, planned.spec.model, planned.design, {dataset.site})
    about.check(session, context, caller, planned, [dataset])
    return Quote(
        planned=planned,
        price=planned.price,
        dataset_id=dataset.id,
        scope_id=scope.id,
        grant_id=None if grant is None else grant.id,
        head=scope.head,
        account=account,
        site=dataset.site,
        grant=None if grant is None else balance_of(grant),
        columns=tuple(asker.columns),
    )


def _plan(asker: Asker) -> PlannedJob:
    """Plan a job; a plan is arithmetic on the request, so extreme figures may leave what floats can hold.

    They overflow, divide by zero, are the logarithm of zero, or no valid figure in the plan.
    """

    def fails(changed: JobSpec) -> bool:
        try:
            replace(asker, spec=changed).plan()
        except (ValueError, ArithmeticError):
            return True
        except Refusal:
            return False
        return False

    try:
        return asker.plan()
    except (ValueError, ArithmeticError) as error:
        raise Invalid(
            "These settings lead to numbers that are too large or too small to compute with.",
            *figures_at_fault(asker.spec, fails),
        ) from error


def most_reserved(planned: PlannedJob, account: Balance) -> list[int]:
    """Return what a job would reserve at each order of an account: its price, and its allowance beside that."""
    orders = account.terms.orders
    price = cost_nano(planned.price, orders)
    beside = promised(planned.schedule, planned.spec.retry_allowance, account.terms)[: len(orders)]
    return [one + other for one, other in zip(price, beside, strict=True)]


def plan_of(planned: PlannedJob) -> dict[str, Any]:
    """Return a filled job's settings as people read them: the method's own, then the model and the inference.

    `sigma` has the noise multipliers of each kind of question, loudest first; one number where all are equal.
    `sampling` says which units a question reads, where that is not all of them.
    """
    spec = planned.spec
    asked = dict.fromkeys(spec.optimizer.questions())
    multipliers: dict[str, list[float]] = {question.kind: [] for question in asked}
    for question in sorted(asked, key=lambda one: -one.sigma):
        multipliers[question.kind].append(question.sigma)
    sigma = {kind: found if len(found) > 1 else found[0] for kind, found in multipliers.items()}
    shown = spec.model_dump(mode="json", include={"model", "inference", "resources"})
    sampling = spec.optimizer.sampling(planned.facts).told()
    drawn: dict[str, Any] = {"sampling": sampling} if sampling else {}
    if figures := spec.optimizer.figures(planned.facts):
        drawn["figures"] = figures
    return {**spec.optimizer.model_dump(mode="json"), "sigma": sigma, **drawn, **shown}


class EstimateSpec(JobSpec):
    """A job, or what is wanted of one: with a goal, the privacy target may be left out."""

    privacy: PrivacyTarget = Field(
        default=PrivacyTarget(mu=Decimal(1)), description="with a goal it may be left out: the smallest is found"
    )
    goal: Goal | None = Field(
        default=None, description="a goal; the answer names the budget and the records that it takes"
    )

    def job(self) -> JobSpec:
        """Return the job without its goal.

        Raises:
            Invalid: there is neither a goal nor a privacy target.
        """
        if self.goal is None and "privacy" not in self.model_fields_set:
            raise Invalid("A job needs a privacy target.", FieldError("/privacy", "give one, or a goal to find it by"))
        given = self.model_fields_set - {"goal"} | {"privacy"}
        return JobSpec.model_validate({name: getattr(self, name) for name in given})


class Foreseen(NamedTuple):
    """The plan to show, what to expect of it, and what a goal takes."""

    planned: PlannedJob
    prediction: Forecast | None
    excess: ExcessForecast | None
    goal: Reached | ReachedExcess | None


class Forecasts:
    """Earlier predictions: they follow from requests and from public facts that never change."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str], Foreseen] = OrderedDict()
        self._lock = Lock()

    def find(self, quoted: Quote, spec: EstimateSpec) -> Foreseen:
        """Return what to expect of a quoted job, and the plan that reaches its goal.

        Raises:
            Invalid: as `reach` does.
        """
        key = (quoted.dataset_id, spec.model_dump_json(exclude_unset=True))
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        made = _foresee(quoted, spec)  # outside the lock: at worst two threads compute the same
        with self._lock:
            self._kept[key] = made
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


FORECASTS: Final = Forecasts(1024)


def _foresee(quoted: Quote, spec: EstimateSpec) -> Foreseen:
    """Predict, and plan again for what is wanted."""
    facts = quoted.planned.facts
    asker = Asker(spec.job(), quoted.columns, facts.units, facts.adjacency, quoted.account.terms)
    planned = quoted.planned
    reached: Reached | ReachedExcess | None = None
    privacy_given = "privacy" in spec.model_fields_set
    wanted = None if spec.goal is None else spec.goal.width or spec.goal.effect
    if wanted is not None:
        planned, reached = reach(asker, wanted, privacy_given=privacy_given)
    elif spec.goal is not None and spec.goal.excess_risk is not None:
        reached = reach_excess(asker, planned, spec.goal.excess_risk, privacy_given=privacy_given)
    return Foreseen(planned, forecast(asker, planned), foresee_excess(planned), reached)


def _affordable(context: Context, caller: Caller, spec: EstimateSpec) -> JobSpec:
    """Return the job; where a wanted excess risk is all that is said of its worth, with the target that it takes.

    A plan at any other target may be refused, for it promises nothing there.
    """
    job = spec.job()
    if spec.goal is None or spec.goal.excess_risk is None or "privacy" in spec.model_fields_set:
        return job
    with context.database.read() as session:
        asker = _asked(session, context, caller, job).asker
    try:
        return within_reach(asker, spec.goal.excess_risk).spec
    except (ValueError, ArithmeticError):
        return job  # too extreme to compute with, at any target: its plan is refused with the figures at fault


def estimate(context: Context, caller: Caller, spec: EstimateSpec) -> EstimateView:
    """Return price, plan and prediction of a job; nothing is reserved.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Conflict: the dataset has no records to read.
        Invalid: the job does not fit the dataset.
    """
    job = _affordable(context, caller, spec)
    with context.database.read() as session:
        quoted = quote(session, context, caller, job)
    foreseen = FORECASTS.find(quoted, spec)
    planned, price = foreseen.planned, foreseen.planned.price
    quoted = replace(quoted, planned=planned, price=price)
    accounts = [account for account in (quoted.account, quoted.grant) if account is not None]
    paired = [(account, most_reserved(planned, account)) for account in accounts]
    scope = quoted.account.terms
    rows, width, model = planned.facts.units, planned.facts.dimension, planned.spec.model
    each = multiplications(model, planned.design) if isinstance(model, NetworkModel) else width  # of one record's pass
    passes = planned.spec.optimizer.passes(planned.facts) + planned.matrices * width
    return EstimateView(
        cost=estimated_cost(quoted.price, planned.schedule, planned.spec.retry_allowance, quoted.account, at_head=True),
        method=source_of(planned.spec.optimizer.kind),
        plan=plan_of(planned),
        bound=planned.bound,
        fits=all(has_room(account, price, planned.draws, scope) for account, price in paired),
        jobs_that_still_fit=min(still_fit(account, price, planned.draws, scope) for account, price in paired),
        steps=quoted.steps,
        chunks=len(planned.schedule),
        rows=rows,
        coefficients=width,
        compute={
            "multiplications": float(passes * rows * each),
            "records_bytes": float(rows * planned.design.record_bytes),
        },
        head=quoted.head,
        prediction=foreseen.prediction,
        excess=foreseen.excess,
        goal=foreseen.goal,
        if_lost=if_lost(planned),
        notes=term_notes(planned.design),
    )
