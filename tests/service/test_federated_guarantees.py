"""Promises of a federated model: site by site, as each ledger has charged, to everybody who may see that site."""

from decimal import Decimal
from typing import Any

import pytest

from api.pages.standalone import summary_page
from core.base.errors import StaleAttempt
from core.db.tables import Account, Job, Scope
from core.jobs import federations as store
from core.jobs import jobs as rows
from core.ledger import ledger
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency
from core.privacy.reports import report, weakest_of
from core.service import jobs, readings
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.service.test_federations import Owners, federated, make, pay, submit, sums_hold, take
from tests.support.released import released


@pytest.fixture
def three(context: Context, someone: Someone) -> Owners:
    return make(context, someone)


@pytest.fixture
def model(context: Context, three: Owners) -> str:
    """A model of which the second client answered a part only, and the last one was lost before it was asked."""
    made = submit(context, three.analyst, federated(three.datasets, 1))
    claim = take(context.database)
    first, second, third = (client.claim for client in claim.clients)
    schedule = len(_schedule(context, first.job_id))
    context.database.transaction(ledger.pay, first, 0, None, 0)
    context.database.transaction(ledger.pay, second, 0, None, 0)
    context.database.transaction(rows.cancel, third.job_id)
    context.database.transaction(rows.cancel, second.job_id)
    for chunk in range(1, schedule):
        context.database.transaction(ledger.pay, first, chunk, b"kept", chunk)
    context.database.transaction(store.finish, first, released(with_covariance=False).model_dump(mode="json"))
    context.database.transaction(rows.release_claim, claim.claim)
    view = jobs.get(context, three.analyst, made["id"])
    assert view.result is not None, view
    return view.result.model


def _schedule(context: Context, job_id: str) -> list[Any]:
    with context.database.read() as session:
        return list(session.get_one(Job, job_id).schedule)


def summary(context: Context, caller: Caller, model: str) -> dict[str, Any]:
    return readings.summary(context, caller, model, ())


def test_each_client_s_own_promise_is_what_its_ledger_charged(context: Context, three: Owners, model: str) -> None:
    told = summary(context, three.analyst, model)
    assert told["privacy"]["label"] == "weakest"
    first, second, third = told["sites"]
    assert [one["scope"] for one in told["sites"]] == three.scopes
    assert [one["dataset"] for one in told["sites"]] == three.datasets
    assert [one["state"] for one in told["sites"]] == ["succeeded", "cancelled", "cancelled"]
    assert (first["privacy"]["mu"], first["privacy"]["label"]) == ("0.1", "guarantee")
    assert second["privacy"]["label"] == "informational", "how much it answered was decided on the way"
    assert 0 < float(second["privacy"]["mu"]) < 0.1
    assert third["privacy"] is None, "it was asked nothing"
    for one in (first, second):
        own = jobs.report(context, three.analyst, one["job"])["privacy"]
        assert own["promise"]["epsilon"] == one["privacy"]["epsilon"]
        assert own["promise"]["delta"] == one["privacy"]["delta"]
    assert "sites, which were not put together" in readings.methods(context, three.analyst, model)


def test_an_owner_is_told_its_own_client_s_promise_alone(context: Context, three: Owners, model: str) -> None:
    for place, owner in enumerate(three.owners):
        told = summary(context, owner, model)
        assert [one["scope"] is not None for one in told["sites"]] == [at == place for at in range(3)]
        text = readings.summary_text(context, owner, model, ())
        page = summary_page(readings.whole(context, owner, model, ()))
        texts = [str(told), text, page]
        hidden = [name for at in range(3) if at != place for name in (three.scopes[at], three.datasets[at])]
        assert not [name for name in hidden for text in texts if name in text]
        assert all(three.scopes[place] in text for text in texts)


def test_the_text_says_whose_each_promise_is(context: Context, three: Owners, model: str) -> None:
    text = " ".join(readings.summary_text(context, three.owners[0], model, ()).split())
    assert f"Site 0 ({three.datasets[0]}, succeeded), to the people of {three.scopes[0]} (guarantee): mu 0.1" in text
    assert "Site 1 (cancelled): for its own scope's owner, and who asked for the job, to see." in text
    assert "about a person in several, nothing is promised" in text
    assert "Privacy (" not in text, "there is no promise to all of them together"
    whole = " ".join(readings.summary_text(context, three.analyst, model, ()).split())
    assert f"Site 2 ({three.datasets[2]}, cancelled)" in whole
    assert "was asked nothing." in whole


