"""Repeats a tier of the tests, some runs beside a busy loop, to see whether one fails by chance or by load.

    python -m tests.support.repeat --times 30 --busy 10 -m 'statistical and not slow' -- -n 2

The log has one line a run: the numbers of tests that passed, failed and were skipped, and the duration. It names each
failure. Exits with 1 where a run failed, or ran nothing.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]
_NOT_PASSED = {"failure", "error", "skipped"}


@dataclass(frozen=True)
class Run:
    """Counts of one run; names of what failed."""

    passed: int
    skipped: int
    failed: tuple[str, ...]
    status: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether tests ran, and none failed."""
        return self.status == 0 and self.passed > 0

    def line(self, number: int, *, cores: int) -> str:
        """Return the log's line of this run."""
        load = f"beside {cores} busy cores" if cores else "alone"
        counts = f"{self.passed} passed, {len(self.failed)} failed, {self.skipped} skipped"
        said = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} run {number} {load}: {counts}, {self.seconds:.0f} s"
        return said if self.good or self.failed else f"{said}, pytest ended with {self.status}"


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep so many cores busy for a while, by one endless loop each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def read(report: Path, status: int, seconds: float) -> Run:
    """Return what a JUnit report says of a run; nothing ran where it is missing or empty."""
    text = report.read_text() if report.exists() else ""
    cases = list(ET.fromstring(text).iter("testcase")) if text else []
    said = [{part.tag for part in case} & _NOT_PASSED for case in cases]
    failed = [
        f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
        for case, tags in zip(cases, said, strict=True)
        if tags & {"failure", "error"}
    ]
    return Run(
        sum(not tags for tags in said), sum(tags == {"skipped"} for tags in said), tuple(failed), status, seconds
    )


def run(tier: str, given: Sequence[str]) -> Run:
    """Run the tests that a marker expression selects, once.

    Args:
        tier: as of pytest's -m.
        given: further arguments for pytest.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", tier, f"--junitxml={report}", *given]
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found = read(report, done.returncode, time.monotonic() - began)
    if not found.good:
        sys.stderr.write(done.stdout[-20_000:])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Repeat a tier and return 0 where every run was good, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.repeat", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=30, help="how many runs")
    parser.add_argument("--busy", type=int, default=0, help="how many of them, the last ones, run beside busy loops")
    parser.add_argument("--cores", type=int, default=1, help="how many cores the loops keep busy")
    parser.add_argument("-m", dest="tier", required=True, help="the tier, as of pytest's -m")
    parser.add_argument("given", nargs="*", help="what else pytest is given, after --")
    asked = parser.parse_args(arguments)
    good = True
    for number in range(1, asked.times + 1):
        cores = asked.cores if number > asked.times - asked.busy else 0
        with busy(cores):
            found = run(asked.tier, asked.given)
        lines = [found.line(number, cores=cores), *(f"    failed: {name}" for name in found.failed)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        good = good and found.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
