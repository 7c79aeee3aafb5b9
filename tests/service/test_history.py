"""A budget's history has one point for each job that ended, and adds up to what the budget says."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from core.base.errors import NotFound
from core.db.tables import Scope
from core.jobs import jobs
from core.ledger import ledger
from core.service import history, scopes
from core.service.context import Caller, Context, Role
from farthing.schemas.history import PointView
from tests.support.released import released
from tests.support.store import STEP, Place, backed_up, give, open_place, put_back, submit

Someone = Callable[[Role], Caller]
RELEASE = released().model_dump(mode="json")


class Ran:
    """A scope of an owner's in which an analyst with access sends jobs."""

    def __init__(self, context: Context, someone: Someone) -> None:
        self.context = context
        self.owner, self.analyst = someone("owner"), someone("analyst")
        with context.database.write() as session:
            self.place: Place = open_place(session, self.owner.id)
            self.grant = give(session, self.place.dataset_id, self.analyst.id)

    def run(self, caller: Caller, chunks: int = 4, paid: int | None = None) -> str:
        """Send a job, pay some of its chunks, and end it well or as a failure."""
        with self.context.database.write() as session:
            granted = (caller.id, self.grant) if caller is self.analyst else None
            job_id = submit(session, self.place, (STEP,) * chunks, grant=granted, retry_allowance=1).id
        claim = self.context.database.transaction(jobs.claim, "worker", 60.0)
        assert claim is not None
        for chunk in range(chunks if paid is None else paid):
            self.context.database.transaction(ledger.pay, claim, chunk, None, chunk)
        if paid is None:
            self.context.database.transaction(jobs.finish, claim, RELEASE, "not-needed")
        else:
            with self.context.database.write() as session:
                jobs.fail(session, claim, "trainer-failed", charge="all")
        return job_id

    def history(self, caller: Caller, after: int = 0, limit: int = 100) -> list[PointView]:
        return history.page(self.context, caller, self.place.scope_id, after, limit)


@pytest.fixture
def ran(context: Context, someone: Someone) -> Ran:
    return Ran(context, someone)


def test_points_say_who_and_what_and_add_up_to_the_budget(context: Context, ran: Ran) -> None:
    assert ran.history(ran.owner) == []
    first, second = ran.run(ran.analyst), ran.run(ran.owner, chunks=2)
    found = ran.history(ran.owner)
    assert [(one.job, one.principal, one.name, one.method, one.kind) for one in found] == [
        (first, ran.analyst.id, ran.analyst.name, "noisy_newton", "settle"),
        (second, ran.owner.id, ran.owner.name, "noisy_newton", "settle"),
    ]
    assert float(found[0].held) > float(found[0].charged) == float(found[0].spent) > 0
    assert float(found[1].spent) > float(found[0].spent)
    shares = scopes.budget(context, ran.owner, ran.place.scope_id).budget_share
    assert (found[-1].spent, found[-1].reserved, found[-1].remaining) == (
        shares.spent,
        shares.reserved,
        shares.remaining,
    )


def test_new_ends_are_added_and_live_jobs_are_not(context: Context, ran: Ran) -> None:
    ran.run(ran.owner)
    before = ran.history(ran.owner)
    with context.database.write() as session:
        waiting = submit(session, ran.place).id
    assert ran.history(ran.owner) == before
    context.database.transaction(jobs.cancel, waiting)
    last = ran.history(ran.owner)[-1]
    assert (last.job, last.kind, last.charged, last.spent) == (waiting, "settle", "0", before[-1].spent)


def test_pages_begin_above_an_entry(ran: Ran) -> None:
    for _ in range(3):
        ran.run(ran.owner, chunks=1)
    whole = ran.history(ran.owner)
    assert ran.history(ran.owner, whole[0].seq) == whole[1:]
    assert ran.history(ran.owner, whole[0].seq, 1) == whole[1:2]


def test_a_restored_ledger_is_read_anew(context: Context, ran: Ran) -> None:
    ran.run(ran.owner)
    kept, old = backed_up(context.database), ran.history(ran.owner)
    ran.run(ran.owner, chunks=3)
    ran.history(ran.owner)
    put_back(context.database, kept)
    assert ran.history(ran.owner) == old
    other = ran.run(ran.owner, chunks=1)
    assert [one.job for one in ran.history(ran.owner)] == [old[0].job, other]


def test_names_and_methods_are_for_those_who_see_the_jobs(ran: Ran, someone: Someone) -> None:
    """The ledger shows everybody in the scope which jobs ran, of whom, and what they cost."""
    ran.run(ran.owner)
    ran.run(ran.analyst)
    others, own = ran.history(ran.analyst)
    assert (others.name, others.method, others.principal) == (None, None, ran.owner.id)
    assert (own.name, own.method) == (ran.analyst.name, "noisy_newton")
    for role in ("auditor", "admin"):
        assert [one.name for one in ran.history(someone(role))] == [ran.owner.name, ran.analyst.name]
    for role in ("owner", "analyst"):
        with pytest.raises(NotFound):
            ran.history(someone(role))


@pytest.mark.parametrize("before", ["auditor", "admin"])
def test_methods_go_with_the_sight_of_the_jobs(context: Context, ran: Ran, someone: Someone, before: Role) -> None:
    """The kept methods are warm: everybody who sees all jobs has asked for them."""
    ran.run(ran.owner)
    ran.run(ran.analyst)
    seeing = someone(before)
    for caller in (ran.owner, seeing):
        assert [one.method for one in ran.history(caller)] == ["noisy_newton"] * 2
        assert set(history.latest(context, caller, ran.place.scope_id, 9).by_method) == {"noisy_newton"}
    with context.database.write() as session:
        give(session, ran.place.dataset_id, seeing.id)
    now = replace(seeing, role="analyst")
    assert [one.method for one in ran.history(now)] == [None, None]
    shown = history.latest(context, now, ran.place.scope_id, 9)
    assert ([one.method for one in shown.points], shown.by_method) == ([None, None], {})
    own = history.latest(context, ran.analyst, ran.place.scope_id, 9)
    assert [one.method for one in own.points] == [None, "noisy_newton"]
    assert own.by_method == {"noisy_newton": own.points[1].charged}


def test_methods_are_the_new_owners_once_the_data_is_another_s(context: Context, ran: Ran, someone: Someone) -> None:
    """Ownership of the scope decides at each look, not at the first."""
    ran.run(ran.analyst)
    other = someone("owner")
    assert [one.method for one in ran.history(ran.owner)] == ["noisy_newton"]
    with context.database.write() as session:
        session.get_one(Scope, ran.place.scope_id).owner_id = other.id
        give(session, ran.place.dataset_id, ran.owner.id)
    assert [one.method for one in ran.history(other)] == ["noisy_newton"]
    assert [one.method for one in ran.history(ran.owner)] == [None]


def test_a_failure_that_is_charged_whole_is_a_charge(ran: Ran) -> None:
    ran.run(ran.owner, paid=2)
    (found,) = ran.history(ran.owner)
    assert (found.kind, found.reserved) == ("charge", "0")
    assert found.charged == found.held
