"""New dataset: a declaration that is typed from a codebook and checked without the records; it becomes a draft."""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from api.body import parse_json
from api.cost import MANY_VALUES, OWNERS, Cost
from api.deps import Caller, Db
from api.pages.declaring import FORM_BYTES, refused
from api.pages.rendering import as_page, fragment, render
from api.pages.routes import Form, FormFields, PageRoute, page, value_of
from api.routes import datasets as api
from core.base.errors import Refusal
from core.data.datasets import parse_metadata
from core.privacy.attacks import attack
from core.service import declarations, uploads

router = APIRouter(route_class=PageRoute)
OWN: Final = Cost(OWNERS)
EXAMPLES: Final = ("1", "2", "3", "5")


@page(router, "/datasets/new", cost=OWN)
def show_new_dataset(request: Request, caller: Caller) -> Response:
    """Show the form."""
    facts = {"theirs": caller.key_seen_by_others, "draft": None}
    return render(request, "new_dataset.html", facts, at="datasets")


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


@page(router, "/datasets/new/check", cost=OWN, method="POST", form_bytes=FORM_BYTES)
def check(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Check a declaration without the records."""
    given: object = None
    try:
        given = _given(form)
        declarations.parse(db, caller, parse_metadata(given))
    except Refusal as refusal:
        return refused(request, refusal, given)
    return as_page(fragment(request, "declaration_problems.html", {"problems": []}))


@page(router, "/datasets/new", api=api.create_dataset, method="POST", form_bytes=FORM_BYTES)
def declare(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Make a draft of a declaration; the script of the page sends its file then."""
    given: object = None
    try:
        given = _given(form)
        view, _ = uploads.declare(db, caller, parse_metadata(given), None)
    except Refusal as refusal:
        return refused(request, refusal, given)
    request.state.target = f"datasets/{view['id']}"
    return Response(status_code=HTTPStatus.CREATED, headers={"Location": f"/datasets/{view['id']}/draft"})


def _given(form: Form) -> object:
    """Return the declaration of a form, as that of a draft."""
    given = parse_json(value_of(form, "metadata").encode(), MANY_VALUES)
    return given | {"seal": False} if isinstance(given, dict) else given
