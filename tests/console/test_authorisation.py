"""Pages show no more than the API does to the same key, and leave the lines in the audit log that the API leaves."""

from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import select

from api.app import PAGES
from api.body import operation_of
from api.pages.routes import _DEEDS, PageRoute
from core.db.service_tables import Audit
from farthing.schemas.figures import per_cent
from tests.support.api import Service, upload
from tests.support.windows import csrf

ROUTES = [route for module in PAGES for route in module.router.routes if isinstance(route, PageRoute)]


@pytest.fixture(scope="module")
def people(service: Service) -> Iterator[dict[str, tuple[httpx.Client, httpx.Client, str]]]:
    """Return, by name, a client of the API, a window, and the principal's id; an owner has let an analyst in."""
    found = {}
    for name, role in (
        ("owner", "owner"),
        ("other", "owner"),
        ("insider", "analyst"),
        ("outsider", "analyst"),
        ("auditor", "auditor"),
        ("admin", "admin"),
    ):
        client, made = service.someone(role, name)
        found[name] = (client, service.window(made["key"]), made["principal"])
    yield found
    for _, window, _ in found.values():
        window.close()


@pytest.fixture(scope="module")
def dataset(people: dict[str, tuple[httpx.Client, httpx.Client, str]]) -> str:
    client = people["owner"][0]
    made = str(upload(client, shift=900, name="seen by few")["id"])
    path = f"/v1/datasets/{made}/access/{people['insider'][2]}"
    assert client.put(path, json={"budget_cap": "all"}).status_code == 201
    return made


@pytest.mark.parametrize("who", ["owner", "other", "insider", "outsider", "auditor", "admin"])
@pytest.mark.parametrize(
    ("page", "operation"),
    [
        ("/datasets/{id}", "/v1/datasets/{id}"),
        ("/datasets/{id}/budget", "/v1/datasets/{id}/budget"),
        ("/datasets/{id}/access", "/v1/datasets/{id}/access"),
        ("/datasets/{id}/validation", "/v1/datasets/{id}/validation"),
        ("/datasets/{id}/draft", "/v1/datasets/{id}/draft"),
        ("/datasets/{id}/mend", "/v1/datasets/{id}/draft"),
        ("/datasets/{id}/mock", "/v1/datasets/{id}/mock"),
        ("/datasets/{id}/ledger", "/v1/datasets/{id}"),
        ("/jobs?dataset={id}", "/v1/datasets/{id}"),
        ("/jobs/new?dataset={id}", "/v1/datasets/{id}"),
        ("/people", "/v1/principals"),
        ("/service", "/v1/service"),
        ("/datasets/{id}/activity", "/v1/datasets/{id}/activity"),
        ("/datasets/{id}/report", "/v1/datasets/{id}/report"),
        ("/datasets/{id}/report.pdf", "/v1/datasets/{id}/report"),
        ("/certificates", "/v1/me"),
        ("/audit", "/v1/audit"),
        ("/you/notices", "/v1/webhooks"),
        ("/you/email", "/v1/me/email"),
    ],
)
def test_a_page_opens_where_its_operation_does(
    people: dict[str, tuple[httpx.Client, httpx.Client, str]], dataset: str, who: str, page: str, operation: str
) -> None:
    client, window, _ = people[who]
    expected = client.get(operation.format(id=dataset)).status_code
    if page == "/people" and who == "auditor":
        expected = 403  # it has a form that only an admin may send
    if page == "/datasets/{id}/validation" and who == "admin":
        assert expected == 403, "an admin owns no data"
    answer = window.get(page.format(id=dataset))
    assert answer.status_code == expected, answer.text[:500]
    if expected == 404:
        assert "seen by few" not in answer.text


