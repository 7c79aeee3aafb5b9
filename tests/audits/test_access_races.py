"""Access that is given and taken while workers claim and others give it: on SQLite, and on PostgreSQL at once."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy import select

from core.access import principals
from core.base.errors import Conflict, LedgerBusy, PreconditionFailed
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Attempt, Job, Principal
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.verification import verify
from core.privacy.amounts import BudgetCap
from core.privacy.caps import terms_of_cap
from core.privacy.events import Gaussian
from core.service import access
from core.service import principals as people
from core.service.context import Caller, Context
from tests.support.api import COLUMNS
from tests.support.store import Place, give, open_place, submit

JOBS = 40
QUIET = Gaussian(sigma=100.0)
CAP: TypeAdapter[BudgetCap] = TypeAdapter(BudgetCap)


class Scene:
    """An owner's place, an analyst with access to it, and the service that both use."""

    def __init__(self, database: Database, home: Path) -> None:
        self.database = database
        self.context = Context(ServiceSettings(home=home, database_url=str(database.url)), database)
        with database.write() as session:
            self.owner = principals.create(session, "Olga", "owner").id
            self.ann = principals.create(session, "Ann", "analyst").id
            self.admin = principals.create(session, "Root", "admin").id
            self.place: Place = open_place(session, self.owner, COLUMNS, units=400)

    def caller(self, role: Any) -> Caller:
        return Caller({"owner": self.owner, "analyst": self.ann, "admin": self.admin}[role], role, role, "key_none")

    def queue(self, count: int) -> list[str]:
        """Give the analyst access, and queue jobs of theirs."""
        with self.database.write() as session:
            grant = give(session, self.place.dataset_id, self.ann)
        made = []
        for _ in range(count):
            with self.database.write() as session:
                made.append(submit(session, self.place, (QUIET,), grant=(self.ann, grant)).id)
        return made

    def begun(self) -> dict[str, float]:
        """Return when each job began that did."""
        with self.database.read() as session:
            return {one.job_id: one.started_at for one in session.execute(select(Attempt)).scalars()}

    def verified(self) -> bool:
        with self.database.write() as session:
            return verify(session, self.place.scope_id).ok


@pytest.fixture
def scene(database: Database, tmp_path: Path) -> Scene:
    return Scene(database, tmp_path)


def at_once(work: Sequence[Callable[[], None]]) -> None:
    """Do all of it behind one barrier, in a thread each; raise what one of them raised."""
    gate, broken = threading.Barrier(len(work)), list[BaseException]()

    def run(one: Callable[[], None]) -> None:
        gate.wait()
        try:
            one()
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
            broken.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]


def persistently(work: Callable[[], Any]) -> Any:
    """Do it again while the database says that it is busy."""
    while True:
        with suppress(LedgerBusy):
            return work()


def claim_all(scene: Scene) -> None:
    """Claim until nothing is left, as a worker does."""
    empty = 0
    while empty < 3:
        claim = persistently(lambda: scene.database.transaction(jobs.claim, "w", 600.0))
        empty = 0 if claim is not None else empty + 1


def test_nothing_begins_once_its_principal_is_disabled(scene: Scene) -> None:
    """Four workers claim while an admin disables: all jobs that began did so before, by the database's clock."""
    made = scene.queue(JOBS)

    def disable() -> None:
        persistently(lambda: people.disable(scene.context, scene.caller("admin"), scene.ann, "left"))

    at_once([*[lambda: claim_all(scene)] * 4, disable])
    with scene.database.read() as session:
        disabled_at = session.get_one(Principal, scene.ann).disabled_at
        states = {job.id: (job.state, job.error_code) for job in session.execute(select(Job)).scalars()}
    assert disabled_at is not None
    begun = scene.begun()
    assert all(at <= disabled_at for at in begun.values())
    assert all(states[one] == ("failed", "access-withdrawn") for one in made if one not in begun)
    assert all(states[one][0] == "running" for one in begun)
    assert scene.verified()


