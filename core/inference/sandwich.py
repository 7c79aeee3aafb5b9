"""Private sandwich covariance of an iterate, with the correction for the noise of the last steps.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5.1, equations (13) and (14). The printed factor is exact for
one curvature only. The stationary corrections replace it by the variance of the vector autoregression that the iterates
are near the minimiser.
Sensitivity: those of the two `Curvature` questions, one Gaussian answer each; the rest is post-processing.

Near the minimiser theta_{k+1} - theta_hat = F (theta_k - theta_hat) - noise with independent noise of covariance N:

* gradient descent: F = I - step * M and N = (step * scale)^2 I, so along an eigenvector with eigenvalue l the variance
  after K steps is (step * scale)^2 (1 - f^(2 K))/(1 - f^2), f = 1 - step * l;
* damped Newton: F = (1 - damping) I and N = (damping * scale)^2 M^-2, so the variance is
  scale^2 * damping/(2 - damping) * M^-2.

`scale` is the standard deviation that the oracle really used. The noised Hessians of the later half of Newton's steps
are already paid for. They estimate the same matrix as the final one, up to the distance between iterates, which is of
the order of the noise that the correction measures. They are averaged with it, weighted by precision. This can only
lower the variance of the matrix and is free of charge.
"""

from math import sqrt
from typing import Literal

import torch
from torch import Tensor

from core.inference.eigen import floor_eigenvalues
from core.inference.estimate import Estimate, Sandwich, by_replicate
from core.inference.late_covariance import REMEMBERED, Matrices, Steps, late_covariance
from core.inference.parameters import penalised_hessian, scale_of
from core.inference.settings import PlannedInference
from core.oracle import Answer, Oracle
from core.privacy.facts import Facts

Correction = Literal["stationary", "plain", "printed", "released"]
NEAREST_TO_ONE = 0.999
"""A step that contracts by less is taken to contract by this much."""
UNSEEN = 0.1
"""A floored eigenvalue cannot be distinguished from zero; the bias below takes it for this part of the floor."""


def infer(inference: PlannedInference, estimate: Estimate, oracle: Oracle, shifts: Tensor | None = None) -> Sandwich:
    """Ask for both matrices at the last iterate and return its covariance.

    With an unknown scale all floors are of the Hessian times the scale, as answered; the result is divided by it.

    Args:
        inference: public, nothing open.
        estimate: the optimizer's result.
        oracle: the oracle it used, still open.
        shifts: unit vectors, shape (q, features), that move many coefficients together (`Design.baseline_shifts`);
            uncertainty along one enters all of them.
    """
    facts, scale = oracle.facts, scale_of(oracle.facts, estimate.theta)
    shifts = None if shifts is None else spread(shifts, facts)
    curvature_question, score_question = inference.questions()
    last = oracle.ask(curvature_question, estimate.theta)
    received = penalised_hessian(facts, pooled(last, estimate), scale)
    floored, curvature_floored = floor_eigenvalues(received, inference.curvature_floor)
    curvature = floored / by_replicate(scale, 2)
    scored = oracle.ask(score_question, estimate.theta)
    score, score_floored = floor_eigenvalues(scored.value, inference.score_floor)
    inverse = torch.linalg.inv(curvature)
    plain = inverse @ score @ inverse / facts.units
    plain = (plain + plain.mT) / 2
    if estimate.late is None or inference.correction == "plain":
        noised, floor = received / by_replicate(scale, 2), inference.curvature_floor / scale
        leaning = remembered(estimate, noised, floor, inference.correction, shifts)
        covariance = plain + correction(inference.correction, estimate, curvature) + leaning
        slow = _slow(estimate, curvature)
    else:
        assert inference.correction == "stationary", "the planner refuses others with late steps"
        matrices = Matrices(
            curvature=received.numpy(),
            deviation=_pooled_deviation(last, estimate),
            score=scored.value.numpy(),
            score_deviation=scored.scale,
            ratio=score_question.bound(facts) / curvature_question.bound(facts),
        )
        # In units of the scale: parameters are divided by it, so Hessians are multiplied, and scores stay.
        radius, directions = inference.plausible_radius / scale, _directions(shifts, facts)
        relative, counted = late_covariance(
            _late_steps(estimate, scale), matrices, facts.units, radius.numpy(), directions.numpy()
        )
        covariance, slow = by_replicate(scale, 2).square() * torch.from_numpy(relative), torch.as_tensor(counted)
    return Sandwich(
        covariance=covariance,
        plain=plain,
        slow=slow,
        curvature=curvature,
        score=score,
        curvature_floored=curvature_floored,
        score_floored=score_floored,
    )


