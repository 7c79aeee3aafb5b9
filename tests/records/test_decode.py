"""Decoding: every cell means what one cell means, whatever the file's format; no cell value fails an upload."""

import csv
import io
import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from core.base.errors import Invalid
from core.data.cells import code_of_cell, number_of_cell
from core.data.columns import Coded, Column, Columns, NumberColumn
from core.records.decoding import decode as module
from core.records.decoding.child import ROOT
from core.records.decoding.decode import Decoded, Limits, decode, decode_upload, format_of
from core.records.decoding.mock import mock_rows
from core.records.encryption import SealedFile
from core.records.uploads import receive, remove_partial
from tests.support.mocks import mock_csv
from tests.support.sealed import seal

COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "age", "lower": 18, "upper": 95, "missing": [-9, "NA"]},
        {"type": "integer", "name": "kids", "lower": 0, "upper": 20, "missing": ["99"], "fill": 1},
        {"type": "date", "name": "seen", "lower": "2003-01-01", "upper": "2006-12-31", "missing": ["9999-12-31"]},
        {"type": "category", "name": "job", "values": ["none", "technician", "other"], "other": "other"},
        {"type": "category", "name": "town", "values": ["a", "b"], "missing": ["?"], "fill": "b"},
        {"type": "binary", "name": "y", "values": ["no", "yes"]},
    ]
)


def run(folder: Path, source: bytes, columns: tuple[Column, ...] = COLUMNS, **limits: Any) -> tuple[Decoded, pa.Table]:
    """Decode in this process, as the child does."""
    target = SealedFile(path=folder / "decoded", context="ds_1")
    target.path.unlink(missing_ok=True)
    decoded = decode(seal(folder / "source", source), target, columns, limits=Limits(**limits), media=None)
    with target.open() as file:
        return decoded, pa.ipc.open_file(pa.PythonFile(file, "r")).read_all()


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [column.name for column in COLUMNS])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def wanted(column: Column, cell: Any) -> float:
    """The meaning of one cell; NaN and -1 when missing."""
    if isinstance(column, Coded):
        code = code_of_cell(column, cell)
        return -1 if code is None else code
    number = number_of_cell(column, cell)
    return math.nan if number is None else number


def assert_means(table: pa.Table, rows: list[dict[str, Any]]) -> None:
    assert table.num_rows == len(rows)
    for column in COLUMNS:
        found = table[column.name].to_pylist()
        assert found == pytest.approx([wanted(column, row[column.name]) for row in rows], nan_ok=True, abs=0, rel=0)


ROW = {"age": "40", "kids": "2", "seen": "2005-06-07", "job": "technician", "town": "a", "y": "yes"}
NUMBERS = ["-9", "-9.0", "99", "+5", " 40 ", "40.5", "2.5", "3.5", "0x1F", "1_000", "1,5", "1d", "1e400", "-1e400", "٣"]
DATES = [
    "2005-06-07",
    "2005-06-07T10:00",
    "2005-02-30",
    "0000-00-00",
    "9999-12-31",
    "20050607",
    "2005-6-7",
    "0001-01-01",
]
WORDS = [
    "",
    " ",
    "nan",
    "NA",
    "inf",
    "-Infinity",
    "yes",
    "YES",
    " no",
    "true",
    "a",
    "?",
    "technician",
    "pilot",
    '"',
    "é",
]
odd = st.sampled_from([*NUMBERS, *DATES, *WORDS])
cells = odd | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=12)


