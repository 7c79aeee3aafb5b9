"""Email addresses: a code first, then few words; no field of a mail can be made by anybody."""

import base64
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from core.access import emails as rows
from core.base.settings import ServiceSettings
from core.db.notice_tables import Delivery, MailAddress
from core.operations import backup as backups
from core.service import letters
from farthing.schemas.notices import KINDS, TITLES
from tests.support.api import Service, job, running, submit, upload
from tests.support.authority import server_context
from tests.support.mailbox import Mail, Mailbox, mailbox

FROM = "farthing@data.example"
PLACE = "/v1/me/email"


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mailbox() as found:
        yield found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, box: Mailbox) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("emails"), **mails_to(box)) as found:
        yield found


def mails_to(box: Mailbox, **more: str) -> dict[str, str]:
    return {
        "FARTHING_SMTP_HOST": "127.0.0.1",
        "FARTHING_SMTP_PORT": str(box.port),
        "FARTHING_SMTP_TLS": "none",
        "FARTHING_MAIL_FROM": FROM,
        "FARTHING_CONSOLE_URL": "https://data.example",
        "FARTHING_NOTICE_SECONDS": "0.2",
        "FARTHING_VISIBLE_GRID_SECONDS": "0",
        **more,
    }


def put(client: httpx.Client, address: str, **body: Any) -> httpx.Response:
    return client.put(PLACE, json={"address": address, **body})


def of(box: Mailbox, address: str, count: int = 1) -> list[Mail]:
    """Wait for so many mails to an address; return them."""
    deadline = time.monotonic() + 120
    while len(found := [one for one in list(box.mails) if one.recipients == [address]]) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} mails came"
        time.sleep(0.05)
    return found


def text(mail: Mail) -> str:
    return str(mail.message.get_content())


def code_in(mail: Mail) -> str:
    found = re.search(r"\b[0-9]{8}\b", text(mail))
    assert found is not None, text(mail)
    return found[0]


def confirmed(client: httpx.Client, box: Mailbox, address: str, **body: Any) -> None:
    assert put(client, address, **body).status_code == 200
    answer = client.post(f"{PLACE}/confirm", json={"code": code_in(of(box, address)[-1])})
    assert (answer.status_code, answer.json()["state"]) == (200, "confirmed"), answer.text


def rewind(service: Service, **values: Any) -> None:
    database = service.database()
    database.transaction(lambda session: session.execute(update(MailAddress).values(**values)))
    database.dispose()


def trouble(service: Service, state: str = "waiting") -> str:
    """Wait until the newest delivery is in a state after an attempt; return why that failed."""
    database = service.database()
    deadline = time.monotonic() + 120
    try:
        while True:
            with database.read() as session:
                row = session.execute(select(Delivery).order_by(Delivery.id.desc()).limit(1)).scalar_one()
                if row.trouble is not None and row.state == state:
                    return row.trouble
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        database.dispose()


def end_job(owner: httpx.Client, dataset: str) -> str:
    one = str(submit(owner, job(dataset, mu="0.01")).json()["id"])
    assert owner.post(f"/v1/jobs/{one}/cancel").status_code in {200, 202}
    return one


def test_a_code_first_then_few_words_and_a_link(service: Service, box: Mailbox) -> None:
    owner, who = service.someone("owner", "Olga\r\nBcc: x@evil.example")
    dataset = upload(owner, name="a quiet study")["id"]
    assert owner.get(PLACE).json() == {
        "object": "email",
        "address": None,
        "kinds": [],
        "state": "none",
        "confirmed_at": None,
    }
    told = put(owner, "olga@example.com").json()
    assert (told["state"], told["kinds"]) == ("unconfirmed", sorted(KINDS))
    (first,) = of(box, "olga@example.com")
    end_job(owner, dataset)
    time.sleep(2)
    assert len(of(box, "olga@example.com")) == 1, "nothing else before the code comes back"
    answer = owner.post(f"{PLACE}/confirm", json={"code": code_in(first)})
    assert answer.json()["state"] == "confirmed"
    one = end_job(owner, dataset)
    _, mail = of(box, "olga@example.com", 2)
    assert (mail.sender, mail.message["From"], mail.message["To"]) == (FROM, FROM, "olga@example.com")
    assert mail.message["Subject"] == "Farthing: A job ended"
    assert mail.message["Auto-Submitted"] == "auto-generated"
    assert f"https://data.example/jobs/{one}" in text(mail)
    assert "https://data.example/you/email" in text(mail)
    for private in ("quiet", "Olga", "study", who["principal"]):
        assert private not in text(mail) + str(mail.message)


