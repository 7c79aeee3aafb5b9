"""A record removed while jobs run: a trainer ends on the file that it opened, and the next attempt opens the other."""

import time
from pathlib import Path
from typing import Any

import pytest

from core.db.database import Database
from core.db.tables import Dataset
from core.records.records import StoredRecords, kept_of
from tests.support.embedded import START_SECONDS, Embedded, embedded

pytestmark = pytest.mark.slow


def kept(database: Database, dataset: str) -> StoredRecords:
    with database.read() as session:
        return kept_of(session.get_one(Dataset, dataset))


def remove(service: Embedded, dataset: str, row: int = 3) -> dict[str, Any]:
    answer = service.http.post(f"/v1/datasets/{dataset}/removals", json={"row": row})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def until(met: Any, what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not met():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def records(service: Embedded) -> set[str]:
    return {path.name for path in service.settings.records_path.iterdir()}


def test_a_running_job_ends_on_the_file_that_it_opened(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", observed={"SLOW": "1.0"}) as service:
        dataset = service.upload()
        database = service.database()
        before = kept(database, dataset)
        job = service.submit(dataset)
        service.wait_until(job, lambda view: view["progress"]["step"] >= 1)
        assert remove(service, dataset)["destroyed"] is False
        assert records(service) == {before.location, kept(database, dataset).location}
        assert service.get(f"/v1/jobs/{job}")["state"] == "running", "the removal came while it ran"
        ended = service.wait(job)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
        until(lambda: records(service) == {kept(database, dataset).location}, "the earlier file stays")
        assert remove(service, dataset)["destroyed"] is True
        assert service.wait(service.submit(dataset))["state"] == "succeeded", "later jobs open the other file"
        database.dispose()


@pytest.mark.parametrize("place", ["paid 0", "paid 2"])
def test_an_attempt_after_a_kill_opens_the_file_without_the_record(tmp_path: Path, place: str) -> None:
    with embedded(tmp_path / "home", observed={}) as service:
        dataset = service.upload()
        database = service.database()
        before = kept(database, dataset)
        (service.home / "halt").write_text(place)
        job = service.submit(dataset)
        until((service.home / "halted").exists, f"{job} does not get to {place}")
        (service.home / "halt").unlink()
        assert remove(service, dataset)["destroyed"] is False
        assert before.location in records(service)
        assert service.kill("supervisor")
        ended = service.wait(job)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
        until(lambda: records(service) == {kept(database, dataset).location}, "the earlier file stays")
        database.dispose()


def test_a_service_that_is_killed_after_the_change_destroys_the_file_later(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with embedded(home, observed={}) as service:
        dataset = service.upload()
        before = kept(service.database(), dataset)
        (home / "halt").write_text("paid 1")
        service.submit(dataset)
        until((home / "halted").exists, "no job runs")
        (home / "halt").unlink()
        assert remove(service, dataset)["destroyed"] is False
        for module in ("api", "supervisor"):
            assert service.kill(module)
        until(lambda: before.location not in records(service), "the earlier file stays")
        assert remove(service, dataset)["destroyed"] is True
