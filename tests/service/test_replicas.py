"""Two API replicas and one idempotency key: the key and the job are one transaction, or they are two jobs."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.orm import Session

from core.base.errors import Refusal
from core.db import idempotency
from core.db.database import Database
from core.db.idempotency import KeyedRequest, RequestKey
from core.db.reads import JobFilter
from core.service import jobs
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.service.test_flow import submit, upload

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
REPLICAS = 2


def jobs_made(context: Context, caller: Caller) -> int:
    """Send one request with one key to two replicas at the same moment; return how many jobs that made."""
    dataset = upload(context, caller)["id"]
    replicas = [Context(context.settings, Database(context.database.url)) for _ in range(REPLICAS)]

    def send(replica: Context) -> None:
        try:
            submit(replica, caller, dataset, key="same")
        except Refusal as refusal:
            assert refusal.code in {"idempotency-key-in-flight", "ledger-busy"}  # noqa: PT017 - one of them succeeds

    with ThreadPoolExecutor(REPLICAS) as pool:
        list(pool.map(send, replicas))
    for replica in replicas:
        replica.database.dispose()
    return len(jobs.page(context, caller, JobFilter(), None, 10))


def test_make_one_job(context: Context, someone: Someone) -> None:
    assert jobs_made(context, someone("owner")) == 1


def test_make_two_where_a_key_is_only_looked_up(
    context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: each replica sees that the key is new, and then does the work."""
    both = threading.Barrier(REPLICAS)

    def look(session: Session, claims: Sequence[KeyedRequest], at: float) -> set[RequestKey]:
        del at
        new = {claim.name for claim in claims if idempotency.find(session, *claim.name, claim.digest) is None}
        both.wait(timeout=60)
        return new

    monkeypatch.setattr(idempotency, "claim_all", look)
    assert jobs_made(context, someone("owner")) == REPLICAS
