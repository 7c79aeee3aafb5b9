"""The same bytes a second time: where they may be, and what says that somebody was told of them."""

from decimal import Decimal
from fractions import Fraction

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from core.privacy.budget import plan_orders
from core.store import digests
from core.store.database import Database
from core.store.jobs import jobs
from core.store.ledger import ledger
from core.store.tables import Dataset, Entry, Scope
from tests.support.store import Place, make_dataset, make_place, open_place, submit

BYTES = "hmac-sha256:these"


@pytest.fixture
def place(database: Database) -> Place:
    """Somebody with a scope, and a dataset of these bytes in it."""
    made = make_place(database)
    with database.write() as session:
        session.get_one(Dataset, made.dataset_id).digest = BYTES
    return made


def another(database: Database, place: Place, scope_id: str) -> str:
    """Store a dataset of the same bytes in a scope."""
    with database.write() as session:
        made = session.get_one(Dataset, make_dataset(session, place.principal_id, scope_id))
        made.digest = None
        digests.put(session, made, BYTES, session.get_one(Scope, scope_id))
        return made.id


def new_scope(database: Database, place: Place) -> str:
    with database.write() as session:
        made = open_place(session, place.principal_id, terms=plan_orders(Decimal(1), Decimal("1e-6")))
        return made.scope_id


def digests_of(database: Database, *dataset_ids: str) -> list[tuple[str | None, str | None]]:
    with database.read() as session:
        found = [session.get_one(Dataset, one) for one in dataset_ids]
        return [(one.digest, one.repeated_digest) for one in found]


def test_one_has_the_digest_and_the_others_of_its_scope_repeat_it(database: Database, place: Place) -> None:
    others = [another(database, place, place.scope_id) for _ in range(2)]
    assert digests_of(database, place.dataset_id, *others) == [(BYTES, None), (None, BYTES), (None, BYTES)]
    with database.read() as session:
        first = digests.holder(session, place.principal_id, BYTES)
        assert first is not None
        assert first.id == place.dataset_id
        assert [one.id for one in digests.of_the_same_bytes(session, first)] == sorted([place.dataset_id, *others])
        assert digests.holder(session, "pr_somebody_else", BYTES) is None


def test_two_datasets_cannot_have_one_digest(database: Database, place: Place) -> None:
    with pytest.raises(IntegrityError), database.write() as session:  # noqa: PT012 - one transaction
        made = session.get_one(Dataset, make_dataset(session, place.principal_id, place.scope_id))
        made.digest = BYTES
        session.flush()


def test_bytes_that_leave_freeze_the_scope_that_they_leave(database: Database, place: Place) -> None:
    scope_id = new_scope(database, place)
    made = another(database, place, scope_id)
    assert digests_of(database, place.dataset_id, made) == [(None, BYTES), (BYTES, None)]
    with database.read() as session:
        why = session.get_one(Scope, place.scope_id).frozen_reason
        assert why is not None
        assert scope_id in why
        kinds = select(Entry.kind).where(Entry.scope_id == place.scope_id).order_by(Entry.seq)
        assert session.execute(kinds).scalars().all() == ["open", "freeze"]
        assert ledger.verify(session, place.scope_id).ok
        assert session.get_one(Scope, scope_id).frozen_reason is None


def test_what_was_spent_was_told_even_when_it_was_given_back(database: Database, place: Place) -> None:
    def paid() -> bool:
        with database.read() as session:
            return digests.was_paid(session, place.scope_id)

    with database.write() as session:
        cancelled = submit(session, place).id
    assert not paid()
    database.run(jobs.cancel, cancelled)
    assert not paid()
    with database.write() as session:
        lost = submit(session, place).id
    claim = database.run(jobs.claim, "w", 60.0)
    assert claim is not None
    database.run(jobs.fail, claim, "trainer-failed", charge="all")
    assert paid()
    database.run(ledger.compensate, place.scope_id, lost, Fraction(1), "never opened", place.principal_id)
    with database.read() as session:
        assert not any(ledger.balance(session, place.scope_id).spent)
    assert paid()


def test_records_that_are_not_erased_are_named(database: Database, place: Place) -> None:
    other = another(database, place, place.scope_id)
    with database.write() as session:
        session.get_one(Dataset, place.dataset_id).state = "erased"
        assert digests.unerased(session, place.scope_id) == [other]
        session.get_one(Dataset, other).state = "erasing"
        assert digests.unerased(session, place.scope_id) == [other]
        session.get_one(Dataset, other).state = "erased"
        assert digests.unerased(session, place.scope_id) == []
