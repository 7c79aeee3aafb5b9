"""Traces of a run: logs that hold nothing of the data, and after an erasure not one cell, anywhere."""

import json
import logging
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import pytest
import structlog
from sqlalchemy import select

from core.base.logs import Template, configure
from core.db.tables import Checkpoint, Dataset, Entry
from tests.support.embedded import LINEAR, START_SECONDS, Embedded, embedded
from tests.support.verified import verified

CELLS = tuple(20 + number * sqrt(2) % 70 for number in range(1, 301))
"""Ages that no other number of a run could be."""
UNKNOWN = "a-job-nobody-declared"


def csv() -> bytes:
    lines = [f"{age!r},{UNKNOWN if age < 25 else 'a'},{age / 7!r},{'yes' if age > 50 else 'no'}" for age in CELLS]
    return "\n".join(["age,job,balance,y", *lines, ""]).encode()


def cells_in(content: bytes) -> list[str]:
    """Return what of the table stands in some bytes: numbers as written or as binary, and the undeclared word."""
    found = [repr(cell) for cell in CELLS if repr(cell).encode() in content or f"{cell:.6f}".encode() in content]
    found += [f"{cell!r} in binary" for cell in CELLS if struct.pack("<d", cell) in content]
    return found + ([UNKNOWN] if UNKNOWN.encode() in content else [])


def files_under(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file())


@dataclass
class Run:
    """A service, the folder of its temporary files, what its trainer wrote to, and a dataset that it trained on."""

    service: Embedded
    temporary: Path
    writes: Path
    dataset: str
    jobs: dict[str, str]
    requests: set[str]


def until_told(log: Path, words: bytes) -> None:
    """Wait for a line: a job ends before its supervisor says so."""
    deadline = time.monotonic() + START_SECONDS
    while words not in log.read_bytes():
        assert time.monotonic() < deadline, f"nothing said {words!r}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One job that succeeds, one that is refused, one that is cancelled, and requests that are wrong."""
    folder = tmp_path_factory.mktemp("run")
    temporary, writes = folder / "tmp", folder / "writes.txt"
    temporary.mkdir()
    observed = {"TMPDIR": str(temporary), "WRITES": str(writes), "HOME": str(folder)}
    with embedded(folder / "home", observed=observed) as service:
        dataset = service.upload(csv())
        linear = {"model": LINEAR, "optimizer": {"kind": "noisy_gd", "steps": 4}}
        answers = [service.try_submit(dataset, **body) for body in ({}, linear, {"privacy": {"mu": "50"}})]
        assert [answer.status_code for answer in answers] == [202, 202, 403]
        service.http.post(f"/v1/jobs/{answers[1].json()['id']}/cancel")
        jobs = {answer.json()["id"]: service.wait(answer.json()["id"])["state"] for answer in answers[:2]}
        assert "succeeded" in jobs.values(), jobs
        wrong = {"file": ("people.csv", csv().replace(b"age,", b"years,", 1), "text/csv")}
        assert service.http.post("/v1/datasets", files=wrong).status_code >= 400
        rows = {"rows": [{"age": CELLS[0], "job": UNKNOWN}, {"age": UNKNOWN}]}
        model = next(service.get(f"/v1/jobs/{one}")["result"] for one, state in jobs.items() if state == "succeeded")
        assert service.http.post(f"/v1/models/{model['model']}/predict", json=rows).status_code in {200, 422}
        service.http.get(f"/v1/jobs/{UNKNOWN}")
        requests = {answer.headers["X-Request-Id"] for answer in answers[:2]}
        until_told(folder / "home" / "stderr.txt", b'"ended"')
        yield Run(service, temporary, writes, dataset, jobs, requests)


@pytest.mark.service
class TestLogs:
    def test_hold_no_cell_no_traceback_and_no_variable(self, run: Run) -> None:
        log = (run.service.home / "stderr.txt").read_bytes()
        assert cells_in(csv()), "they are found where they are"
        assert cells_in(log) == []
        for trace in (b"Traceback", b'File "', b"locals", b"toy "):
            assert trace not in log

    def test_are_one_object_a_line_and_name_the_job_and_its_request(self, run: Run) -> None:
        lines = [json.loads(line) for line in (run.service.home / "stderr.txt").read_text().splitlines()]
        assert {"api", "supervisor"} <= {line["process"] for line in lines}
        for line in lines:
            assert {"event", "level", "timestamp"} <= line.keys()
        answered = [line for line in lines if line["process"] == "api" and line["event"] == "request"]
        assert all(line["request_id"].startswith("req_") for line in answered)
        for job in run.jobs:
            asked = [line for line in answered if line.get("job") == job]
            assert {"POST", "GET"} <= {line["method"] for line in asked}
        of_jobs = [line for line in lines if line["process"] == "supervisor" and "job" in line]
        assert {line["job"] for line in of_jobs} <= run.jobs.keys()
        assert {line["request_id"] for line in of_jobs} <= run.requests
        assert {"claimed", "ended"} <= {line["event"] for line in of_jobs}