class TestCells:
    @given(
        rows=st.lists(st.fixed_dictionaries(dict.fromkeys(ROW, cells)), min_size=1, max_size=30),
    )
    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_no_text_fails_and_each_means_what_a_cell_means(self, tmp_path: Path, rows: list[dict[str, str]]) -> None:
        decoded, table = run(tmp_path, as_csv(rows))
        assert decoded.rows == len(rows)
        assert_means(table, rows)
        for column, report in zip(COLUMNS, decoded.report.columns, strict=True):
            gaps = sum(value == -1 or math.isnan(value) for value in table[column.name].to_pylist())
            assert report.missing - report.filled == gaps

    def test_the_report_counts_what_was_done(self, tmp_path: Path) -> None:
        changes = [
            *({"age": "7"}, {"age": "1e400"}, {"age": "-9.0"}, {"age": "NA"}, {"age": "old"}, {"age": ""}),
            *({"kids": "2.4"}, {"kids": "99"}, {"kids": "many"}, {"seen": "1999-01-01"}, {"seen": "9999-12-31"}),
            *({"job": "pilot"}, {"job": ""}, {"town": "z"}, {"town": "?"}, {"y": "maybe"}),
        ]
        decoded, _ = run(tmp_path, as_csv([{**ROW, **change} for change in changes]))
        report = {
            column.name: {key: value for key, value in column if value and key != "name"}
            for column in decoded.report.columns
        }
        assert report == {
            "age": {"clamped_low": 1, "clamped_high": 1, "missing": 4, "unreadable": 1},
            "kids": {"rounded": 1, "missing": 2, "unreadable": 1, "filled": 2},
            "seen": {"clamped_low": 1, "missing": 1},
            "job": {"unknown": 1, "missing": 1},
            "town": {"unreadable": 1, "missing": 2, "filled": 2},
            "y": {"unreadable": 1, "missing": 1},
        }
        assert decoded.report.incomplete_rows == 7

    @pytest.mark.parametrize("rows", [1, 65_536, 65_537, 200_000])
    def test_rows_keep_their_order_across_batches(self, tmp_path: Path, rows: int) -> None:
        columns = TypeAdapter(Columns).validate_python(
            [{"type": "integer", "name": "i", "lower": 0, "upper": 10**9}],
        )
        decoded, table = run(tmp_path, b"i\n" + b"".join(b"%d\n" % i for i in range(rows)), columns)
        assert decoded.rows == rows
        assert table["i"].to_numpy().tolist() == list(range(rows))


MIDNIGHT_NANOSECONDS = 12_941 * 86_400 * 10**9
"""Of 2005-06-07."""
TYPED = pa.table(
    {
        "age": pa.array([40.25, None, math.nan, -9, math.inf], pa.float64()),
        "kids": pa.array([1, 25, 99, None, 0], pa.int16()),
        "seen": pa.array([date(2005, 6, 7), date(1999, 1, 1), None, date(9999, 12, 31), date(2006, 12, 31)]),
        "job": pa.array(["none", "pilot", None, "", "technician"]).dictionary_encode(),
        "town": pa.array(["a", "?", "z", None, "b"], pa.large_string()),
        "y": pa.array(["no", "yes", "maybe", None, "yes"]),
    }
)


