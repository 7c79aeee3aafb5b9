"""Digests of an owner's uploads: sealed, for comparisons within one owner; and the payments for answers about them."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from sqlalchemy import select

from core.data.columns import NumberColumn
from core.db.database import Database
from core.db.identity_tables import Identity, IdentityCounts, IdentityKey
from core.db.tables import Dataset, Entry, Scope
from core.jobs import jobs
from core.ledger import identities, ledger
from core.ledger.identities import Overlap, OwnedUpload, OwnerKeys
from core.privacy.budget import plan_orders
from core.records import datasets
from core.records.decoding.likeness import BUCKETS, Summarized, tag_of
from core.records.decoding.summary import RowSummary
from core.records.encryption import Tampered, new_key
from core.records.master_key import MasterKey
from tests.support.store import Place, make_dataset, make_place, open_place, submit

KEYS = OwnerKeys(b"k" * 32)
COLUMNS = [NumberColumn(name=name, lower=0, upper=1) for name in ("x", "y")]


def records(count: int) -> Summarized:
    """Return the summary of some records."""
    made = RowSummary(COLUMNS, KEYS.of_rows)
    for cells in made.columns:
        cells.numbers(np.arange(count, dtype=np.float64))
    made.add()
    return made.finish()


def kept(summarized: Summarized, **more: object) -> OwnedUpload:
    return OwnedUpload(digest="these", summary=summarized.summary).model_copy(update=more)


@pytest.fixture
def place(database: Database) -> Place:
    """Somebody with a scope, and a dataset of which something is kept."""
    made = make_place(database)
    with database.write() as session:
        found = records(100)
        identities.keep(session, KEYS, session.get_one(Dataset, made.dataset_id), kept(found), found)
    return made


def another(database: Database, place: Place, scope_id: str) -> str:
    """Store a dataset of a scope, of which nothing is kept."""
    with database.write() as session:
        return make_dataset(session, place.principal_id, scope_id)


def new_scope(database: Database, place: Place) -> str:
    with database.write() as session:
        made = open_place(session, place.principal_id, terms=plan_orders(Decimal(1), Decimal("1e-6")))
        return made.scope_id


def test_what_is_kept_comes_back_under_the_owners_key_alone(database: Database, place: Place) -> None:
    found = records(100)
    with database.read() as session:
        assert identities.read(session, KEYS, place.dataset_id) == kept(found)
        (all_columns, *_) = found.counts
        counts = identities.counts(session, KEYS, place.dataset_id, tag_of(all_columns.columns))
        assert counts == all_columns.content
        assert len(counts) == 4 * BUCKETS
        with pytest.raises(Tampered):
            identities.read(session, OwnerKeys(b"x" * 32), place.dataset_id)
        assert identities.read(session, KEYS, "ds_nowhere") is None


def test_what_is_stored_is_as_long_whatever_was_found_or_stated(database: Database, place: Place) -> None:
    overlaps = tuple(Overlap(dataset="ds_" + "0" * 26, scope="sc_" + "0" * 26, share=0.75) for _ in range(50))
    with database.write() as session:
        for more in ({"overlaps": overlaps}, {"distinct_because": "\U0001f642" * 500}):
            dataset = session.get_one(Dataset, make_dataset(session, place.principal_id, place.scope_id))
            found = records(7)
            identities.keep(session, KEYS, dataset, kept(found, **more), found)
        assert len({len(one) for one in session.execute(select(Identity.sealed)).scalars()}) == 1
        assert len({len(one) for one in session.execute(select(IdentityCounts.sealed)).scalars()}) == 1


def test_an_owners_datasets_are_known_and_nobody_elses(database: Database, place: Place) -> None:
    other = another(database, place, place.scope_id)
    stranger = make_place(database)
    with database.read() as session:
        found = identities.known(session, place.principal_id, "")
        assert [(one.dataset_id, one.comparable) for one in found] == [(place.dataset_id, True), (other, False)]
        assert [one.dataset_id for one in identities.known(session, stranger.principal_id, "")] == [stranger.dataset_id]
        elsewhere = identities.known(session, place.principal_id, "north")
        assert not any(one.comparable for one in elsewhere), "another site has another key"


def test_records_that_leave_freeze_the_scope_that_they_leave(database: Database, place: Place) -> None:
    scope_id = new_scope(database, place)
    with database.write() as session:
        identities.leave(session, place.scope_id, [place.dataset_id], place.principal_id)
    with database.read() as session:
        why = session.get_one(Scope, place.scope_id).frozen_reason
        assert why is not None
        assert scope_id not in why, "where the records are now is their owner's to see"
        kinds = select(Entry.kind).where(Entry.scope_id == place.scope_id).order_by(Entry.seq)
        assert session.execute(kinds).scalars().all()[-1] == "freeze"
        assert ledger.verify(session, place.scope_id).ok
        assert session.get_one(Scope, scope_id).frozen_reason is None
        known = {one.dataset_id: one.moved for one in identities.known(session, place.principal_id, "")}
        assert known[place.dataset_id]


def test_an_owners_key_is_made_once_and_wrapped_anew(database: Database, place: Place) -> None:
    first, second, name = MasterKey(b"1" * 32), MasterKey(b"2" * 32), datasets.owner_name(place.principal_id)
    key = new_key()
    database.transaction(identities.add_key, place.principal_id, "", first.wrap(name, key))
    database.transaction(identities.add_key, place.principal_id, "", first.wrap(name, new_key()))
    with database.read() as session:
        wrapped = datasets.wrapped_keys(session, "")
        assert first.unwrap(name, wrapped[name]) == key
        assert datasets.wrapped_keys(session, "north") == {}
        assert session.execute(select(IdentityKey.wrapped)).scalars().all() == [wrapped[name]]
    assert database.transaction(datasets.rewrap_key, wrapped[name], second.wrap(name, key))
    assert not database.transaction(datasets.rewrap_key, wrapped[name], second.wrap(name, key))
    with database.read() as session:
        found = identities.wrapped_key(session, place.principal_id, "")
        assert found is not None
        assert second.unwrap(name, found) == key


def test_what_was_spent_was_told_even_when_it_was_given_back(database: Database, place: Place) -> None:
    def paid() -> bool:
        with database.read() as session:
            return identities.was_paid(session, place.scope_id)

    with database.write() as session:
        cancelled = submit(session, place).id
    assert not paid()
    database.transaction(jobs.cancel, cancelled)
    assert not paid()
    with database.write() as session:
        lost = submit(session, place).id
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    database.transaction(jobs.fail, claim, "trainer-failed", charge="all")
    assert paid()
    database.transaction(ledger.compensate, place.scope_id, lost, Fraction(1), "never opened", place.principal_id)
    with database.read() as session:
        assert not any(ledger.balance(session, place.scope_id).spent)
    assert paid()


def test_records_that_are_not_erased_are_named(database: Database, place: Place) -> None:
    other = another(database, place, place.scope_id)
    with database.write() as session:
        session.get_one(Dataset, place.dataset_id).state = "erased"
        assert identities.unerased(session, place.scope_id) == [other]
        session.get_one(Dataset, other).state = "erasing"
        assert identities.unerased(session, place.scope_id) == [other]
        session.get_one(Dataset, other).state = "erased"
        assert identities.unerased(session, place.scope_id) == []
