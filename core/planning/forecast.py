"""Expected results of a job before it is paid, and the settings that a wanted result needs.

A plan tells the widths of its intervals (`core.planning.prediction`). Conversely, repeated planning finds the smallest
privacy target or number of units for a wanted width. It goes down from a value where the width is predicted, so that
all values between have it too. No record is read, whatever is asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil, exp, log
from statistics import fmean
from typing import Final, Self

from pydantic import Field, model_validator
from scipy.special import ndtr, ndtri

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, Coded, Column
from core.losses.weights import Clip
from core.models.assumed import Assumed
from core.models.description import DescriptionModel
from core.models.kinds import LinearModel, NetworkModel
from core.models.outlook import Outlook, Residuals, make_outlook, residual_scale
from core.models.reference import sampling_of
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.planning.prediction import MOST_COEFFICIENTS, PredictedWidth, predict
from core.planning.width_ranges import informative, outcome_of, ranged, unknown_rate, with_declared
from core.privacy.amounts import PrivacyTarget, format_figure
from core.privacy.budget import Terms
from core.privacy.facts import Adjacency, Facts, Frozen
from farthing.schemas.estimates import Forecast, ForeseenFlag, RangedWidth, Reached, UsefulFrom

LEAST_MU, MOST_MU = 1e-4, 1e4
LEAST_UNITS, MOST_UNITS = 10, 10**10
CLOSE: Final = 1.01
"""Searches end within this factor."""
USEFUL_RATIO: Final = 2.0


class WantedWidth(Frozen):
    """Largest width of a coefficient's interval."""

    coefficient: str = Field(max_length=200, description="as estimates and summaries name it")
    at_most: float = Field(gt=0, allow_inf_nan=False, description="in declared units")


class WantedEffect(Frozen):
    """Smallest effect that a two-sided test at the job's level must find."""

    coefficient: str = Field(max_length=200, description="as estimates and summaries name it")
    size: float = Field(gt=0, allow_inf_nan=False, description="in declared units, of either sign")
    power: float = Field(default=0.8, gt=0.05, lt=1, description="the wanted power")

    def width(self, level: float) -> float:
        """Return how wide an interval at that level may be."""
        beyond = float(ndtri(0.5 + level / 2))
        return 2 * beyond * self.size / (beyond + float(ndtri(self.power)))


class WantedExcess(Frozen):
    """Largest excess of the mean loss, its ridge included, over its least value."""

    at_most: float = Field(gt=0, allow_inf_nan=False, description="in encoded units")


class Goal(Frozen):
    """Target of a job: exactly one."""

    width: WantedWidth | None = None
    effect: WantedEffect | None = Field(default=None, description="a power calculation: the width that finds it")
    excess_risk: WantedExcess | None = Field(
        default=None, description="for methods that bound it: kl_spider, proximal_point, adaptive_gd"
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.width, self.effect, self.excess_risk)) != 1:
            raise ValueError("give one of width, effect and excess_risk")
        return self


