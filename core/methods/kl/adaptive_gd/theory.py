"""Guarantees of adaptive noisy gradient descent, with every constant: under the KL condition, and without it.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorems 13 and 14, by those steps of their proofs that hold.
Errors of at most N/C of each gradient and s of each norm N, so |e|^2 <= 2 (g^2 + s^2)/C^2, give for steps of 1/(2 L1)

    F(w_t) - F(w_{t+1}) >= (g^2 - |e|^2)/(4 L1) >= (c1 g^2 - c2 s^2)/L1,  c2 = 1/(2 C^2), c1 = 1/4 - c2,

g the gradient norm at w_t; and h g^2/L1 with h = c1 - c2/4 wherever g >= 2 s. A run ends in one of three ways, and with
m = C q D/sqrt(rho), D the sensitivity, each says something of where it ends:

* a small norm, N <= m: then g <= m + s;
* gradients have taken half of the budget. Then the sum of 1/N_t^2 is above 1/m^2, while N_t >= g_t/2 wherever g >= 2 s;
* norms have taken half of it. Then the steps are about half of the norms that the budget pays.
"""

from math import exp, inf, log, sqrt
from typing import NamedTuple

from scipy.special import chdtrc

from core.methods.kl.condition import KlCondition
from farthing.schemas.estimates import Bound

MOST_CANDIDATES = 256
"""Number of iterates held for the choice, those of the least noised norms."""
SOURCE = "Menart, Ullah, Arora, Bassily and Guzman (2024), theorem {}, with the constants of its corrected proof"


class Trajectory(NamedTuple):
    """The public figures that decide where a run may go."""

    dimension: int
    lipschitz: float
    """L0: no unit's gradient is longer."""
    smoothness: float
    """L1, of the mean loss."""
    multiple: float
    """C."""
    length: float
    """q: a gradient has noise N/(C q) in each coordinate."""
    least: float
    """m: a run ends where a noised norm is smaller."""
    slack: float
    """s: no noise on a norm is larger, but with probability beta/2."""
    norms: int
    """Number of norms that cost the whole budget."""
    steps: int
    """The most steps, for any reason."""
    beta: float
    start_gap: float | None
    """F0."""
    choice: float | None
    """Noise of an exponential selection: its sigma times the sensitivity."""

    @property
    def rise(self) -> float:
        """c2."""
        return 1 / (2 * self.multiple**2)

    @property
    def fall(self) -> float:
        """c1."""
        return 0.25 - self.rise

    @property
    def steep_fall(self) -> float:
        """h; not positive where C is too small for the proof."""
        return self.fall - self.rise / 4

    @property
    def least_steps(self) -> float:
        """Steps made where norms have taken half of the budget, or where there are no more."""
        return max(0.0, min(self.norms / 2 - 1, self.steps))

    @property
    def confidence(self) -> float:
        """That neither a norm nor a gradient has more noise than the proofs allow."""
        return max(0.0, 1 - self.beta / 2 - self.norms * float(chdtrc(self.dimension, self.length**2)))


class Excess(NamedTuple):
    """Upper bounds on the excess risk at the end, one for each way to end; the largest holds for all."""

    small_gradient: float
    gradients: float
    """Where gradients have taken the budget: (gamma m)^(2 kappa/(4 - kappa)), the regime of many parameters."""
    norms: float
    """Below it noise on norms hides gradients: s^kappa, as (n sqrt(rho))^(-kappa/2), the regime of few parameters."""
    steps: float
    """Part of the start's excess that remains when the steps have run out."""


def excess_risk(run: Trajectory, condition: KlCondition) -> Excess:
    """Bound the last iterate's excess risk under a KL condition with kappa at most 2.

    Let D be the excess and V = (2 gamma s)^kappa + c2 s^2/L1. Once D <= (2 gamma s)^kappa, it stays at most V. Above
    that, D falls by a D^(1+e) a step, a = h/(L1 gamma^2) and e = (2-kappa)/kappa, so 1/D^e grows by e a a step.
    Backwards from the last point, the sum of 1/g^2 is at most gamma^2 (D^-(1+e) + D^-(1+2e)/(a (1+2e))). Where
    gradients have taken the budget it is at least 1/(4 m^2): one of the two is above 1/(8 m^2).
    """
    flat, rate = condition.flatness, run.steep_fall / (run.smoothness * condition.gamma**2)
    hidden = condition.gap_at(2 * run.slack) + run.rise * run.slack**2 / run.smoothness
    paid = 8 * (run.least * condition.gamma) ** 2
    gap = condition.gap_at(run.lipschitz)
    gap = gap if run.start_gap is None else min(gap, run.start_gap)
    made = run.least_steps
    left = gap * exp(-rate * made) if flat == 0 else exp(-log(exp(-flat * log(gap)) + flat * rate * made) / flat)
    return Excess(
        small_gradient=condition.gap_at(run.least + run.slack),
        gradients=max(_root(paid, 1 + flat), _root(paid / (rate * (1 + 2 * flat)), 1 + 2 * flat)),
        norms=hidden,
        steps=left,
    )


