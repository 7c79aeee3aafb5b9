"""Predicted excess risk of a private run before a record is read, and the budget or units for a wanted excess.

* `predict_excess(settings, facts, rho)`: the theorem's bound for a method's plan, with its constant, beside F0 (what is
  known without any training) and the lower bound of the same problem class;
* `smallest_rho(settings, facts, target)` and `smallest_units(settings, facts, rho, target)`: the inverse problems.

Settings are those of a job, open fields and all; a plan that the method refuses is a prediction of nothing, with the
refusal's words. All of it is arithmetic of public figures.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorems 4, 8 and 13, corollary 7, theorems 22 and 23.
"""

from collections.abc import Callable
from math import ceil, inf, sqrt
from typing import Final

from pydantic import Field

from core.base.errors import Invalid
from core.methods.base import Plan
from core.methods.kl import lower_bounds
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.lower_bounds import LowerBound
from core.methods.kl.proximal_point.spec import ProximalPoint, ProximalPointPlan
from core.methods.kl.spider.spec import KlSpider, KlSpiderPlan
from core.privacy.conversions import mu_of_rho
from core.privacy.facts import Facts, Frozen
from core.queries.gradients import Gradient

KlSettings = KlSpider | ProximalPoint | AdaptiveGradientDescent

LEAST_RHO, MOST_RHO = 1e-10, 1e8
LEAST_UNITS, MOST_UNITS = 10, 10**12
CLOSE: Final = 1.001
"""Searches end within this factor."""
GRID: Final = 10**0.25
"""Steps of a search, upwards from its least figure."""


class Prediction(Frozen):
    """Promised bound on a method's excess over the least mean loss."""

    method: str
    value: float | None = Field(description="with its constant; null: nothing is promised")
    confidence: float | None
    trivial: float | None = Field(description="F0, known without any training; null: unknown")
    vacuous: bool = Field(description="nothing is promised that F0 does not say")
    why_not: str | None = Field(description="the planner's words where there is no plan")
    steps: int | None = Field(description="answers in the worst case")
    rounds: int | None = Field(description="null: the method has none, or there is no plan")
    noise: float | None = Field(description="standard deviation of a coordinate of the first gradient; null: adaptive")
    lower: LowerBound | None = Field(description="a lower bound of every private method; null: none is known")


def predict_excess(settings: KlSettings, facts: Facts, rho: float) -> Prediction:
    """Return what is promised of the excess risk for a budget of rho in zero-concentrated terms.

    Args:
        settings: with the condition that is declared of the mean loss; other fields may be open.
        facts: the public bounds.
        rho: positive.
    """
    lower = _lower(settings, facts, rho)
    try:
        plan = settings.plan(facts, mu_of_rho(rho))
    # Searches reach figures that overflow or have no logarithm; these promise nothing either.
    except (Invalid, ValueError, ArithmeticError) as refused:
        return Prediction(
            method=settings.kind,
            value=None,
            confidence=None,
            trivial=settings.start_gap or facts.start_gap,
            vacuous=True,
            why_not=refused.detail if isinstance(refused, Invalid) else "a figure is beyond any float",
            steps=None,
            rounds=None,
            noise=None,
            lower=lower,
        )
    bound = plan.bound(facts)
    return Prediction(
        method=settings.kind,
        value=bound.value,
        confidence=bound.confidence,
        trivial=bound.trivial,
        vacuous=bound.vacuous,
        why_not=None,
        steps=plan.steps,
        rounds=_rounds(plan, facts),
        noise=_noise(plan, facts),
        lower=lower,
    )


def smallest_rho(settings: KlSettings, facts: Facts, target: float) -> float | None:
    """Return the least rho whose predicted excess is at most `target`, up to a factor CLOSE; None: no rho's is."""

    def good(rho: float) -> bool:
        value = predict_excess(settings, facts, rho).value
        return value is not None and value <= target

    return smallest_good(good, LEAST_RHO, MOST_RHO)


def smallest_units(settings: KlSettings, facts: Facts, rho: float, target: float) -> int | None:
    """Return the least n whose predicted excess is at most `target`, up to a factor CLOSE; None: above MOST_UNITS."""

    def good(units: float) -> bool:
        value = predict_excess(settings, facts.model_copy(update={"units": ceil(units)}), rho).value
        return value is not None and value <= target

    found = smallest_good(good, LEAST_UNITS, MOST_UNITS)
    # `good` rounds up too, hence the whole number is as good as what was tried.
    return None if found is None else ceil(found)


def _lower(settings: KlSettings, facts: Facts, rho: float) -> LowerBound | None:
    """Return the lower bound of the problem class, where one is known."""
    condition = settings.condition
    if condition is None:
        return None
    if condition.kappa <= 2:  # noqa: PLR2004 - corollary 7's
        clip = facts.gradient_bound if settings.clip is None else settings.clip
        return lower_bounds.smooth(condition, units=facts.units, dimension=facts.dimension, rho=rho, lipschitz=clip)
    epsilon = lower_bounds.sharp_epsilon(rho)
    return None if epsilon == inf else lower_bounds.sharp(facts.units, epsilon, condition.kappa)


def _rounds(plan: Plan, facts: Facts) -> int | None:
    match plan:
        case KlSpiderPlan():
            return len(plan.course(facts).rounds)
        case ProximalPointPlan():
            return plan.rounds
        case _:
            return None


def _noise(plan: Plan, facts: Facts) -> float | None:
    """Return the noise of the first gradient, where it is known beforehand."""
    gradient = plan.questions()[0]
    return gradient.sigma * gradient.sensitivity(facts) if isinstance(gradient, Gradient) else None


def smallest_good(good: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return where something begins to be good, by bisection of the logarithm; None: nowhere on a grid.

    A plan may be refused at the far end, for it would take too many steps, so the search goes upwards.
    """
    bad, found = low, low
    while not good(found):
        if found >= high:
            return None
        bad, found = found, min(found * GRID, high)
    while found / bad > CLOSE:
        middle = sqrt(bad * found)
        bad, found = (bad, middle) if good(middle) else (middle, found)
    return found
