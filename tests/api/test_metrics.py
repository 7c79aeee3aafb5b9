"""Figures for operators: read from the database, whichever process is asked, and without the id of anybody."""

import math
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Float, event, literal, update

from core.db import clock
from core.db.database import Database
from core.db.tables import Job
from core.jobs import jobs, workers
from core.jobs.sweep import sweep
from core.ledger import ledger
from core.operations import figures
from tests.support.api import Service, job, running, submit, upload
from tests.support.store import Place, make_place
from tests.support.store import submit as submit_row

ANY_ID = re.compile(r"(pr|ds|sc|job|mdl|key|evt|req|gr)_[0-9a-z]{20}")


def scrape(service: Service) -> dict[tuple[str, str], float]:
    """Return every sample by its name and its labels' values."""
    answer = service.client().get("/metrics")
    assert answer.status_code == 200
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    return {(one.name, ",".join(one.labels[key] for key in sorted(one.labels))): one.value for one in samples}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path) as found:
        yield found


def claim(database: Database) -> jobs.Claim:
    claim = database.transaction(jobs.claim, "machine:1", 60.0)
    assert claim is not None
    return claim


def test_what_the_database_says(service: Service) -> None:
    """Once of a fresh service, since all is counted; no label names anybody, and the last question harms it."""
    client = service.client()
    dataset = upload(client)["id"]
    for device in ("cpu", "auto", "auto"):
        made = submit(client, job(dataset, mu="0.05", resources={"device": device}))
        assert made.status_code == 202
    assert submit(client, job(dataset, mu="9")).status_code == 403
    database = service.database()
    ended = claim(database)
    database.transaction(jobs.fail, ended, "trainer-failed", charge="all")
    with database.write() as session:
        mine = update(Job).where(Job.id == ended.job_id)  # two points of the time grid ago, after twenty seconds
        session.execute(mine.values(started_at=Job.finished_at - 22.0, finished_at=Job.finished_at - 2.0))
    database.transaction(sweep, 60.0, 3, 1e9)
    with database.write() as session:
        workers.see(session, name="machine:1", queues="cpu", slots=4, gpus=0, version="1")
    time.sleep(2)  # an entry tells its second, and shows at the point of the time grid after that
    found = scrape(service)
    database.dispose()

    assert found["farthing_jobs", "queued"] == 2
    assert found["farthing_jobs", "failed"] == 1
    assert [found["farthing_queue_depth", device] for device in ("auto", "cpu", "cuda")] == [2, 0, 0]
    assert 0 < found["farthing_queue_oldest_seconds", "auto"] < 60
    assert found["farthing_job_seconds_bucket", "10.0,failed"] == 0
    assert found["farthing_job_seconds_bucket", "30.0,failed"] == 1
    assert found["farthing_job_seconds_gcount", "failed"] == 1
    assert found["farthing_job_seconds_gsum", "failed"] == pytest.approx(20.0)
    assert found["farthing_reservations_total", ""] == 3
    assert found["farthing_refusals_total", "privacy-budget-exhausted"] == 1
    assert found["farthing_ledger_entries_total", ""] == 6, "open, upload, three reservations, one spend"
    assert 0 < found["farthing_ledger_nats", "spent"] < found["farthing_ledger_nats", "reserved"]
    assert found["farthing_scopes", "all"] == 1
    assert found["farthing_scopes", "frozen"] == 0
    assert found["farthing_ledger_frozen", ""] == 0
    assert 0 <= found["farthing_ledger_head_age_seconds", ""] < 60
    assert found["farthing_witness_lag_entries", ""] == 1, "the failure was not written down yet"
    assert 0 <= found["farthing_last_sweep_age_seconds", ""] < 60
    assert found["farthing_workers", "cpu"] == 1
    assert found["farthing_worker_slots", "cpu"] == 4

    for path in (f"/v1/jobs/{made.json()['id']}", f"/v1/datasets/{dataset}/budget", "/v1/me", f"/nowhere/{dataset}"):
        client.get(path)
    assert ANY_ID.search(made.json()["id"]), "the pattern finds ids"
    assert not ANY_ID.search(service.client().get("/metrics").text)

    assert submit(client, job(dataset, mu="0.05")).status_code == 202
    assert scrape(service)["farthing_witness_lag_entries", ""] == 0, "it catches up"
    (service.home / "witness.jsonl").unlink()
    assert submit(client, job(dataset, mu="0.05")).status_code == 503
    assert scrape(service)["farthing_ledger_frozen", ""] == 1


