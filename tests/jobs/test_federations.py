"""Any order of losses, cancellations, drains and ends: every scope's sums hold, and nothing is left reserved."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from core.base.errors import StaleAttempt
from core.db.database import Database
from core.db.tables import TERMINAL_STATES, Account, Dataset, Job, Model
from core.jobs import federations, jobs
from core.jobs.federations import FederationClaim
from core.ledger import ledger
from core.ledger.claims import Claim
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from tests.support.store import Place, lose_lease, make_dataset, make_place, queue_federated

LEASE: Final = 60.0
CHUNKS: Final = 3
CLIENTS: Final = 3


class Play:
    """A federated job, and the events that may happen to it; an event that cannot happen now does nothing."""

    def __init__(self, database: Database, quorum: int) -> None:
        self.database = database
        one, other = make_place(database), make_place(database)
        with database.write() as session:
            session.execute(update(Job).values(state="expired", finished_at=1.0).where(Job.state == "queued"))
            twin = Place(one.principal_id, one.scope_id, make_dataset(session, one.principal_id, one.scope_id))
            ledger.note_upload(session, twin.scope_id, session.get_one(Dataset, twin.dataset_id))
            self.job_id = queue_federated(session, [one, other, twin], quorum)
        self.quorum = quorum
        self.scopes = [one.scope_id, other.scope_id]
        self.claim: FederationClaim | None = None
        self.paid = 0

    def rows(self) -> tuple[Job, list[Job]]:
        with self.database.read() as session:
            return session.get_one(Job, self.job_id), federations.clients_of(session, self.job_id)

    def take(self, place: int) -> None:
        del place
        with self.database.write() as session:
            claim = jobs.claim(session, "w", LEASE)
            if claim is not None:
                self.claim = federations.claimed(session, claim)

    def _with(self, place: int, act: Callable[[Claim], object]) -> None:
        for client in self.claim.clients if self.claim else ():
            if client.place == place:
                try:
                    act(client.claim)
                except StaleAttempt:
                    return

    def pay(self, place: int) -> None:
        def act(claim: Claim) -> None:
            with self.database.write() as session:
                job = session.get_one(Job, claim.job_id)
                due = ledger._due(session, job)
                if due < CHUNKS and job.state == "running":
                    ledger.pay(session, claim, due, b"kept", due)

        self._with(place, act)

    def fail(self, place: int) -> None:
        self._with(place, lambda claim: self.database.transaction(jobs.fail, claim, "trainer-failed", charge="all"))

    def finish(self, place: int) -> None:
        self._with(place, lambda claim: self.database.transaction(federations.finish, claim, {"kind": "any"}))

    def cancel_client(self, place: int) -> None:
        client = self.rows()[1][place]
        self.database.transaction(jobs.cancel, client.id)

    def cancel(self, place: int) -> None:
        del place
        self.database.transaction(jobs.cancel, self.job_id)

    def put_back(self, place: int) -> None:
        del place
        if self.claim is None:
            return
        try:
            self.database.transaction(jobs.release_claim, self.claim.claim)
        except StaleAttempt:
            try:
                self.database.transaction(jobs.acknowledge_cancel, self.claim.claim)
            except StaleAttempt:
                return

    def lose(self, place: int) -> None:
        del place
        with self.database.write() as session:
            lose_lease(session, self.job_id, LEASE)

    def check(self) -> None:
        """Check the conditions that must hold after every step."""
        job, clients = self.rows()
        live = [client for client in clients if client.state not in TERMINAL_STATES]
        with self.database.read() as session:
            for scope in self.scopes:
                verified = ledger.verify(session, scope)
                assert verified.ok, verified.reason
            models = session.execute(select(Model).where(Model.job_id == self.job_id)).scalars().all()
            held = [
                session.get_one(Account, scope).reserved_1
                for scope in self.scopes
                if scope not in {client.scope_id for client in live}
            ]
        assert not any(held), "nothing stays reserved for clients that have ended"
        assert (job.state == "succeeded") == (len(models) == 1)
        if job.state in TERMINAL_STATES:
            assert not live, "no client outlives its job"
        if job.state == "queued":
            assert all(client.state == "queued" for client in live)
            assert len(live) >= self.quorum, "without its quorum it does not wait"
        if job.state == "succeeded":
            assert sum(client.state == "succeeded" for client in clients) >= self.quorum


ACTS = ("take", "pay", "pay", "fail", "finish", "finish", "cancel_client", "cancel", "put_back", "lose")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, CLIENTS),
    st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, CLIENTS - 1)), min_size=4, max_size=14),
)
def test_whatever_happens_the_sums_hold(database: Database, quorum: int, acts: list[tuple[str, int]]) -> None:
    play = Play(database, quorum)
    play.take(0)
    for act, place in acts:
        getattr(play, act)(place)
        play.check()
    for _ in range(4):  # the world ends: the worker is lost, and whoever waits is cancelled
        play.lose(0)
        play.cancel(0)
    job, _ = play.rows()
    play.check()
    assert job.state in TERMINAL_STATES


def test_clients_run_with_fences_of_their_own(database: Database) -> None:
    play = Play(database, 2)
    play.take(0)
    assert play.claim is not None
    fences = {client.claim.job_id for client in play.claim.clients}
    assert len(fences) == CLIENTS
    play.pay(0)
    play.pay(1)
    job, clients = play.rows()
    assert [client.chunks_spent for client in clients] == [1, 1, 0]
    assert job.chunks == {}
    play.fail(1)
    play.put_back(0)
    play.check()
    assert [client.state for client in play.rows()[1]] == ["queued", "failed", "queued"]


@pytest.mark.parametrize("paid", [False, True])
def test_reconciling_fails_a_federated_job_with_all_of_its_clients(
    database: Database, tmp_path: Path, *, paid: bool
) -> None:
    """No site is spared: each is charged its whole price, for nobody knows which records it has read."""
    witness = Witness(tmp_path / "witness")
    assert guard(database, witness) == []
    play = Play(database, 2)
    if paid:
        play.take(0)
        play.pay(1)
    witness.keep(database)
    failed, _ = reconcile(database, witness)
    job, clients = play.rows()
    assert {job.id, *(client.id for client in clients)} <= set(failed)
    assert (job.state, {client.state for client in clients}) == ("failed", {"failed"})
    play.check()
    with database.read() as session:
        for scope in play.scopes:
            due = sum(client.chunks[scope][-1][0] for client in clients if client.scope_id == scope)
            assert session.get_one(Account, scope).spent_1 >= due > 0, "the whole price"
    for place in range(CLIENTS):
        play.pay(place)
        play.finish(place)
    play.check()


def test_the_most_urgent_of_federated_jobs_comes_first(database: Database) -> None:
    """By the row that waits; clients are claimed with it, and never alone."""
    play = Play(database, 2)
    with database.write() as session:
        clients = federations.clients_of(session, play.job_id)
        principal = session.get_one(Job, play.job_id).owner_id
        places = [Place(principal, client.scope_id, client.dataset_id) for client in clients]
        urgent = queue_federated(session, places, 2)
        session.execute(update(Job).where(Job.id == urgent).values(priority=7))
    claims = [database.transaction(jobs.claim, "w", LEASE) for _ in range(3)]
    assert [None if claim is None else claim.job_id for claim in claims] == [urgent, play.job_id, None]
