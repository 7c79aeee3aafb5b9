"""Checks of a multinomial estimate by whitened Newton, by class and coefficient; from answers already paid for.

The thresholds are those of `coefficient_checks`. Coefficients of a class are against the baseline, so a fault of
the baseline's records concerns all classes.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from core.inference.checks import Checks, CoefficientCheck, Learned
from core.inference.looks import Columns
from core.inference.shrinkage import TINY
from core.methods.m_estimation.whitened_newton.inference.class_coordinates import effective
from core.methods.m_estimation.whitened_newton.inference.class_last_step import WhitenedClasses
from core.methods.m_estimation.whitened_newton.inference.coefficient_checks import (
    ALIKE,
    ALIKE_IF_FAR,
    EVENTS_PER_PARAMETER,
    FARTHEST,
    FIVEFOLD,
    LONGEST,
    by_coefficient,
    column_looks,
    not_identified,
    own_middle,
    parts_of_variance,
    too_uncertain,
)
from core.methods.m_estimation.whitened_newton.inference.last_step import EXCESS, NoisedAnswer
from core.methods.m_estimation.whitened_newton.inference.lost_weight import lost_weight, parts_of
from core.methods.m_estimation.whitened_newton.inference.recentring import (
    at_centres,
    at_origin,
    carried,
    recentred,
    rounded_off,
)
from core.privacy.facts import Ranges
from farthing.schemas.estimates import JobCheck

Array = NDArray[np.float64]
LEAST_CHANCE: Final = 1e-3
"""Taken for the least chance of all other classes together."""
MOST_CHANCE: Final = 0.5
"""A class that the estimate gives more than this in a cell is not missing there."""


@dataclass(frozen=True)
class FoundClasses:
    """Inputs of the checks; features in their encoded order, shape (p,) or (p, p)."""

    found: WhitenedClasses
    basis: Array
    """U, shape (K, m)."""
    theta: Array
    """Encoded units, each class but the baseline, shape (m, p)."""
    back: Array
    """From contrasts and re-encoded columns to those, shape (m p, m p)."""
    ranges: Ranges
    encoding: Array
    metric: Array
    """Covariance of the re-encoded columns, noised, shape (p, p), 0 for the intercept."""
    columns: Columns
    rates: Array
    """Of all classes, noised, shape (K,)."""
    events: Array
    """Noised number of records of each class, shape (K,)."""
    weight_bound: float
    complete: tuple[float, float]
    """Records with all values, as counted, and the deviation of the noise on it."""


def check_classes(one: FoundClasses) -> Checks:
    """Return what is wrong, of the job and by class and coefficient, with what was learned."""
    found, features = one.found, one.theta.shape[1]
    moved, backs = one.columns.recentring, np.split(one.back, len(one.theta))
    each = [at_origin(back, one.ranges, moved) for back in backs]
    guessed, unlearned = parts_of_variance(np.vstack(each), found.covariance, found.guess, found.unlearned)
    # A slope is judged where the columns that its own is multiplied with have their centres.
    judged = [np.vstack((shown[:1], at_centres(back, moved)[1:])) for shown, back in zip(each, backs, strict=True)]
    ranges = recentred(one.ranges, moved)
    columns = one.columns.centre, one.columns.scale, one.columns.sparse, one.columns.heaped
    marks: dict[CoefficientCheck, NDArray[np.bool_]] = {
        "separated": _apart(replace(one, theta=at_centres(one.theta.T, moved).T)).ravel(),
        "scale outside the plan": np.concatenate(
            [one.columns.sparse | rounded_off(back, found.covariance, one.ranges, moved) for back in backs]
        ),
        "too few events": np.repeat(_few(one), features),
        "too uncertain": np.concatenate(
            [too_uncertain(back @ found.covariance @ back.T, ranges, columns) for back in judged]
        ),
    }
    passed: dict[CoefficientCheck, NDArray[np.bool_]] = {
        "not identified": not_identified(guessed, unlearned, found.least_noise),
    }
    passed |= {
        word: np.concatenate(
            [
                carried(own, back, found.covariance, one.ranges, moved)
                for own, back in zip(np.split(mark, len(backs)), backs, strict=True)
            ]
        )
        for word, mark in marks.items()
    }
    errors = np.sqrt(np.maximum([np.einsum("ij,jk,ik->i", back, found.covariance, back) for back in judged], 0.0))
    parts = parts_of(one.columns.sizes, one.columns.centre, one.encoding, one.weight_bound)
    lost = lost_weight(parts, at_centres(one.theta.T, moved).T, errors, one.encoding, one.ranges)
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


def _of_the_job(one: FoundClasses) -> tuple[JobCheck, ...]:
    """Return what is wrong with all coefficients."""
    said: list[JobCheck] = []
    if one.found.excess > EXCESS:
        said.append("not converged")
    if one.found.hessian_noise > 1:
        said.append("too many coefficients")
    slopes = one.basis @ one.found.theta.reshape(one.theta.shape)[:, 1:]
    if max(float(np.linalg.norm(slope - slopes, axis=1).max()) for slope in slopes) > LONGEST:
        said.append("separated")
    return tuple(said)


def _few(one: FoundClasses) -> NDArray[np.bool_]:
    """Say which classes, the baseline left out, have fewer than ten records a coefficient; or it has."""
    few: NDArray[np.bool_] = one.events < EVENTS_PER_PARAMETER * one.theta.shape[1]
    found: NDArray[np.bool_] = few[1:] | few[0]
    return found


def _apart(one: FoundClasses) -> NDArray[np.bool_]:
    """Say which coefficients are so large, or whose records so lack a class, that classes may be separated there."""
    lower, upper = np.array(one.ranges.lower), np.array(one.ranges.upper)
    two = np.array([kind == "two" for kind in one.ranges.kinds])
    reach = np.abs(one.theta) * np.where(two, upper - lower, 2 * one.columns.scale)
    far: NDArray[np.bool_] = (reach > FARTHEST) & (np.arange(len(two)) > 0)
    for place in np.flatnonzero(two):
        lacks, without = (missing[1:] | missing[0] for missing in _missing(one, int(place), lower, upper))
        far[:, place] |= lacks | without
        far[:, 0] |= without  # the intercept is then the others' predictor less a number without end
    return far


def _missing(one: FoundClasses, place: int, lower: Array, upper: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Say which classes may have no record with an indicator's upper value, and with its lower one, shape (K,) each.

    If so, a coefficient without end fits best. At each precise gradient's point a class's records of one value can be
    counted. Let a'x = 1 for them and 0 for others. Then a'H_kk a adds up w q_k (1 - q_k), and a'g_k adds up w times the
    probability less the class. Where all have the same probability, a'H_kk a/(1 - q_k) - a'g_k is the count. That is
    the chance at their own middle: where another column lies elsewhere for these records, it makes classes rarer there.
    """
    values = np.eye(len(lower))
    values[place, place], values[place, 0] = upper[place] - lower[place], lower[place]
    back, last = np.linalg.inv(one.encoding @ values), one.found.last
    both = back[place], back[0] - back[place]
    middles = [own_middle(along, one.metric) for along in both]
    points = list(zip((last.before, last.theta), last.gradients, last.hessians, strict=True))
    chances = [_chances(one, last.theta, middle) for middle in middles]
    here, there = (np.log(np.maximum(each, TINY)) - np.log(np.maximum(1 - each, LEAST_CHANCE)) for each in chances)
    effects = np.r_[0.0, one.theta[:, place] * (upper - lower)[place]]
    effects -= effects.mean()
    found = []
    for along, middle, chance, rarer in zip(both, middles, chances, (there - here, here - there), strict=True):
        counts = [_class_counts(one, along, middle, *point) for point in points]
        sharp = [deviation**-2 for _, deviation in counts]
        count = sum(noised * weight for (noised, _), weight in zip(counts, sharp, strict=True)) / sum(sharp)
        # By identity: == would compare arrays entry by entry.
        against = np.maximum(rarer, -effects if along is both[0] else effects)
        none = count * np.sqrt(sum(sharp)) < np.where(against > FIVEFOLD, ALIKE_IF_FAR, ALIKE)
        found.append(none & (chance < MOST_CHANCE))
    return found[0], found[1]