@dataclass(frozen=True)
class Asker:
    """A job that is planned under changed circumstances: another privacy target, another number of units."""

    spec: JobSpec
    columns: Sequence[Column]
    units: int
    adjacency: Adjacency
    terms: Terms

    def plan(self) -> PlannedJob:
        """Return the plan.

        Raises:
            Invalid: as `plan_job` does.
        """
        return plan_job(self.spec, columns=self.columns, units=self.units, adjacency=self.adjacency, terms=self.terms)

    def worth(self, mu: float) -> "Asker":
        """Return the same with another privacy target, rounded up to a figure that can be asked for."""
        privacy = PrivacyTarget(mu=Decimal(format_figure(mu, "up")))
        return replace(self, spec=self.spec.model_copy(update={"privacy": privacy}))

    def outlook(self, planned: PlannedJob) -> Outlook | None:
        """Return what the widths of a plan are predicted from; None where none are predicted."""
        model, inference = planned.spec.model, planned.spec.inference
        if isinstance(model, NetworkModel | DescriptionModel):
            return None
        if not inference.intervals or isinstance(model.weights, Clip) or planned.facts.dimension > MOST_COEFFICIENTS:
            return None
        return make_outlook(planned.design, model, self.assumed(planned))

    def assumed(self, planned: PlannedJob) -> Assumed:
        """Return what is assumed of the records, and what their owner declares of other numbers."""
        return with_declared(self.columns, planned.design, self.spec.assume)

    def price_notes(self, planned: PlannedJob) -> list[str]:
        """Return sentences on what takes width beside the budget."""
        if not isinstance(planned.spec.model, LinearModel):
            return []
        assumed, target = self.assumed(planned), planned.design.target
        name, known = planned.design.target_column.name, assumed.residual_scale is not None
        residuals = Residuals(name, residual_scale(planned.design, assumed), target.scale, known)
        return planned.spec.optimizer.price_notes(planned.facts, residuals)

    def facts(self, planned: PlannedJob) -> Facts:
        """Return a plan's facts, weights as they are declared or assumed."""
        return planned.facts.model_copy(update={"sampling": sampling_of(planned.design, self.assumed(planned))})

    def unknown_rate(self, planned: PlannedJob) -> str | None:
        """Return the target of counts whose mean nobody has said; None: it is said, or the target is no count."""
        model = planned.spec.model
        if isinstance(model, NetworkModel | DescriptionModel):
            return None
        return unknown_rate(planned.design, model, self.assumed(planned))

    def predicted(self, planned: PlannedJob) -> tuple[PredictedWidth, ...] | None:
        """Return the widths of a plan; None where none are predicted."""
        outlook = self.outlook(planned)
        if outlook is None:
            return None
        return predict(outlook, self.facts(planned), planned.spec.optimizer, planned.spec.inference)

    def ranged(self, planned: PlannedJob, widths: tuple[PredictedWidth, ...]) -> tuple[RangedWidth, ...]:
        """Return the widths of a plan with both ends of each."""
        outlook, model = self.outlook(planned), planned.spec.model
        assert outlook is not None, "widths were predicted"
        assert not isinstance(model, NetworkModel | DescriptionModel), "nothing is predicted of them"
        described = (planned.design, model, self.assumed(planned))
        return ranged(widths, outlook, described, self.facts(planned), planned.spec.optimizer)

    def attempt(self) -> tuple[PredictedWidth, ...] | None:
        """Return the widths; None also where the job cannot be planned."""
        try:
            return self.predicted(self.plan())
        # A search also meets plans that are refused or leave the floats; both count as not good.
        except (Invalid, ArithmeticError):
            return None


def forecast(asker: Asker, planned: PlannedJob) -> Forecast | None:
    """Return what to expect of a plan; None where nothing is predicted: no intervals, or too many coefficients."""
    widths = asker.predicted(planned)
    if widths is None:
        return None

    def useful(found: tuple[PredictedWidth, ...]) -> bool:
        return fmean(log(one.ratio) for one in found) <= log(USEFUL_RATIO)

    unknown, known = asker.unknown_rate(planned), asker.assumed(planned).deviations
    mu = smallest_mu(asker, useful) if unknown is None else None
    units = smallest_units(asker, useful) if unknown is None else None
    is_informative, flags = _checked(asker, planned)
    return Forecast(
        level=planned.spec.inference.level,
        coefficients=asker.ranged(planned, widths),
        informative=is_informative,
        flags=flags,
        useful_from=UsefulFrom(mu=None if mu is None else format_figure(mu, "up"), units=units),
        unknown_rate=unknown,
        spread=tuple(
            column.name
            for column in planned.design.used
            if not isinstance(column, Coded | ArrayColumn) and column.name not in known
        ),
    )


def _checked(asker: Asker, planned: PlannedJob) -> tuple[bool, tuple[ForeseenFlag, ...]]:
    """Say whether the intervals will be worth having in any case, and with which flags a job may end."""
    optimizer, model, outlook = planned.spec.optimizer, planned.spec.model, asker.outlook(planned)
    if outlook is None or isinstance(model, NetworkModel | DescriptionModel):
        return False, ()
    assumed, facts = asker.assumed(planned), asker.facts(planned)
    outcome = outcome_of(outlook, planned.design, model, assumed)
    useful = informative(outcome, planned.design, assumed, facts, optimizer)
    return useful, optimizer.foreseen_flags(outcome, facts)


def smallest_mu(asker: Asker, good: Callable[[tuple[PredictedWidth, ...]], bool]) -> float | None:
    """Return the smallest mu from which on a prediction is good, up to CLOSE; None: none is."""

    def holds(mu: float) -> bool:
        found = asker.worth(mu).attempt()
        return found is not None and good(found)

    present = min(max(asker.spec.privacy.total_mu(asker.terms), LEAST_MU), MOST_MU)
    return _smallest(holds, (LEAST_MU, present, MOST_MU))


