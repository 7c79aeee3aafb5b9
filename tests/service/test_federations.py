"""Federated jobs from the request to the ledger, on SQLite and on PostgreSQL: all scopes pay, or none does."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.base.errors import (
    BudgetExhausted,
    Conflict,
    Forbidden,
    IdempotencyKeyReused,
    Invalid,
    NotFound,
    RateLimited,
    Refusal,
    ScopeFrozen,
    StaleAttempt,
)
from core.db import clock
from core.db import reads as queries
from core.db.database import Database
from core.db.reads import JobFilter
from core.db.service_tables import Secret
from core.db.tables import Account, Dataset, Entry, Job, Model
from core.jobs import approvals, subjects
from core.jobs import federations as store
from core.jobs import jobs as rows
from core.jobs.federations import FederationClaim
from core.jobs.sweep import CONTACT, sweep
from core.ledger import ledger, reserving
from core.planning.job import JobSpec
from core.privacy.amounts import CapRequest
from core.service import access, datasets, federations, intake, jobs, models, scopes
from core.service.context import Caller, Context
from core.service.estimates import EstimateSpec
from farthing.schemas.jobs import JobView
from tests.service.conftest import Someone
from tests.support import entry
from tests.support.api import COLUMNS, job
from tests.support.store import give, make_dataset, open_place
from tests.support.verified import verified_here

LEASE = 60.0
RELEASE = {"kind": "coefficients"}


@dataclass
class Owners:
    """Three owners with a dataset and a scope each, and an analyst who may use them."""

    analyst: Caller
    owners: list[Caller]
    datasets: list[str]
    scopes: list[str]


@pytest.fixture
def three(context: Context, someone: Someone) -> Owners:
    return make(context, someone)


def make(context: Context, someone: Someone, changes: Sequence[dict[str, Any]] = ({}, {}, {})) -> Owners:
    analyst, owners = someone("analyst"), [someone("owner") for _ in changes]
    found = Owners(analyst, owners, [], [])
    with context.database.write() as session:
        for owner, one in zip(owners, changes, strict=True):
            columns, adjacency = one.get("columns", COLUMNS), one.get("adjacency", "zero_out")
            approval = one.get("approval", False)
            place = open_place(session, owner.id, columns, units=100, adjacency=adjacency, approval=approval)
            found.scopes.append(place.scope_id)
            found.datasets.append(place.dataset_id)
            give(session, found.datasets[-1], analyst.id)
    return found


def described(session: Session, owner: Caller, scope_id: str, columns: Sequence[dict[str, Any]] = COLUMNS) -> str:
    """Store a dataset of which nothing is ever read."""
    dataset_id = make_dataset(session, owner.id, scope_id)
    dataset = session.get_one(Dataset, dataset_id)
    dataset.columns, dataset.rows = list(columns), 100
    ledger.note_upload(session, scope_id, dataset)
    return dataset_id


def federated(names: Sequence[str], quorum: int | None = None, mu: str = "0.1", **changes: Any) -> dict[str, Any]:
    """Return a small federated job."""
    base = {
        "dataset": None,
        "federation": {"datasets": list(names), "quorum": quorum},
        "optimizer": {"kind": "noisy_gd", "steps": 8},
        "inference": {"intervals": False},
    }
    return job("ds_none", mu=mu, **(base | changes))


def submit(context: Context, caller: Caller, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    return entry.submit(context, caller, JobSpec.model_validate(body), key or uuid4().hex).body


def held(context: Context) -> dict[str, tuple[list[int], list[int]]]:
    """Return what every account has spent and reserved."""
    with context.database.read() as session:
        found = {}
        for account in session.execute(select(Account)).scalars():
            balance = ledger.balance(session, account.id)
            found[account.id] = (list(balance.spent), list(balance.reserved))
        return found


def entries(context: Context) -> list[tuple[str, str]]:
    """Return the kind of each movement, by scope."""
    with context.database.read() as session:
        statement = select(Entry.scope_id, Entry.kind).where(Entry.job_id.is_not(None)).order_by(Entry.created_at)
        return [(row[0], row[1]) for row in session.execute(statement)]


def take(database: Database) -> FederationClaim:
    """Claim the job that waits, which is a federated one."""
    with database.write() as session:
        claim = rows.claim(session, "w", LEASE)
        assert claim is not None
        found = store.claimed(session, claim)
        assert found is not None
        return found


def pay(database: Database, claim: FederationClaim, chunk: int) -> None:
    """Have every site pay for a chunk, and keep the answers that it received before."""
    for client in claim.clients:
        database.transaction(ledger.pay, client.claim, chunk, b"kept", chunk)


def lose_lease(database: Database, claim: FederationClaim) -> None:
    """Have a claim's lease run out under the eyes of a sweeper that has been in contact for long."""
    with database.write() as session:
        session.execute(update(Job).where(Job.federation_id == claim.claim.job_id).values(lease_until=1.0))
    with database.write() as session:
        session.merge(Secret(name=CONTACT, value=f"0.0 {clock.read(session)!r}"))
        session.flush()
        sweep(session, LEASE, 3, 1e9)


