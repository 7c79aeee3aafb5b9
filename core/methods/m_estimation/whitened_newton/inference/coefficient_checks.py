"""Checks of an estimate by whitened Newton, from answers already paid for.

Thresholds and what they were seen to catch are in `docs/decisions/0041-divide-a-jobs-budget-by-fixed-shares.md`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, sqrt
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from core.inference.checks import Checks, CoefficientCheck, ColumnLook, Learned
from core.inference.looks import SeenSizes
from core.inference.shrinkage import TINY
from core.losses.counts import CutPoisson
from core.methods.m_estimation.whitened_newton.inference.last_step import (
    EXCESS,
    MOST_GUESSED,
    Finished,
    Kind,
    Last,
    NoisedAnswer,
    Whitened,
)
from core.methods.m_estimation.whitened_newton.inference.lost_weight import lost_weight, parts_of
from core.methods.m_estimation.whitened_newton.inference.recentring import (
    MOST_CARRIED,
    at_centres,
    at_origin,
    carried,
    recentred,
    rounded_off,
)
from core.privacy.facts import Ranges, Sampling
from farthing.schemas.estimates import JobCheck

Array = NDArray[np.float64]
LONGEST: Final = 5.0
"""Length of all slopes, in deviations of the predictor, beyond which outcomes are taken to be separated."""
FARTHEST: Final = 8.0
"""One column's effect over two of its scales, beyond which the same is said of it."""
ALIKE, ALIKE_IF_FAR = 2.0, 4.0
"""Deviations above 0 of the rarer outcome's sum among one value's records, below which all outcomes may be alike; the
second where the estimate says so too, by an effect of FIVEFOLD at least. The first misses one in 44 by itself."""
FIVEFOLD: Final = 1.609
"""A logarithm of odds, or of rates."""
LARGEST_MARGIN: Final = 50.0
"""Of a value's records, in size: with chances past it, no data set of ours has a record of the rarer outcome."""
EXCLUDED: Final = 2.5
"""Deviations by which slopes that decide the outcome must be excluded."""
EVENTS_PER_PARAMETER: Final = 10
MOST_ERROR: Final = 5.0
"""Standard error of a column's effect across its reach, in logits, log rates or residual scales."""
HEAP_REACH: Final = 2 * sqrt(10)
"""Of a heaped column, in scales: the distance of both values of a column that has each tenth record off the heap."""
LEAST_STEPS: Final = 4.0
"""Between values of a column of few values: it is judged across no less, if its range is as wide."""
MOST_INTERCEPT_ERROR: Final = 2.5
"""Of an intercept, in the same units."""
KNOWN_NOISE: Final = 0.2
"""Below it a direction that noise hides is known to have less than a tenth of the mean second derivative."""


@dataclass(frozen=True)
class Found:
    """Inputs of the checks; shapes (p,) and (p, p), features in their encoded order."""

    kind: Kind | Literal["squared"]
    found: Finished
    back: Array
    """From re-encoded to encoded coefficients."""
    theta: Array
    """Encoded units."""
    ranges: Ranges
    encoding: Array
    metric: Array
    """Covariance of the re-encoded columns as far as it is known, 0 for the intercept."""
    centre: Array
    scale: Array
    sparse: NDArray[np.bool_]
    clamped: NDArray[np.bool_]
    heaped: NDArray[np.bool_]
    recentring: Array | None
    """As `Columns` has it, with `centre` and `scale` of rows in which products are centred anew."""
    sizes: Mapping[int, SeenSizes]
    rate: float | None
    events: float | None
    residual_scale: float | None
    cap: float | None
    cut: CutPoisson | None
    """Of a Poisson model's residuals."""
    variance_ratio: float | None
    weight_bound: float
    reach: float | None = None
    """Of least squares: the largest residual that counts whole, in residual scales."""
    offset: float | None = None
    """Mean of what is added to the predictor."""
    sampling: Sampling | None = None
    complete: tuple[float, float] | None = None
    """Records with all values, as counted, and the deviation of the noise on it."""


