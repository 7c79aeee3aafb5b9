"""Sign-ins: the pages that a session opens, the ends of a session, and attacks on it; without a browser."""

import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from api.app import PAGES
from api.pages.routes import PageRoute, own_path
from core.access import sessions
from core.access.bootstrap import console_link
from core.db.service_tables import Audit, ConsoleSession, SignInLink
from core.operations import backup as backups
from tests.support.api import Service
from tests.support.windows import csrf

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def window(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60) as found:
        yield found


def sign_in(window: httpx.Client, key: str) -> httpx.Response:
    return window.post("/sign-in", data={"key": key})


def is_in(window: httpx.Client) -> bool:
    answer = window.get("/")
    assert answer.status_code == 200 or answer.headers["location"].startswith("/sign-in"), answer.text
    return answer.status_code == 200


def change(service: Service, statement: Any) -> None:
    database = service.database()
    try:
        database.transaction(lambda session: session.execute(statement))
    finally:
        database.dispose()


def test_a_key_begins_a_session_that_opens_pages_alone(service: Service, window: httpx.Client) -> None:
    _, made = service.someone("owner", "Bank data office")
    answer = sign_in(window, made["key"])
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert "Bank data office" in window.get("/").text
    token = window.cookies["farthing_session"]
    assert window.get("/v1/me").status_code == 401
    assert window.get("/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    with httpx.Client(base_url=service.url, cookies={"farthing_session": made["key"]}) as other:
        assert not is_in(other)
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {made['key']}"}) as other:
        assert not is_in(other)


def test_the_cookie_is_secure_beyond_loopback(service: Service, window: httpx.Client) -> None:
    _, made = service.someone("analyst")
    answer = window.post("/sign-in", data={"key": made["key"]}, headers={"host": "data.example"})
    assert "Secure" in answer.headers["set-cookie"]


def test_nothing_of_a_token_is_stored(service: Service, window: httpx.Client) -> None:
    _, made = service.someone("analyst")
    sign_in(window, made["key"])
    token = window.cookies["farthing_session"]
    database = service.database()
    link = database.transaction(console_link)
    database.dispose()
    assert link is not None
    files = b"".join(path.read_bytes() for path in service.home.glob("farthing.sqlite*"))
    assert token.encode() not in files
    assert link.encode() not in files


@pytest.mark.parametrize("how", ["revoke", "rotate", "disable", "idle", "longest", "out", "everywhere"])
def test_a_session_ends(service: Service, window: httpx.Client, how: str) -> None:
    client, made = service.someone("analyst")
    sign_in(window, made["key"])
    assert is_in(window)
    match how:
        case "revoke":
            assert service.client().post(f"/v1/keys/{made['id']}/revoke").status_code == 200
        case "rotate":
            assert client.post(f"/v1/keys/{made['id']}/rotate").status_code == 200
        case "disable":
            path = f"/v1/principals/{made['principal']}/disable"
            assert service.client().post(path, json={"reason": "left"}).status_code == 200
        case "idle":
            old = ConsoleSession.seen_at - sessions.IDLE_SECONDS
            change(service, update(ConsoleSession).where(ConsoleSession.key_id == made["id"]).values(seen_at=old))
        case "longest":
            old = ConsoleSession.begun_at - sessions.LONGEST_SECONDS
            change(service, update(ConsoleSession).where(ConsoleSession.key_id == made["id"]).values(begun_at=old))
        case "out":
            kept = dict(window.cookies)
            assert window.post("/sign-out", data={"csrf": csrf(window)}).status_code == 303
            window.cookies.update(kept)
        case "everywhere":
            with httpx.Client(base_url=service.url) as other:
                sign_in(other, made["key"])
                assert other.post("/sign-out/everywhere", data={"csrf": csrf(other)}).status_code == 303
    assert not is_in(window)


def test_use_keeps_a_session(service: Service, window: httpx.Client) -> None:
    _, made = service.someone("analyst")
    sign_in(window, made["key"])
    old = ConsoleSession.seen_at - sessions.IDLE_SECONDS + 60
    change(service, update(ConsoleSession).where(ConsoleSession.key_id == made["id"]).values(seen_at=old))
    assert is_in(window)
    change(service, update(ConsoleSession).where(ConsoleSession.key_id == made["id"]).values(seen_at=old + 0))
    database = service.database()
    with database.read() as session:
        found = session.execute(select(ConsoleSession).where(ConsoleSession.key_id == made["id"])).scalar_one()
        assert found.begun_at <= found.seen_at + sessions.IDLE_SECONDS
    database.dispose()


def test_a_new_sign_in_ends_the_one_before(service: Service, window: httpx.Client) -> None:
    """A cookie that somebody else has planted is of no use after the sign-in."""
    _, made = service.someone("analyst")
    sign_in(window, made["key"])
    old = window.cookies["farthing_session"]
    sign_in(window, made["key"])
    assert window.cookies["farthing_session"] != old
    with httpx.Client(base_url=service.url, cookies={"farthing_session": old}) as other:
        assert not is_in(other)


def test_no_form_passes_without_its_token(service: Service, window: httpx.Client) -> None:
    _, made = service.someone("analyst")
    sign_in(window, made["key"])
    for data in ({}, {"csrf": ""}, {"csrf": "0" * 48}):
        assert window.post("/sign-out", data=data).status_code == 403
    with httpx.Client(base_url=service.url) as other:
        sign_in(other, made["key"])
        assert window.post("/sign-out", data={"csrf": csrf(other)}).status_code == 403
    assert is_in(window)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_no_form_passes_from_another_site(service: Service, window: httpx.Client, headers: dict[str, str]) -> None:
    _, made = service.someone("analyst")
    assert window.post("/sign-in", data={"key": made["key"]}, headers=headers).status_code == 403
    assert "farthing_session" not in window.cookies


@pytest.mark.parametrize(
    "body",
    [b"key=%ff", b"key=%00", b"a=1&" * 3000, b'{"key": "x"}', b"key=" + b"x" * 300_000, b"\xff\xfe", b"key"],
)
def test_odd_forms_are_refused(window: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"} if body.startswith(b"{") else FORM
    assert window.post("/sign-in", content=body, headers=headers).status_code in {401, 413, 422}


@pytest.mark.parametrize(
    "text", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:1", "x", "", "/\t/evil.example"]
)
def test_no_address_leads_elsewhere(window: httpx.Client, text: str) -> None:
    safe = own_path(text)
    assert safe in {"/", "/%09/evil.example"}
    page = window.get("/sign-in", params={"next": text}).text
    assert set(re.findall(r'name="next" value="([^"]*)"', page)) == {safe}


def test_own_addresses_stay() -> None:
    assert own_path("/datasets/ds_1?tab=a&b=%20c") == "/datasets/ds_1?tab=a&b=%20c"


def test_a_link_begins_one_session(service: Service) -> None:
    """Of ten requests with one link at once, one gets in."""
    database = service.database()
    link = database.transaction(console_link)
    statuses = []

    def use() -> None:
        with httpx.Client(base_url=service.url, timeout=60) as window:
            statuses.append(window.post("/sign-in/link", data={"link": link}).status_code)

    threads = [threading.Thread(target=use) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [303] + 9 * [401]
    late = database.transaction(console_link)
    database.transaction(lambda session: session.execute(update(SignInLink).values(expires_at=1.0)))
    database.dispose()
    with httpx.Client(base_url=service.url) as window:
        assert window.post("/sign-in/link", data={"link": late}).status_code == 401


def test_old_links_make_room(service: Service) -> None:
    database = service.database()
    for _ in range(sessions.MOST_LINKS + 5):
        database.transaction(console_link)
    with database.read() as session:
        assert len(session.execute(select(SignInLink)).scalars().all()) == sessions.MOST_LINKS
    database.dispose()


def test_sign_ins_leave_lines_in_the_audit_log(service: Service, window: httpx.Client) -> None:
    _, made = service.someone("analyst")
    sign_in(window, made["key"])
    sign_in(window, "frt_nobody")
    window.post("/sign-out/everywhere", data={"csrf": csrf(window)})
    database = service.database()
    with database.read() as session:
        lines = session.execute(select(Audit).where(Audit.principal_id == made["principal"]).order_by(Audit.id))
        assert [line.action for line in lines.scalars()] == ["POST /sign-in", "POST /sign-out/everywhere"]
    database.dispose()


def test_attempts_count_against_the_rate(tmp_path: Path) -> None:
    from tests.support.api import running  # noqa: PLC0415 - one test alone starts a second service

    with running(tmp_path, FARTHING_REQUESTS_PER_MINUTE="20") as narrow, httpx.Client(base_url=narrow.url) as window:
        statuses = [sign_in(window, f"frt_{number}").status_code for number in range(40)]
    assert statuses.count(401) <= 20
    assert 429 in statuses


def test_a_restored_backup_begins_no_session_again(service: Service, tmp_path: Path) -> None:
    database = service.database()
    _, made = service.someone("analyst")
    database.transaction(sessions.begin, made["id"])
    copy = tmp_path / "copy.sqlite"
    database.backup(copy)
    database.dispose()
    backups._freeze(copy)
    with sqlite3.connect(copy) as connection:
        for table in ("console_sessions", "sign_in_links"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()


def test_every_page_asks_for_a_session(window: httpx.Client) -> None:
    routes = [route for module in PAGES for route in module.router.routes if isinstance(route, PageRoute)]
    assert len(routes) > 5
    for route in routes:
        if route.path.startswith("/sign-in") or route.path in {"/docs", "/join"}:
            continue
        path = re.sub(r"\{\w+\}", "x", route.path)
        method = "GET" if "GET" in route.methods else "POST"
        answer = window.request(method, path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/sign-in?next="), path


def test_pages_load_nothing_from_elsewhere(service: Service, window: httpx.Client) -> None:
    _, made = service.someone("analyst")
    sign_in(window, made["key"])
    answer = window.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"style=|<style|onclick|javascript:|https?://", answer.text.replace("http://www.w3.org", ""))
    addresses = re.findall(r'(?:href|src)="(/assets/[^"#]+)', answer.text)
    assert len(addresses) > 4
    for address in addresses:
        asset = window.get(address)
        assert asset.status_code == 200
        assert "immutable" in asset.headers["cache-control"]
    assert window.get("/assets/0000/tokens.css").headers["cache-control"] == "no-store"
    assert window.get("/assets/0000/../../app.py").status_code == 404


def test_an_address_without_a_page_says_so_to_people(window: httpx.Client) -> None:
    answer = window.get("/nothing", headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert "There is nothing here" in answer.text
    assert window.get("/nothing").headers["content-type"] == "application/problem+json"
    assert window.get("/v1/nothing", headers={"accept": "text/html"}).json()["code"] == "not-found"
