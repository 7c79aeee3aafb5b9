"""An uploaded certificate is checked as its holder does offline, and compared with the ledger here."""

import base64
from collections.abc import Callable

import pytest
from sqlalchemy import text

from core.base.settings import ServiceSettings
from core.jobs import jobs
from core.ledger.signing import load_signing_keys, prepare_signing_key
from core.service import certificates, checks
from core.service.context import Caller, Context, Role
from tests.ledger.test_forgeries import drop_triggers
from tests.service.test_certificates import begin, failed
from tests.support.store import Place, open_place, queue_federated

Someone = Callable[[Role], Caller]


@pytest.fixture
def owned(context: Context, someone: Someone) -> tuple[Caller, Place, str]:
    """An owner, a scope of theirs, and a job there that has ended."""
    owner = someone("owner")
    with context.database.write() as session:
        place = open_place(session, owner.id)
    return owner, place, failed(context, begin(context, place, chunks=2))


def test_a_good_certificate_agrees_with_the_ledger(context: Context, owned: tuple[Caller, Place, str]) -> None:
    owner, place, job_id = owned
    found = checks.certificate(context, owner, certificates.certificate(context, owner, job_id) + "\n")
    assert (found.valid, found.signature, found.ledger, found.ledger_note) == (True, "good", "agrees", None)
    assert (found.kind, found.job, found.scope, found.model) == ("certificate", job_id, place.scope_id, None)
    assert found.promise is not None
    assert found.promise["zero_out"]["epsilon"]
    assert "job/created_at" in found.uncovered
    head = checks.certificate(context, owner, certificates.signed_head(context, owner, place.scope_id))
    assert (head.valid, head.kind, head.ledger, head.job, head.promise) == (True, "head", "agrees", None, None)


@pytest.mark.parametrize("changed", ["nonsense", "a.b.c", "é", "payload"])
def test_a_changed_text_has_a_bad_signature(context: Context, owned: tuple[Caller, Place, str], changed: str) -> None:
    owner, _, job_id = owned
    if changed == "payload":
        header, payload, signature = certificates.certificate(context, owner, job_id).split(".")
        changed = f"{header}.{payload[:-8]}AAAAAAAA.{signature}"
    found = checks.certificate(context, owner, changed)
    assert (found.valid, found.signature, found.ledger) == (False, "bad", "not-compared")
    assert found.signature_fault
    assert (found.kind, found.job, found.promise) == (None, None, None)


def test_a_ledger_that_says_something_else_differs(context: Context, owned: tuple[Caller, Place, str]) -> None:
    owner, place, job_id = owned
    signed = certificates.certificate(context, owner, job_id)
    with context.database.write() as session:
        drop_triggers(session)
        statement = text("UPDATE entries SET body = replace(body, 'owner', 'other') WHERE scope_id = :id AND seq > 1")
        session.execute(statement, {"id": place.scope_id})
        session.execute(
            text("UPDATE entries SET hash = 'sha256:0' WHERE scope_id = :id AND seq = 3"), {"id": place.scope_id}
        )
    found = checks.certificate(context, owner, signed)
    assert (found.valid, found.signature, found.ledger) == (False, "good", "differs")
    assert "entry" in (found.ledger_note or "")


def test_a_ledger_that_is_not_for_the_caller_is_not_compared(
    context: Context, someone: Someone, owned: tuple[Caller, Place, str]
) -> None:
    owner, _, job_id = owned
    signed = certificates.certificate(context, owner, job_id)
    for role in ("owner", "analyst"):
        found = checks.certificate(context, someone(role), signed)
        assert (found.valid, found.ledger) == (True, "not-compared")
        assert found.ledger_note == "its ledger is not here, or not for this key"
    assert checks.certificate(context, someone("auditor"), signed).ledger == "agrees"


def test_another_installation_s_certificate_is_bad(
    context: Context, owned: tuple[Caller, Place, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    owner, _, job_id = owned
    signed = certificates.certificate(context, owner, job_id)
    payload = signed.split(".")[1]
    other = ServiceSettings(home=tmp_path_factory.mktemp("other"))
    prepare_signing_key(other, 0.0)
    content = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode()
    forged = load_signing_keys(other).sign(certificates.CERTIFICATE, content, 1.0)
    found = checks.certificate(context, owner, forged)
    assert (found.signature, found.valid) == ("bad", False)
    assert "signed by key" in (found.signature_fault or "")


def test_a_federated_certificate_has_no_ledger_of_its_own(context: Context, someone: Someone) -> None:
    owners = [someone("owner"), someone("owner")]
    with context.database.write() as session:
        places = [open_place(session, owner.id) for owner in owners]
        job_id = queue_federated(session, places, None)
    context.database.transaction(jobs.cancel, job_id)
    found = checks.certificate(context, owners[0], certificates.certificate(context, owners[0], job_id))
    assert (found.signature, found.ledger, found.scope) == ("good", "not-compared", None)
