"""A program from docs/reference/ledger-format.md alone agrees with the service on every ledger, digit by digit.

`examples/verify_ledger.py` imports nothing of ours. It is given real ledgers with every kind of entry and of event, and
ledgers that somebody changed and hashed anew, so that only their meaning can give them away.
"""

import ast
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from sqlalchemy.orm import Session

from core.access import principals
from core.base.settings import ServiceSettings
from core.db import reads as queries
from core.db.database import Database
from core.db.tables import Dataset, Job, Model, Scope
from core.jobs import jobs
from core.jobs.approvals import judge
from core.ledger import gaps, kinds, ledger
from core.ledger.accounts import balance_of, terms_of
from core.ledger.chain import GENESIS
from core.ledger.claims import Claim
from core.ledger.tally import BrokenChain, Tally
from core.ledger.verification import follow
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from core.operations.recovery import recover_key
from core.privacy.amounts import BudgetCap, BudgetRequest, CapRequest
from core.privacy.caps import changed_terms, declared_cap, terms_of_cap
from core.privacy.events import (
    EVENT,
    NOTHING,
    BoundedRange,
    Composed,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    Repeated,
    Sampled,
    Selected,
    Zcdp,
)
from core.privacy.renyi import cost_nano
from core.records.datasets import give_access
from core.service.budgets import budget_view
from core.service.context import Context
from core.service.scopes import entry_view
from core.service.views import rfc3339
from examples import verify_ledger as outsider
from tests.support.store import Place, make_dataset, submit

ROOT = Path(__file__).resolve().parents[1]
SAMPLED = Sampled(numerator=2**57 + 12345, sigma=1.25)
EVENTS: tuple[Event, ...] = (
    Gaussian(sigma=21.3),
    SAMPLED,
    Sampled(numerator=0, sigma=2.0),
    Sampled(numerator=2**64, sigma=40.0),
    Zcdp(rho=1.0000001e-7),
    Pure(epsilon=0.03),
    BoundedRange(epsilon=0.07),
    Repeated(event=SAMPLED, times=7),
    Composed(events=(Gaussian(sigma=77.0), Pure(epsilon=1e-5), SAMPLED)),
    Disjoint(events=(Gaussian(sigma=50.0), Pure(epsilon=0.02), Repeated(event=Zcdp(rho=1e-6), times=3))),
    Selected(event=Zcdp(rho=1e-4), means=(4.0, 1.5), slots=(18, 9)),
    NOTHING,
)
STREAM = (Disjoint(events=(Gaussian(sigma=30.0), Gaussian(sigma=31.0))), NOTHING, NOTHING)
LEASE = 60.0


def open_place(session: Session, declared: dict[str, str], units: int = 1000, adjacency: str = "zero_out") -> Place:
    """Store somebody's scope as an upload does: its budget as declared decides the terms."""
    request = BudgetRequest.model_validate(declared)
    owner = principals.create(session, "Olga", "owner").id
    scope = ledger.open_scope(
        session,
        owner_id=owner,
        unit="record",
        adjacency=adjacency,
        units=units,
        terms=request.terms(units),
        declared=request.model_dump(mode="json"),
    )
    place = Place(owner, scope.id, make_dataset(session, owner, scope.id))
    dataset = session.get_one(Dataset, place.dataset_id)
    dataset.rows = units
    ledger.note_upload(session, scope.id, dataset)
    return place


def exported(database: Database, scope_id: str) -> list[str]:
    """Return a scope's entries as the service shows them, one JSON object each."""
    with database.read() as session:
        return [entry_view(row).model_dump_json() for row in queries.entries(session, scope_id, 0, 10_000)]


def shown(database: Database, scope_id: str) -> dict[str, Any]:
    """Return what the service says of a scope's budget."""
    with database.read() as session:
        context = Context(ServiceSettings(), database)
        view = budget_view(context, session, session.get_one(Scope, scope_id), "pr_nobody").model_dump(mode="json")
        held = ledger.balance(session, scope_id)
    amounts = {"spent_nano": held.spent, "reserved_nano": held.reserved, "caps_nano": held.terms.caps_nano}
    return view | {name: list(told) for name, told in amounts.items()}


def agree(database: Database, scope_id: str) -> outsider.Ledger:
    """Compare both, and return what the outsider found."""
    found = outsider.verify(exported(database, scope_id))
    told, service = outsider.budget(found, scope_id), shown(database, scope_id)
    assert (found.seq, found.head) == (service["entries"], service["head"])
    assert told["budget_share"] == service["budget_share"]
    assert told["delta"] == service["delta"]
    for name in ("total", "remaining") if told["epsilon"]["spent"] is None else ("total", "remaining", "spent"):
        assert told["epsilon"][name] == service["epsilon"][name]
    for name in ("spent_nano", "reserved_nano", "caps_nano"):
        used = len(service[name])
        assert list(told[name][:used]) == service[name]
        assert not any(told[name][used:])
    return found


