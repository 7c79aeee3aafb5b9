"""Signatures of a long ledger that nobody has verified wait for a verification beside requests."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from core.base.errors import ScopeFrozen
from core.db.service_tables import VerifiedHead
from core.db.tables import Entry, Job, Scope
from core.jobs import jobs
from core.ledger import ledger, rounds, verification
from core.ledger.marks import EVERY
from core.ledger.tally import Tally
from core.ledger.witness.trusting import mark_keys
from core.service import backlogs, certificates
from core.service.backlogs import LedgerBehindError
from core.service.context import Caller, Context
from tests.ledger.test_forgeries import drop_triggers
from tests.service.test_passes import lengthen
from tests.support.store import STEP, Place, make_place, submit

AT_ONCE, ON_THE_WAY, ENTRIES = 30, 60, 240


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have some hundred entries be many."""
    monkeypatch.setattr(backlogs, "AT_ONCE", AT_ONCE)
    monkeypatch.setattr(backlogs, "ON_THE_WAY", ON_THE_WAY)
    monkeypatch.setattr(backlogs, "PAGE", 20)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each entry that is verified, in order."""
    seen: list[int] = []
    follow = verification.follow

    def counted(tally: Tally, head: str, row: Any) -> str:
        seen.append(row.seq)
        return follow(tally, head, row)

    monkeypatch.setattr(verification, "follow", counted)
    return seen


@pytest.fixture
def place(context: Context) -> Iterator[Place]:
    made = make_place(context.database)
    lengthen(context.database, made, ENTRIES)
    yield made
    context.backlogs.stop()


def last(context: Context, place: Place) -> int:
    with context.database.read() as session:
        return session.get_one(Scope, place.scope_id).seq


def marked(context: Context) -> int:
    with context.database.read() as session:
        return session.execute(select(func.max(VerifiedHead.seq))).scalar_one() or 0


def behind(context: Context, admin: Caller, place: Place) -> LedgerBehindError:
    with pytest.raises(LedgerBehindError) as caught:
        certificates.signed_head(context, admin, place.scope_id)
    return caught.value


def stop_at_a_mark(context: Context, admin: Caller, place: Place) -> None:
    """Have a process verify a part and end; it rests so long after each page that it is seen to be on its way."""
    until = time.monotonic() + 60
    with patch.object(context.backlogs._aside, "_rests", 50.0):
        behind(context, admin, place)
        while not marked(context):
            assert time.monotonic() < until
            time.sleep(0.01)
        context.backlogs.stop()


def wait(ask: Callable[[], str]) -> tuple[str, list[int]]:
    """Ask until it comes, a minute at most; return it, and the per cent on the way."""
    percents: list[int] = []
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return ask(), percents
        except LedgerBehindError as error:
            percents.append(error.percent)
            time.sleep(0.02)
    raise AssertionError(percents)


def test_a_head_waits_for_a_verification_that_goes_through_each_entry_once(
    context: Context, admin: Caller, place: Place, followed: list[int]
) -> None:
    begun = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        for asked in [pool.submit(behind, context, admin, place) for _ in range(8)]:
            assert asked.result().percent < 100
            assert 1 <= asked.result().retry_after_seconds <= 5
    assert time.monotonic() - begun < 5
    head, percents = wait(lambda: certificates.signed_head(context, admin, place.scope_id))
    assert head.count(".") == 2
    assert percents == sorted(percents)
    assert followed == list(range(1, last(context, place) + 1)), "once, in one thread, and nothing of it in a request"
    assert marked(context) == last(context, place)
    assert certificates.signed_head(context, admin, place.scope_id), "and at once from then on"


def test_a_certificate_waits_too(context: Context, admin: Caller, place: Place) -> None:
    with context.database.read() as session:
        job = session.execute(select(Job.id).where(Job.scope_id == place.scope_id).limit(1)).scalar_one()
    with pytest.raises(LedgerBehindError):
        certificates.certificate(context, admin, job)
    assert wait(lambda: certificates.certificate(context, admin, job))[0]


def test_a_process_that_dies_leaves_its_work(
    context: Context, admin: Caller, place: Place, followed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at_a_mark(context, admin, place)
    left = marked(context)
    assert ON_THE_WAY <= left < last(context, place)
    followed.clear()
    monkeypatch.setattr(backlogs, "ABANDONED_SECONDS", 0.0)
    next_process = Context(context.settings, context.database)
    assert behind(next_process, admin, place).percent >= 100 * left // last(context, place)
    wait(lambda: certificates.signed_head(next_process, admin, place.scope_id))
    assert followed == list(range(left + 1, last(context, place) + 1))
    next_process.backlogs.stop()


def test_another_process_s_verification_is_waited_for(
    context: Context, admin: Caller, place: Place, followed: list[int]
) -> None:
    """A supervisor's pass, too, leaves marks on its way; a mark that got no younger is taken over."""
    stop_at_a_mark(context, admin, place)
    followed.clear()
    other = Context(context.settings, context.database)
    for _ in range(3):
        assert behind(other, admin, place).percent >= 100 * marked(context) // last(context, place)
        time.sleep(0.05)
    assert followed == []
    with context.database.write() as session:
        session.execute(update(VerifiedHead).values(made_at=VerifiedHead.made_at - 2 * backlogs.ABANDONED_SECONDS))
    wait(lambda: certificates.signed_head(other, admin, place.scope_id))
    other.backlogs.stop()


