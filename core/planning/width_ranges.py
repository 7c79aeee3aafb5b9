"""Between which ends the width of an interval may lie, as far as what was declared and assumed tells; and which flags.

A prediction is of one public reference. Inputs that no job has learned yet are ranges. A number may deviate by at most
half of its declared range, and by any smaller amount. A base rate may be anything. Most ranges therefore have no upper
end until the owner declares deviations, the analyst assumes them, or a job has learned them.

The formula itself errs by LOW to HIGH in sound cells (`benchmarks.trust`). Strong effects, and columns of which few
records lie far out, widen intervals up to OUTER times. Columns that explain each other widen private and non-private
ones alike, by as much as `explained` says. The job flags any further fault, and withholds its interval.
"""

from collections.abc import Sequence
from math import prod, sqrt
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.data.columns import Coded, Column, Ordered, bounds_of, centre_of
from core.losses.bases import AbstractRobust
from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.squares import Squared
from core.methods.registry import AnyPlan
from core.models.assumed import Assumed
from core.models.design import Design
from core.models.features import Feature
from core.models.kinds import LinearModel, PoissonModel, RegressionModel
from core.models.modelling import encoded_loss
from core.models.outlook import (
    EVENTS_PER_COEFFICIENT,
    NORMAL_CURVATURE,
    RATES_DIFFER,
    RESIDUALS_BEYOND,
    Outcome,
    Outlook,
    Signal,
    rarest_curvature,
    residual_scale,
)
from core.models.reference import sampling_of
from core.planning.prediction import PredictedWidth
from core.privacy.facts import Facts
from farthing.schemas.estimates import RangedWidth

Array = NDArray[np.float64]
T = TypeVar("T")
LOW, HIGH = 0.7, 1.35
"""Between which multiples of the formula standard errors lie in sound cells."""
OUTER: Final = 2.0
"""Factor above the formula within which widths lie although columns and effects are unlike the reference."""
EXPLAINED: Final = 0.75
"""R^2 of a column by the others, where nothing else is assumed."""
UNIFORM_PART: Final = 1 / sqrt(3)
"""Deviation of a uniform column over the largest that its bounds allow."""
USEFUL_RATIO: Final = 2.0
FAR_OUT: Final = 6.0
"""Deviations from a column's mean within which its bounds lie, if no few records can carry it."""
LEAST_SCALE: Final = 1e-6
"""Of residuals, in half ranges of the target."""


def ranged(
    widths: tuple[PredictedWidth, ...],
    outlook: Outlook,
    described: tuple[Design, RegressionModel, Assumed],
    facts: Facts,
    optimizer: AnyPlan,
) -> tuple[RangedWidth, ...]:
    """Put the ends beside each width; of a method that does not learn where columns lie no upper end is known.

    Args:
        widths: as predicted.
        outlook: that they were predicted by.
        described: design, filled model, and what is assumed or declared of the columns.
        facts: of the job.
        optimizer: nothing open.
    """
    design, model, assumed = described
    outcome = outcome_of(outlook, design, model, assumed)
    worst, unknown = outcome.worst, unknown_rate(design, model, assumed) is not None
    if unknown:  # with fewer counts a job shows no interval
        fewest = EVENTS_PER_COEFFICIENT * facts.dimension / facts.units
        worst = _dispersed(outcome.usual._replace(curvature=min(fewest, outcome.usual.curvature)), assumed)
    least = _least(outlook, design, assumed)
    narrow = outcome.best.size * sqrt(outcome.usual.curvature / outcome.best.curvature)
    wide: list[bool] = [False] * len(widths)
    low, high = 1.0, 0.0
    best = facts
    if facts.sampling is not None and not facts.sampling.known:  # at best all records have the largest weight
        best, narrow = facts.model_copy(update={"sampling": None}), narrow / sqrt(facts.sampling.effect)
    at_best = optimizer.widening_by(outcome.best, best)
    if at_best is not None:
        low, wide = at_best, _known(design, assumed)
        at_worst = None if worst is None else optimizer.widening_by(worst, facts)
        if worst is not None and at_worst is not None:
            others = 1 - (EXPLAINED if assumed.explained is None else assumed.explained)
            times = at_worst * sqrt(outcome.usual.curvature / worst.curvature)
            high = OUTER * times * worst.size / sqrt(others)
    hidden = dict.fromkeys(("width", "nonprivate_width", "ratio")) if unknown else {}
    return tuple(
        RangedWidth(
            **{**one.model_dump(), **hidden},
            lowest=LOW * low * narrow * one.nonprivate_width * part,
            # `high` stays 0 if no upper end is known.
            highest=high * one.nonprivate_width if high and known else None,
        )
        for one, part, known in zip(widths, _shared(least, len(widths)), _shared(wide, len(widths)), strict=True)
    )


