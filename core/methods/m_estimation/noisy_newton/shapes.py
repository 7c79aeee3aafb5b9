"""The shapes of a pooled Newton run: numbers of steps and shares of mu^2, chosen by the noise of one Hessian.

Found on data with many categories and few, at much and little noise; `docs/explanation/plans.md` says how.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from core.privacy.arithmetic import SLACK, MatrixNoise, matrix_sigma, required_curvature_bound
from core.privacy.facts import Facts
from core.queries.gradients import Curvature, Gradient

CAREFUL_DAMPING = 0.5
LOUD_HESSIAN = 2e-3
"""Above this one Newton steps that pool their Hessians are."""
QUIET_HESSIAN = 1e-5
"""Below this ratio every direction is resolved, and what remains is the noise of the last gradients."""
SMALLEST_WEIGHT = 1e-30
"""Of a step relative to the last; smaller shares are refused by the lattice in any case."""
STEADY_PART = 0.3
"""Of an unknown scale, by which the noise of one step may move a prediction."""


class Shape(NamedTuple):
    """Defaults of a plan; with the estimate's gradients the parts of mu^2 sum to 1."""

    hessians: int
    gradients: int
    averaged: int
    curvature_part: float
    """Of the job's mu^2: Hessians of the Newton steps."""
    early_part: float
    """Gradients of the Newton steps."""
    final_part: float
    """The sandwich's Hessian."""
    score_part: float

    memory: float
    growth: float
    damping: float


NOISY = Shape(
    hessians=6,
    gradients=20,
    averaged=10,
    curvature_part=0.50,
    early_part=0.05,
    final_part=0.03,
    score_part=0.10,
    memory=0.7,
    growth=2.0,
    damping=1.0,
)
LOUD = NOISY._replace(
    hessians=10, curvature_part=0.40, early_part=0.15, final_part=0.05, memory=1.0, growth=1.0, damping=0.5
)
"""Few units or little budget: early steps are then small, and as well paid as later ones, lest they lead astray."""
QUIET = NOISY._replace(
    hessians=8, gradients=4, averaged=4, curvature_part=0.05, early_part=0.01, final_part=0.04, memory=0.2
)
CAREFUL_MEMORY, CAREFUL_GROWTH = 0.5, 1.5
"""With an unknown scale: undamped steps may oscillate while the scale grows with them, so Hessians answered at another
scale soon lose their weight."""


def spectral_noise(deviation: float, facts: Facts) -> float:
    """Return the spectral size of a noised Hessian's noise relative to the matrix's public bound."""
    return 2 * deviation * sqrt(facts.dimension) / required_curvature_bound(facts)


def planned_shape(facts: Facts, mu: float) -> Shape:
    """Return the shape planned for about this budget: by the noise of one Hessian that takes a half of it."""
    curvature = Curvature(of="hessian", sigma=sqrt(2) / mu)
    noise = spectral_noise(curvature.sigma * curvature.sensitivity(facts), facts)
    shape = LOUD if noise > LOUD_HESSIAN else QUIET if noise < QUIET_HESSIAN else NOISY
    if facts.scale is None:
        return shape
    return shape._replace(
        hessians=LOUD.hessians,
        growth=min(shape.growth, CAREFUL_GROWTH),
        memory=CAREFUL_MEMORY,
        damping=CAREFUL_DAMPING,
    )


def steady_floor(gradient: Gradient, facts: Facts) -> float:
    """Return an eigenvalue floor: at it, a step's noise moves a prediction by `STEADY_PART` of an unknown scale.

    A step's noise is proportional to the current scale. It adds to the residuals, and larger residuals raise the next
    scale. If the noise adds as much as the scale itself, both grow without end. With noise s of a gradient's
    coordinate, and features of norm t, a step at this floor moves a prediction by about s t/floor scales.
    """
    deviation = gradient.sigma * gradient.sensitivity(facts)
    return deviation * sqrt(required_curvature_bound(facts)) / STEADY_PART


def newton_weights(steps: int, growth: float) -> tuple[float, ...]:
    """Return how each kind's budget is divided over the Newton steps; they sum to 1."""
    # Counted back from the last step: powers fall to zero where forward ones overflow.
    weights = [max(growth ** (step - steps), SMALLEST_WEIGHT) for step in range(1, steps + 1)]
    return tuple(weight / sum(weights) for weight in weights)


def gradient_parts(weights: Sequence[float], late: int, last: float) -> list[float]:
    """Return each gradient's part of all that gradients take, of Newton steps and of those behind them.

    Args:
        weights: of the Newton steps.
        late: number of steps behind them.
        last: part of all late gradients together, or of the last one where there are none.
    """
    if late > 0:
        parts = [weight * (1 - last) for weight in weights] + [last / late] * late
    elif abs(last - weights[-1]) < SLACK:
        parts = list(weights)
    else:
        parts = [weight * (1 - last) / (1 - weights[-1]) for weight in weights[:-1]] + [last]
    # A last share of 1 leaves 0 to the others; a plan's `check` refuses it, after this.
    return [max(part, SMALLEST_WEIGHT) for part in parts]


def gradient_questions(mu: float, curvature_share: float, parts: Sequence[float]) -> tuple[Gradient, ...]:
    """Return the gradient questions of all steps with or after a Hessian, by their parts of what gradients take."""
    # Each made once: thousands of steps may have one share.
    made = {part: Gradient(sigma=1 / (mu * sqrt((1 - curvature_share) * part))) for part in dict.fromkeys(parts)}
    return tuple(made[part] for part in parts)


def curvature_questions(mu: float, share: float, weights: Sequence[float], mode: MatrixNoise) -> tuple[Curvature, ...]:
    """Return the Hessian questions of all Newton steps."""
    sigmas = {weight: matrix_sigma(mu * sqrt(share * weight), mode) for weight in dict.fromkeys(weights)}
    made = {weight: Curvature(of="hessian", sigma=sigma) for weight, sigma in sigmas.items()}
    return tuple(made[weight] for weight in weights)


def pooled_deviations(curvatures: Sequence[Curvature], memory: float, facts: Facts) -> tuple[float, ...]:
    """Return the standard deviation of the noise on an entry of each Newton step's matrix, pooled ones included."""
    deviations, count, squares = [], 0.0, 0.0
    for curvature in curvatures:
        precision = (curvature.sigma * curvature.sensitivity(facts)) ** -2
        count, squares = memory * count + precision, memory**2 * squares + precision
        deviations.append(sqrt(squares) / count)
    return tuple(deviations)
