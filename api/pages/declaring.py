"""Problems of a declaration or a file, with links to the fields of the form that declares a dataset."""

import re
from typing import Final

from fastapi import Request, Response

from api.errors import status_of
from api.pages.rendering import as_page, fragment
from core.base.errors import Refusal

FORM_BYTES: Final = 1_000_000
"""The longest declaration that a form sends: some thousand columns."""
_COLUMN: Final = re.compile(r"^/columns/(\d+)/(\w+)")
_FIELDS: Final = {
    "/name": "name",
    "/budget/epsilon": "epsilon",
    "/budget/delta": "delta",
    "/scope": "scope",
    "/distinct_because": "distinct",
}


def refused(request: Request, refusal: Refusal) -> Response:
    """Return the problems of a refusal as a part of a page."""
    request.state.code = refusal.code
    problems = [{"text": _said(one.pointer, one.detail), "field": _field(one.pointer)} for one in refusal.fields]
    facts = {"problems": problems or [{"text": "Nothing was changed.", "field": ""}], "title": refusal.detail}
    return as_page(fragment(request, "declaration_problems.html", facts), status_of(type(refusal)))


def _field(pointer: str) -> str:
    """Return the field of the form that a pointer into the metadata means."""
    column = _COLUMN.match(pointer)
    return f"c{column[1]}-{column[2]}" if column else _FIELDS.get(pointer, "")


def _said(pointer: str, detail: str) -> str:
    column = _COLUMN.match(pointer)
    where = f"column {int(column[1]) + 1}, {column[2]}" if column else pointer.strip("/").replace("/", ", ")
    return f"{where}: {detail}" if where else detail
