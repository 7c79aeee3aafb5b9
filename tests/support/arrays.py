"""Files of arrays for tests, however they are written."""

import io
import zipfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def npz(*, compressed: bool = True, **arrays: Any) -> bytes:
    """Return an NPZ archive, as NumPy writes it."""
    sink = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(sink, **arrays)
    return sink.getvalue()


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP archive of these files."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return sink.getvalue()


def npy(array: Any) -> bytes:
    """Return one array as NumPy writes it into an archive."""
    sink = io.BytesIO()
    np.lib.format.write_array(sink, np.asanyarray(array))
    return sink.getvalue()


def lists(values: Any, number: pa.DataType, *sizes: int) -> pa.Array:
    """Return nested lists; of a fixed size where it is positive."""
    kind = number
    for size in reversed(sizes):
        kind = pa.list_(kind, size if size > 0 else -1)
    return pa.array(values, kind)


def parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow(table: pa.Table, **options: Any) -> bytes:
    """Return an Arrow IPC file."""
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, **options)
    return sink.getvalue()