def spread(shifts: Tensor, facts: Facts) -> Tensor:
    """Return directions of the features, shape (q, features), as directions of all parameters, shape (..., p).

    An unknown scale has no part in them; with many margins each has its own.
    """
    if facts.scale is not None:
        return torch.cat([shifts, shifts.new_zeros(len(shifts), 1)], -1)
    margins = facts.dimension // shifts.shape[-1]
    return torch.kron(torch.eye(margins, dtype=shifts.dtype), shifts)


def _directions(shifts: Tensor | None, facts: Facts) -> Tensor:
    """Return them, none where there are none, shape (q, p)."""
    return torch.zeros(0, facts.dimension, dtype=torch.float64) if shifts is None else shifts


def pooled(last: Answer, estimate: Estimate) -> Tensor:
    """Return the average of the last Hessian and the optimizer's late ones, weighted by precision."""
    weight = _earlier_weight(last, estimate)
    if estimate.late_sum is None or not bool((weight > 0).any()):
        return last.value
    return (last.value + by_replicate(weight, 2) * estimate.late_sum) / by_replicate(
        1 + weight * estimate.late_count, 2
    )


def _earlier_weight(last: Answer, estimate: Estimate) -> Tensor:
    """Return the precision of the optimizer's last Hessian relative to this one's, shape (...).

    Zero where it took none, and without noise, in a simulation: the last is exact then.
    """
    earlier = torch.as_tensor(estimate.curvature_scale, dtype=torch.float64)
    # torch.where also computes the quotient that it drops.
    return torch.where(earlier > 0, last.scale / earlier.clamp(min=1e-300), 0.0).square()


def _pooled_deviation(last: Answer, estimate: Estimate) -> float:
    """Return the standard deviation of the noise on an entry of what `pooled` returns; the same in all replicates."""
    weight = float(_earlier_weight(last, estimate))
    count, squares = float(estimate.late_count), float(estimate.late_squares)
    return last.scale * sqrt(1 + weight * squares) / (1 + weight * count)


def _late_steps(estimate: Estimate, scale: Tensor) -> Steps:
    """Return the late steps as the covariance needs them, in units of the scale."""
    assert estimate.late is not None, "there were some"
    assert estimate.hessian is not None, "they used a matrix"
    inverse = torch.linalg.inv(estimate.hessian * by_replicate(scale, 2))
    return Steps(
        estimate.late.steps, estimate.late.averaged, float(estimate.scale), ((inverse + inverse.mT) / 2).numpy()
    )


def _slow(estimate: Estimate, curvature: Tensor) -> Tensor:
    """Count eigenvectors of the floored Hessian along which the steps still remember their start."""
    speed = torch.linalg.eigvalsh(curvature)
    if estimate.family == "newton":
        speed = (speed / by_replicate(estimate.eigenvalue_floor, 1)).clamp(max=1.0)
    slow: Tensor = (
        (1 - by_replicate(estimate.step, 1) * speed).abs() ** by_replicate(estimate.steps, 1) > REMEMBERED
    ).sum(-1)
    return slow


