"""New dataset: a declaration that is typed from a codebook and checked without the records, then the upload."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from api import uploads
from api.body import parse_json
from api.cost import MANY_VALUES, OWNERS, Cost
from api.deps import Caller, Db
from api.errors import status_of
from api.pages.rendering import as_page, fragment, render
from api.pages.routes import FormFields, PageRoute, page, value_of
from api.routes import datasets as api
from core.base.errors import Refusal
from core.data.datasets import parse_metadata
from core.privacy.attacks import attack
from core.service import uploads as service

router = APIRouter(route_class=PageRoute)
OWN: Final = Cost(OWNERS)
EXAMPLES: Final = ("1", "2", "3", "5")
_COLUMN: Final = re.compile(r"^/columns/(\d+)/(\w+)")
_FIELDS: Final = {
    "/name": "name",
    "/budget/epsilon": "epsilon",
    "/budget/delta": "delta",
    "/scope": "scope",
    "/distinct_because": "distinct",
}


@page(router, "/datasets/new", cost=OWN)
def show_new_dataset(request: Request, caller: Caller) -> Response:
    """Show the form."""
    theirs = caller.key_made_by is not None and caller.key_made_by != caller.id
    return render(request, "new_dataset.html", {"theirs": theirs}, at="datasets")


@page(router, "/datasets/new/promise", cost=OWN)
def show_promise(
    request: Request,
    epsilon: Annotated[str, Query(max_length=40)] = "",
    delta: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """Return what an epsilon means, for the part of the form beside it."""
    facts: dict[str, Any] = {"attack": None}
    try:
        asked, chance = float(epsilon), float(delta)
        if 0 < asked <= 1000 and 0 < chance < 1:  # noqa: PLR2004 - nobody declares more
            examples = sorted({*EXAMPLES, epsilon}, key=float)
            facts = {
                "attack": attack(asked, chance),
                "asked": epsilon,
                "table": [(one, attack(float(one), chance)) for one in examples],
            }
    except (ValueError, ArithmeticError):
        pass  # half a number is being typed
    return as_page(fragment(request, "promise.html", facts))


@page(router, "/datasets/new/check", cost=OWN, method="POST")
def check(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Check a declaration without the records."""
    try:
        metadata = parse_metadata(parse_json(value_of(form, "metadata").encode(), MANY_VALUES))
        service.parse(db, caller, metadata)
    except Refusal as refusal:
        return _refused(request, refusal)
    return as_page(fragment(request, "declaration_problems.html", {"problems": []}))


@page(router, "/datasets/new", api=api.create_dataset, method="POST", streamed=True)
async def upload(request: Request, caller: Caller, db: Db) -> Response:
    """Take the file with its declaration; the script of the page goes to the report afterwards."""

    def work(body: Iterator[bytes]) -> tuple[dict[str, Any], bool]:
        return api.from_form(db, caller, request.headers.get("content-type", ""), body, None)

    try:
        view, _ = await uploads.in_thread(request, api.THREADS, work)
    except Refusal as refusal:
        return _refused(request, refusal)
    request.state.target = f"datasets/{view['id']}"
    headers = {"Location": f"/datasets/{view['id']}/validation"}
    return Response(status_code=HTTPStatus.CREATED, headers=headers)


def _refused(request: Request, refusal: Refusal) -> Response:
    """Return what is wrong with a declaration or a file, with links to the fields."""
    request.state.code = refusal.code
    problems = [{"text": _said(one.pointer, one.detail), "field": _field(one.pointer)} for one in refusal.fields]
    title = refusal.detail
    if not problems:
        problems = [{"text": "Nothing was made.", "field": ""}]
    facts = {"problems": problems, "title": title}
    return as_page(fragment(request, "declaration_problems.html", facts), status_of(type(refusal)))


def _field(pointer: str) -> str:
    """Return the field of the form that a pointer into the metadata means."""
    column = _COLUMN.match(pointer)
    return f"c{column[1]}-{column[2]}" if column else _FIELDS.get(pointer, "")


def _said(pointer: str, detail: str) -> str:
    column = _COLUMN.match(pointer)
    where = f"column {int(column[1]) + 1}, {column[2]}" if column else pointer.strip("/").replace("/", ", ")
    return f"{where}: {detail}" if where else detail