def check(one: Found) -> Checks:
    """Return what is wrong, of the job and by coefficient, with what was learned."""
    found, moved = one.found, one.recentring
    shown = at_origin(one.back, one.ranges, moved)
    # A slope is judged where the columns that its own is multiplied with have their centres.
    judged = np.vstack((shown[:1], at_centres(one.back, moved)[1:]))
    guessed, unlearned = parts_of_variance(shown, found.covariance, found.guess, found.unlearned)
    marks: dict[CoefficientCheck, NDArray[np.bool_]] = {
        "separated": _apart(replace(one, theta=at_centres(one.theta, moved))),
        "scale outside the plan": one.sparse | rounded_off(one.back, found.covariance, one.ranges, moved),
    }
    if one.kind != "squared":  # whose equations are linear: an interval holds, however wide
        covariance = judged @ found.covariance @ judged.T / (one.residual_scale or 1.0) ** 2
        columns = one.centre, one.scale, one.sparse, one.heaped
        marks["too uncertain"] = too_uncertain(covariance, recentred(one.ranges, moved), columns)
    passed: dict[CoefficientCheck, NDArray[np.bool_]] = {
        "not identified": not_identified(guessed, unlearned, found.hessian_noise),
    }
    passed |= {word: carried(mark, one.back, found.covariance, one.ranges, moved) for word, mark in marks.items()}
    errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", judged, found.covariance, judged), 0.0))
    parts = parts_of(one.sizes, one.centre, one.encoding, one.weight_bound)
    lost = lost_weight(parts, at_centres(one.theta, moved), errors, one.encoding, one.ranges)
    return Checks(
        job=_of_the_job(one),
        coefficients=by_coefficient(passed),
        learned=_learned(one),
        gradient_excess=found.excess,
        hessian_noise=found.hessian_noise,
        unidentified=tuple(guessed.tolist()),
        kept=lost.kept,
        weighted=lost.weighted,
    )


def parts_of_variance(back: Array, covariance: Array, *parts: Array) -> list[Array]:
    """Return which part of each coefficient's variance each part of the covariance makes, shape (p,) each."""
    variance, *each = (np.einsum("ij,jk,ik->i", back, one, back) for one in (covariance, *parts))
    return [one / np.maximum(variance, TINY) for one in each]


def not_identified(guessed: Array, unlearned: Array, noise: float) -> NDArray[np.bool_]:
    """Say which coefficients noise hides, or records do not identify.

    Args:
        guessed: the part of each one's variance that is a public guess.
        unlearned: the part along directions that are hidden.
        noise: spectral, of the Hessian, over its mean eigenvalue or the rarest class's.
    """
    empty = noise < KNOWN_NOISE  # hidden directions are where records say nothing, not where noise does
    found: NDArray[np.bool_] = guessed > MOST_GUESSED
    return found | (unlearned > np.maximum(MOST_GUESSED, 2 * guessed)) if empty else found


