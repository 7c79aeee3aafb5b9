"""Errors of a request, field by field: a JSON pointer, and the required form of the field in plain words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from core.base.errors import FieldError

MISSING: Final = "is missing"
_MAX_ERRORS: Final = 100
_OBJECT, _LIST, _WHOLE, _NUMBER, _TRUTH = (
    "must be an object",
    "must be a list",
    "must be a whole number",
    "must be a number",
    "must be true or false",
)
_SAID: Final[Mapping[str, str]] = {
    "missing": MISSING,
    "extra_forbidden": "there is no such field here; /openapi.json lists those that there are",
    "union_tag_not_found": "is missing; it says which kind this is",
    "string_type": "must be a text",
    "finite_number": "must be a finite number",
    "none_required": "must be null",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "dataclass_type"), _OBJECT),
    **dict.fromkeys(("list_type", "tuple_type"), _LIST),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), _TRUTH),
}
_RENAMED: Final[Mapping[str, str]] = {
    "clients": "sites",
    "grant": "budget_cap",
    "pace": "learning_rate_schedule (of clipped_sgd) or round_schedule (of proximal_point)",
}
"""New names of renamed fields, by their names in 0.1.0."""
RENAMED_KINDS: Final[Mapping[str, str]] = {
    "certified_clipped_sgd": "one_pass_clipped_sgd",
    "certify": "check_bound",
}
"""New names of renamed methods, by their names in 0.1.0."""
_FORMED: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "literal_error": lambda context: f"must be {context['expected']}",
    "enum": lambda context: f"must be {context['expected']}",
    "union_tag_invalid": lambda context: f"must be one of {context['expected_tags']}",
    "greater_than": lambda context: f"must be above {context['gt']}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than": lambda context: f"must be below {context['lt']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
    "too_long": lambda context: f"must have at most {context['max_length']} items",
    "too_short": lambda context: f"must have at least {_items(context['min_length'])}",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "string_too_short": lambda context: f"must have at least {context['min_length']} characters",
    "string_pattern_mismatch": lambda _: "has another form than /openapi.json shows here",
}


def field_errors(found: Sequence[Mapping[str, Any]], body: object) -> tuple[FieldError, ...]:
    """Return pydantic's errors as JSON pointers into `body`, without echoing what was sent; at most 100."""
    places = [tuple(error["loc"]) for error in found]
    fields: dict[FieldError, None] = {}
    for error, place in zip(found, places, strict=True):
        # pydantic also reports a tuple as too short when one of its items was refused
        if error["type"] == "too_short" and any(len(p) > len(place) and p[: len(place)] == place for p in places):
            continue
        context = error.get("ctx", {})
        pointer = _pointer(place, body, missing=error["type"] == "missing")
        if context.get("discriminator", "").startswith("'"):  # a field's name; a function's is not quoted
            pointer += f"/{context['discriminator'][1:-1]}"
        if "place" in context:
            pointer += f"/{context['place']}/name"
        if "field" in context:
            pointer += f"/{context['field']}"
        # A dict keeps the order and drops repeats: branches of a union report one field alike.
        fields[FieldError(pointer, said(error))] = None
    return tuple(fields)[:_MAX_ERRORS]


def said(error: Mapping[str, Any]) -> str:
    """Return the text of one of pydantic's errors in the words of this service; our own texts stay as they are."""
    kind = error["type"]
    if kind == "extra_forbidden" and error["loc"][-1] in _RENAMED:
        return f"there is no such field here; give {_RENAMED[error['loc'][-1]]} in its place"
    if kind == "union_tag_invalid" and error["ctx"]["tag"] in RENAMED_KINDS:
        return f"there is no such kind; give {RENAMED_KINDS[error['ctx']['tag']]} in its place"
    if kind in _FORMED:
        return _FORMED[kind](error["ctx"])
    return _SAID.get(kind, error["msg"].removeprefix("Value error, "))


def _items(count: int) -> str:
    return f"{count} item{'s' * (count != 1)}"


def _pointer(place: Sequence[int | str], body: object, *, missing: bool) -> str:
    """Return a JSON pointer, without the names of union branches that pydantic puts into a location."""
    parts: list[str] = []
    here: Any = body
    for position, part in enumerate(place):
        inside = isinstance(here, dict) and part in here
        inside = inside or (isinstance(part, int) and isinstance(here, list | tuple) and part < len(here))
        if inside:
            here = here[part]
        elif not (missing and position == len(place) - 1):
            continue
        # RFC 6901: `~` first, or the one of `~1` would be escaped again.
        parts.append(str(part).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{part}" for part in parts)