def test_the_code_is_stored_nowhere(service: Service, box: Mailbox) -> None:
    client, _ = service.someone("analyst")
    put(client, "stored@example.com")
    code = code_in(of(box, "stored@example.com")[0])
    stored = b"".join(path.read_bytes() for path in service.home.glob("farthing.sqlite*"))
    assert code.encode() not in stored
    assert code not in service.client().get("/v1/audit?limit=100").text


def test_five_wrong_codes_end_it(service: Service, box: Mailbox) -> None:
    client, _ = service.someone("analyst")
    put(client, "guess@example.com")
    right = code_in(of(box, "guess@example.com")[0])
    wrong = f"{(int(right) + 1) % 10**8:08}"
    for _ in range(rows.MOST_TRIES):
        refused = client.post(f"{PLACE}/confirm", json={"code": wrong})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/code")
    assert client.post(f"{PLACE}/confirm", json={"code": right}).status_code == 422
    assert client.get(PLACE).json()["state"] == "unconfirmed"


def test_a_code_holds_for_an_hour(service: Service, box: Mailbox) -> None:
    client, _ = service.someone("analyst")
    put(client, "late@example.com")
    right = code_in(of(box, "late@example.com")[0])
    rewind(service, code_until=1.0)
    assert client.post(f"{PLACE}/confirm", json={"code": right}).status_code == 422


def test_another_s_code_confirms_nothing(service: Service, box: Mailbox) -> None:
    """The code of an own address says nothing of a stranger's."""
    client, _ = service.someone("analyst")
    other, _ = service.someone("analyst")
    put(client, "own@example.com")
    put(other, "victim@example.com")
    right = code_in(of(box, "own@example.com")[0])
    assert other.post(f"{PLACE}/confirm", json={"code": right}).status_code == 422
    assert put(client, "stranger@example.com").status_code == 409
    rewind(service, sent_at=1.0)
    assert put(client, "stranger@example.com").json()["state"] == "unconfirmed"
    assert client.post(f"{PLACE}/confirm", json={"code": right}).status_code == 422, "it was for the address before"


def test_nobody_s_mailbox_is_flooded(service: Service, box: Mailbox) -> None:
    client, _ = service.someone("analyst")
    for place in range(rows.MOST_CODES):
        assert put(client, f"flood{place}@example.com").status_code == 200
        refused = put(client, "flood@example.com")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert client.delete(PLACE).status_code == 204
        rewind(service, sent_at=1.0)
    refused = put(client, "flood@example.com")
    assert (refused.status_code, "tomorrow" in refused.json()["detail"]) == (409, True)
    assert not [one for one in box.mails if one.recipients == ["flood@example.com"]]


@pytest.mark.parametrize(
    "address",
    [
        "",
        "x",
        "x@",
        "@example.com",
        "a b@example.com",
        "x@example.com\r\nBcc: y@evil.example",
        "x@example.com\n",
        "x@example.com>\r\nRCPT TO:<y@evil.example",
        "x@example.com,y@evil.example",
        "x@example.com y@evil.example",
        "Ann <x@example.com>",
        '"x\r\n"@example.com',
        '"x y"@example.com',
        "x@[127.0.0.1]",
        "x@exämple.com",
        "ä@example.com",
        "x@example.com\0",
        "a" * 250 + "@example.com",
        ".x@example.com",
        "x..y@example.com",
        "x@-example.com",
    ],
)
def test_no_address_makes_a_field(service: Service, address: str) -> None:
    client, _ = service.someone("analyst")
    refused = put(client, address)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/address")
    assert client.get(PLACE).json()["state"] == "none"


def test_no_field_of_a_mail_takes_a_second_line() -> None:
    settings = ServiceSettings(smtp_host="x", mail_from=FROM)
    for address, subject in (("a@b.example\r\nBcc: c@d.example", "x"), ("a@b.example", "x\r\nBcc: c@d.example")):
        with pytest.raises(ValueError, match=r"linefeed|header"):
            letters.message(settings, address, subject, "text").as_bytes()
    said = letters.of_event(settings, "worker.gone", {"worker": "evil\r\n.\r\nMAIL FROM:<x>"}, "2026-01-01T00:00:00Z")
    assert "evil" not in "".join(said)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_words(kind: str) -> None:
    settings = ServiceSettings(smtp_host="x", mail_from=FROM, console_url="https://data.example/")
    subject, said = letters.of_event(settings, kind, {"scope": "sc_1"}, "2026-01-01T00:00:00Z")
    assert subject == f"Farthing: {TITLES[kind]}"
    assert "https://data.example/datasets" in said


