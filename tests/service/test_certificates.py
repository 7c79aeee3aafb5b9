"""Certificates and signed heads of the service: their statements, the right to read them, and that they never change.

They are read as their holders read them, by `farthing.certificates`, which shares no code with what makes them.
"""

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import Conflict, NotFound, NotReady, ScopeFrozen
from core.base.identifiers import new_id
from core.base.version import software
from core.db.service_tables import VerifiedHead
from core.db.tables import Account, Attempt, Dataset, Job, Model, Scope
from core.db.tables import Entry as Row
from core.jobs import jobs
from core.ledger import gaps, ledger
from core.ledger.chain import link
from core.ledger.claims import Claim
from core.ledger.signing import rotate_signing_key
from core.ledger.witness.trusting import mark_keys
from core.privacy.events import EVENT, Event, Gaussian, Sampled
from core.service import certificates, models, readings
from core.service import jobs as cases
from core.service.context import Caller, Context, Role
from core.service.scopes import entries as read_entries
from farthing import certificates as checker
from farthing.certificates import Signed
from farthing.schemas.ledger import EntryView
from tests.ledger.test_forgeries import drop_triggers
from tests.support.released import released
from tests.support.store import (
    STEP,
    Place,
    backed_up,
    make_dataset,
    make_place,
    open_place,
    put_back,
    queue_federated,
    submit,
)

Someone = Callable[[Role], Caller]
COARSE = Sampled(numerator=2**58, sigma=1.5)


def begin(context: Context, place: Place, schedule: Sequence[Event] = (STEP,) * 3, chunks: int = 0) -> Claim:
    """Submit a job, claim it, open the records and pay for some chunks."""
    with context.database.write() as session:
        submit(session, place, schedule, retry_allowance=1)
    claim = context.database.transaction(jobs.claim, "worker", 60.0)
    assert claim is not None
    context.database.transaction(jobs.mark_opened, claim, software())
    for chunk in range(chunks):
        context.database.transaction(ledger.pay, claim, chunk, None, chunk)
    return claim


def failed(context: Context, claim: Claim, charge: str = "spent") -> str:
    context.database.transaction(jobs.fail, claim, "trainer-failed", charge=charge)
    return claim.job_id


def read(context: Context, caller: Caller, job_id: str) -> Signed:
    return checker.check(certificates.certificate(context, caller, job_id), certificates.published(context))


def chain(context: Context, caller: Caller, scope_id: str) -> list[EntryView]:
    return read_entries(context, caller, scope_id, 0, 1000)


def test_a_certificate_says_what_the_report_and_the_ledger_say(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, (STEP, STEP, COARSE, STEP), chunks=3))
    said, report = read(context, admin, job_id).payload, cases.report(context, admin, job_id)
    assert said["promise"]["zero_out"] == report["privacy"]["promise"]
    assert said["promise"]["replace_one"] == report["privacy"]["implies"]["replace_one"]
    assert said["promise"]["zero_out"]["rho"] is None  # a sampled answer was among what was drawn
    assert said["events"]["charged"] == [[2, EVENT.dump_python(STEP)], [1, EVENT.dump_python(COARSE)]]
    with context.database.read() as session:
        held = ledger.balance(session, place.scope_id)
    orders = len(held.terms.orders)
    assert tuple(said["nano_nats"]["spent"]) == held.spent
    reserved, spent, returned = (said["nano_nats"][name] for name in ("reserved", "spent", "returned"))
    assert [spent[slot] + returned[slot] for slot in range(orders)] == reserved
    assert said["software"] == [{"attempt": 1, "with": software()}]
    assert said["scope"]["delta"] == report["privacy"]["promise"]["delta"]
    checker.contained(read(context, admin, job_id), chain(context, admin, place.scope_id))


@pytest.mark.parametrize("ending", ["unclaimed", "unspent", "spent", "all"])
def test_whatever_became_of_a_job_its_certificate_says_what_it_cost(
    context: Context, admin: Caller, ending: str
) -> None:
    place = make_place(context.database)
    if ending == "unclaimed":
        with context.database.write() as session:
            job_id = submit(session, place).id
        context.database.transaction(jobs.cancel, job_id)
    else:
        claim = begin(context, place, chunks=0 if ending == "unspent" else 1)
        job_id = failed(context, claim, "all" if ending == "all" else "spent")
    signed = read(context, admin, job_id)
    said = signed.payload
    assert said["job"]["state"] == ("cancelled" if ending == "unclaimed" else "failed")
    assert said["result"] is None
    nothing = ending in {"unclaimed", "unspent"}
    assert (said["promise"]["zero_out"]["epsilon"] == "0") is nothing
    assert any(said["nano_nats"]["spent"]) is not nothing
    if ending == "all":  # three chunks and the allowance for one more
        assert said["events"]["charged"] == [[4, EVENT.dump_python(STEP)]]
        assert said["nano_nats"]["spent"] == said["nano_nats"]["reserved"]
    checker.contained(signed, chain(context, admin, place.scope_id))


