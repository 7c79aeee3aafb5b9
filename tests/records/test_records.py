"""Records out of storage: order, excluded rows, targets, and a file that is not the stored one."""

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from core.base.files import digest_of
from core.base.settings import ServiceSettings
from core.data.columns import Columns
from core.models.design import Design, make_design
from core.models.kinds import LinearModel, LogisticModel
from core.models.network.layers import Linear
from core.models.network.model import NetworkModel
from core.records.decoding.decode import Limits, decode
from core.records.decoding.mock import mock_rows
from core.records.decoding.removal import rewrite
from core.records.encryption import SealedFile, Tampered
from core.records.master_key import load_master_keys, make_master_key
from core.records.records import Encoded, StoredRecords, open_records, read_records
from tests.support.arrays import npz
from tests.support.mocks import mock_csv
from tests.support.sealed import seal

COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "age", "lower": 18, "upper": 95},
        {"type": "date", "name": "seen", "lower": "2003-01-01", "upper": "2006-12-31"},
        {"type": "category", "name": "job", "values": ["none", "technician", "pilot"]},
        {"type": "binary", "name": "loan", "values": ["no", "yes"]},
        {"type": "binary", "name": "y", "values": ["no", "yes"]},
    ]
)
MODELS = [
    LogisticModel(target="y"),
    LogisticModel(target="y", features=("job", "age"), intercept=False),
    LinearModel(target="age"),
]


def stored(folder: Path, text: str) -> SealedFile:
    source, target = seal(folder / "source.csv", text.encode()), SealedFile(path=folder / "rec_1", context="ds_1")
    decode(source, target, COLUMNS, limits=Limits(), media="csv")
    return target


def read(file: SealedFile, design: Design) -> Encoded:
    with file.open() as source:
        return read_records(source, design)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.target}-{model.intercept}")
def test_rows_are_encoded_as_single_rows_are(tmp_path: Path, model: Any) -> None:
    rows = list(mock_rows(COLUMNS, 700))
    file = stored(tmp_path, mock_csv(COLUMNS, 700))
    design = make_design(COLUMNS, model)
    encoded = read(file, design)
    assert encoded.features.flags.c_contiguous
    assert encoded.features.dtype == np.float64
    assert encoded.present.all()
    assert encoded.features == pytest.approx(np.array([design.encode_row(row) for row in rows]), abs=0)
    if isinstance(model, LogisticModel):
        assert encoded.target.tolist() == [float(row["y"] == "yes") for row in rows]
    else:
        ages = np.array([row["age"] for row in rows], dtype=float)
        assert encoded.target * design.target.scale + design.target.centre == pytest.approx(ages)


def test_a_row_is_null_for_the_models_that_need_what_it_lacks(tmp_path: Path) -> None:
    text = (
        "age,seen,job,loan,y\n"
        "40,2005-01-01,none,no,yes\n"
        ",2005-01-01,none,no,yes\n"
        "40,2005-01-01,none,?,yes\n"
        "40,,pilot,no,\n"
    )
    file = stored(tmp_path, text)
    whole = read(file, make_design(COLUMNS, LogisticModel(target="y")))
    assert whole.present.tolist() == [True, False, False, False]
    assert not whole.features[1:].any()
    assert whole.target.tolist() == [1, 0, 0, 0]
    assert np.isfinite(whole.features).all()
    some = read(file, make_design(COLUMNS, LogisticModel(target="y", features=("job", "age"))))
    assert some.present.tolist() == [True, False, True, False]
    other = read(file, make_design(COLUMNS, LogisticModel(target="loan", features=("job",))))
    assert other.present.tolist() == [True, True, False, True]


def test_batches_come_in_order(tmp_path: Path) -> None:
    rows = 150_000
    text = "age,seen,job,loan,y\n" + "".join(
        f"{18 + 77 * i / rows:.9f},2005-01-01,none,no,{'' if i % 1000 == 7 else 'yes'}\n" for i in range(rows)
    )
    file = stored(tmp_path, text)
    design = make_design(COLUMNS, LogisticModel(target="y", features=("age",)))
    encoded = read(file, design)
    ages = encoded.features[:, 1] * design.features[1].scale + design.features[1].centre
    assert np.flatnonzero(~encoded.present).tolist() == list(range(7, rows, 1000))
    wanted = 18 + 77 * np.arange(rows) / rows
    assert ages[encoded.present] == pytest.approx(wanted[encoded.present], abs=1e-8)


def reading(tmp_path: Path, file: SealedFile, design: Design) -> tuple[int, int]:
    """Read records in a process of their own; return by how many bytes it grew, and how many are the features'."""
    (tmp_path / "design.json").write_text(design.model_dump_json())
    (tmp_path / "file.json").write_text(file.model_dump_json())
    program = (
        "import re, sys, numpy, pyarrow.ipc\n"
        "from pathlib import Path\n"
        "from core.models.design import Design\n"
        "from core.records.encryption import SealedFile\n"
        "from core.records.records import read_records\n"
        "design = Design.model_validate_json(Path(sys.argv[2]).read_text())\n"
        "def kilobytes(name): return int(re.search(name + r':\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "idle = kilobytes('VmRSS')\n"
        "encoded = read_records(SealedFile.model_validate_json(Path(sys.argv[1]).read_text()).open(), design)\n"
        "print((kilobytes('VmHWM') - idle) * 1024, encoded.features.nbytes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "file.json", tmp_path / "design.json"],
        check=True,
        capture_output=True,
        text=True,
    )
    grown, encoded_bytes = map(int, done.stdout.split())
    return grown, encoded_bytes


