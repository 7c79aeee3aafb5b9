"""A description for people: figures with their intervals, in the units of the declared columns."""

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, floor
from typing import Any, Final

from core.data.columns import Coded, DateColumn, IntegerColumn, Scalar, bounds_of
from core.inference import description_figures as figures
from core.inference.description import Counts, Look, Products, ReleasedDescription, Sums
from core.inference.description_figures import About, Figure
from core.inference.released import MOCK
from core.inference.results import privacy_block
from core.inference.wording import promise_phrase
from core.queries.tables import Axis

CLAIMS: Final[dict[About, str]] = {
    "population": "Intervals are about the population that the records are independent draws from: they count sampling "
    "and the noise.",
    "records": "Intervals are about these records alone: they count the noise, and no sampling.",
}
SLACK: Final = 1e-6
"""By which an end may miss a whole number and still be it."""
Line = dict[str, Any]


def summary(released: ReleasedDescription, level: float | None = None, about: About = "population") -> Line:
    """Return every figure with its interval at a level, by default the job's own."""
    level = level or released.level
    products = released.answers.products
    return {
        "title": "Description of columns, differentially private",
        "kind": released.kind,
        "optimizer": released.optimizer,
        "n": released.units,
        "steps": released.steps,
        "status": released.status,
        "level": level,
        "about": about,
        "claim": CLAIMS[about],
        "columns": [_column(released, place, level, about) for place in range(len(released.columns))],
        "tables": [_table(released, one, level, about) for one in released.answers.of("tables")],
        "correlations": [] if products is None else list(_correlations(released, products, level, about)),
        "shares": released.shares,
        "coefficients": [],
        "flags": {},
        "notes": list(_notes(released)),
        "privacy": privacy_block(released.privacy),
        "methods": methods_paragraph(released),
    }


def _column(released: ReleasedDescription, place: int, level: float, about: About) -> Line:
    """Return all that was asked of one column."""
    column, answers, size = released.columns[place], released.answers, released.units
    look = next((one for one in answers.looks if one.column == place), None)
    sums = next((one for one in answers.sums if one.cut.column == place), None)

    def own(statistic: str) -> Counts | None:
        found = answers.of(statistic)
        return next((one for one in found if one.partition.axes[0].column == place), None)

    missing, frequencies, histogram, quantiles = map(own, ("missing", "frequencies", "histograms", "quantiles"))
    return {
        "name": column.name,
        "type": column.type,
        "unit": f"days since {column.lower.isoformat()}" if isinstance(column, DateColumn) else None,
        "look": None if look is None else _look(column, look),
        "missing": None if missing is None else next(_cells(missing, size, level, about))[1],
        "frequencies": None if frequencies is None else _frequencies(column, frequencies, size, level, about),
        "histogram": None if histogram is None else _histogram(column, histogram, size, level, about),
        "quantiles": None
        if quantiles is None
        else [
            {
                "fraction": fraction,
                **_shown(_whole(column, figures.quantile(quantiles, fraction, size, level, about)), column),
            }
            for fraction in released.model.quantiles
        ],
        "mean": None if sums is None else _shown(figures.mean(sums, size, level, about, cut=False), column),
        "mean_within": None if sums is None or sums.cut.rest is None else _within(column, sums, size, level, about),
    }


def _look(column: Scalar, look: Look) -> Line:
    """Return where a number lies; a declared lower bound of 0 is where many records may well lie."""
    assert not isinstance(column, Coded), "numbers are looked at"
    lower, upper = bounds_of(column)
    ends = [end for end, seen in zip(("lower", "upper"), look.clamped, strict=True) if seen]
    return {
        "centre": lower + look.centre * (upper - lower),
        "scale": look.scale * (upper - lower),
        "sparse": look.sparse,
        "clamped": [end for end in ends if not (end == "lower" and lower == 0)],
    }


def _shown(figure: Figure, column: Scalar) -> Line:
    """Return a figure that is a part of the declared range, in the column's own units."""
    assert not isinstance(column, Coded), "categories have no size"
    lower, upper = bounds_of(column)
    width = upper - lower
    return {
        "estimate": None if figure.estimate is None else lower + width * figure.estimate,
        "std_error": None if figure.std_error is None else width * figure.std_error,
        "interval": None if figure.interval is None else [lower + width * end for end in figure.interval],
        "note": figure.note,
    }


def _whole(column: Scalar, figure: Figure) -> Figure:
    """Return a quantile of whole numbers as one: an interval's ends move inwards to the next whole number."""
    if not isinstance(column, IntegerColumn | DateColumn) or figure.interval is None or figure.estimate is None:
        return figure
    lower, upper = bounds_of(column)
    width = upper - lower
    first, last = (end * width for end in figure.interval)
    ends = [float(ceil(first - SLACK)), float(floor(last + SLACK))]
    # An interval between two whole numbers holds none: the nearest one stands for it.
    if ends[0] > ends[1]:
        ends = [float(round(figure.estimate * width))] * 2
    middle = min(max(float(round(figure.estimate * width)), ends[0]), ends[1])
    return Figure(middle / width, figure.std_error, (ends[0] / width, ends[1] / width), figure.note)


def _within(column: Scalar, sums: Sums, size: int, level: float, about: About) -> Line:
    """Return the mean of the values as they were cut, and where that was."""
    assert not isinstance(column, Coded), "means are of numbers"
    lower, upper = bounds_of(column)
    ends = [lower + (upper - lower) * (sums.cut.centre + sign * sums.cut.reach) for sign in (-1, 1)]
    return {
        "lower": max(ends[0], lower),
        "upper": min(ends[1], upper),
        **_shown(figures.mean(sums, size, level, about, cut=True), column),
    }