def test_of_one_job_there_is_one_payload_whoever_asks_and_whichever_key_signs(
    context: Context, admin: Caller, someone: Someone
) -> None:
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, chunks=1))
    first = certificates.certificate(context, admin, job_id)
    rotate_signing_key(context.settings.signing_key_path, 2e9)
    with context.database.write() as session:
        submit(session, place)  # the ledger goes on, and says nothing more of that job
    second = certificates.certificate(context, someone("auditor"), job_id)
    parts, others = first.split("."), second.split(".")
    assert parts[1] == others[1]
    assert parts[0] != others[0]


def test_a_charge_given_back_later_is_in_later_certificates(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    with context.database.write() as session:
        submit(session, place)
    claim = context.database.transaction(jobs.claim, "worker", 60.0)
    assert claim is not None
    job_id = failed(context, claim, charge="all")
    before = read(context, admin, job_id)
    context.database.transaction(ledger.compensate, place.scope_id, job_id, Fraction(1), "it never ran", admin.id)
    after = read(context, admin, job_id)
    assert not any(before.payload["nano_nats"]["corrected"])
    assert after.payload["nano_nats"]["corrected"] == before.payload["nano_nats"]["spent"]
    for signed in (before, after):  # the earlier one stays true of the place where it was made
        checker.contained(signed, chain(context, admin, place.scope_id))


def test_only_who_may_read_a_job_gets_its_certificate_and_only_once_it_has_ended(
    context: Context, admin: Caller, someone: Someone
) -> None:
    place = make_place(context.database)
    claim = begin(context, place, chunks=1)
    with pytest.raises(Conflict, match="has not ended"):
        certificates.certificate(context, admin, claim.job_id)
    failed(context, claim)
    for role in ("owner", "analyst"):
        stranger = someone(role)
        with pytest.raises(NotFound):
            certificates.certificate(context, stranger, claim.job_id)
        with pytest.raises(NotFound):
            certificates.signed_head(context, stranger, place.scope_id)
    assert certificates.certificate(context, someone("auditor"), claim.job_id)


def test_no_digest_of_records_is_in_a_certificate(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    with context.database.write() as session:
        dataset = session.get_one(Dataset, place.dataset_id)
        dataset.location_digest, drawn = "sha256:" + "cd" * 32, dataset.fingerprint
        dataset.location, dataset.wrapped_key, dataset.validation = "rec_gh", "v1.ef.gh", {"sealed": "ij"}
    job_id = failed(context, begin(context, place, chunks=1))
    said = read(context, admin, job_id).payload
    assert (said["dataset"]["fingerprint"], said["dataset"]["rows"]) == (drawn, 1000)
    for computed in ("cd" * 8, "rec_gh", "v1.ef.gh", '"ij"', "hmac"):
        assert computed not in json.dumps(said)


@pytest.mark.parametrize("approval", ["not-needed", "pending"])
def test_a_model_is_named_with_its_digest_once_those_who_are_asked_approved(
    context: Context, admin: Caller, approval: str
) -> None:
    place = make_place(context.database)
    claim = begin(context, place, chunks=3)
    content = released().model_dump(mode="json")
    model = context.database.transaction(jobs.finish, claim, content, approval)
    said = read(context, admin, claim.job_id)
    if approval == "pending":
        assert said.payload["result"] == {"model": None, "digest": None, "export": None, "approval": "pending"}
        return
    assert said.payload["result"]["model"] == model.id
    assert said.payload["promise"]["label"] == "guarantee"
    file = json.loads(json.dumps(models.export_json(context, admin, model.id)))
    checker.released(said, file)
    flipped = {name: -10 * one for name, one in file["coefficients"].items()}
    changes: list[dict[str, Any]] = [{"released": content | {"theta": [1.0]}}, {"coefficients": flipped}]
    changes += [{"covariance": None}, {"scale": 1.0}, {"model": "mdl_other"}, {"note": "more"}]
    for change in changes:
        with pytest.raises(checker.BadCertificateError, match="not the one"):
            checker.released(said, file | change)
    said.payload["result"]["export"] = None  # as 0.1.0 signed it
    checker.released(said, {"format": "farthing-model", "released": content})
    with pytest.raises(checker.BadCertificateError, match="does not cover coefficients, covariance, scale of this"):
        checker.released(said, file | {"coefficients": flipped})


def test_a_federated_job_has_one_certificate_and_each_client_its_own(context: Context, admin: Caller) -> None:
    places = [make_place(context.database) for _ in range(2)]
    with context.database.write() as session:
        job_id = queue_federated(session, places, None)
        clients = session.execute(select(Job).where(Job.federation_id == job_id).order_by(Job.place)).scalars().all()
        ids = [row.id for row in clients if row.place is not None]
    context.database.transaction(jobs.cancel, job_id)
    whole = read(context, admin, job_id)
    assert [one["place"] for one in whole.payload["clients"]] == [0, 1]
    assert "scope" not in whole.payload
    assert not any(place.dataset_id in json.dumps(whole.payload) for place in places)
    for client_id, place in zip(ids, places, strict=True):
        client = read(context, admin, client_id)
        assert client.scope == place.scope_id
        assert client.payload["federation"]["job"] == job_id
        checker.part_of(client, whole)
        checker.contained(client, chain(context, admin, place.scope_id))
    other = failed(context, begin(context, places[0], chunks=1))
    with pytest.raises(checker.BadCertificateError, match="does not speak of this one"):
        checker.part_of(read(context, admin, other), whole)


def test_a_job_that_ended_before_software_was_written_down_says_so(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, chunks=1))
    with context.database.write() as session:
        session.get_one(Attempt, (job_id, 1)).software = None
    assert read(context, admin, job_id).payload["software"] == [{"attempt": 1, "with": None}]


def test_a_signed_head_is_the_head_and_a_later_one_extends_it(context: Context, admin: Caller) -> None:
    place = make_place(context.database)

    def head() -> Signed:
        signed = certificates.signed_head(context, admin, place.scope_id)
        return checker.check(signed, certificates.published(context))

    older = head()
    failed(context, begin(context, place, chunks=1))
    newer = head()
    with context.database.read() as session:
        scope = session.get_one(Scope, place.scope_id)
        assert newer.places == {scope.seq: scope.head}
    checker.extends(newer, older, chain(context, admin, place.scope_id))
    with pytest.raises(checker.BadCertificateError, match="put back: it has 2 entries, and had 6"):
        checker.extends(older, newer, chain(context, admin, place.scope_id))


def test_a_ledger_that_went_on_without_its_witness_says_so_in_every_certificate_and_report(
    context: Context, admin: Caller
) -> None:
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, chunks=1))
    assert read(context, admin, job_id).payload["ledger"]["reconciled"] == []
    assert cases.report(context, admin, job_id)["unwitnessed"] == []
    with context.database.write() as session:
        scope = ledger.lock_scope(session, place.scope_id)
        at = session.get_one(Row, (scope.id, scope.seq)).created_at
        gaps.note(session, scope, "operator", "the witness is lost")
    (told,) = read(context, admin, job_id).payload["ledger"]["reconciled"]
    assert (told["kind"], told["since"]) == ("unwitnessed", at)
    (gap,) = cases.report(context, admin, job_id)["unwitnessed"]
    assert (gap["entry"], gap["accepted"]) == (told["seq"], None)


