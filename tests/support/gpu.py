"""Laws, questions and oracles on a GPU: `python -m tests.support.gpu [PART ...]`, a line a file.

Each part takes under four minutes on 16 cores. Files that look into code of the CPU alone, such as compiled kernels and
processes that share records, are not among them.
"""

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest
import torch

PARTS: Final = {
    "sums": ("tests/queries/test_devices.py", "tests/queries/test_blocks.py", "tests/queries/test_counts.py"),
    "networks": (
        "tests/queries/network/test_sums.py::test_other_records_floats_are_the_same_whatever_one_record_says",
    ),
    "laws": ("tests/laws/test_questions.py", "tests/laws/test_hessian_questions.py"),
    "looks": (
        "tests/laws/test_look_questions.py",
        "tests/laws/test_class_questions.py",
        "tests/laws/test_table_questions.py",
        "tests/laws/test_weights.py",
    ),
    "oracles": (
        "tests/oracle/test_full.py",
        "tests/oracle/test_samples.py",
        "tests/oracle/test_gradient_answers.py",
        "tests/oracle/test_simulation.py",
    ),
}
_SECONDS: Final = 230
_ROOT: Final = Path(__file__).parents[2]
_FOUND: Final[defaultdict[str, Counter[str]]] = defaultdict(Counter)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test that has ended, by its file."""
    if report.when == "call" or report.outcome != "passed":
        _FOUND[report.nodeid.split("::")[0]][report.outcome] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line a file."""
    for file, counts in sorted(_FOUND.items()):
        words = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
        terminalreporter.write_line(f"{file}: {words}")


def run(part: str) -> int:
    """Run a part's files on the GPU, and return pytest's exit status."""
    environment = os.environ | {"FARTHING_TEST_DEVICE": "cuda", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    processes = str(max(1, (os.cpu_count() or 2) - 2))
    options = ["-q", "-p", "tests.support.gpu", "-m", "not slow and not nightly", "--tb=short"]
    options += ["-n", processes, "--dist", "worksteal", "--timeout", "120", f"--session-timeout={_SECONDS}"]
    begun = time.monotonic()
    command = [sys.executable, "-m", "pytest", *options, *PARTS[part]]
    status = subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode
    sys.stdout.write(f"{part}: status {status} after {time.monotonic() - begun:.0f} s\n")
    return status


def main(parts: list[str]) -> int:
    """Run some parts, or all of them."""
    if not torch.cuda.is_available():
        sys.stderr.write("There is no CUDA device here, so nothing was tested.\n")
        return 2
    return max(run(part) for part in parts or PARTS)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
