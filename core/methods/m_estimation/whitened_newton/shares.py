"""Division of mu^2 among whitened Newton's answers: fixed shares for each kind of model, whatever the answers are."""

from typing import Final, NamedTuple

from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.models.outlook import CLASSES_DIFFER

LEVELS: Final = 16
"""Of dyadic cells: a quantile is found to the declared range divided by 2^16."""
MOST_CELLS: Final = (0, 1, 2, 3)
"""In place of what a level names of a column: two children at most, and both ends."""
SIZE_BINS: Final = 22
PRODUCT_BINS: Final = 34
PRODUCT_REACH: Final = 4096.0
"""A product's sizes are looked for from so many of its columns' scales, multiplied, down to the 2^34-th part of it."""
COUNT_BINS: Final = 44
COUNT_BINS_PER_OCTAVE: Final = 2
WEIGHT_BINS: Final = 80
WEIGHT_BINS_PER_OCTAVE: Final = 4
"""Of sampling weights: from the declared upper bound down to the 2^20-th of it."""
TARGET_REACH: Final = 3.0
"""A linear model's target enters second moments cut at so many of its own units."""
WIDTH_FACTOR: Final = 1.12
GRADIENT_SHARE: Final = 0.34
"""Of both precise gradients together, in predictions of widths."""


class WhitenedShares(NamedTuple):
    """Of mu^2; they sum to 1."""

    look: float = 0.06
    target: float = 0.01
    moments: float = 0.10
    step_gradients: float = 0.07
    step_hessians: float = 0.06
    first_gradient: float = 0.17
    last_gradient: float = 0.17
    first_hessian: float = 0.18
    last_hessian: float = 0.12
    scores: float = 0.05
    weights: float = 0.01
    residuals: float = 0.0
    """Of a Poisson model, and of least squares: sizes of residuals where the short steps end."""


SHARES: Final = WhitenedShares()
POISSON_SHARES: Final = WhitenedShares(step_gradients=0.06, residuals=0.01)
LEAST_CUT, CUT_NOISE = 2.75, 0.25
"""Residuals of counts are cut at no less than so many of their deviations; farther where the noise that a cut at one
deviation brings, beside the sampling error, leaves room up to the second."""
LEAST_RATE_CAP, RATE_CAP_NOISE = 3.0, 0.25
"""The same of the largest rate that weighs as much as any, over the mean rate, and of the Hessian's noise."""
LINEAR_SHARES: Final = WhitenedShares(target=0.03, scores=0.04, weights=0.0)
"""It asks for no sums of weights, and for residuals' sizes at each point that short steps come to."""
WEIGHTED_LINEAR_SHARES: Final = LINEAR_SHARES._replace(step_gradients=0.06, weights=0.01)
"""With sampling weights it asks for their sums."""
SQUARES_SHARES: Final = WhitenedShares(
    target=0.03,
    moments=0.09,
    step_gradients=0.07,
    step_hessians=0.05,
    first_gradient=0.0,
    last_gradient=0.48,
    first_hessian=0.0,
    last_hessian=0.09,
    weights=0.0,
    residuals=0.08,
)
"""Of least squares: one precise gradient, by bands of the residual's size, and the bands' counts and energies."""
WEIGHTED_SQUARES_SHARES: Final = SQUARES_SHARES._replace(step_gradients=0.06, weights=0.01)
BANDS_SHARE: Final = 0.354
"""In predictions of its widths, of mu^2: that of the gradient, less what weights and unequal bands take."""
MOST_BANDS: Final = 12
NEAREST: Final = 4.5
"""Residual scales that the first band reaches to."""
MEDIAN_PART: Final = 0.25
"""Of what a linear model has for its target; the rest is for sizes, of the target itself and of residuals."""
RESIDUAL_BINS: Final = 64
RESIDUAL_BINS_PER_OCTAVE: Final = 2
"""Residuals are looked for from the target's declared range down to the 2^32-th of it."""
CLASS_PEAK: Final = 0.5
"""Of several classes' second derivative in contrasts."""
WEIGHT_PER_PARAMETER: Final = 1.3
MOST_WEIGHT_GROWTH: Final = 16.0
"""Times the least t^2, at most, where many records and budget leave noise to spare."""
SPARED_NOISE, SPARED_HESSIAN_NOISE = 0.04, 0.006
"""Up to which t grows: variance of the gradients' noise over the non-private one, and the deviation of an entry of the
Hessian over its mean eigenvalue. More would hide directions of rare values."""
LINEAR_STEPS: Final = 4
"""The last one cuts residuals where the model does, those before farther out."""
PLANNED_STEPS: Final = 3
CURVATURE: Final = {"logistic": 0.2125, "poisson": 1.0, "huber": 0.8, "squared": 1.0}
"""Mean second derivative with equal odds, mean 1, or normal residuals."""
KAPPA: Final = {"logistic": 0.95, "multinomial": 0.95, "poisson": 0.95, "huber": 0.8, "squared": 0.8}
MOST_SLOPE_NOISE: Final = 0.115
"""In logits a deviation: beyond it a logistic model's answers often do not exclude slopes that decide the outcome."""
SINGLE_DIRECTIONS: Final = 0.55
"""Spectral noise of a logistic model's Hessian beyond which it often hides single directions."""
SINGLE_CLASS_DIRECTIONS: Final = 0.40
"""The same of several classes, over the curvature along the rarest one."""


def usual_curvature(loss: Logistic | Multinomial | Huber | Squared | Poisson) -> float:
    """Return the mean second derivative with equal odds, mean 1 or normal residuals."""
    return CLASSES_DIFFER / loss.known_classes if isinstance(loss, Multinomial) else CURVATURE[loss.kind]