def too_uncertain(
    covariance: Array, ranges: Ranges, columns: tuple[Array, Array, NDArray[np.bool_], NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Say which coefficients the noise leaves open far beyond anything plausible, though no direction is hidden.

    Where most records have one value, few tell of its column: a scale that noise may reach is small, and a small
    multiple of it large across the range. An intercept is far from such a column's centre in units of its scale.

    Args:
        covariance: of the encoded slopes and the intercept of declared units, shape (p, p), in squared logits, log
            rates or residual scales.
        ranges: of the features.
        columns: centre, scale, sparse and heaped, as `Columns` has them, shape (p,) each.
    """
    centre, scale, sparse, heaped = columns
    few, width = np.array([kind == "few" for kind in ranges.kinds]), np.array(ranges.upper) - np.array(ranges.lower)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    # A slope of few values is judged by the step, however little is seen beyond their median.
    steps = np.array([ranges.step(place) for place in range(len(few))])
    across = np.minimum(width, np.maximum(HEAP_REACH * scale, LEAST_STEPS * steps))
    reach = np.where(few, across, np.where(heaped, HEAP_REACH * scale, 0.0))
    found: NDArray[np.bool_] = errors * reach > MOST_ERROR
    far = centre - np.array(ranges.origin or centre)
    carries = np.abs(far[1:]) * errors[1:] > MOST_CARRIED * errors[0]
    loud = (few | heaped)[1:] & (errors[0] > MOST_INTERCEPT_ERROR)
    found[0] = bool((carries & (sparse[1:] | loud)).any())
    return found


def by_coefficient(marks: dict[CoefficientCheck, NDArray[np.bool_]]) -> tuple[tuple[CoefficientCheck, ...], ...]:
    """Return the flags of each coefficient, of marks of shape (p,)."""
    each = zip(*(one.tolist() for one in marks.values()), strict=True)
    return tuple(tuple(word for word, raised in zip(marks, own, strict=True) if raised) for own in each)


def column_looks(centre: Array, scale: Array, clamped: NDArray[np.bool_]) -> tuple[ColumnLook, ...]:
    """Return what was learned of each column; shapes (p,), (p,) and (p, 2)."""
    columns = []
    for middle, size, (low, high) in zip(centre, scale, clamped, strict=True):
        ends = (*(("lower",) if low else ()), *(("upper",) if high else ()))
        columns.append(ColumnLook.model_validate({"centre": float(middle), "scale": float(size), "clamped": ends}))
    return tuple(columns)


def _of_the_job(one: Found) -> tuple[JobCheck, ...]:
    """Return what is wrong with all coefficients."""
    size = len(one.theta)
    said: list[JobCheck] = []
    if one.found.excess is not None and one.found.excess > EXCESS:
        said.append("not converged")
    if one.found.hessian_noise > 1:
        said.append("too many coefficients")
    linear = one.kind in {"huber", "squared"}
    far = not linear and float(np.linalg.norm(one.found.theta[1:])) > LONGEST
    if far or (isinstance(one.found, Whitened) and one.found.excluded < EXCLUDED):
        said.append("separated")
    if one.events is not None and one.events < EVENTS_PER_PARAMETER * size:
        said.append("too few events")
    return tuple(said)


def _apart(one: Found) -> NDArray[np.bool_]:
    """Say which coefficients are so large, or whose records are so much alike, that outcomes may be separated there."""
    size, found = len(one.theta), one.found
    if one.kind in {"huber", "squared"} or not isinstance(found, Whitened):
        return np.zeros(size, dtype=np.bool_)
    kinds, lower, upper = one.ranges.kinds, np.array(one.ranges.lower), np.array(one.ranges.upper)
    two = np.array([kind == "two" for kind in kinds])
    reach = np.abs(one.theta) * np.where(two, upper - lower, 2 * one.scale)
    far: NDArray[np.bool_] = (reach > FARTHEST) & (np.arange(size) > 0)
    return far | _alike(one, found.last, two, lower, upper)


def _alike(one: Found, last: Last, two: NDArray[np.bool_], lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Say of which indicators the records of one value may all have the same outcome, as far as answers tell.

    If so, a coefficient without end fits best. At each precise gradient's point the rarer outcome of one value's
    records can be counted; both counts are of the same records, with noise of their own.
    """
    size, alike = len(one.theta), np.zeros(len(one.theta), dtype=np.bool_)
    values = np.eye(size)
    values[two, two] = (upper - lower)[two]
    values[two, 0] = lower[two]
    back = np.linalg.inv(one.encoding @ values)  # of (1, indicator, ...)
    points = list(zip((last.before, last.theta), last.gradients, last.hessians, strict=True))
    for place in np.flatnonzero(two):
        both = back[place], back[0] - back[place]
        middles = [own_middle(along, one.metric) for along in both]
        margins = [float(middle @ last.theta) + (one.offset or 0.0) for middle in middles]
        effects = one.theta[place] * (upper - lower)[place], -one.theta[place] * (upper - lower)[place]
        apart = margins[0] - margins[1], margins[1] - margins[0]
        for along, middle, margin, effect, away in zip(both, middles, margins, effects, apart, strict=True):
            counts = [
                _rarer(one.kind, along, float(middle @ theta) + (one.offset or 0.0), margin, gradient, hessian)
                for theta, gradient, hessian in points
            ]
            # Weighted by noise alone: both counts are of the same records.
            sharp = [deviation**-2 for _, deviation in counts]
            count = sum(counted * weight for (counted, _), weight in zip(counts, sharp, strict=True)) / sum(sharp)
            towards = 1.0 if one.kind == "logistic" and margin > 0 else -1.0
            rarer = max(towards * effect, towards * away)
            alike[place] |= count * sqrt(sum(sharp)) < (ALIKE_IF_FAR if rarer > FIVEFOLD else ALIKE)
    return alike


def own_middle(along: Array, metric: Array) -> Array:
    """Return about the mean row, re-encoded, of records with a'x = 1, where a'x is 0 or 1 of all; shape (p,).

    It is that of all, (1, 0, ..., 0), moved along the columns' covariance with a'x, which is exact for normal columns
    and for two groups.

    Args:
        along: a.
        metric: covariance of the columns, shape (p, p), 0 for the intercept.
    """
    own = metric @ along
    # The metric may hold nothing along a, and its form divides.
    found: Array = np.eye(len(along))[0] + own * (1 - along[0]) / max(float(along @ own), TINY)
    return found


def _rarer(
    kind: str, along: Array, margin: float, final: float, gradient: NoisedAnswer, hessian: NoisedAnswer
) -> tuple[float, float]:
    """Return the weighted sum of one value's rarer outcome, or of its counts, with the deviation of its noise.

    With a'x = 1 for the value's records and 0 for others, a'Ha adds up w mu (Poisson) or w q (1 - q), and a'g w times
    the fitted less the outcome. Hence a'Ha - a'g is the sum of counts. Where all have the same probability q, a'Ha/(1 -
    q) - a'g counts records with the outcome, and a'Ha/q + a'g those without.

    Args:
        kind: of the model.
        along: a.
        margin: of the value's records, at the point of the answers.
        final: the same at the last point, which says which outcome is the rarer one.
        gradient: there.
        hessian: there.
    """
    bent, pull = float(along @ hessian.value @ along), float(along @ gradient.value)
    if kind == "logistic":
        # Noise alone makes larger margins: past this one the sum is nothing but noise, whatever multiplies it.
        times, sign = 1 + exp(min(-margin if final > 0 else margin, LARGEST_MARGIN)), 1.0 if final > 0 else -1.0
    else:
        times, sign = 1.0, -1.0
    length = float(along @ along)
    # Noise is drawn on and above the diagonal: an entry off it counts twice in a'Ea.
    spread = (times * hessian.deviation) ** 2 * (2 * length**2 - float((along**4).sum()))
    return times * bent + sign * pull, sqrt(gradient.deviation**2 * length + spread)


def _learned(one: Found) -> Learned:
    """Return what the job learned of columns and target."""
    dispersed = one.found.dispersed if one.cut and isinstance(one.found, Whitened) else (None, None)
    return Learned(
        columns=column_looks(one.centre, one.scale, one.clamped),
        encoding=tuple(tuple(row) for row in one.encoding.tolist()),
        weight_bound=one.weight_bound,
        base_rate=one.rate,
        residual_scale=one.residual_scale,
        cap=one.cap,
        rate_cap=one.cut.rate_cap if one.cut else None,
        cut=one.cut.cut if one.cut else one.reach,
        dispersion=one.cut.dispersion if one.cut else None,
        variance_ratio=one.variance_ratio,
        score_ratio=dispersed[0],
        score_ratio_error=dispersed[1],
        offset=one.offset,
        sampling=one.sampling,
        complete=one.complete[0] if one.complete else None,
        complete_deviation=one.complete[1] if one.complete else None,
    )