def _chances(one: FoundClasses, theta: Array, row: Array) -> Array:
    """Return each class's chance at a re-encoded row, shape (K,)."""
    found: Array = softmax(one.basis @ theta.reshape(one.theta.shape) @ row)
    return found


def _class_counts(
    one: FoundClasses, along: Array, middle: Array, theta: Array, gradient: NoisedAnswer, hessian: NoisedAnswer
) -> tuple[Array, Array]:
    """Return each class's weighted count among one value's records, and the deviations of its noise, shape (K,)."""
    contrasts, features = one.theta.shape
    times = 1 / np.maximum(1 - _chances(one, theta, middle), LEAST_CHANCE)
    bent = np.einsum("i,aibj,j->ab", along, hessian.value.reshape((contrasts, features) * 2), along)
    own = np.einsum("ka,ab,kb->k", one.basis, bent, one.basis)
    pull = one.basis @ (gradient.value.reshape(contrasts, features) @ along)
    length, of_class = float(along @ along), (one.basis**2).sum(1)
    quadratic = hessian.deviation / effective(contrasts, features)
    spread = (times * quadratic * length * of_class) ** 2 + gradient.deviation**2 * length * of_class
    return times * own - pull, np.sqrt(spread)


def _learned(one: FoundClasses) -> Learned:
    """Return what the job learned of columns and classes."""
    return Learned(
        columns=column_looks(one.columns.centre, one.columns.scale, one.columns.clamped),
        encoding=tuple(tuple(row) for row in one.encoding.tolist()),
        weight_bound=one.weight_bound,
        class_rates=tuple(one.rates.tolist()),
        complete=one.complete[0],
        complete_deviation=one.complete[1],
    )