def test_kinds_change_without_a_code(service: Service, box: Mailbox) -> None:
    client, _ = service.someone("owner")
    confirmed(client, box, "kinds@example.com")
    told = put(client, "kinds@example.com", kinds=["budget.low"]).json()
    assert (told["state"], told["kinds"]) == ("confirmed", ["budget.low"])
    dataset = upload(client)["id"]
    end_job(client, dataset)
    time.sleep(2)
    assert len(of(box, "kinds@example.com")) == 1


@pytest.mark.parametrize("how", ["removed", "disabled", "revoked"])
def test_it_ends(service: Service, box: Mailbox, how: str) -> None:
    owner, made = service.someone("owner")
    address = f"{how}@example.com"
    dataset = upload(owner)["id"]
    confirmed(owner, box, address)
    one = submit(owner, job(dataset, mu="0.01")).json()["id"]
    admin = service.client()
    match how:
        case "removed":
            assert owner.delete(PLACE).status_code == 204
            assert owner.get(PLACE).json()["state"] == "none"
            owner.post(f"/v1/jobs/{one}/cancel")
        case "disabled":
            admin.post(f"/v1/principals/{made['principal']}/disable", json={"reason": "has left"})
            admin.post(f"/v1/jobs/{one}/cancel")
        case "revoked":
            assert admin.post(f"/v1/keys/{made['id']}/revoke").status_code == 200
            admin.post(f"/v1/jobs/{one}/cancel")
    time.sleep(2)
    assert len(of(box, address)) == 1


def test_a_server_that_says_no_for_good_is_believed(service: Service, box: Mailbox) -> None:
    client, _ = service.someone("analyst")
    box.takes = 550
    try:
        put(client, "nobody@example.com")
        assert trouble(service, "given-up") == "mail-refused"
    finally:
        box.takes = 250


def test_a_server_that_is_rude_to_the_end_gets_one_mail(service: Service, box: Mailbox) -> None:
    client, _ = service.someone("analyst")
    box.farewell = 421
    try:
        confirmed(client, box, "rude@example.com")
        time.sleep(8)  # a second attempt would come after at most six seconds
    finally:
        box.farewell = 221
    assert len(of(box, "rude@example.com")) == 1


def test_without_a_server_no_address_is_taken(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        refused = put(service.client(), "x@example.com")
        assert (refused.status_code, "FARTHING_SMTP_HOST" in refused.json()["detail"]) == (409, True)


def test_encryption_is_not_given_up(tmp_path: Path) -> None:
    """A server that offers no TLS, or one under a certificate of nobody, gets no mail."""
    with mailbox() as plain, running(tmp_path, **mails_to(plain, FARTHING_SMTP_TLS="starttls")) as service:
        put(service.client(), "x@example.com")
        assert trouble(service) == "connection"
        assert plain.mails == []


def test_a_password_goes_encrypted_to_a_server_that_is_who_it_says(tmp_path: Path) -> None:
    tls, trusted = server_context(tmp_path, "127.0.0.1")
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    login = {"FARTHING_SMTP_TLS": "starttls", "FARTHING_SMTP_USER": "me", "FARTHING_SMTP_PASSWORD_FILE": str(secret)}
    with mailbox(tls) as safe:
        with running(tmp_path / "home", **mails_to(safe, SSL_CERT_FILE=str(trusted), **login)) as service:
            put(service.client(), "x@example.com")
            (mail,) = of(safe, "x@example.com")
            assert mail.encrypted
            assert base64.b64decode(mail.login) == b"\0me\0s3cret"
        with running(tmp_path / "other", **mails_to(safe, **login)) as service:
            put(service.client(), "y@example.com")
            assert trouble(service) == "connection", "nobody vouches for it"
        assert len(safe.mails) == 1


@pytest.mark.parametrize(
    "values",
    [
        {"smtp_host": "x"},
        {"smtp_host": "x", "mail_from": "x\r\nBcc: y@z"},
        {"smtp_host": "x", "mail_from": FROM, "smtp_tls": "none", "smtp_user": "u"},
        {"console_url": "javascript:alert(1)"},
        {"console_url": "https://x\r\ny"},
    ],
)
def test_wrong_settings_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"MAIL_FROM|mail_from|SMTP_TLS|console_url"):
        ServiceSettings(**values)  # type: ignore[arg-type]


def test_a_restored_backup_mails_nobody(service: Service, box: Mailbox, tmp_path: Path) -> None:
    client, _ = service.someone("owner")
    confirmed(client, box, "restored@example.com")
    database = service.database()
    copy = tmp_path / "copy.sqlite"
    database.backup(copy)
    database.dispose()
    backups._freeze(copy)
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM mail_addresses WHERE confirmed_at > 0").fetchone() == (0,)
    connection.close()
