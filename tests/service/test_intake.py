"""Jobs that come in together: each is decided as if it had come alone, in that order, and all are stored or none is."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.batcher import Batcher
from core.access.audit import Line
from core.base.errors import IdempotencyKeyReused, NotFound, RateLimited, Refusal
from core.db import reads as queries
from core.db.database import Database
from core.db.reads import JobFilter, Viewer
from core.db.service_tables import Audit, Idempotency
from core.db.tables import Account, Entry, Job, JobEvent, Label, Scope
from core.ledger import chain, kinds, ledger, reserving
from core.ledger.accounts import Balance, balance_of
from core.planning.job import JobSpec
from core.privacy.budget import Terms
from core.service import audit, health, intake, jobs, scopes
from core.service.context import Caller, Context
from core.service.intake import StoredAnswer, Submission
from tests.service.conftest import Someone
from tests.support import entry
from tests.support.api import COLUMNS, job
from tests.support.embedded import ROOT
from tests.support.store import open_place
from tests.support.verified import verified_here

MUS = ("0.3", "100", "0.3", "0.2", "0.3", "0.25", "0.1", "0.3", "0.05", "0.3")
"""Some of these fit the budget of three, others only once a larger one was refused, one never."""


def declared(context: Context, owner: Caller) -> dict[str, str]:
    """Return a dataset of an owner's and its scope; nothing here reads a record."""
    with context.database.write() as session:
        place = open_place(session, owner.id, COLUMNS, units=100)
    return {"id": place.dataset_id, "scope": place.scope_id}


def asked(context: Context, caller: Caller, dataset: str, key: str | None = None, **changes: Any) -> Submission:
    spec = JobSpec.model_validate(job(dataset, **changes))
    found = intake.planned(context, caller, spec, key or uuid4().hex, jobs.ROUTE)
    assert isinstance(found, Submission)
    return found


def told(answers: Sequence[StoredAnswer | Exception]) -> list[str]:
    """Return each answer in one word."""
    return [answer.code if isinstance(answer, Refusal) else "accepted" for answer in answers]


def ids(answers: Sequence[StoredAnswer | Exception]) -> list[str]:
    return [answer.body["id"] for answer in answers if isinstance(answer, StoredAnswer)]


def one_by_one(context: Context, submissions: Sequence[Submission]) -> list[StoredAnswer | Exception]:
    return [entry.take(context, [submission])[0] for submission in submissions]


def two_datasets(context: Context, owner: Caller) -> list[str]:
    """Return two datasets with equal budgets of their own."""
    return [declared(context, owner)["id"] for _ in range(2)]


def of_all_kinds(context: Context, owner: Caller, stranger: Caller, dataset: str) -> list[Submission]:
    """Return submissions that meet every kind of end."""
    found = [asked(context, owner, dataset, mu=mu) for mu in MUS]
    found.insert(3, replace(asked(context, owner, dataset, mu="0.01"), caller=stranger))
    found.insert(5, asked(context, owner, dataset, mu="0.02", resources={"priority": 3}))
    return found