def rename_the_records(session: Session, place: Place, _: str) -> None:
    session.get_one(Dataset, place.dataset_id).fingerprint = "fp_another"


def have_more_rows(session: Session, place: Place, _: str) -> None:
    session.get_one(Dataset, place.dataset_id).rows = 1_000_000


def name_other_records(session: Session, place: Place, job_id: str) -> None:
    """Those of another dataset of the scope."""
    other = make_dataset(session, place.principal_id, place.scope_id)
    session.get_one(Job, job_id).dataset_id = other


def lower_the_budget(session: Session, place: Place, _: str) -> None:
    session.get_one(Account, place.scope_id).epsilon = "0.5"


def change_who_is_protected(session: Session, place: Place, _: str) -> None:
    session.get_one(Scope, place.scope_id).adjacency = "replace_one"


def serve_more_units(session: Session, place: Place, _: str) -> None:
    session.get_one(Scope, place.scope_id).units = 10**9


def draw_louder_noise(session: Session, _: Place, job_id: str) -> None:
    session.get_one(Job, job_id).schedule = [EVENT.dump_python(Gaussian(sigma=2000.0))] * 3


def have_paid_less(session: Session, _: Place, job_id: str) -> None:
    session.get_one(Job, job_id).chunks_spent = 0


def pay_from_another_scope(session: Session, _: Place, job_id: str) -> None:
    owner = session.get_one(Job, job_id).owner_id
    session.get_one(Job, job_id).scope_id = open_place(session, owner).scope_id