def smallest_units(asker: Asker, good: Callable[[tuple[PredictedWidth, ...]], bool]) -> int | None:
    """Return the smallest number of units from which on a prediction is good, up to CLOSE; None: none is."""

    def holds(units: float) -> bool:
        found = replace(asker, units=ceil(units)).attempt()
        return found is not None and good(found)

    present = min(max(asker.units, LEAST_UNITS), MOST_UNITS)
    found = _smallest(holds, (LEAST_UNITS, present, MOST_UNITS))
    # `holds` rounds up too, hence the whole number is as good as what was tried.
    return None if found is None else ceil(found)


def _smallest(holds: Callable[[float], bool], limits: tuple[float, float, float]) -> float | None:
    """Return where something begins to hold: from the present upwards or downwards by strides, then by halving."""
    least, high, most = limits
    stride = 2.0
    while not holds(high):
        if high >= most:
            return None
        # The range spans many decades: strides grow by squaring.
        high, stride = min(high * stride, most), stride**2
    low = high
    while holds(low):
        if low <= least:
            return low
        # By halves only: all values between must be good, too.
        high, low = low, max(low / 2, least)
    while high / low > CLOSE:
        middle = exp((log(low) + log(high)) / 2)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def reach(asker: Asker, wanted: WantedWidth | WantedEffect, *, privacy_given: bool) -> tuple[PlannedJob, Reached]:
    """Return the plan to show and what the goal takes.

    Args:
        asker: the job; without a privacy target of its own, that of the plan to show is what the goal takes.
        wanted: a coefficient, and how wide its interval may be, or which effect shall be found.
        privacy_given: whether the job says what it is worth.

    Raises:
        Invalid: there is no such coefficient, nothing is predicted for such a job, or no privacy target reaches the
            goal and none was given.
    """
    planned = asker.plan()
    widths = asker.predicted(planned)
    pointer, at_most = "/goal/width", 0.0
    if isinstance(wanted, WantedEffect):
        pointer, at_most = "/goal/effect", wanted.width(planned.spec.inference.level)
    else:
        at_most = wanted.at_most
    if widths is None:
        raise unreachable(pointer, "no widths are predicted of such a job: ask for intervals, of a smaller model")
    if (target := asker.unknown_rate(planned)) is not None:
        raise unreachable(pointer, f"hangs on the mean of {target}: assume its base_rate, or declare its centre")
    place = next((place for place, one in enumerate(widths) if one.name == wanted.coefficient), None)
    if place is None:
        names = ", ".join(one.name for one in widths[:10])
        raise unreachable(f"{pointer}/coefficient", f"is no coefficient of this model; it has {names}")
    mu = smallest_mu(asker, lambda found: found[place].width <= at_most)
    if mu is not None and not privacy_given:
        asker = asker.worth(mu)
        planned = asker.plan()
        widths = asker.predicted(planned)
        assert widths is not None, "as before"
    shown = widths[place]
    if mu is None and not privacy_given:
        times = shown.nonprivate_width / at_most
        needed = ceil(asker.units * times * times) if times * times < MOST_UNITS else f"more than {MOST_UNITS:.0e}"
        raise unreachable(
            f"{pointer}/{'size' if isinstance(wanted, WantedEffect) else 'at_most'}",
            f"no privacy target reaches it: without privacy the interval is {shown.nonprivate_width:.3g} wide; that "
            f"takes at least {needed} units, or a wider one",
        )
    units: int | None = asker.units
    if privacy_given:
        units = smallest_units(asker, lambda found: found[place].width <= at_most)
    power, detectable = _power(wanted, shown.width, planned.spec.inference.level)
    return planned, Reached(
        coefficient=wanted.coefficient,
        at_most=at_most,
        predicted=shown.width,
        met=shown.width <= at_most,
        highest=asker.ranged(planned, widths)[place].highest,
        power=power,
        detectable=detectable,
        nonprivate_width=shown.nonprivate_width,
        mu=None if mu is None else format_figure(mu, "up"),
        units=units,
    )


def _power(wanted: WantedWidth | WantedEffect, width: float, level: float) -> tuple[float | None, float | None]:
    """Return how often a wanted effect is found with intervals of such a width, and which is as often as wanted."""
    if isinstance(wanted, WantedWidth):
        return None, None
    beyond = float(ndtri(0.5 + level / 2))
    error = width / (2 * beyond)
    found = float(ndtr(wanted.size / error - beyond) + ndtr(-wanted.size / error - beyond))
    return found, error * (beyond + float(ndtri(wanted.power)))


def unreachable(pointer: str, detail: str) -> Invalid:
    """Return the refusal of a goal, at one of the request's fields."""
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