class TestOrder:
    def test_each_is_decided_as_if_it_had_come_alone(self, context: Context, someone: Someone) -> None:
        owner, stranger = someone("owner"), someone("analyst")
        one, two = two_datasets(context, owner)
        batcher = entry.take(context, of_all_kinds(context, owner, stranger, one))
        alone = one_by_one(context, of_all_kinds(context, owner, stranger, two))
        assert told(batcher) == told(alone)
        assert {"accepted", "not-found", "privacy-budget-exhausted", "privacy-budget-reserved"} <= set(told(batcher))

    def test_the_ledger_has_them_in_the_order_of_the_answers(self, context: Context, someone: Someone) -> None:
        owner = someone("owner")
        made = declared(context, owner)
        answers = entry.take(context, [asked(context, owner, made["id"], mu=mu) for mu in MUS])
        entries = scopes.entries(context, owner, made["scope"], 0, 50)
        assert [entry.job for entry in entries if entry.kind == "reserve"] == ids(answers)
        stored = [answer.made for answer in answers if isinstance(answer, StoredAnswer) and answer.made is not None]
        numbers = [one.entries[made["scope"]] for one in stored]
        assert numbers == [entry.seq for entry in entries if entry.kind == "reserve"]
        assert verified_here(context, owner, made["scope"]).ok
        assert health.check(context)["ledger"] == "ok", "the witness knows of the last one"

    def test_the_queue_keeps_their_order(self, context: Context, someone: Someone) -> None:
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        answers = entry.take(context, [asked(context, owner, dataset, mu="0.01") for _ in range(8)])
        with context.database.read() as session:
            waiting = [job_id for job_id, _ in queries.waiting(session, 50)]
        assert waiting == ids(answers)

    def test_answers_that_look_at_the_balance_of_the_beginning_are_found_out(
        self, context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The planted bug; the table's CHECK is the second net, and nothing of it is stored."""
        first: dict[str, Balance] = {}
        genuine = balance_of

        def stale(account: Account, terms: Terms) -> Balance:
            return first.setdefault(account.id, genuine(account, terms))

        monkeypatch.setattr(reserving, "balance_of", stale)
        owner = someone("owner")
        one = declared(context, owner)["id"]
        with pytest.raises(IntegrityError):
            entry.take(context, [asked(context, owner, one, mu=mu) for mu in MUS])
        assert jobs.page(context, owner, JobFilter(), None, 50) == []


def statements(context: Context, submissions: Sequence[Submission]) -> int:
    """Store jobs; return how many statements that took."""
    told: list[str] = []

    def note(_: object, __: object, statement: str, *others: object) -> None:
        del others
        told.append(statement)

    event.listen(context.database.engine, "before_cursor_execute", note)
    try:
        answers = intake.store(context, submissions)
    finally:
        event.remove(context.database.engine, "before_cursor_execute", note)
    assert len(set(ids(answers))) == len(submissions)
    return len(told)


class TestStatements:
    """A round takes as many statements as a job that comes alone."""

    def test_sixteen_jobs_take_as_many_statements_as_four(self, context: Context, someone: Someone) -> None:
        owner = someone("owner")
        made = declared(context, owner)
        few, many = (
            statements(context, [asked(context, owner, made["id"], mu="0.01") for _ in range(count)])
            for count in (4, 16)
        )
        assert many == few
        assert verified_here(context, owner, made["scope"]).ok

    def test_times_that_are_read_back_entry_by_entry_are_found_out(
        self, context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The planted bug, as it was: three statements more for each job, and the entries written one by one."""

        def read_back(session: Session, scope: Scope) -> float:
            last = select(Entry.created_at).where(Entry.scope_id == scope.id, Entry.seq == scope.seq)
            return session.execute(last).scalar_one_or_none() or 0.0

        owner = someone("owner")
        made = declared(context, owner)
        wanted = [asked(context, owner, made["id"], mu="0.01") for _ in range(16)]
        few = statements(context, wanted[:4])
        monkeypatch.setattr(chain, "last_time", read_back)
        assert statements(context, wanted[4:]) >= few + 3 * 11


class TestTimes:
    def test_a_clock_that_is_set_back_moves_no_entry_before_another(self, context: Context, someone: Someone) -> None:
        """Also where the entry before is of the same transaction, or of a part of it that was undone."""
        owner = someone("owner")
        scope_id = declared(context, owner)["scope"]

        def append(session: Session, scope: Scope, at: float) -> float:
            content = {"accounts": {}, "reason": "set back", "actor": owner.id}
            return chain.append(session, scope, kinds.Freeze, at=at, content=content).created_at

        with context.database.write() as session:
            scope = ledger.lock_scope(session, scope_id)
            now = chain.last_time(session, scope)
            assert append(session, scope, now + 100) == now + 100
            assert append(session, scope, now + 50) == now + 100
            with session.begin_nested() as undone:
                assert append(session, scope, now + 900) == now + 900
                undone.rollback()
            assert append(session, scope, now + 70) == now + 100
        with context.database.write() as session:
            assert append(session, ledger.lock_scope(session, scope_id), now + 60) == now + 100


class TestLimits:
    @pytest.fixture
    def narrow(self, context: Context) -> Context:
        return replace(context, settings=context.settings.model_copy(update={"max_queued_per_principal": 3}))

    def test_a_principal_has_so_many_also_where_they_come_together(self, narrow: Context, someone: Someone) -> None:
        owner, other = someone("owner"), someone("owner")
        dataset, others = declared(narrow, owner)["id"], declared(narrow, other)["id"]
        wanted = [asked(narrow, owner, dataset, mu="0.01") for _ in range(5)]
        wanted.insert(1, asked(narrow, owner, dataset, mu="100"))
        wanted.append(asked(narrow, other, others, mu="0.01"))
        assert told(entry.take(narrow, wanted)) == [
            "accepted", "privacy-budget-exhausted", "accepted", "accepted", "rate-limited", "rate-limited", "accepted",
        ]  # fmt: skip
        (refused,) = entry.take(narrow, [asked(narrow, owner, dataset, mu="0.01")])
        assert isinstance(refused, RateLimited)

    def test_rounds_of_many_processes_admit_exactly_what_the_budget_holds(
        self, context: Context, someone: Someone
    ) -> None:
        owner = someone("owner")
        one, two = two_datasets(context, owner)
        alone = told(one_by_one(context, [asked(context, owner, one, mu="0.3") for _ in range(12)]))
        processes = [replace(context, database=Database(context.database.url)) for _ in range(4)]

        def take(process: Context) -> list[str]:
            wanted = [asked(process, owner, two, mu="0.3") for _ in range(6)]
            found: list[str] = []
            while wanted:
                answers = entry.take(process, wanted)
                busy = [place for place, answer in enumerate(told(answers)) if answer == "ledger-busy"]
                found += [answer for place, answer in enumerate(told(answers)) if place not in busy]
                wanted = [wanted[place] for place in busy]
            return found

        with ThreadPoolExecutor(len(processes)) as pool:
            counts = Counter(answer for found in pool.map(take, processes) for answer in found)
        for process in processes:
            process.database.dispose()
        assert counts["accepted"] == alone.count("accepted")
        assert sum(counts.values()) == 24


class TestKeys:
    def test_one_key_twice_is_one_job(self, context: Context, someone: Someone) -> None:
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        same = [asked(context, owner, dataset, key="k") for _ in range(2)]
        first, again, other, free = entry.take(
            context, [*same, asked(context, owner, dataset, key="k", mu="0.2"), asked(context, owner, dataset)]
        )
        assert isinstance(first, StoredAnswer)
        assert isinstance(again, StoredAnswer)
        assert isinstance(free, StoredAnswer)
        assert (first.replayed, again.replayed) == (False, True)
        assert again.body == first.body != free.body
        assert isinstance(other, IdempotencyKeyReused)

    def test_a_key_whose_request_is_refused_serves_the_next(self, context: Context, someone: Someone) -> None:
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        wanted = [asked(context, owner, dataset, key="k", mu=mu) for mu in ("100", "0.1")]
        assert told(entry.take(context, wanted)) == ["privacy-budget-exhausted", "accepted"]

    def test_two_jobs_where_rivals_do_not_take_turns(self, context: Context, someone: Someone) -> None:
        """The planted bug: both are taken at once."""
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        rivals = [asked(context, owner, dataset, key="k") for _ in range(2)]
        answers = context.database.transaction(intake._store, context, rivals)
        assert len(set(ids(answers))) == 2


class TestFailure:
    def test_one_that_cannot_be_stored_harms_no_other(self, context: Context, someone: Someone) -> None:
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        good = [asked(context, owner, dataset, mu="0.01") for _ in range(3)]
        bad = replace(good[1], plan=replace(good[1].plan.parts[0], scope_id="sc_gone"))
        wanted = [good[0], bad, good[2]]
        with pytest.raises(NotFound):
            entry.take(context, wanted)
        assert jobs.page(context, owner, JobFilter(), None, 50) == [], "and nothing is stored where it raises"

        async def ask() -> list[StoredAnswer | BaseException]:
            batcher: Batcher[Submission, StoredAnswer] = Batcher(partial(entry.take, context), "intake")
            return await asyncio.gather(*map(batcher.ask, wanted), return_exceptions=True)

        one, refused, three = asyncio.run(ask())
        assert isinstance(one, StoredAnswer)
        assert isinstance(refused, NotFound)
        assert isinstance(three, StoredAnswer)
        assert {view.id for view in jobs.page(context, owner, JobFilter(), None, 50)} == set(ids([one, three]))

    @pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
    def test_a_scope_that_somebody_holds_keeps_no_other_waiting_for_long(
        self, context: Context, someone: Someone
    ) -> None:
        owner = someone("owner")
        held, free = declared(context, owner), declared(context, owner)
        wanted = [asked(context, owner, made["id"], mu="0.01") for made in (held, free, held)]
        with context.database.write() as session:
            ledger.lock_scope(session, held["scope"])
            assert told(entry.take(context, wanted)) == ["ledger-busy", "accepted", "ledger-busy"]
        assert told(entry.take(context, wanted)) == ["accepted"] * 3

    def test_a_witness_that_is_gone_is_told_to_those_who_would_rely_on_it(
        self, context: Context, someone: Someone
    ) -> None:
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        wanted = [asked(context, owner, dataset, mu=mu) for mu in ("0.01", "100", "0.01")]
        assert not isinstance(context.settings.witness_path, str)
        context.settings.witness_path.unlink()
        assert told(entry.take(context, wanted)) == ["ledger-frozen", "privacy-budget-exhausted", "ledger-frozen"]

    def test_a_round_killed_before_its_commit_leaves_nothing(self, context: Context, someone: Someone) -> None:
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        before = stored(context)
        killed(context, owner, dataset)
        assert stored(context) == before
        assert told(entry.take(context, [asked(context, owner, dataset, mu="0.01")])) == ["accepted"]

    @pytest.mark.parametrize(
        "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
    )
    def test_a_round_stored_in_parts_is_found_out(self, context: Context, someone: Someone) -> None:
        """The planted bug: a commit halfway."""
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        before = stored(context)
        killed(context, owner, dataset, "halfway")
        assert stored(context) != before


def stored(context: Context) -> dict[str, Any]:
    """Return how many rows a submission could have left, and what is reserved."""
    with context.database.read() as session:
        tables = (Job, JobEvent, Label, Entry, Idempotency, Audit)
        counts = {table.__tablename__: session.execute(select(func.count()).select_from(table)).scalar_one()
                  for table in tables}  # fmt: skip
        reserved = session.execute(select(func.sum(Account.reserved_1))).scalar_one()
    return {**counts, "reserved": int(reserved)}


def killed(context: Context, caller: Caller, dataset: str, how: str = "") -> None:
    """Have another process take four submissions, and kill it just before the commit."""
    told = [str(context.database.url.render_as_string(hide_password=False)), str(context.settings.home)]
    command = [sys.executable, "-m", "tests.support.killed_intake", *told, caller.id, dataset, how]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9


class TestTrail:
    def test_a_line_is_stored_with_its_job_and_none_with_a_refusal(
        self, context: Context, admin: Caller, someone: Someone
    ) -> None:
        owner = someone("owner")
        dataset = declared(context, owner)["id"]
        wanted = [
            replace(asked(context, owner, dataset, mu=mu), line=Line(owner.id, jobs.ROUTE, "jobs", 202, None, name))
            for name, mu in (("req_1", "0.01"), ("req_2", "100"), ("req_3", "0.01"))
        ]
        made, _, again = entry.take(context, wanted)
        assert isinstance(made, StoredAnswer)
        assert isinstance(again, StoredAnswer)
        lines = audit.page(context, admin, None, 50)
        named = {line.request_id: line.target for line in lines}
        assert named == {"req_1": f"jobs/{made.body['id']}", "req_3": f"jobs/{again.body['id']}"}
        assert {(line.principal, line.action, line.status) for line in lines} == {(owner.id, jobs.ROUTE, 202)}


class TestShowing:
    def test_many_looks_at_once_show_each_what_exists_for_him(self, context: Context, someone: Someone) -> None:
        assert looks(context, someone) == [["queued", "queued"], ["queued", "not-found"], ["not-found", "queued"]]

    def test_looks_that_are_all_taken_for_the_first_ones_are_found_out(
        self, context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The planted bug."""

        def naive(wanted: Sequence[tuple[Viewer, str]]) -> dict[Viewer, set[str]]:
            pairs = list(wanted)
            return {viewer: {identifier for _, identifier in pairs} for viewer, _ in pairs[:1]}

        genuine = queries.seen_jobs

        def mixed(session: Any, wanted: Sequence[tuple[Viewer, str]]) -> dict[tuple[Viewer, str], Job]:
            found = {identifier: seen for (_, identifier), seen in genuine(session, wanted).items()}
            return {(viewer, identifier): found[identifier] for viewer, identifier in wanted if identifier in found}

        monkeypatch.setattr(queries, "_by_viewer", naive)
        monkeypatch.setattr(queries, "seen_jobs", mixed)
        assert looks(context, someone) != [["queued", "queued"], ["queued", "not-found"], ["not-found", "queued"]]


def looks(context: Context, someone: Someone) -> list[list[str]]:
    """Return what an auditor and two owners see of the owners' jobs, all asked at once."""
    auditor, one, two = someone("auditor"), someone("owner"), someone("owner")
    made = [
        ids(entry.take(context, [asked(context, owner, declared(context, owner)["id"], mu="0.01")]))[0]
        for owner in (one, two)
    ]
    pairs = [(caller, job_id) for caller in (auditor, one, two) for job_id in made]
    shown = [found.code if isinstance(found, NotFound) else found.state for found in jobs.get_all(context, pairs)]
    return [shown[place : place + 2] for place in (0, 2, 4)]