def correction(kind: Correction, estimate: Estimate, curvature: Tensor) -> Tensor:
    """Return the variance that the optimizer's noise adds to its last iterate, shape (..., p, p).

    Args:
        kind: `stationary` is as above, and `plain` none. `printed` is as in the paper: twice one step's variance for
            gradient descent, one step's for Newton with its last floored Hessian. `released` is as in its authors'
            code: for Newton the floored M in its place.
        estimate: the optimizer's result; its step includes an unknown scale where steps are multiplied by it.
        curvature: the floored Hessian M, with the 1/scale of a Huber loss.
    """
    if kind == "plain":
        return torch.zeros_like(curvature)
    step = by_replicate(estimate.step, 2)
    variance = (step * by_replicate(estimate.scale, 2)).square()
    if estimate.family == "gradient":
        return variance * (_spread(estimate, curvature) if kind == "stationary" else _printed_factor(curvature))
    if kind == "printed":
        assert estimate.hessian is not None, "a Newton step was taken"
        return variance * _inverse_squared(estimate.hessian)
    if kind == "released":
        return variance * _inverse_squared(curvature)
    return variance / (1 - (1 - step).square()) * _inverse_squared(curvature)


def _printed_factor(curvature: Tensor) -> Tensor:
    """Return twice the identity, one for each replicate: the printed factor."""
    return (2 * torch.eye(curvature.shape[-1], dtype=curvature.dtype)).expand_as(curvature)


def _inverse_squared(matrix: Tensor) -> Tensor:
    inverse = torch.linalg.inv(matrix)
    squared: Tensor = inverse @ inverse.mT
    return squared


def _spread(estimate: Estimate, curvature: Tensor) -> Tensor:
    """Return the variance after all steps relative to that of one, shape (..., p, p)."""
    values, vectors = torch.linalg.eigh(curvature)
    # Within 1 in size: the next line divides by 1 - f^2.
    contraction = (1 - by_replicate(estimate.step, 1) * values).clamp(-NEAREST_TO_ONE, NEAREST_TO_ONE)
    grown = (1 - contraction ** (2 * by_replicate(estimate.steps, 1))) / (1 - contraction**2)
    relative: Tensor = (vectors * grown.unsqueeze(-2)) @ vectors.mT
    return relative


def remembered(
    estimate: Estimate, noised: Tensor, floor: Tensor | float, kind: Correction, shifts: Tensor | None = None
) -> Tensor:
    """Return the squared bias of what has not forgotten its start, shape (..., p, p).

    Along an eigenvector of the noised Hessian with eigenvalue l each step multiplies the distance to the minimiser by a
    factor. It is f = 1 - step * l for gradient descent, and 1 - damping * l/eigenvalue floor for Newton where l is
    below that floor. After K steps r = f^K of the way is left, r/(1 - r) times what has been gone. A floored eigenvalue
    cannot be distinguished from zero, and counts as UNSEEN times the floor. A unit direction u has moved by a known
    amount. Its assumed bias is that amount times r/(1 - r), averaged over the eigenvectors by the share (u.v)^2 that u
    has in each. It enters as if it were a standard deviation. It is reckoned for each coefficient, u an axis, and for
    each of `shifts`. A rule of thumb: post-processing of released values; zero, up to rounding, wherever the iterates
    have converged, and no part of the `plain` and `printed` covariances.
    """
    if kind != "stationary":
        return torch.zeros_like(noised)
    values, vectors = torch.linalg.eigh((noised + noised.mT) / 2)
    least = by_replicate(floor, 1)
    speed = torch.where(values < least, UNSEEN * least, values)
    if estimate.family == "newton":
        speed = (speed / by_replicate(estimate.eigenvalue_floor, 1)).clamp(max=1.0)
    # Below 1: the next line divides by 1 - left.
    left = (1 - by_replicate(estimate.step, 1) * speed).clamp(0.0, NEAREST_TO_ONE) ** by_replicate(estimate.steps, 1)
    to_go = (left / (1 - left)).unsqueeze(-2)
    moved = estimate.theta - estimate.start
    bias = torch.diag_embed(((vectors.square() * to_go).sum(-1) * moved).square())
    if shifts is not None:
        along = ((shifts @ vectors).square() * to_go).sum(-1) * (moved @ shifts.mT)
        bias = bias + (shifts.mT * along.square().unsqueeze(-2)) @ shifts
    return bias