def sums_hold(context: Context, three: Owners) -> None:
    for owner, scope in zip(three.owners, three.scopes, strict=True):
        assert verified_here(context, owner, scope).ok


def states(view: JobView) -> list[str]:
    assert view.federation is not None
    assert view.federation.sites is not None
    return [client.state for client in view.federation.sites]


def test_from_the_request_to_three_ledgers(context: Context, three: Owners) -> None:
    body = federated(three.datasets)
    told = federations.estimate(context, three.analyst, EstimateSpec.model_validate(body))
    made = submit(context, three.analyst, body, "one")
    assert submit(context, three.analyst, body, "one") == made
    with pytest.raises(IdempotencyKeyReused):
        submit(context, three.analyst, federated(three.datasets, 2), "one")

    assert told.sites is not None
    assert told.fits
    assert made["dataset"] is None
    assert made["cost"] is None
    clients = made["federation"]["sites"]
    assert [client["dataset"] for client in clients] == three.datasets
    assert [client["cost"]["reserved"]["budget_share"] for client in clients] == [
        one.cost.budget_share for one in told.sites
    ]
    assert sorted(entries(context)) == sorted((scope, "reserve") for scope in three.scopes)
    # What a job waits for changes with the workers; the stored answer to its request does not tell of it.
    shown = jobs.get(context, three.analyst, made["id"]).model_dump(mode="json")
    assert shown | {"waits_for": None} == made
    assert shown["waits_for"] == "any worker"

    claim = take(context.database)
    assert (claim.size, claim.quorum) == (3, 3)
    assert [client.dataset_id for client in claim.clients] == three.datasets
    for chunk in range(8):
        pay(context.database, claim, chunk)
    finished = [context.database.transaction(store.finish, client.claim, RELEASE) for client in claim.clients]
    assert [one is None for one in finished] == [True, True, False]
    ended = jobs.get(context, three.analyst, made["id"])
    assert (ended.state, states(ended)) == ("succeeded", ["succeeded"] * 3)
    assert ended.result is not None
    assert models.get(context, three.owners[2], ended.result.model).dataset is None
    kinds = ["read", "reserve", "settle", *["spend"] * 8]
    assert [sorted(kind for scope, kind in entries(context) if scope == one) for one in three.scopes] == [kinds] * 3
    for account, (spent, reserved) in held(context).items():
        assert not any(reserved), account
        assert all(spent), account
    sums_hold(context, three)


def test_two_datasets_of_one_scope_pay_the_sum(context: Context, three: Owners) -> None:
    owner, scope = three.owners[0], three.scopes[0]
    with context.database.write() as session:
        twin = described(session, owner, scope)
    alone = submit(
        context, owner, job(three.datasets[0], **federated([]) | {"dataset": three.datasets[0], "federation": None})
    )
    once = held(context)[scope][1]
    jobs.cancel(context, owner, alone["id"])
    submit(context, owner, federated([three.datasets[0], twin]))
    assert held(context)[scope][1] == [2 * amount for amount in once]
    assert [kind for _, kind in entries(context)] == ["reserve", "settle", "reserve", "reserve"]
    sums_hold(context, three)
    # Each of the two parts fits what is left, and both together do not.
    view = datasets.budget(context, owner, three.datasets[0])
    assert view.rho.remaining is not None
    large = f"{float(view.rho.remaining) * 0.5:.6f}"
    body = federated([three.datasets[0], twin], privacy={"rho": large}, retry_allowance=1)
    told = federations.estimate(context, owner, EstimateSpec.model_validate(body))
    assert told.sites is not None
    assert [client.fits for client in told.sites] == [True, False]
    assert not told.fits
    before = held(context)
    with pytest.raises(BudgetExhausted) as refused:
        submit(context, owner, body)
    assert "/federation/datasets/1" in {field.pointer for field in refused.value.fields}
    assert held(context) == before


