"""Promised excess risk of a job before it is paid, and the settings that a wanted excess risk needs.

For the methods under the KL condition, whose theorems bound it from public figures (`core.methods.kl.rates`). No
record is read, whatever is asked.
"""

from core.methods.base import Spec
from core.methods.kl.rates import smallest_rho, smallest_units
from core.methods.registry import METHODS
from core.planning.forecast import Asker, WantedExcess, unreachable
from core.planning.planner import PlannedJob, describe
from core.privacy.amounts import format_figure
from core.privacy.conversions import mu_of_rho, rho_of_mu
from core.privacy.facts import Facts
from farthing.schemas.estimates import ExcessForecast, ReachedExcess

GENEROUS_MU = 100.0
"""If no such target suffices, it gives the promise of the largest."""


def foresee_excess(planned: PlannedJob) -> ExcessForecast | None:
    """Return what a plan promises of the excess risk; None of methods whose theorems are about something else."""
    figures = planned.spec.optimizer.excess(planned.facts)
    if figures is None:
        return None
    return ExcessForecast(
        value=planned.bound.value,
        confidence=planned.bound.confidence,
        trivial=planned.bound.trivial,
        vacuous=planned.bound.vacuous,
        **figures._asdict(),
    )


def within_reach(asker: Asker, wanted: WantedExcess) -> Asker:
    """Return a job without a privacy target of its own with the smallest that is promised to reach a wanted excess.

    Raises:
        Invalid: no such promise is made for such a job, or no target is enough at this number of units.
    """
    _, _, facts = describe(asker.spec, columns=asker.columns, units=asker.units, adjacency=asker.adjacency)
    settings = _settings(asker, facts)
    rho = smallest_rho(settings, facts, wanted.at_most)
    if rho is None:
        raise _beyond(asker, settings)
    return asker.worth(mu_of_rho(rho))


def reach_excess(asker: Asker, planned: PlannedJob, wanted: WantedExcess, *, privacy_given: bool) -> ReachedExcess:
    """Return what a wanted excess takes.

    Args:
        asker: the job.
        planned: its plan; without a privacy target of its own, at what `within_reach` found.
        wanted: largest allowed excess.
        privacy_given: whether the job said what it is worth.

    Raises:
        Invalid: the method bounds no excess risk, or not without a condition.
    """
    settings, facts = _settings(asker, planned.facts), planned.facts
    mu = planned.spec.privacy.total_mu(asker.terms)
    rho: float | None = rho_of_mu(mu)
    units: int | None = asker.units
    if privacy_given:
        units = smallest_units(settings, facts, rho_of_mu(mu), wanted.at_most)
        rho = smallest_rho(settings, facts, wanted.at_most)
    value = planned.bound.value
    return ReachedExcess(
        at_most=wanted.at_most,
        predicted=value,
        met=value is not None and value <= wanted.at_most,
        # Up: a little less would not reach the goal.
        mu=None if rho is None else format_figure(mu_of_rho(rho), "up"),
        rho=None if rho is None else format_figure(rho, "up"),
        units=units,
    )


def _settings(asker: Asker, facts: Facts) -> Spec:
    """Return a job's settings as asked for, of a method that bounds the excess risk."""
    optimizer = asker.spec.optimizer
    if not optimizer.bounds_excess:
        names = ", ".join(method.card().kind for method in METHODS if method.bounds_excess)
        raise unreachable("/goal/excess_risk", f"is bounded by {names}, not by {optimizer.kind}: take one of them")
    optimizer.refuse_excess(facts)
    return optimizer


def _beyond(asker: Asker, settings: Spec) -> Exception:
    """Return why no privacy target is enough: the planner's own words for a generous one, where it has any."""
    planned = asker.worth(GENEROUS_MU).plan()
    said = "nothing" if planned.bound.value is None else f"no less than {planned.bound.value:.3g}"
    return unreachable(
        "/goal/excess_risk/at_most",
        f"no privacy target is promised to reach it at {asker.units:,} units: for mu {GENEROUS_MU:g} "
        f"{settings.kind} promises {said}",
    )
