"""The private look at columns and target that whitened Newton begins with: quantiles by cells, sizes, frequencies.

Each question takes its cells from the answers before it; counts are noised shares of records times their public number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.inference.looks import Columns, SeenSizes, indicator_scales, unknown
from core.methods.m_estimation.whitened_newton.column_scales import (
    CAUTION,
    CLAMPED_PART,
    KEPT,
    farthest_seen,
    integer_scale,
    largest_seen,
    least_square,
    number_centre,
    number_scale,
    piled_up,
)
from core.methods.m_estimation.whitened_newton.product_look import look_at_products
from core.methods.m_estimation.whitened_newton.shares import COUNT_BINS_PER_OCTAVE, LEVELS, SIZE_BINS
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.methods.m_estimation.whitened_newton.whitening import UNTRIMMED, Trimmed
from core.oracle import Answer, Oracle
from core.privacy.facts import Ranges
from core.queries.looks import CellCounts, Cells, IntegerCounts, MagnitudeCounts, ProductMagnitudeCounts, ValueCounts

Array = NDArray[np.float64]
COUNT_CAUTION: Final = 3.0
CAP_MARGIN: Final = 1.15

TRIM_CAUTION, TRIM_MARGIN = 4.5, 1.15

Ask = Callable[[int, tuple[Cells, ...]], Answer]


class Looking(Protocol):
    """Settings of a method that looks at columns."""

    def cell_sigma(self) -> float:
        """Return the noise multiplier of each level's cells of the columns."""

    def size_question(self) -> MagnitudeCounts | None:
        """Return the question for the sizes of numeric columns; None where there are none."""

    def integer_question(self) -> IntegerCounts | None:
        """Return the question for the values of integers of few values; None where there are none."""

    def value_question(self) -> ValueCounts | None:
        """Return the question for frequencies of two-valued columns; None where there are none."""

    def product_question(self) -> ProductMagnitudeCounts | None:
        """Return the question for the sizes of products of centred columns; None where there are none."""


@dataclass(frozen=True)
class Quantiles:
    """Noised quantiles of columns as parts of their ranges, shape (columns, fractions)."""

    places: Array
    ends: Array
    """Noised counts in both end cells, shape (columns, 2)."""
    deviation: float
    """Of the noise on a count."""
    totals: tuple[float, ...]
    """Noised counts of the records with a value, sums of two counts, by column."""


class Complete(NamedTuple):
    """Noised count of records that have all values of the model."""

    records: float
    deviation: float


def quantiles(ask: Ask, columns: int, fractions: Sequence[float], units: int) -> Quantiles:
    """Descend through dyadic cells, a level an answer, towards the same quantiles of several columns.

    A level names each left child that ranks are compared with, once. The first and the last level name both children,
    and the last one also the cells at both ends. A level costs the same for any number of disjoint cells.
    """
    totals: tuple[float, ...] = ()
    cells = np.zeros((columns, len(fractions)), dtype=np.int64)
    ranks = np.zeros((columns, len(fractions)))
    counts: list[dict[int, float]] = []
    answer = None
    for level in range(1, LEVELS + 1):
        both = level in {1, LEVELS}
        ends = {0, 2**LEVELS - 1} if level == LEVELS else set()
        named = tuple(
            tuple(sorted({int(2 * cell + right) for cell in row for right in range(1 + both)} | ends)) for row in cells
        )
        answer = ask(level, named)
        counts = _by_cell(answer, named, units)
        if level == 1:
            totals = tuple(sum(found.values()) for found in counts)
            present = [_total(total, answer.scale * units, units) for total in totals]
            ranks = np.array([[fraction * total for fraction in fractions] for total in present])
        left = np.array([[found[int(2 * cell)] for cell in row] for row, found in zip(cells, counts, strict=True)])
        right_of = ranks >= left
        ranks = np.where(right_of, ranks - left, ranks)
        cells = 2 * cells + right_of
    assert answer is not None, "there are levels"
    inside = [
        # A noised count may be zero or negative, and it divides.
        [rank / max(found[int(cell)], 1.0) for cell, rank in zip(row, some, strict=True)]
        for row, some, found in zip(cells, ranks, counts, strict=True)
    ]
    places = (cells + np.clip(inside, 0.0, 1.0)) / 2**LEVELS
    ends_seen = np.array([[found[0], found[2**LEVELS - 1]] for found in counts])
    return Quantiles(places, ends_seen, answer.scale * units, totals)


def _total(received: float, deviation: float, units: int) -> float:
    """Return the number of records that have a value: all of them, unless the noised count is clearly lower."""
    # sqrt(2): the total is a sum of two noised counts.
    return received if received < units - CAUTION * sqrt(2) * deviation else float(units)


