"""Views from a few fields: the others are null where that is allowed, else empty or 0."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

V = TypeVar("V", bound=BaseModel)
_EMPTY: Final = {
    "bool_type": False,
    "dict_type": {},
    "float_type": 0.0,
    "int_type": 0,
    "list_type": [],
    "model_type": {},
    "string_type": "0",
}


def filled(view: type[V], given: Mapping[str, Any]) -> V:
    """Return a view with these fields, at any depth.

    Raises:
        ValidationError: a given field is wrong.
    """
    fields = deepcopy(dict(given))
    added = set[tuple[int | str, ...]]()
    while True:
        try:
            return view.model_validate(fields)
        except ValidationError as refused:
            for fault in refused.errors():
                if fault["type"] != "missing" and fault["loc"] not in added:
                    raise
                added.add(fault["loc"])
                *path, name = fault["loc"]
                at: Any = fields
                for step in path:
                    at = at[step]
                at[name] = deepcopy(_EMPTY.get(fault["type"]))