def test_a_client_s_figures_are_at_its_own_scope_s_delta(context: Context, three: Owners, model: str) -> None:
    told = summary(context, three.analyst, model)
    with context.database.read() as session:
        for one in told["sites"][:2]:
            scope = session.get_one(Scope, one["scope"])
            terms = ledger.balance(session, session.get_one(Account, scope.id).id).terms
            assert Decimal(one["privacy"]["delta"]) == terms.delta


def test_what_all_promise_at_least_is_implied_by_each() -> None:
    """The largest epsilon beside the smaller delta, as reports once had it, is a promise that nobody has made."""
    one = report(Gaussian(sigma=1.0), plan_orders(Decimal(8), Decimal("1e-9")), Adjacency.ZERO_OUT, declared=True)
    other = report(Gaussian(sigma=1.2), plan_orders(Decimal(8), Decimal("1e-5")), Adjacency.ZERO_OUT)
    for reports in ((one, other), (other, one)):
        found = weakest_of(reports)
        for each in reports:
            for name in ("mu", "rho", "epsilon", "delta"):
                assert Decimal(getattr(found.promise, name)) >= Decimal(getattr(each.promise, name))
                far = Adjacency.REPLACE_ONE
                assert Decimal(getattr(found.implies[far], name)) >= Decimal(getattr(each.implies[far], name))
            assert Decimal(found.attack.advantage) >= Decimal(each.attack.advantage)
        assert (found.promise.epsilon, found.promise.delta) == (one.promise.epsilon, other.promise.delta)
        assert found.label == "informational"
    alone = one.promise.model_copy(update={"mu": None})
    assert weakest_of([one, one.model_copy(update={"promise": alone})]).promise.mu is None


@pytest.mark.parametrize("lost", [None, 2])
def test_a_job_in_which_a_client_was_misled_ends_at_what_was_spent(
    context: Context, three: Owners, lost: int | None
) -> None:
    """Its last line names the misled site and the liar, by their places in the job; nothing stays reserved for it."""
    made = submit(context, three.analyst, federated(three.datasets, 2))
    claim = take(context.database)
    pay(context.database, claim, 0)
    if lost is not None:
        context.database.transaction(rows.fail, claim.clients[0].claim, "trainer-failed", charge="all")
        for client in claim.clients[1:]:
            context.database.transaction(ledger.keep, client.claim, b"kept", 1)
        context.database.transaction(rows.release_claim, claim.claim)
        claim = take(context.database)
    before = [_spent(context, scope) for scope in three.scopes]
    *_, seer = claim.clients
    context.database.transaction(store.end_misled, seer.claim, 0)
    assert [_spent(context, scope) for scope in three.scopes] == before
    assert not any(_held(context, scope) for scope in three.scopes)
    view = jobs.get(context, three.analyst, made["id"])
    assert view.error is not None
    assert (view.state, view.error.code) == ("failed", "site-lost")
    assert view.failed_for is not None
    assert "a site sent figures that cannot be true" in view.failed_for
    line = jobs.events(context, three.analyst, made["id"], 0, 100)[-1]
    assert (line.kind, line.data) == ("failed", {"code": "site-lost", "misled": 2, "by": 0 if lost is None else 1})
    for client in claim.clients:
        with pytest.raises(StaleAttempt):
            context.database.transaction(ledger.pay, client.claim, 1, None, 1)
    with pytest.raises(StaleAttempt):
        context.database.transaction(store.end_misled, seer.claim, 0)
    assert context.database.transaction(rows.claim, "w", 60.0) is None
    sums_hold(context, three)


def _spent(context: Context, scope: str) -> tuple[int, ...]:
    with context.database.read() as session:
        return ledger.balance(session, scope).spent


def _held(context: Context, scope: str) -> bool:
    with context.database.read() as session:
        return any(ledger.balance(session, scope).reserved)
