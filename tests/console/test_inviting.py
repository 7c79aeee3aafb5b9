"""Invitations on pages: an owner makes a link, a colleague becomes a principal by it, once."""

import re

import httpx
import pytest

from tests.support.api import Service, upload
from tests.support.windows import csrf


@pytest.fixture
def owner(service: Service) -> tuple[httpx.Client, httpx.Client, str]:
    client, made = service.someone("owner", "inviting office")
    return client, service.window(made["key"]), str(upload(client, shift=50_000, name="to ask")["id"])


def _token(text: str) -> str:
    found = re.search(r"/join#invitation=([\w-]+)", text)
    assert found is not None, text
    return found[1]


def test_a_colleague_joins_by_a_link_once(service: Service, owner: tuple[httpx.Client, httpx.Client, str]) -> None:
    client, window, dataset = owner
    fields = {"note": "Ann", "role": "analyst", "dataset": dataset, "kind": "budget_share", "amount": "25"}
    shown = window.post("/invitations", data={"csrf": csrf(window), **fields})
    assert shown.status_code == 200, shown.text
    token = _token(shown.text)
    assert token not in window.get("/invitations").text, "shown once"
    with httpx.Client(base_url=service.url) as hers:
        assert "You are invited" in hers.get("/join").text
        joined = hers.post("/join", data={"invitation": token, "name": "Ann <b>Bauer</b>"})
        assert joined.status_code == 200, joined.text
        assert "Ann &lt;b&gt;Bauer" in joined.text
        key = re.search(r"frt_[\w-]+", joined.text)
        assert key is not None
        assert hers.get(f"/datasets/{dataset}").status_code == 200, "signed in, and let in"
    found = client.get(f"/v1/datasets/{dataset}/access").json()["data"]
    assert [(one["name"], one["budget_cap"]) for one in found] == [("Ann <b>Bauer</b>", {"budget_share": "0.25"})]
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {key[0]}"}) as api:
        assert api.get("/v1/me").json()["role"] == "analyst"
    with httpx.Client(base_url=service.url) as other:
        again = other.post("/join", data={"invitation": token, "name": "Mallory"})
        assert again.status_code == 404
        assert "Mallory" in again.text, "what was typed is kept"
    assert "accepted" in window.get("/invitations").text


def test_a_withdrawn_link_opens_nothing(service: Service, owner: tuple[httpx.Client, httpx.Client, str]) -> None:
    _, window, _ = owner
    shown = window.post("/invitations", data={"csrf": csrf(window), "note": "Tom", "role": "analyst"}).text
    one = re.search(r"/invitations/(inv_\w+)/withdraw", shown)
    assert one is not None
    assert window.post(f"/invitations/{one[1]}/withdraw", data={"csrf": csrf(window)}).status_code == 303
    with httpx.Client(base_url=service.url) as other:
        assert other.post("/join", data={"invitation": _token(shown), "name": "Tom"}).status_code == 404


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"note": "", "role": "analyst"}, 422),
        ({"note": "x", "role": "king"}, 422),
        ({"note": "x", "role": "admin"}, 403),
        ({"note": "x", "role": "analyst", "dataset": "ds_none", "kind": "all"}, 404),
        ({"note": "x", "role": "analyst", "dataset": "own", "kind": "epsilon", "amount": "much"}, 422),
    ],
)
def test_what_cannot_be_made_says_why(
    owner: tuple[httpx.Client, httpx.Client, str], fields: dict[str, str], status: int
) -> None:
    _, window, dataset = owner
    told = {name: dataset if value == "own" else value for name, value in fields.items()}
    answer = window.post("/invitations", data={"csrf": csrf(window), **told})
    assert answer.status_code == status, answer.text
    assert 'class="error"' in answer.text


@pytest.mark.parametrize("role", ["analyst", "auditor"])
def test_others_invite_nobody(service: Service, role: str) -> None:
    _, made = service.someone(role, f"inviting {role}")
    window = service.window(made["key"])
    assert window.get("/invitations").status_code == 403
    fields = {"csrf": csrf(window), "note": "x", "role": "analyst"}
    assert window.post("/invitations", data=fields).status_code == 403