def test_two_processes_that_began_together_never_lower_a_mark(
    context: Context, admin: Caller, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both begin before the first mark. The one that is behind leaves the rest to the other, and is no longer asked."""
    monkeypatch.setattr(backlogs, "ABANDONED_SECONDS", 0.0)
    other = Context(context.settings, context.database)
    with patch.object(other.backlogs._aside, "_rests", 50.0):
        behind(context, admin, place)
        behind(other, admin, place)
        seen: list[int] = []
        until = time.monotonic() + 60
        while other.backlogs._running:
            seen.append(marked(context))
            assert time.monotonic() < until
            time.sleep(0.002)
    wait(lambda: certificates.signed_head(context, admin, place.scope_id))
    assert marked(context) == last(context, place)
    assert seen == sorted(seen)
    assert certificates.signed_head(other, admin, place.scope_id), "and at once"
    other.backlogs.stop()


def test_a_ledger_that_grows_meanwhile_is_signed_of_in_the_end(
    context: Context, admin: Caller, place: Place, followed: list[int]
) -> None:
    behind(context, admin, place)
    for _ in range(3):
        lengthen(context.database, place, 60)
        with suppress(LedgerBehindError):
            certificates.signed_head(context, admin, place.scope_id)
    wait(lambda: certificates.signed_head(context, admin, place.scope_id))
    assert set(followed) == set(range(1, last(context, place) + 1))


@pytest.mark.parametrize(
    ("done", "entries"), [(0, 0), (0, 100_000), (100_000, 100_000), (100_005, 100_000), (90_000, 1)]
)
def test_what_is_said_of_a_ledger_that_has_grown_since_it_was_looked_at(done: int, entries: int) -> None:
    said = LedgerBehindError(done, entries)
    assert 0 <= said.percent < 100
    assert 1 <= said.retry_after_seconds <= 5


def test_a_mark_from_the_future_is_of_no_process(context: Context, admin: Caller, place: Place) -> None:
    """As after a clock that was put back: nobody would be waited for."""
    stop_at_a_mark(context, admin, place)
    other = Context(context.settings, context.database)
    with context.database.write() as session:
        session.execute(update(VerifiedHead).values(made_at=VerifiedHead.made_at + 3600))
    wait(lambda: certificates.signed_head(other, admin, place.scope_id))
    other.backlogs.stop()


def test_more_ledgers_than_a_process_takes_wait_for_the_first(
    context: Context, admin: Caller, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "_MOST", 1)
    second = make_place(context.database)
    lengthen(context.database, second, ENTRIES)
    with patch.object(context.backlogs._aside, "_rests", 50.0):
        behind(context, admin, place)
        behind(context, admin, second)
        assert list(context.backlogs._running) == [place.scope_id]
    for one in (place, second):
        wait(partial(certificates.signed_head, context, admin, one.scope_id))


def test_a_chain_that_is_broken_in_another_process_s_part_is_signed_by_neither(
    context: Context, admin: Caller, place: Place
) -> None:
    """The first has left marks from before the wrong entry; the second goes on from the last of them, and finds it."""
    stop_at_a_mark(context, admin, place)
    with context.database.write() as session:
        drop_triggers(session)
        wrong = update(Entry).where(Entry.scope_id == place.scope_id, Entry.seq == last_marked(session) + AT_ONCE + 5)
        session.execute(wrong.values(body=func.replace(Entry.body, "spend", "spent")))
        session.execute(update(VerifiedHead).values(made_at=0.0))
    other = Context(context.settings, context.database)
    with pytest.raises(ScopeFrozen, match="does not verify"):
        wait(lambda: certificates.signed_head(other, admin, place.scope_id))
    for one in (other, Context(context.settings, context.database)):
        with pytest.raises(ScopeFrozen, match="does not verify"):
            wait(partial(certificates.signed_head, one, admin, place.scope_id))
    other.backlogs.stop()


def last_marked(session: Session) -> int:
    return session.execute(select(func.max(VerifiedHead.seq))).scalar_one()


def test_a_supervisor_s_first_pass_leaves_marks_on_its_way(
    context: Context, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SLICE", 20)
    monkeypatch.setattr(rounds, "ON_THE_WAY", ON_THE_WAY)
    asked = iter(range(1000))
    found = ledger.Rounds(context.database, 1e9, lambda: mark_keys(context.settings))
    found.go(lambda: next(asked) > 5)
    assert ON_THE_WAY <= marked(context) < last(context, place)
    found.go()
    assert marked(context) > last(context, place) - EVERY


def test_a_long_ledger_that_does_not_verify_is_frozen_and_nothing_is_signed(
    context: Context, admin: Caller, place: Place, followed: list[int]
) -> None:
    """Each later request says so at once, and none begins again."""
    with context.database.write() as session:
        drop_triggers(session)
        wrong = update(Entry).where(Entry.scope_id == place.scope_id, Entry.seq == 140)
        session.execute(wrong.values(body=func.replace(Entry.body, "spend", "spent")))
    with pytest.raises(ScopeFrozen, match="does not verify"):
        wait(lambda: certificates.signed_head(context, admin, place.scope_id))
    with context.database.read() as session:
        assert session.get_one(Scope, place.scope_id).frozen_reason is not None
    followed.clear()
    with pytest.raises(ScopeFrozen, match="does not verify"):
        certificates.signed_head(context, admin, place.scope_id)
    assert followed == []


def test_a_correction_of_a_charge_from_below_the_mark_is_verified_beside_requests(
    context: Context, admin: Caller
) -> None:
    place = make_place(context.database)
    with context.database.write() as session:
        submit(session, place, [STEP])
    claim = context.database.transaction(jobs.claim, "w", 600.0)
    assert claim is not None
    context.database.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
    lengthen(context.database, place, ENTRIES)
    wait(lambda: certificates.signed_head(context, admin, place.scope_id))
    context.database.transaction(ledger.compensate, place.scope_id, claim.job_id, 1, "no driver", place.principal_id)
    behind(context, admin, place)
    wait(lambda: certificates.signed_head(context, admin, place.scope_id))
    assert marked(context) == last(context, place)
    context.backlogs.stop()


def test_a_forged_mark_near_the_end_signs_nothing_unverified(context: Context, admin: Caller, place: Place) -> None:
    wait(lambda: certificates.signed_head(context, admin, place.scope_id))
    with context.database.write() as session:
        session.execute(update(VerifiedHead).values(code="0" * 64))
    behind(context, admin, place)
    wait(lambda: certificates.signed_head(context, admin, place.scope_id))


def test_without_a_master_key_the_request_verifies_itself(context: Context, admin: Caller, place: Place) -> None:
    context.settings.master_key_path.unlink()
    assert certificates.signed_head(context, admin, place.scope_id)
    assert marked(context) == 0
