"""Privacy reports: of a job, and of a dataset's budget, as JSON, as one HTML page, or as PDF."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from api.body import StrictRoute
from api.cost import HEAVY_READ, costs
from api.deps import Caller, Db
from api.errors import problems
from api.pages.standalone import report_page
from api.pages.typesetting import MEDIA_TYPE, pdf_answer
from core.base.errors import Conflict, NotFound, Unauthenticated
from core.service import documents, jobs
from farthing.schemas.documents import DocumentView

router = APIRouter(route_class=StrictRoute, responses=problems(Unauthenticated, NotFound))
Kind = Annotated[Literal["json", "html", "pdf"] | None, Query(alias="format")]
_PAGE: Final = {"text/html": {"schema": {"type": "string"}}}
_OTHERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {**_PAGE, MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}
Accept = Annotated[str, Header()]


@router.get("/v1/jobs/{job_id}/report", tags=["jobs"], response_model=dict[str, object], responses=_OTHERS)
@costs(HEAVY_READ)
def get_report(
    job_id: Annotated[str, Path(max_length=60)],
    caller: Caller,
    db: Db,
    request: Request,
    accept: Accept = "application/json",
    kind: Kind = None,
) -> Response:
    """Show a job's privacy report: the budget it spent, the guarantee of that, and the state of the ledger.

    `format=html` and `format=pdf` are for people: in the terms of NIST SP 800-226.
    """
    wanted = _wanted(kind, accept)
    if wanted == "json":
        return JSONResponse(jobs.report(db, caller, job_id))
    return _made(documents.of_job(db, caller, job_id), wanted, request, job_id)


@router.get(
    "/v1/datasets/{dataset_id}/report",
    tags=["data"],
    response_model=DocumentView,
    responses={**_OTHERS, **problems(Conflict)},
)
@costs(HEAVY_READ)
def get_dataset_report(
    dataset_id: Annotated[str, Path(max_length=60)],
    caller: Caller,
    db: Db,
    request: Request,
    accept: Accept = "application/json",
    kind: Kind = None,
) -> Response:
    """Show what is promised for good to the people behind a dataset, and where their budget went, for people."""
    document, wanted = documents.of_dataset(db, caller, dataset_id), _wanted(kind, accept)
    if wanted == "json":
        return JSONResponse(document.model_dump(mode="json"))
    return _made(document, wanted, request, dataset_id)


def _wanted(kind: str | None, accept: str) -> str:
    return kind or ("html" if accept.startswith("text/html") else "json")


def _made(document: DocumentView, kind: str, request: Request, name: str) -> Response:
    if kind == "pdf":
        return pdf_answer(document, request.url.netloc, f"{name}.pdf")
    return HTMLResponse(report_page(document))