def drain(context: Context, three: Owners, place: int) -> None:
    """Leave too little of one owner's budget."""
    body = job(three.datasets[place], mu="0.55", optimizer={"kind": "noisy_gd", "steps": 8}, retry_allowance=0)
    submit(context, three.owners[place], body)


def refuse_one_short(context: Context, three: Owners) -> None:
    """One client is short of budget: the job is refused with its name, and nothing stays reserved anywhere."""
    drain(context, three, 1)
    before, lines = held(context), entries(context)
    with pytest.raises(Refusal) as refused:
        submit(context, three.analyst, federated(three.datasets, mu="0.4"), "short")
    assert refused.value.code in {"privacy-budget-exhausted", "privacy-budget-reserved"}
    assert three.datasets[1] in refused.value.detail
    assert refused.value.fields[0].pointer == "/federation/datasets/1"
    assert held(context) == before
    assert entries(context) == lines
    with context.database.read() as session:
        assert session.execute(select(Job.id).where(Job.federation_id.is_not(None))).first() is None
    submit(context, three.analyst, federated(three.datasets, mu="0.05"), "short")  # the key was rolled back


def test_one_client_short_of_budget_refuses_the_job(context: Context, three: Owners) -> None:
    refuse_one_short(context, three)


class Halfway(reserving.Reservation):
    """Planted: reserves for each site as it is admitted, before the next one is asked."""

    def add(self, job: Job, schedule: ledger.Schedule) -> None:
        super().add(job, schedule)
        self._done = {**getattr(self, "_done", {}), job.scope_id: self._enter(job, schedule)}
        self._balances.clear()

    def make(self) -> dict[str, int]:
        return self._done


def test_a_variant_that_reserves_by_halves_is_seen(
    context: Context, three: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "Reservation", Halfway)
    with pytest.raises(AssertionError):
        refuse_one_short(context, three)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_amounts_are_told_to_who_may_use_the_data(context: Context, three: Owners) -> None:
    body = federated(three.datasets, mu="0.9")
    told = federations.estimate(context, three.analyst, EstimateSpec.model_validate(body))
    assert told.sites is not None
    assert [client.jobs_that_still_fit for client in told.sites] == [0] * 3
    with pytest.raises(BudgetExhausted) as informed:
        submit(context, three.analyst, body)
    assert "available_budget_share" in informed.value.facts


def test_a_cap_pays_too(context: Context, three: Owners) -> None:
    ask = CapRequest.model_validate({"epsilon": "1", "delta": "1e-6"})
    dataset, owner = three.datasets[1], three.owners[1]
    access.give(context, owner, dataset, three.analyst.id, ask, frozenset({"*"}))
    with context.database.read() as session:
        cap = queries.grant(session, three.scopes[1], three.analyst.id)
        assert cap is not None
    submit(context, three.analyst, federated(three.datasets))
    assert any(held(context)[cap.id][1])
    before = held(context)
    with pytest.raises(BudgetExhausted):  # fits every scope, and not the cap
        submit(context, three.analyst, federated(three.datasets, mu="0.3"))
    assert held(context) == before


def test_a_frozen_scope_refuses_and_lets_run(context: Context, three: Owners) -> None:
    submit(context, three.analyst, federated(three.datasets))
    claim = take(context.database)
    scopes.freeze(context, three.owners[2], three.scopes[2], "looking into it")
    pay(context.database, claim, 0)
    before = held(context)
    with pytest.raises(ScopeFrozen) as refused:
        submit(context, three.analyst, federated(three.datasets))
    assert refused.value.fields[0].pointer == "/federation/datasets/2"
    assert held(context) == before


