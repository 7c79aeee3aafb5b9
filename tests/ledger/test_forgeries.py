"""Chains that somebody rewrote from end to end: every hash, sum and column agrees, and a price does not.

The forger has all of the database: entries with their columns, heads, accounts, and what jobs remember. Each forgery is
one that an owner, an analyst or an operator would gain by.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from sqlalchemy import delete, select, text
from sqlalchemy.orm import Session

from core.access import principals
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Entry, Job, Scope, ScopeEvent
from core.jobs import jobs
from core.ledger import chain, kinds, ledger
from core.ledger.accounts import lock_accounts, move, terms_of
from core.ledger.bodies import slots
from core.ledger.verification import Verifier
from core.privacy.budget import plan_orders
from core.privacy.events import EVENT, Event, Gaussian
from core.privacy.renyi import prefix_costs
from tests.support.store import Place, make_place, submit
from tests.support.sums import add_up

SCHEDULE = (Gaussian(sigma=20.0), Gaussian(sigma=33.0), Gaussian(sigma=33.0))
Bodies = list[dict[str, Any]]


def drop_triggers(session: Session) -> None:
    """Make the ledger writable, as whoever owns the database can."""
    if session.get_bind().dialect.name == "sqlite":
        session.execute(text("DROP TRIGGER IF EXISTS entries_no_update"))
        session.execute(text("DROP TRIGGER IF EXISTS entries_no_delete"))
    else:
        session.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))


def rewrite(
    database: Database, scope_id: str, change: Callable[[Bodies], object], *, version: int | None = None
) -> None:
    """Rewrite a chain from its first entry, and everything beside it so that all sums agree."""
    with database.write() as session:
        drop_triggers(session)
        rows = session.execute(select(Entry).where(Entry.scope_id == scope_id).order_by(Entry.seq)).scalars().all()
        bodies: Bodies = [json.loads(row.body) for row in rows]
        change(bodies)
        session.execute(text("DELETE FROM entries WHERE scope_id = :scope"), {"scope": scope_id})
        session.expunge_all()
        head = chain.GENESIS
        sums: dict[str, dict[str, list[int]]] = {}
        for seq, body in enumerate(bodies, start=1):
            body["seq"] = seq
            if version is not None:
                body["v"] = version
            for account, moved in body["accounts"].items():
                for name, amounts in moved.items():
                    held = sums.setdefault(account, {"spent": [0] * 4, "reserved": [0] * 4})[name]
                    held[:] = [one + two for one, two in zip(held, amounts, strict=True)]
            content = chain.canonical(body)
            following = chain.link(head, content)
            session.add(
                Entry(
                    scope_id=scope_id,
                    seq=seq,
                    kind=body["kind"],
                    job_id=body["job"],
                    attempt=body["attempt"],
                    chunk=body["chunk"],
                    body=content,
                    prev_hash=head,
                    hash=following,
                    created_at=body["at"],
                )
            )
            head = following
        scope = session.get_one(Scope, scope_id)
        scope.seq, scope.head = len(bodies), head
        scope.gaussian_rho = scope.other_rho = "0"
        scope.unpriced = 0
        session.execute(delete(ScopeEvent).where(ScopeEvent.scope_id == scope_id))
        with suppress(KeyError, ValueError):  # a forgery that cannot be read is found all the same
            add_up(session, scope_id)
        for account_id, totals in sums.items():
            account = session.get_one(Account, account_id)
            for name, amounts in totals.items():
                for slot, amount in enumerate(amounts, start=1):
                    setattr(account, f"{name}_{slot}", amount)
        remember(session, bodies)


def remember(session: Session, bodies: Bodies) -> None:
    """Make jobs remember what the bodies say of them."""
    for body in bodies:
        if body["kind"] != "reserve":
            continue
        job = session.get(Job, body["job"])
        if job is None:
            continue
        job.schedule = [event for times, event in body["schedule"] for _ in range(times)]
        events = [EVENT.validate_python(event) for event in job.schedule]
        for account_id in job.chunks:
            orders = terms_of(session.get_one(Account, account_id)).orders
            totals = [[*total, *[0] * (4 - len(total))] for total in prefix_costs(events, orders)]
            job.chunks = {**job.chunks, account_id: totals}


def history(database: Database) -> Place:
    """Make a ledger with one job that succeeded, one that failed and was compensated, a repeat, one that waits."""
    place = make_place(database)
    for ending in ("succeeded", "compensated", "repeated"):
        with database.write() as session:
            job_id = submit(session, place, SCHEDULE, retry_allowance=1).id
        claim = database.transaction(jobs.claim, "w", 600.0)
        assert claim is not None
        if ending == "compensated":
            database.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
            database.transaction(
                ledger.compensate, place.scope_id, job_id, Fraction(1), "no driver", place.principal_id
            )
            continue
        for chunk in range(3):
            database.transaction(ledger.pay, claim, chunk, b"state", chunk)
            if ending == "repeated" and chunk == 1:
                database.transaction(jobs.release_claim, claim)
                claim = database.transaction(jobs.claim, "w", 600.0)
                assert claim is not None
                database.transaction(ledger.pay, claim, 1, b"state", 1)
        database.transaction(jobs.finish, claim, {}, "not-needed")
    with database.write() as session:
        submit(session, place, SCHEDULE[:1])
    return place


def of(bodies: Bodies, kind: str, number: int = 0) -> dict[str, Any]:
    """Return an entry of a kind."""
    return [body for body in bodies if body["kind"] == kind][number]


def moved(body: dict[str, Any]) -> dict[str, list[int]]:
    (movement,) = body["accounts"].values()
    return movement  # type: ignore[no-any-return]  # it is JSON


def everything_for_a_nano(bodies: Bodies) -> None:
    """The audit's first: every job pays one nano-nat a chunk."""
    for body in bodies:
        for name, amounts in (moved(body) if body["accounts"] else {}).items():
            if body["kind"] == "reserve":
                moved(body)[name] = [3, 3, 3, 0] if name == "reserved" else [0] * 4
            elif body["kind"] == "spend":
                moved(body)[name] = [1, 1, 1, 0] if name == "spent" else [-1, -1, -1, 0]
            else:
                moved(body)[name] = [0 * amount for amount in amounts]


