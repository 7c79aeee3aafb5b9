"""Datasets of different owners that share rows: looked for on the operator's host, and shown to nobody else.

An owner who could ask would have an oracle: upload a guess, and see whether it is in somebody's records. Nothing is
kept that would let owners be compared. This reads the stored records of one site, under its master key, summarizes
them under a key that is drawn for this once, and forgets both. The audit log says that it was done, and no more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, BinaryIO

from pydantic import TypeAdapter

from core.access import audit
from core.access.audit import Line
from core.base.settings import ServiceSettings
from core.data.columns import ArrayColumn, Column, DateColumn, Ordered
from core.db.database import Database
from core.records import datasets
from core.records.decoding.likeness import Summarized, are_same, best_set, counts_of, shared, tag_of
from core.records.encryption import new_key
from core.records.records import StoredRecords, kept_of, open_records

if TYPE_CHECKING:
    import pyarrow as pa

    from core.records.decoding.summary import ColumnCells

_COLUMNS: TypeAdapter[tuple[Column, ...]] = TypeAdapter(tuple[Column, ...])


@dataclass(frozen=True)
class Overlap:
    """Two datasets of different owners, and the share of the smaller one's rows that both have."""

    first: str
    second: str
    owners: tuple[str, str]
    share: float


@dataclass(frozen=True)
class _Stored:
    owner_id: str
    kept: StoredRecords
    columns: tuple[Column, ...]


def overlaps(settings: ServiceSettings, database: Database, above: float) -> Iterator[Overlap]:
    """Yield the pairs of datasets of different owners with more than a share of rows in common; leave a line of it.

    Cells are compared as they were stored: within the declared bounds and categories. Erased records are not there.

    Args:
        settings: of the site, whose records and master key these are.
        database: the database.
        above: the least share, from 0 to 1.

    Raises:
        NotReady: the storage does not answer, or the master key is missing or another one.
    """
    # Written first, so that a look which fails later has its line, too.
    database.transaction(audit.append, [Line(None, "operator: overlaps", settings.site or None, 200, None, "operator")])
    # Drawn for this run alone and never kept: digests of two runs cannot be compared.
    key = new_key()
    with database.read() as session:
        stored = [
            _Stored(one.owner_id, kept_of(one), _COLUMNS.validate_python(one.columns))
            for one in datasets.ready(session, settings.site)
        ]
    summaries: dict[str, Summarized] = {}
    for one in stored:
        with open_records(settings, one.kept) as file:
            summaries[one.kept.dataset_id] = _summarize(file, one.columns, key)
    for one, other in combinations(stored, 2):
        if one.owner_id == other.owner_id:
            continue
        share = _share(summaries[one.kept.dataset_id], summaries[other.kept.dataset_id], above)
        if share is not None:
            names = (one.kept.dataset_id, other.kept.dataset_id)
            yield Overlap(*names, (one.owner_id, other.owner_id), min(share, 1.0))


def _share(one: Summarized, other: Summarized, above: float) -> float | None:
    if are_same(one.summary, other.summary):
        return 1.0
    tag = best_set(one.summary.spreads, other.summary.spreads)
    if tag is None:
        return None
    first, second = (
        next(counts_of(found.content) for found in each.counts if tag_of(found.columns) == tag) for each in (one, other)
    )
    return shared(first, second, above)


def _summarize(file: BinaryIO, columns: Sequence[Column], key: bytes) -> Summarized:
    """Return the summary of a canonical file."""
    import pyarrow as pa  # noqa: PLC0415 - the operator's other tools need neither Arrow nor NumPy

    from core.records.decoding.summary import RowSummary  # noqa: PLC0415 - as above

    found = RowSummary(columns, key)
    reader = pa.ipc.open_file(pa.PythonFile(file, "r"))
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        for cells, column in zip(found.columns, columns, strict=True):
            _take(cells, column, batch.column(column.name))
        found.add()
    return found.finish()


def _take(cells: "ColumnCells", column: Column, stored: "pa.Array") -> None:
    """Summarize a column's stored cells as those that were decoded."""
    import numpy as np  # noqa: PLC0415 - as above

    if isinstance(column, ArrayColumn):
        places = np.flatnonzero(stored.is_valid().to_numpy(zero_copy_only=False))
        numbers = stored.drop_null().flatten().to_numpy(zero_copy_only=False).astype(np.float64)
        cells.arrays(len(stored), places, numbers.reshape(-1, column.numbers))
        return
    values = stored.to_numpy(zero_copy_only=False)
    if isinstance(column, DateColumn):
        cells.days(values + column.lower.toordinal())
    elif isinstance(column, Ordered):
        cells.numbers(values)
    else:
        # A missing code is stored as a negative number; the decoder counts it after all values.
        cells.codes(column.values, np.where(values < 0, len(column.values), values))
