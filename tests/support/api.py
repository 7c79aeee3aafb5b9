"""A real API process on a free port, with a home of its own and an admin's key; no workers, so jobs stay queued."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from core.access.bootstrap import first_admin
from core.base.settings import ServiceSettings
from core.db.database import Database
from tests.support.embedded import CONNECTIONS
from tests.support.unchecked import accepting
from tests.support.windows import window_of

ROOT = Path(__file__).resolve().parents[2]
_ENDS = count(1)
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "lower": 18, "upper": 95},
    {"name": "job", "type": "category", "values": ["management", "technician", "other"], "other": "other"},
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
]


def csv(rows: int = 400, shift: int = 0) -> bytes:
    """Return a CSV file for `COLUMNS`; another `shift` gives other people's records."""
    jobs = ("management", "technician", "student")
    lines = [
        f"{18 + (7 * row + shift) % 70}.{(row * 7919 + shift * 104_729) % 99_991:05},{jobs[row % 3]},"
        f"{'yes' if (row * 5 + shift) % 4 == 0 else 'no'}"
        for row in range(rows)
    ]
    return "\n".join(["age,job,y", *lines, ""]).encode()


def metadata(**changes: Any) -> dict[str, Any]:
    """Return a declaration that suits `csv`."""
    base = {"name": "people", "columns": COLUMNS, "budget": {"epsilon": "3", "delta": "1e-6"}}
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


@dataclass
class Service:
    """A running API and what a test needs to talk to it and to look behind it."""

    url: str
    home: Path
    key: str
    process: "subprocess.Popen[bytes]"
    settings: ServiceSettings
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """Return a client of the admin, or of the owner of `key`."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        client = httpx.Client(
            base_url=self.url, headers=headers | options.pop("headers", {}), timeout=60, limits=CONNECTIONS, **options
        )
        self.clients.append(client)  # closed when the service stops
        return client

    def window(self, key: str) -> httpx.Client:
        """Return a window of the console that is signed in with a key."""
        window = window_of(self.url, key)
        self.clients.append(window)
        return window

    def database(self) -> Database:
        """Return the service's database."""
        return Database(self.settings.url)

    def someone(self, role: str, name: str = "someone") -> tuple[httpx.Client, dict[str, Any]]:
        """Return a new principal's client and the answer that made its key; an owner's is one that nobody else saw."""
        made = self.client().post("/v1/keys", json={"name": name, "role": role}).json()
        if role == "owner":
            made = own_key(self.client(made["key"]), made)
        return self.client(made["key"]), made

    def files(self) -> list[str]:
        """Return the names of the files that hold records."""
        return sorted(path.name for path in (self.home / "records").iterdir())


def own_key(client: httpx.Client, made: dict[str, Any]) -> dict[str, Any]:
    """Replace a key that somebody else made by one of its principal's own, and return the answer."""
    answer = client.post(f"/v1/keys/{made['id']}/rotate")
    assert answer.status_code == 200, answer.text
    fresh: dict[str, Any] = answer.json()
    return fresh


def upload(client: httpx.Client, shift: int = 0, rows: int = 400, **changes: Any) -> dict[str, Any]:
    """Upload a small dataset of people who are in no other, and return its view."""
    answer = post_dataset(client, shift, rows, **changes)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def post_dataset(client: httpx.Client, shift: int = 0, rows: int = 400, **changes: Any) -> httpx.Response:
    """Upload the same, and return the answer."""
    import json  # noqa: PLC0415 - only here

    parts: list[tuple[str, Any]] = [
        ("metadata", (None, json.dumps(metadata(**changes)), "application/json")),
        ("file", ("people.csv", csv(rows, shift + 1000 * next(_ENDS)), "text/csv")),
    ]
    return client.post("/v1/datasets", files=parts)


def job(dataset: str, /, mu: str = "0.1", **changes: Any) -> dict[str, Any]:
    """Return a small logistic job."""
    base = {
        "dataset": dataset,
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": {"kind": "noisy_newton", "steps": 8},
        "privacy": {"mu": mu},
        "labels": {"study": "a"},
    }
    return accepting({**base, **changes})


def submit(client: httpx.Client, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    """Submit a job."""
    return client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key or uuid4().hex})


@contextmanager
def running(home: Path, database_url: str | None = None, module: str = "api", **environment: str) -> Iterator[Service]:
    """Run `python -m api` under `home` until the end of the block, on SQLite unless another empty database is given."""
    settings = ServiceSettings(home=home, database_url=database_url)
    if database_url is not None:
        environment["FARTHING_DATABASE_URL"] = database_url
    database = Database(settings.url)
    database.migrate()
    key = database.transaction(first_admin, None)
    database.dispose()
    assert key is not None, "the home is new"
    with _serving(home, key, settings, environment, home / "api.log", module) as service:
        yield service


@contextmanager
def joined(service: Service, **environment: str) -> Iterator[Service]:
    """Run one more API process on a service's home until the end of the block."""
    url = service.settings.database_url
    environment |= {} if url is None else {"FARTHING_DATABASE_URL": url}
    log = service.home / f"beside-{next(_ENDS)}.log"
    with _serving(service.home, service.key, service.settings, environment, log) as found:
        yield found


@contextmanager
def _serving(
    home: Path, key: str, settings: ServiceSettings, environment: dict[str, str], path: Path, module: str = "api"
) -> Iterator[Service]:
    """Run one API process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--host", "127.0.0.1", "--port", str(port), "--home", str(home)],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | environment,
            stdout=log,
            stderr=log,
        )
        service = Service(f"http://127.0.0.1:{port}", home, key, process, settings)
        try:
            _wait(service, path)
            yield service
        finally:
            for client in service.clients:
                client.close()
            process.terminate()
            process.wait(timeout=30)


def _wait(service: Service, path: Path) -> None:
    deadline = time.monotonic() + 300  # a busy machine takes minutes to start a process
    while True:
        try:
            if httpx.get(f"{service.url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        log = path.read_text()
        assert service.process.poll() is None, f"the API ended: {log}"
        assert time.monotonic() < deadline, f"the API did not get ready: {log}"
        time.sleep(0.1)
