"""Forged forms: no deed of any page is done without the token of the very session, nor from a page of another site."""

import re
from collections.abc import Iterator

import httpx
import pytest

from api.app import PAGES
from api.pages.routes import _STREAMED, PageRoute
from core.service.context import Role
from tests.console.test_authorisation import lines_of
from tests.support.api import Service
from tests.support.windows import csrf

POSTS = [
    route
    for module in PAGES
    for route in module.router.routes
    if isinstance(route, PageRoute) and "POST" in (route.methods or ())
]
SIGNED = {route.path: route for route in POSTS if route.cost.roles}
OPEN = {route.path for route in POSTS if not route.cost.roles}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
OTHER = "https://evil.example"


@pytest.fixture(scope="module")
def windows(service: Service) -> Iterator[dict[Role, httpx.Client]]:
    found: dict[Role, httpx.Client] = {}
    roles: tuple[Role, ...] = ("owner", "analyst", "auditor", "admin")
    for role in roles:
        found[role] = service.window(service.someone(role, f"forged {role}")[1]["key"])
    yield found
    for window in found.values():
        window.close()


def test_forms_without_a_session_are_these_alone() -> None:
    assert len(SIGNED) > 30
    assert {"/sign-in", "/join"} <= OPEN
    assert all("{" not in path for path in OPEN), "they name nothing that is anybody's"


@pytest.mark.parametrize("path", SIGNED)
def test_a_form_needs_the_token_of_its_session(service: Service, windows: dict[Role, httpx.Client], path: str) -> None:
    route = SIGNED[path]
    role = min(route.cost.roles, key=str)
    window, other = windows[role], windows["auditor" if role != "auditor" else "admin"]
    where = re.sub(r"\{(\w+?)(:\w+)?\}", lambda found: "1" if found[1] == "number" else "x1", path)
    is_streamed = route.endpoint in _STREAMED
    digest = {"Content-Digest": "sha-256=:" + "A" * 43 + "=:"}
    right, theirs = csrf(window), csrf(other)
    assert right != theirs

    def post(token: str | None, **headers: str) -> httpx.Response:
        if is_streamed:
            given = {"Content-Type": "text/csv", **digest, **({} if token is None else {"X-CSRF-Token": token})}
            return window.post(where, content=b"x", headers=given | headers)
        fields = {} if token is None else {"csrf": token}
        return window.post(where, data={"x": "1", **fields}, headers=FORM | headers)

    forged = [post(None), post(""), post("0" * len(right)), post(theirs), post(right + "0")]
    if not is_streamed:
        beside = window.post(f"{where}?csrf={right}", data={"x": "1"})
        assert beside.status_code in {403, 422}, "an address is kept in logs and histories"
        as_json = window.post(where, json={"csrf": right})
        assert as_json.status_code in {403, 422}, "a page takes no other kind of body"
        plain = window.post(where, content=f"csrf={right}", headers={"Content-Type": "text/plain"})
        assert plain.status_code == 422, "a form of another site may send this kind unasked"
    forged += [
        post(right, Origin=OTHER),
        post(right, Origin="null"),
        post(right, **{"Sec-Fetch-Site": "cross-site"}),
        post(right, **{"Sec-Fetch-Site": "same-site"}),
    ]
    assert [answer.status_code for answer in forged] == [403] * len(forged), [one.text[:200] for one in forged]
    alone = httpx.post(f"{service.url}{where}", data={"csrf": right}, headers=FORM, timeout=60)
    assert alone.status_code in {303, 401}, "the token alone is no session"


@pytest.mark.parametrize("path", sorted(OPEN))
def test_no_page_of_another_site_sends_a_form_without_a_session(service: Service, path: str) -> None:
    for headers in ({"Origin": OTHER}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        with httpx.Client(base_url=service.url, timeout=60) as window:
            answer = window.post(path, data={"key": service.key}, headers=headers)
            assert answer.status_code == 403, (headers, answer.text[:200])
            assert not window.cookies


def test_a_token_ends_with_its_session(service: Service) -> None:
    """One that was read from a page that stayed open does nothing in the next session."""
    _, made = service.someone("admin", "twice")
    window = service.window(made["key"])
    old = csrf(window)
    assert window.post("/sign-out", data={"csrf": old}).status_code == 303
    again = service.window(made["key"])
    refused = again.post("/people", data={"csrf": old, "name": "x", "role": "admin"})
    assert refused.status_code == 403
    done = [action for action, _, status, _ in lines_of(service, made["principal"]) if status < 300]
    assert not any("/v1/keys" in action for action in done)