def least_slope(run: Trajectory) -> float | None:
    """Bound the least gradient norm along a run, without any condition; None where F0 is unknown or C too small.

    With G that norm and T steps, T h G^2 <= F0 L1 where G >= 2 s. Where gradients have taken the budget, T + 1 <= 2 T
    norms give (T + 1)/G^2 > 1/(4 m^2), so G^4 < 8 F0 L1 m^2/h; where norms have, c1 G^2 <= F0 L1/T + c2 s^2.
    """
    if run.start_gap is None or run.steep_fall <= 0:
        return None
    scale = run.start_gap * run.smoothness
    made = run.least_steps
    slow = sqrt((scale / made + run.rise * run.slack**2) / run.fall) if made else inf
    return max(run.least + run.slack, 2 * run.slack, _root(8 * scale * run.least**2 / run.steep_fall, 4), slow)


def chosen_slope(run: Trajectory, select: str) -> float | None:
    """Bound the gradient norm of the iterate that is chosen; None of the last one, of which nothing is known.

    The one of the least noised norm is within 2 s of the least. An exponential mechanism of noise t over K points errs
    by at most t log(2 K/beta), but with probability beta/2; of many iterates it sees those of the least noised norms.
    """
    least = least_slope(run)
    if least is None or select == "last":
        return None
    if run.choice is None:
        return least + 2 * run.slack
    seen = 2 * run.slack if run.steps > MOST_CANDIDATES else 0.0
    return least + seen + run.choice * log(2 * min(run.steps, MOST_CANDIDATES) / run.beta)


def promised(run: Trajectory, condition: KlCondition | None, select: str) -> Bound:
    """Return what is predicted of the iterate that is returned."""
    confidence = run.confidence - (run.beta / 2 if run.choice is not None else 0.0)
    if condition is None:
        slope = chosen_slope(run, select)
        where = "the last iterate, of which nothing is known without a condition" if select == "last" else "the choice"
        return Bound(
            quantity=f"gradient norm of the mean loss at {where}, in encoded units",
            value=slope,
            confidence=None if slope is None else confidence,
            trivial=run.lipschitz,
            vacuous=slope is None or slope >= run.lipschitz,
            source=SOURCE.format(14),
        )
    value, regime = _excess(run, condition, select)
    trivial = condition.gap_at(run.lipschitz) if run.start_gap is None else run.start_gap
    return Bound(
        quantity=f"excess risk of the mean loss under the declared condition{regime}",
        value=value,
        confidence=None if value is None else confidence,
        trivial=trivial,
        vacuous=value is None or value >= trivial,
        source=SOURCE.format(13),
    )


def _excess(run: Trajectory, condition: KlCondition, select: str) -> tuple[float | None, str]:
    """Return a bound on the excess, None where the proof does not go through, and what decides it, in words."""
    if run.steep_fall <= 0:
        # h = 1/4 - 5/(8 C^2), which is positive for C^2 above 2.5.
        return None, ": its proof needs a multiple C above 1.59"
    if condition.flatness < 0:
        return None, ": no smooth loss has kappa above 2"
    if select != "last":
        slope = chosen_slope(run._replace(start_gap=run.start_gap or condition.gap_at(run.lipschitz)), select)
        assert slope is not None, "there is a gap, and the fall is steep"
        return condition.gap_at(slope), ", from the gradient norm of the iterate that is chosen"
    terms = excess_risk(run, condition)
    return max(terms), (
        f": {terms.norms:.2g} from noise on norms, which decides for few parameters; {terms.gradients:.2g} from noise "
        f"on gradients, which does for many; {terms.small_gradient:.2g} where a norm is small; {terms.steps:.2g} where "
        "steps run out"
    )


def _root(value: float, power: float) -> float:
    """Return value^(1/power), by way of logarithms."""
    return exp(log(value) / power)