def have_asked_otherwise(session: Session, _: Place, job_id: str) -> None:
    job = session.get_one(Job, job_id)
    job.spec = job.spec | {"model": {"kind": "logistic", "target": "another"}}


def have_ended_well(session: Session, _: Place, job_id: str) -> None:
    job = session.get_one(Job, job_id)
    job.state, job.error_code = "succeeded", None


def have_failed_otherwise(session: Session, _: Place, job_id: str) -> None:
    session.get_one(Job, job_id).error_code = "worker-lost"


def declare_other_columns(session: Session, place: Place, _: str) -> None:
    session.get_one(Dataset, place.dataset_id).columns = [{"name": "x", "type": "binary"}]


def release_what_failed(session: Session, place: Place, job_id: str) -> None:
    made = {"id": new_id("mdl"), "job_id": job_id, "dataset_id": place.dataset_id, "created_at": 1.0}
    session.add(Model(**made, release=released().model_dump(mode="json"), approval="not-needed"))


CHANGES = (
    have_asked_otherwise,
    have_ended_well,
    have_failed_otherwise,
    declare_other_columns,
    release_what_failed,
    pay_from_another_scope,
    rename_the_records,
    have_more_rows,
    name_other_records,
    lower_the_budget,
    change_who_is_protected,
    serve_more_units,
    draw_louder_noise,
    have_paid_less,
)


def leave_mark(context: Context, place: Place) -> None:
    """Verify a chain, as a supervisor does, and leave how far it was."""
    rounds = ledger.Rounds(context.database, 1e9, lambda: mark_keys(context.settings))
    assert rounds.go() == {}
    with context.database.read() as session:
        assert session.execute(select(VerifiedHead.seq).where(VerifiedHead.scope_id == place.scope_id)).scalar_one()


def refused(context: Context, admin: Caller, place: Place, job_id: str) -> None:
    with pytest.raises(ScopeFrozen, match="ledger"):
        certificates.certificate(context, admin, job_id)
    with context.database.read() as session:
        assert session.get_one(Scope, place.scope_id).frozen_reason is not None


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_row_that_was_changed_is_not_signed(
    context: Context, admin: Caller, change: Callable[[Session, Place, str], None], *, marked: bool
) -> None:
    """With the database alone: no entry is touched, so the chain's hashes are what they were."""
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, chunks=2))
    honest = read(context, admin, job_id)
    checker.contained(honest, chain(context, admin, place.scope_id))
    if marked:
        leave_mark(context, place)
    with context.database.write() as session:
        change(session, place, job_id)
    refused(context, admin, place, job_id)


def triple_the_parameters(release: dict[str, Any]) -> dict[str, Any]:
    return release | {"theta": [3 * one for one in release["theta"]]}


def aim_at_something_else(release: dict[str, Any]) -> dict[str, Any]:
    return release | {"design": release["design"] | {"target": release["design"]["target"] | {"name": "another"}}}


