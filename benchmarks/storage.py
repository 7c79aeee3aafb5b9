"""Reading a stored dataset of 250 MB into a trainer's arrays, encrypted and plain: `python -m benchmarks.storage`.

581,012 x 54 columns, in batches of 8 MB as the decoder writes them, are read by `read_records` as a trainer does. Each
read has a fresh process, the three kinds in turn. Figures are CPU seconds from the kernel's cache, the median of five.
Plain files are compared with their digest before they are used, as records stored before there was encryption are;
encrypted ones are checked frame by frame as they are read. The targets: encrypted takes at most 1.5 times as long as
plain without any check, and its peak memory above an idle process is at most 1.5 times the encoded data plus 100 MB.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from benchmarks.memory import allowed_bytes, peak_bytes
from core.base.files import digest_of
from core.data.columns import Columns
from core.models.design import make_design
from core.models.kinds import LogisticModel
from core.records.encryption import SealedFile
from core.records.records import read_records

ROWS, NUMBERS, ROUNDS = 581_012, 53, 5
BATCH_ROWS = 2**20 // (NUMBERS + 1)
KINDS = ("plain", "plain and digest", "encrypted")
TARGET_OF_PLAIN = 1.5
COLUMNS = TypeAdapter(Columns).validate_python(
    [
        *({"type": "number", "name": f"x{place}", "lower": -9, "upper": 9} for place in range(NUMBERS)),
        {"type": "binary", "name": "y", "values": ["no", "yes"]},
    ]
)


def batches() -> Iterator[pa.RecordBatch]:
    """Yield the dataset as the decoder would write it."""
    draws = np.random.default_rng(1)
    names = [column.name for column in COLUMNS]
    for start in range(0, ROWS, BATCH_ROWS):
        rows = min(BATCH_ROWS, ROWS - start)
        numbers = [pa.array(draws.standard_normal(rows)) for _ in range(NUMBERS)]
        yield pa.record_batch([*numbers, pa.array(draws.integers(0, 2, rows, dtype=np.int8))], names=names)


def write(folder: Path) -> None:
    """Write the dataset, plain and encrypted."""
    sealed = SealedFile(path=folder / "sealed", context="ds_benchmark")
    first = next(batches())
    with (
        pa.OSFile(str(folder / "plain"), "wb") as plain,
        sealed.writing() as sink,
        pa.ipc.new_file(plain, first.schema) as one,
        pa.ipc.new_file(pa.PythonFile(sink, "w"), first.schema) as two,
    ):
        for batch in batches():
            one.write_batch(batch)
            two.write_batch(batch)
    (folder / "sealed.json").write_text(sealed.model_dump_json())


def read(folder: Path, kind: str) -> dict[str, float]:
    """Read it once in this process; return the seconds, the encoded bytes and the peak above what was there before."""
    design = make_design(COLUMNS, LogisticModel(target="y"))
    idle = peak_bytes()
    began = time.process_time()
    if kind == "encrypted":
        with SealedFile.model_validate_json((folder / "sealed.json").read_text()).open() as sealed:
            encoded = read_records(sealed, design)  # type: ignore[arg-type] # reads like one
    else:
        with (folder / "plain").open("rb", buffering=0) as file:
            if kind == "plain and digest":
                digest_of(file)
                file.seek(0)
            encoded = read_records(file, design)
    seconds = time.process_time() - began
    return {"seconds": seconds, "encoded": encoded.features.nbytes, "above_idle": peak_bytes() - idle}


def measure(folder: Path) -> dict[str, list[dict[str, float]]]:
    """Read each kind in fresh processes, in turn."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind in KINDS:
            command = [sys.executable, "-m", "benchmarks.storage", str(folder), kind]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[kind].append(json.loads(done.stdout))
    return found


def main() -> None:
    """Print the table, or, given a folder and a kind, read in this very process."""
    if len(sys.argv) > 1:
        print(json.dumps(read(Path(sys.argv[1]), sys.argv[2])))
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        size = (Path(name) / "plain").stat().st_size
        found = measure(Path(name))
    seconds = {kind: median(one["seconds"] for one in found[kind]) for kind in KINDS}
    print(f"{ROWS} x {len(COLUMNS)} columns, {size / 1e6:.0f} MB stored")
    print(f"{'':18}{'CPU s':>9}{'MB/s':>8}{'of plain':>10}{'peak above idle, MB':>21}")
    for kind in KINDS:
        peak = max(one["above_idle"] for one in found[kind])
        ratio = seconds[kind] / seconds["plain"]
        print(f"{kind:18}{seconds[kind]:9.3f}{size / 1e6 / seconds[kind]:8.0f}{ratio:10.2f}{peak / 2**20:21.0f}")
    worst = max(found["encrypted"], key=lambda one: one["above_idle"])
    allowed = allowed_bytes(int(worst["encoded"]))
    print(f"encoded {worst['encoded'] / 2**20:.0f} MB, memory target {allowed / 2**20:.0f} MB")
    if worst["above_idle"] > allowed or seconds["encrypted"] > TARGET_OF_PLAIN * seconds["plain"]:
        raise SystemExit("a target is missed")


if __name__ == "__main__":
    main()
