"""The files that one job of noisy gradient descent passes, and that the architecture page names them in their order.

The job is the service's second, so that what a process does once is done. Files are those of functions that are called
from its submission to its end, also by beats and sweeps meanwhile. The ceilings may only fall.
"""

import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.embedded import ROOT, Embedded, embedded

MOST_FILES, MOST_TRAINER_FILES = 200, 122
"""A few more than was measured: a job meets more sweeps and beats in one run than in another."""
NAMED = re.compile(r"`([\w/]+\.py)`(?: \(((?:`[\w.]+`(?:, )?)+)\))?")
PAGE = ROOT / "docs" / "explanation" / "architecture.md"


@dataclass(frozen=True)
class Call:
    """The first call of a function in a process."""

    process: int
    file: str
    function: str


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """The calls of one job, in order."""
    home = tmp_path_factory.mktemp("traced")
    log = home / "calls"
    environment = {
        "PYTHONPATH": f"{ROOT / 'tests' / 'support' / 'traced'}:{ROOT}",
        "TRACED": str(log),
        "TRACED_ROOT": str(ROOT),
    }
    with embedded(home / "home", observed=environment) as service:
        dataset = service.upload()
        assert run(service, dataset, mu="0.2") == "succeeded"
        settle(service)
        log.write_bytes(b"")
        assert run(service, dataset, mu="0.21") == "succeeded"
        lines = log.read_text().splitlines()
    parts = (line.split("\t") for line in lines)
    return [Call(int(process), file, function) for process, file, function in parts]


def run(service: Embedded, dataset: str, mu: str) -> str:
    """Submit a job and return how it ended."""
    job = service.submit(dataset, optimizer={"kind": "noisy_gd"}, privacy={"mu": mu})
    service.http.get(f"/v1/jobs/{job}", headers={"Prefer": "wait=30"})
    return str(service.wait(job)["state"])


def settle(service: Embedded) -> None:
    """Let the service's processes end what they do, and forget what was called."""
    time.sleep(3)
    for process in psutil.Process(service.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            process.send_signal(signal.SIGUSR1)
    time.sleep(1)


def files(calls: list[Call]) -> set[str]:
    """Return the files of calls."""
    return {call.file for call in calls}


def test_a_job_passes_few_files(calls: list[Call]) -> None:
    trainer = next(call.process for call in calls if call.file == "workers/trainer.py")
    of_trainer = files([call for call in calls if call.process == trainer])
    assert len(files(calls)) <= MOST_FILES, sorted(files(calls))
    assert len(of_trainer) <= MOST_TRAINER_FILES, sorted(of_trainer)


def rows(page: Path) -> list[list[tuple[str, frozenset[str]]]]:
    """Return the files, with functions or classes, that each row of the page's table of a job names.

    Left out are those of the SDK, which posts no job here, and files without functions.
    """
    table = page.read_text().split("## A job, in order")[1].split("\n## ")[0]
    found = [NAMED.findall(line) for line in table.splitlines() if line.startswith("| ")]
    return [
        [(file, frozenset(re.findall(r"[\w.]+", names))) for file, names in row if is_called(file)]
        for row in found
        if row
    ]


def is_called(file: str) -> bool:
    """Say whether a job may call something in a file."""
    return not file.startswith("farthing/") and "def " in (ROOT / file).read_text()


def test_the_page_names_files_in_the_order_of_a_job(calls: list[Call]) -> None:
    named = rows(PAGE)
    assert {file for row in named for file, _ in row} - files(calls) == set()
    known, places = set[str](), list[tuple[int, str]]()
    for row in named:
        fresh = {file: names for file, names in row if file not in known}
        known.update(fresh)
        passed = (
            (place, call.file)
            for place, call in enumerate(calls)
            if any(f".{name}." in f".{call.function}." for name in fresh.get(call.file, ()))
        )
        places += [first] if (first := next(passed, None)) else []
    assert len(places) > 12
    assert places == sorted(places)