def _cells(found: Counts, size: int, level: float, about: About) -> Iterator[tuple[int, Line]]:
    """Yield the place of each cell, with the share and the number of records in it and both intervals."""
    numbers = list(figures.counted(found, size, level))
    # Not strict: records without a value are counted last, and have no share.
    for place, (share, number) in enumerate(zip(figures.shares(found, size, level, about), numbers, strict=False)):
        assert number.interval is not None, "counts have intervals"
        yield (
            place,
            {
                "share": share.estimate,
                "std_error": share.std_error,
                "interval": None if share.interval is None else list(share.interval),
                "records": number.estimate,
                "records_interval": list(number.interval),
                "note": share.note,
            },
        )


def _lost(found: Counts, size: int, level: float) -> Line:
    """Return the number of records without a value in a partition's columns."""
    *_, last = figures.counted(found, size, level)
    assert last.interval is not None, "counts have intervals"
    return {"records": last.estimate, "records_interval": list(last.interval)}


def _frequencies(column: Scalar, found: Counts, size: int, level: float, about: About) -> Line:
    """Return the share of each value of a category."""
    assert isinstance(column, Coded), "frequencies are of categories"
    cells = [{"value": column.values[at], **line} for at, line in _cells(found, size, level, about)]
    return {"cells": cells, "missing": _lost(found, size, level)}


def _histogram(column: Scalar, found: Counts, size: int, level: float, about: About) -> Line:
    """Return the share of each interval of a number."""
    ends = _ends(column, found.partition.axes[0])
    cells = [{"lower": ends[at], "upper": ends[at + 1], **line} for at, line in _cells(found, size, level, about)]
    return {"cells": cells, "missing": _lost(found, size, level)}


def _ends(column: Scalar, axis: Axis) -> list[float]:
    """Return where a number's intervals begin and end, the declared bounds included."""
    assert not isinstance(column, Coded), "intervals are of numbers"
    assert axis.edges is not None, "intervals have edges"
    lower, upper = bounds_of(column)
    return [lower, *(lower + (upper - lower) * edge for edge in axis.edges), upper]


def _labels(column: Scalar, axis: Axis) -> list[str]:
    """Return what a table's lines or columns are called: values, or intervals without their upper end."""
    if isinstance(column, Coded):
        return list(column.values)
    ends = _ends(column, axis)
    last = len(ends) - 2
    return [f"[{one:.6g}, {other:.6g}{']' if at == last else ')'}" for at, (one, other) in enumerate(pairwise(ends))]


def _table(released: ReleasedDescription, found: Counts, level: float, about: About) -> Line:
    """Return a cross-tabulation, a line of cells for each value of the first column."""
    axes = found.partition.axes
    columns = [released.columns[axis.column] for axis in axes]
    rows, across = (_labels(column, axis) for column, axis in zip(columns, axes, strict=True))
    cells = [line for _, line in _cells(found, released.units, level, about)]
    return {
        "columns": [column.name for column in columns],
        "rows": rows,
        "across": across,
        "cells": [cells[at * len(across) : (at + 1) * len(across)] for at in range(len(rows))],
        "missing": _lost(found, released.units, level),
    }


def _correlations(released: ReleasedDescription, found: Products, level: float, about: About) -> Iterator[Line]:
    """Yield the correlation of each pair of numbers, of values cut where the look put the ends."""
    names = [released.columns[cut.column].name for cut in found.columns]
    correlations = iter(figures.correlations(found, released.units, level, about))
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            figure = next(correlations)
            yield {
                "columns": [one, other],
                "estimate": figure.estimate,
                "std_error": figure.std_error,
                "interval": None if figure.interval is None else list(figure.interval),
                "note": figure.note,
            }


def _notes(released: ReleasedDescription) -> Iterator[str]:
    """Yield what a reader must know."""
    if released.mock:
        yield MOCK
    answers = released.answers
    if any(one.cut.rest is not None for one in answers.sums):
        yield (
            "Where a column fills a small part of its declared bounds, its mean has two lines. The mean counts every "
            "value within the bounds, and its interval is wide because a few records far out would move it. The mean "
            "within the ends that are given is of values drawn in to them. Narrower bounds make both one."
        )
    if answers.products is not None:
        yield (
            "Correlations are of records with a value in all numbers, and of values drawn in to three learned scales "
            "on either side of the learned centre."
        )
    sparse = [released.columns[look.column].name for look in answers.looks if look.sparse]
    if sparse:
        yield f"Nothing was seen of how these columns vary: {', '.join(sparse)}. Their cuts are the declared bounds."


def methods_paragraph(released: ReleasedDescription) -> str:
    """Return a paragraph for the methods section of a paper; every figure in it is public."""
    report = released.privacy
    divided = ", ".join(f"{name} {share:.3g}" for name, share in released.shares.items())
    implied = "; ".join(f"{promise_phrase(one)} under {other.value}" for other, one in report.implies.items())
    return (
        f"We described {len(released.columns)} columns of {released.units:,} records declared (excluded ones are not "
        f"counted) by counts and by sums of values cut at public ends, with Gaussian noise. The budget was divided "
        f"before any record was read, in parts of mu squared: {divided}. Intervals count the noise, whose law is "
        f"public, and the sampling of the records. The release is differentially private "
        f"with {promise_phrase(report.promise)} for neighbouring data sets under "
        f"{report.adjacency.value}{', which implies ' + implied if implied else ''}."
    )
