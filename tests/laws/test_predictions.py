"""A file of rows is predicted as the same rows in JSON are: for every kind of model, to the last bit."""

import base64
import io
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from core.data.columns import BinaryColumn, CategoryColumn, Column, DateColumn, IntegerColumn, NumberColumn
from core.data.dates import parse_date
from core.inference import network_predictions, predictions
from core.inference.network import ReleasedNetwork, Training
from core.inference.released import Released
from core.losses.categorical import Brier, Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.phase import SmoothPhase
from core.losses.robust import Huber
from core.losses.squares import SineLink
from core.models.design import make_design
from core.models.kinds import LinearModel, LogisticModel, MultinomialModel, PhaseRetrievalModel, PoissonModel
from core.models.network.model import NetworkModel
from core.planning.networks import fill_network
from core.records.answering import Kind, Media, RowsToPredict
from core.records.decoding.decode import Limits
from core.records.predicting import predict_file
from tests.inference.test_network_graph import CLASSES, CONV, END, IMAGE, TOKENS
from tests.inference.test_network_graph import made as network_of
from tests.support.released import UNTOUCHED, checked, released, rows_of, spread
from tests.support.sealed import seal

DAY = date(2020, 1, 1)
COLUMNS: tuple[Column, ...] = (
    NumberColumn(name="age", lower=20, upper=80, missing=("-9",), fill=50.5),
    IntegerColumn(name="visits", lower=0, upper=40),
    DateColumn(name="since", lower=DAY, upper=date(2026, 1, 1), formats=("%d.%m.%Y",)),
    CategoryColumn(name="job", values=("a", "b", "c"), other="c"),
    CategoryColumn(name="town", values=("x", "y"), fill="y", fold_case=True, aliases={"x": ("ex", "ecks")}),
    BinaryColumn(name="y", values=("no", "yes")),
    NumberColumn(name="years", lower=0.5, upper=9),
    NumberColumn(name="spent", lower=-100, upper=300),
    IntegerColumn(name="count", lower=0, upper=60),
)
PLAIN = {"features": ("age", "visits", "since", "job", "town", "y")}
TERMS: dict[str, Any] = {"features": ("age", "job"), "interactions": (("age", "job"), ("visits", "town", "y"))}
LOGISTIC = {"features": ("age", "visits", "since", "job", "town")}
REGRESSIONS: dict[str, tuple[Any, Any]] = {
    "logistic": (LogisticModel(target="y", **LOGISTIC), Logistic()),
    "brier": (LogisticModel(target="y", intercept=False, **LOGISTIC), Brier()),
    "linear": (LinearModel(target="spent", **PLAIN), Huber(c=1.345, scale=20.0)),
    "linear with terms": (LinearModel(target="spent", offset="years", **TERMS), Huber(c=1.345, scale=20.0)),
    "sine": (LinearModel(target="spent", **PLAIN), SineLink(amplitude=0.5)),
    "poisson": (PoissonModel(target="count", exposure="years", **PLAIN), Poisson(cap=60.0)),
    "multinomial": (MultinomialModel(target="job", features=("age", "since", "town", "y")), Multinomial(classes=3)),
    "phase": (PhaseRetrievalModel(target="count", intercept=False, **PLAIN), SmoothPhase(cap=60)),
}
COVERED = {"logistic", "brier", "linear", "linear with terms", "poisson", "multinomial"}


def regression(name: str) -> Released:
    """Return a model with parameters drawn at random, and a covariance where its kind has one."""
    model, loss = REGRESSIONS[name]
    design = make_design(COLUMNS, model)
    size = design.dimension * (2 if name == "multinomial" else 1)
    theta = tuple(np.random.default_rng(1).normal(0, 0.4, size).tolist())
    covariance = rows_of(spread(size)) if name in COVERED else None
    return released(
        kind=model.kind, target=model.target, design=design, theta=theta, loss=loss, covariance=covariance,
        flags=UNTOUCHED,
    )  # fmt: skip


