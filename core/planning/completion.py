"""Settings and inference that fit each other: the division of mu^2, both filled for it, and the floors of matrices."""

from math import isclose, sqrt
from typing import NamedTuple

from core.base.errors import contradiction
from core.inference.settings import Inference, PlannedInference, Shares
from core.methods.registry import AnyPlan, AnySpec
from core.privacy.arithmetic import (
    LARGEST_FLOOR_PART,
    SLACK,
    closed,
    matrix_floor,
    matrix_sigma,
    required_curvature_bound,
)
from core.privacy.facts import Facts
from core.queries.gradients import Curvature

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
    if not inference.intervals:
        estimate_mu = optimizer.mu if optimizer.mu is not None else mu
        if optimizer.spends_mu and estimate_mu > mu * (1 + SLACK):
            raise contradiction("/optimizer/mu", "is more than the job's total; lower it or leave it out")
        filled = optimizer.plan(facts, estimate_mu)
        _check_optimizer(filled, facts, estimate_mu, inference)
        return Completed(filled, inference)
    shares = _divided(inference, mu, optimizer, facts)
    estimate_mu = mu * sqrt(shares.estimate)
    sigmas = _sigmas(inference, shares, mu)
    filled = optimizer.plan(facts, estimate_mu)
    _check_optimizer(filled, facts, estimate_mu, inference)
    floors = _floors(sigmas["curvature_sigma"], filled, facts)
    return Completed(filled, closed(inference, PlannedInference, shares=shares, **sigmas, **floors))


def _alone(optimizer: AnySpec, mu: float, facts: Facts) -> AnyPlan:
    """Return a method that asks for nothing after it, filled; it takes all of a job's mu unless it says less."""
    if optimizer.mu is not None and optimizer.mu > mu * (1 + 10 * SLACK):
        raise contradiction("/optimizer/mu", "is more than the job's total; lower it or leave it out")
    return optimizer.plan(facts, mu)


def _divided(inference: Inference, mu: float, optimizer: AnySpec, facts: Facts) -> Shares:
    """Return the division of mu^2."""
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
    if optimizer.mu is not None and not isclose(optimizer.mu, mu * sqrt(shares.estimate), rel_tol=SLACK):
        raise contradiction("/optimizer/mu", "does not agree with the shares; leave one of the two out")
    return shares


def _sigmas(inference: Inference, shares: Shares, mu: float) -> dict[str, float]:
    """Return the noise multipliers of both matrices, those that are given as they are."""
    sigmas = {
        "curvature_sigma": matrix_sigma(mu * sqrt(shares.curvature), inference.matrix_noise),
        "score_sigma": matrix_sigma(mu * sqrt(shares.score), inference.matrix_noise),
    }
    for name, value in sigmas.items():
        given = getattr(inference, name)
        if given is not None and not isclose(given, value, rel_tol=SLACK):
            raise contradiction(f"/inference/{name}", "does not agree with the shares; leave it out")
        sigmas[name] = given or value
    return sigmas


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


def _floors(sigma: float, optimizer: AnyPlan, facts: Facts) -> dict[str, float]:
    """Return the floors of both matrices of the sandwich by the noise they will have, the Hessian's by its `sigma`."""
    precision = Curvature(of="hessian", sigma=sigma).precision(facts) + optimizer.curvature_known(facts)
    largest = LARGEST_FLOOR_PART * required_curvature_bound(facts)
    floor = matrix_floor(1 / sqrt(precision), facts.dimension, largest, CURVATURE_FLOOR_MULTIPLE)
    return {"curvature_floor": floor, "score_floor": min(1 / facts.units, SCORE_FLOOR)}
