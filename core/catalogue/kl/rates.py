"""What privacy will cost in excess risk, before anything is read, and what it takes to reach a wanted excess.

* `predict_excess(settings, facts, rho)`: the theorem's bound for a method's plan, with its constant, beside F0 (what is
  known without any training) and the lower bound of the same problem class;
* `smallest_rho(settings, facts, target)` and `smallest_units(settings, facts, rho, target)`: the inverse problems;
* `crossover_units(first, second, facts, rho)`: from which n on one method is promised less excess than another;
* `rates(constants, ...)`: the theorems' rates as printed, without constants: exponents, and which regime decides.

Settings are those of a job, open fields and all; a plan that the method refuses is a prediction of nothing, with the
refusal's words. All of it is arithmetic of public figures.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorems 4, 8 and 13, corollary 7, theorems 22 and 23.
"""

from collections.abc import Callable
from math import ceil, exp, inf, log, sqrt
from typing import Final

from pydantic import Field

from core.catalogue.kl import lower_bounds
from core.catalogue.kl.adaptive_gd import AdaptiveGradientDescent
from core.catalogue.kl.lower_bounds import LowerBound, resolution
from core.catalogue.kl.problems import Constants
from core.catalogue.kl.proximal_point import LONGEST_ROUND, ProximalPoint
from core.catalogue.kl.spider import KlSpider
from core.errors import Invalid
from core.privacy.conversions import mu_of_rho
from core.privacy.facts import Facts, Frozen

KlSettings = KlSpider | ProximalPoint | AdaptiveGradientDescent

LEAST_RHO, MOST_RHO = 1e-10, 1e8
LEAST_UNITS, MOST_UNITS = 10, 10**12
CLOSE: Final = 1.001
"""Searches end within this factor."""
GRID: Final = 10**0.25
"""Steps of n in which a crossover is looked for."""


class Prediction(Frozen):
    """What a method is promised to leave above the least mean loss, at most."""

    method: str
    value: float | None = Field(description="with its constant; null: nothing is promised")
    confidence: float | None
    trivial: float | None = Field(description="F0, known without any training; null: unknown")
    vacuous: bool = Field(description="nothing is promised that F0 does not say")
    why_not: str | None = Field(description="the planner's words where there is no plan")
    steps: int | None = Field(description="answers in the worst case")
    rounds: int | None = Field(description="null: the method has none, or there is no plan")
    noise: float | None = Field(description="standard deviation of a coordinate of the first gradient; null: adaptive")
    lower: LowerBound | None = Field(description="what no private method beats; null: none is known")


class Rates(Frozen):
    """The theorems' upper rates without their constants, and the figures that they are made of.

    `many` and `few` are the regimes of adaptive gradient descent: noise on gradients decides with many parameters,
    noise on norms with few; `late` is its third term.
    """

    x: float = Field(description="gamma L0 sqrt(d)/(n sqrt(rho))")
    spider: float | None = Field(description="(x sqrt(1 + gamma^2 L1 F0^-e))^kappa; null: not for this kappa or loss")
    proximal: float | None = Field(description="(x sqrt(1 + gamma^2 Lt F0^-e))^kappa; null: kappa is below 2")
    many: float | None
    few: float | None
    late: float | None = Field(description="0 at kappa = 2; null: no guarantee, p_max is n sqrt(rho) or more there")
    rounds: float | None = Field(description="p_max of adaptive gradient descent")

    @property
    def adaptive(self) -> float | None:
        """The sum of its three terms; None where one has no guarantee."""
        terms = (self.many, self.few, self.late)
        known = [term for term in terms if term is not None]
        return sum(known) if len(known) == len(terms) else None


def settings_for(method: str, constants: Constants, beta: float = 0.05) -> KlSettings:
    """Return a method's settings with everything declared that these constants say.

    Args:
        method: `kl_spider`, `proximal_point` or `adaptive_gd`.
        constants: of the mean loss and its units.
        beta: failure probability.
    """
    condition, gap = constants.condition, constants.start_gap
    if method == "kl_spider":
        return KlSpider(condition=condition, start_gap=gap, smoothness=constants.smoothness, beta=beta)
    if method == "proximal_point":
        return ProximalPoint(
            condition=condition,
            start_gap=gap,
            weak_convexity=constants.weak_convexity,
            beta=beta,
            max_inner=LONGEST_ROUND,  # the theorem is about rounds that nothing cuts short
        )
    assert method == "adaptive_gd", "one of the three"
    return AdaptiveGradientDescent(condition=condition, start_gap=gap, smoothness=constants.smoothness, beta=beta)


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

    return _smallest(good, LEAST_RHO, MOST_RHO)


