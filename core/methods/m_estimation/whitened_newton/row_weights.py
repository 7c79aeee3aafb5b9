"""The bound t of the row weights min(1, t^2/|E x|^2): it grows where many records and budget leave noise to spare.

With a larger t far records weigh more, and the estimate is nearer to the one of equal weights. All of it is arithmetic
on public figures and on answers already paid for. A question's price does not depend on t, its noise does.
"""

from math import sqrt
from typing import TYPE_CHECKING, TypeVar

from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.methods.m_estimation.whitened_newton import shares as parts
from core.privacy.facts import Facts

if TYPE_CHECKING:
    from core.methods.m_estimation.whitened_newton.theory import WhitenedFigures

P = TypeVar("P", bound="WhitenedFigures")


def weight_bound_for(plan: "WhitenedFigures", facts: Facts, curvature: float, score_bound: float) -> float:
    """Return t: as large as leaves noise small beside the sampling error, between the plan's two limits.

    Args:
        plan: nothing open.
        facts: public.
        curvature: c, mean second derivative of the loss.
        score_bound: b, in the same units.
    """
    if plan.least_weight_bound is None:
        return plan.weight_bound
    gradients = parts.SPARED_NOISE / plan.private_part(facts, curvature, score_bound)
    entry = plan.spectral_noise(facts, plan.peak, 1.0) / (2 * sqrt(facts.dimension))
    hessians = parts.SPARED_HESSIAN_NOISE * curvature / entry
    return min(max(sqrt(min(gradients, hessians)), plan.least_weight_bound), plan.weight_bound)


def settled(plan: P, facts: Facts, curvature: float, score_bound: float) -> P:
    """Return the plan with the t of a job that learned these; arguments as of `weight_bound_for`."""
    bound = weight_bound_for(plan, facts, curvature, score_bound)
    return plan.model_copy(update={"weight_bound": bound, "least_weight_bound": None})


def least(plan: P) -> P:
    """Return the plan with the least t, as before a scale of residuals is learned."""
    bound = plan.least_weight_bound or plan.weight_bound
    return plan.model_copy(update={"weight_bound": bound, "least_weight_bound": None})


def grown(plan: P, facts: Facts) -> P:
    """Return the plan with the largest t that its noise leaves room for, from its own t on.

    Even odds, or residuals of the first band, are the best case. A logistic model's job then settles t by the learned
    base rate, that of least squares by the learned residual scale. For robust regression it is planned. The least stays
    for several classes, with sampling weights, and for counts, where few far records carry much.

    Args:
        plan: nothing open, with the least t.
        facts: public.
    """
    if plan.weighted or isinstance(plan.loss, Multinomial | Poisson):
        return plan
    own, most = plan.weight_bound, plan.weight_bound * sqrt(parts.MOST_WEIGHT_GROWTH)
    best = plan.loss.c if isinstance(plan.loss, Huber) else parts.NEAREST if plan.least_squares else 1.0
    ceiling = plan.model_copy(update={"weight_bound": most, "least_weight_bound": own})
    found = settled(ceiling, facts, parts.usual_curvature(plan.loss), best)
    if found.weight_bound > own and isinstance(plan.loss, Logistic | Squared):
        return found.model_copy(update={"least_weight_bound": own})
    return found
