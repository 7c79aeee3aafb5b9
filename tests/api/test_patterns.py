"""A text of the wrong form is refused with the allowed form in words and an example: on every such field.

The OpenAPI document is walked; for every field with a pattern a request is made in which that field alone is of
another form, whatever else is missing, and the real service answers it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.api import Service, job

WRONG = "\x7f not of this form \x7f"
EXPRESSION = re.compile(r"\^|\$$|\\|\{\d|\[[a-z0-9]|\)\?|pattern|regular expression")
"""Signs of a regular expression, none of which plain words contain."""
JSON = "application/json"


class Document:
    """An OpenAPI document, and how to make values that break one pattern of it."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema with its reference followed."""
        while "$ref" in schema:
            here: Any = self.content
            for part in schema["$ref"].removeprefix("#/").split("/"):
                here = here[part]
            schema = here
        return schema

    def wrong(self, schema: dict[str, Any], seen: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
        """Yield where a schema has a pattern, and a value in which just that text is of another form."""
        reference = schema.get("$ref")
        if reference is not None and reference in seen:
            return
        within = seen if reference is None else (*seen, reference)
        schema = self.resolve(schema)
        if "pattern" in schema:
            yield "", WRONG
        for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
            yield from self.wrong(branch, within)
        if "items" in schema:
            yield from ((f"/0{place}", [value]) for place, value in self.wrong(schema["items"], within))
        if schema.get("patternProperties"):
            yield f"/{WRONG}", {WRONG: "a"}
        if isinstance(schema.get("additionalProperties"), dict):
            inside = self.wrong(schema["additionalProperties"], within)
            yield from ((f"/a{place}", {"a": value}) for place, value in inside)
        known = {name: one["const"] for name, one in schema.get("properties", {}).items() if "const" in one}
        for name, one in schema.get("properties", {}).items():
            yield from ((f"/{name}{place}", {**known, name: value}) for place, value in self.wrong(one, within))


@pytest.fixture(scope="module")
def document(service: Service) -> Document:
    return Document(service.client().get("/openapi.json").json())


def operations(document: Document) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document.content["paths"].items():
        for method in item.keys() & {"get", "post", "put", "patch", "delete"}:
            yield method, path, item[method]


def check(answer: httpx.Response, pointer: str) -> None:
    """Hold a refusal to what it must be: it names the field, and says in words and by an example what is allowed."""
    assert answer.status_code == 422, (pointer, answer.text)
    told = answer.json()
    said = [one["detail"] for one in told["errors"] if one["pointer"] == pointer]
    assert any("such as" in one for one in said), (pointer, told["errors"])
    assert not [one for one in said if EXPRESSION.search(one)], said
    assert not [one for one in said if "of this form" in one], "nothing that was sent"


def test_bodies(admin: httpx.Client, document: Document) -> None:
    tried = []
    for method, path, operation in operations(document):
        schema = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema")
        for place, value in document.wrong(schema or {}):
            headers = {"Idempotency-Key": "k"} if path in {"/v1/jobs", "/v1/keys"} else {}
            answer = admin.request(method, re.sub(r"\{[^}]*\}", "x_1", path), json=value, headers=headers)
            check(answer, place)
            tried.append(f"{method} {path} {place}")
    wanted = (
        "post /v1/jobs /dataset",
        "post /v1/estimates /federation/datasets/0",
        "post /v1/keys /principal",
        f"post /v1/jobs /labels/{WRONG}",
    )
    assert not set(wanted) - set(tried)
    assert len(tried) > 30, tried


def test_parameters(admin: httpx.Client, document: Document) -> None:
    tried = []
    for method, path, operation in operations(document):
        for one in operation.get("parameters", ()):
            for place, _ in document.wrong(one["schema"]):
                assert (one["in"], place) == ("query", ""), "no other parameter has a pattern so far"
                answer = admin.request(
                    method,
                    re.sub(r"\{[^}]*\}", "x_1", path),
                    params={one["name"]: WRONG},
                    content=b"-",
                    headers={"Content-Type": "application/octet-stream"},
                )
                check(answer, f"#query/{one['name']}")
                tried.append(f"{method} {path} {one['name']}")
    assert {"get /v1/jobs after", "post /v1/pretrained name"} <= set(tried)


def test_metadata_of_an_upload(admin: httpx.Client) -> None:
    check(admin.post("/v1/datasets", json={"name": "a", "columns": [], "scope": WRONG}), "/scope")


def test_every_pattern_has_an_example_that_fits(document: Document) -> None:
    found = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                found.append(node)
            for inner in node.values():
                walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk({"paths": document.content["paths"], "schemas": document.content["components"]["schemas"]})
    assert len(found) > 10
    for node in found:
        assert node["examples"], node
        assert all(re.search(node["pattern"], example) for example in node["examples"]), node


def test_an_idempotency_key_that_cannot_be_read(admin: httpx.Client, dataset: str) -> None:
    answer = admin.post("/v1/jobs", json=job(dataset), headers={"Idempotency-Key": "a b"})
    assert answer.status_code == 422
    assert "such as a UUID" in answer.json()["detail"]
    assert json.loads(answer.text)["code"] == "invalid-request"
