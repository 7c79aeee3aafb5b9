"""Releases that wait for an owner: the ledger decides on them, for any text that somebody writes into the database."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from core.base.errors import Conflict, ScopeFrozen
from core.db.tables import Approval, Model, Scope
from core.jobs import federations, jobs
from core.ledger import ledger
from core.service import certificates, models, overview
from core.service.context import Caller, Context, Role
from core.service.scopes import entries as read_entries
from examples import verify_ledger as outsider
from farthing import certificates as checker
from farthing.certificate_forms import Certificate
from farthing.certificates import Signed
from farthing.schemas.ledger import EntryView
from tests.support.released import released
from tests.support.store import STEP, open_place, queue_federated, submit

Someone = Callable[[Role], Caller]
RELEASE = released().model_dump(mode="json")


class Waiting:
    """A release that waits for the owners of some scopes: of two, a federated job's."""

    def __init__(self, context: Context, someone: Someone, scopes: int) -> None:
        self.context = context
        self.owners = [someone("owner") for _ in range(scopes)]
        with context.database.write() as session:
            self.places = [open_place(session, owner.id, approval=True) for owner in self.owners]
            if scopes > 1:
                queue_federated(session, self.places, None)
            else:
                submit(session, self.places[0], (STEP,), retry_allowance=0)
        with context.database.write() as session:
            claim = jobs.claim(session, "worker", 60.0)
            assert claim is not None
            found = federations.claimed(session, claim)
        clients = [claim] if found is None else [client.claim for client in found.clients]
        for client in clients:
            context.database.transaction(ledger.pay, client, 0, None, 0)
        for client in clients:
            if found is None:
                context.database.transaction(jobs.finish, client, RELEASE, "pending")
            else:
                context.database.transaction(federations.finish, client, RELEASE)
        self.job = claim.job_id
        with context.database.read() as session:
            self.model = session.execute(select(Model.id)).scalar_one()

    def change(self, approval: str, verdict: str | None = None) -> None:
        """Write into the database beside the service."""
        with self.context.database.write() as session:
            session.get_one(Model, self.model).approval = approval
            for row in session.execute(select(Approval)).scalars() if verdict else ():
                row.verdict = verdict or ""

    def entries(self, of: int = 0) -> list[EntryView]:
        return read_entries(self.context, self.owners[of], self.places[of].scope_id, 0, 1000)

    def certificate(self) -> Signed:
        text = certificates.certificate(self.context, self.owners[0], self.job)
        return checker.check(text, certificates.published(self.context))

    def is_good(self) -> None:
        """Both verifiers follow every chain."""
        for at, place in enumerate(self.places):
            with self.context.database.read() as session:
                assert ledger.verify(session, place.scope_id).ok
            outsider.verify([entry.model_dump_json() for entry in self.entries(at)])


@pytest.mark.parametrize("scopes", [1, 2])
def test_each_owner_s_count_is_of_the_releases_that_are_listed(context: Context, someone: Someone, scopes: int) -> None:
    waiting = Waiting(context, someone, scopes)
    coarse = replace(context, settings=context.settings.model_copy(update={"visible_grid_seconds": 10.0**6}))
    at_once = replace(context, settings=context.settings.model_copy(update={"visible_grid_seconds": 1e-3}))
    for owner in waiting.owners:
        assert (overview.of(coarse, owner).pending, models.waiting(coarse, owner, 9)) == (0, []), "not before the grid"
        assert (overview.of(at_once, owner).pending, models.waiting(at_once, owner, 9)) == (1, [waiting.model])


@pytest.mark.parametrize("scopes", [1, 2])
def test_an_approval_is_an_entry_of_each_scope_and_the_certificate_agrees(
    context: Context, someone: Someone, scopes: int
) -> None:
    waiting = Waiting(context, someone, scopes)
    before = waiting.certificate()
    assert before.payload["result"] == {"model": None, "digest": None, "export": None, "approval": "pending"}
    for owner in waiting.owners:
        for _ in range(2):  # saying it again changes nothing
            models.judge(context, owner, waiting.model, "approved")
        with pytest.raises(Conflict):
            models.judge(context, owner, waiting.model, "rejected")
    waiting.is_good()
    for at, owner in enumerate(waiting.owners):
        told = [json.loads(entry.body) for entry in waiting.entries(at)]
        assert [body["kind"] for body in told[-2:]] == ["withhold", "decide"]
        assert (told[-1]["outcome"], told[-1]["actor"]) == ("approved", owner.id)
    after = waiting.certificate()
    assert after.payload["result"]["model"] == waiting.model
    if scopes == 1:
        for said in (before, after):
            checker.contained(said, waiting.entries())
        assert isinstance(after.told, Certificate)
        assert after.told.result is not None
        forged = after.told.model_copy(
            update={"result": after.told.result.model_copy(update={"approval": "not-needed"})}
        )
        with pytest.raises(checker.BadCertificateError, match="whether"):
            checker.contained(replace(after, told=forged), waiting.entries())


def nothing(_: Waiting) -> None:
    """The owners have said nothing."""


def one_approves(waiting: Waiting) -> None:
    models.judge(waiting.context, waiting.owners[0], waiting.model, "approved")


def one_rejects(waiting: Waiting) -> None:
    models.judge(waiting.context, waiting.owners[0], waiting.model, "rejected")


@pytest.mark.parametrize("forged", ["approved", "not-needed"])
@pytest.mark.parametrize(
    ("scopes", "before"), [(1, nothing), (1, one_rejects), (2, nothing), (2, one_approves), (2, one_rejects)]
)
def test_an_approval_in_the_database_alone_releases_nothing(
    context: Context, someone: Someone, scopes: int, before: Callable[[Waiting], Any], forged: str
) -> None:
    waiting = Waiting(context, someone, scopes)
    before(waiting)
    waiting.change(forged, "approved")
    for ask in (models.get, models.export_json):
        with pytest.raises(ScopeFrozen, match="that its owner approved"):
            ask(context, waiting.owners[0], waiting.model)
    with pytest.raises(ScopeFrozen, match="ledger"):
        waiting.certificate()


def test_an_approval_that_is_taken_back_in_the_database_is_seen(context: Context, someone: Someone) -> None:
    waiting = Waiting(context, someone, 1)
    one_approves(waiting)
    waiting.change("rejected")
    with pytest.raises(ScopeFrozen):
        waiting.certificate()


def test_a_scope_that_no_longer_asks_by_its_row_alone_is_frozen(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    with context.database.write() as session:
        place = open_place(session, owner.id, approval=True)
    with context.database.write() as session:
        session.get_one(Scope, place.scope_id).approval = False
    with context.database.read() as session:
        found = ledger.verify(session, place.scope_id)
    assert (found.ok, found.reason) == (False, "its rule of approval is not that of its uploads")
