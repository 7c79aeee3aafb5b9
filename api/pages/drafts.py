"""Drafts: the owner looks at how the cells were read, mends the declaration or the file, and seals."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response

from api import uploads
from api.body import parse_json
from api.cost import MANY_VALUES
from api.deps import Caller, Db
from api.errors import status_of
from api.pages.datasets import head, read_cells
from api.pages.declaring import FORM_BYTES, refused
from api.pages.rendering import render
from api.pages.routes import FormFields, PageRoute, page, see_other, value_of
from api.routes import datasets as datasets_api
from api.routes import drafts as api
from core.base.errors import Invalid, Refusal
from core.data.datasets import UNPUBLISHED
from core.service import drafts
from core.service.context import Caller as Principal
from core.service.context import Context
from core.service.views import DatasetView
from farthing.schemas.drafts import DraftView, sniffed_words
from farthing.schemas.figures import per_cent

router = APIRouter(route_class=PageRoute)
DatasetId = Annotated[str, Path(max_length=60)]
_SEALING: Final = UNPUBLISHED - {"distinct_because"}


@page(router, "/datasets/{dataset_id}/draft", api=api.get_draft)
def show_draft(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Show how the cells of a draft were read, and what its owner may do about it."""
    return _draft(request, caller, db, dataset_id)


def _draft(
    request: Request, caller: Principal, context: Context, dataset_id: str, refusal: Refusal | None = None
) -> Response:
    draft = drafts.get(context, caller, dataset_id)
    facts = head(context, caller, dataset_id, "Draft") | {
        "draft": draft,
        "budget_asked": draft.declared.get("budget"),
        "part": per_cent(f"{draft.excluded / draft.rows:.4f}") if draft.rows and draft.excluded else None,
        "worst": _worst(draft),
        "read": list(map(read_cells, draft.columns)),
        "taken": [] if draft.sniffed is None else sniffed_words(draft.sniffed),
        "refusal": refusal,
    }
    status = 200 if refusal is None else status_of(type(refusal))
    return render(request, "draft.html", facts, at="datasets", status=status)


def _worst(draft: DraftView) -> dict[str, Any] | None:
    """Return the column that leaves most rows out, and how many of its cells cannot be read."""
    worst = max(draft.columns, key=lambda one: one.missing - one.filled, default=None)
    if worst is None or worst.missing == worst.filled:
        return None
    return {"name": worst.name, "unreadable": worst.unreadable, "gaps": worst.missing - worst.filled}


@page(router, "/datasets/{dataset_id}/content", api=datasets_api.put_content, method="POST", streamed=True)
async def send_file(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Take a file for a declared dataset or a draft; the script of the page goes to the report afterwards."""

    def work(body: Iterator[bytes]) -> DatasetView:
        return datasets_api.filled(db, caller, dataset_id, request.headers.get("content-type", ""), body)

    try:
        dataset = await uploads.in_thread(request, datasets_api.THREADS, work)
    except Refusal as refusal:
        return refused(request, refusal)
    return arrived(dataset)


def arrived(dataset: DatasetView) -> Response:
    """Return the page to go on with, once a file has arrived."""
    path = f"/datasets/{dataset.id}"
    return Response(headers={"Location": f"{path}/draft" if dataset.state == "draft" else path})


@page(router, "/datasets/{dataset_id}/mend", api=api.get_draft)
def show_mend(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Show the declaration of a draft in the form of a new dataset."""
    facts = {"draft": drafts.get(db, caller, dataset_id), "theirs": False}
    return render(request, "new_dataset.html", facts, at="datasets")


@page(router, "/datasets/{dataset_id}/mend", api=api.mend_draft, method="POST", form_bytes=FORM_BYTES)
def mend(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Put what the form says in the place of a draft's declaration."""
    given: object = None
    try:
        given = parse_json(value_of(form, "metadata").encode(), MANY_VALUES)
        if not isinstance(given, dict):
            raise Invalid("The declaration must be a JSON object.")
        before = drafts.get(db, caller, dataset_id).declared
        # The form sends the whole declaration, so a field that it lacks becomes null: taken away.
        wanted = dict.fromkeys(before) | given
        drafts.mend(db, caller, dataset_id, {name: one for name, one in wanted.items() if name not in _SEALING})
    except Refusal as refusal:
        return refused(request, refusal, given)
    return Response(headers={"Location": f"/datasets/{dataset_id}/draft"})


@page(router, "/datasets/{dataset_id}/seal", api=api.seal_draft, method="POST")
def seal(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Make a draft a dataset; where many rows are left out, only after its owner has ticked that they may be."""
    try:
        if drafts.get(db, caller, dataset_id).many_excluded and value_of(form, "accept") != "yes":
            raise Invalid("Tick that the rows may be left out, or mend the file or the declaration.")
        drafts.seal(db, caller, dataset_id)
    except Refusal as refusal:
        if status_of(type(refusal)) not in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise
        request.state.code = refusal.code
        return _draft(request, caller, db, dataset_id, refusal)
    return see_other(f"/datasets/{dataset_id}")
