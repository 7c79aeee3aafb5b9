"""Settings and inference that fit each other: the division of mu^2, both filled for it, and the floors of matrices."""

from math import isclose, sqrt
from typing import NamedTuple

from core.base.errors import contradiction
from core.inference.settings import Inference, Shares
from core.methods.registry import AnyPlan, AnySpec
from core.privacy.arithmetic import (
    LARGEST_FLOOR_PART,
    SLACK,
    fill,
    matrix_floor,
    matrix_sigma,
    required_curvature_bound,
)
from core.privacy.facts import Facts

CURVATURE_FLOOR_MULTIPLE = 0.9
SCORE_FLOOR = 1e-4


class Completed(NamedTuple):
    """Nothing left open in either."""

    optimizer: AnyPlan
    inference: Inference


def complete(optimizer: AnySpec, inference: Inference, mu: float, facts: Facts) -> Completed:
    """Fill what is open in both, for a job worth `mu`.

    Args:
        optimizer: as asked for.
        inference: as asked for, its shares in numbers or left open.
        mu: the job's.
        facts: public.

    Raises:
        Invalid: given figures contradict each other, with JSON pointers.
    """
    if optimizer.has_covariance:
        return Completed(_alone(optimizer, mu, facts), inference)
    given = inference
    inference, estimate_mu = _divided(inference, mu, optimizer, facts)
    filled = optimizer.plan(facts, estimate_mu)
    _check_optimizer(filled, facts, estimate_mu, given)
    return Completed(filled, _with_floors(inference, filled, facts))


def _alone(optimizer: AnySpec, mu: float, facts: Facts) -> AnyPlan:
    """Return a method that asks for nothing after it, filled; it takes all of a job's mu unless it says less."""
    if optimizer.mu is not None and optimizer.mu > mu * (1 + 10 * SLACK):
        raise contradiction("/optimizer/mu", "is more than the job's total; lower it or leave it out")
    return optimizer.plan(facts, mu)


def _divided(inference: Inference, mu: float, optimizer: AnySpec, facts: Facts) -> tuple[Inference, float]:
    """Fill the division of mu^2 and return it with the estimate's own mu."""
    if not inference.intervals:
        estimate_mu = optimizer.mu if optimizer.mu is not None else mu
        if estimate_mu > mu * (1 + SLACK):
            raise contradiction("/optimizer/mu", "is more than the job's total; lower it or leave it out")
        return inference, estimate_mu
    shares, default = inference.shares, optimizer.planned_shares(facts, mu)
    assert not isinstance(shares, str), "chosen before"
    if shares is None and optimizer.mu is not None:
        rest = 1 - (optimizer.mu / mu) ** 2
        if rest <= SLACK:
            raise contradiction("/optimizer/mu", "leaves nothing for the intervals; lower it or leave it out")
        matrices = default.curvature + default.score
        shares = Shares(
            estimate=1 - rest, curvature=rest * default.curvature / matrices, score=rest * default.score / matrices
        )
    shares = shares or default
    estimate_mu = mu * sqrt(shares.estimate)
    if optimizer.mu is not None and not isclose(optimizer.mu, estimate_mu, rel_tol=SLACK):
        raise contradiction("/optimizer/mu", "does not agree with the shares; leave one of the two out")
    sigmas = {
        "curvature_sigma": matrix_sigma(mu * sqrt(shares.curvature), inference.matrix_noise),
        "score_sigma": matrix_sigma(mu * sqrt(shares.score), inference.matrix_noise),
    }
    for name, value in sigmas.items():
        given = getattr(inference, name)
        if given is not None and not isclose(given, value, rel_tol=SLACK):
            raise contradiction(f"/inference/{name}", "does not agree with the shares; leave it out")
    return fill(inference, shares=shares, **sigmas), estimate_mu


def _check_optimizer(optimizer: AnyPlan, facts: Facts, estimate_mu: float, inference: Inference) -> None:
    """Refuse settings that contradict the rest of the job."""
    optimizer.check(inference)
    assert optimizer.start is not None, "planned"
    if not isinstance(optimizer.start, str) and len(optimizer.start) != facts.dimension:
        raise contradiction("/optimizer/start", f"must have {facts.dimension} numbers, one for each parameter")
    if not optimizer.spends_mu:
        return
    assert optimizer.mu is not None, "planned"
    assert isclose(optimizer.mu, estimate_mu, rel_tol=10 * SLACK), "the estimate spends its share"


def _with_floors(inference: Inference, optimizer: AnyPlan, facts: Facts) -> Inference:
    """Fill the floors of both matrices of the sandwich from the noise they will have."""
    if not inference.intervals:
        return inference
    curvature, _ = inference.questions()
    precision = curvature.precision(facts) + optimizer.curvature_known(facts)
    largest = LARGEST_FLOOR_PART * required_curvature_bound(facts)
    floor = matrix_floor(1 / sqrt(precision), facts.dimension, largest, CURVATURE_FLOOR_MULTIPLE)
    return fill(inference, curvature_floor=floor, score_floor=min(1 / facts.units, SCORE_FLOOR))
