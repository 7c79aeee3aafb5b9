"""Descriptions of columns: the request, and what comes back, typed; as data frames where pandas is there.

>>> from farthing.descriptions import describing
>>> describing(columns=["age"], statistics=["means"])["kind"]
'description'
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from farthing.views import View


def describing(
    *,
    columns: Sequence[str] | None = None,
    statistics: Sequence[str] | None = None,
    tables: Sequence[Sequence[str]] = (),
    quantiles: Sequence[float] | None = None,
    bins: int | None = None,
    edges: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Return a job's model: the figures to describe. Its optimizer is `{"kind": "describe"}`.

    Args:
        columns: to describe; None: all but arrays.
        statistics: of frequencies, missing, quantiles, histograms, means, correlations; None: frequencies, quantiles
            and means.
        tables: pairs of columns to cross-tabulate.
        quantiles: rising; None: the quartiles.
        bins: of histograms without edges; None: 20.
        edges: of numbers, in their own units, for histograms and tables; without them they are learned.
    """
    given: dict[str, Any] = {
        "columns": None if columns is None else list(columns),
        "statistics": None if statistics is None else list(statistics),
        "tables": [list(pair) for pair in tables] or None,
        "quantiles": None if quantiles is None else list(quantiles),
        "bins": bins,
        "edges": None if edges is None else {name: list(some) for name, some in edges.items()},
    }
    return {"kind": "description"} | {name: value for name, value in given.items() if value is not None}


class Figure(View):
    """A number with its interval."""

    estimate: float | None
    """In the column's own units; None where the noise hides it."""
    std_error: float | None
    """Of sampling and noise, or of noise alone; None for quantiles."""
    interval: tuple[float, float] | None
    """At the description's level; None where nothing can be claimed."""
    note: str | None
    """Why there is none; None: there is none."""


class Quantile(Figure):
    """A quantile of a number."""

    fraction: float
    """Of the values that lie at or below it."""


class CutMean(Figure):
    """The mean of values that were drawn in to two learned ends."""

    lower: float
    """End for lower values."""
    upper: float
    """End for higher values."""


class Lost(View):
    """Records without a value in the columns of a table."""

    records: float
    """Their number, as the noise leaves it."""
    records_interval: tuple[float, float]
    """Of their number, noise alone."""


class Cell(Lost):
    """The number of records in a cell."""

    share: float | None
    """Of the records with a value; None where the noise hides it."""
    std_error: float | None
    """Of the share; None: there is none."""
    interval: tuple[float, float] | None
    """Of the share; None: there is none."""
    note: str | None
    """Why there is none; None: there is none."""


class Value(Cell):
    """The frequency of a value of a category."""

    value: str
    """As declared."""


class Bin(Cell):
    """The number of records in an interval, its lower end included."""

    lower: float
    """Where it begins."""
    upper: float
    """Where it ends."""


class Frequencies(View):
    """All values of a category."""

    cells: tuple[Value, ...]
    """In their declared order."""
    missing: Lost
    """Records without a value."""


class Histogram(View):
    """All intervals of a number."""

    cells: tuple[Bin, ...]
    """Rising."""
    missing: Lost
    """Records without a value."""


class Look(View):
    """Where a number lies; a later job on the same people may take this from the description."""

    centre: float
    """About the median."""
    scale: float
    """About the root mean square distance from it."""
    sparse: bool
    """Nothing was seen of how the column varies."""
    clamped: tuple[str, ...]
    """Ends of the declared range where many records lie."""


class Column(View):
    """One column; None: not asked for."""

    name: str
    """As declared."""
    type: str
    """number, integer, date, category or binary."""
    unit: str | None
    """Of a date's figures; None: the column's own."""
    look: Look | None
    """Of a number; None: not asked for."""
    missing: Cell | None
    """Records without a value; None: not asked for."""
    frequencies: Frequencies | None
    """Of a category; None: not asked for."""
    histogram: Histogram | None
    """Of a number; None: not asked for."""
    quantiles: tuple[Quantile, ...] | None
    """Of a number; None: not asked for."""
    mean: Figure | None
    """Every value within the declared bounds counted as it is; None: not asked for."""
    mean_within: CutMean | None
    """Where a number fills a small part of its bounds: of values drawn in to learned ends; None: not asked for."""


