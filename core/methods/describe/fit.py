"""DescribePlan columns: a look at the numbers, counts in cells, sums of cut values, cells that close in on quantiles.

Sensitivity: that of each question, one Gaussian answer each, in `core.queries.looks` and `core.queries.tables`. The
number of questions and their shares are fixed beforehand. Edges and cuts follow from earlier answers, so everything
between two questions is post-processing.
Failure: none. Each figure names the part that the noise hides, and depends on noised answers alone.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from core.inference.description import Answers, Counts, Look, Products, Sums
from core.inference.description_figures import contrasts
from core.methods.describe.spec import (
    INFLUENCE_CAP,
    LAST_CELLS,
    TABLE_CELLS,
    DescribePlan,
    layout_axis,
    missing_partitions,
    quantile_rounds,
)
from core.methods.m_estimation.whitened_newton.column_look import look_at_columns
from core.oracle import Oracle, Release, Status
from core.queries.tables import Axis, Cut, Partition, SplitCut, StandardCut, TableCounts, parts_of

Array = NDArray[np.float64]
HISTOGRAM_REACH: Final = 4.0
CUT_REACH: Final = 5.0
CORRELATION_REACH: Final = 3.0
"""Scales on either side of the centre."""
WIDE_CUT: Final = 0.25
"""A cut that reaches over at least half of the declared range is widened to all of it, so that nothing is cut."""
LOCATING: Final = 4.5
"""Deviations, of noise and sampling together, beyond which an edge is taken to lie beside a quantile."""
LEAST_BRACKET: Final = 2.0**-40
SEEN: Final = 5.0
"""Deviations of its noise below which a variance is hidden."""
WHOLE: Final = (0.0, 1.0)


def iterate(plan: DescribePlan, oracle: Oracle) -> Release[Answers]:
    """Ask everything, and close the oracle.

    Args:
        plan: nothing open.
        oracle: the only way to the records, of a `TableProblem`.
    """
    layout, asked = plan.layout, plan.layout.asked()
    looks = _look(plan, oracle) if layout.numbers and plan.share("look") else {}
    counts: list[Counts] = []
    if "frequencies" in asked:
        partitions = [Partition(axes=(layout_axis(layout, at),)) for at in layout.categories]
        counts += _counted(oracle, "frequencies", plan.counts("frequencies", partitions))
    if "missing" in asked:
        counts += _counted(oracle, "missing", plan.counts("missing", missing_partitions(layout)))
    if "histograms" in asked:
        axes = [_axis(plan, looks, at, layout.bins) for at in layout.numbers]
        counts += _counted(oracle, "histograms", plan.counts("histograms", [Partition(axes=(one,)) for one in axes]))
    if "tables" in asked:
        pairs = [tuple(_axis(plan, looks, at) for at in pair) for pair in layout.tables]
        counts += _counted(oracle, "tables", plan.counts("tables", [Partition(axes=pair) for pair in pairs]))
    if "quantiles" in asked:
        counts += _close_in(plan, oracle)
    answers = Answers(
        looks=tuple(looks.values()),
        counts=tuple(counts),
        sums=tuple(_sums(plan, oracle, looks)) if "means" in asked else (),
        products=_products(plan, oracle, looks) if "correlations" in asked else None,
    )
    return oracle.release(answers, Status.FINISHED)


def _look(plan: DescribePlan, oracle: Oracle) -> dict[int, Look]:
    """Ask where each number lies and how far it varies."""
    found = look_at_columns(plan, oracle)
    return {
        place: Look(
            column=place,
            centre=float(found.centre[place]),
            scale=float(found.scale[place]),
            sparse=bool(found.sparse[place]),
            clamped=(bool(found.clamped[place, 0]), bool(found.clamped[place, 1])),
            heaped=bool(found.heaped[place]),
        )
        for place in plan.layout.numbers
    }


def _counted(oracle: Oracle, statistic: str, question: TableCounts) -> Iterator[Counts]:
    """Ask for counts, and yield each partition's."""
    # Counts of columns depend on no parameters; the zeros only fill the argument.
    answer, units = oracle.ask(question, torch.zeros(oracle.facts.dimension, dtype=torch.float64)), oracle.facts.units
    # An answer is a mean over the public number of units; a count is that many times larger.
    received = iter((answer.value * units).tolist())
    for partition in question.partitions:
        counts = tuple(next(received) for _ in range(partition.cells))
        yield Counts.model_validate(
            {"statistic": statistic, "partition": partition, "counts": counts, "deviation": answer.scale * units}
        )


def _axis(plan: DescribePlan, looks: dict[int, Look], place: int, bins: int | None = None) -> Axis:
    """Return the cells of a column: its values, given edges, or edges about where the look found it."""
    layout = plan.layout
    shape = layout.columns[place]
    if shape.values is not None or shape.edges is not None:
        return layout_axis(layout, place)
    look = looks[place]
    if bins is None:
        edges = look.centre + look.scale * np.linspace(-1, 1, TABLE_CELLS - 1)
    else:
        reach = HISTOGRAM_REACH * look.scale
        lower, upper = max(0.0, look.centre - reach), min(1.0, look.centre + reach)
        edges = np.linspace(lower, upper, bins + 1)
    return Axis(column=place, edges=_rising(edges))