def loud_gaussian(bodies: Bodies) -> None:
    """The audit's second: the schedule tells of an answer with hardly any noise, and the amounts stay."""
    loud = {"kind": "gaussian", "sigma": 0.001}
    of(bodies, "reserve")["schedule"] = [[3, loud]]
    for body in bodies:
        if body["kind"] == "spend" and body["job"] == of(bodies, "reserve")["job"]:
            body["event"] = [[1, loud]]


def wider_cap(bodies: Bodies) -> None:
    bodies[0]["terms"]["caps_nano"] = [2 * cap for cap in bodies[0]["terms"]["caps_nano"]]


def another_epsilon(bodies: Bodies) -> None:
    bodies[0]["terms"]["epsilon"] = "8"


def another_declaration(bodies: Bodies) -> None:
    bodies[0]["terms"]["declared"]["epsilon"] = "8"


def cheaper_spend(bodies: Bodies) -> None:
    """One spend gives a nano-nat less, and the settlement gives it back."""
    moved(of(bodies, "spend"))["spent"][0] -= 1
    moved(of(bodies, "spend"))["reserved"][0] += 1
    moved(of(bodies, "settle"))["reserved"][0] -= 1


def free_repeat(bodies: Bodies) -> None:
    again = next(body for body in bodies if body.get("again"))
    settled = of(bodies, "settle", 1)
    for slot in range(4):
        amount = moved(again)["spent"][slot]
        moved(again)["spent"][slot], moved(again)["reserved"][slot] = 0, 0
        moved(settled)["reserved"][slot] -= amount


