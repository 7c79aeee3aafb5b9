"""The reference at /docs has every operation, with a body that the API understands."""

import json
import re

import httpx
import pytest
from playwright.sync_api import Browser

from api.pages.reference import example
from tests.support.api import Service
from tests.support.browser import SCHEMES, WIDTHS, look


def test_every_operation_is_there(service: Service) -> None:
    document = httpx.get(f"{service.url}/openapi.json", timeout=60).json()
    page = httpx.get(f"{service.url}/docs", timeout=60).text
    wanted = [f"{method.upper()} {path}" for path, found in document["paths"].items() for method in found]
    assert len(wanted) > 60
    for one in wanted:
        assert f"<code>{one}</code>" in page, one


def test_the_example_of_a_job_is_a_job(service: Service) -> None:
    """The body that the page shows is refused for its dataset alone, which nobody has."""
    page = httpx.get(f"{service.url}/docs", timeout=60).text
    found = re.search(r'aria-label="A body for POST /v1/jobs">(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    body = json.loads(found[1].replace("&#34;", '"'))
    answer = service.client().post("/v1/jobs", json=body, headers={"Idempotency-Key": "example"})
    assert [one["pointer"] for one in answer.json()["errors"]] in (["/dataset"], []), answer.text


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "text"),
        ({"type": "object", "properties": {"a": {"const": 2}, "b": {}}, "required": ["a"]}, {"a": 2}),
        ({"type": "array", "items": {"enum": ["x", "y"]}}, ["x"]),
        ({"$ref": "#/components/schemas/Loop"}, {"next": {"next": {"next": None}}}),
    ],
)
def test_examples_suit_their_schema(schema: dict[str, object], value: object) -> None:
    loop = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Loop"}}, "required": ["next"]}
    assert example(schema, {"components": {"schemas": {"Loop": loop}}}) == value


@pytest.mark.service
def test_people_can_read_it(service: Service, chromium: Browser) -> None:
    with look(chromium, service.url) as seen:
        for width in WIDTHS:
            seen.page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                seen.page.emulate_media(color_scheme=scheme)
                seen.go("/docs")
                seen.refuse_violations()
        seen.refuse_reports()
