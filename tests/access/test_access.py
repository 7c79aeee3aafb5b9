"""Keys, idempotency and the audit."""

import threading
from collections import Counter

import pytest
from sqlalchemy import select, text

from core.access import audit, principals
from core.access.audit import Line
from core.base.canonical import canonical
from core.base.errors import BudgetExhausted, IdempotencyKeyInFlight, IdempotencyKeyReused, LedgerBusy, NotFound
from core.base.identifiers import new_id
from core.db import clock, idempotency
from core.db.database import Database
from core.db.service_tables import Idempotency
from core.db.tables import ApiKey, Job
from core.ledger.chain import link
from tests.support.store import Place, make_place, submit

ROUTE = "POST /v1/jobs"
DIGEST = idempotency.hash_body({"a": 1})


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def test_ids_sort_by_time_and_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for milliseconds in range(1000, 3000):
        monkeypatch.setattr("time.time_ns", lambda milliseconds=milliseconds: milliseconds * 10**6)
        ids.append(new_id("job"))
    assert ids == sorted(ids)
    assert len({new_id("sc") for _ in range(1000)}) == 1000
    assert all(len(one) == 30 for one in ids)


def test_canonical_json_is_one_text() -> None:
    assert canonical({"b": [1, 2.5], "a": "ü"}) == '{"a":"\\u00fc","b":[1,2.5]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(float("nan"))
    assert link("a", "b") != link("a\nb", "")


class TestKeys:
    def test_a_key_is_found_by_its_secret_alone(self, database: Database) -> None:
        with database.write() as session:
            person = principals.create(session, "Anna", "analyst")
            key, secret = principals.create_key(session, person.id, "laptop")
            assert key.id.removeprefix("key_") in secret
            assert not {str(key.digest), str(key.salt)} & {secret, secret.split("_", 2)[2]}
            assert len(secret) >= 43
        with database.read() as session:
            found = principals.find(session, secret)
            assert principals.find(session, secret + "x") is None
        assert found is not None
        assert (found.principal_id, found.role, found.key_id, found.touch_due) == (person.id, "analyst", key.id, True)

    def test_use_is_noted_once_a_minute(self, database: Database, place: Place) -> None:
        with database.write() as session:
            key, secret = principals.create_key(session, place.principal_id, "laptop")
        seen = []
        for _ in range(2):
            database.transaction(principals.touch, [key.id])
            with database.read() as session:
                seen.append(session.get_one(ApiKey, key.id).last_used_at)
                found = principals.find(session, secret)
                assert found is not None
                assert not found.touch_due
        assert seen[0] == seen[1]
        with database.write() as session:
            session.execute(text("UPDATE api_keys SET last_used_at = last_used_at - 61"))
        database.transaction(principals.touch, [key.id])
        with database.read() as session:
            assert session.get_one(ApiKey, key.id).last_used_at >= seen[0]

    def test_expired_revoked_and_rotated_keys_open_nothing(self, database: Database, place: Place) -> None:
        with database.write() as session:
            past = clock.read(session) - 1
            _, expired = principals.create_key(session, place.principal_id, "old", expires_at=past)
            revoked, secret = principals.create_key(session, place.principal_id, "lost")
            principals.revoke(session, revoked.id)
            rotated, before = principals.create_key(
                session, place.principal_id, "kept", secret="Zk3-an-operators-own-8Qw2xL5"
            )
            _, after = principals.rotate(session, rotated.id)
        with database.read() as session:
            found = [principals.find(session, one) is not None for one in (expired, secret, before, after)]
        assert found == [False, False, False, True]
        for work in (principals.revoke, principals.rotate):
            with pytest.raises(NotFound):
                database.transaction(work, revoked.id)


class TestIdempotency:
    def test_a_replay_gets_the_stored_answer(self, database: Database, place: Place) -> None:
        with database.write() as session:
            assert idempotency.begin(session, place.principal_id, ROUTE, "k", DIGEST) is None
            idempotency.store(session, place.principal_id, ROUTE, "k", status=202, body={"id": "job_1"})
        with database.write() as session:
            replay = idempotency.begin(session, place.principal_id, ROUTE, "k", DIGEST)
        assert replay == idempotency.Replay(202, {"id": "job_1"})
        with database.read() as session:
            assert idempotency.find(session, place.principal_id, ROUTE, "k", DIGEST) == replay
            assert idempotency.find(session, place.principal_id, "POST /v1/keys", "k", DIGEST) is None
            with pytest.raises(IdempotencyKeyReused):
                idempotency.find(session, place.principal_id, ROUTE, "k", idempotency.hash_body({"a": 2}))

    def test_an_unanswered_key_is_in_flight(self, database: Database, place: Place) -> None:
        with database.write() as session:
            idempotency.begin(session, place.principal_id, ROUTE, "k", DIGEST)
        with database.write() as session, pytest.raises(IdempotencyKeyInFlight):
            idempotency.begin(session, place.principal_id, ROUTE, "k", DIGEST)

    def test_a_refusal_rolls_the_key_back(self, database: Database, place: Place) -> None:
        with pytest.raises(BudgetExhausted), database.write() as session:  # noqa: PT012 - one transaction
            idempotency.begin(session, place.principal_id, ROUTE, "k", DIGEST)
            raise BudgetExhausted("no")
        with database.read() as session:
            assert session.execute(select(Idempotency)).all() == []

    def test_a_rival_waits_and_is_told(self, database: Database, place: Place) -> None:
        if database.is_sqlite:
            pytest.skip("SQLite's rival waits at BEGIN; the race below covers it")
        with database.write() as session:
            idempotency.begin(session, place.principal_id, ROUTE, "k", DIGEST)
            with pytest.raises((IdempotencyKeyInFlight, LedgerBusy)), database.write() as rival:
                idempotency.begin(rival, place.principal_id, ROUTE, "k", DIGEST)

    def test_one_key_from_many_sessions_makes_one_job(self, database: Database, place: Place) -> None:
        start = threading.Barrier(8)
        answers: list[tuple[bool, str]] = []

        def client() -> None:
            start.wait()
            with database.write() as session:
                stored = idempotency.begin(session, place.principal_id, ROUTE, "k", DIGEST)
                if stored is not None:
                    answers.append((True, stored.body["id"]))
                    return
                job = submit(session, place)
                idempotency.store(session, place.principal_id, ROUTE, "k", status=202, body={"id": job.id})
                answers.append((False, job.id))

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.read() as session:
            (job_id,) = session.execute(select(Job.id)).scalars()
        assert Counter(answers) == Counter({(False, job_id): 1, (True, job_id): 7})


def test_the_audit_pages_and_exports(database: Database) -> None:
    for number in range(5):
        with database.write() as session:
            who = "pr_1" if number % 2 else None
            audit.append(session, [Line(who, "POST /v1/jobs", f"job_{number % 2}", 202, None, f"req_{number}")])
    with database.read() as session:
        every = audit.page(session)
        assert len(every) == 5
        assert [row.id for row in audit.page(session, after=every[1].id, limit=2)] == [every[2].id, every[3].id]
        assert len(audit.page(session, principal_id="pr_1")) == 2
        assert len(audit.page(session, target="job_0")) == 3
    assert sorted(row.request_id for row in every) == [f"req_{number}" for number in range(5)]
    assert {column.name for column in every[0].__table__.columns} == {
        "id",
        "principal_id",
        "action",
        "target",
        "status",
        "code",
        "request_id",
        "created_at",
    }