def no_spend(bodies: Bodies) -> None:
    """A chunk was read, and its payment is taken out of the chain; the settlement gives it back."""
    gone = of(bodies, "spend", 2)
    bodies.remove(gone)
    for slot in range(4):
        moved(of(bodies, "settle"))["reserved"][slot] -= moved(gone)["spent"][slot]


def larger_compensation(bodies: Bodies) -> None:
    """More is given back than the job was charged: a part of others' payments."""
    moved(of(bodies, "compensate"))["spent"][0] -= 1000


def compensation_twice(bodies: Bodies) -> None:
    once = of(bodies, "compensate")
    bodies.insert(len(bodies) - 1, {**once, "at": bodies[-1]["at"], "attempt": 1})


def settled_twice(bodies: Bodies) -> None:
    once = of(bodies, "settle")
    bodies.insert(len(bodies) - 1, {**once, "at": bodies[-1]["at"], "attempt": 1})


def spend_after_settle(bodies: Bodies) -> None:
    last = next(body for body in reversed(bodies) if body["kind"] == "spend")
    bodies.insert(len(bodies) - 1, {**last, "at": bodies[-1]["at"], "attempt": 9})


def spend_before_reserve(bodies: Bodies) -> None:
    first = of(bodies, "spend")
    bodies.remove(first)
    bodies.insert(1, {**first, "at": bodies[0]["at"]})


def no_reserve(bodies: Bodies) -> None:
    """The job that waits has reserved nothing."""
    bodies.pop()


def chunks_out_of_order(bodies: Bodies) -> None:
    first, second = of(bodies, "spend"), of(bodies, "spend", 1)
    first["chunk"], second["chunk"] = 1, 0
    first["event"], second["event"] = second["event"], first["event"]


def time_runs_back(bodies: Bodies) -> None:
    bodies[-1]["at"] -= 3600


def unused_slot(bodies: Bodies) -> None:
    moved(of(bodies, "reserve", -1))["reserved"][3] = 7


def forgotten_allowance(bodies: Bodies) -> None:
    of(bodies, "reserve", 2)["retry_allowance"] = 0


def invented_field(bodies: Bodies) -> None:
    bodies[2]["note"] = "paid in kind"


FORGERIES: dict[Callable[[Bodies], object], str | None] = {
    everything_for_a_nano: "reserve",
    loud_gaussian: "reserve",
    wider_cap: "open",
    another_epsilon: "open",
    another_declaration: "open",
    cheaper_spend: "spend",
    free_repeat: "spend",
    no_spend: None,
    larger_compensation: "compensate",
    compensation_twice: "compensate",
    settled_twice: "settle",
    spend_after_settle: "spend",
    spend_before_reserve: "spend",
    no_reserve: None,
    chunks_out_of_order: "spend",
    time_runs_back: "reserve",
    unused_slot: "reserve",
    forgotten_allowance: "reserve",
    invented_field: None,
}


def verify(database: Database, scope_id: str) -> ledger.Verification:
    with database.read() as session:
        return ledger.verify(session, scope_id)


def test_an_honest_history_is_verified(database: Database) -> None:
    place = history(database)
    found = verify(database, place.scope_id)
    assert found.ok, found.reason
    rewrite(database, place.scope_id, lambda bodies: bodies)
    assert verify(database, place.scope_id) == found, "the forger's tools alone change nothing"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("forge", FORGERIES, ids=lambda one: one.__name__)
def test_a_forged_chain_is_bad(database: Database, forge: Callable[[Bodies], object]) -> None:
    place = history(database)
    assert verify(database, place.scope_id).ok
    rewrite(database, place.scope_id, forge)
    found = verify(database, place.scope_id)
    assert not found.ok
    if found.first_bad_seq is not None and FORGERIES[forge] is not None:
        with database.read() as session:
            bad = session.get_one(Entry, (place.scope_id, found.first_bad_seq))
        assert bad.kind == FORGERIES[forge], found.reason