def claimed(database: Database) -> Claim:
    claim = database.transaction(jobs.claim, "worker", LEASE)
    assert claim is not None
    return claim


class Story:
    """A real ledger with every kind of entry and of event.

    Args:
        folder: where its database is.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "farthing.sqlite"
        self.database = Database(f"sqlite+pysqlite:///{self.path}")
        self.database.migrate()
        self.witness = Witness(folder / "elsewhere" / "witness.jsonl")
        with self.database.write() as session:
            self.place = open_place(session, {"epsilon": "3", "delta": "1e-6"})
            analyst = principals.create(session, "Anna", "analyst").id
            self.grant = self.give(session, analyst, "2.9"), analyst
            other = principals.create(session, "Bob", "analyst").id
            caps: tuple[BudgetCap, ...] = (CapRequest(budget_share=Decimal("0.125")), "all")
            for cap in caps:
                own = ledger.balance(session, self.place.scope_id).terms
                written = terms_of_cap(cap, own), declared_cap(cap, own)
                ledger.set_grant(session, self.place.scope_id, other, *written, actor=self.place.principal_id)
            assert ledger.close_grant(session, self.place.scope_id, other, actor=self.place.principal_id)
        assert guard(self.database, self.witness) == []
        self._jobs()
        self._owner()
        self._put_back(folder / "backup.sqlite")

    def give(self, session: Session, principal: str, epsilon: str) -> str:
        """Make or change a grant as `PUT .../access/{principal}` does."""
        scope = session.get_one(Scope, self.place.scope_id)
        give_access(session, self.place.dataset_id, principal)
        request = CapRequest(epsilon=Decimal(epsilon), delta=Decimal("1e-6"))
        own = ledger.balance(session, scope.id).terms
        present = queries.grant(session, scope.id, principal)
        declared = declared_cap(request, own)
        used = present is not None and any(balance_of(present).spent)
        terms = changed_terms(request, own, terms_of(present)) if present and used else terms_of_cap(request, own)
        return ledger.set_grant(session, scope.id, principal, terms, declared, actor=self.place.principal_id).id

    def job(self, schedule: tuple[Event, ...], *, retries: int = 0, granted: bool = False) -> Claim:
        """Submit a job and claim it."""
        with self.database.write() as session:
            grant = (self.grant[1], self.grant[0]) if granted else None
            submit(session, self.place, schedule, grant=grant, retry_allowance=retries)
        return claimed(self.database)

    def pay(self, claim: Claim, *chunks: int) -> None:
        for chunk in chunks:
            self.database.transaction(ledger.pay, claim, chunk, None, chunk)

    def _jobs(self) -> None:
        every = self.job(EVENTS, retries=2, granted=True)
        self.pay(every, 0, 1, 2)
        self.database.transaction(jobs.release_claim, every)  # what was paid is lost with it
        again = claimed(self.database)
        assert again.job_id == every.job_id
        self.pay(again, *range(len(EVENTS)))
        self.database.transaction(jobs.fail, again, "diverged", charge="spent")
        whole = self.job((*EVENTS[:2], *EVENTS[:2]), retries=3)
        self.pay(whole, 0)
        self.database.transaction(jobs.fail, whole, "trainer-failed", charge="all")
        stream = self.job(STREAM + STREAM, retries=1)
        self.pay(stream, 0, 1)
        self.database.transaction(jobs.release_claim, stream)
        later = claimed(self.database)
        self.pay(later, 2, 3)
        self.database.transaction(jobs.fail, later, "diverged", charge="spent")
        for fraction in (Fraction(1), Fraction(2, 7)):
            unread = self.job((Gaussian(sigma=33.0),) * 2)
            self.database.transaction(jobs.fail, unread, "trainer-failed", charge="all")
            given_back = (self.place.scope_id, unread.job_id, fraction, "never opened", self.place.principal_id)
            self.database.transaction(ledger.compensate, *given_back)

    def _owner(self) -> None:
        scope, owner = self.place.scope_id, self.place.principal_id
        for verdict in ("approved", "rejected"):
            model = self.database.transaction(
                jobs.finish, self.job((Gaussian(sigma=44.0),)), {"verdict": verdict}, "pending"
            )
            with self.database.write() as session:
                job = session.get_one(Job, model.job_id)
                judge(session, session.get_one(Model, model.id), job, verdict, reason="read", actor=owner)
        self.database.transaction(ledger.freeze, scope, "looking into it", owner)
        self.database.transaction(ledger.unfreeze, scope, "all is well \u2013 really", owner)
        with self.database.write() as session:
            self.give(session, self.grant[1], "3.1")  # used: on its old orders
            self.give(session, principals.create(session, "Ben", "analyst").id, "0.5")

    def _put_back(self, backup: Path) -> None:
        self.database.dispose()  # of two SQLite libraries with one file open, one lets go of the other's locks
        with closing(sqlite3.connect(self.path)) as now, closing(sqlite3.connect(backup)) as then:
            now.backup(then)
        self.witness.keep(self.database)
        forgotten = self.job((Gaussian(sigma=11.0), SAMPLED), granted=True)
        self.pay(forgotten, 0, 1)
        self.witness.keep(self.database)
        self.database.dispose()
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        shutil.copy(backup, self.path)
        reconcile(self.database, self.witness)
        with self.database.write() as session:
            recover_key(session, self.place.principal_id, 86400.0)
            scope = ledger.lock_scope(session, self.place.scope_id)
            gaps.note(session, scope, "operator", "lost")
            gaps.accept(session, scope.id, scope.seq, "we know of none", scope.owner_id)
            submit(session, self.place, (SAMPLED,), retry_allowance=1)  # and it goes on


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    told = Story(tmp_path_factory.mktemp("story"))
    yield told
    told.database.dispose()


@pytest.fixture(scope="module")
def lines(story: Story) -> list[str]:
    return exported(story.database, story.place.scope_id)


def bodies(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(json.loads(line)["body"]) for line in lines]


def kinds_of_events(event: Any) -> set[str]:
    inner = event.get("events", [event["event"]] if "event" in event else [])
    return {event["kind"]}.union(*map(kinds_of_events, inner))


def test_every_kind_of_entry_and_of_event_is_in_it_and_both_agree(story: Story, lines: list[str]) -> None:
    told = bodies(lines)
    assert {body["kind"] for body in told} == set(kinds.KINDS)
    paid = [event for body in told if body["kind"] in {"spend", "charge"} for _, event in body["event"]]
    classes = {one.model_fields["kind"].default for one in get_args(get_args(Event)[0])}
    assert set().union(*map(kinds_of_events, paid)) == classes
    assert any(body.get("again") for body in told)
    found = agree(story.database, story.place.scope_id)
    with story.database.read() as session:
        assert ledger.verify(session, story.place.scope_id).ok
        for name, account in found.accounts.items():
            held = ledger.balance(session, name)
            used = len(held.terms.orders)
            assert (tuple(account["spent"][:used]), tuple(account["reserved"][:used])) == (held.spent, held.reserved)
            assert (tuple(account["orders"]), tuple(account["caps_nano"])) == (held.terms.orders, held.terms.caps_nano)


@pytest.mark.parametrize(
    ("declared", "units"),
    [
        ({"epsilon": "1", "delta": "1e-9"}, 50_000),
        ({"epsilon": "0.05"}, 1),
        ({"epsilon": "8"}, 12_345_678),
        ({"epsilon": "19.5", "delta": "0.00000123"}, 10),
        ({"rho": "0.185"}, 9_999),
        ({"rho": "0.000123", "delta": "1e-5"}, 10_000),
        ({"rho": "2.5"}, 10_001),
    ],
)
def test_budgets_and_figures_agree_whatever_was_declared(tmp_path: Path, declared: dict[str, str], units: int) -> None:
    database = Database(f"sqlite+pysqlite:///{tmp_path / 'farthing.sqlite'}")
    try:
        database.migrate()
        with database.write() as session:
            place = open_place(session, declared, units, "replace_one")
            rho = float(ledger.balance(session, place.scope_id).terms.epsilon) ** 2 / 4000
        agree(database, place.scope_id)
        with database.write() as session:
            submit(session, place, (Gaussian(sigma=(2 * rho) ** -0.5), Gaussian(sigma=(3 * rho) ** -0.5)))
        claim = claimed(database)
        database.transaction(ledger.pay, claim, 0, None, 0)
        agree(database, place.scope_id)
    finally:
        database.dispose()


@pytest.mark.parametrize("order", [2, 3, 9, 44, 300])
@pytest.mark.parametrize(
    "event",
    [
        *EVENTS,
        Sampled(numerator=1, sigma=1e5),
        Sampled(numerator=2**64 - 1, sigma=0.5),
        Sampled(numerator=2**40, sigma=1e-9),
        Gaussian(sigma=5e-324),
        Gaussian(sigma=1.7e308),
        Zcdp(rho=5e-324),
        Pure(epsilon=0.1),
        Pure(epsilon=30.0),
        BoundedRange(epsilon=1e-200),
        Selected(event=Gaussian(sigma=0.9), means=(1e-6,), slots=(1,)),
        Selected(event=Repeated(event=Gaussian(sigma=80.0), times=9), means=(200.0,), slots=(290,)),
        Selected(event=Zcdp(rho=1e30), means=(3.0,), slots=(15,)),
    ],
    ids=lambda event: event.model_dump_json(),
)
def test_a_price_is_the_same_integer(event: Event, order: int) -> None:
    text = outsider.canonical(EVENT.dump_python(event, mode="json"))
    assert outsider.nano(outsider.units(text, order)) == cost_nano(event, (order,))[0]


# Forgeries -----------------------------------------------------------------------------------------------------------

Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]] | None]


def hashed_anew(told: list[dict[str, Any]], *, renumber: bool = True) -> list[str]:
    """Return a ledger of these bodies whose every hash, number and column is right."""
    made, previous = [], "sha256:" + 64 * "0"
    for seq, body in enumerate(told, start=1):
        body["seq"] = seq if renumber else body["seq"]
        text = outsider.canonical(body)
        digest = "sha256:" + sha256(f"{previous}\n{text}".encode()).hexdigest()
        columns = {name: body[name] for name in ("seq", "kind", "job", "attempt", "chunk")}
        shown = {"body": text, "prev_hash": previous, "hash": digest, "created_at": rfc3339(body["at"])}
        made.append(json.dumps(columns | shown))
        previous = digest
    return made


def follow_here(lines: list[str]) -> str:
    """Follow an export by the service's own rules; return its head."""
    told = [json.loads(line) for line in lines]
    tally, head = Tally(json.loads(told[0]["body"])["scope"]), GENESIS
    for one in told:
        row = one | {"job_id": one["job"], "created_at": json.loads(one["body"])["at"]}
        head = follow(tally, head, SimpleNamespace(**row))
    return head


