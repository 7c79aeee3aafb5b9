"""Bounds that a loss and weights have together, for every possible record: they price what is asked.

They are of the norm of a record's gradient (B), of the Frobenius norm of its Hessian (Bbar) and, for some, of the
Hessian's rate of change. Robust losses are scale * rho((y - m)/scale), so that gradients carry no 1/scale and Hessians
do.

Source: Avella-Medina, Bradshaw and Loh (2023), losses (6) and (7), section 5 and appendices C and H.
"""

from math import sqrt

from core.losses.bases import AbstractLoss
from core.losses.robust import Huber
from core.losses.weights import Clip, Mallows, Weights


def gradient_bound(loss: AbstractLoss, weights: Weights) -> float:
    """Return B, the bound on the norm of a record's gradient.

    |w x| <= t and |v x| <= C, times the bound of the score; clipped gradients are as long as their clip. With an
    unknown scale the gradient has one more entry, (kappa - psi^2) w/2, between (kappa - c^2)/2 and kappa/2.
    """
    bound = weights.known_bound
    if isinstance(weights, Clip):
        return bound
    assert loss.score_bound is not None, "the planner refuses weights that bound nothing"
    along = bound * loss.score_bound
    if isinstance(loss, Huber) and loss.joint:
        return sqrt(along**2 + max(loss.kappa, loss.c**2 - loss.kappa) ** 2 / 4)
    return along


def gradient_diameter(loss: AbstractLoss, weights: Weights) -> float | None:
    """Return the largest distance of two records' gradients where it is less than 2 B.

    With an unknown scale, the entry for it moves by at most c^2/2, so sqrt((2 t c)^2 + (c^2/2)^2): the printed bound,
    valid and not attained.
    """
    if isinstance(loss, Huber) and loss.joint:
        return sqrt((2 * weights.known_bound * loss.c) ** 2 + loss.c**4 / 4)
    return None


def curvature_bound(loss: AbstractLoss, weights: Weights) -> float | None:
    """Return Bbar, the bound on a record's Hessian; None where there is none, so that none may be asked.

    Nor may that of a loss that is not convex, for the answer is a mean of positive semidefinite matrices.

    w |x|^2 <= t^2 for Mallows weights of power two or more, v^2 |x|^2 <= C^2, times the peak of the curvature. With an
    unknown scale, the Hessian times it is w 1{|r| < c} u u^T, u = (x, r), and w (|x|^2 + r^2) <= t^2 + c^2.
    """
    bound = weights.known_bound
    if isinstance(weights, Clip) or (isinstance(weights, Mallows) and weights.power == 1) or loss.score_bound is None:
        return None
    if loss.weak_convexity != 0 or loss.curvature_peak is None:
        return None
    if isinstance(loss, Huber) and loss.joint:
        return bound**2 + loss.c**2
    return loss.curvature_peak * bound**2


def cubic_bound(weights: Weights) -> float | None:
    """Return the bound on w(x) |x|^3; None where the weights have none."""
    if isinstance(weights, Mallows) and weights.power == 3:  # noqa: PLR2004 - the third power
        return weights.known_bound**3
    return None