def test_a_forged_chain_is_bad_on_postgresql(database: Database) -> None:
    place = history(database)
    rewrite(database, place.scope_id, everything_for_a_nano)
    assert not verify(database, place.scope_id).ok


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_forged_grant_is_bad(database: Database) -> None:
    place = make_place(database)
    with database.write() as session:
        analyst = principals.create(session, "Anna", "analyst").id
        small = plan_orders(Decimal(1), Decimal("1e-6"))
        ledger.set_grant(session, place.scope_id, analyst, small, {"epsilon": "1", "delta": "1e-6"})
    assert verify(database, place.scope_id).ok
    rewrite(database, place.scope_id, lambda bodies: bodies[2]["terms"]["caps_nano"].reverse())
    found = verify(database, place.scope_id)
    assert (found.ok, found.first_bad_seq) == (False, 3)


BROKEN = [
    "UPDATE entries SET body = '{}' WHERE seq = 5",
    "UPDATE entries SET body = 'nothing' WHERE seq = 5",
    """UPDATE entries SET body = replace(body, '"kind":"spend"', '"kind":"gift"') WHERE seq = 5""",
    "UPDATE scopes SET seq = 1",
    "UPDATE scopes SET head = ''",
]


@pytest.mark.parametrize("statement", BROKEN)
@pytest.mark.parametrize("hashed", [False, True])
def test_what_cannot_be_read_is_bad_and_freezes(database: Database, statement: str, *, hashed: bool) -> None:
    """At 9f63d67 a KeyError ended the thread that frees lost leases."""
    place = history(database)
    with database.write() as session:
        drop_triggers(session)
        session.execute(text(statement))
    if hashed and "entries" in statement:
        rehash(database, place.scope_id)
    rounds = ledger.Rounds(database, whole_seconds=1e9)
    assert list(rounds.go()) == [place.scope_id]
    with database.read() as session:
        assert session.get_one(Scope, place.scope_id).frozen_reason is not None
    assert rounds.go() == {}, "what is known as bad is not read again and again"


def rehash(database: Database, scope_id: str) -> None:
    """Let every hash agree with bodies that need not be any."""
    with database.write() as session:
        head = chain.GENESIS
        rows = session.execute(select(Entry).where(Entry.scope_id == scope_id).order_by(Entry.seq)).scalars()
        for row in rows:
            row.prev_hash, row.hash = head, chain.link(head, row.body)
            head = row.hash
        session.get_one(Scope, scope_id).head = head


def test_what_is_new_is_verified_alone_and_all_of_it_now_and_then(database: Database) -> None:
    place = history(database)
    rounds, anxious = ledger.Rounds(database, whole_seconds=1e9), ledger.Rounds(database, whole_seconds=0.0)
    assert rounds.go() == {}
    assert anxious.go() == {}
    rewrite(database, place.scope_id, lambda bodies: bodies[0].update(actor="pr_other"))
    found = rounds.go()
    assert not found, "nothing was added, and what was verified before is not due"
    assert list(anxious.go()) == [place.scope_id]


def test_a_prefix_that_was_rewritten_does_not_carry_new_entries(database: Database) -> None:
    place = history(database)
    rounds = ledger.Rounds(database, whole_seconds=1e9)
    assert rounds.go() == {}
    rewrite(database, place.scope_id, cheaper_spend)
    with database.write() as session:
        submit(session, place, SCHEDULE[:1])
    assert list(rounds.go()) == [place.scope_id]


def pay(database: Database, place: Place, price: Event) -> str:
    """Have a job of one chunk charged whole that never read a record; return it."""
    with database.write() as session:
        submit(session, place, [price])
    claim = database.transaction(jobs.claim, "w", 600.0)
    assert claim is not None
    database.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
    return claim.job_id


