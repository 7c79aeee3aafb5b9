"""Predictions of frames and files through the SDK: the figures of rows, in the caller's own kind of table."""

import io
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from farthing import Client, FarthingError, frames, predicting
from farthing.models import Model
from tests.farthing.conftest import Released

NAMES = ["predicted_probability", "predicted_std_error", "predicted_lower", "predicted_upper"]
ROWS: list[dict[str, Any]] = [{"age": 40, "job": "b"}, {"age": 61.5, "job": "a"}, {"age": 18.0, "job": "c"}]


@pytest.fixture(scope="module")
def model(client: Client, released: Released) -> Model:
    return client.model(released.model)


@pytest.fixture(params=["arrow", "csv"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send frames with pyarrow, and as if it were not installed."""
    if request.param == "csv":
        for module in (frames, predicting):
            monkeypatch.setattr(module, "installed", lambda _: None)


def figures(model: Model) -> list[list[float]]:
    told = model.predict(ROWS, level=0.9)
    return [[one["probability"], one["std_error"], *one["interval"]] for one in told]


@pytest.mark.usefixtures("way")
def test_a_frame_of_pandas_keeps_its_index_and_its_columns(model: Model) -> None:
    index = pd.MultiIndex.from_tuples([("x", 1), ("x", 1), ("y", 2)], names=["site", "day"])
    frame = pd.DataFrame(ROWS, index=index)
    frame["job"] = pd.Categorical(frame["job"], ordered=True)
    frame["note"] = [object(), {"a": 1}, "=1"]  # of no concern, and not sent
    found = model.predict(frame, level=0.9)
    assert isinstance(found, pd.DataFrame)
    pd.testing.assert_frame_equal(found[["age", "job", "note"]], frame)
    assert found[NAMES].to_numpy().tolist() == figures(model)
    assert list(frame) == ["age", "job", "note"], "the caller's frame stays as it is"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "made",
    [
        pl.DataFrame,
        pl.LazyFrame,
        lambda rows: pl.DataFrame(rows).with_columns(pl.col("job").cast(pl.Categorical)),
    ],
    ids=["frame", "lazy", "categorical"],
)
def test_a_frame_of_polars(model: Model, made: Callable[[Any], Any]) -> None:
    found = model.predict(made(ROWS), level=0.9)
    assert isinstance(found, pl.DataFrame)
    assert [list(row) for row in found.select(NAMES).rows()] == figures(model)


@pytest.mark.parametrize("made", [pa.Table.from_pylist, pa.RecordBatch.from_pylist], ids=["table", "batch"])
def test_a_table_of_pyarrow(model: Model, made: Callable[[Any], Any]) -> None:
    found = model.predict(made(ROWS), level=0.9)
    assert isinstance(found, pa.Table)
    assert [list(row.values()) for row in found.select(NAMES).to_pylist()] == figures(model)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT], ids=["None", "NaN", "NA", "NaT"])
def test_a_missing_cell_is_named(model: Model, missing: Any) -> None:
    for rows in (
        pd.DataFrame({"age": pd.array([40, missing], dtype=object), "job": ["a", "b"]}),
        [ROWS[0], {"age": missing, "job": "b"}],
    ):
        with pytest.raises(FarthingError, match="/rows/1/age: must be a number"):
            model.predict(rows)


def test_cells_of_every_library_become_those_of_json() -> None:
    at = pd.Timestamp("2020-02-29 12:00")
    cells = {"a": at, "b": at.date(), "c": np.float32(0.5), "d": np.arange(3), "e": pd.NaT, "f": np.datetime64("NaT")}
    ((row,),) = predicting.parts([cells])
    assert row["a"].startswith("2020-02-29T12")
    assert (row["b"], row["c"], row["d"], row["e"], row["f"]) == ("2020-02-29", 0.5, [0, 1, 2], None, None)


def test_texts_of_cells_are_those_that_labels_have() -> None:
    """As the service compares them: 1.0 is the label 1, and true that of a binary column."""
    cells = [1.0, np.int64(3), 0.1, True, np.bool_(False), None, np.nan, "a,b", datetime(2020, 1, 2, tzinfo=UTC)]
    texts = [frames._written(cell, "x") for cell in cells]
    assert texts[:8] == ["1", "3", "0.1", "true", "false", "", "", "a,b"]
    assert texts[8].startswith("2020-01-02")


@pytest.mark.usefixtures("way")
def test_columns_in_the_index_are_the_models_too_and_no_others_are_sent(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    def keeping(frame: Any, file: io.BytesIO) -> str:
        name = frames.write_frame(frame, file)
        sent.append(file.read())
        file.seek(0)
        return name

    monkeypatch.setattr(predicting, "write_frame", keeping)
    frame = pd.DataFrame(ROWS).assign(patient=["ann", "bob", "cy"]).set_index(["patient", "job"])
    found = model.predict(frame, level=0.9)
    assert found[NAMES].to_numpy().tolist() == figures(model)
    assert list(found.index.names) == ["patient", "job"]
    assert b"age" in sent[0]
    assert b"patient" not in sent[0]
    assert b"ann" not in sent[0]


def test_mistakes_in_a_frame_are_named(model: Model) -> None:
    done = model.predict(pd.DataFrame(ROWS))
    with pytest.raises(ValueError, match="a column `predicted_probability`"):
        model.predict(done)
    with pytest.raises(ValueError, match="as the model does: age, job"):
        model.predict(pd.DataFrame({"w": [1]}))
    with pytest.raises(FarthingError, match="no column `age`"):
        model.predict(pd.DataFrame({"job": ["a"]}))
    with pytest.raises(FarthingError, match="at least one row"):
        model.predict(pd.DataFrame(ROWS).iloc[:0])


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrows"])
def test_a_file_is_written_beside_its_rows(model: Model, tmp_path: Path, ending: str) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / f"out{ending}"
    pd.DataFrame(ROWS).assign(id=["x", "y", "z"]).to_csv(rows, index=False)
    model.predict_file(rows, out, level=0.9)
    if ending == ".csv":
        found = pd.read_csv(out)
    else:
        found = (
            pq.read_table(out) if ending == ".parquet" else pa.ipc.open_stream(out.read_bytes()).read_all()
        ).to_pandas()
    assert list(found) == ["age", "job", "id", *NAMES]
    assert found[NAMES].to_numpy().tolist() == figures(model)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([rows.name, out.name])


def test_an_open_file_takes_csv(model: Model, tmp_path: Path) -> None:
    rows, sink = tmp_path / "rows.parquet", io.BytesIO()
    pd.DataFrame(ROWS).to_parquet(rows)
    model.predict_file(rows, sink)
    assert sink.getvalue().splitlines()[0] == b"age,job,predicted_probability"


def test_mistakes_about_files_are_named_and_leave_nothing(model: Model, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("age,job\nold,b\n")
    for out, said in ((rows, "take the place"), (tmp_path / "out.xlsx", "an answer ends in one of")):
        with pytest.raises(ValueError, match=said):
            model.predict_file(rows, out)
    with pytest.raises(ValueError, match="a file of rows ends in one of"):
        model.predict_file(tmp_path / "rows.xlsx", tmp_path / "out.csv")
    with pytest.raises(FarthingError, match="/rows/0/age"):
        model.predict_file(rows, tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == [rows]


def test_the_client_imports_none_of_these_libraries() -> None:
    code = "import farthing, sys; farthing.Client, farthing.models.Model\n"
    code += "print(sorted({'numpy', 'pandas', 'polars', 'pyarrow', 'narwhals'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