def unknown_rate(design: Design, model: RegressionModel, assumed: Assumed) -> str | None:
    """Return the target of counts whose mean is neither declared nor assumed; None: it is, or it is no count."""
    column = design.target_column
    said = assumed.base_rate is not None or getattr(column, "centre", None) is not None
    return column.name if isinstance(model, PoissonModel) and not said else None


def informative(outcome: Outcome, design: Design, assumed: Assumed, facts: Facts, optimizer: AnyPlan) -> bool:
    """Say whether private intervals are at most twice as wide as non-private ones wherever in the range they lie.

    A column whose bounds lie far out, or whose deviation nobody has said, may hang on few records. The method counts
    those for less than non-private intervals do, so its ratio has no limit then.
    """
    unknown = facts.sampling is not None and not facts.sampling.known
    if unknown or outcome.worst is None or optimizer.foreseen_flags(outcome, facts):
        return False
    if not all(_light(column, assumed) for column in (*design.columns, *design.aside)):
        return False
    # Of least squares, bounds are the farther out the smaller residuals are.
    times = [optimizer.widening_by(one, facts) for one in (outcome.best, outcome.worst)]
    return all(one is not None and HIGH * one <= USEFUL_RATIO for one in times)


def _light(column: Column, assumed: Assumed) -> bool:
    """Say whether no record can lie far out in a column, as far as is declared or assumed."""
    if isinstance(column, Coded):
        return True
    deviation = assumed.deviations.get(column.name)
    middle, (lower, upper) = assumed.means.get(column.name, centre_of(column)), bounds_of(column)
    return deviation is not None and max(upper - middle, middle - lower) <= FAR_OUT * deviation


def outcome_of(outlook: Outlook, design: Design, model: RegressionModel, assumed: Assumed) -> Outcome:
    """Return what the outcome is taken for, and what else it may be."""
    sampling, loss = sampling_of(design, assumed), encoded_loss(model, design)
    mean = float(outlook.reference.curvature[0, 0]) / (1.0 if sampling is None else sampling.mean)
    match loss:
        case Logistic():
            rate = assumed.base_rate or 0.5
            best = Signal(mean, 1.0, events=min(rate, 1 - rate))
            usual = best._replace(curvature=RATES_DIFFER * mean)
            return Outcome(usual, best, usual if assumed.base_rate is not None else None)
        case Multinomial():
            # Ten records of the rarest class for each of its own coefficients, which are one part in K - 1 of all.
            classes = loss.known_classes
            best = Signal(1 / classes, sqrt(2), events=(classes - 1) / classes)
            usual = best._replace(curvature=RATES_DIFFER * best.curvature)
            rates = assumed.frequencies.get(design.target_column.name)
            if rates is not None:
                rarest = min(rates)
                usual = usual._replace(events=rarest * (classes - 1), rarest=rarest_curvature(rarest, classes))
                best = best._replace(events=usual.events, rarest=usual.rarest)
            return Outcome(usual, best, None)
        case Poisson():
            cap = loss.known_cap
            usual, most = Signal(mean, cap, events=mean), Signal(cap, cap, events=cap)
            usual = usual._replace(dispersion=assumed.dispersion or 1.0)
            centre = getattr(design.target_column, "centre", None) is not None
            worst = _dispersed(usual, assumed) if assumed.base_rate or centre else None
            return Outcome(usual, most if worst is None else usual, worst)
        case AbstractRobust():
            squares = isinstance(model, LinearModel) and isinstance(model.loss, Squared)
            return _of_residuals(None if squares else loss.c, residual_scale(design, assumed), assumed)
    usual = Signal(mean, 1.0)
    return Outcome(usual, usual, None)