def _by_cell(answer: Answer, named: tuple[Cells, ...], units: int) -> list[dict[int, float]]:
    """Return each column's noised counts by cell."""
    received = iter((answer.value * units).tolist())
    return [{cell: next(received) for cell in cells} for cells in named]


def look_at_columns(settings: Looking, oracle: Oracle) -> Columns:
    """Ask where every column lies and how far it varies.

    Numbers are asked for cells and sizes, integers of few values and two-valued columns for a count of each value, and
    then products of centred numbers for sizes.
    """
    ranges, units = _ranges(oracle), oracle.facts.units
    p = len(ranges.kinds)
    found = unknown(p)
    numbers, two = list(ranges.places("number")), list(ranges.places("two"))
    zero = _zero(oracle)
    if numbers:
        sigma = settings.cell_sigma()

        def ask(level: int, named: tuple[Cells, ...]) -> Answer:
            return oracle.ask(CellCounts(sigma=sigma, level=level, cells=named), zero)

        _look_at_numbers(settings, oracle, quantiles(ask, len(numbers), (0.5,), units), found)
    integers = settings.integer_question()
    if integers is not None:
        _look_at_integers(oracle.ask(integers, zero), oracle, found)
    question = settings.value_question()
    if question is not None:
        answer = oracle.ask(question, zero)
        shares, least = answer.value.numpy(), min(answer.scale, 0.5)
        # A share of 0 or 1 would leave an indicator without a scale; least is at most 1/2.
        shares = np.clip(shares, least, 1 - least)
        width = np.array([ranges.upper[at] - ranges.lower[at] for at in two])
        found.centre[two] = np.array([ranges.lower[at] for at in two]) + width * shares
        found.scale[two] = width * indicator_scales(shares, p)
    products = settings.product_question()
    return found if products is None else look_at_products(products, oracle, found)


def _look_at_numbers(settings: Looking, oracle: Oracle, medians: Quantiles, found: Columns) -> None:
    """Fill centres, scales and ends of numeric columns."""
    ranges, units = _ranges(oracle), oracle.facts.units
    numbers = list(ranges.places("number"))
    lower = np.array([ranges.lower[at] for at in numbers])
    width = np.array([ranges.upper[at] for at in numbers]) - lower
    steps = [ranges.step(at) for at in numbers]
    present = [_total(total, medians.deviation, units) for total in medians.totals]
    middles = [
        number_centre(middle, ends, medians.deviation, records)
        for middle, ends, records in zip(medians.places[:, 0], medians.ends, present, strict=True)
    ]
    found.centre[numbers] = lower + [
        step * round(wide * middle / step) if step else wide * middle
        for wide, middle, step in zip(width, middles, steps, strict=True)
    ]
    found.clamped[numbers] = medians.ends > max(CAUTION * medians.deviation, CLAMPED_PART * units)
    question = settings.size_question()
    assert question is not None, "there are numeric columns"
    centres = _zero(oracle)
    # A multinomial model has more parameters than columns; the rest stays zero.
    centres[: len(found.centre)] = torch.from_numpy(found.centre)
    answer = oracle.ask(question, centres)
    counts, deviation = (answer.value * units).numpy().reshape(len(numbers), SIZE_BINS), answer.scale * units
    for at, own, wide, step, records in zip(numbers, counts, width, steps, present, strict=True):
        seen = number_scale(own, deviation, units, records, medians.deviation)
        found.sparse[at], found.heaped[at] = seen.sparse, seen.heaped
        found.sizes[at] = seen_sizes(own, deviation, wide)
        found.scale[at] = max(wide * seen.scale, step * sqrt(least_square(len(ranges.kinds))))


def seen_sizes(counts: Array, deviation: float, width: float) -> SeenSizes:
    """Return a number's sizes from the largest that was seen; none where nothing was.

    Args:
        counts: noised, by intervals of sizes that halve from one to the next, shape (bins,).
        deviation: of their noise.
        width: of the column's range.
    """
    first = largest_seen(counts, deviation, CAUTION)
    own = counts[len(counts) if first is None else first :]
    middles = 2.0 ** -(np.arange(len(counts) - len(own), len(counts), dtype=np.float64) + 0.5)
    return SeenSizes(np.asarray(width * middles, dtype=np.float64), np.where(own > KEPT * deviation, own, 0.0))


