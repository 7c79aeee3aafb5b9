"""Arrays: for any file, a record's numbers come back as they were declared, or the record counts as excluded."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from core.base.errors import Invalid, TooLarge
from core.data.columns import Column, Columns
from core.models.design import make_design
from core.models.network.layers import Linear
from core.models.network.model import NetworkModel
from core.records.decoding.decode import Decoded, Limits, decode
from core.records.decoding.mock import mock_rows
from core.records.decoding.validation import ColumnReport
from core.records.encryption import SealedFile
from core.records.records import Encoded, read_records
from tests.support.arrays import arrow, lists, npz, parquet
from tests.support.sealed import seal

LABEL = {"type": "category", "name": "label", "values": ["0", "1", "2"]}
IMAGE = {"type": "array", "name": "image", "shape": [1, 2, 3], "lower": 0, "upper": 255}
SIGNAL = {"type": "array", "name": "signal", "shape": [4], "lower": -1.5, "upper": 2}
WORDS = {"type": "array", "name": "words", "shape": [3], "of": "token", "lower": 0, "upper": 99}


def declared(*columns: dict[str, Any]) -> tuple[Column, ...]:
    return TypeAdapter(Columns).validate_python(columns)


def stored(folder: Path, content: bytes, columns: tuple[Column, ...], **limits: Any) -> tuple[Decoded, SealedFile]:
    """Decode in this process, as the child does."""
    target = SealedFile(path=folder / "decoded", context="ds_1")
    target.path.unlink(missing_ok=True)
    return decode(seal(folder / "source", content), target, columns, limits=Limits(**limits), media=None), target


def kept(file: SealedFile) -> pa.Table:
    with file.open() as content:
        return pa.ipc.open_file(pa.PythonFile(content, "r")).read_all()


def encoded(file: SealedFile, columns: tuple[Column, ...], feature: str, rows: range | None = None) -> Encoded:
    model = NetworkModel(target="label", features=(feature,), layers=(Linear(units=3),))
    with file.open() as content:
        return read_records(content, make_design(columns, model), rows)


def report_of(decoded: Decoded, name: str) -> dict[str, int]:
    (found,) = (column for column in decoded.report.columns if column.name == name)
    return {key: value for key, value in found if value and key != "name"}


PIXELS = np.arange(5 * 6, dtype=np.uint8).reshape(5, 1, 2, 3) * 8
LABELS = ["0", "1", "2", "1", "0"]
IMAGES = declared(IMAGE, LABEL)
NESTED, FLAT = PIXELS.tolist(), PIXELS.reshape(5, 6).tolist()
SQUEEZED = PIXELS.reshape(5, 2, 3).tolist()
BYTE = pa.uint8()
WAYS = {
    "npz": npz(image=PIXELS, label=np.array(LABELS)),
    "npz, stored": npz(image=PIXELS, label=np.array(LABELS), compressed=False),
    "npz, flat": npz(image=PIXELS.reshape(5, 6), label=np.array(LABELS)),
    "npz, without the channel": npz(image=PIXELS.reshape(5, 2, 3), label=np.array(LABELS)),
    "npz, wide numbers": npz(image=PIXELS.astype(np.int64), label=np.arange(5) % 3 - np.array([0, 0, 0, -1, 1])),
    "npz, the other byte order": npz(image=PIXELS.astype(">i2"), label=np.array(LABELS, dtype=">U3")),
    **{
        f"{write.__name__}, {name}": write(pa.table({"image": cells, "label": LABELS}))
        for write in (parquet, arrow)
        for name, cells in {
            "nested": lists(NESTED, BYTE, 0, 0, 0),
            "nested, of fixed sizes": lists(NESTED, pa.int32(), 1, 2, 3),
            "some sizes fixed": lists(SQUEEZED, BYTE, 0, 3),
            "flat": lists(FLAT, pa.uint16(), 0),
            "flat, of a fixed size": lists(FLAT, BYTE, 6),
            "large lists": pa.array(FLAT, pa.large_list(BYTE)),
        }.items()
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_however_images_are_written_they_come_back_as_bytes(tmp_path: Path, way: str) -> None:
    decoded, file = stored(tmp_path, WAYS[way], IMAGES)
    assert (decoded.rows, decoded.report.incomplete_rows) == (5, 0)
    assert kept(file).schema.field("image").type == pa.list_(pa.uint8(), 6)
    assert kept(file)["image"].to_pylist() == FLAT
    found = encoded(file, IMAGES, "image")
    assert (found.features.dtype, found.features.shape) == (np.float32, (5, 6))
    wanted = (PIXELS.reshape(5, 6).astype(np.float32) - np.float32(127.5)) / np.float32(127.5)
    assert (found.features == wanted).all()
    assert found.target.tolist() == [0, 1, 2, 1, 0]
    assert found.present.all()


@pytest.mark.parametrize("way", ["npz", "parquet", "arrow"])
def test_floats_are_kept_in_single_precision(tmp_path: Path, way: str) -> None:
    pixels = PIXELS.reshape(5, 6) + 0.25
    table = pa.table({"image": lists(pixels.tolist(), pa.float64(), 0), "label": LABELS})
    content = {"npz": npz(image=pixels, label=LABELS), "parquet": parquet(table), "arrow": arrow(table)}[way]
    _, file = stored(tmp_path, content, IMAGES)
    assert kept(file).schema.field("image").type == pa.list_(pa.float32(), 6)
    assert kept(file)["image"].to_pylist() == pixels.tolist()


def test_how_arrays_are_kept_depends_on_no_value(tmp_path: Path) -> None:
    """Whole numbers in a file of floats: one record that is not whole would make all the others four times as long."""
    sizes = []
    for last in (7.0, 7.5, math.nan):
        pixels = np.full((5, 6), 7.0)
        pixels[-1, -1] = last
        decoded, _ = stored(tmp_path, npz(image=pixels, label=LABELS), IMAGES)
        sizes.append(decoded.bytes)
    assert sizes == [sizes[0], sizes[0], sizes[0] + 8]  # the bits that tell which arrays are missing


def test_the_report_counts_arrays_and_what_is_wrong_is_missing(tmp_path: Path) -> None:
    columns = declared({**SIGNAL, "missing": [-1]}, LABEL)
    signals = [
        [0.0, 1.0, 2.0, -1.5],
        [0.0, 9.0, -9.0, 0.0],
        [0.0, 9.0, 9.0, 0.0],
        None,
        [0.0, 1.0, 2.0],
        [0.0, 1.0, 2.0, 1.0, 1.0],
        [],
        [0.0, None, 2.0, 1.0],
        [0.0, math.nan, 2.0, 1.0],
        [0.0, math.inf, 2.0, 1.0],
        [0.0, -1.0, 2.0, 1.0],
    ]
    table = pa.table({"signal": lists(signals, pa.float64(), 0), "label": ["1"] * len(signals)})
    decoded, file = stored(tmp_path, parquet(table), columns)
    assert report_of(decoded, "signal") == {"clamped_low": 1, "clamped_high": 2, "unreadable": 6, "missing": 8}
    assert decoded.report.incomplete_rows == 8
    assert kept(file)["signal"].to_pylist() == [
        [0.0, 1.0, 2.0, -1.5],
        [0.0, 2.0, -1.5, 0.0],
        [0.0, 2.0, 2.0, 0.0],
        *[None] * 8,
    ]
    found = encoded(file, columns, "signal")
    assert found.present.tolist() == [True] * 3 + [False] * 8
    assert not found.features[3:].any()
    assert found.target.tolist() == [1] * 3 + [0] * 8


def test_a_list_of_a_wrong_length_inside_an_array_makes_that_array_missing(tmp_path: Path) -> None:
    images: list[Any] = [[[[1, 2, 3], [4, 5, 6]]], [[[1, 2, 3], [4, 5]]], [[[1, 2, 3]]], [[[1, 2, 3], None]], [None]]
    table = pa.table({"image": lists(images, BYTE, 0, 0, 0), "label": LABELS})
    decoded, file = stored(tmp_path, arrow(table), IMAGES)
    assert kept(file)["image"].to_pylist() == [[1, 2, 3, 4, 5, 6], None, None, None, None]
    assert report_of(decoded, "image") == {"unreadable": 4, "missing": 4}


def test_tokens_are_rounded_clamped_and_never_scaled(tmp_path: Path) -> None:
    columns = declared(WORDS, LABEL)
    words = np.array([[1.0, 2.0, 3.0], [1.4, 2.0, 99.0], [-5.0, 0.0, 0.0], [100.2, 0.0, 0.0], [0, math.nan, 0]])
    decoded, file = stored(tmp_path, npz(words=words, label=LABELS), columns)
    assert report_of(decoded, "words") == {
        "rounded": 1,
        "clamped_low": 1,
        "clamped_high": 1,
        "unreadable": 1,
        "missing": 1,
    }
    found = encoded(file, columns, "words")
    assert found.features.dtype == np.int32
    assert found.features.tolist() == [[1, 2, 3], [1, 2, 99], [0, 0, 0], [99, 0, 0], [0, 0, 0]]


def test_a_column_of_nulls_is_missing_throughout(tmp_path: Path) -> None:
    table = pa.table({"image": pa.nulls(5), "label": LABELS})
    decoded, file = stored(tmp_path, arrow(table), IMAGES)
    assert report_of(decoded, "image") == {"missing": 5}
    assert not encoded(file, IMAGES, "image").present.any()


entries = st.integers(-(2**63), 2**63 - 1) | st.floats(width=64)
ragged = st.none() | st.lists(st.none() | entries, min_size=2, max_size=5)


@given(signals=st.lists(ragged, min_size=1, max_size=20))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_list_fails_and_each_means_what_was_declared(tmp_path: Path, signals: list[Any]) -> None:
    floats = [None if one is None else [None if x is None else float(x) for x in one] for one in signals]
    columns = declared({**SIGNAL, "missing": [1]}, LABEL)
    table = pa.table({"signal": lists(floats, pa.float64(), 0), "label": ["0"] * len(floats)})
    decoded, file = stored(tmp_path, arrow(table), columns)

    def meaning(one: list[float | None] | None) -> list[float] | None:
        if one is None or len(one) != 4:
            return None
        known = [x for x in one if x is not None and math.isfinite(x) and x != 1]
        return [float(np.float32(min(max(x, -1.5), 2.0))) for x in known] if len(known) == 4 else None

    wanted = [meaning(one) for one in floats]
    assert kept(file)["signal"].to_pylist() == wanted
    assert report_of(decoded, "signal").get("missing", 0) == wanted.count(None)


class TestManyRows:
    """More than one batch, of the upload and of the canonical file."""

    columns = declared({**IMAGE, "shape": [28, 28]}, LABEL)
    rows = 25_000

    @pytest.mark.parametrize("way", ["npz", "parquet"])
    def test_rows_keep_their_order_and_a_run_of_them_is_those_of_all(self, tmp_path: Path, way: str) -> None:
        pixels = np.random.default_rng(1).integers(0, 256, (self.rows, 28, 28), dtype=np.uint8)
        labels = np.arange(self.rows) % 3
        if way == "npz":
            content = npz(image=pixels, label=labels, compressed=False)
        else:
            flat = pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), 784)
            content = parquet(pa.table({"image": flat, "label": labels}), compression=None)
        decoded, file = stored(tmp_path, content, self.columns)
        assert decoded.rows == self.rows
        assert decoded.bytes < 1.01 * pixels.nbytes + 5 * self.rows
        whole = encoded(file, self.columns, "image")
        assert (np.rint(whole.features * 127.5 + 127.5).astype(np.uint8) == pixels.reshape(-1, 784)).all()
        assert (whole.target == labels).all()
        assert whole.features.ctypes.data % 64 == 0
        some = range(7_000, 23_456)
        run = encoded(file, self.columns, "image", some)
        assert (run.features == whole.features[7_000:23_456]).all()
        assert (run.target == whole.target[7_000:23_456]).all()


class TestCaps:
    def test_each_number_of_an_array_is_a_cell(self, tmp_path: Path) -> None:
        stored(tmp_path, WAYS["npz"], IMAGES, cells=5 * 7)
        for way in ("npz", "parquet, flat", "arrow, nested"):
            with pytest.raises(TooLarge):
                stored(tmp_path, WAYS[way], IMAGES, cells=5 * 7 - 1)
            with pytest.raises(TooLarge):
                stored(tmp_path, WAYS[way], IMAGES, rows=4)

    def test_nulls_of_large_arrays_are_no_small_file(self, tmp_path: Path) -> None:
        """A null takes as much room as an array once it is kept."""
        columns = declared({**IMAGE, "shape": [1000, 1000]}, LABEL)
        table = pa.table({"image": pa.nulls(150), "label": ["0"] * 150})
        with pytest.raises(TooLarge):
            stored(tmp_path, arrow(table), columns)

    def test_lists_that_are_longer_than_declared_count_as_they_are(self, tmp_path: Path) -> None:
        long = pa.ListArray.from_arrays([0, 3_000_000], pa.array(np.zeros(3_000_000, np.uint8)))
        table = pa.table({"image": long, "label": ["0"]})
        with pytest.raises(TooLarge):
            stored(tmp_path, parquet(table, compression="zstd"), IMAGES, cells=2_000_000)


@pytest.mark.parametrize(
    ("cells", "pointer"),
    [
        (pa.array(["x"] * 5), "/columns/0/type"),
        (pa.array([1] * 5), "/columns/0/type"),
        (lists([["a"] * 6] * 5, pa.string(), 0), "/columns/0/type"),
        (lists([[1] * 7] * 5, BYTE, 7), "/columns/0/type"),
        (lists([[[1] * 3] * 3] * 5, BYTE, 3, 3), "/columns/0/type"),
        (lists([[[[[1]]]]] * 5, BYTE, 0, 0, 0, 0), "/columns/0/type"),
        (pa.array([[{"a": 1}]] * 5), "/columns/0/type"),
        (pa.array([["x"] * 6] * 5).cast(pa.list_(pa.binary())), "/columns/0/type"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.type)[:30],
)
@pytest.mark.parametrize("write", [parquet, arrow])
def test_types_that_hold_no_such_arrays_are_refused(tmp_path: Path, write: Any, cells: pa.Array, pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        stored(tmp_path, write(pa.table({"image": cells, "label": LABELS})), IMAGES)
    assert [field.pointer for field in refused.value.fields] == [pointer]
    assert "1x2x3" in refused.value.fields[0].detail


def test_lists_are_no_single_values(tmp_path: Path) -> None:
    table = pa.table({"image": lists(FLAT, BYTE, 6), "label": [[0]] * 5})
    with pytest.raises(Invalid) as refused:
        stored(tmp_path, arrow(table), IMAGES)
    assert [field.pointer for field in refused.value.fields] == ["/columns/1/type"]


def test_csv_refuses_arrays_by_name(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        stored(tmp_path, b"image,label\n1,0\n", IMAGES)
    assert [field.pointer for field in refused.value.fields] == ["/columns/0/type"]
    assert "NPZ" in refused.value.fields[0].detail


def test_mock_rows_are_arrays_of_the_declared_shape_that_can_be_uploaded(tmp_path: Path) -> None:
    columns = declared(IMAGE, SIGNAL, WORDS, LABEL)
    rows = list(mock_rows(columns, 50))
    assert rows == list(mock_rows(columns, 50))
    assert rows != list(mock_rows(columns, 50, seed=1))
    assert np.shape(rows[0]["image"]) == (1, 2, 3)
    decoded, _ = stored(tmp_path, parquet(pa.Table.from_pylist(rows)), columns)
    for column in decoded.report.columns:
        assert column == ColumnReport(name=column.name)
    tokens = np.array([row["words"] for row in rows])
    assert tokens.min() >= 0
    assert tokens.max() <= 99
    assert len(np.unique(tokens)) > 50