@pytest.mark.parametrize("change", [triple_the_parameters, aim_at_something_else])
def test_a_model_that_was_changed_is_neither_signed_nor_served(
    context: Context, admin: Caller, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    place = make_place(context.database)
    claim = begin(context, place, chunks=3)
    content = released().model_dump(mode="json")
    model = context.database.transaction(jobs.finish, claim, content, "not-needed")
    for ask in (models.get, models.export_json):
        assert ask(context, admin, model.id)
    assert read(context, admin, claim.job_id)
    with context.database.write() as session:
        session.get_one(Model, model.id).release = change(content)
    for ask in (models.get, models.export_json, readings.methods):
        with pytest.raises(ScopeFrozen, match="is not what the ledger says"):
            ask(context, admin, model.id)
    refused(context, admin, place, claim.job_id)


def pay_less(session: Session, place: Place, job_id: str) -> None:
    row = the_entry(session, place, job_id, "spend")
    row.body = row.body.replace('"spent":[', '"spent":[1')


def pay_less_by_its_own_hash(session: Session, place: Place, job_id: str) -> None:
    pay_less(session, place, job_id)
    row = the_entry(session, place, job_id, "spend")
    row.hash = link(row.prev_hash, row.body)


def leave_a_payment_out(session: Session, place: Place, job_id: str) -> None:
    session.delete(the_entry(session, place, job_id, "spend"))


def give_a_payment_to_nobody(session: Session, place: Place, job_id: str) -> None:
    the_entry(session, place, job_id, "spend").job_id = None


def call_a_payment_something_else(session: Session, place: Place, job_id: str) -> None:
    the_entry(session, place, job_id, "spend").kind = "freeze"


def leave_the_upload_out(session: Session, place: Place, _: str) -> None:
    row = session.execute(select(Row).where(Row.scope_id == place.scope_id, Row.kind == "upload")).scalar_one()
    session.delete(row)


def name_other_rows_in_the_upload(session: Session, place: Place, _: str) -> None:
    row = session.execute(select(Row).where(Row.scope_id == place.scope_id, Row.kind == "upload")).scalar_one()
    row.body = row.body.replace('"rows":1000', '"rows":9000')


def the_entry(session: Session, place: Place, job_id: str, kind: str) -> Row:
    found = select(Row).where(Row.scope_id == place.scope_id, Row.job_id == job_id, Row.kind == kind)
    return session.execute(found.order_by(Row.seq).limit(1)).scalar_one()


OLD_ENTRIES = (
    pay_less,
    pay_less_by_its_own_hash,
    leave_a_payment_out,
    give_a_payment_to_nobody,
    call_a_payment_something_else,
    leave_the_upload_out,
    name_other_rows_in_the_upload,
)


@pytest.mark.parametrize("change", OLD_ENTRIES, ids=lambda change: change.__name__)
def test_an_entry_that_was_changed_far_below_the_mark_is_not_signed(
    context: Context, admin: Caller, change: Callable[[Session, Place, str], None]
) -> None:
    """Nothing that a mark says depends on it: it is hashed again because it is shown."""
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, chunks=2))
    for _ in range(2):
        failed(context, begin(context, place, chunks=1))
    leave_mark(context, place)
    assert read(context, admin, job_id).payload["events"]["charged"]
    with context.database.write() as session:
        drop_triggers(session)
        change(session, place, job_id)
    refused(context, admin, place, job_id)


def test_a_charge_given_back_before_the_mark_cannot_be_left_out(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    with context.database.write() as session:
        submit(session, place)
    claim = context.database.transaction(jobs.claim, "worker", 60.0)
    assert claim is not None
    job_id = failed(context, claim, charge="all")
    context.database.transaction(ledger.compensate, place.scope_id, job_id, Fraction(1), "it never ran", admin.id)
    failed(context, begin(context, place, chunks=1))
    leave_mark(context, place)
    assert any(read(context, admin, job_id).payload["nano_nats"]["corrected"])
    with context.database.write() as session:
        drop_triggers(session)
        the_entry(session, place, job_id, "compensate").job_id = None
    refused(context, admin, place, job_id)


def test_a_gap_before_the_mark_cannot_be_left_out(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, chunks=1))
    with context.database.write() as session:
        gaps.note(session, ledger.lock_scope(session, place.scope_id), "operator", "the witness is lost")
    leave_mark(context, place)
    assert read(context, admin, job_id).payload["ledger"]["reconciled"]
    with context.database.write() as session:
        drop_triggers(session)
        row = session.execute(select(Row).where(Row.kind == "unwitnessed")).scalar_one()
        row.kind, row.body = "freeze", row.body.replace('"unwitnessed"', '"freeze"')
    refused(context, admin, place, job_id)


def test_a_database_put_back_to_before_an_entry_that_was_witnessed_signs_nothing(
    context: Context, admin: Caller
) -> None:
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, chunks=1))
    leave_mark(context, place)
    assert read(context, admin, job_id)
    before = backed_up(context.database)
    failed(context, begin(context, place, chunks=2))
    assert certificates.signed_head(context, admin, place.scope_id)
    put_back(context.database, before)
    for ask in (
        lambda: certificates.certificate(context, admin, job_id),
        lambda: certificates.signed_head(context, admin, place.scope_id),
    ):
        with pytest.raises(ScopeFrozen):
            ask()


def test_a_certificate_leaves_a_mark_where_nobody_else_did(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    job_id = failed(context, begin(context, place, [STEP] * 40, chunks=40))
    first = certificates.certificate(context, admin, job_id)
    with context.database.read() as session:
        marked = session.execute(select(VerifiedHead.seq)).scalar_one()
        assert marked == session.get_one(Scope, place.scope_id).seq
    second = certificates.certificate(context, admin, job_id)
    assert first.split(".")[1] == second.split(".")[1]


def test_without_a_key_jobs_run_and_certificates_say_what_is_missing(context: Context, admin: Caller) -> None:
    place = make_place(context.database)
    context.settings.signing_key_path.unlink()
    job_id = failed(context, begin(context, place, (Gaussian(sigma=9.0),), chunks=1))
    with pytest.raises(NotReady, match="FARTHING_SIGNING_KEY_FILE"):
        certificates.certificate(context, admin, job_id)