def test_nothing_begins_once_access_was_taken_and_given_again(scene: Scene) -> None:
    """Jobs that waited when access was taken end, even if it is given back in that moment; new jobs begin."""
    made = scene.queue(JOBS)
    owner = scene.caller("owner")
    taken_at: list[float] = []

    def flip() -> None:
        persistently(lambda: access.take(scene.context, owner, scene.place.dataset_id, scene.ann))
        taken_at.append(len(scene.begun()))
        cap = CAP.validate_python("all")
        persistently(lambda: access.give(scene.context, owner, scene.place.dataset_id, scene.ann, cap, None))

    at_once([*[lambda: claim_all(scene)] * 4, flip])
    claim_all(scene)
    begun = scene.begun()
    assert len(begun) == taken_at[0], "none began after access had gone"
    with scene.database.read() as session:
        for job in session.execute(select(Job).where(Job.id.in_(made))).scalars():
            assert job.state == "running" if job.id in begun else job.error_code == "access-withdrawn"
    assert scene.verified()


@pytest.mark.parametrize("caps", [("all", "all"), ("all", {"budget_share": "0.1"})])
def test_of_two_who_give_access_at_once_one_decides(scene: Scene, caps: tuple[Any, Any]) -> None:
    """The same cap twice is one access; another one is refused, and never replaces the first in silence."""
    for _ in range(5):
        made: list[Any] = []

        def put(cap: Any, made: list[Any] = made) -> None:
            wanted, owner = CAP.validate_python(cap), scene.caller("owner")
            try:
                made.append(
                    persistently(
                        lambda: access.give(scene.context, owner, scene.place.dataset_id, scene.ann, wanted, None)
                    )
                )
            except PreconditionFailed as refused:
                made.append(refused)

        at_once([lambda cap=cap: put(cap) for cap in caps])  # type: ignore[misc] # each its own
        new = [one[1] for one in made if isinstance(one, tuple)]
        if caps[0] == caps[1]:
            assert sorted(new) == [False, True]
        else:
            assert new == [True], "one came first"
        access.take(scene.context, scene.caller("owner"), scene.place.dataset_id, scene.ann)
    assert scene.verified()


def test_a_cap_is_lowered_below_no_job_that_is_let_in_meanwhile(scene: Scene) -> None:
    """Either the jobs were first, and the lower cap is refused, or the cap was, and they are."""
    with scene.database.write() as session:
        grant = give(session, scene.place.dataset_id, scene.ann)
        terms = ledger.balance(session, scene.place.scope_id).terms
    narrow = terms_of_cap(CAP.validate_python({"budget_share": "0.0001"}), terms)
    outcomes: list[str] = []

    def reserve() -> None:
        def work() -> None:
            with scene.database.write() as session:
                submit(session, scene.place, grant=(scene.ann, grant))

        try:
            persistently(work)
            outcomes.append("in")
        except Exception as refused:  # noqa: BLE001 - by its name
            outcomes.append(type(refused).__name__)

    def lower() -> None:
        def work() -> None:
            with scene.database.write() as session:
                principals.lock(session, scene.ann)
                ledger.lock_scope(session, scene.place.scope_id)
                ledger.set_grant(session, scene.place.scope_id, scene.ann, narrow, {"share": "0.0001"})

        try:
            persistently(work)
            outcomes.append("lowered")
        except Conflict:
            outcomes.append("kept")

    at_once([reserve, reserve, lower])
    assert outcomes.count("lowered") + outcomes.count("kept") == 1
    assert ("in" in outcomes) == ("kept" in outcomes), outcomes
    assert scene.verified()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_job_that_a_worker_looks_at_ends_before_access_is_given_again(scene: Scene) -> None:
    """Its row is locked while access goes, so nothing ends it then. SQLite has one writer, and no such moment."""
    (made,) = scene.queue(1)
    owner, cap = scene.caller("owner"), CAP.validate_python("all")
    with scene.database.write() as looking:
        looking.execute(select(Job).where(Job.id == made).with_for_update(key_share=True)).one()
        access.take(scene.context, owner, scene.place.dataset_id, scene.ann)
        with pytest.raises(LedgerBusy):
            access.give(scene.context, owner, scene.place.dataset_id, scene.ann, cap, None)
    access.give(scene.context, owner, scene.place.dataset_id, scene.ann, cap, None)
    claim_all(scene)
    assert scene.begun() == {}
    assert scene.verified()