def test_of_many_at_once_as_many_as_fit_are_taken(context: Context, three: Owners) -> None:
    wide = [three.datasets, three.datasets[::-1], three.datasets[1:] + three.datasets[:1]]

    def ask(number: int) -> str:
        try:
            return str(submit(context, three.analyst, federated(wide[number % 3], mu="0.2"))["state"])
        except Refusal as refusal:
            return refusal.code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(16)))
    taken = answers.count("queued")
    assert 0 < taken < 16
    assert set(answers) <= {"queued", "privacy-budget-exhausted", "privacy-budget-reserved"}
    reserved = {scope: held(context)[scope][1] for scope in three.scopes}
    assert len({tuple(amounts) for amounts in reserved.values()}) == 1, "every scope pays for the same jobs"
    assert len(entries(context)) == 3 * taken
    sums_hold(context, three)


def test_together_each_is_decided_as_if_alone(context: Context, three: Owners) -> None:
    asked = [federated(three.datasets, mu=mu) for mu in ("0.3", "5", "0.3", "0.3", "0.05")]
    found = [
        intake.planned(context, three.analyst, JobSpec.model_validate(one), uuid4().hex, jobs.ROUTE) for one in asked
    ]
    answers = entry.take(context, [one for one in found if isinstance(one, intake.Submission)])
    words = [answer.code if isinstance(answer, Refusal) else "taken" for answer in answers]
    assert words == ["taken", "privacy-budget-exhausted", "taken", "taken", "taken"] or words.count("taken") >= 2
    assert len(entries(context)) == 3 * words.count("taken")
    sums_hold(context, three)


def test_a_federated_job_is_one_of_its_owner(context: Context, three: Owners) -> None:
    context = replace(context, settings=context.settings.model_copy(update={"max_queued_per_principal": 2}))
    for _ in range(2):
        submit(context, three.analyst, federated(three.datasets, mu="0.02"))
    with pytest.raises(RateLimited):
        submit(context, three.analyst, federated(three.datasets, mu="0.02"))
    assert take(context.database).size == 3
    assert context.database.transaction(rows.claim, "w", LEASE, most_running=1) is None


def lost(context: Context, three: Owners, quorum: int | None) -> tuple[str, FederationClaim]:
    """Run a job until one of its clients is lost, and put it back."""
    made = submit(context, three.analyst, federated(three.datasets, quorum))
    claim = take(context.database)
    pay(context.database, claim, 0)
    context.database.transaction(rows.fail, claim.clients[1].claim, "trainer-failed", charge="all")
    for client in (claim.clients[0], claim.clients[2]):
        context.database.transaction(ledger.keep, client.claim, b"kept", 1)
    context.database.transaction(rows.release_claim, claim.claim)
    return made["id"], claim


def test_a_lost_client_with_a_quorum(context: Context, three: Owners) -> None:
    job_id, claim = lost(context, three, 2)
    view = jobs.get(context, three.analyst, job_id)
    assert (view.state, states(view)) == ("queued", ["queued", "failed", "queued"])
    again = take(context.database)
    assert [client.place for client in again.clients] == [0, 2]
    with pytest.raises(StaleAttempt):
        context.database.transaction(ledger.pay, claim.clients[0].claim, 1, None, 1)
    pay(context.database, again, 1)
    for client in again.clients:
        context.database.transaction(store.finish, client.claim, RELEASE)
    assert jobs.get(context, three.analyst, job_id).state == "succeeded"
    spent = [held(context)[scope][0][0] for scope in three.scopes]
    assert spent[0] == spent[2] < spent[1], "the lost one's whole reservation is charged"
    assert not any(any(reserved) for _, reserved in held(context).values())
    sums_hold(context, three)


def test_a_lost_client_without_a_quorum(context: Context, three: Owners) -> None:
    job_id, _ = lost(context, three, None)
    view = jobs.get(context, three.analyst, job_id)
    assert view.error is not None
    assert (view.state, view.error.code) == ("failed", "site-lost")
    assert view.federation is not None
    assert view.federation.sites is not None
    codes = [client.error.code for client in view.federation.sites if client.error]
    assert codes == ["site-lost", "trainer-failed", "site-lost"]
    assert context.database.transaction(rows.claim, "w", LEASE) is None
    spent = [held(context)[scope][0][0] for scope in three.scopes]
    assert 0 < spent[0] == spent[2] < spent[1], "what the others have not spent is given back"
    assert not any(any(reserved) for _, reserved in held(context).values())
    sums_hold(context, three)


