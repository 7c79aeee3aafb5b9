"""The theorems' rates as printed, and from which n on one method is promised less excess than another.

* `settings_for(method, constants)`: a method's settings with everything declared that the constants of a problem say;
* `crossover_units(first, second, facts, rho)`: from which n on one method is promised less excess than another;
* `rates(constants, ...)`: the theorems' rates as printed, without constants: exponents, and which regime decides.

The promises of a plan, with its constants, are in `core.methods.kl.rates`.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorems 4, 8 and 13.
"""

from collections.abc import Callable
from math import ceil, exp, log, sqrt

from pydantic import Field

from core.methods.base import Spec
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.lower_bounds import resolution
from core.methods.kl.proximal_point.spec import LONGEST_ROUND, ProximalPoint
from core.methods.kl.rates import GRID, LEAST_UNITS, MOST_UNITS, promised_excess, smallest_good
from core.methods.kl.spider.spec import KlSpider
from core.privacy.facts import Facts, Frozen
from studies.kl.problems import Constants


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


def settings_for(method: str, constants: Constants, beta: float = 0.05) -> Spec:
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


def crossover_units(first: Spec, second: Spec, facts: Facts, rho: float) -> int | None:
    """Return the n from which on `first` is promised less excess than `second`; None: at none up to MOST_UNITS.

    A method that is promised nothing loses to one that is promised something; it holds as far as both can be planned.
    """

    def better(units: float) -> bool:
        at = facts.model_copy(update={"units": ceil(units)})
        one, other = (promised_excess(settings, at, rho) for settings in (first, second))
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
    return smallest_good(better, grid[max(first - 1, 0)], grid[first])


def _power(base: float, exponent: float) -> float:
    """Return base^exponent by way of logarithms, as large as a float can be at most."""
    return exp(min(exponent * log(base), 700.0))
