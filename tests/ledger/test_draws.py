"""Units of draws in the ledger: reserved with a job, within what its accounts' proofs have room for, and recomputed."""

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from sqlalchemy import select, text, update

from core.access import principals
from core.base.errors import DrawsExhausted
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Entry, Job, Scope
from core.jobs import jobs
from core.ledger import chain, ledger
from core.privacy.budget import plan_orders
from core.privacy.caps import part_of, part_of_draws
from core.privacy.draws import MOST_RUNS, most_draws
from core.privacy.events import Sampled
from core.records.datasets import give_access
from tests.support.store import DRAWS, STEP, Place, make_place, submit

WEAK = plan_orders(Decimal(45), Decimal("1e-6"))
"""Room for some nine thousand units."""
RUN = DRAWS // MOST_RUNS


def draws(database: Database, account_id: str) -> int:
    with database.read() as session:
        return session.get_one(Account, account_id).draws


def bodies(database: Database, job_id: str) -> list[tuple[str, int | None]]:
    with database.read() as session:
        told = session.execute(select(Entry.body).where(Entry.job_id == job_id).order_by(Entry.seq)).scalars()
        return [(body["kind"], body.get("draws")) for body in map(json.loads, told)]


def is_verified(database: Database, scope_id: str) -> bool:
    with database.read() as session:
        return ledger.verify(session, scope_id).ok


