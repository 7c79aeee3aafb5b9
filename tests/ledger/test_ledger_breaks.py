"""Findings of a second look: damage by entries that obeyed every rule, for a rule was missing.

Each test did its damage before the rule that now stands against it; the module's history says with which figure.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from core.access import principals
from core.db.database import Database
from core.db.tables import Account, Dataset, Job, Scope
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.accounts import balance_of, terms_of
from core.ledger.witness.comparing import guard
from core.ledger.witness.trusting import ask_witness
from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from core.privacy.budget import plan_orders, renewed, standing
from core.privacy.events import EVENT, Gaussian
from core.service.budgets import shares_view
from core.training.order import read_order
from tests.ledger.test_forgeries import SCHEDULE, Bodies, history, of, rewrite, verify
from tests.ledger.test_witness import pay_witnessed, roll_back
from tests.support.store import DRAWS, Place, make_place, open_place, submit

WIDE = plan_orders(Decimal(8), Decimal("1e-6"))


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database, WIDE)


def give(database: Database, place: Place, principal: str, epsilon: str) -> str:
    """Make a grant, or move it to another epsilon as the service does."""
    with database.write() as session:
        terms = plan_orders(Decimal(epsilon), Decimal("1e-6"))
        found = select(Account).where(Account.principal_id == principal)
        held = session.execute(found).scalar_one_or_none()
        if held is not None:
            terms = renewed(terms_of(held), terms.epsilon)
        declared = {"epsilon": epsilon, "delta": "1e-6"}
        return ledger.set_grant(session, place.scope_id, principal, terms, declared, actor=place.principal_id).id


def an_analyst(database: Database) -> str:
    with database.write() as session:
        return principals.create(session, "Anna", "analyst").id


@pytest.mark.parametrize("version", [0, 1, 3, True, 2.0])
def test_an_entry_of_another_version_is_no_way_round_the_rules(database: Database, version: float) -> None:
    """A reservation of a version that says no draws took none of the room for them."""
    place = history(database)

    def change(bodies: Bodies) -> None:
        body = of(bodies, "reserve", 3)
        body["v"] = version
        del body["draws"]

    rewrite(database, place.scope_id, change)
    with database.write() as session:
        session.execute(text("UPDATE accounts SET draws = draws - :draws"), {"draws": DRAWS})
        session.execute(text("UPDATE jobs SET draws = 0 WHERE finished_at IS NULL"))
    assert not verify(database, place.scope_id).ok


@pytest.mark.parametrize("version", [0, 1, 3, True, 2.0])
def test_an_entry_of_another_version_alone_is_bad(database: Database, version: float) -> None:
    place = history(database)
    rewrite(database, place.scope_id, lambda bodies: of(bodies, "reserve", 3).update(v=version))
    found = verify(database, place.scope_id)
    assert not found.ok
    assert found.first_bad_seq is not None


@pytest.mark.parametrize(
    ("column", "value"),
    [("adjacency", "replace_one"), ("units", 10), ("unit", {"user_column": "who", "max_records": 2})],
)
def test_a_scope_is_what_its_first_entry_says(database: Database, place: Place, column: str, value: Any) -> None:
    """Another adjacency changes the noise of all jobs to come, another n the rate that is priced; no entry changes."""
    assert verify(database, place.scope_id).ok
    with database.write() as session:
        session.execute(update(Scope).where(Scope.id == place.scope_id).values({column: value}))
    assert not verify(database, place.scope_id).ok


def test_a_scope_has_the_owner_of_its_first_entry(database: Database, place: Place) -> None:
    with database.write() as session:
        other = principals.create(session, "Otto", "owner").id
        session.execute(update(Scope).where(Scope.id == place.scope_id).values(owner_id=other))
    assert not verify(database, place.scope_id).ok


def another_scope(session: Session, place: Place) -> str:
    return open_place(session, place.principal_id).scope_id


SWAPS: dict[str, Callable[[Session, Place, Job], object]] = {
    "the dataset's fingerprint": lambda session, place, _: setattr(the_dataset(session, place), "fingerprint", "fp_b"),
    "the dataset's rows": lambda session, place, _: setattr(the_dataset(session, place), "rows", 10**6),
    "the dataset's owner": lambda session, place, _: setattr(
        the_dataset(session, place), "owner_id", principals.create(session, "Otto", "owner").id
    ),
    "the dataset's scope": lambda session, place, _: setattr(
        the_dataset(session, place), "scope_id", another_scope(session, place)
    ),
    "the job's records": lambda session, place, job: setattr(
        job, "dataset_id", open_place(session, place.principal_id).dataset_id
    ),
    "the job's scope": lambda session, place, job: setattr(job, "scope_id", another_scope(session, place)),
    "the job's grant": lambda _, __, job: setattr(job, "grant_id", "gr_none"),
    "a gap that nobody accepted": lambda session, place, _: setattr(
        session.get_one(Scope, place.scope_id), "unwitnessed", [{"entry": 1, "since": 1, "until": 2, "accepted": 2}]
    ),
}


def the_dataset(session: Session, place: Place) -> Dataset:
    return session.get_one(Dataset, place.dataset_id)


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS.keys())
def test_rows_beside_the_chain_are_what_its_entries_say(
    database: Database, place: Place, swap: Callable[[Session, Place, Job], object]
) -> None:
    """With the database alone, no entry touched: the records of one scope are read at the cost of another's."""
    with database.write() as session:
        submit(session, place, SCHEDULE)
    assert verify(database, place.scope_id).ok
    with database.write() as session:
        swap(session, place, session.execute(select(Job)).scalar_one())
    assert not verify(database, place.scope_id).ok