def test_an_analyst_reads_no_name_of_others(
    people: dict[str, tuple[httpx.Client, httpx.Client, str]], dataset: str
) -> None:
    """The API shows the ids in a ledger to who may ask the dataset, and neither labels of others' jobs nor people."""
    client, window, _ = people["owner"]
    job = {"dataset": dataset, "model": {"kind": "logistic", "target": "y", "features": ["age"]}}
    labels = {"labels": {"name": "a quiet question"}, "privacy": {"mu": "0.1"}}
    answer = client.post("/v1/jobs", json=job | labels, headers={"Idempotency-Key": "quiet"})
    assert answer.status_code == 202, answer.text
    made = answer.json()["id"]
    page = f"/datasets/{dataset}/ledger"
    assert "a quiet question" in window.get(page).text
    seen = people["insider"][1].get(page).text
    assert made in seen
    for hidden in ("a quiet question", f'href="/jobs/{made}"', ">owner<"):
        assert hidden not in seen, hidden
    assert people["insider"][1].get(f"/jobs/{made}").status_code == 404
    for path in (f"/datasets/{dataset}", f"/datasets/{dataset}/budget", "/jobs"):
        text = people["insider"][1].get(path).text
        assert "a quiet question" not in text
        assert "<span>of <bdi" not in text, "the name of the owner is nothing that the API shows to an analyst"


DEEDS = {
    "/datasets/{id}/erase": ({"name": "seen by few"}, ("other", "insider", "outsider", "auditor")),
    "/datasets/{id}/remove-record": ({"row": "3"}, ("other", "insider", "outsider", "auditor", "admin")),
    "/datasets/{id}/freeze": ({"reason": "looking"}, ("other", "insider", "outsider")),
    "/datasets/{id}/access": (
        {"principal": "pr_x", "kind": "all", "amount": ""},
        ("other", "insider", "outsider", "auditor", "admin"),
    ),
    "/datasets/{id}/access/{insider}/take": ({}, ("other", "insider", "outsider", "auditor")),
    "/people": ({"name": "x", "role": "admin"}, ("other", "insider", "outsider", "auditor")),
}
"""Deeds with their fields, and everybody who may not do them; an admin erases and takes away by the API as well."""


@pytest.mark.parametrize(("path", "who"), [(path, who) for path, (_, people) in DEEDS.items() for who in people])
def test_nobody_else_does_what_is_its_owners(
    people: dict[str, tuple[httpx.Client, httpx.Client, str]], dataset: str, who: str, path: str
) -> None:
    data, _ = DEEDS[path]
    _, window, _ = people[who]
    answer = window.post(path.format(id=dataset, insider=people["insider"][2]), data={"csrf": csrf(window), **data})
    assert answer.status_code in {403, 404, 422}, answer.text[:500]
    owner = people["owner"][0]
    view = owner.get(f"/v1/datasets/{dataset}").json()
    assert view["state"] == "ready"
    assert owner.get(f"/v1/datasets/{dataset}/budget").json()["frozen"] is None
    assert [one["name"] for one in owner.get(f"/v1/datasets/{dataset}/access").json()["data"]] == ["insider"]


def test_a_page_has_the_roles_of_its_operation() -> None:
    """The declared roles of a page follow from its operation, unless it asks for fewer roles."""
    standing = [route for route in ROUTES if route.endpoint in _DEEDS]
    assert len(standing) > 25
    for route in standing:
        deed = _DEEDS[route.endpoint]
        operation = next(
            operation_of(endpoint)
            for endpoint in list(_operations())
            if (operation_of(endpoint).path, min(operation_of(endpoint).methods or {"GET"}))
            == (deed.route, deed.method)
        )
        is_public = not operation.cost.roles
        assert is_public or route.cost.roles <= operation.cost.roles, route.path


def _operations() -> Iterator[object]:
    from api.body import _OPERATIONS  # noqa: PLC0415 - the registry behind `operation_of`

    yield from _OPERATIONS


def lines_of(service: Service, principal: str) -> list[tuple[str, str | None, int, str | None]]:
    database = service.database()
    with database.read() as session:
        rows = session.execute(select(Audit).where(Audit.principal_id == principal).order_by(Audit.id)).scalars()
        found = [(row.action, row.target, row.status, row.code) for row in rows]
    database.dispose()
    return found


