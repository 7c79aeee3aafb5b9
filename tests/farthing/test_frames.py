"""Data frames as records: pandas, polars and Arrow give the same dataset as the CSV file, whatever their cells are."""

import csv
import io
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import ipc

from farthing import Client, FarthingError, WrongInput
from farthing.frames import is_frame, write_frame
from tests.farthing.test_client import metadata
from tests.support.embedded import SEEDS, toy_csv

EAST = timezone(timedelta(hours=9))
COLUMNS = [
    {"name": "age", "type": "number", "lower": 0, "upper": 100},
    {"name": "visits", "type": "integer", "lower": 0, "upper": 50},
    {"name": "code", "type": "category", "values": ["1", "2", "10"]},
    {"name": "smoker", "type": "binary", "values": ["false", "true"]},
    {"name": "seen", "type": "date", "lower": "2000-01-01", "upper": "2030-12-31"},
]


def written(frame: Any) -> tuple[str, bytes]:
    file = io.BytesIO()
    name = write_frame(frame, file)
    return name, file.read()


def read_back(frame: Any) -> list[dict[str, Any]]:
    name, content = written(frame)
    assert name == "records.arrow"
    return list(ipc.open_file(pa.BufferReader(content)).read_all().to_pylist())


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
def test_a_frame_is_uploaded_as_its_file_would_be(client: Client, kind: str, tmp_path: Path) -> None:
    content = toy_csv(300, seed=next(SEEDS))
    frame = pd.read_csv(io.BytesIO(content))
    lazy = pl.read_csv(content).lazy()
    given = {"pandas": frame, "polars": lazy.collect(), "lazy": lazy, "arrow": pa.Table.from_pandas(frame)}[kind]
    made = client.upload(given, metadata())
    assert (made.rows, made.state) == (300, "ready")
    assert client.validation(made.id).incomplete_rows == 0
    path = tmp_path / "toy.csv"
    path.write_bytes(content)
    # The service compares cells, so it finds the file to be the same records.
    with pytest.raises(FarthingError, match="duplicate-dataset"):
        client.upload(path, metadata())


def messy() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": pd.Series([41.5, None, 30, float("nan")]),
            "visits": pd.array([3, None, 5, 7], dtype="Int64"),
            "code": pd.Categorical([1.0, 2.0, None, 10.0]),
            "smoker": pd.array([True, False, None, True], dtype="boolean"),
            "seen": pd.to_datetime(["2020-02-29 23:30", None, "2021-01-01 00:00", "2022-05-05 00:01"]),
        }
    )


def test_missing_cells_times_categories_and_truths_mean_what_they_say(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = messy()
    asked = metadata(columns=COLUMNS, budget={"epsilon": 1, "delta": 1e-6, "accept_delta": True}, accept_excluded=True)
    made = client.upload(frame, asked)
    found = {one.name: one for one in client.validation(made.id).columns}
    missing = {name: one.missing for name, one in found.items()}
    assert missing == {"age": 2, "visits": 1, "code": 1, "smoker": 1, "seen": 1}
    assert not any(one.unreadable or one.unknown or one.rounded for one in found.values())

    def same(given: Any, name: str) -> None:
        assert written(given)[0] == name
        # The service compares cells: every way to write this frame gives the very same records.
        with pytest.raises(FarthingError, match="duplicate-dataset"):
            client.upload(given, asked)

    same(pl.from_pandas(frame.astype({"code": "float64"})), "records.arrow")
    same(frame.astype(object), "records.arrow")
    same(frame.assign(seen=frame["seen"].dt.tz_localize(EAST)), "records.arrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    same(frame, "records.csv")


def test_a_zone_keeps_its_own_day() -> None:
    night = [datetime(2020, 3, 1, 0, 30, tzinfo=EAST)]
    tokyo = pl.DataFrame({"seen": night}).with_columns(pl.col("seen").dt.convert_time_zone("Asia/Tokyo"))
    arrow = pa.table({"seen": pa.array(night, pa.timestamp("us", "+09:00"))})
    for frame in (pd.DataFrame({"seen": night}), tokyo, arrow):
        (row,) = read_back(frame)
        assert row["seen"] == datetime(2020, 3, 1, 0, 30)  # noqa: DTZ001 - the wall clock's


def test_a_named_index_is_a_column_and_a_plain_one_is_not() -> None:
    frame = pd.DataFrame({"age": [1.0]}, index=pd.Index(["p1"], name="patient"))
    assert read_back(frame) == [{"patient": "p1", "age": 1.0}]
    assert read_back(frame.rename_axis(None)) == [{"age": 1.0}]


def test_the_same_frame_is_the_same_bytes() -> None:
    frame = messy()
    assert written(frame) == written(frame.copy())
    assert b"pandas" not in written(frame)[1]


@pytest.mark.parametrize("without_arrow", [False, True])
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([1, "a"], "mixes numbers and texts"),
        ([True, 1], "mixes numbers and truth values"),
        ([1.5, Decimal("1.5")], "mixes decimals and numbers"),
        ([date(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)], "mixes dates and times"),
        ([None, "a", {"x": 1}], "mixes objects of type dict and texts"),
    ],
)
def test_a_column_of_several_kinds_is_named(
    cells: list[Any], words: str, without_arrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without_arrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WrongInput, match=words) as wrong:
        written(pd.DataFrame({"fine": [1] * len(cells), "mixed": pd.Series(cells, dtype=object)}))
    assert wrong.value.errors[0]["pointer"] == "/columns/mixed"


def test_names_must_be_texts_of_their_own() -> None:
    for frame in (pd.DataFrame([[1, 2]]), pd.DataFrame([[1, 2]], columns=["a", "a"]),
                  pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")]))):  # fmt: skip
        with pytest.raises(WrongInput, match="name of its own"):
            written(frame)


def test_objects_that_no_file_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongInput, match="Column 'x' holds Python objects"):
        written(pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}))
    with pytest.raises(WrongInput, match="no Arrow table"):
        written(pd.DataFrame({"x": [object()]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WrongInput, match="/columns/x"):
        written(pd.DataFrame({"x": [object()]}))


def test_a_csv_without_pyarrow_reads_back_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    texts = ["a,b", 'say "hi"', "line\nbreak", "=1+1", "größe"]
    numbers = [0.1, 1e300, -5e-324, 2.0**60, 1 / 3]
    name, content = written(pd.DataFrame({"text": texts, "number": numbers}))
    assert name == "records.csv"
    header, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    assert header == ["text", "number"]
    assert [text for text, _ in rows] == texts
    assert [float(number) for _, number in rows] == numbers


@pytest.mark.parametrize("given", [pd.Series([1]), pl.Series([1]), [{"age": 1}], 5, None, np.zeros((2, 2))])
def test_what_is_no_table_says_what_to_give(client: Client, given: Any) -> None:
    assert not is_frame(given)
    with pytest.raises(WrongInput, match="pandas, polars or Arrow table"):
        client.upload(given, metadata())


def test_an_empty_frame_is_refused_by_the_service(client: Client) -> None:
    with pytest.raises(FarthingError, match="/file"):
        client.upload(messy().iloc[:0], metadata(columns=COLUMNS))
