"""Webhooks and the email address on pages: a secret once, hostile text as text, and nobody else's."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser
from sqlalchemy import update
from standardwebhooks import Webhook as Verifier

from core.db.notice_tables import Delivery, Webhook
from tests.support.api import Service, running
from tests.support.browser import look
from tests.support.listener import listening
from tests.support.mailbox import Mailbox, mailbox, noticing
from tests.support.windows import csrf


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mailbox() as found:
        yield found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, box: Mailbox) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("pages"), **noticing(box)) as found:
        yield found


def _made(window: httpx.Client, url: str) -> tuple[str, str]:
    """Make a webhook by the form; return its id and its secret."""
    shown = window.post("/you/notices", data={"csrf": csrf(window), "url": url, "kind": "job.ended"})
    assert shown.status_code == 200, shown.text
    secret = re.search(r"whsec_[\w+/=]+", shown.text)
    hook = re.search(r"/you/notices/(whk_\w+)", shown.text)
    assert secret is not None
    assert hook is not None
    return hook[1], secret[0]


def test_a_webhook_from_the_form_to_its_removal(service: Service) -> None:
    client, made = service.someone("owner", "notices office")
    window = service.window(made["key"])
    assert "No webhook yet" in window.get("/you/notices").text
    with listening() as there:
        hook, secret = _made(window, there.url)
        assert secret not in window.get("/you/notices").text, "shown once"
        place = f"/you/notices/{hook}"
        assert window.post(f"{place}/test", data={"csrf": csrf(window)}).status_code == 303
        (came,) = there.wait(1)
        assert Verifier(secret).verify(came.body, came.headers)["type"] == "webhook.test"
        rotated = window.post(f"{place}/rotate", data={"csrf": csrf(window)})
        assert "The new secret, shown this once" in rotated.text
        assert "A test of a webhook" in window.get(place).text
        (listed,) = client.get("/v1/webhooks").json()["data"]
        assert (listed["id"], listed["kinds"]) == (hook, ["job.ended"])
        assert window.post(f"{place}/remove", data={"csrf": csrf(window)}).status_code == 303
        assert window.get(place).status_code == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "https://10.0.0.1/", "kind": "job.ended"},
        {"url": "ftp://93.184.215.14/<script>", "kind": "job.ended"},
        {"url": "https://93.184.215.14/"},
        {"url": "https://93.184.215.14/", "kind": "<script>"},
    ],
)
def test_what_cannot_be_made_says_why(service: Service, fields: dict[str, str]) -> None:
    _, made = service.someone("analyst")
    window = service.window(made["key"])
    answer = window.post("/you/notices", data={"csrf": csrf(window), **fields})
    assert answer.status_code == 422, answer.text
    assert 'class="error"' in answer.text
    assert "<script>" not in answer.text.replace("<script src", "")


def test_another_s_webhook_has_no_page(service: Service) -> None:
    _, made = service.someone("owner")
    hook, _ = _made(service.window(made["key"]), "http://127.0.0.1:9/")
    for role in ("analyst", "auditor", "admin"):
        window = service.window(service.someone(role)[1]["key"])
        assert window.get(f"/you/notices/{hook}").status_code == 404
        for deed in ("test", "rotate", "remove"):
            answer = window.post(f"/you/notices/{hook}/{deed}", data={"csrf": csrf(window)})
            assert answer.status_code == 404


def test_no_deed_without_the_form_s_token(service: Service) -> None:
    _, made = service.someone("owner")
    window = service.window(made["key"])
    hook, _ = _made(window, "http://127.0.0.1:9/")
    for path in (
        "/you/notices",
        f"/you/notices/{hook}/remove",
        "/you/email",
        "/you/email/confirm",
        "/you/email/remove",
    ):
        assert window.post(path, data={"csrf": "x"}).status_code == 403


def test_the_email_address_from_the_form_to_its_end(service: Service, box: Mailbox) -> None:
    client, made = service.someone("owner")
    window = service.window(made["key"])
    before = len(box.mails)
    wrong = window.post("/you/email", data={"csrf": csrf(window), "address": "x\r\nBcc: <b>", "kind": "job.ended"})
    assert wrong.status_code == 422
    assert "Bcc: &lt;b&gt;" in wrong.text
    fields = {"csrf": csrf(window), "address": "olga@example.com", "kind": "budget.low"}
    assert window.post("/you/email", data=fields).status_code == 303
    assert "waits for its code" in window.get("/you/email").text
    code = str(box.wait(before + 1)[-1].message.get_content()).split()[0]
    for guess in ("12", f"{(int(code) + 1) % 10**8:08}"):
        refused = window.post("/you/email/confirm", data={"csrf": csrf(window), "code": guess})
        assert refused.status_code == 422
        assert 'class="error"' in refused.text
    assert window.post("/you/email/confirm", data={"csrf": csrf(window), "code": code}).status_code == 303
    told = client.get("/v1/me/email").json()
    assert (told["address"], told["kinds"], told["state"]) == ("olga@example.com", ["budget.low"], "confirmed")
    assert window.post("/you/email/remove", data={"csrf": csrf(window)}).status_code == 303
    assert client.get("/v1/me/email").json()["state"] == "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_in_a_browser_show_hostile_text_as_text(service: Service, chromium: Browser, scheme: str) -> None:
    _, made = service.someone("admin", "notices admin")
    window = service.window(made["key"])
    hook, _ = _made(window, "http://127.0.0.1:9/?x=<script>alert(1)</script>")
    assert window.post(f"/you/notices/{hook}/test", data={"csrf": csrf(window)}).status_code == 303
    database = service.database()
    hostile = {"worker": "<img src=x onerror=alert(1)>\u202egnp" + "a" * 150}
    with database.write() as session:
        session.execute(update(Delivery).where(Delivery.target_id == hook).values(data=hostile, kind="worker.gone"))
        off = {"off_at": 1.0, "off_reason": "restored"}
        session.execute(update(Webhook).where(Webhook.id == hook).values(**off))
    database.dispose()
    for width in (390, 1280):
        with look(chromium, service.url, viewport={"width": width, "height": 900}, color_scheme=scheme) as seen:
            seen.sign_in(made["key"])
            for path in ("/you", "/you/notices", f"/you/notices/{hook}", "/you/email"):
                seen.go(path)
                assert not seen.page.query_selector("img")
                seen.refuse_reports()
                seen.refuse_violations()
