"""What is wrong with an estimate of whitened Newton, from answers already paid for.

Thresholds and what they were seen to catch are in `docs/decisions/0041-a-division-that-no-answer-moves.md`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.catalogue.checks import Checks, CoefficientCheck, ColumnLook, JobCheck, Learned
from core.inference.shrinkage import TINY
from core.inference.whitened import EXCESS, MOST_GUESSED, Kind, Whitened
from core.privacy.facts import Ranges

Array = NDArray[np.float64]
LONGEST: Final = 5.0
"""Length of all slopes, in deviations of the predictor, beyond which outcomes are taken to be separated."""
FARTHEST: Final = 8.0
"""One column's effect over two of its scales, beyond which the same is said of it."""
THIN: Final = 0.12
"""Of the mean second derivative: what the records of one of an indicator's values have at least."""
EVENTS_PER_PARAMETER: Final = 10
KNOWN_NOISE: Final = 0.2
"""Below it a direction that noise hides is known to have less than a tenth of the mean second derivative."""
_PREDICTED_PART: Final = 0.85
"""Of a logistic model's second derivative at equal chances of all records: what is left where chances differ."""


@dataclass(frozen=True)
class Found:
    """All that checks are made of; shapes (p,) and (p, p), features in their encoded order."""

    kind: Kind
    found: Whitened
    back: Array
    """From re-encoded to encoded coefficients."""
    theta: Array
    """Encoded units."""
    ranges: Ranges
    encoding: Array
    simple: Array
    moments: Array
    """Of (1, z), as told."""
    weight: float
    centre: Array
    scale: Array
    sparse: NDArray[np.bool_]
    clamped: NDArray[np.bool_]
    rate: float | None
    events: float | None
    residual_scale: float | None
    cap: float | None
    weight_bound: float


def check(one: Found) -> Checks:
    """Return what is wrong, of the job and by coefficient, with what was learned."""
    found, size = one.found, len(one.theta)
    variance = np.einsum("ij,jk,ik->i", one.back, found.covariance, one.back)
    guessed, unlearned = (
        np.einsum("ij,jk,ik->i", one.back, part, one.back) / np.maximum(variance, TINY)
        for part in (found.guess, found.unlearned)
    )
    empty = found.hessian_noise < KNOWN_NOISE  # hidden directions are where records say nothing, not where noise does
    apart = _apart(one)
    said: list[tuple[CoefficientCheck, ...]] = []
    for place in range(size):
        own: list[CoefficientCheck] = []
        if guessed[place] > MOST_GUESSED or (empty and unlearned[place] > max(MOST_GUESSED, 2 * guessed[place])):
            own.append("not identified")
        if apart[place]:
            own.append("separated")
        if one.sparse[place]:
            own.append("scale outside the plan")
        said.append(tuple(own))
    return Checks(
        job=_of_the_job(one),
        coefficients=tuple(said),
        learned=_learned(one),
        gradient_excess=found.excess,
        hessian_noise=found.hessian_noise,
        unidentified=tuple(guessed.tolist()),
    )


def _of_the_job(one: Found) -> tuple[JobCheck, ...]:
    """Return what is wrong with all coefficients."""
    size = len(one.theta)
    said: list[JobCheck] = []
    if one.found.excess > EXCESS:
        said.append("not converged")
    if one.found.hessian_noise > 1:
        said.append("too many coefficients")
    if one.kind != "huber" and float(np.linalg.norm(one.found.theta[1:])) > LONGEST:
        said.append("separated")
    if one.events is not None and one.events < EVENTS_PER_PARAMETER * size:
        said.append("too few events")
    return tuple(said)


def _apart(one: Found) -> NDArray[np.bool_]:
    """Say which coefficients are so large, or whose records say so little, that outcomes may be separated there."""
    size, none = len(one.theta), np.zeros(len(one.theta), dtype=np.bool_)
    if one.kind == "huber":
        return none
    kinds, lower, upper = one.ranges.kinds, np.array(one.ranges.lower), np.array(one.ranges.upper)
    two = np.array([kind == "two" for kind in kinds])
    reach = np.abs(one.theta) * np.where(two, upper - lower, 2 * one.scale)
    far: NDArray[np.bool_] = (reach > FARTHEST) & (np.arange(size) > 0)
    return far | _thin(one, two, lower, upper)


def _thin(one: Found, two: NDArray[np.bool_], lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Say for which indicators the records of one value have next to no second derivative: all alike, as it were.

    Hessian and moments are taken to rows (1, indicator, ...) by public maps; there an entry adds up one value's
    records.
    """
    size, thin = len(one.theta), np.zeros(len(one.theta), dtype=np.bool_)
    assert one.rate is not None, "it was told of these models"
    usual = _PREDICTED_PART * one.rate * (1 - one.rate) if one.kind == "logistic" else one.rate
    usual *= min(one.weight, 1.0)
    values = np.eye(size)
    values[two, two] = (upper - lower)[two]
    values[two, 0] = lower[two]
    bent, counted = (
        _taken(matrix, np.asarray(np.linalg.inv(encoding @ values), dtype=np.float64))
        for matrix, encoding in ((one.found.hessian, one.encoding), (one.moments, one.simple))
    )
    for place in np.flatnonzero(two):
        sums = [np.array([m[place, place], m[0, 0] - 2 * m[0, place] + m[place, place]]) for m in (bent, counted)]
        thin[place] = bool((sums[0] < THIN * usual * np.maximum(sums[1], TINY)).any())
    return thin


def _taken(matrix: Array, back: Array) -> Array:
    """Return a matrix of sums over rows in other coordinates of them."""
    found: Array = back @ matrix @ back.T
    return found


def _learned(one: Found) -> Learned:
    """Return what the job learned of columns and target."""
    columns = []
    for centre, scale, (low, high) in zip(one.centre, one.scale, one.clamped, strict=True):
        ends = (*(("lower",) if low else ()), *(("upper",) if high else ()))
        columns.append(ColumnLook.model_validate({"centre": float(centre), "scale": float(scale), "clamped": ends}))
    return Learned(
        columns=tuple(columns),
        encoding=tuple(tuple(row) for row in one.encoding.tolist()),
        weight_bound=one.weight_bound,
        base_rate=one.rate,
        residual_scale=one.residual_scale,
        cap=one.cap,
    )