def test_scrapes_ask_a_few_questions_however_much_there_is(database: Database) -> None:
    asked: list[str] = []
    event.listen(database._reader, "before_cursor_execute", lambda *told: asked.append(told[2]))

    def ask() -> int:
        asked.clear()
        with database.read() as session:
            figures.read(session, 60.0, 0.0)
        return len(asked)

    place = make_place(database)
    few = ask()
    for _ in range(5):
        make_place(database)
    with database.write() as session:
        for _ in range(20):
            submit_row(session, place)
    assert ask() == few <= 14, asked


def test_an_end_shows_on_the_time_grid_only(database: Database) -> None:
    """Planted beside it: without a grid the same look tells at once, to the fraction of a second."""
    place = make_place(database)
    with database.write() as session:
        submit_row(session, place)
    ended = claim(database)
    database.transaction(jobs.fail, ended, "trainer-failed", charge="all")
    with database.write() as session:
        session.execute(update(Job).values(started_at=Job.finished_at - 20.25))
    with database.read() as session:
        at_once, on_grid = (figures.read(session, 60.0, grid) for grid in (0.0, 1e9))
    assert (at_once.jobs, at_once.ended["failed"].count) == ({"failed": 1}, 1)
    assert at_once.ended["failed"].sum_seconds == pytest.approx(20.25)
    assert (on_grid.jobs, on_grid.ended["failed"].count) == ({"running": 1}, 0)
    with database.write() as session:
        session.execute(update(Job).values(finished_at=Job.finished_at - 60, started_at=Job.started_at - 60))
    with database.read() as session:
        later = figures.read(session, 60.0, 30.0)
    assert (later.jobs, later.ended["failed"].sum_seconds) == ({"failed": 1}, 30.0)


def test_the_ledger_shows_on_the_time_grid_only(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted beside it: without a grid the same looks tell of each payment at once."""
    now = [clock_at(database)]
    monkeypatch.setattr(clock, "now", lambda: literal(now[0], Float))
    place = make_place(database)

    def look(grid_seconds: float) -> tuple[object, ...]:
        with database.read() as session:
            found = figures.read(session, 60.0, grid_seconds)
        assert found.head_age_seconds is not None
        return found.entries, found.spent_nats, found.reserved_nats, found.heads, now[0] - found.head_age_seconds

    now[0] += 10.0
    still = look(1.0)
    opened = now[0] - 9.0
    assert still == (2, 0.0, 0.0, {place.scope_id: 2}, opened), "within the second that the grid rounds up"
    submit_and_pay(database, place)
    assert look(0.0)[0] == 5
    now[0] += 0.75
    assert look(1.0) == still, "nothing has moved yet"
    now[0] += 0.5
    moved = look(1.0)
    assert moved[:4] == look(0.0)[:4]
    assert (moved[0], moved[4]) == (5, opened + 10.0), "as of the last point of the grid"
    assert moved[1:3] > (0.0, 0.0)


def test_many_entries_in_a_second_wait_for_the_grid(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are looked at first."""
    now = [clock_at(database)]
    monkeypatch.setattr(clock, "now", lambda: literal(now[0], Float))
    place, other = make_place(database), make_place(database)
    now[0] += 10.0
    with database.write() as session:
        for _ in range(30):
            submit_row(session, place)
        submit_row(session, other)
    with database.read() as session:
        hidden, shown = (figures.read(session, 60.0, grid) for grid in (1.0, 0.0))
    assert (hidden.entries, shown.entries) == (4, 35)
    assert hidden.reserved_nats == pytest.approx(0.0, abs=1e-9)


def clock_at(database: Database) -> float:
    """Return a whole second of the database's clock."""
    with database.read() as session:
        return math.floor(clock.read(session))


def submit_and_pay(database: Database, place: Place) -> None:
    """Queue a job, claim it, and pay for its first chunk: two entries."""
    with database.write() as session:
        submit_row(session, place)
    database.transaction(ledger.pay, claim(database), 0, None, 0)
