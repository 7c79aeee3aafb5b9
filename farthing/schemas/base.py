"""The base of all answers: `View`, whose fields' docstrings reach the OpenAPI document."""

import ast
import inspect
import sys
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class View(BaseModel):
    """A public answer. A field that a newer service adds is ignored, so an older SDK still reads the answer."""

    # Validators are made, and docstrings are read, when one is used: a notebook that reads a model needs three of 150.
    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe each property by its field's docstring, where it has no description."""
        found = handler(core_schema)
        properties = handler.resolve_ref_schema(found).get("properties", {})
        for above in (one for one in reversed(cls.__mro__) if issubclass(one, View)):
            for name, text in _docstrings(above.__module__).get(above.__name__, {}).items():
                field = cls.model_fields.get(name)
                if field is not None and field.description is None and name in properties:
                    properties[name]["description"] = text
        return found


class Shown(View):
    """An answer that people look at: tables in notebooks and on terminals of rich, one line elsewhere."""

    def __rich__(self) -> Any:  # noqa: ANN401 - rich is loaded by those who print with it
        from farthing.showing import tables_of  # noqa: PLC0415 - the service has no use for it

        return tables_of(self)

    def _repr_html_(self) -> str:
        from farthing.showing import html_of  # noqa: PLC0415 - as above

        return html_of(self)


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings below the fields of each class of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # a class that was typed at a prompt
        return {}
    return {one.name: dict(_documented(one)) for one in tree.body if isinstance(one, ast.ClassDef)}


def _documented(of: ast.ClassDef) -> list[tuple[str, str]]:
    """Return the fields of a class that a text follows, with the texts."""
    found = []
    for field, below in zip(of.body, of.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found.append((name, inspect.cleandoc(text)))
    return found