class TestFormats:
    def written(self, table: pa.Table, kind: str) -> bytes:
        sink = pa.BufferOutputStream()
        if kind == "parquet":
            pq.write_table(table, sink, row_group_size=2)
        else:
            make = pa.ipc.new_file if kind == "arrow-file" else pa.ipc.new_stream
            options = pa.ipc.IpcWriteOptions(compression="zstd" if kind == "arrow-file" else None)
            with make(sink, table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=2)
        return bytes(sink.getvalue())

    @pytest.mark.parametrize("kind", ["parquet", "arrow-file", "arrow-stream"])
    def test_typed_cells_mean_the_same(self, tmp_path: Path, kind: str) -> None:
        _, table = run(tmp_path, self.written(TYPED, kind))
        assert_means(table, TYPED.to_pylist())

    @pytest.mark.parametrize(
        ("name", "cells"),
        [
            ("age", pa.array([40, None], pa.uint8())),
            ("age", pa.array([40.5, 41.5], pa.float32())),
            ("age", pa.array([40.5, math.nan]).cast(pa.float16())),
            ("age", pa.array([2**64 - 1, 0], pa.uint64())),
            ("age", pa.array([40, None]).dictionary_encode()),
            ("age", pa.array([True, False])),
            ("age", pa.array([None, None], pa.null())),
            ("age", pa.array(["40.25", "50"]).cast(pa.float64()).cast(pa.decimal128(8, 3))),
            ("seen", pa.array([datetime(2005, 6, 7, 23, 59), None], pa.timestamp("us"))),  # noqa: DTZ001 - no zone wanted
            ("seen", pa.array([datetime(2005, 6, 7), None], pa.timestamp("ns"))),  # noqa: DTZ001 - no zone wanted
            ("seen", pa.array([date(2005, 6, 7), date(1969, 12, 31)], pa.date64())),
            ("seen", pa.array([2**63 - 1, -(2**62)], pa.int64()).cast(pa.timestamp("ns"))),
            ("seen", pa.array([MIDNIGHT_NANOSECONDS - 1, MIDNIGHT_NANOSECONDS], pa.int64()).cast(pa.timestamp("ns"))),
            ("seen", pa.array(["2005-06-07", "x"])),
            ("seen", pa.array(["2005-06-07", None], pa.string_view())),
            ("job", pa.array(["technician", "?"], pa.string_view())),
            ("job", pa.array([None, None], pa.null())),
            ("y", pa.array([1.0, math.nan])),
        ],
        ids=lambda value: value if isinstance(value, str) else str(value.type),
    )
    def test_many_types_are_read(self, tmp_path: Path, name: str, cells: pa.Array) -> None:
        table = TYPED.slice(0, 2).set_column(TYPED.column_names.index(name), name, cells)
        rows = table.to_pylist()
        for row in rows:
            row[name] = float(row[name]) if name == "age" and row[name] is not None else row[name]
            row[name] = str(row[name]) if cells.type == pa.timestamp("ns") and row[name] is not None else row[name]
        _, decoded = run(tmp_path, self.written(table, "arrow-file"))
        assert_means(decoded, rows)

    def test_a_dictionary_that_fills_its_index_type(self, tmp_path: Path) -> None:
        values = ["none", *(f"v{place}" for place in range(127))]
        indices = pa.array([0, None, *range(1, 128)], pa.int8())
        rows = len(indices)
        table = pa.table({name: TYPED[name].combine_chunks().take(pa.array([0] * rows)) for name in TYPED.column_names})
        job = pa.DictionaryArray.from_arrays(indices, pa.array(values))
        _, found = run(tmp_path, self.written(table.set_column(3, "job", job), "arrow-file"))
        assert found["job"].to_pylist() == [0, -1, *([2] * 127)]

    def test_codes_may_be_stored_as_numbers(self, tmp_path: Path) -> None:
        columns = TypeAdapter(Columns).validate_python(
            [
                {"type": "binary", "name": "i", "values": ["0", "1"]},
                {"type": "binary", "name": "f", "values": ["0", "1"]},
                {"type": "binary", "name": "b", "values": ["false", "true"]},
                {"type": "category", "name": "c", "values": ["1", "2", "2.5"]},
            ]
        )
        table = pa.table({"i": [0, 1, None], "f": [0.0, 1.0, math.nan], "b": [False, True, None], "c": [1.0, 2.5, 7.0]})
        _, found = run(tmp_path, self.written(table, "arrow-stream"), columns)
        codes = found.to_pydict()
        assert codes == {"i": [0, 1, -1], "f": [0, 1, -1], "b": [0, 1, -1], "c": [0, 2, -1]}

    @pytest.mark.parametrize(
        "text",
        [
            "\ufeff{header}\r\n{row}\r\n{row}\r\n",
            "{header}\n{row}\n{row}",
            "{header}\n\n{row}\n\n{row}\n",
            '"age","kids","seen","job","town","y"\n"40","2","2005-06-07","technician","a","yes"\n{row}\n',
            'note,{header}\n"two\nlines, and a comma",{row}\nx,{row}\n',
            "{header},note\n{row},\u00e9\n{row},\n",
        ],
    )
    def test_csv_as_people_write_it(self, tmp_path: Path, text: str) -> None:
        source = text.format(header=",".join(ROW), row=",".join(ROW.values())).encode()
        _, table = run(tmp_path, source)
        assert_means(table, [ROW, ROW])


