"""View of a description: each figure was paid for, and each interval follows from the release."""

from typing import Any, Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid


class FigureView(View):
    """A number with its interval, in the column's own units."""

    estimate: Paid[float | None]
    """The value; null: the noise hides it."""
    std_error: Paid[float | None]
    """Of sampling and noise, or of noise alone; null for quantiles, whose intervals are not made of one."""
    interval: Paid[tuple[float, float] | None]
    """At the level that was asked for; null where nothing can be claimed."""
    note: Paid[str | None]
    """Why there is none; null: nothing is wrong."""


class QuantileView(FigureView):
    """A quantile of a number."""

    fraction: Declared[float]
    """Of the values that lie at or below it."""


class CutMeanView(FigureView):
    """The mean of values that were drawn in to two ends."""

    lower: Paid[float]
    """End to which lower values were drawn in, as the look found it."""
    upper: Paid[float]
    """End to which higher values were drawn in."""


class LostView(View):
    """Number of these records without a value in the columns of a table."""

    records: Paid[float]
    """Their number, as the noise leaves it."""
    records_interval: Paid[tuple[float, float]]
    """Of their number, noise alone."""


class CellView(LostView):
    """Number of records in a cell."""

    share: Paid[float | None]
    """Of the records with a value; of `missing`, of all records. null: the noise hides it."""
    std_error: Paid[float | None]
    """Of the share; null: there is none."""
    interval: Paid[tuple[float, float] | None]
    """Of the share, at the level that was asked for; null: there is none."""
    note: Paid[str | None]
    """Why there is none; null: nothing is wrong."""


class ValueView(CellView):
    """Frequency of a value of a category."""

    value: Declared[str]
    """As it was declared."""


class BinView(CellView):
    """Number of records in an interval, its lower end included."""

    lower: Paid[float]
    """Where it begins; a declared bound, a given edge or a learned one."""
    upper: Paid[float]
    """Where it ends."""


class FrequenciesView(View):
    """All values of a category."""

    cells: list[ValueView]
    """In their declared order."""
    missing: LostView
    """Records without a value."""


class HistogramView(View):
    """All intervals of a number."""

    cells: list[BinView]
    """Rising."""
    missing: LostView
    """Records without a value."""


class LookView(View):
    """Where a number lies; a later job on the same people may name the description and take this from it."""

    centre: Paid[float]
    """About the median."""
    scale: Paid[float]
    """About the root mean square distance from it."""
    sparse: Paid[bool]
    """Nothing was seen of how the column varies; the scale is a guess."""
    clamped: Paid[list[Literal["lower", "upper"]]]
    """Ends of the declared range where many records lie."""


class ColumnView(View):
    """One column; statistics that were not requested are null."""

    name: Declared[str]
    """As declared."""
    type: Declared[str]
    """number, integer, date, category or binary."""
    unit: Declared[str | None]
    """Of a date's figures; null: the column's own."""
    look: LookView | None
    """Of a number; null: not asked for."""
    missing: CellView | None
    """Records without a value; null: not asked for."""
    frequencies: FrequenciesView | None
    """Of a category; null: not asked for."""
    histogram: HistogramView | None
    """Of a number; null: not asked for."""
    quantiles: list[QuantileView] | None
    """Of a number; null: not asked for."""
    mean: FigureView | None
    """Of a number, every value within the declared bounds counted as it is; null: not asked for."""
    mean_within: CutMeanView | None
    """Where a number fills a small part of its bounds: its mean within learned ends; null: none, or the same."""


class TableView(View):
    """A cross-tabulation: shares of the records with a value in both columns."""

    columns: Declared[list[str]]
    """Both columns' names."""
    rows: Paid[list[str]]
    """Values, or intervals, of the first column."""
    across: Paid[list[str]]
    """Values, or intervals, of the second."""
    cells: list[list[CellView]]
    """A line for each row."""
    missing: LostView
    """Records that lack a value in either column."""


class CorrelationView(FigureView):
    """The correlation of two numbers, of values drawn in to three learned scales about the centre."""

    columns: Declared[list[str]]
    """Both columns' names."""


class DescriptionView(View):
    """A description of columns: figures with their intervals."""

    object: Literal["description"] = "description"
    model: Drawn[str]
    """That was released, `mdl_...`; later jobs name it."""
    job: Drawn[str]
    """That paid for it, `job_...`."""
    n: Declared[int]
    """Records, by the owner's word."""
    level: Operational[float]
    """Of every interval."""
    about: Operational[Literal["population", "records"]]
    """Meaning of the intervals."""
    claim: Operational[str]
    """The same in words."""
    columns: list[ColumnView]
    """In the job's order."""
    tables: list[TableView]
    """In the job's order."""
    correlations: list[CorrelationView]
    """Of each pair of numbers."""
    shares: Declared[dict[str, float]]
    """Division of mu squared, fixed before any record was read."""
    notes: Paid[list[str]]
    """Notes for the reader."""
    privacy: Paid[dict[str, Any]]
    """The job's promise."""