def _rising(edges: Array) -> tuple[float, ...]:
    """Return edges within the range, in order, each once; at least one."""
    kept = sorted({float(edge) for edge in edges if 0 < edge < 1})
    # An axis needs an edge: the middle serves where none lies inside.
    return tuple(kept) or (0.5,)


def _close_in(plan: DescribePlan, oracle: Oracle) -> list[Counts]:
    """Cut the brackets of all quantiles into cells, round after round; return the last answer, for all columns."""
    layout, units = plan.layout, oracle.facts.units
    brackets = {place: [WHOLE] * len(layout.quantiles) for place in layout.numbers}
    found: list[Counts] = []
    for cells, part in quantile_rounds():
        axes = [
            Axis(column=place, edges=_rising(np.concatenate([np.linspace(*one, cells + 1) for one in some])))
            for place, some in brackets.items()
        ]
        partitions = [Partition(axes=(axis,)) for axis in axes]
        found = list(_counted(oracle, "quantiles", plan.counts("quantiles", partitions, part)))
        if cells == LAST_CELLS:
            break
        for one in found:
            (axis,) = one.partition.axes
            old = brackets[axis.column]
            brackets[axis.column] = [
                _narrowed(one, fraction, bracket, units)
                for fraction, bracket in zip(layout.quantiles, old, strict=True)
            ]
    return found


def _narrowed(found: Counts, fraction: float, bracket: tuple[float, float], units: int) -> tuple[float, float]:
    """Return the cells of a bracket that a quantile may lie in, as noised counts below and above each edge say."""
    edges, excess, deviation = contrasts(found, fraction)
    # A population's quantile is sought: the count below it also varies as a binomial.
    deviation = np.sqrt(deviation**2 + units * fraction * (1 - fraction))
    below, above = edges[excess < -LOCATING * deviation], edges[excess > LOCATING * deviation]
    lower = max(bracket[0], float(below.max()) if below.size else 0.0)
    upper = min(bracket[1], float(above.min()) if above.size else 1.0)
    # Noise may cross the two ends; the bracket then stays as it was.
    return (lower, upper) if upper - lower >= LEAST_BRACKET else bracket


def _sums(plan: DescribePlan, oracle: Oracle, looks: dict[int, Look]) -> Iterator[Sums]:
    """Ask for the sums that means are made of."""
    question = plan.sums([_split(looks[place]) for place in plan.layout.numbers])
    answer = oracle.ask(question, torch.zeros(oracle.facts.dimension, dtype=torch.float64))
    received = iter(answer.value.tolist())
    for cut in question.columns:
        roots = [sqrt(part) for part in parts_of(cut).values()]
        yield Sums(
            cut=cut,
            sums=tuple(next(received) / root for root in roots),
            deviations=tuple(answer.scale / root for root in roots),
        )


def _split(look: Look) -> SplitCut:
    """Return where a number is cut for its mean, with its rest unless the cut takes in all of the range."""
    reach = CUT_REACH * look.scale
    if look.sparse or reach >= WIDE_CUT:
        return SplitCut(column=look.column, centre=0.5, reach=0.5)
    farthest = max(look.centre, 1 - look.centre)
    return SplitCut(column=look.column, centre=look.centre, reach=reach, rest=(farthest - reach) / reach)


def _products(plan: DescribePlan, oracle: Oracle, looks: dict[int, Look]) -> Products:
    """Ask for products of cut values, and with what they tell for the squared influences on correlations."""
    at = torch.zeros(oracle.facts.dimension, dtype=torch.float64)
    cuts = [_correlated(looks[place]) for place in plan.layout.numbers]
    answer = oracle.ask(plan.products(cuts), at)
    size = len(cuts) + 1
    moments = np.zeros((size, size))
    moments[np.triu_indices(size)] = answer.value.numpy()
    moments = moments + np.triu(moments, 1).T
    # Noise may make the share of complete records zero or negative, and it divides.
    whole = max(float(moments[0, 0]), answer.scale)
    mean = moments[0, 1:] / whole
    covariance = moments[1:, 1:] / whole - np.outer(mean, mean)
    variance = np.diag(covariance)
    hidden = variance < SEEN * answer.scale / whole
    # A hidden variance may be negative: 1 keeps the root and the quotients finite.
    deviation = np.sqrt(np.where(hidden, 1.0, variance))
    first, second = np.triu_indices(len(cuts), 1)
    correlations = np.clip(covariance[first, second] / (deviation[first] * deviation[second]), -1.0, 1.0)
    standard = [
        StandardCut(**cut.model_dump(), mean=float(one), deviation=float(other))
        # Cut values lie between -1 and 1; their noised mean need not.
        for cut, one, other in zip(cuts, np.clip(mean, -1, 1), deviation, strict=True)
    ]
    squares = oracle.ask(plan.influences(standard, correlations.tolist()), at)
    return Products(
        columns=tuple(cuts),
        products=tuple(answer.value.tolist()),
        deviation=answer.scale,
        hidden=tuple(bool(one) for one in hidden),
        correlations=tuple(correlations.tolist()),
        influences=tuple(squares.value.tolist()),
        influence_deviation=squares.scale,
        cap=INFLUENCE_CAP,
    )


def _correlated(look: Look) -> Cut:
    """Return where a number is cut for its correlations."""
    if look.sparse:
        return Cut(column=look.column, centre=0.5, reach=0.5)
    farthest = max(look.centre, 1 - look.centre)
    return Cut(column=look.column, centre=look.centre, reach=min(CORRELATION_REACH * look.scale, farthest))
