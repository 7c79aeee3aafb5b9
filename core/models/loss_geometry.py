"""Bounds on slope, curvature and height of the mean loss in theta, for any records within declared bounds.

A record's loss is that of a margin x.theta with a weight w on it, or of v x and v y with a weight v inside. Its
gradient moves by at most (Lipschitz constant of the score) w |x|^2 for each unit that theta moves. A loss with negative
curvature of at most l in the margin has at most l w |x|^2 in theta. Clipping a gradient to h clips the score to h/|x|.
This is a projection, which makes no gradient move faster. It is also the score of another loss of the margin, whose
negative curvature and height above its least value are no larger. None of this is about the ridge.

Steps and certificates rest on these figures; no sensitivity does. The first two are the constants L1 and L1-tilde of
Menart, Ullah, Arora, Bassily and Guzman (2024), section 1, and the third their F0.
"""

from math import hypot, inf

from core.data.columns import Coded
from core.losses.categorical import Multinomial
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.losses.weights import Clip, Mallows, Weights, gradient_bound
from core.models.design import Design
from core.privacy.arithmetic import AnyStart


def longest_square(weights: Weights, longest: float) -> float:
    """Return the most of w(x) |x|^2, or |v(x) x|^2, over rows of norm at most `longest`.

    With t the bound and r = |x|: min(1, (t/r)^power) r^2 grows up to r = t and falls, stays or grows beyond, for power
    3, 2 or 1; and min(1, t/r)^2 r^2 is min(r, t)^2.
    """
    if isinstance(weights, Clip):
        return longest**2
    within = min(weights.known_bound, longest)
    return within * longest if isinstance(weights, Mallows) and weights.power == 1 else within**2


def smoothness(loss: Loss, weights: Weights, longest: float) -> float | None:
    """Return L1: a unit's gradient moves by at most so much for each unit that theta moves; None: nothing is known.

    With an unknown scale s the Hessian is w/s u u^T, u = (x, r), |r| < c. Hence s times its norm is at most w |x|^2 +
    c^2. It holds for scales above the floor, where all iterates are.

    Args:
        loss: in encoded units, filled.
        weights: filled.
        longest: most of the norm of an encoded row.
    """
    square = longest_square(weights, longest)
    if isinstance(loss, Huber) and loss.joint:
        return (square + loss.c**2) / loss.known_floor
    score = loss.clipped_smoothness(_slope(weights, longest)) if isinstance(weights, Clip) else loss.smoothness
    return None if score is None else score * square


def weak_convexity(loss: Loss, weights: Weights, longest: float) -> float | None:
    """Return L1-tilde: a unit's loss plus (L1-tilde/2) |theta|^2 is convex; 0 for a convex loss, None if unknown.

    Arguments are those of `smoothness`. A loss of several margins is convex in all of them together. A loss of an
    unknown scale is convex in margin and scale together.
    """
    bent = loss.clipped_weak_convexity(_slope(weights, longest)) if isinstance(weights, Clip) else loss.weak_convexity
    return None if bent is None else bent * longest_square(weights, longest)


def longest_cube(weights: Weights, longest: float) -> float:
    """Return the most of w(x) |x|^3, or |v(x) x|^3, over rows of norm at most `longest`.

    With t the bound and r = |x|: min(1, (t/r)^power) r^3 grows with r, or stays beyond t for power 3.
    """
    if isinstance(weights, Clip):
        return longest**3
    within = min(weights.known_bound, longest)
    return within**weights.power * longest ** (3 - weights.power) if isinstance(weights, Mallows) else within**3


def hessian_smoothness(loss: Loss, weights: Weights, longest: float) -> float | None:
    """Return rho: a unit's Hessian moves by at most so much, as an operator, for each unit that theta moves.

    Of a number times x x^T the number moves by at most the third derivative times |x|. Where gradients are clipped it
    is about points at which no unit's is, for there the second derivative jumps. Claims that need this name it.

    Arguments are those of `smoothness`. None: the second derivative jumps or has no bound, or the loss is convex, so
    that no method asks.
    """
    if isinstance(weights, Clip):
        third = loss.clipped_third_derivative(_slope(weights, longest))
    else:
        third = loss.third_derivative
    return None if third is None else third * longest_cube(weights, longest)


def start_gap(loss: Loss, weights: Weights, design: Design, start: AnyStart, ridge: float) -> float | None:
    """Return F0: the mean loss at a public start, a ridge included, is at most so far above its least value.

    A weight is at most 1 and v y no larger than y, so at zero it is the gap of the loss itself. On the way to another
    start the loss whose gradient is followed rises by at most the bound on gradients for each unit.

    Args:
        loss: in encoded units, filled.
        weights: filled.
        design: for the largest row and target.
        start: as the method has it; `random` is at distance 1 from zero.
        ridge: lambda.

    Returns:
        None where no float holds it.
    """
    gap = loss.gap_at_zero(1.0 if isinstance(design.target_column, Coded) else design.target_reach)
    if start != "zeros":
        steep = gradient_bound(loss, weights)
        if isinstance(loss, Multinomial) and isinstance(
            weights, Clip
        ):  # clipped gradients of several margins: no loss's
            steep = loss.score_bound * design.norm_bound
        along, aside = _away(loss, start)
        gap += steep * hypot(along, aside) + ridge / 2 * along * along
    return gap if 0 < gap < inf else None


def _away(loss: Loss, start: AnyStart) -> tuple[float, float]:
    """Return how far a start is from zero in the coefficients, and from its usual start in an unknown scale."""
    if isinstance(start, str):
        return 1.0, 0.0
    if isinstance(loss, Huber) and loss.joint:
        return hypot(*start[:-1]), hypot(*(last - loss.known_scale for last in start[-1:]))
    return hypot(*start), 0.0


def _slope(weights: Clip, longest: float) -> float:
    """Return what the score of the longest row is clipped to."""
    return weights.known_bound / longest
