"""The removal of a row from a canonical file: its cells are gone, and every other byte of the records stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from core.base.errors import Invalid
from core.records.decoding.decode import Limits
from core.records.decoding.removal import remove_row, rewrite
from core.records.encryption import SealedFile

ROWS = 100
MARK = 54.20731


def stored(folder: Path, *, batch_rows: int = 30) -> SealedFile:
    """Return a canonical file with a column of each type that is kept, in batches."""
    sealed = SealedFile(path=folder / "before", context="ds_1")
    values = np.arange(ROWS, dtype=np.float64)
    values[41] = MARK
    images = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 4) % 251, pa.uint8()), 4)
    table = pa.table(
        {
            "number": values,
            "category": pa.array(np.arange(ROWS) % 3, pa.int32()),
            "binary": pa.array(np.arange(ROWS) % 2, pa.int8()),
            "image": images,
            "series": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 2), pa.float32()), 2),
        }
    )
    with sealed.writing() as sink, pa.ipc.new_file(pa.PythonFile(sink, "w"), table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return sealed


def read(file: SealedFile) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows of a canonical file and the lengths of its batches."""
    with file.open() as source:
        reader = pa.ipc.open_file(pa.PythonFile(source, "r"))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return [row for batch in batches for row in batch.to_pylist()], [batch.num_rows for batch in batches]


def others_stay(remove: Callable[..., Any], folder: Path, row: int) -> None:
    """Fail unless the row is missing in every column, and all others are as they were."""
    before = stored(folder)
    after = SealedFile(path=folder / f"after-{row}", context="ds_1")
    assert remove(before, after, row) is not None
    (rows, lengths), (found, there) = read(before), read(after)
    gone = found.pop(row - 1)
    del rows[row - 1]
    assert (found, there) == (rows, lengths)
    assert np.isnan(gone["number"])
    assert (gone["category"], gone["binary"], gone["image"], gone["series"]) == (-1, -1, None, None)
    before.path.unlink()


@pytest.mark.parametrize("row", [1, 30, 31, 42, 100])
def test_the_row_and_no_other_is_missing_in_every_column(tmp_path: Path, row: int) -> None:
    others_stay(rewrite, tmp_path, row)


def test_a_row_beside_the_named_one_would_be_seen(tmp_path: Path) -> None:
    def next_one(before: SealedFile, after: SealedFile, row: int) -> object:
        return rewrite(before, after, row + 1)

    with pytest.raises(AssertionError):
        others_stay(next_one, tmp_path, 42)


def test_no_byte_of_the_cells_is_left_and_the_key_is_another(tmp_path: Path) -> None:
    before, after = stored(tmp_path), SealedFile(path=tmp_path / "after", context="ds_1")
    assert rewrite(before, after, 42) is not None
    mark, image = np.float64(MARK).tobytes(), bytes(range(164, 168))
    with before.open() as file:
        assert mark in (content := file.read())
        assert image in content
    with after.open() as file:
        assert mark not in (content := file.read())
        assert image not in content
    assert before.key != after.key


def test_a_row_without_cells_is_left_as_it_is(tmp_path: Path) -> None:
    before, after = stored(tmp_path), SealedFile(path=tmp_path / "after", context="ds_1")
    assert rewrite(before, after, 7) is not None
    again = SealedFile(path=tmp_path / "again", context="ds_1")
    assert rewrite(after, again, 7) is None
    assert not again.path.exists()


def test_a_child_does_it_under_limits(tmp_path: Path) -> None:
    before, after = stored(tmp_path), SealedFile(path=tmp_path / "after", context="ds_1")
    written = remove_row(before, after, 42, limits=Limits(seconds=60))
    assert written is not None
    assert written.bytes == after.path.stat().st_size
    again = SealedFile(path=tmp_path / "again", context="ds_1")
    assert remove_row(after, again, 42, limits=Limits(seconds=60)) is None
    with pytest.raises(Invalid, match="within its limits"):
        remove_row(before, again, 3, limits=Limits(seconds=60, memory_bytes=2**20))
    assert not again.path.exists()
