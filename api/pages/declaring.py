"""Problems of a declaration or a file, with links to the fields of the form that declares a dataset."""

import re
from typing import Final

from fastapi import Request, Response

from api.errors import status_of
from api.pages.rendering import as_page, fragment
from core.base.errors import FieldError, Invalid, Refusal
from core.base.validation_errors import MISSING

FORM_BYTES: Final = 1_000_000
"""The longest declaration that a form sends: some thousand columns."""
_COLUMN: Final = re.compile(r"^/columns/(\d+)/(\w+)")
_WORDS: Final = {"lower": "lowest", "upper": "highest", "other": "unknown ones become", "missing": "missing codes"}
_MISSING: Final = {
    "lower": "type the lowest plausible value",
    "upper": "type the highest plausible value",
    "values": "list its values with commas between, the baseline first",
    "name": "type its name",
}
_FIELDS: Final = {
    "/name": "name",
    "/budget/epsilon": "epsilon",
    "/budget/delta": "delta",
    "/scope": "scope",
    "/distinct_because": "distinct",
}


def refused(request: Request, refusal: Refusal, given: object = None) -> Response:
    """Return the problems of a refusal as a part of a page.

    Args:
        request: with the form.
        refusal: of a declaration or a file.
        given: the declaration as it was sent, whose columns have names.
    """
    request.state.code = refusal.code
    names = _names(given)
    problems = [_problem(one, names) for one in refusal.fields]
    count = len(problems)
    title = refusal.detail
    if given is not None and type(refusal) is Invalid and problems:
        title = "One thing is missing or wrong" if count == 1 else f"{count} things are missing or wrong"
    facts = {"problems": problems or [{"name": "", "text": "Nothing was changed.", "field": ""}], "title": title}
    return as_page(fragment(request, "declaration_problems.html", facts), status_of(type(refusal)))


def _field(pointer: str) -> str:
    """Return the field of the form that a pointer into the metadata means."""
    column = _COLUMN.match(pointer)
    return f"c{column[1]}-{column[2]}" if column else _FIELDS.get(pointer, "")


def _names(given: object) -> list[str]:
    """Return the names of the columns of a declaration."""
    columns = given.get("columns") if isinstance(given, dict) else None
    found = columns if isinstance(columns, list) else []
    return [str(one.get("name", "")) if isinstance(one, dict) else "" for one in found]


def _problem(one: FieldError, names: list[str]) -> dict[str, str]:
    """Return a problem in the words of the page; a column's name stands apart, for it may be written right to left."""
    field, column = _field(one.pointer), _COLUMN.match(one.pointer)
    if not column:
        where = one.pointer.strip("/").replace("/", ", ")
        return {"name": "", "text": f"{where}: {one.detail}" if where else one.detail, "field": field}
    place, what = int(column[1]), column[2]
    name = names[place] if place < len(names) and names[place] else f"column {place + 1}"
    if one.detail == MISSING and what in _MISSING:
        return {"name": name, "text": f": {_MISSING[what]}", "field": field}
    return {"name": name, "text": f", {_WORDS.get(what, what)}: {one.detail}", "field": field}