def break_on(cell: float) -> None:
    raise ValueError(f"cannot read {cell!r}")


class TestAnErrorsText:
    """An exception is logged with its class and its places only, by every logger."""

    def test_is_never_written(self, capsys: pytest.CaptureFixture[str]) -> None:
        before = logging.getLogger().handlers[:], logging.getLogger().level
        configure("api")
        try:
            try:
                break_on(CELLS[0])
            except ValueError:
                structlog.get_logger("ours").exception("ours")
                logging.getLogger("library").exception("it broke on %s", CELLS[0])
        finally:
            logging.getLogger().handlers, logging.getLogger().level = before
            structlog.reset_defaults()
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [line["event"] for line in lines] == ["ours", "it broke on %s"]
        assert {line["error"] for line in lines} == {"ValueError"}
        assert all("test_traces" in line["at"][-1] for line in lines)
        assert cells_in(json.dumps(lines).encode()) == []

    def test_would_be_by_an_ordinary_handler(self) -> None:
        with pytest.raises(ValueError, match="cannot read") as caught:
            break_on(CELLS[0])
        told = (type(caught.value), caught.value, caught.value.__traceback__)
        record = logging.LogRecord("library", logging.ERROR, __file__, 1, "on %s", (CELLS[0],), told)
        assert cells_in(logging.Formatter().format(record).encode())
        assert not cells_in(Template("api").format(record).encode())


@pytest.mark.service
class TestErasure:
    def test_a_trainer_writes_to_the_database_and_the_witness_alone(self, run: Run) -> None:
        home = str(run.service.home)
        written = {path for path in run.writes.read_text().splitlines() if path != "/dev/null"}
        written -= {home, f"{home}/observed.jsonl"}  # a folder that is there; the test's own
        assert written, "the witness is written to, so the watch works"
        assert {
            path for path in written if not path.startswith((f"{home}/witness", f"{home}/farthing.sqlite"))
        } == set()

    def test_while_it_is_kept_no_cell_is_readable_on_any_disk(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "copy").write_bytes(struct.pack("<300d", *CELLS))
        assert len(cells_in((tmp_path / "copy").read_bytes())) == len(CELLS), "a copy would be found"
        for path in files_under(run.service.home, run.temporary):
            assert cells_in(path.read_bytes()) == [], path

    def test_takes_records_key_states_and_leaves_the_ledger_and_a_tombstone(self, run: Run) -> None:
        service = run.service
        with service.database().read() as session:
            before = session.execute(select(Entry.hash).order_by(Entry.seq)).scalars().all()
            key = session.get_one(Dataset, run.dataset).wrapped_key
            location = session.get_one(Dataset, run.dataset).location
        assert key is not None
        assert location is not None
        running = service.submit(run.dataset, optimizer={"kind": "noisy_gd", "steps": 90})
        answer = service.http.delete(f"/v1/datasets/{run.dataset}")
        assert answer.status_code == 202
        assert answer.json()["state"] in {"erasing", "erased"}
        assert service.try_submit(run.dataset).status_code == 409
        deadline = time.monotonic() + START_SECONDS
        while service.get(f"/v1/datasets/{run.dataset}")["state"] != "erased":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert service.get(f"/v1/jobs/{running}")["state"] in {"cancelled", "succeeded"}
        assert not [path for path in files_under(service.home / "records") if path.name == location]
        for path in files_under(service.home, run.temporary):
            assert cells_in(path.read_bytes()) == [], path
        with service.database().read() as session:
            erased = session.get_one(Dataset, run.dataset)
            assert (erased.wrapped_key, erased.location, erased.validation) == (None, None, None)
            assert session.execute(select(Checkpoint)).first() is None
            after = session.execute(select(Entry.hash).order_by(Entry.seq)).scalars().all()
        assert after[: len(before)] == before
        assert run.dataset in (service.home / "witness.jsonl").read_text()
        assert verified(service.http, erased.scope_id)["ok"] is True
        for job, state in run.jobs.items():
            assert service.get(f"/v1/jobs/{job}")["state"] == state, "jobs, reports and models stay"
            assert service.get(f"/v1/jobs/{job}/report")["ledger"]["entries"] == len(after)