def test_a_lost_worker_is_replaced(context: Context, three: Owners) -> None:
    made = submit(context, three.analyst, federated(three.datasets))
    claim = take(context.database)
    pay(context.database, claim, 0)
    lose_lease(context.database, claim)
    assert jobs.get(context, three.analyst, made["id"]).state == "queued"
    assert [one.outcome for one in jobs.attempts(context, three.analyst, made["id"])] == ["worker-lost"]
    with pytest.raises(StaleAttempt):
        context.database.transaction(store.finish, claim.clients[0].claim, RELEASE)
    again = take(context.database)
    pay(context.database, again, 0)  # was paid and is lost: paid again, out of each client's own allowance
    lose_lease(context.database, again)
    view = jobs.get(context, three.analyst, made["id"])
    assert (view.state, states(view)) == ("failed", ["failed"] * 3), "no allowance is left, so all are lost"
    assert not any(any(reserved) for _, reserved in held(context).values())
    sums_hold(context, three)


def test_a_worker_lost_while_its_clients_publish(context: Context, three: Owners) -> None:
    made = submit(context, three.analyst, federated(three.datasets))
    claim = take(context.database)
    pay(context.database, claim, 0)
    context.database.transaction(store.finish, claim.clients[0].claim, RELEASE)
    lose_lease(context.database, claim)
    view = jobs.get(context, three.analyst, made["id"])
    assert (view.state, states(view)) == ("succeeded", ["succeeded"] * 3)
    assert view.result is not None


def cancel_client(context: Context, three: Owners, made: dict[str, Any]) -> str:
    mine = jobs.page(context, three.owners[1], JobFilter(dataset=three.datasets[1]), None, 10)
    assert [view.federation.job for view in mine if view.federation] == [made["id"]]
    jobs.cancel(context, three.owners[1], mine[0].id)
    return mine[0].id


@pytest.mark.parametrize(("quorum", "state"), [(2, "queued"), (None, "failed")])
def test_an_owner_cancels_its_waiting_client(context: Context, three: Owners, quorum: int | None, state: str) -> None:
    made = submit(context, three.analyst, federated(three.datasets, quorum))
    with pytest.raises(Forbidden):
        jobs.cancel(context, three.owners[1], made["id"])
    cancel_client(context, three, made)
    assert jobs.get(context, three.analyst, made["id"]).state == state
    assert not any(held(context)[three.scopes[1]][1])
    sums_hold(context, three)


def test_an_owner_cancels_its_running_client(context: Context, three: Owners) -> None:
    made = submit(context, three.analyst, federated(three.datasets, 2))
    claim = take(context.database)
    client = cancel_client(context, three, made)
    with context.database.read() as session:
        assert store.cancelled_clients(session, claim.claim) == [client]
    assert context.database.transaction(rows.beat, claim.claim, LEASE).alive
    context.database.transaction(rows.release_claim, claim.claim)
    view = jobs.get(context, three.analyst, made["id"])
    assert (view.state, states(view)) == ("queued", ["queued", "cancelled", "queued"])


@pytest.mark.parametrize("running", [False, True])
def test_who_submitted_it_cancels_all(context: Context, three: Owners, running: bool) -> None:
    made = submit(context, three.analyst, federated(three.datasets))
    if running:
        claim = take(context.database)
        pay(context.database, claim, 0)
        assert jobs.cancel(context, three.analyst, made["id"]).state == "cancelling"
        with pytest.raises(StaleAttempt):
            context.database.transaction(ledger.pay, claim.clients[0].claim, 1, None, 1)
        context.database.transaction(rows.acknowledge_cancel, claim.claim)
    else:
        jobs.cancel(context, three.analyst, made["id"])
    view = jobs.get(context, three.analyst, made["id"])
    assert (view.state, states(view)) == ("cancelled", ["cancelled"] * 3)
    assert any(held(context)[three.scopes[0]][0]) == running
    assert not any(any(reserved) for _, reserved in held(context).values())