def another_schedule(_: Session, __: Place, job: Job) -> None:
    """Louder answers, with a specification that plans just these, which the trainer compares."""
    job.schedule = [EVENT.dump_python(Gaussian(sigma=2.0))] * len(job.schedule)


MOMENTS: dict[str, Callable[[Session, Place, Job], object]] = {
    "half the noise": lambda session, place, _: setattr(
        session.get_one(Scope, place.scope_id), "adjacency", "replace_one"
    ),
    "a larger n": lambda session, place, _: setattr(session.get_one(Scope, place.scope_id), "units", 10**6),
    "louder answers": another_schedule,
    **{name: SWAPS[name] for name in ("the job's records", "the dataset's rows")},
}


@pytest.mark.parametrize("flip", MOMENTS.values(), ids=MOMENTS.keys())
def test_an_attempt_begins_with_nothing_but_what_the_ledger_says(
    database: Database, place: Place, tmp_path: Path, flip: Callable[[Session, Place, Job], object]
) -> None:
    """The change lasts one moment, as the trainer looks: it is undone before the next sweep, which never sees it."""
    witness = Witness(tmp_path / "elsewhere" / "witness.jsonl")
    assert guard(database, witness) == []
    with database.write() as session:
        dataset = the_dataset(session, place)
        dataset.location, dataset.location_digest, dataset.wrapped_key = "rec_a", "sha256:a", "v1.a.b"
        submit(session, place, SCHEDULE)
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    witness.keep(database)
    trust = ask_witness(witness, [place.scope_id], ())
    with database.read() as session:
        assert read_order(session, claim, trust).adjacency == "zero_out"
    with database.write() as session:
        flip(session, place, session.execute(select(Job)).scalar_one())
    with database.read() as session, pytest.raises(AssertionError, match="does not verify"):
        read_order(session, claim, trust)


def test_records_of_another_scope_are_not_read_at_this_one_s_cost(database: Database, place: Place) -> None:
    """The dataset is moved before the job is sent, so that all that is stored agrees: but no entry brought it here."""
    with database.write() as session:
        poor = open_place(session, place.principal_id)
        the_dataset(session, poor).scope_id = place.scope_id
        submit(session, Place(place.principal_id, place.scope_id, poor.dataset_id), SCHEDULE)
    assert not verify(database, place.scope_id).ok
    assert not verify(database, poor.scope_id).ok


def test_a_job_pays_from_the_grant_that_its_actor_has(database: Database, place: Place) -> None:
    """A reservation that leaves a grant out goes past the ceiling of whoever holds it."""
    analyst = an_analyst(database)
    grant = give(database, place, analyst, "3")
    with database.write() as session:
        submit(session, place, SCHEDULE, grant=(analyst, grant))
    assert verify(database, place.scope_id).ok

    def leave_out(bodies: Bodies) -> None:
        del of(bodies, "reserve")["accounts"][grant]

    rewrite(database, place.scope_id, leave_out)
    with database.write() as session:
        empty = {f"reserved_{j}": 0 for j in range(1, 5)} | {"draws": 0}
        session.execute(update(Account).where(Account.id == grant).values(empty))
        job = session.execute(select(Job)).scalar_one()
        job.chunks, job.allowance = {place.scope_id: job.chunks[place.scope_id]}, {}
    found = verify(database, place.scope_id)
    assert not found.ok
    assert found.first_bad_seq is not None, found.reason


def test_a_grant_that_was_used_and_lowered_can_be_looked_at(database: Database, place: Place) -> None:
    """Its caps at some orders are 0 then: every view of it divided by them."""
    analyst = an_analyst(database)
    grant = give(database, place, analyst, "8")
    with database.write() as session:
        submit(session, place, (Gaussian(sigma=5000.0),), grant=(analyst, grant))
    give(database, place, analyst, "4")
    with database.read() as session:
        account = session.get_one(Account, grant)
        assert 0 in (account.cap_1, account.cap_2, account.cap_3)
        held = balance_of(account)
        shown = shares_view(held.terms, held.spent, held.reserved)
    assert Decimal(0) < Decimal(shown.reserved) < Decimal(100)
    assert verify(database, place.scope_id).ok


def test_a_budget_without_any_cap_is_used_up() -> None:
    terms = renewed(WIDE, Decimal(1))
    assert not any(terms.caps_nano)
    found = standing(terms, (0, 0, 0), (0, 0, 0))
    assert (found.spent, found.reserved, found.remaining) == (100, 0, 0)


def test_draws_that_a_backup_forgets_are_counted_again(database: Database, place: Place, tmp_path: Path) -> None:
    """Nano-nats came back from the witness, draws did not: each restored backup made room for as many more."""
    witness = Witness(tmp_path / "elsewhere" / "witness.jsonl")
    assert guard(database, witness) == []
    pay_witnessed(database, place, witness)
    with database.read() as session:
        before = session.get_one(Account, place.scope_id).draws
    assert before == DRAWS
    roll_back(database, place, 2)
    with database.write() as session:
        session.execute(text("UPDATE accounts SET draws = 0"))
    reconcile(database, witness)
    with database.read() as session:
        assert session.get_one(Account, place.scope_id).draws == before
    assert verify(database, place.scope_id).ok

    def forget(bodies: Bodies) -> None:
        seen = of(bodies, "reconcile")["seen"]
        seen["draws"] = {place.scope_id: 0}

    rewrite(database, place.scope_id, forget)
    assert not verify(database, place.scope_id).ok
    with database.read() as session:
        assert json.loads(json.dumps(session.get_one(Scope, place.scope_id).unit)) == "record"