def rows(count: int = 1000) -> list[dict[str, Any]]:
    """Return rows with every oddity that still means something, as texts and as values."""
    draw = np.random.default_rng(2)
    ages = [*draw.uniform(0, 100, count - 6).tolist(), None, -9, "", " 41.5 ", "4e1", "-9"]
    jobs = [*draw.choice(["a", "b", "c", "d"], count - 3).tolist(), " a ", "b", "unheard of"]
    return [
        {
            "id": f"r{place}",
            "age": ages[place],
            "visits": float(draw.normal(20, 20)),
            "since": (DAY + timedelta(days=int(draw.integers(-400, 2600)))).strftime(
                "%d.%m.%Y" if place % 2 else "%Y-%m-%d"
            ),
            "job": jobs[place],
            "town": str(draw.choice(["x", "Y", "", "Ecks"])),
            "y": str(draw.choice(["no", "yes"])),
            "years": float(draw.uniform(0.1, 12)),
        }
        for place in range(count)
    ]


def as_file(table: pa.Table, media: Media) -> bytes:
    sink = io.BytesIO()
    if media == "csv":
        pacsv.write_csv(table, sink)
    elif media == "parquet":
        pq.write_table(table, sink, row_group_size=300)
    else:
        new = pa.ipc.new_stream if media == "arrow-stream" else pa.ipc.new_file
        with new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=170)
    return sink.getvalue()


def read(content: bytes, kind: Kind) -> pa.Table:
    if kind == "csv":
        return pacsv.read_csv(io.BytesIO(content))
    return pq.read_table(io.BytesIO(content)) if kind == "parquet" else pa.ipc.open_stream(content).read_all()


def predicted(
    folder: Path,
    model: Released | ReleasedNetwork,
    content: bytes,
    media: Media,
    kind: Kind,
    level: float | None,
    name: str = "m",
) -> pa.Table:
    """Return the answer to a file, made in this process."""
    target = seal(folder / "answer", b"")
    target.path.unlink()
    request = RowsToPredict(
        source=seal(folder / "rows", content), target=target, media=media, kind=kind, model=name,
        released=model.model_dump(mode="json"), level=level, limits=Limits(), answer_bytes=2**30,
    )  # fmt: skip
    predict_file(request)
    with target.open() as file:
        return read(file.read(), kind)


def flat(one: dict[str, Any]) -> dict[str, float]:
    """Return a prediction of the JSON answer by the names of a file's columns."""
    found: dict[str, float] = {}
    for name, value in one.items():
        if name == "interval":
            found |= {"predicted_lower": value[0], "predicted_upper": value[1]}
        elif name == "intervals":
            for key, (low, high) in value.items():
                found |= {f"predicted_lower[{key}]": low, f"predicted_upper[{key}]": high}
        elif isinstance(value, dict):
            found |= {f"predicted_{name}[{key}]": figure for key, figure in value.items()}
        else:
            found[f"predicted_{name}"] = value
    return found


def agree(table: pa.Table, told: list[dict[str, Any]], own: list[str]) -> None:
    """Compare all figures, bit for bit; the file's own columns stand before them."""
    expected = [flat(one) for one in told]
    assert table.column_names[: len(own)] == own
    assert set(table.column_names[len(own) :]) == set(expected[0])
    for name in expected[0]:
        figures = table[name].to_numpy()
        assert np.array_equal(figures, np.array([one[name] for one in expected], dtype=figures.dtype)), name