def test_peak_memory_is_the_encoded_data_and_little_more(tmp_path: Path) -> None:
    file = stored(tmp_path, "age,seen,job,loan,y\n" + "40,2005-01-01,pilot,no,yes\n" * 1_000_000)
    design = make_design(COLUMNS, LogisticModel(target="y"))
    grown, encoded_bytes = reading(tmp_path, file, design)
    assert encoded_bytes == 1_000_000 * design.dimension * 8
    assert grown <= 1.5 * encoded_bytes + 64 * 2**20


def test_images_take_four_bytes_a_number_and_one_batch(tmp_path: Path) -> None:
    columns = TypeAdapter(Columns).validate_python(
        [
            {"type": "array", "name": "image", "shape": [1, 32, 64], "lower": 0, "upper": 255},
            {"type": "binary", "name": "y", "values": ["0", "1"]},
        ]
    )
    content = npz(image=np.zeros((30_000, 32, 64), dtype=np.uint8), y=np.zeros(30_000, dtype=np.uint8))
    file = SealedFile(path=tmp_path / "rec_1", context="ds_1")
    decode(seal(tmp_path / "source.npz", content), file, columns, limits=Limits(), media=None)
    design = make_design(columns, NetworkModel(target="y", layers=(Linear(units=2),)))
    grown, encoded_bytes = reading(tmp_path, file, design)
    assert encoded_bytes == 30_000 * 2048 * 4
    assert grown <= encoded_bytes + 80 * 2**20


def test_stored_records_are_read_with_the_wrapped_key_and_refused_once_a_byte_has_changed(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path)
    settings.records_path.mkdir()
    make_master_key(settings.master_key_path)
    design = make_design(COLUMNS, LogisticModel(target="y"))
    file = stored(tmp_path, mock_csv(COLUMNS, 10))
    path = settings.records_path / "rec_1"
    shutil.copy(file.path, path)
    wrapped = load_master_keys(settings).current.wrap("ds_1", file.key)
    with path.open("rb") as source:
        kept = StoredRecords("ds_1", path.name, digest_of(source), wrapped)
    with open_records(settings, kept) as source:
        assert (read_records(source, design).features == read(file, design).features).all()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Tampered), open_records(settings, kept) as source:
        read_records(source, design)


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.taken += len(content)
        return content


def batched(lengths: list[int]) -> tuple[Counted, Design]:
    """Return a canonical file of batches of these lengths."""
    columns = TypeAdapter(Columns).validate_python(
        [{"type": "number", "name": f"x{number}", "lower": -9, "upper": 9} for number in range(20)]
        + [{"type": "binary", "name": "y", "values": ["no", "yes"]}]
    )
    draws, sink = np.random.default_rng(1), io.BytesIO()
    schema = pa.schema([*((f"x{number}", pa.float64()) for number in range(20)), ("y", pa.int8())])
    with pa.ipc.new_file(sink, schema) as writer:
        for length in lengths:
            numbers = [draws.normal(size=length) for _ in range(20)]
            writer.write_batch(pa.record_batch([*numbers, draws.integers(0, 2, length).astype(np.int8)], schema=schema))
    return Counted(sink.getvalue()), make_design(columns, LogisticModel(target="y"))


@pytest.mark.parametrize("rows", [range(700), range(99, 100), range(100, 400), range(50, 650), range(700, 700)])
def test_a_run_of_rows_is_those_rows_of_all(rows: range) -> None:
    file, design = batched([100, 1, 299, 300])
    whole, run = read_records(file, design), read_records(file, design, rows)
    for name in ("features", "target", "present"):
        assert np.array_equal(getattr(run, name), getattr(whole, name)[rows.start : rows.stop])


def test_other_rows_stay_in_storage() -> None:
    """A quarter of the rows is about a quarter of the bytes, and the narrow column that tells where batches begin."""
    file, design = batched([8000] * 8)
    read_records(file, design)
    whole, file.taken = file.taken, 0
    read_records(file, design, range(16_000, 32_000))
    assert file.taken < 0.3 * whole


def test_rows_that_the_file_does_not_have_are_missed() -> None:
    file, design = batched([100, 100])
    with pytest.raises(AssertionError, match="cut short"):
        read_records(file, design, range(150, 250))


def test_arrays_begin_on_a_cache_line() -> None:
    for length in (1, 3, 17, 1000):
        file, design = batched([length])
        encoded = read_records(file, design)
        assert encoded.features.ctypes.data % 64 == encoded.target.ctypes.data % 64 == 0


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.target}-{model.intercept}")
def test_a_removed_row_is_an_excluded_one_of_every_model(tmp_path: Path, model: Any) -> None:
    file, design = stored(tmp_path, mock_csv(COLUMNS, 50)), make_design(COLUMNS, model)
    other = SealedFile(path=tmp_path / "other", context="ds_1")
    assert rewrite(file, other, 18) is not None
    before, after = read(file, design), read(other, design)
    expected = before.present.copy()
    expected[17] = False
    assert after.present.tolist() == expected.tolist()
    assert not after.features[17].any()
    assert after.target[17] == 0
    rest = np.arange(50) != 17
    assert np.array_equal(after.features[rest], before.features[rest])
    assert np.array_equal(after.target[rest], before.target[rest])