def _look_at_integers(answer: Answer, oracle: Oracle, found: Columns) -> None:
    """Fill centres and scales of integers of few values."""
    ranges, units = _ranges(oracle), oracle.facts.units
    counts, deviation = (answer.value * units).numpy(), answer.scale * units
    each = np.split(counts, np.cumsum(ranges.few)[:-1])
    for at, own in zip(ranges.places("few"), each, strict=True):
        centre, scale = integer_scale(own, deviation, units, len(ranges.kinds))
        found.centre[at], found.scale[at] = ranges.lower[at] + ranges.step(at) * centre, ranges.step(at) * scale
        found.clamped[at] = piled_up(own, deviation, units)
        away = np.abs(np.arange(len(own)) - centre)
        kept = (own > KEPT * deviation) & (away <= farthest_seen(own, away, deviation))
        found.sizes[at] = SeenSizes(ranges.step(at) * away, np.where(kept, own, 0.0))


def _ranges(oracle: Oracle) -> Ranges:
    ranges = oracle.facts.ranges
    assert ranges is not None, "the planner says where columns lie"
    return ranges


def base_rate(settings: WhitenedNewtonPlan, oracle: Oracle) -> tuple[float, float, Complete | None]:
    """Return a binary target's frequency, kept off 0 and 1, how many of the rarer outcome, and of both were counted."""
    question = settings.target_question()
    assert question is not None, "a binary target is asked about"
    answer = oracle.ask(question, _zero(oracle))
    units = oracle.facts.units
    *others, second = (answer.value * units).tolist()
    complete = Complete(others[0] + second, sqrt(2) * answer.scale * units) if others else None
    # An attempt that release 0.1.0 began was answered the second outcome's count alone.
    records, first = (units, units - second) if complete is None else (max(complete.records, 1.0), others[0])
    # Off 0 and 1, for steps begin at the rate's logit.
    least, rate = max(3 * answer.scale * units, 2.0) / records, second / records
    rate = min(max(rate, least), 1 - least) if least < 0.5 else 0.5  # noqa: PLR2004 - noise hides it altogether
    return rate, min(first, second), complete


def look_at_counts(settings: WhitenedNewtonPlan, oracle: Oracle) -> tuple[float, float]:
    """Return a largest count, above the largest size that was seen and at most as declared, and the mean square."""
    question = settings.target_question()
    assert question is not None, "a count is asked about"
    answer, units = oracle.ask(question, _zero(oracle)), oracle.facts.units
    counts, deviation = (answer.value * units).numpy(), answer.scale * units
    highest = _ranges(oracle).target[1]
    first = largest_seen(counts, deviation, COUNT_CAUTION)
    if first is None:
        return highest, 0.0
    # An interval that was seen only with its followers may itself be empty.
    if counts[first] < COUNT_CAUTION * deviation:
        first += 1
    edges = (highest + 0.5) * 2.0 ** (-np.arange(len(counts)) / COUNT_BINS_PER_OCTAVE)
    kept = np.where(counts[first:] > KEPT * deviation, counts[first:], 0.0)
    sizes = edges[first:] * 2.0 ** (-0.5 / COUNT_BINS_PER_OCTAVE) - 0.5
    cap = min(highest, float(ceil(CAP_MARGIN * float(edges[first]) + 0.5)))
    return cap, float((kept * sizes**2).sum()) / units


def look_at_weights(settings: WhitenedNewtonPlan, oracle: Oracle) -> Trimmed:
    """Return where sampling weights are cut: above the largest size that was seen, and at most as declared."""
    question = settings.trimming_question()
    if question is None:
        return UNTRIMMED
    answer, units = oracle.ask(question, _zero(oracle)), oracle.facts.units
    counts, deviation = (answer.value * units).numpy(), answer.scale * units
    seen = largest_seen(counts, deviation, TRIM_CAUTION)
    if seen is None:
        return UNTRIMMED
    # An interval that was seen only with its followers may itself be empty.
    alone = counts[seen : seen + 3] > COUNT_CAUTION * deviation
    first = seen + (int(alone.argmax()) if alone.any() else 1)
    cut = TRIM_MARGIN * 2.0 ** (-first / question.per_octave)
    if cut >= 1:
        return UNTRIMMED
    beyond = max(float(counts[:first].sum()), 0.0) + 2 * sqrt(first) * deviation
    return Trimmed(cut, beyond)


def target_centre(settings: WhitenedNewtonPlan, oracle: Oracle) -> tuple[float, Complete]:
    """Return a linear model's target's median, and how many records have one."""
    sigma, (lower, upper) = settings.target_cell_sigma(), _ranges(oracle).target

    def ask(level: int, named: tuple[Cells, ...]) -> Answer:
        return oracle.ask(CellCounts(sigma=sigma, of="target", level=level, cells=named), _zero(oracle))

    found = quantiles(ask, 1, (0.5,), oracle.facts.units)
    (middle,), (total,) = found.places[0], found.totals
    return float(lower + (upper - lower) * middle), Complete(total, sqrt(2) * found.deviation)


def _zero(oracle: Oracle) -> Tensor:
    return torch.zeros(oracle.facts.dimension, dtype=torch.float64)
