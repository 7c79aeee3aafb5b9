"""Promised excess risk of a job before it is paid, and the settings that a wanted excess risk needs.

For the methods under the KL condition, whose theorems bound it from public figures (`core.methods.kl.rates`). No
record is read, whatever is asked.
"""

from collections.abc import Sequence

from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.adaptive_gd.theory import excess_risk
from core.methods.kl.proximal_point.spec import ProximalPoint
from core.methods.kl.rates import KlSettings, predict_excess, smallest_rho, smallest_units
from core.methods.kl.spider.spec import KlSpider
from core.planning.forecast import Asker, WantedExcess, unreachable
from core.planning.planner import PlannedJob, describe
from core.privacy.amounts import format_figure
from core.privacy.conversions import mu_of_rho, rho_of_mu
from core.privacy.facts import Facts
from farthing.schemas.estimates import ExcessForecast, ReachedExcess, Regimes

KL_METHODS = (KlSpider, ProximalPoint, AdaptiveGradientDescent)
GENEROUS_MU = 100.0
"""If no such target suffices, it gives the promise of the largest."""


def foresee_excess(planned: PlannedJob) -> ExcessForecast | None:
    """Return what a plan promises of the excess risk; None of methods whose theorems are about something else."""
    optimizer, facts = planned.spec.optimizer, planned.facts
    if not isinstance(optimizer, KL_METHODS) or optimizer.condition is None:
        return None
    assert optimizer.mu is not None, "planned"
    predicted = predict_excess(optimizer, facts, rho_of_mu(optimizer.mu))
    return ExcessForecast(
        value=planned.bound.value,
        confidence=planned.bound.confidence,
        trivial=planned.bound.trivial,
        vacuous=planned.bound.vacuous,
        lower=predicted.lower,
        rounds=predicted.rounds,
        noise=predicted.noise,
        regimes=_regimes(optimizer, facts),
    )


def _regimes(optimizer: KlSettings, facts: Facts) -> Regimes | None:
    """Return what the bound of the last iterate is made of; None of other methods, and where there is no such bound."""
    if not isinstance(optimizer, AdaptiveGradientDescent) or optimizer.select != "last":
        return None
    run, condition = optimizer.trajectory(facts), optimizer.condition
    if condition is None or run.steep_fall <= 0 or condition.flatness < 0:
        return None
    terms = excess_risk(run, condition)
    return Regimes(
        noise_on_norms=terms.norms,
        noise_on_gradients=terms.gradients,
        small_gradient=terms.small_gradient,
        steps_run_out=terms.steps,
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


def _settings(asker: Asker, facts: Facts) -> KlSettings:
    """Return a job's settings as asked for, of a method that bounds the excess risk."""
    optimizer = asker.spec.optimizer
    if not isinstance(optimizer, KL_METHODS):
        raise unreachable("/goal/excess_risk", f"is bounded by {_names()}, not by {optimizer.kind}: take one of them")
    known = optimizer.condition is not None or (facts.weak_convexity == 0 and facts.ridge > 0)
    if isinstance(optimizer, AdaptiveGradientDescent) and not known:
        detail = "is needed, or a convex loss with a ridge: without one only gradient norms are bounded"
        raise unreachable("/optimizer/condition", detail)
    return optimizer


def _names() -> str:
    kinds: Sequence[str] = [method.model_fields["kind"].default for method in KL_METHODS]
    return ", ".join(kinds)


def _beyond(asker: Asker, settings: KlSettings) -> Exception:
    """Return why no privacy target is enough: the planner's own words for a generous one, where it has any."""
    planned = asker.worth(GENEROUS_MU).plan()
    said = "nothing" if planned.bound.value is None else f"no less than {planned.bound.value:.3g}"
    return unreachable(
        "/goal/excess_risk/at_most",
        f"no privacy target is promised to reach it at {asker.units:,} units: for mu {GENEROUS_MU:g} "
        f"{settings.kind} promises {said}",
    )