def test_a_correction_gives_back_no_more_although_what_it_gives_back_was_rewritten(database: Database) -> None:
    """A verifier that has read the entries of a cheap job: they become a dear one's, and its charge is given back."""
    place = make_place(database)
    cheap, dear = pay(database, place, Gaussian(sigma=90.0)), pay(database, place, Gaussian(sigma=30.0))
    rounds = ledger.Rounds(database, whole_seconds=1e9)
    assert rounds.go() == {}
    with database.write() as session:
        drop_triggers(session)
        found = (
            session.execute(select(Entry).where(Entry.scope_id == place.scope_id).order_by(Entry.seq)).scalars().all()
        )
        dear_ones = {row.kind: json.loads(row.body) for row in found if row.job_id == dear}
        for row in found:
            if row.job_id == cheap:
                row.body = chain.canonical(dear_ones[row.kind] | {"job": cheap, "seq": row.seq})
        session.flush()
        scope = ledger.lock_scope(session, place.scope_id)
        account = lock_accounts(session, [place.scope_id])[0]
        back = [-one for one in dear_ones["charge"]["accounts"][place.scope_id]["spent"]]
        moved = {place.scope_id: move(account, spent=back, reserved=slots([]))}
        content = {"accounts": moved, "fraction": "1", "reason": "no driver", "actor": place.principal_id}
        at = clock.read(session)
        chain.append(session, scope, kinds.Compensate, at=at, job_id=cheap, attempt=0, chunk=0, content=content)
    assert list(rounds.go()) == [place.scope_id]


def test_a_chain_is_followed_in_slices_to_the_same_end(database: Database) -> None:
    """Jobs that ended slices before are corrected; entries come while it is followed."""
    place = history(database)
    paid = [pay(database, place, Gaussian(sigma=60.0 + k)) for k in range(3)]
    database.transaction(ledger.compensate, place.scope_id, paid[0], Fraction(1), "no driver", place.principal_id)
    with database.read() as session:
        last = session.get_one(Scope, place.scope_id).seq
    verifier, slices, late = Verifier(place.scope_id), 0, False
    found = None
    while found is None:
        with database.read() as session:
            found = verifier.advance(session, 1)
        slices += 1
        if slices == 2:
            pay(database, place, Gaussian(sigma=70.0))
            database.transaction(
                ledger.compensate, place.scope_id, paid[1], Fraction(1), "no driver", place.principal_id
            )
        if verifier.place[0] > last and not late:  # the job's entries were followed, and let go of
            late = True
            database.transaction(
                ledger.compensate, place.scope_id, paid[2], Fraction(1, 2), "no driver", place.principal_id
            )
    assert found.ok, found.reason
    assert late
    with database.read() as session:
        assert verifier.place == (found.entries, found.head)
        assert found == ledger.verify(session, place.scope_id)


@pytest.mark.parametrize("price", [(Gaussian(sigma=40.0),), SCHEDULE])
def test_verification_goes_on_where_it_was(database: Database, price: tuple[Event, ...]) -> None:
    """Jobs that were live, and jobs that were over, when it was last done are followed further."""
    place = history(database)
    rounds = ledger.Rounds(database, whole_seconds=1e9)
    for _ in range(2):
        assert rounds.go() == {}
        with database.write() as session:
            job_id = submit(session, place, price, retry_allowance=1).id
        assert rounds.go() == {}
        claim = database.transaction(jobs.claim, "w", 600.0)
        assert claim is not None
        database.transaction(ledger.pay, claim, 0, b"state", 0)
        assert rounds.go() == {}
        database.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
        assert rounds.go() == {}
        unread = pay(database, place, Gaussian(sigma=50.0))
        assert rounds.go() == {}
        database.transaction(ledger.compensate, place.scope_id, unread, Fraction(1, 2), "no driver", place.principal_id)
        assert rounds.go() == {}
    assert job_id