def _dispersed(counts: Signal, assumed: Assumed) -> Signal:
    """Return counts that vary as assumed, or as much as counts of their mean can below the cap."""
    if assumed.dispersion is not None:
        return counts
    most = max(1.0, counts.bound - counts.curvature)
    return counts._replace(dispersion=most, size=sqrt(most))


def _of_residuals(cut: float | None, scale: float, assumed: Assumed) -> Outcome:
    """Return the same of a number: its residuals deviate by nearly nothing up to half of its declared range.

    Args:
        cut: of a robust loss, in residual scales; None: of least squares residuals count whole, up to the bounds.
        scale: of residuals, in encoded units.
        assumed: checked assumptions.
    """

    def of(own: float) -> Signal:
        size = own / scale
        return Signal(NORMAL_CURVATURE, cut, size) if cut else Signal(1.0, 1 / own + RESIDUALS_BEYOND, size)

    if assumed.residual_scale is not None:
        return Outcome(of(scale), of(scale), of(scale))
    return Outcome(of(scale), of(0.0 if cut else LEAST_SCALE), of(1.0))


def _least(outlook: Outlook, design: Design, assumed: Assumed) -> list[float]:
    """Return for each coefficient the least part of the predicted width that unknown columns allow."""
    columns = {column.name: column for column in (*design.columns, *design.aside)}

    def least(name: str) -> float:
        column = columns[name]
        if isinstance(column, Coded):
            return 1.0 if name in assumed.frequencies else sqrt(2 / len(column.values))
        return 1.0 if name in assumed.deviations else UNIFORM_PART

    found = []
    for place, feature in enumerate(design.features):
        if feature.column is None:
            found.append(1.0 if all(_known(design, assumed)) else _centred(outlook, place))
            continue
        found.append(prod(least(name) for name in dict.fromkeys(_columns_of(feature))))
    return found


def _columns_of(feature: Feature) -> tuple[str, ...]:
    """Return the names of the columns that a feature is made of."""
    if feature.factors:
        return tuple(factor.column for factor in feature.factors)
    return () if feature.column is None else (feature.column,)


def _centred(outlook: Outlook, place: int) -> float:
    """Return the deviation that the intercept has where all columns are centred, over the predicted one."""
    reference, row = outlook.reference, outlook.to_declared[place]
    inverse = np.linalg.inv(reference.curvature)
    whole = float(row @ inverse @ reference.score @ inverse @ row)
    alone = row[place] ** 2 * float(reference.score[place, place]) / float(reference.curvature[place, place]) ** 2
    return min(1.0, sqrt(alone / whole))


def _known(design: Design, assumed: Assumed) -> list[bool]:
    """Say of each coefficient whether all that its non-private width hangs on is declared or assumed."""
    columns = {column.name: column for column in (*design.columns, *design.aside)}

    def spread(name: str) -> bool:
        return name in (assumed.frequencies if isinstance(columns[name], Coded) else assumed.deviations)

    def placed(name: str) -> bool:
        column = columns[name]
        return isinstance(column, Coded) or name in assumed.means or column.centre is not None

    everything = all(spread(name) and placed(name) for name in columns)
    sampling = sampling_of(design, assumed)
    if sampling is not None and not sampling.known:
        return [False] * len(design.features)
    return [
        everything
        if feature.column is None
        else all(spread(name) and (placed(name) or not feature.factors) for name in _columns_of(feature))
        for feature in design.features
    ]


def _shared(one: list[T], count: int) -> list[T]:
    """Return as many as there are widths: each class of a multinomial model has the same."""
    return one * (count // len(one))


def with_declared(columns: Sequence[Column], design: Design, assumed: Assumed | None) -> Assumed:
    """Return what is assumed, and of other numbers of the model the deviation that their owner declares."""
    used = {column.name for column in design.used}
    own = {column.name: column.deviation for column in columns if isinstance(column, Ordered)}
    known = {name: number for name, number in own.items() if number is not None and name in used}
    assumed = assumed or Assumed()
    return assumed.model_copy(update={"deviations": known | assumed.deviations})