class Table(View):
    """A cross-tabulation: shares of the records with a value in both columns."""

    columns: tuple[str, str]
    """Both names."""
    rows: tuple[str, ...]
    """Values, or intervals, of the first column."""
    across: tuple[str, ...]
    """Of the second."""
    cells: tuple[tuple[Cell, ...], ...]
    """A line for each row."""
    missing: Lost
    """Records that lack a value in either."""


class Correlation(Figure):
    """The correlation of two numbers, of values drawn in to learned ends."""

    columns: tuple[str, str]
    """Both names."""


class Description(View):
    """A description of columns: figures with their intervals at one level."""

    model: str
    """That was released, `mdl_...`; later jobs name it."""
    job: str
    """That paid for it."""
    n: int
    """Records, by the owner's word."""
    level: float
    """Of every interval."""
    about: str
    """The subject of intervals: population or records."""
    claim: str
    """The same in words."""
    columns: tuple[Column, ...]
    """In the job's order."""
    tables: tuple[Table, ...]
    """In the job's order."""
    correlations: tuple[Correlation, ...]
    """Of each pair of numbers."""
    shares: dict[str, float]
    """The parts into which mu squared was divided."""
    notes: tuple[str, ...]
    """Remarks that a reader must know."""

    def column(self, name: str) -> Column:
        """Return one column.

        Raises:
            KeyError: it was not described.
        """
        found = next((one for one in self.columns if one.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield every figure as one line: columns, statistic, of what, estimate, standard error, lower, upper, note."""
        for column in self.columns:
            yield from _sizes(column)
            yield from _shares(column)
        for table in self.tables:
            for row, cells in zip(table.rows, table.cells, strict=True):
                for across, cell in zip(table.across, cells, strict=True):
                    yield _share(table.columns, "table", f"{row}, {across}", cell)
        for pair in self.correlations:
            yield _line(pair.columns, "correlation", "", pair)

    def frame(self) -> Any:  # noqa: ANN401 - pandas is no dependency
        """Return every figure as a line of a pandas DataFrame, see `lines`.

        Raises:
            ImportError: pandas is not installed.
        """
        return import_module("pandas").DataFrame(list(self.lines()))


def _sizes(column: Column) -> Iterator[dict[str, Any]]:
    """Yield a number's means and quantiles."""
    names = (column.name,)
    if column.mean is not None:
        yield _line(names, "mean", "", column.mean)
    if column.mean_within is not None:
        cut = column.mean_within
        yield _line(names, "mean within", f"{cut.lower:.6g} to {cut.upper:.6g}", cut)
    for one in column.quantiles or ():
        yield _line(names, "quantile", f"{one.fraction:g}", one)


def _shares(column: Column) -> Iterator[dict[str, Any]]:
    """Yield a column's counts as shares."""
    names = (column.name,)
    for value in column.frequencies.cells if column.frequencies else ():
        yield _share(names, "frequency", value.value, value)
    for each in column.histogram.cells if column.histogram else ():
        yield _share(names, "histogram", f"{each.lower:.6g} to {each.upper:.6g}", each)
    if column.missing is not None:
        yield _share(names, "missing", "", column.missing)


def _line(names: tuple[str, ...], statistic: str, of: str, figure: Figure) -> dict[str, Any]:
    lower, upper = figure.interval or (None, None)
    return {
        "columns": " and ".join(names),
        "statistic": statistic,
        "of": of,
        "estimate": figure.estimate,
        "std_error": figure.std_error,
        "lower": lower,
        "upper": upper,
        "note": figure.note,
    }


def _share(names: tuple[str, ...], statistic: str, of: str, cell: Cell) -> dict[str, Any]:
    figure = Figure(estimate=cell.share, std_error=cell.std_error, interval=cell.interval, note=cell.note)
    return _line(names, statistic, of, figure)
