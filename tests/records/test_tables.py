"""Tables that are written: CSV in which nothing runs and no cell is lost, and refusals that name the column."""

import csv
import io
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.base.errors import Invalid, TooLarge
from core.base.spreadsheets import guarded
from core.records.answering import Kind
from core.records.encryption import SealedFile
from core.records.tables import Table
from tests.support.sealed import seal

FIGURES = {"predicted_value": np.array([0.1, -1e-20, 1 / 3])}
TEXTS = st.lists(st.none() | st.text(alphabet="=+-@\t\r\n\"',;a1. é", max_size=5), min_size=3, max_size=3)
TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))


def written(path: Path, batch: pa.RecordBatch, kind: Kind = "csv", most_bytes: int = 10**6) -> bytes:
    target = seal(path, b"")
    target.path.unlink()
    with target.writing() as sink, Table(kind, sink, most_bytes) as table:
        table.write(batch, FIGURES)
    return _content(target)


def _content(target: SealedFile) -> bytes:
    with target.open() as file:
        return file.read()


@settings(deadline=None, max_examples=200)
@given(texts=TEXTS, kind=st.sampled_from(TYPES), sliced=st.booleans())
def test_texts_are_guarded_and_come_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], kind: pa.DataType, sliced: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "table"
    values = pa.array((["before"] if sliced else []) + texts).cast(pa.string())
    values = values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values.cast(kind)
    batch = pa.record_batch({"=name": values.slice(int(sliced))})
    head, *rows = csv.reader(io.StringIO(written(path, batch).decode(), newline=""))
    assert head == ["'=name", "predicted_value"]
    assert [row[0] for row in rows] == [guarded(text or "") for text in texts]
    assert [float(row[1]) for row in rows] == FIGURES["predicted_value"].tolist()


def test_no_more_quotes_than_cells_need(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": ["a", "b", None], "sum": pa.array(["-1", "+2e3", ".5"])})
    lines = written(tmp_path / "table", batch).decode().split("\r\n")
    assert lines == ["id,sum,predicted_value", "a,-1,0.1", "b,+2e3,-1e-20", ",.5,0.3333333333333333", ""]


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        ([True, None, False], ["true", "", "false"]),
        ([date(1969, 12, 31)] * 3, ["1969-12-31"] * 3),
        ([Decimal("-1.50")] * 3, ["-1.50"] * 3),
        ([-5, 2**62, None], ["-5", str(2**62), ""]),
    ],
    ids=["binary", "date", "decimal", "integer"],
)
def test_other_cells_are_written_as_they_are(tmp_path: Path, cells: list[Any], texts: list[str]) -> None:
    _, *rows = csv.reader(io.StringIO(written(tmp_path / "table", pa.record_batch({"c": cells})).decode()))
    assert [row[0] for row in rows] == texts


@pytest.mark.parametrize(
    "cells",
    [[[1], [2], []], [b"a", b"b", None], [{"a": 1}] * 3],
    ids=["list", "bytes", "struct"],
)
def test_a_type_that_csv_does_not_hold_is_refused(tmp_path: Path, cells: list[Any]) -> None:
    with pytest.raises(Invalid) as refused:
        written(tmp_path / "table", pa.record_batch({"c": cells}))
    assert [one.pointer for one in refused.value.fields] == ["#header/accept"]
    read = pa.ipc.open_stream(written(tmp_path / "table", pa.record_batch({"c": cells}), "arrow-stream")).read_all()
    assert read["c"].to_pylist() == cells


def test_a_table_has_so_many_bytes(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="larger than 100 bytes"):
        written(tmp_path / "table", pa.record_batch({"c": ["x" * 50] * 3}), "csv", 100)