@pytest.mark.parametrize("name", REGRESSIONS)
@pytest.mark.parametrize(("media", "kind"), [("csv", "csv"), ("arrow-stream", "parquet"), ("parquet", "arrow-stream")])
def test_a_file_has_the_figures_of_json(name: str, media: Media, kind: Kind, tmp_path: Path) -> None:
    model, level = regression(name), 0.9 if name in COVERED else None
    given = rows()
    texts = [{key: "" if value is None else str(value) for key, value in row.items()} for row in given]
    table = pa.Table.from_pylist(texts)
    if media != "csv":  # there a number is no text
        given = [row | {"age": row["age"] if isinstance(row["age"], float) else None} for row in given]
    if media != "csv":  # numbers, dates and categories of their own types
        for column, kept in (
            ("age", pa.float64()),
            ("visits", pa.float64()),
            ("years", pa.float64()),
            ("since", pa.date32()),
            ("town", pa.dictionary(pa.int8(), pa.string())),
        ):
            place = table.column_names.index(column)
            values = [parse_date(row[column], ("%d.%m.%Y",)) if column == "since" else row[column] for row in given]
            cells = pa.array(values).cast(kept) if column != "town" else pa.array(values).dictionary_encode()
            table = table.set_column(place, column, cells)
    found = predicted(tmp_path, model, as_file(table, media), media, kind, level)
    agree(found, predictions.predict(model, given, level), table.column_names)
    # Ten rows alone have the same figures as within a thousand.
    agree(found.slice(990), predictions.predict(model, given[990:], level), table.column_names)
    assert found["id"].to_pylist() == [row["id"] for row in given]


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow-stream"])
def test_a_file_has_the_flags_of_json(kind: Kind, tmp_path: Path) -> None:
    """`job` has three values: its second indicator is flagged, and moves the rows of that value alone."""
    model = checked("logistic", job=("too few events",), flagged={3: ("not identified",)})
    table = pa.table({"age": [30.0, 40.0, 50.0], "job": ["a", "b", "c"]})
    found = predicted(tmp_path, model, as_file(table, "parquet"), "parquet", kind, None)
    told = predictions.predict(model, table.to_pylist())
    assert [one.get("flags") for one in told] == [None, None, ["job[c]: not identified"]]
    texts = ["too few events", "too few events", "too few events; job[c]: not identified"]
    assert found["predicted_flags"].to_pylist() == texts
    assert found["predicted_probability"].to_pylist() == [one["probability"] for one in told]


def network(of: dict[str, Any], layers: list[dict[str, Any]], target: dict[str, Any]) -> ReleasedNetwork:
    model, design, tensors = network_of(of, layers, target)
    return _network(model, design, np.concatenate([one.reshape(-1) for one in tensors.values()]))


def _network(model: NetworkModel, design: Any, flat_parameters: np.ndarray[Any, Any]) -> ReleasedNetwork:
    training = Training(batch=None, rate=None, sigma=None, clip=1.0, settings={})
    return ReleasedNetwork(
        target=model.target, optimizer="dp_adam", units=10, steps=1, status="finished", design=design, model=model,
        training=training, privacy=released().privacy,
        parameters=base64.b64encode(flat_parameters.astype("<f4").tobytes()).decode(),
    )  # fmt: skip


def near(table: pa.Table, told: list[dict[str, Any]]) -> None:
    """Compare figures of networks, in single precision: a product's kernel depends on the number of rows."""
    for name in flat(told[0]):
        expected = np.array([flat(one)[name] for one in told], dtype=np.float32)
        np.testing.assert_allclose(table[name].to_numpy(), expected, rtol=4e-6, atol=1e-7)


@pytest.mark.parametrize("column", [IMAGE, TOKENS], ids=["image", "tokens"])
def test_arrays_have_the_figures_of_json(column: dict[str, Any], tmp_path: Path) -> None:
    layers = [{"kind": "embedding", "tokens": 11, "width": 4}, *END] if column is TOKENS else [CONV, *END]
    model = network(column, layers, CLASSES)
    draw = np.random.default_rng(3)
    values = draw.uniform(-4, 12, (150, int(np.prod(column["shape"])))).tolist()
    table = pa.table({"id": list(range(150)), "x": values})
    found = predicted(tmp_path, model, as_file(table, "parquet"), "parquet", "arrow-stream", None, str(column["shape"]))
    near(found, network_predictions.predict(str(column["shape"]), model, [{"x": one} for one in values]))
    assert found["x"].to_pylist() == values


@pytest.mark.parametrize("target", ["y", "spent"])
def test_networks_on_columns_have_the_figures_of_json(target: str, tmp_path: Path) -> None:
    units = 2 if target == "y" else 1
    layers = [{"kind": "linear", "units": 5}, {"kind": "activation", "of": "tanh"}, {"kind": "linear", "units": units}]
    features = tuple(name for name in PLAIN["features"] if name != target)
    asked = NetworkModel.model_validate({"kind": "network", "target": target, "features": features, "layers": layers})
    design = make_design(COLUMNS, asked)
    size = (design.dimension + 1) * 5 + 6 * units
    model = _network(fill_network(asked, design), design, np.random.default_rng(4).normal(0, 0.5, size))
    given = rows(200)
    table = pa.Table.from_pylist([{key: "" if at is None else str(at) for key, at in row.items()} for row in given])
    found = predicted(tmp_path, model, as_file(table, "csv"), "csv", "csv", None, target)
    near(found, network_predictions.predict(target, model, given))
