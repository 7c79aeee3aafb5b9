"""Rows drawn from declared columns as encoded arrays, by the very path of an uploaded file: cells, file, design."""

from collections.abc import Sequence
from io import BytesIO
from itertools import islice

import pyarrow as pa

from core.data.columns import ArrayColumn, Column, numbers_in
from core.models.design import Design
from core.records.decoding import arrays, cells
from core.records.decoding.mock import mock_rows
from core.records.records import Encoded, read_records

_BATCH_CELLS = 200_000


def draw(columns: Sequence[Column], design: Design, rows: int, *, seed: int) -> Encoded:
    """Return made-up records; they follow from declaration, seed and place alone.

    Args:
        columns: as declared.
        design: the encoding, which reads some of them.
        rows: their number.
        seed: public.
    """
    read = {*design.read, design.target.column}
    used = [column for column in columns if column.name in read]
    drawn = mock_rows(used, rows, seed=seed)
    size = max(1, _BATCH_CELLS // sum(map(numbers_in, used)))
    file = BytesIO()
    writer = None
    while batch := list(islice(drawn, size)):
        kept = [_kept(column, [row[column.name] for row in batch]) for column in used]
        made = pa.record_batch(kept, names=[column.name for column in used])
        if writer is None:
            writer = pa.ipc.new_file(file, made.schema)
        writer.write_batch(made)
    assert writer is not None, "there is a row at least"
    writer.close()
    file.seek(0)
    return read_records(file, design)


def _kept(column: Column, values: list[object]) -> pa.Array:
    """Return cells of a column as a canonical file keeps them."""
    if isinstance(column, ArrayColumn):
        return arrays.convert_array(column, pa.array(values), None)[0]
    return pa.array(cells.convert(column, pa.array(values), None)[0])