def test_content_types() -> None:
    assert format_of("text/csv; charset=utf-8") == "csv"
    assert format_of("application/vnd.apache.parquet") == "parquet"
    assert format_of("application/octet-stream") is None
    assert format_of(None) is None


class TestChild:
    def test_it_starts_in_the_folder_that_holds_the_code(self) -> None:
        """Images install no package of ours, and the child's environment names no path: it looks where it starts."""
        assert Path(module.__file__).resolve() == ROOT / "core" / "records" / "decoding" / "decode.py"

    def test_the_child_gives_what_this_process_gives(self, tmp_path: Path) -> None:
        here, table = run(tmp_path, as_csv([ROW, {**ROW, "age": ""}]))
        source = seal(tmp_path / "source", as_csv([ROW, {**ROW, "age": ""}]))
        target = SealedFile(path=tmp_path / "rec_1.sealed", context="ds_1")
        there = decode_upload(source, target, COLUMNS, limits=Limits(), media="csv", rows=2)
        assert there.model_copy(update={"digest": here.digest}) == here  # another key, other bytes
        assert there.digest != here.digest
        assert target.path.stat().st_mode & 0o777 == 0o600
        with target.open() as file:
            read = pa.ipc.open_file(pa.PythonFile(file, "r")).read_all()
        assert repr(read.to_pylist()) == repr(table.to_pylist())  # where nan is nan

    def test_mock_rows_lie_within_bounds_that_differ_in_the_seventh_digit(self) -> None:
        column = NumberColumn(name="x", lower=0.1234567, upper=0.1234568)
        values = [row["x"] for row in mock_rows([column], 20)]
        assert all(isinstance(one, float) and column.lower <= one <= column.upper for one in values)

    def test_mock_rows_can_be_uploaded_and_are_the_same_each_time(self, tmp_path: Path) -> None:
        text = mock_csv(COLUMNS, 500)
        assert text == mock_csv(COLUMNS, 500)
        assert text != mock_csv(COLUMNS, 500, seed=1)
        decoded, table = run(tmp_path, text.encode())
        assert decoded.report.incomplete_rows == 0
        assert not any(c.clamped_low or c.clamped_high or c.unknown for c in decoded.report.columns)
        assert_means(table, list(mock_rows(COLUMNS, 500)))
        assert set(table["job"].to_pylist()) == {0, 1, 2}

    def test_leftovers_of_killed_uploads_are_removed(self, tmp_path: Path) -> None:
        received = receive([b"a"], folder=tmp_path, secret=b"s", limit_bytes=10)
        (tmp_path / "rec_1.sealed").write_bytes(b"")
        assert remove_partial(tmp_path, older_than_seconds=3600) == 0
        assert received.file.path.exists()
        assert remove_partial(tmp_path, older_than_seconds=-1) == 2
        assert list(tmp_path.iterdir()) == []

    def test_another_number_of_rows_than_declared_is_refused(self, tmp_path: Path) -> None:
        source, target = seal(tmp_path / "source", as_csv([ROW])), SealedFile(path=tmp_path / "rec", context="ds_1")
        with pytest.raises(Invalid) as refused:
            decode_upload(source, target, COLUMNS, limits=Limits(), rows=2)
        assert refused.value.fields[0].pointer == "/rows"
        assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_wide_file_takes_no_memory_of_its_square(tmp_path: Path) -> None:
    """Arrow takes as much for each column of texts as a block of the file has: here 5.8 GB, had it one block."""
    names = [f"c{number}" for number in range(2000)]
    wide = TypeAdapter(Columns).validate_python(
        [{"name": name, "type": "number", "lower": 0, "upper": 1} for name in names]
    )
    lines = [",".join(names), *[",".join([f"0.{row:07}"] * len(names)) for row in range(150)]]
    source = seal(tmp_path / "source", "\n".join([*lines, ""]).encode())
    target = SealedFile(path=tmp_path / "target.sealed", context="ds_1")
    assert decode_upload(source, target, wide, limits=Limits(memory_bytes=3 * 2**30), media="csv").rows == 150