def test_draws_are_reserved_up_to_what_the_proof_has_room_for(database: Database) -> None:
    place = make_place(database, WEAK)
    most = most_draws(WEAK)
    assert 5 * DRAWS < most < 15 * DRAWS
    for number in range(most // DRAWS):
        submit_one(database, place)
        assert draws(database, place.scope_id) == (number + 1) * DRAWS
    with pytest.raises(DrawsExhausted, match=f"may draw {DRAWS} units.* room for {most}") as refused:
        submit_one(database, place)
    assert refused.value.facts == {
        "draws": str(DRAWS),
        "reserved_draws": str(most // DRAWS * DRAWS),
        "most_draws": str(most),
    }
    assert draws(database, place.scope_id) == most // DRAWS * DRAWS
    assert is_verified(database, place.scope_id)


def submit_one(database: Database, place: Place, retry_allowance: int = 0) -> str:
    with database.write() as session:
        return submit(session, place, retry_allowance=retry_allowance).id


def test_jobs_admitted_together_are_counted_one_after_the_other(database: Database) -> None:
    place = make_place(database, WEAK)
    with database.write() as session:
        drafted = [
            jobs.draft(
                at=clock.read(session),
                owner_id=place.principal_id,
                dataset_id=place.dataset_id,
                scope_id=place.scope_id,
                grant_id=None,
                spec={},
                optimizer="noisy_gd",
                steps=1,
                labels={},
            )
            for _ in range(2)
        ]
        reservation = ledger.Reservation(ledger.accounts_of(session, drafted))
        much = ledger.Schedule((STEP,), draws=most_draws(WEAK) // 2 + 1)
        reservation.add(drafted[0], much)
        with pytest.raises(DrawsExhausted):
            reservation.add(drafted[1], much)


def test_a_cap_s_jobs_draw_no_more_than_its_part_of_the_room(database: Database) -> None:
    """A thousandth of the budget used all the room, with cheap jobs that draw much; then nobody else had any."""
    place = make_place(database)
    with database.read() as session:
        scope = ledger.balance(session, place.scope_id).terms
    cap = part_of(scope, Fraction(1, 10))
    most = part_of_draws(cap, scope)
    assert most_draws(scope) // 11 < most <= most_draws(scope) // 10
    assert part_of_draws(scope, scope) == most_draws(scope)
    with database.write() as session:
        analyst = principals.create(session, "b", "analyst")
        grant = ledger.set_grant(session, place.scope_id, analyst.id, cap, {"share": "0.1"}).id
        session.get_one(Account, grant).draws = session.get_one(Account, place.scope_id).draws = most - DRAWS
    with database.write() as session:
        submit(session, place, grant=(analyst.id, grant))
    with (
        pytest.raises(DrawsExhausted, match=f"budget cap has room for {most}.*larger cap"),
        database.write() as session,
    ):
        submit(session, place, grant=(analyst.id, grant))
    submit_one(database, place)


def test_a_cap_larger_than_the_budget_has_all_its_room(database: Database) -> None:
    """A cap of a large epsilon thus leaves the scope's own budget as the only limit."""
    place, wide = make_place(database), plan_orders(Decimal(100), Decimal("1e-6"))
    assert most_draws(wide) == 0
    with database.write() as session:
        analyst = principals.create(session, "b", "analyst")
        grant = ledger.set_grant(session, place.scope_id, analyst.id, wide, {"epsilon": "100", "delta": "1e-6"}).id
        submit(session, place, grant=(analyst.id, grant))
        submit(session, place)
    assert (draws(database, grant), draws(database, place.scope_id)) == (DRAWS, 2 * DRAWS)
    assert is_verified(database, place.scope_id)


@pytest.mark.parametrize("paid", [False, True])
def test_draws_are_given_back_that_no_attempt_can_have_made(database: Database, *, paid: bool) -> None:
    """All of them where nothing was ever paid, and else the runs that no attempt was there for."""
    place = make_place(database)
    job_id = submit_one(database, place)
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    if paid:
        database.transaction(ledger.pay, claim, 0, None, 0)
    with database.write() as session:
        jobs.cancel(session, job_id)
    database.transaction(jobs.acknowledge_cancel, claim)
    assert draws(database, place.scope_id) == (RUN if paid else 0)
    told = [("read", None), ("spend", None)] if paid else []
    assert bodies(database, job_id) == [("reserve", DRAWS), *told, ("settle", DRAWS - RUN if paid else DRAWS)]
    assert is_verified(database, place.scope_id)


@pytest.mark.parametrize("chunks", [1, 3, 4])
def test_a_cancelled_job_of_an_analyst_gives_his_cap_its_unused_draws_back(database: Database, chunks: int) -> None:
    """An attempt counts as a whole run, even if it made only a part of its first run."""
    place, sampled = make_place(database), (Sampled(numerator=2**55, sigma=8.0),) * 4
    with database.read() as session:
        scope = ledger.balance(session, place.scope_id).terms
    with database.write() as session:
        analyst = principals.create(session, "b", "analyst")
        give_access(session, place.dataset_id, analyst.id)
        cap = part_of(scope, Fraction(1, 2))
        grant = ledger.set_grant(session, place.scope_id, analyst.id, cap, {"share": "0.5"}).id
        most = part_of_draws(cap, scope)
        before = session.get_one(Account, grant).draws = session.get_one(Account, place.scope_id).draws = (
            most - DRAWS - RUN
        )
    with database.write() as session:
        job_id = submit(session, place, sampled, grant=(analyst.id, grant)).id
    with pytest.raises(DrawsExhausted), database.write() as session:
        submit(session, place, sampled, grant=(analyst.id, grant))
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    for chunk in range(chunks):
        database.transaction(ledger.pay, claim, chunk, None, chunk)
    database.transaction(jobs.cancel, job_id)
    database.transaction(jobs.acknowledge_cancel, claim)
    assert draws(database, grant) == draws(database, place.scope_id) == before + RUN
    with database.write() as session:
        submit(session, place, sampled, grant=(analyst.id, grant))


@pytest.mark.parametrize("attempts", [1, 2, MOST_RUNS, MOST_RUNS + 2])
@pytest.mark.parametrize("end", ["succeeded", "failed", "charged"])
def test_each_attempt_that_could_read_counts_as_a_run(database: Database, attempts: int, end: str) -> None:
    """Also those that never paid, whose draws may cost less than a nano-nat, and may be covered without payment."""
    place = make_place(database)
    job_id = submit_one(database, place)
    for number in range(attempts):
        claim = database.transaction(jobs.claim, "w", 60.0)
        assert claim is not None
        if number != 1:
            database.transaction(jobs.mark_opened, claim)
        if number == 0:
            database.transaction(ledger.pay, claim, 0, None, 0)
            database.transaction(ledger.keep, claim, b"state", 1)
        if number < attempts - 1:
            database.transaction(jobs.release_claim, claim)
    if end == "succeeded":
        database.transaction(jobs.finish, claim, {}, "not-needed")
    else:
        database.transaction(jobs.fail, claim, "trainer-failed", charge="all" if end == "charged" else "spent")
    read = attempts - (attempts > 1)
    kept = DRAWS if end == "charged" else min(read, MOST_RUNS) * RUN
    assert draws(database, place.scope_id) == kept
    assert ("read", None) in bodies(database, job_id)
    assert is_verified(database, place.scope_id)


def test_a_reservation_that_says_no_runs_is_one_run(database: Database) -> None:
    """A stream's attempts together are one run, and those of a reservation from before entries named runs are too."""
    place = make_place(database)
    with database.write() as session:
        job = submit(session, place, runs=1)
        entry = session.execute(select(Entry.body).where(Entry.job_id == job.id)).scalar_one()
        assert json.loads(entry)["runs"] == 1
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    database.transaction(ledger.pay, claim, 0, None, 0)
    database.transaction(jobs.fail, claim, "diverged", charge="spent")
    assert draws(database, place.scope_id) == DRAWS
    assert is_verified(database, place.scope_id)


def test_a_job_that_loses_something_has_so_many_attempts_and_no_more(database: Database) -> None:
    """Runs are reserved for so many: a job that is put back again and again, each time with a loss, ends."""
    place = make_place(database)
    job_id = submit_one(database, place, retry_allowance=50)
    for attempt in range(1, MOST_RUNS + 1):
        claim = database.transaction(jobs.claim, "w", 60.0)
        assert claim is not None
        assert claim.attempt == attempt
        database.transaction(ledger.pay, claim, 0, None, 0)
        database.transaction(jobs.release_claim, claim)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.state, job.error_code) == ("failed", "worker-lost")
    assert is_verified(database, place.scope_id)


@pytest.mark.parametrize("forged", ["account", "reserve", "settle"])
def test_counts_that_do_not_follow_from_the_entries_are_found(database: Database, forged: str) -> None:
    place = make_place(database, WEAK)
    job_id = submit_one(database, place)
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    database.transaction(ledger.pay, claim, 0, None, 0)
    if forged == "account":
        with database.write() as session:
            session.execute(update(Account).where(Account.id == place.scope_id).values(draws=1))
    else:
        rewrite(database, place.scope_id, job_id, forged)
    assert not is_verified(database, place.scope_id)


def rewrite(database: Database, scope_id: str, job_id: str, forged: str) -> None:
    """Reserve more than there is room for, or give back what was drawn, in a chain whose hashes are made anew."""
    with database.write() as session:
        if forged == "settle":
            ledger.settle(session, session.get_one(Job, job_id), reason="cancelled")
        if session.get_bind().dialect.name == "sqlite":
            session.execute(text("DROP TRIGGER entries_no_update"))
        else:
            session.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
        head, scope = chain.GENESIS, session.get_one(Scope, scope_id)
        for entry in session.execute(select(Entry).where(Entry.scope_id == scope_id).order_by(Entry.seq)).scalars():
            body = json.loads(entry.body)
            if body["kind"] == forged:
                body["draws"] = most_draws(WEAK) + 1 if forged == "reserve" else DRAWS
            told = chain.canonical(body)
            entry.body, entry.prev_hash, entry.hash = told, head, chain.link(head, told)
            head = entry.hash
        scope.head = head
        account = session.get_one(Account, scope_id)
        account.draws = most_draws(WEAK) + 1 if forged == "reserve" else 0
