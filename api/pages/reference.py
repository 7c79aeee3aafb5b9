"""The reference of the API at /docs: every operation with an example, rendered from the OpenAPI document."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from api.cost import PUBLIC
from api.pages.rendering import render
from api.pages.routes import PageRoute, page

router = APIRouter(route_class=PageRoute)
DEEPEST: Final = 6
TITLES: Final = {"meta": "Service", "data": "Datasets", "admin": "People and audit"}


@dataclass(frozen=True)
class Field:
    """A parameter of an operation."""

    name: str
    place: str
    required: bool
    words: str


@dataclass(frozen=True)
class Operation:
    """An operation as the page shows it."""

    id: str
    method: str
    path: str
    summary: str
    words: str
    fields: tuple[Field, ...]
    body: str
    answers: tuple[tuple[str, str], ...]
    curl: str


@page(router, "/docs", cost=PUBLIC)
def show_reference(request: Request) -> Response:
    """Show every operation of the API."""
    document: dict[str, Any] = request.app.openapi()
    return render(request, "reference.html", {"groups": _groups(document, str(request.base_url))}, at="docs")


def _groups(document: Mapping[str, Any], address: str) -> dict[str, list[Operation]]:
    """Return the operations by the title of their group, in the document's order."""
    groups: dict[str, list[Operation]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["meta"])[0]
            title = TITLES.get(tag, tag.capitalize())
            groups.setdefault(title, []).append(_operation(document, path, method, operation, address))
    return groups


def _operation(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any], address: str
) -> Operation:
    summary, _, rest = operation.get("description", operation.get("summary", "")).partition("\n\n")
    content = operation.get("requestBody", {}).get("content", {})
    body = ""
    if "application/json" in content:
        media = content["application/json"]
        given = next((one["value"] for one in media.get("examples", {}).values()), None)
        body = json.dumps(given or example(media.get("schema", {}), document), indent=1, ensure_ascii=False)
    fields = [
        Field(one["name"], one["in"], one.get("required", False), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    answers = [(status, answer["description"]) for status, answer in sorted(operation["responses"].items())]
    return Operation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=summary.replace("\n", " "),
        words=rest,
        fields=tuple(fields),
        body=body,
        answers=tuple(answers),
        curl=_curl(method.upper(), path, address, bool(body), bool(operation.get("security"))),
    )


def _curl(method: str, path: str, address: str, has_body: bool, needs_key: bool) -> str:  # noqa: FBT001 - private
    key = ' \\\n  --header "Authorization: Bearer $FARTHING_KEY"' if needs_key else ""
    body = ' \\\n  --header "Content-Type: application/json" --data @body.json' if has_body else ""
    verb = "" if method == "GET" else f"--request {method} "
    return f"curl {verb}{address.rstrip('/')}{path}{key}{body}"


def example(schema: Mapping[str, Any], document: Mapping[str, Any], depth: int = 0) -> Any:  # noqa: ANN401 - any JSON
    """Return a value that suits a JSON Schema, as short as it may be: required fields alone, the first of several.

    Args:
        schema: of the document.
        document: where `$ref` leads.
        depth: the depth of the value; below `DEEPEST` it is null.
    """
    if depth > DEEPEST:
        return None
    given = [*schema.get("examples", ()), *(schema[name] for name in ("const", "default") if name in schema)]
    given += schema.get("enum", [])
    if given:
        return given[0]
    if "$ref" in schema:
        return example(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], document, depth + 1)
    choices = next((schema[name] for name in ("oneOf", "anyOf", "allOf") if name in schema), None)
    if choices:
        chosen = next((one for one in choices if one.get("type") != "null"), choices[0])
        kept = {name: schema[name] for name in ("properties", "required") if name in schema}
        return example({**kept, **chosen}, document, depth)
    return _plain(schema, document, depth)


def _plain(schema: Mapping[str, Any], document: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401 - any JSON
    """Return a value for a schema of one type."""
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kind == "object":
        properties = schema.get("properties", {})
        shown = schema.get("required") or []
        return {name: example(properties[name], document, depth + 1) for name in shown if name in properties}
    if kind == "array":
        return [example(schema["items"], document, depth + 1)] if "items" in schema else []
    plain: dict[str, Any] = {"string": "text", "integer": 1, "number": 0.5, "boolean": True}
    return plain.get(str(kind))
