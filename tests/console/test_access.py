"""The page of access: an owner lets people in by name, of those whom the owner knows, or by id."""

import re

import httpx
import pytest
from playwright.sync_api import Browser

from tests.support.api import Service, upload
from tests.support.browser import look
from tests.support.windows import csrf


@pytest.fixture(scope="module")
def owner(service: Service) -> tuple[httpx.Client, dict[str, str]]:
    return service.someone("owner", "lets in")


@pytest.fixture(scope="module")
def window(service: Service, owner: tuple[httpx.Client, dict[str, str]]) -> httpx.Client:
    return service.window(owner[1]["key"])


@pytest.fixture(scope="module")
def first(service: Service, owner: tuple[httpx.Client, dict[str, str]]) -> str:
    """Return a dataset to which two people called Kim and one called Ann Bauer have access."""
    made = str(upload(owner[0], shift=61_000, name="first")["id"])
    for name in ("Kim", "Kim", "Ann Bauer"):
        _, key = service.someone("analyst", name)
        path = f"/v1/datasets/{made}/access/{key['principal']}"
        assert owner[0].put(path, json={"budget_cap": "all"}).status_code == 201
    return made


@pytest.fixture(scope="module")
def second(owner: tuple[httpx.Client, dict[str, str]]) -> str:
    return str(upload(owner[0], shift=62_000, name="second")["id"])


def _let_in(window: httpx.Client, dataset: str, person: str) -> httpx.Response:
    data = {"csrf": csrf(window), "principal": person, "kind": "all", "amount": ""}
    return window.post(f"/datasets/{dataset}/access", data=data)


def _error(text: str) -> str:
    found = re.search(r'id="principal-e">.*?</svg>(.*?)</span>', text, re.DOTALL)
    assert found is not None, text
    return found[1]


def test_somebody_known_is_let_in_by_name(
    owner: tuple[httpx.Client, dict[str, str]], window: httpx.Client, first: str, second: str
) -> None:
    assert first
    assert '<option value="Ann Bauer">' in window.get(f"/datasets/{second}/access").text
    assert _let_in(window, second, " Ann Bauer ").status_code == 303
    found = owner[0].get(f"/v1/datasets/{second}/access").json()["data"]
    assert [one["name"] for one in found] == ["Ann Bauer"]


def test_of_two_of_one_name_the_id_is_asked(window: httpx.Client, first: str, second: str) -> None:
    text = window.get(f"/datasets/{second}/access").text
    assert '<option value="Kim">' not in text
    assert len(re.findall(r'<option value="pr_\w+">Kim</option>', text)) == 2
    refused = _let_in(window, second, "Kim")
    assert refused.status_code == 422
    assert "Several people" in _error(refused.text)
    assert first


def test_a_hidden_name_and_an_unknown_one_have_one_answer(service: Service, window: httpx.Client, second: str) -> None:
    """Owners list no people, so the answer must not say which names there are."""
    service.someone("analyst", "Hidden Person")
    answers = [_let_in(window, second, name) for name in ("Hidden Person", "Nobody At All")]
    assert [one.status_code for one in answers] == [422, 422]
    assert len({_error(one.text) for one in answers}) == 1
    assert "Hidden Person</option>" not in answers[1].text


def test_who_came_by_an_own_invitation_is_known_by_its_note(
    service: Service, owner: tuple[httpx.Client, dict[str, str]], window: httpx.Client, second: str
) -> None:
    """The owner chose the note and reads the id; the name is not shown before the person is let in."""
    shown = window.post("/invitations", data={"csrf": csrf(window), "note": "Tom of Lab 3", "role": "analyst"}).text
    token = re.search(r"/join#invitation=([\w-]+)", shown)
    assert token is not None
    with httpx.Client(base_url=service.url) as joins:
        assert joins.post("/join", data={"invitation": token[1], "name": "T. Rivera"}).status_code == 200
    text = window.get(f"/datasets/{second}/access").text
    assert '<option value="Tom of Lab 3">' in text
    assert "T. Rivera" not in text
    assert _let_in(window, second, "Tom of Lab 3").status_code == 303
    found = owner[0].get(f"/v1/datasets/{second}/access").json()["data"]
    assert "T. Rivera" in [one["name"] for one in found]


def test_an_analyst_sees_no_list_of_people(service: Service, first: str, second: str) -> None:
    assert first
    _, key = service.someone("auditor", "watches access")
    assert "<datalist" not in service.window(key["key"]).get(f"/datasets/{second}/access").text


def test_the_list_has_no_fault_in_a_browser(
    service: Service, chromium: Browser, owner: tuple[httpx.Client, dict[str, str]], second: str
) -> None:
    with look(chromium, service.url) as seen:
        seen.sign_in(owner[1]["key"])
        seen.go(f"/datasets/{second}/access")
        seen.page.get_by_label("Who", exact=True).fill("Nobody At All")
        seen.page.get_by_label("All of it", exact=True).check()
        seen.page.get_by_role("button", name="Let them in with this cap").click()
        seen.page.locator("#principal[aria-invalid=true]").wait_for()
        seen.wrong.clear()  # the browser writes of the 422 by itself
        seen.refuse_violations()
        seen.refuse_reports()
