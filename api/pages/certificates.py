"""Certificates: the statements of one about a model, its download, and the check of an uploaded one."""

import base64
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import PlainTextResponse

from api.deps import Caller, Db
from api.errors import status_of
from api.pages.models import as_file, head
from api.pages.rendering import render
from api.pages.routes import FormFields, PageRoute, page, value_of
from api.routes import certificates as api
from core.base.errors import Invalid, LedgerBusy, NotReady
from core.service import certificates, checks
from core.service.backlogs import LedgerBehindError

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
JobId = Annotated[str, Path(max_length=60)]
TAB: Final = "Certificate"


@page(router, "/models/{model_id}/certificate", api=api.get_certificate)
def show_certificate(model_id: ModelId, request: Request, caller: Caller, db: Db) -> Response:
    """Show what the certificate of a model's job says."""
    facts = head(db, caller, model_id, TAB) | {"told": None, "behind": None, "unsigned": None, "signed": ""}
    try:
        signed = certificates.certificate(db, caller, facts["job"].id)
        facts |= {"told": told_by(signed), "signed": signed, "shown": _indented(signed)}
    except LedgerBehindError as behind:
        facts["behind"] = behind.percent
    except NotReady as refusal:
        facts["unsigned"] = refusal
    return render(request, "certificate.html", facts, at="models")


@page(router, "/jobs/{job_id}/certificate.jws", api=api.get_certificate)
def download_certificate(job_id: JobId, caller: Caller, db: Db) -> Response:
    """Send the certificate as it is signed."""
    try:
        signed = certificates.certificate(db, caller, job_id)
    except LedgerBehindError as behind:
        raise LedgerBusy(
            f"The ledger is being verified, and {behind.percent} % of it is.",
            retry_after_seconds=behind.retry_after_seconds,
        ) from None
    return as_file(PlainTextResponse(signed, media_type=api.MEDIA_TYPE), f"{job_id}.jws")


def told_by(signed: str) -> dict[str, Any]:
    """Return what a JWS in compact form says, its signature unchecked."""
    payload = signed.split(".")[1]
    # A JWS leaves out the padding of base64, on which Python insists.
    told: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return told


def _indented(signed: str) -> str:
    return json.dumps(told_by(signed), indent=1, ensure_ascii=False)


@page(router, "/certificates", api=api.check_certificate)
def ask_check(request: Request) -> Response:
    """Show the form for a certificate."""
    return render(request, "certificate_check.html", {"found": None, "error": "", "text": ""}, at="audit")


@page(router, "/certificates/check", api=api.check_certificate, method="POST")
def check_certificate(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Say what holds of a certificate."""
    text = value_of(form, "certificate")
    facts: dict[str, Any] = {"found": None, "error": "", "text": text}
    if text:
        facts["found"] = checks.certificate(db, caller, text)
        return render(request, "certificate_check.html", facts, at="audit")
    request.state.code = Invalid.code
    facts["error"] = "Choose a file, or paste its text."
    return render(request, "certificate_check.html", facts, at="audit", status=status_of(Invalid))