def test_deeds_leave_the_lines_of_the_api(service: Service) -> None:
    """The same deeds by a key and on pages, by two owners: the lines differ in nothing but names."""
    both = []
    for number in range(2):
        client, made = service.someone("owner", f"deeds {number}")
        _, analyst = service.someone("analyst", f"asks {number}")
        data = str(upload(client, shift=950 + number, name=f"deeds {number}")["id"])
        scope = client.get(f"/v1/datasets/{data}").json()["scope"]
        before = len(lines_of(service, made["principal"]))
        person = analyst["principal"]
        if number == 0:
            client.put(f"/v1/datasets/{data}/access/{person}", json={"budget_cap": {"budget_share": "0.5"}})
            client.delete(f"/v1/datasets/{data}/access/{person}")
            client.post(f"/v1/scopes/{scope}/freeze", json={"reason": "looking"})
            client.post(f"/v1/scopes/{scope}/unfreeze", json={"reason": "looked"})
            client.get(f"/v1/datasets/{data}/budget")
            client.post(f"/v1/datasets/{data}/removals", json={"row": 3})
            client.delete(f"/v1/datasets/{data}")
        else:
            window = service.window(made["key"])
            form = {"csrf": csrf(window)}
            for path, fields in (
                ("access", {"principal": person, "kind": "budget_share", "amount": "50"}),
                (f"access/{person}/take", {}),
                ("freeze", {"reason": "looking"}),
                ("unfreeze", {"reason": "looked"}),
            ):
                answer = window.post(f"/datasets/{data}/{path}", data=form | fields)
                assert answer.status_code == 303, answer.text[:500]
            window.get(f"/datasets/{data}/budget")
            assert window.post(f"/datasets/{data}/remove-record", data=form | {"row": "3"}).status_code == 200
            assert window.post(f"/datasets/{data}/erase", data=form | {"name": "deeds 1"}).status_code == 303
            window.close()
        seen = [
            line for line in lines_of(service, made["principal"])[before:] if not line[0].startswith("POST /sign-in")
        ]
        names = {data: "data", scope: "scope", person: "person"}
        plain = [
            (line[0], "/".join(names.get(part, part) for part in (line[1] or "").split("/")), line[3]) for line in seen
        ]
        both.append([line for line in plain if not line[0].startswith("GET /v1/datasets/{dataset_id}/access")])
    by_key = [line for line in both[0] if line[0] != "GET /v1/datasets/{dataset_id}"]
    assert by_key == both[1]
    assert len(by_key) == 7


def test_the_price_on_a_page_is_the_price_of_the_api(
    people: dict[str, tuple[httpx.Client, httpx.Client, str]], dataset: str
) -> None:
    client, window, _ = people["insider"]
    job = {
        "dataset": dataset,
        "model": {"kind": "logistic", "target": "y", "features": ["age"]},
        "privacy": {"mu": "0.2"},
    }
    figures = client.post("/v1/estimates", json=job).json()["cost"]
    form = {"csrf": csrf(window), "dataset": dataset, "kind": "logistic", "target": "y", "features": "age"}
    answer = window.post("/jobs/new/estimate", data=form | {"by": "mu", "amount": "0.2"})
    assert answer.status_code == 200
    assert per_cent(figures["budget_share"]) in answer.text
    assert per_cent(figures["retry_allowance"]["budget_share"]) in answer.text
    assert f"epsilon {figures['epsilon_alone']} at delta" in answer.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"amount": "many"}, "Write a number"),
        ({"amount": "-1"}, "a decimal"),
        ({"amount": ""}, "Write a number"),
        ({"deviations": "age 10"}, "Write one a line"),
        ({"deviations": "nothing = 10"}, "nothing"),
        ({"target": "nothing"}, "nothing"),
        ({"features": ""}, ""),
        ({"kind": "nothing"}, ""),
        ({"dataset": "ds_nothing"}, "no such dataset"),
        ({"method": "nothing"}, ""),
        ({"by": "nothing"}, ""),
        ({"base_rate": "often"}, "Write a number"),
    ],
)
def test_a_form_with_a_mistake_says_so_and_keeps_what_was_typed(
    people: dict[str, tuple[httpx.Client, httpx.Client, str]], dataset: str, changes: dict[str, str], said: str
) -> None:
    _, window, _ = people["insider"]
    form = {"csrf": csrf(window), "dataset": dataset, "kind": "logistic", "target": "y", "features": "age"}
    form |= {"by": "mu", "amount": "0.2", "name": "kept"} | changes
    price = window.post("/jobs/new/estimate", data=form)
    assert price.status_code == 200
    assert "alert bad" in price.text
    assert said in price.text
    answer = window.post("/jobs/new", data=form)
    assert answer.status_code in {404, 422}, answer.status_code
    if answer.status_code == 422:
        assert 'value="kept"' in answer.text
        assert "Nothing was spent" in answer.text
