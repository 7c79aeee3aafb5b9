"""Federated jobs of three owners on a running service, and what must be true of their ledgers whatever happened."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import httpx
import psutil
from sqlalchemy import select

from core.db.tables import Account, Entry, Job, Model
from core.ledger import allowance, verification
from core.ledger.accounts import balance_of
from core.privacy.events import compose
from core.privacy.renyi import cost_nano
from farthing.networks import MEDIA
from tests.support.api import own_key
from tests.support.embedded import CONNECTIONS, LINEAR, PATIENCE_SECONDS, Running, readings, toy_csv

SIZES = (1500, 750, 3000)
STEPS = 30


@dataclass(frozen=True)
class Federation:
    """A federated job of three owners, each with a scope of its own."""

    service: Running
    id: str
    clients: list[str]
    """By place, the sites' jobs."""
    authorization: str = ""
    """The header of who submitted it, who may spend from each dataset."""

    def row(self, job_id: str) -> Job:
        database = self.service.database()
        with database.read() as session:
            found = session.get_one(Job, job_id)
            session.expunge(found)
        database.dispose()
        return found

    def until_step(self, step: int) -> None:
        self.service.wait_until(self.id, lambda view: view["progress"]["step"] >= step)

    def until_read(self, place: int, count: int = 1) -> None:
        """Wait until a client has read so often."""
        self.service.wait_until(self.id, lambda _: self._read(place) >= count)

    def _read(self, place: int) -> int:
        lines = self.service.home / "observed.jsonl"
        return lines.exists() and sum(readings(self.service.home).get(self.clients[place], Counter()).values())

    def process(self, place: int) -> psutil.Process:
        """Return a client's trainer, which has read something."""
        lines = (self.service.home / "observed.jsonl").read_text().splitlines()
        told = map(json.loads, reversed(lines))
        return psutil.Process(next(line["by"] for line in told if line["job"] == self.clients[place]))

    def wait(self, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        return self.service.wait(self.id, seconds)


def key(service: Running, role: str) -> tuple[str, httpx.Client]:
    """Make a principal with a key of its own; return its id, and what speaks for it."""
    made = service.http.post("/v1/keys", json={"name": uuid4().hex[:12], "role": role}).json()
    bearer = {"Authorization": f"Bearer {made['key']}"}
    client = httpx.Client(base_url=service.url, headers=bearer, timeout=60, limits=CONNECTIONS)
    client.headers["Authorization"] = f"Bearer {own_key(client, made)['key']}"
    return made["principal"], client


def submit(service: Running, quorum: int | None, weights: bytes | None = None, **changes: Any) -> Federation:
    """Have three owners upload shards that are not alike, share them with an analyst, and have that one submit.

    Public weights are the analyst's, for the network that the changes name.
    """
    principal, analyst = key(service, "analyst")
    datasets = []
    for place, size in enumerate(SIZES):
        _, http = key(service, "owner")
        owner = replace(service, http=http)
        datasets.append(owner.upload(shard(size, place)))
        shared = http.put(f"/v1/datasets/{datasets[-1]}/access/{principal}", json={"budget_cap": "all"})
        assert shared.is_success, shared.text
        http.close()
    body = {
        "dataset": None,
        "federation": {"datasets": datasets, "quorum": quorum},
        "model": LINEAR,
        "optimizer": {"kind": "noisy_gd", "steps": STEPS},
        "privacy": {"mu": "0.5"},
        "inference": {"intervals": False},
        **changes,
    }
    if weights is not None:
        kept = analyst.post("/v1/pretrained", params={"name": "w"}, content=weights, headers={"Content-Type": MEDIA})
        assert kept.is_success, kept.text
        body["model"] = {**body["model"], "pretrained": kept.json()["id"]}
    answer = analyst.post("/v1/jobs", json=body, headers={"Idempotency-Key": uuid4().hex})
    assert answer.status_code == 202, answer.text
    analyst.close()
    told = answer.json()
    clients = [client["job"] for client in told["federation"]["sites"]]
    return Federation(service, told["id"], clients, analyst.headers["Authorization"])


def shard(size: int, place: int) -> bytes:
    """Return toy rows of one owner, who has people of one age only."""
    names, *lines = toy_csv(3 * size, seed=uuid4().int % 2**32).decode().splitlines()
    lines.sort(key=lambda line: float(line.split(",")[0]))
    return "\n".join([names, *lines[place * size : (place + 1) * size]]).encode()


def check(job: Federation, *, stream: bool = False) -> None:
    """Assert what ledgers promise of ended clients: nothing unpaid, nothing charged twice, nothing held back.

    Batches of a stream share no record, so all of them together cost what one does.
    """
    service = job.service
    read = readings(service.home)
    database = service.database()
    with database.read() as session:
        for name in job.clients:
            row = session.get_one(Job, name)
            assert row.finished_at is not None
            account = balance_of(session.get_one(Account, row.scope_id))
            assert not any(account.reserved), "nothing is half reserved"
            charged = allowance.charged(row, row.scope_id)
            orders = account.terms.orders
            assert list(account.spent) == charged[: len(orders)], "its scope was charged for it and nothing else"
            assert verification.verify(session, row.scope_id).ok
            events = read.get(name, Counter())
            drawn = cost_nano(compose(Counter(dict.fromkeys(events, 1)) if stream else events), orders)
            assert all(one <= most for one, most in zip(drawn, charged, strict=False)), f"{name} read more than it paid"
            statement = select(Entry.attempt, Entry.chunk).where(Entry.job_id == name, Entry.kind == "spend")
            paid = [tuple(found) for found in session.execute(statement)]
            assert len(set(paid)) == len(paid), "no chunk is paid twice by one attempt"
        models = list(session.execute(select(Model).where(Model.job_id.in_([job.id, *job.clients]))).scalars())
        ended = session.get_one(Job, job.id)
        assert [model.job_id for model in models] == [job.id] * (ended.state == "succeeded")
    database.dispose()


def unpaid(job: Federation) -> bool:
    """Say whether some client read more than it was charged for."""
    try:
        check(job)
    except AssertionError as error:
        return "read more than it paid" in str(error)
    return False


def states(ended: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the final state of each site, and its error code."""
    return [
        (client["state"], None if client["error"] is None else client["error"]["code"])
        for client in ended["federation"]["sites"]
    ]
