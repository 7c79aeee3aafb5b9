"""The home of a service of a release, as files that a repository keeps: `python -m tests.support.release_home FOLDER`.

With `--stopped` it has one job running, which has paid, and one queued, and every process was killed.

It is made once by each release's own code, and never again: later code is tested on what it finds there. The database
is kept as SQL text; the keys in it were drawn for it and open nothing else.
"""

import shutil
import sqlite3
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from core.db.database import Database
from tests.support.embedded import LINEAR, PATIENCE_SECONDS, SEEDS, Embedded, embedded, toy_csv

KEPT = ("master.key", "signing.key", "witness.jsonl")


def load(folder: Path, home: Path) -> None:
    """Make a kept home usable again.

    Args:
        folder: where it is kept.
        home: where it is put; must not exist.
    """
    shutil.copytree(folder, home)
    home.chmod(0o700)
    for name in KEPT:
        (home / name).chmod(0o600)
    connection = sqlite3.connect(home / "farthing.sqlite")
    connection.executescript((home / "farthing.sql").read_text())
    connection.close()
    (home / "farthing.sql").unlink()


def _keep(home: Path, folder: Path) -> None:
    """Write a home's files, once nobody uses it."""
    folder.mkdir(parents=True)
    database = Database(f"sqlite+pysqlite:///{home / 'farthing.sqlite'}")
    database.backup(home / "copy.sqlite")
    database.dispose()
    connection = sqlite3.connect(home / "copy.sqlite")
    (folder / "farthing.sql").write_text("\n".join(connection.iterdump()) + "\n")
    connection.close()
    for name in KEPT:
        shutil.copy(home / name, folder / name)
    shutil.copytree(home / "records", folder / "records")


def _fill(service: Embedded) -> None:
    """Ask for something of every kind: uploads, access with a cap, jobs that end in each way, a freeze, an erasure."""
    made = service.http.post("/v1/keys", json={"name": "Ann", "role": "analyst"}).json()
    dataset = service.upload()
    access = service.http.put(
        f"/v1/datasets/{dataset}/access/{made['principal']}", json={"budget_cap": {"budget_share": "0.5"}}
    )
    assert access.status_code < 300, access.text
    done = service.wait(service.submit(dataset, model=LINEAR, labels={"study": "a"}))
    assert done["state"] == "succeeded", done
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {made['key']}"}, timeout=60) as ann:
        answer = ann.post(
            "/v1/jobs",
            json={"dataset": dataset, "model": LINEAR, "privacy": {"mu": "0.1"}},
            headers={"Idempotency-Key": "ann-1"},
        )
        assert answer.status_code == 202, answer.text
    assert service.wait(answer.json()["id"])["state"] == "succeeded"
    service.wait(
        service.submit(dataset, model={"kind": "description"}, optimizer={"kind": "describe"}, privacy={"mu": "0.2"})
    )
    long = service.submit(dataset, model=LINEAR, optimizer={"kind": "noisy_gd", "steps": 20_000})
    service.wait_until(long, lambda view: view["progress"]["step"] > 0)
    service.http.post(f"/v1/jobs/{long}/cancel")
    service.wait(long)
    gone = service.upload()
    scope = service.get(f"/v1/datasets/{gone}")["scope"]
    service.http.post(f"/v1/scopes/{scope}/freeze", json={"reason": "for the fixture"})
    service.http.post(f"/v1/scopes/{scope}/unfreeze", json={"reason": "for the fixture"})
    service.http.delete(f"/v1/datasets/{gone}")
    time.sleep(2)  # a sweep


def _leave_jobs(service: Embedded) -> None:
    """Have one job run until its chunk 49 is paid and one wait for it, then kill every process at once."""
    made = service.http.post("/v1/keys", json={"name": "Ann", "role": "analyst"}).json()
    dataset = service.upload(toy_csv(300, seed=next(SEEDS)))
    service.http.put(f"/v1/datasets/{dataset}/access/{made['principal']}", json={"budget_cap": {"budget_share": "0.5"}})
    assert service.wait(service.submit(dataset, model=LINEAR, labels={"study": "a"}))["state"] == "succeeded"
    (service.home / "halt").write_text("paid 49")
    running = service.submit(dataset, model=LINEAR, optimizer={"kind": "noisy_gd", "steps": 60})
    service.wait_until(running, lambda view: view["state"] == "running")
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {made['key']}"}, timeout=60) as ann:
        body = {"dataset": dataset, "model": LINEAR, "privacy": {"mu": "0.1"}}
        assert ann.post("/v1/jobs", json=body, headers={"Idempotency-Key": "ann-1"}).status_code == 202
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (service.home / "halted").exists():
        assert time.monotonic() < deadline, service.get(f"/v1/jobs/{running}")
        time.sleep(0.05)
    time.sleep(5)  # a sweep, which leaves a mark
    process = psutil.Process(service.process.pid)
    processes = [process, *process.children(recursive=True)]
    for how in (psutil.Process.suspend, psutil.Process.kill):
        for one in processes:
            with suppress(psutil.Error):
                how(one)


if __name__ == "__main__":
    stops = "--stopped" in sys.argv
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary) / "home"
        with embedded(home, observed={"STOPPED": "1"} if stops else None) as running:
            if stops:
                _leave_jobs(running)
            else:
                _fill(running)
                running.stop()
        _keep(home, Path(sys.argv[1]))