def of_version_1(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries as 0.1.0 wrote them."""
    since = ("spec", "release", "columns", "approval", "runs")
    kept = [{name: one for name, one in body.items() if name not in since} for body in told]
    left_out = ("read", "withhold", "decide")
    return keeping_draws([body | {"v": 1} for body in kept if body["kind"] not in left_out], kept)


def keeping_draws(told: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries where jobs that an entry before reserved for give no draws back, if they have paid."""
    paid = {body["job"] for body in [*before, *told] if body["kind"] == "spend"}
    whole = paid.intersection(body["job"] for body in before if body["kind"] == "reserve")
    return [body | {"draws": 0} if body["kind"] == "settle" and body["job"] in whole else body for body in told]


def the(told: list[dict[str, Any]], kind: str, **wanted: Any) -> dict[str, Any]:
    """Return the first entry of a kind that says so."""
    return next(body for body in told if body["kind"] == kind and all(body[key] == at for key, at in wanted.items()))


def shift(body: dict[str, Any], name: str, by: int) -> None:
    for moved in body["accounts"].values():
        moved[name][0] += by


def lower_a_price(told: list[dict[str, Any]]) -> None:
    shift(the(told, "reserve"), "reserved", -1)


def move_a_nano_for_a_job(told: list[dict[str, Any]]) -> None:
    """A whole job for one nano-nat: sums, hashes and caps are right."""
    job = the(told, "settle")["job"]
    mine = [body for body in told if body["job"] == job]
    last = next(body for body in mine if body["kind"] == "settle")
    for body in mine:
        for moved in body["accounts"].values():
            moved["spent"], moved["reserved"] = [0] * 4, [0] * 4
            if body is mine[0]:
                moved["reserved"][0] = 1
            if body is last:
                moved["reserved"][0] = -1


def make_noise_louder(told: list[dict[str, Any]]) -> None:
    body = next(
        one for one in told if one["kind"] == "reserve" and one["schedule"][0][1] == {"kind": "gaussian", "sigma": 33.0}
    )
    for one in (body, *(other for other in told if other["job"] == body["job"] and other["kind"] == "charge")):
        for run in one.get("schedule", one.get("event")):
            run[1]["sigma"] = 3.3


def swap_an_event(told: list[dict[str, Any]]) -> None:
    the(told, "spend")["event"][0][1] = EVENT.dump_python(Gaussian(sigma=1e6), mode="json")


def raise_a_cap(told: list[dict[str, Any]]) -> None:
    terms = told[0]["terms"]
    terms["caps_nano"] = [cap + 1 for cap in terms["caps_nano"]]


def raise_the_budget(told: list[dict[str, Any]]) -> None:
    told[0]["terms"]["declared"]["epsilon"] = "30"


def take_other_orders(told: list[dict[str, Any]]) -> None:
    terms = told[0]["terms"]
    terms["orders"] = [order + 1 for order in terms["orders"]]


def take_more_weight(told: list[dict[str, Any]]) -> None:
    told[0]["terms"]["weights"][0] = "0.9"


def raise_a_grant(told: list[dict[str, Any]]) -> None:
    terms = the(told, "grant")["terms"]
    terms["caps_nano"] = [2 * cap for cap in terms["caps_nano"]]


def drop_a_payment(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    gone = the(told, "spend")
    return [body for body in told if body is not gone]


def drop_a_job(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    job = the(told, "compensate")["job"]
    return [body for body in told if body["job"] != job or body["kind"] == "compensate"]


def drop_a_settling(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A job stays live: a reconciliation cannot be then."""
    gone = the(told, "settle")
    return [body for body in told if body is not gone]


def reorder(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    place = told.index(the(told, "spend"))
    return [*told[:place], told[place + 1], told[place], *told[place + 2 :]]


def pay_after_reading(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move the payment's entry behind the end of its job."""
    payment, end = the(told, "spend"), the(told, "settle")
    rest = [body for body in told if body is not payment]
    place = rest.index(end)
    return [*rest[: place + 1], payment, *rest[place + 1 :]]


def double_a_refund(told: list[dict[str, Any]]) -> None:
    the(told, "compensate")["accounts"] = {
        name: {"spent": [2 * part for part in moved["spent"]], "reserved": moved["reserved"]}
        for name, moved in the(told, "compensate")["accounts"].items()
    }


def refund_twice(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    refund = the(told, "compensate")
    place = told.index(refund)
    return [*told[:place], refund, json.loads(json.dumps(refund)), *told[place + 1 :]]


def refund_ten_and_one(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ten jobs more that never read are paid for and given back on one day."""
    job = the(told, "compensate")["job"]
    mine = [body for body in told if body["job"] == job]
    copies = [json.loads(json.dumps(body).replace(job, f"job_{copy}")) for copy in range(10) for body in mine]
    last = told.index(mine[-1]) + 1
    return [*told[:last], *(body | {"at": mine[-1]["at"]} for body in copies), *told[last:]]


def refund_what_was_read(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The chain's own correction, of a job that had paid for what it read."""
    read, refund = the(told, "read"), the(told, "compensate")
    spent = [body for body in told if body["job"] == read["job"] and body["kind"] == "spend"]
    moved = {name: [body["accounts"][name]["spent"] for body in spent] for name in spent[0]["accounts"]}
    sums = {name: [-sum(slot) for slot in zip(*paid, strict=True)] for name, paid in moved.items()}
    back = {name: {"spent": amounts, "reserved": 4 * [0]} for name, amounts in sums.items()}
    end = told.index(next(body for body in told if body["job"] == read["job"] and body["kind"] == "settle")) + 1
    made = refund | {"job": read["job"], "fraction": "1", "accounts": back, "at": told[end - 1]["at"]}
    return [*told[:end], made, *told[end:]]


def refund_what_was_read_unsaid(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As before, and no entry says that the job has read."""
    forged = refund_what_was_read(told)
    return [body for body in forged if body["kind"] != "read" or body["job"] != the(told, "read")["job"]]


def refund_what_version_1_does_not_say(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As before, and all but the correction is of a version that has no entry for it."""
    forged = refund_what_was_read(told)
    place = forged.index(the(forged, "compensate"))
    return [*of_version_1(forged[:place]), *forged[place:]]


def read_once_for_two_attempts(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    gone = next(body for body in told if body["kind"] == "read" and body["attempt"] == 2)
    return [body for body in told if body is not gone]


def read_for_nano_nats(told: list[dict[str, Any]]) -> None:
    scope = told[0]["scope"]
    the(told, "read")["accounts"] = {scope: {"spent": [-1, 0, 0, 0], "reserved": [0] * 4}}


def go_back_to_version_1(told: list[dict[str, Any]]) -> None:
    told[-1]["v"] = 1


def take_another_version(told: list[dict[str, Any]]) -> None:
    told[-1]["v"] = 3


def protect_nobody(told: list[dict[str, Any]]) -> None:
    told[0]["adjacency"] = "anything"


def protect_otherwise_than_samples_do(told: list[dict[str, Any]]) -> None:
    told[0]["adjacency"] = "replace_one"


def count_something_else(told: list[dict[str, Any]]) -> None:
    told[0]["unit"] = "household"


def count_users_without_a_bound(told: list[dict[str, Any]]) -> None:
    told[0]["unit"] = {"user_column": "who", "max_records": 0}


def count_fewer_records(told: list[dict[str, Any]]) -> None:
    the(told, "upload")["rows"] -= 1


def bring_no_records(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [body for body in told if body["kind"] != "upload"]


def bring_records_after_they_are_read(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    upload, first = the(told, "upload"), the(told, "reserve")
    rest = [body for body in told if body is not upload]
    place = rest.index(first) + 1
    return [*rest[:place], upload | {"at": first["at"]}, *rest[place:]]


def draw_nothing(told: list[dict[str, Any]]) -> None:
    the(told, "reserve")["draws"] = 0


def draw_less_than_is_answered(told: list[dict[str, Any]]) -> None:
    """Seven samples, and more: as many as there are chunks are fewer."""
    the(told, "reserve")["draws"] = len(EVENTS)


def forget_what_was_asked(told: list[dict[str, Any]]) -> None:
    del the(told, "reserve")["spec"]


def forget_what_was_declared(told: list[dict[str, Any]]) -> None:
    del the(told, "upload")["columns"]


def forget_whether_it_released(told: list[dict[str, Any]]) -> None:
    del the(told, "settle")["release"]


def fail_with_a_release(told: list[dict[str, Any]]) -> None:
    the(told, "settle")["release"] = "sha256:" + 64 * "0"


def succeed_without_one(told: list[dict[str, Any]]) -> None:
    the(told, "settle")["reason"] = "succeeded"


def settle_more_than_is_left(told: list[dict[str, Any]]) -> None:
    body = the(told, "settle")
    shift(body, "reserved", -1)
    shift(body, "spent", 1)


def pay_again_as_one(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out one of the two entries of a chunk that was paid twice."""
    gone = the(told, "spend", again=True)
    return [body for body in told if body is not gone]


def pay_again_out_of_the_price(told: list[dict[str, Any]]) -> None:
    the(told, "spend", again=True)["again"] = False


def charge_less(told: list[dict[str, Any]]) -> None:
    body = the(told, "charge")
    shift(body, "spent", -5)
    shift(body, "reserved", 5)


def charge_other_events(told: list[dict[str, Any]]) -> None:
    the(told, "charge")["event"].pop()


def pay_from_a_grant_that_was_closed(told: list[dict[str, Any]]) -> None:
    the(told, "grant", closed=False)["closed"] = True


def read_records_of_another_scope(told: list[dict[str, Any]]) -> None:
    the(told, "reserve")["dataset"] = "ds_of_another_scope"


def bring_the_same_records_again(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*told[:2], the(told, "upload"), *told[2:]]


def widen_a_share(told: list[dict[str, Any]]) -> None:
    grants = (body for body in told if body["kind"] == "grant")
    next(body for body in grants if "share" in body["terms"]["declared"])["terms"]["declared"]["share"] = "0.25"


def pay_from_another_s_grant(told: list[dict[str, Any]]) -> None:
    the(told, "reserve")["actor"] = "pr_somebody_else"


def leave_out_a_grant(told: list[dict[str, Any]]) -> None:
    accounts = the(told, "reserve")["accounts"]
    del accounts[next(name for name in accounts if name.startswith("gr_"))]


def name_a_job(told: list[dict[str, Any]]) -> None:
    the(told, "reconcile")["job"] = "job_other"


def reserve_while_frozen(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    stop = the(told, "freeze")
    place = told.index(stop)
    return [*told[: place + 1], told[-1] | {"at": stop["at"]}, *told[place + 1 : -1]]


def reserve_before_it_is_accepted(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    *before, word, job = told
    assert word["kind"] == "accept"
    return [*before, job, word]


def forget_what_was_witnessed(told: list[dict[str, Any]]) -> None:
    for amounts in the(told, "reconcile")["accounts"].values():
        amounts["spent"] = [0] * 4


def accept_for_the_owner(told: list[dict[str, Any]]) -> None:
    the(told, "accept")["actor"] = "operator"


def recover_another_s_key(told: list[dict[str, Any]]) -> None:
    the(told, "recovery")["principal"] = "pr_another"


def approve_for_the_owner(told: list[dict[str, Any]]) -> None:
    the(told, "decide")["actor"] = "operator"


def approve_what_was_rejected(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    said = the(told, "decide", outcome="rejected")
    place = told.index(said) + 1
    return [*told[:place], said | {"outcome": "approved"}, *told[place:]]


def approve_what_never_waited(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [body for body in told if body["kind"] != "withhold"]


def approve_half(told: list[dict[str, Any]]) -> None:
    the(told, "decide")["outcome"] = "half"


def withhold_twice(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    place = told.index(the(told, "withhold")) + 1
    return [*told[:place], dict(told[place - 1]), *told[place:]]


def withhold_no_job_s_release(told: list[dict[str, Any]]) -> None:
    the(told, "withhold").update(job=None, attempt=None, chunk=None)


def withhold_and_pay(told: list[dict[str, Any]]) -> None:
    the(told, "withhold")["accounts"] = {told[0]["scope"]: {"spent": [0] * 4, "reserved": [-1, 0, 0, 0]}}


def ask_for_no_approval(told: list[dict[str, Any]]) -> None:
    """Of the second records of a scope whose first ones asked for it."""
    first = the(told, "upload")
    told.insert(told.index(first) + 1, first | {"dataset": "ds_other", "approval": not first["approval"]})


def say_nothing_of_approval(told: list[dict[str, Any]]) -> None:
    the(told, "upload")["approval"] = None


def use_an_idle_slot(told: list[dict[str, Any]]) -> None:
    for moved in the(told, "reserve")["accounts"].values():
        moved["reserved"][-1] += 1


def draw_without_end(told: list[dict[str, Any]]) -> None:
    the(told, "reserve")["draws"] = 10 * 2**59


def draw_less_than_nothing(told: list[dict[str, Any]]) -> None:
    """It would make room for others."""
    the(told, "reserve")["draws"] = -(2**62)


def give_back_draws(told: list[dict[str, Any]]) -> None:
    the(told, "settle")["draws"] = 1


def give_back_the_runs_that_were_made(told: list[dict[str, Any]]) -> None:
    body = the(told, "settle")
    body["draws"] = the(told, "reserve", job=body["job"])["draws"]


def keep_runs_that_nobody_made(told: list[dict[str, Any]]) -> None:
    the(told, "settle")["draws"] = 0


def divide_draws_unequally(told: list[dict[str, Any]]) -> None:
    the(told, "reserve")["runs"] = 7


def divide_draws_among_many_runs(told: list[dict[str, Any]]) -> None:
    the(told, "reserve")["runs"] = 20


def go_back_in_time(told: list[dict[str, Any]]) -> None:
    told[-1]["at"] -= 3600.0


def write_a_float(told: list[dict[str, Any]]) -> None:
    moved = next(iter(the(told, "reserve")["accounts"].values()))
    moved["reserved"] = [float(part) for part in moved["reserved"]]


def add_a_word(told: list[dict[str, Any]]) -> None:
    the(told, "settle")["note"] = "all is well"


FORGERIES: dict[Change, str] = {
    protect_nobody: "there is no such adjacency",
    protect_otherwise_than_samples_do: "samples have no price under this adjacency",
    count_something_else: "there is no such unit",
    count_users_without_a_bound: "there is no such unit",
    count_fewer_records: "the scope's first records are of another number",
    bring_no_records: "the records that it reads never came into the scope",
    bring_records_after_they_are_read: "the records that it reads never came into the scope",
    draw_nothing: "it reserves fewer draws than it has answers",
    draw_less_than_is_answered: "it reserves fewer draws than it has answers",
    forget_what_was_asked: "its members are not those of its kind",
    forget_what_was_declared: "its members are not those of its kind",
    forget_whether_it_released: "its members are not those of its kind",
    fail_with_a_release: "it names a release where there is none",
    succeed_without_one: "it names a release where there is none",
    refund_what_was_read: "its job may have read records",
    refund_what_was_read_unsaid: "no entry says that its attempt may read",
    refund_what_version_1_does_not_say: "its job may have read records",
    read_once_for_two_attempts: "no entry says that its attempt may read",
    read_for_nano_nats: "it moves .* follows",
    go_back_to_version_1: "its version is lower",
    take_another_version: "it is of version 3",
    lower_a_price: "it moves .* follows",
    move_a_nano_for_a_job: "it moves .* follows",
    make_noise_louder: "it moves .* follows",
    swap_an_event: "its event is not that of its chunk",
    raise_a_cap: "its terms do not follow",
    raise_the_budget: "its terms do not follow",
    take_other_orders: "its terms do not follow",
    take_more_weight: "its terms do not follow",
    raise_a_grant: "its terms do not follow",
    drop_a_payment: "it is not due",
    drop_a_job: "its job has no charge to give back",
    drop_a_settling: "a job is live",
    reorder: "it is not due",
    pay_after_reading: "it is not due",
    double_a_refund: "it moves .* follows",
    refund_twice: "its job has no charge to give back",
    refund_ten_and_one: "ten were made within a day",
    settle_more_than_is_left: "it moves .* follows",
    pay_again_as_one: "it moves .* follows",
    pay_again_out_of_the_price: "whether it pays again is told wrongly",
    charge_less: "it moves .* follows",
    charge_other_events: "its events are not those left",
    pay_from_another_s_grant: "it pays from another's grant",
    pay_from_a_grant_that_was_closed: "it closes a grant, and changes it",
    read_records_of_another_scope: "the records that it reads never came into the scope",
    bring_the_same_records_again: "its dataset came into the scope before",
    widen_a_share: "its terms do not follow",
    leave_out_a_grant: "it pays from another's grant, or not from its own",
    name_a_job: "it names a job",
    reserve_while_frozen: "the scope was frozen",
    reserve_before_it_is_accepted: "the scope was frozen",
    forget_what_was_witnessed: "it moves .* follows",
    accept_for_the_owner: "nothing waits for this word",
    recover_another_s_key: "it is not the owner's key",
    approve_for_the_owner: "no release waits for this word",
    approve_what_was_rejected: "no release waits for this word",
    approve_what_never_waited: "no release waits for this word",
    approve_half: "its members are not those of its kind",
    withhold_twice: "its release was withheld before",
    withhold_no_job_s_release: "it names no job",
    withhold_and_pay: "it moves .* follows",
    ask_for_no_approval: "its rule of approval is not that of the records before",
    say_nothing_of_approval: "its members are not those of its kind",
    use_an_idle_slot: "it moves .* follows",
    draw_without_end: "its jobs may draw more than its terms have room for",
    draw_less_than_nothing: "its members are not those of its kind",
    give_back_draws: "it gives back draws that may have been made",
    give_back_the_runs_that_were_made: "it gives back draws that may have been made",
    keep_runs_that_nobody_made: "it gives back draws that may have been made, or keeps others",
    divide_draws_unequally: "its runs draw unequally",
    divide_draws_among_many_runs: "its members are not those of its kind",
    go_back_in_time: "its time goes back",
    write_a_float: "its members are not those of its kind",
    add_a_word: "its members are not those of its kind",
}
"""Each with what gives it away."""


@pytest.mark.parametrize("change", FORGERIES, ids=lambda change: change.__name__)
def test_a_forgery_is_found_though_every_hash_is_right(lines: list[str], change: Change) -> None:
    told = bodies(lines)
    forged = change(told)
    written = hashed_anew(told if forged is None else forged)
    with pytest.raises(outsider.Broken, match=f"^entry \\d+: {FORGERIES[change]}"):
        outsider.verify(written)
    with pytest.raises((BrokenChain, ValueError, KeyError)):
        follow_here(written)


def cut_the_tail(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return told[:-1]


def forget_a_job(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All of its entries, before anything was put back."""
    job = the(told, "charge")["job"]
    rest = [body for body in told if body["job"] != job]
    return rest[: rest.index(the(rest, "reconcile"))]


def draw_less_than_it_may(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = the(told, "reserve")
    first["draws"] -= first["runs"]
    the(told, "settle", job=first["job"])["draws"] -= first["runs"] - 2
    return told


def protect_otherwise(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Before any sample was drawn."""
    told[0]["adjacency"] = "replace_one"
    return told[:4]


UNSEEN: tuple[Change, ...] = (
    cut_the_tail,
    forget_a_job,
    draw_less_than_it_may,
    protect_otherwise,
)
"""Ledgers that could be: only a head that was kept elsewhere tells."""


@pytest.mark.parametrize("change", UNSEEN, ids=lambda change: change.__name__)
def test_what_only_a_kept_head_can_tell(lines: list[str], change: Change) -> None:
    forged = change(bodies(lines))
    assert forged is not None
    found = outsider.verify(hashed_anew(forged))
    assert json.loads(lines[-1])["hash"] not in found.heads


def test_entries_of_version_1_are_held_to_their_own_rules(lines: list[str]) -> None:
    """Entries as 0.1.0 wrote them: none said that a job reads, and a correction of a job that read followed.

    A job of one version goes on in the other.
    """
    told, refunded = bodies(lines), refund_what_was_read(bodies(lines))
    told = told[: told.index(the(told, "reconcile")) + 1]
    refund, second = refunded.index(the(refunded, "compensate")), told.index(the(told, "read", attempt=2))
    for changed in (
        of_version_1(told),
        [*of_version_1(told[:second]), *keeping_draws(told[second:], told[:second])],
        [*of_version_1(refunded[: refund + 1]), *keeping_draws(refunded[refund + 1 : refund + 6], refunded[:refund])],
    ):
        written = hashed_anew(changed)
        assert outsider.verify(written).head == follow_here(written)


def test_a_job_that_paid_under_version_1_keeps_its_draws_under_version_2(lines: list[str]) -> None:
    """No entry of version 1 says how many attempts could read, nor how many runs were reserved."""
    told = bodies(lines)
    end = told.index(the(told, "settle"))
    kept = [*of_version_1(told[:end]), told[end] | {"draws": 0}]
    written = hashed_anew(kept)
    assert outsider.verify(written).head == follow_here(written)
    for back in (told[end]["draws"], the(told, "reserve")["draws"]):
        written = hashed_anew([*kept[:-1], told[end] | {"draws": back}])
        with pytest.raises(outsider.Broken, match="it gives back draws that may have been made"):
            outsider.verify(written)
        with pytest.raises(BrokenChain, match="it gives back draws that may have been made"):
            follow_here(written)


def test_bodies_that_were_hashed_anew_unchanged_are_good(lines: list[str]) -> None:
    written = hashed_anew(bodies(lines))
    assert outsider.verify(written).head == json.loads(lines[-1])["hash"] == follow_here(written)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
        lambda lines: [line.replace("again", "aga1n") for line in lines],
        lambda lines: [line.replace('"kind":"spend"', '"kind":"settle"', 1) for line in lines],
        lambda lines: [*lines[:1], *lines],
        lambda lines: lines[1:],
        lambda lines: lines[:0],
        lambda lines: [*lines, "{}"],
        lambda lines: [*lines, "no JSON"],
    ],
)
def test_a_file_that_is_not_whole_is_found(lines: list[str], change: Callable[[list[str]], list[str]]) -> None:
    assert change(lines) != lines
    with pytest.raises(outsider.Broken):
        outsider.verify(change(lines))


def test_the_outsider_s_program_runs_alone(lines: list[str], tmp_path: Path) -> None:
    source = ROOT / "examples" / "verify_ledger.py"
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([one.name for one in node.names] if isinstance(node, ast.Import) else [str(node.module)])
    }
    assert imported <= set(sys.stdlib_module_names) | {"mpmath"}
    shutil.copy(source, tmp_path / "verify_ledger.py")
    (tmp_path / "ledger.jsonl").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-P", "verify_ledger.py", "ledger.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(lines)} entries follow from each other; head {json.loads(lines[-1])['hash']}" in done.stdout
    noted = [json.loads(line)["hash"] for line in (lines[3], hashed_anew(bodies(lines)[3:])[-1])]
    for head, status in zip(noted, (0, 1), strict=True):
        checked = subprocess.run([*command, head], cwd=tmp_path, capture_output=True, timeout=120, check=False)
        assert checked.returncode == status
    (tmp_path / "ledger.jsonl").write_text("\n".join(hashed_anew(bodies(lines)[:-2])[1:]))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.startswith("entry 1: ")) == (1, True)