def test_erasing_one_dataset_takes_its_client_away(context: Context, three: Owners) -> None:
    made = submit(context, three.analyst, federated(three.datasets, 2))
    datasets.erase(context, three.owners[0], three.datasets[0])
    assert datasets.get(context, three.owners[0], three.datasets[0]).state == "erased"
    view = jobs.get(context, three.analyst, made["id"])
    assert (view.state, states(view)) == ("queued", ["cancelled", "queued", "queued"])
    assert [client.place for client in take(context.database).clients] == [1, 2]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_it_expires_whole(context: Context, three: Owners) -> None:
    made = submit(context, three.analyst, federated(three.datasets, resources={"max_queue_seconds": 0.001}))
    with context.database.write() as session:
        sweep(session, LEASE, 3, 1e9)
    view = jobs.get(context, three.analyst, made["id"])
    assert (view.state, states(view)) == ("expired", ["expired"] * 3)
    assert not any(any(reserved) for _, reserved in held(context).values())
    sums_hold(context, three)


def test_an_owner_sees_its_own_client_only(context: Context, three: Owners, someone: Someone) -> None:
    made = submit(context, three.analyst, federated(three.datasets))
    seen = jobs.get(context, three.owners[1], made["id"])
    assert seen.federation is not None
    assert seen.federation.sites is not None
    for place, client in enumerate(seen.federation.sites):
        assert ((client.dataset, client.site, client.cost) == (None, None, None)) == (place != 1)
    others = [client["job"] for client in made["federation"]["sites"] if client["place"] != 1]
    for other in others:
        with pytest.raises(NotFound):
            jobs.get(context, three.owners[1], other)
    with pytest.raises(NotFound):
        jobs.get(context, someone("owner"), made["id"])
    text = str(jobs.report(context, three.owners[1], made["id"]))
    hidden = [three.scopes[0], three.datasets[0], three.scopes[2], three.datasets[2], *others]
    spec = seen.model_dump()
    assert not any(name in text or name in str(spec) for name in hidden)
    listed = jobs.page(context, three.analyst, JobFilter(), None, 10)
    assert [view.id for view in listed] == [made["id"]]
    assert len(jobs.page(context, three.analyst, JobFilter(federation=made["id"]), None, 10)) == 3
    assert len(jobs.report(context, three.analyst, made["id"])["sites"]) == 3


def test_every_scope_that_asks_approves(context: Context, someone: Someone) -> None:
    three = make(context, someone, ({"approval": True}, {}, {"approval": True}))
    made = submit(context, three.analyst, federated(three.datasets))
    claim = take(context.database)
    pay(context.database, claim, 0)
    for client in claim.clients:
        context.database.transaction(store.finish, client.claim, RELEASE)
    assert jobs.get(context, three.analyst, made["id"]).result is None
    seen = jobs.get(context, three.owners[0], made["id"]).result
    assert seen is not None
    with pytest.raises(NotFound):
        models.get(context, three.owners[1], seen.model)
    assert models.judge(context, three.owners[0], seen.model, "approved").approval == "pending"
    with pytest.raises(NotFound):
        models.get(context, three.analyst, seen.model)
    assert models.judge(context, three.owners[2], seen.model, "approved").approval == "approved"
    assert models.get(context, three.analyst, seen.model).approval == "approved"


@pytest.mark.parametrize("asked", [True, False])
def test_a_lost_client_that_was_asked_still_approves(context: Context, someone: Someone, asked: bool) -> None:
    """Its answers are in the model; a site that was asked nothing has no part in it."""
    three = make(context, someone, ({}, {"approval": True}, {}))
    made = submit(context, three.analyst, federated(three.datasets, 2))
    if asked:
        claim = take(context.database)
        pay(context.database, claim, 0)
        cancel_client(context, three, made)
        context.database.transaction(rows.release_claim, claim.claim)
    else:
        cancel_client(context, three, made)
    again = take(context.database)
    assert [client.place for client in again.clients] == [0, 2]
    for client in again.clients:
        context.database.transaction(store.finish, client.claim, RELEASE)
    assert (jobs.get(context, three.analyst, made["id"]).result is None) == asked
    if asked:
        seen = jobs.get(context, three.owners[1], made["id"]).result
        assert seen is not None
        assert models.judge(context, three.owners[1], seen.model, "approved").approval == "approved"
    assert jobs.get(context, three.analyst, made["id"]).result is not None


