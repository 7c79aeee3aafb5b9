"""Checks: an uploaded certificate, checked as its holder does offline, and compared with the ledger here.

`farthing.certificates` does both, for the SDK, the command line and this use case. It shares no code with what signs.
"""

from typing import Final, Literal

from sqlalchemy.orm import Session

from core.db import reads as queries
from core.service.certificates import published
from core.service.context import Caller, Context
from core.service.scopes import entry_view, viewer
from core.service.views import rfc3339
from farthing.certificates import BadCertificateError, Signed, check, contained
from farthing.schemas.checks import CertificateCheckView
from farthing.schemas.ledger import EntryView

MOST_ENTRIES: Final = 50_000
"""Of a ledger that a request follows from its start: some seconds of work."""
_BATCH: Final = 1000
Outcome = tuple[Literal["agrees", "differs", "not-compared"], str | None]


def certificate(context: Context, caller: Caller, text: str) -> CertificateCheckView:
    """Return what holds of a certificate, or of a signed head.

    Raises:
        NotReady: this installation has no keys.
    """
    try:
        signed = check(text, published(context))
    except BadCertificateError as bad:
        return CertificateCheckView(
            valid=False,
            signature="bad",
            signature_fault=str(bad),
            ledger="not-compared",
            ledger_note="the signature is bad",
            kind=None,
            issuer=None,
            key=None,
            signed_at=None,
            scope=None,
            job=None,
            model=None,
            promise=None,
            uncovered=[],
        )
    with context.database.read() as session:
        outcome, note = _compared(session, caller, signed)
    return _view(signed, outcome, note)


def _compared(session: Session, caller: Caller, signed: Signed) -> Outcome:
    """Compare with the ledger here, which the caller has to see."""
    if signed.scope is None:
        return "not-compared", "a federated job has a ledger at each site: check the sites' own certificates"
    scope = queries.scope(session, viewer(caller), signed.scope)
    if scope is None:
        return "not-compared", "its ledger is not here, or not for this key"
    if scope.seq > MOST_ENTRIES:
        return "not-compared", f"its ledger has {scope.seq} entries: use `farthing certificate check --ledger`"
    try:
        contained(signed, _entries(session, scope.id))
    except BadCertificateError as bad:
        return "differs", str(bad)
    return "agrees", None


def _entries(session: Session, scope_id: str) -> list[EntryView]:
    """Return all entries of a ledger as the API shows them."""
    found = list[EntryView]()
    while rows := queries.entries(session, scope_id, found[-1].seq if found else 0, _BATCH):
        found += map(entry_view, rows)
        # Else the session keeps every row of a long ledger in memory.
        session.expunge_all()
    return found


def _view(
    signed: Signed, outcome: Literal["agrees", "differs", "not-compared"], note: str | None
) -> CertificateCheckView:
    payload = signed.payload
    job, result = payload.get("job"), payload.get("result")
    return CertificateCheckView(
        valid=outcome != "differs",
        signature="good",
        signature_fault=None,
        ledger=outcome,
        ledger_note=note,
        kind="head" if signed.kind == "head" else "certificate",
        issuer=payload["issuer"],
        key=signed.key,
        signed_at=rfc3339(signed.at),
        scope=signed.scope,
        job=job["id"] if job else None,
        model=result["model"] if result else None,
        promise=payload.get("promise"),
        uncovered=list(payload.get("uncovered", ())),
    )
