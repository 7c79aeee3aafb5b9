"""Estimates: the price of a job and the theory's predictions, from public facts alone."""

from collections import OrderedDict
from dataclasses import replace
from decimal import Decimal
from threading import Lock
from typing import Any, Final, NamedTuple, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from core.base.errors import FieldError, Invalid
from core.data.datasets import Declaration
from core.inference.settings import UNCHECKED
from core.methods.registry import source_of
from core.models.kinds import LinearModel, NetworkModel
from core.models.term_words import term_notes
from core.planning.excess import foresee_excess, reach_excess, within_reach
from core.planning.forecast import Asker, Goal, forecast, reach
from core.planning.job import JobSpec
from core.planning.networks import multiplications
from core.planning.planner import PlannedJob
from core.privacy.amounts import PrivacyTarget
from core.service.budgets import estimated_cost, has_room, still_fit
from core.service.context import Caller, Context
from core.service.failure_messages import if_lost
from core.service.quotes import Appraisal, appraise, look_up, most_reserved
from farthing.schemas.estimates import EstimateView, ExcessForecast, Forecast, Reached, ReachedExcess


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


class AppraisedSpec(JobSpec):
    """A job on a dataset or on several sites, or on data that are declared and not uploaded yet."""

    declaration: Declaration | None = Field(
        default=None, description="in place of a dataset: public facts of data that are not uploaded yet"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        named = self.dataset is not None or self.federation is not None
        if self.declaration is not None and named:
            raise PydanticCustomError(
                "two_sources",
                "leave it out where a dataset or a federation is named: those have their own declaration",
                {"field": "declaration"},
            )
        if self.declaration is None and not named:
            raise PydanticCustomError(
                "no_source", "name a dataset, or give a declaration or a federation", {"field": "dataset"}
            )
        return self

    def job(self) -> JobSpec:
        """Return the job without what only an estimate has."""
        given = self.model_fields_set & JobSpec.model_fields.keys()
        return JobSpec.model_validate({name: getattr(self, name) for name in given})


class EstimateSpec(AppraisedSpec):
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
        given = self.model_fields_set & JobSpec.model_fields.keys() | {"privacy"}
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
        self._kept: OrderedDict[str, Foreseen] = OrderedDict()
        self._lock = Lock()

    def find(self, appraisal: Appraisal, spec: EstimateSpec) -> Foreseen:
        """Return what to expect of a planned job, and the plan that reaches its goal.

        Raises:
            Invalid: as `reach` does.
        """
        # Kept for datasets alone: anybody may send thousands of wide declarations, which would fill the memory.
        if spec.declaration is not None:
            return _foresee(appraisal, spec)
        key = spec.model_dump_json(exclude_unset=True)
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        made = _foresee(appraisal, spec)  # outside the lock: at worst two threads compute the same
        with self._lock:
            self._kept[key] = made
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


FORECASTS: Final = Forecasts(1024)


def _foresee(appraisal: Appraisal, spec: EstimateSpec) -> Foreseen:
    """Predict, and plan again for what is wanted."""
    asker, planned = replace(appraisal.asker, spec=spec.job()), appraisal.planned
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
        asker = look_up(session, context, caller, job, spec.declaration).asker
    try:
        return within_reach(asker, spec.goal.excess_risk).spec
    except (ValueError, ArithmeticError):
        return job  # too extreme to compute with, at any target: its plan is refused with the figures at fault


def estimate(context: Context, caller: Caller, spec: EstimateSpec) -> EstimateView:
    """Return price, plan and prediction of a job; nothing is reserved.

    Of data that are only declared the answer is the one that they will have as a dataset of a new budget.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Conflict: the dataset has no records to read.
        Invalid: the job does not fit the dataset or the declaration, or no upload could have this declaration.
    """
    job = _affordable(context, caller, spec)
    with context.database.read() as session:
        appraisal = appraise(session, context, caller, job, spec.declaration)
    foreseen = FORECASTS.find(appraisal, spec)
    planned, price, account = foreseen.planned, foreseen.planned.price, appraisal.account
    paired = [(one, most_reserved(planned, one)) for one in appraisal.accounts]
    scope = account.terms
    rows, width, model = planned.facts.units, planned.facts.dimension, planned.spec.model
    each = multiplications(model, planned.design) if isinstance(model, NetworkModel) else width  # of one record's pass
    passes = planned.spec.optimizer.passes(planned.facts) + planned.matrices * width
    return EstimateView(
        cost=estimated_cost(price, planned.schedule, planned.spec.retry_allowance, account, at_head=True),
        method=source_of(planned.spec.optimizer.kind),
        plan=plan_of(planned),
        bound=planned.bound,
        fits=all(has_room(account, price, planned.draws, scope) for account, price in paired),
        jobs_that_still_fit=min(still_fit(account, price, planned.draws, scope) for account, price in paired),
        steps=planned.spec.optimizer.steps,
        chunks=len(planned.schedule),
        rows=rows,
        coefficients=width,
        compute={
            "multiplications": float(passes * rows * each),
            "records_bytes": float(rows * planned.design.record_bytes),
        },
        head=appraisal.head,
        prediction=foreseen.prediction,
        excess=foreseen.excess,
        goal=foreseen.goal,
        if_lost=if_lost(planned),
        notes=_notes(appraisal.asker, planned),
    )


def _notes(asker: Asker, planned: PlannedJob) -> list[str]:
    """Return what coefficients mean, and what else is to be known beforehand, a sentence each."""
    model = planned.spec.model
    robust = model.loss.notes if isinstance(model, LinearModel) else ()
    return [*_unchecked(planned), *term_notes(planned.design), *robust, *asker.price_notes(planned)]


def _unchecked(planned: PlannedJob) -> list[str]:
    """Return a sentence about intervals that the job accepts unchecked."""
    optimizer, inference = planned.spec.optimizer, planned.spec.inference
    offers = optimizer.offers_intervals and not optimizer.checks_intervals
    return [UNCHECKED] if inference.intervals and offers else []
