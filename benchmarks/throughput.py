"""POST a job and GET its status, requests a second, beside bare FastAPI + Celery apps.

`python -m benchmarks.throughput`.
All of it on this machine and in one run: one uvicorn process each, PostgreSQL with every commit synced, one Redis, no
worker, 16 connections, each of which asks for a job of its own. The bare apps do what a job service does without a
ledger: (i) reads and writes as many PostgreSQL rows as Farthing was seen to with that many connections, (ii) keeps jobs
in Redis alone. The three take turns; ratios are medians over the rounds.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import httpx
from sqlalchemy import Engine, event

from api.app import create_app
from benchmarks.peers.bare_app import KEY as BARE_KEY
from tests.support.cluster import Cluster, cluster
from tests.support.embedded import KEY, LOGISTIC, ROOT
from workers.embedded import free_port

CONNECTIONS = 16
ROUNDS = 5
POSTS = 320
GETS = 960
SHARE = 10
"""Requests of each connection while rows are counted."""
GOALS = {"postgresql": 0.7, "redis": 0.35}


class Side:
    """A service that is measured: where it listens, and how a job is posted to it."""

    def __init__(self, name: str, url: str, key: str, body: dict[str, object]) -> None:
        self.name = name
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        self._key = key
        self._body = json.dumps(body).encode()
        self._jobs: list[str] = []

    def posts(self, count: int) -> float:
        """Post jobs; return how many a second."""
        return self._measure(count, self._post, 202)

    def gets(self, count: int) -> float:
        """Ask for the status of the last of them, each connection of another; return how often a second."""
        return self._measure(count, self._get, 200)

    def _post(self, number: int) -> bytes:
        del number
        named = f"Idempotency-Key: {uuid4().hex}\r\nContent-Type: application/json\r\n"
        return self._head("POST", "/v1/jobs", f"{named}Content-Length: {len(self._body)}\r\n") + self._body

    def _get(self, number: int) -> bytes:
        return self._head("GET", f"/v1/jobs/{self._jobs[-1 - number]}", "")

    def _head(self, method: str, path: str, headers: str) -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._key}\r\n{headers}\r\n".encode()

    def _measure(self, count: int, request: Callable[[int], bytes], status: int) -> float:
        async def connection(number: int, share: int) -> None:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            for _ in range(share):
                answered = 503
                while answered == 503:  # busy: asked again, and counted once
                    writer.write(request(number))
                    answered, body = await _answer(reader)
                assert answered == status, (self.name, answered, body)
                if status == 202:
                    self._jobs.append(json.loads(body)["id"])
            writer.close()

        async def all_of_them() -> float:
            started = time.perf_counter()
            await asyncio.gather(*(connection(number, count // CONNECTIONS) for number in range(CONNECTIONS)))
            return count / (time.perf_counter() - started)

        return asyncio.run(all_of_them())


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer that tells its length."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


class Rows:
    """Rows that statements have returned or written, as their cursors counted them."""

    def __init__(self, engine: Engine) -> None:
        self.read = self.inserted = self.updated = 0
        event.listen(engine, "after_cursor_execute", self._count)

    def _count(self, connection: object, cursor: Any, statement: str, *others: object) -> None:  # noqa: ANN401 - the driver's own type
        del connection, others
        word = statement.split(maxsplit=1)[0].upper()
        if word == "SELECT" and " FROM " in statement.replace("\n", " ").replace("(EPOCH FROM", ""):
            self.read += cursor.rowcount
        elif word in ("INSERT", "UPDATE"):
            self.inserted += cursor.rowcount * (word == "INSERT")
            self.updated += cursor.rowcount * (word == "UPDATE")

    def taken(self, requests: int) -> tuple[float, float, float]:
        """Return rows read, inserted and updated since the last time, of each of so many requests."""
        found = (self.read / requests, self.inserted / requests, self.updated / requests)
        self.read = self.inserted = self.updated = 0
        return found


async def rows_per_request(running: Cluster, body: dict[str, object]) -> tuple[tuple[float, float, float], ...]:
    """Return rows read, inserted and updated by a POST and by a GET, from the same application in this process.

    As many requests come at a time as there are connections: Farthing serves them together, and reads some rows once
    for all of them.
    """
    app = create_app(running.settings)
    rows = Rows(app.state.context.database.engine)
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:

        async def post(_: int) -> str:
            answer = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": uuid4().hex})
            assert answer.status_code == 202, answer.text
            return str(answer.json()["id"])

        async def one_after_the_other(number: int) -> None:
            for _ in range(SHARE):
                job = await post(number)
                posted.append(job)

        async def look(job: str) -> None:
            for _ in range(SHARE):
                await client.get(f"/v1/jobs/{job}")

        posted: list[str] = []
        await post(0)  # a first one looks more up
        rows.taken(1)
        await asyncio.gather(*map(one_after_the_other, range(CONNECTIONS)))
        per_post = rows.taken(CONNECTIONS * SHARE)
        await asyncio.gather(*map(look, posted[:CONNECTIONS]))
        return per_post, rows.taken(CONNECTIONS * SHARE)


@contextmanager
def bare(kind: str, running: Cluster, rows: dict[str, int]) -> Iterator[str]:
    """Run a bare app; give its address."""
    port = free_port("127.0.0.1")
    told = {"BARE_PORT": port, "BARE_BROKER": running.redis.url.replace("/0", "/1"), **rows}
    told["BARE_DATABASE"] = running.postgres.url.replace("postgresql://", "postgresql+psycopg://")
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in told.items()}
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.peers.bare_app", kind], cwd=ROOT, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                httpx.get(f"{url}/openapi.json")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    """Print the table; status 1 where a goal is missed."""
    accepted = {"accept_unchecked": True}
    method = {"optimizer": {"kind": "noisy_newton"}, "inference": accepted}
    body = {"model": LOGISTIC, **method, "privacy": {"mu": "0.001"}}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        settings: dict[str, Any] = {"requests_per_minute": 10**9, "max_queued_per_principal": 10**6}
        running = stack.enter_context(cluster(Path(folder) / "home", workers=0, **settings))
        body["dataset"] = running.upload(budget={"epsilon": "20", "delta": "1e-6"})
        ours = Side("farthing", running.url, KEY, body)
        ours.posts(CONNECTIONS)
        posted, read = asyncio.run(rows_per_request(running, body))
        told = [", ".join(f"{rows:.2f}" for rows in way) for way in (posted, read)]
        print(f"Farthing, rows a request (read, inserted, updated): POST {told[0]}; GET {told[1]}")
        names = ("BARE_POST_READS", "BARE_POST_INSERTS", "BARE_POST_UPDATES")
        rows = dict(zip(names, map(round, posted), strict=True)) | {"BARE_GET_READS": round(read[0])}
        sides = [ours]
        for kind in GOALS:
            url = stack.enter_context(bare(kind, running, rows))
            sides.append(Side(kind, url, BARE_KEY, body))
        figures: dict[tuple[str, str], list[float]] = {}
        for _ in range(ROUNDS):
            for side in sides:
                figures.setdefault((side.name, "POST"), []).append(side.posts(POSTS))
                figures.setdefault((side.name, "GET"), []).append(side.gets(GETS))
    return report(figures)


def report(figures: dict[tuple[str, str], list[float]]) -> int:
    """Print requests a second and ratios; return 1 where a goal is missed."""
    missed = 0
    print(f"{'':<24}{'POST /s':>10}{'GET /s':>10}{'POST x':>10}{'GET x':>10}{'goal':>8}")
    print(f"{'farthing':<24}{median(figures['farthing', 'POST']):>10.0f}{median(figures['farthing', 'GET']):>10.0f}")
    for kind, goal in GOALS.items():
        ratios = [
            median(one / two for one, two in zip(figures["farthing", way], figures[kind, way], strict=True))
            for way in ("POST", "GET")
        ]
        rates = [median(figures[kind, way]) for way in ("POST", "GET")]
        missed |= min(ratios) < goal
        print(f"{f'bare, {kind}':<24}{rates[0]:>10.0f}{rates[1]:>10.0f}{ratios[0]:>10.2f}{ratios[1]:>10.2f}{goal:>8}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
