"""Arrow without pandas: numbers come and go as they did, and nobody loads what nobody needs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PANDAS = """
raise SystemExit("loaded")
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from core.data.arrow import leave_pandas_out
if sys.argv[2] == "without":
    leave_pandas_out()
import pyarrow as pa
import pyarrow.parquet
numbers = pa.array([1.0, None, 2.0])
assert numbers.fill_null(0.0).to_numpy(zero_copy_only=False).tolist() == [1.0, 0.0, 2.0]
assert numbers.is_null().to_numpy(zero_copy_only=False).tolist() == [False, True, False]
try:
    import pandas
except ModuleNotFoundError:
    print("without")
"""


@pytest.mark.parametrize(("how", "told"), [("without", "without\n"), ("with", "")])
def test_pandas_is_loaded_only_where_it_is_not_left_out(tmp_path: Path, how: str, told: str) -> None:
    (tmp_path / "pandas.py").write_text(PANDAS)
    program = [sys.executable, "-c", PROGRAM, str(tmp_path), how]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr.strip()) == (told, "" if told else "loaded")
    assert (done.returncode == 0) is bool(told)
