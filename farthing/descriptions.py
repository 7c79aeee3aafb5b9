"""Descriptions of columns: the request, and what comes back, typed; as data frames where pandas is there.

>>> from farthing.descriptions import describing
>>> describing(columns=["age"], statistics=["means"])["kind"]
'description'
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from farthing.schemas.descriptions import CellView, ColumnView, DescriptionView, FigureView


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


class Description(DescriptionView):
    """A description of columns: figures with their intervals at one level."""

    def column(self, name: str) -> ColumnView:
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


def _sizes(column: ColumnView) -> Iterator[dict[str, Any]]:
    """Yield a number's means and quantiles."""
    names = (column.name,)
    if column.mean is not None:
        yield _line(names, "mean", "", column.mean)
    if column.mean_within is not None:
        cut = column.mean_within
        yield _line(names, "mean within", f"{cut.lower:.6g} to {cut.upper:.6g}", cut)
    for one in column.quantiles or ():
        yield _line(names, "quantile", f"{one.fraction:g}", one)


def _shares(column: ColumnView) -> Iterator[dict[str, Any]]:
    """Yield a column's counts as shares."""
    names = (column.name,)
    for value in column.frequencies.cells if column.frequencies else ():
        yield _share(names, "frequency", value.value, value)
    for each in column.histogram.cells if column.histogram else ():
        yield _share(names, "histogram", f"{each.lower:.6g} to {each.upper:.6g}", each)
    if column.missing is not None:
        yield _share(names, "missing", "", column.missing)


def _line(names: Sequence[str], statistic: str, of: str, figure: FigureView) -> dict[str, Any]:
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


def _share(names: Sequence[str], statistic: str, of: str, cell: CellView) -> dict[str, Any]:
    figure = FigureView(estimate=cell.share, std_error=cell.std_error, interval=cell.interval, note=cell.note)
    return _line(names, statistic, of, figure)