def smallest_units(settings: KlSettings, facts: Facts, rho: float, target: float) -> int | None:
    """Return the least n whose predicted excess is at most `target`, up to a factor CLOSE; None: above MOST_UNITS."""

    def good(units: float) -> bool:
        value = predict_excess(settings, facts.model_copy(update={"units": ceil(units)}), rho).value
        return value is not None and value <= target

    found = _smallest(good, LEAST_UNITS, MOST_UNITS)
    return None if found is None else ceil(found)


def crossover_units(first: KlSettings, second: KlSettings, facts: Facts, rho: float) -> int | None:
    """Return the n from which on `first` is promised less excess than `second`; None: at none up to MOST_UNITS.

    A method that is promised nothing loses to one that is promised something; it holds as far as both can be planned.
    """

    def better(units: float) -> bool:
        at = facts.model_copy(update={"units": ceil(units)})
        one, other = (predict_excess(settings, at, rho).value for settings in (first, second))
        return one is not None and (other is None or one < other)

    found = _from_where(better)
    return None if found is None else ceil(found)


def rates(constants: Constants, units: int, dimension: int, rho: float, beta: float = 0.05) -> Rates:
    """Return the theorems' rates at one size of data and budget.

    Theorem 13's p_max has 16 gamma^2 L1 where 8 is printed; with A = log(n sqrt(rho)/beta), 1 at least.
    """
    condition, L0, L1 = constants.condition, constants.lipschitz, constants.smoothness
    kappa, gamma = condition.kappa, condition.gamma
    x = resolution(units, dimension, rho, L0, gamma)
    proximal = None
    if kappa >= 2:  # noqa: PLR2004 - theorem 8's
        stretch = gamma**2 * constants.weak_convexity * exp(-condition.flatness * log(constants.start_gap))
        proximal = _power(x * sqrt(1 + stretch), kappa)
    if L1 is None or kappa > 2:  # noqa: PLR2004 - theorems 4 and 13
        return Rates(x=x, spider=None, proximal=proximal, many=None, few=None, late=None, rounds=None)
    stretch = gamma**2 * L1 * exp(-condition.flatness * log(constants.start_gap))
    sampled = units * sqrt(rho)
    logarithm = max(1.0, log(sampled / beta))
    p_max = (1 + 16 * gamma**2 * L1) * max(
        1.0, log(constants.start_gap) + 2 * kappa / (4 - kappa) * log(sampled / (gamma * L0))
    )
    few = max(gamma**2, 1.0) * L0**2 * logarithm / (min(L1, 1.0) * sampled)
    return Rates(
        x=x,
        spider=_power(x * sqrt(1 + stretch), kappa),
        proximal=proximal,
        many=_power(x * sqrt(logarithm * p_max), 2 * kappa / (4 - kappa)),
        few=_power(few, kappa / 2),
        late=_late(p_max / sampled, kappa),
        rounds=p_max,
    )


def _late(share: float, kappa: float) -> float | None:
    """Return share^(kappa/(2 - kappa)); at kappa = 2 the exponent is infinite."""
    if kappa == 2:  # noqa: PLR2004 - see above
        return 0.0 if share < 1 else None
    return _power(share, kappa / (2 - kappa))


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


def _rounds(plan: KlSettings, facts: Facts) -> int | None:
    match plan:
        case KlSpider():
            return len(plan.course(facts).rounds)
        case ProximalPoint():
            return plan.rounds
        case AdaptiveGradientDescent():
            return None


def _noise(plan: KlSettings, facts: Facts) -> float | None:
    """Return the noise of the first gradient, where it is known beforehand."""
    if isinstance(plan, AdaptiveGradientDescent):
        return None
    gradient = plan.questions()[0]
    return gradient.sigma * gradient.sensitivity(facts)


def _smallest(good: Callable[[float], bool], low: float, high: float) -> float | None:
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


def _from_where(better: Callable[[float], bool]) -> float | None:
    """Return the n from which on something holds, up to the largest n at which it does; None: nowhere on a grid."""
    steps = ceil(log(MOST_UNITS / LEAST_UNITS) / log(GRID))
    grid = [min(LEAST_UNITS * GRID**step, float(MOST_UNITS)) for step in range(steps + 1)]
    holds = [better(units) for units in grid]
    if not any(holds):
        return None
    first = max(place for place, held in enumerate(holds) if held)
    while first > 0 and holds[first - 1]:
        first -= 1
    return _smallest(better, grid[max(first - 1, 0)], grid[first])


def _power(base: float, exponent: float) -> float:
    """Return base^exponent by way of logarithms, as large as a float can be at most."""
    return exp(min(exponent * log(base), 700.0))