def test_of_two_verdicts_at_one_moment_the_first_counts(context: Context, someone: Someone) -> None:
    three = make(context, someone, ({"approval": True}, {}, {}))
    made = submit(context, three.analyst, federated(three.datasets))
    claim = take(context.database)
    pay(context.database, claim, 0)
    for client in claim.clients:
        context.database.transaction(store.finish, client.claim, RELEASE)
    seen = jobs.get(context, three.owners[0], made["id"]).result
    assert seen is not None
    with ThreadPoolExecutor(1) as pool:
        with context.database.write() as session:
            first = session.get_one(Model, seen.model)
            subjects.take(session, first)
            job = session.get_one(Job, made["id"])
            approvals.judge(session, first, job, "approved", reason="", actor=three.owners[0].id)
            second = pool.submit(models.judge, context, three.owners[0], seen.model, "rejected")
            assert not wait([second], timeout=0.3).done, "it waits for the first"
        with pytest.raises(Conflict, match="is approved"):
            second.result()
    assert models.get(context, three.owners[0], seen.model).approval == "approved"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_clone_is_the_same_job(context: Context, three: Owners) -> None:
    made = submit(context, three.analyst, federated(three.datasets, 2, optimizer={"kind": "clipped_sgd"}))
    spec = jobs.spec_of(context, three.analyst, made["id"])
    twin = entry.submit(context, three.analyst, spec, uuid4().hex).body
    assert twin["id"] != made["id"]
    assert twin["optimizer"] == made["optimizer"]
    with context.database.read() as session:
        schedules = [[client.schedule for client in store.clients_of(session, one["id"])] for one in (made, twin)]
    assert schedules[0] == schedules[1]


def changed(name: str, **change: Any) -> list[dict[str, Any]]:
    return [{**column, **change} if column["name"] == name else column for column in COLUMNS]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"columns": changed("age", upper=96)}, "`age` with upper"),
        ({"columns": [column for column in COLUMNS if column["name"] != "age"]}, "no column `age`"),
        ({"adjacency": "replace_one"}, "replace_one"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_clients_declare_alike(context: Context, someone: Someone, change: dict[str, Any], word: str) -> None:
    three = make(context, someone, ({}, change))
    with pytest.raises(Invalid) as refused:
        submit(context, three.analyst, federated(three.datasets))
    (field,) = refused.value.fields
    assert field.pointer == "/federation/datasets/1"
    assert word in field.detail
    assert three.datasets[1] in field.detail


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"optimizer": {"kind": "noisy_newton"}}, "/optimizer/kind"),
        ({"inference": {"intervals": True}}, "/inference/intervals"),
        ({"resources": {"processes": 2}}, "/resources/processes"),
        ({"optimizer": {"kind": "noisy_gd", "start": "random"}}, "/optimizer/start"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_clients_cannot_do_is_refused_by_name(
    context: Context, three: Owners, changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(Invalid) as refused:
        submit(context, three.analyst, federated(three.datasets, **changes))
    assert [field.pointer for field in refused.value.fields] == [pointer]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_dataset_that_is_not_shared_is_not_there(context: Context, three: Owners) -> None:
    with pytest.raises(NotFound) as refused:
        submit(context, three.owners[0], federated(three.datasets))
    assert refused.value.fields[0].pointer == "/federation/datasets/1"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_no_federation_is_a_federation_of_one(three: Owners) -> None:
    broken: list[Callable[[], dict[str, Any]]] = [
        lambda: federated(three.datasets[:1]),
        lambda: federated([three.datasets[0]] * 2),
        lambda: federated(three.datasets, 4),
        lambda: federated(three.datasets, dataset=three.datasets[0]),
    ]
    for body in broken:
        with pytest.raises(ValueError, match="validation error"):
            JobSpec.model_validate(body())
