"""Webhooks: their owners, secrets that are shown once, and addresses that are refused."""

import base64
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from core.access import webhooks as rows
from core.base.files import replace
from core.base.settings import ServiceSettings
from core.db.notice_tables import Webhook
from core.operations import backup as backups
from core.records import datasets
from core.records.master_key import MasterKeys, load_master_keys, parse_master_keys
from core.service import addresses
from core.service.webhooks import MOST_TESTS
from farthing.schemas.notices import KINDS
from tests.support.api import Service, running
from workers import upkeep

INSIDE = "http://127.0.0.1:9/hook"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose webhooks may be on this machine, where nobody answers at the port of the tests."""
    open_to = {"FARTHING_WEBHOOK_HTTP": "true", "FARTHING_WEBHOOK_NETWORKS": "127.0.0.0/8"}
    with running(tmp_path_factory.mktemp("webhooks"), **open_to) as found:
        yield found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the settings that it has by itself."""
    with running(tmp_path_factory.mktemp("closed")) as found:
        yield found


def make(client: httpx.Client, url: str = INSIDE, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/webhooks", json={"url": url, **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def listed(client: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/webhooks").json()["data"]
    return found


class TestMaking:
    def test_the_secret_is_shown_once_and_stored_wrapped(self, service: Service) -> None:
        client, _ = service.someone("analyst")
        made = make(client, kinds=["job.ended"])
        assert made["secret"].startswith("whsec_")
        secret = base64.b64decode(made["secret"].removeprefix("whsec_"))
        assert len(secret) == 32
        (seen,) = listed(client)
        assert seen == {name: value for name, value in made.items() if name != "secret"}
        assert (seen["kinds"], seen["state"], seen["url"]) == (["job.ended"], "on", INSIDE)
        stored = b"".join(path.read_bytes() for path in service.home.glob("farthing.sqlite*"))
        assert secret not in stored
        assert made["secret"].removeprefix("whsec_").encode() not in stored
        assert made["secret"] not in client.get("/v1/audit?limit=100").text

    def test_all_kinds_by_default(self, service: Service) -> None:
        client, _ = service.someone("owner")
        assert make(client)["kinds"] == sorted(KINDS)

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({}, "/url"),
            ({"url": ""}, "/url"),
            ({"url": INSIDE, "kinds": []}, "/kinds"),
            ({"url": INSIDE, "kinds": ["job.ended\r\nX: y"]}, "/kinds/0"),
            ({"url": INSIDE, "kinds": ["<script>alert(1)</script>"]}, "/kinds/0"),
            ({"url": INSIDE, "kinds": ["webhook.test"]}, "/kinds/0"),
            ({"url": INSIDE, "kinds": ["job.ended"] * 100}, "/kinds"),
            ({"url": INSIDE, "secret": "whsec_mine"}, "/secret"),
        ],
    )
    def test_wrong_bodies_name_the_field(self, service: Service, body: dict[str, Any], pointer: str) -> None:
        client, _ = service.someone("analyst")
        refused = client.post("/v1/webhooks", json=body)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)

    def test_ten_of_a_principal(self, service: Service) -> None:
        client, _ = service.someone("analyst")
        for _ in range(rows.MOST):
            make(client)
        refused = client.post("/v1/webhooks", json={"url": INSIDE})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")

    def test_deeds_leave_lines_in_the_audit_log(self, service: Service) -> None:
        client, who = service.someone("owner")
        made = make(client)
        client.post(f"/v1/webhooks/{made['id']}/rotate")
        client.post(f"/v1/webhooks/{made['id']}/test")
        client.delete(f"/v1/webhooks/{made['id']}")
        lines = service.client().get("/v1/audit", params={"limit": 100}).json()["data"]
        mine = [line for line in lines if line["principal"] == who["principal"] and "webhooks" in line["action"]]
        assert {line["action"] for line in mine} == {
            "POST /v1/webhooks",
            "POST /v1/webhooks/{webhook_id}/rotate",
            "POST /v1/webhooks/{webhook_id}/test",
            "DELETE /v1/webhooks/{webhook_id}",
        }
        assert all(line["target"].startswith(f"webhooks/{made['id']}") for line in mine)


class TestStrangers:
    @pytest.mark.parametrize("role", ["owner", "analyst", "auditor", "admin"])
    def test_another_s_webhook_does_not_exist(self, service: Service, role: str) -> None:
        client, _ = service.someone("owner")
        made = make(client)
        other, _ = service.someone(role)
        place = f"/v1/webhooks/{made['id']}"
        assert listed(other) == []
        assert other.delete(place).status_code == 404
        assert other.post(f"{place}/rotate").status_code == 404
        assert other.post(f"{place}/test").status_code == 404
        assert other.get(f"{place}/deliveries").status_code == 404
        assert len(listed(client)) == 1
        assert client.delete(place).status_code == 204
        assert client.delete(place).status_code == 404

    def test_pages(self, service: Service) -> None:
        client, _ = service.someone("analyst")
        made = [make(client)["id"] for _ in range(3)]
        first = client.get("/v1/webhooks", params={"limit": 2}).json()
        rest = client.get("/v1/webhooks", params={"limit": 2, "after": first["next"]}).json()
        assert [one["id"] for one in first["data"] + rest["data"]] == made[::-1]
        for _ in range(3):
            assert client.post(f"/v1/webhooks/{made[0]}/test").status_code == 202
        path = f"/v1/webhooks/{made[0]}/deliveries"
        first = client.get(path, params={"limit": 2}).json()
        rest = client.get(path, params={"limit": 2, "after": first["next"]}).json()
        assert [one["event"] for one in first["data"] + rest["data"]] == ["webhook.test"] * 3


def test_an_address_is_not_flooded_by_tests(service: Service) -> None:
    client, _ = service.someone("analyst")
    made = make(client)
    statuses = [client.post(f"/v1/webhooks/{made['id']}/test").status_code for _ in range(MOST_TESTS + 2)]
    assert statuses == [202] * MOST_TESTS + [409] * 2


CLOSED = {
    "loopback": "https://127.0.0.1/",
    "a name of loopback": "https://localhost/",
    "a name of loopback with a dot": "https://LOCALHOST./",
    "loopback in octal": "https://0177.0.0.1/",
    "loopback in one number": "https://2130706433/",
    "loopback in hexadecimal": "https://0x7f000001/",
    "short loopback": "https://127.1/",
    "private": "https://10.1.2.3/",
    "private in the middle": "https://172.20.1.1/",
    "private at home": "https://192.168.1.1:8443/x",
    "shared by carriers": "https://100.64.0.1/",
    "link-local": "https://169.254.169.254/latest/meta-data",
    "nothing": "https://0.0.0.0/",
    "multicast": "https://224.0.0.1/",
    "reserved": "https://240.0.0.1/",
    "nothing in one number": "https://0/",
    "nothing mapped": "https://[::ffff:0.0.0.0]/",
    "relays of 6to4": "https://192.88.99.1/",
    "broadcast": "https://255.255.255.255/",
    "IPv6 loopback": "https://[::1]/",
    "IPv6 nothing": "https://[::]/",
    "IPv6 link-local": "https://[fe80::1]/",
    "IPv6 unique local": "https://[fd00::1]/",
    "IPv6 of a site": "https://[fec0::1]/",
    "IPv6 that nobody has been given": "https://[4000::1]/",
    "IPv6 translated": "https://[::ffff:0:7f00:1]/",
    "IPv6 multicast": "https://[ff02::1]/",
    "IPv6 of documents": "https://[2001:db8::1]/",
    "mapped loopback": "https://[::ffff:127.0.0.1]/",
    "mapped loopback in hexadecimal": "https://[::ffff:7f00:1]/",
    "mapped public": "https://[::ffff:8.8.8.8]/",
    "compatible loopback": "https://[::127.0.0.1]/",
    "6to4 of loopback": "https://[2002:7f00:1::]/",
    "Teredo": "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "NAT64 of loopback": "https://[64:ff9b::7f00:1]/",
    "NAT64 of a network's own": "https://[64:ff9b:1::a00:1]/",
    "a name that is not known": "https://no-such-name.invalid/",
}
WRONG = {
    "http": "http://93.184.215.14/",
    "a file": "file:///etc/passwd",
    "another scheme": "gopher://93.184.215.14/",
    "no scheme": "93.184.215.14/x",
    "a login": "https://me:secret@93.184.215.14/",
    "an empty login": "https://@93.184.215.14/",
    "a fragment": "https://93.184.215.14/#x",
    "a blank": "https://93.184.215.14/a b",
    "a line": "https://93.184.215.14/\r\nHost: x",
    "other letters": "https://bücher.example/",
    "a backslash": "https://93.184.215.14\\@127.0.0.1/",
    "no port": "https://93.184.215.14:0/",
    "too large a port": "https://93.184.215.14:70000/",
    "no host": "https:///x",
    "a scope": "https://[fe80::1%25eth0]/",
    "capitals and a path": "HTTPS:/93.184.215.14",
    "too long": "https://93.184.215.14/" + "a" * 1_990,
}


class TestAddresses:
    @pytest.mark.parametrize("url", CLOSED.values(), ids=CLOSED.keys())
    def test_one_that_is_not_public_is_refused(self, closed: Service, url: str) -> None:
        refused = closed.client().post("/v1/webhooks", json={"url": url})
        assert (refused.status_code, refused.json()["detail"]) == (422, addresses.NOT_PUBLIC), "no hint which it was"
        assert refused.json()["errors"][0]["pointer"] == "/url"
        assert listed(closed.client()) == []

    @pytest.mark.parametrize("url", WRONG.values(), ids=WRONG.keys())
    def test_one_that_is_none_is_refused(self, closed: Service, url: str) -> None:
        refused = closed.client().post("/v1/webhooks", json={"url": url})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/url"), refused.text

    @pytest.mark.parametrize(
        "url", ["https://93.184.215.14/", "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:8443/x"]
    )
    def test_one_that_is_public_is_taken(self, closed: Service, url: str) -> None:
        client, _ = closed.someone("analyst")
        make(client, url)

    def test_every_address_of_a_name_must_be_open(self) -> None:
        """A name with a public address and a private one leads inside at the second try."""
        settings = ServiceSettings()
        assert addresses.pick(["93.184.215.14"], settings) == "93.184.215.14"
        for inside in ("127.0.0.1", "::1", "fe80::1%eth0", "10.0.0.1", "not an address"):
            assert addresses.pick(["93.184.215.14", inside], settings) is None

    def test_the_setting_opens_its_networks_alone(self) -> None:
        settings = ServiceSettings(webhook_networks="10.1.0.0/16, fd00:1::/64")
        for inside in ("10.1.2.3", "fd00:1::7", "::ffff:10.1.2.3"):
            assert addresses.pick([inside], settings) == inside
        for outside in ("10.2.0.1", "fd00:2::7", "::ffff:10.2.0.1", "127.0.0.1"):
            assert addresses.pick([outside], settings) is None
        with pytest.raises(ValueError, match="webhook_networks"):
            ServiceSettings(webhook_networks="10.1.0.0/33")


def test_another_secret_leaves_the_one_before_for_a_day(service: Service) -> None:
    client, _ = service.someone("owner")
    made = make(client)
    again = client.post(f"/v1/webhooks/{made['id']}/rotate").json()
    assert again["secret"] not in {made["secret"], None}
    (seen,) = listed(client)
    assert seen["previous_until"] is not None
    database = service.database()
    keys = load_master_keys(service.settings)
    with database.read() as session:
        row = session.get_one(Webhook, made["id"])
        assert row.previous_until is not None
        assert 86_300 < row.previous_until - row.created_at < 86_700
        both = [
            keys.unwrap(datasets.webhook_name(row.id), row.wrapped),
            keys.unwrap(datasets.webhook_name(row.id, "before"), str(row.previous)),
        ]
    database.dispose()
    assert [base64.b64encode(one).decode() for one in both] == [
        one["secret"].removeprefix("whsec_") for one in (again, made)
    ]


class TestMasterKey:
    def test_rewrap_covers_both_secrets(self, tmp_path: Path) -> None:
        open_to = {"FARTHING_WEBHOOK_HTTP": "true", "FARTHING_WEBHOOK_NETWORKS": "127.0.0.0/8"}
        with running(tmp_path, **open_to) as service:
            made = make(service.client())
            again = service.client().post(f"/v1/webhooks/{made['id']}/rotate").json()
            upkeep.rewrap(service.settings, fresh=True)
            keys = load_master_keys(service.settings)
            alone = MasterKeys((keys.current,))
            database = service.database()
            with database.read() as session:
                wrapped = datasets.wrapped_keys(session, "")
            database.dispose()
            names = [datasets.webhook_name(made["id"]), datasets.webhook_name(made["id"], "before")]
            found = [base64.b64encode(alone.unwrap(name, wrapped[name])).decode() for name in names]
            assert found == [one["secret"].removeprefix("whsec_") for one in (again, made)]
            replace(service.settings.master_key_path, base64.b64encode(keys.current.secret) + b"\n")
            assert parse_master_keys(service.settings.master_key_path.read_text()) == alone
            assert service.client().get("/readyz").status_code == 200


def test_a_restored_backup_posts_nothing(service: Service, tmp_path: Path) -> None:
    """A webhook may have been removed after the backup: the address may be somebody else's by now."""
    client, _ = service.someone("owner")
    made = make(client)
    client.post(f"/v1/webhooks/{made['id']}/test")
    database = service.database()
    copy = tmp_path / "copy.sqlite"
    database.backup(copy)
    with database.read() as session:
        assert session.execute(select(Webhook.off_at).where(Webhook.id == made["id"])).scalar_one() is None
    database.dispose()
    backups._freeze(copy)
    with sqlite3.connect(copy) as connection:
        reasons = connection.execute("SELECT DISTINCT off_reason FROM webhooks").fetchall()
        assert reasons == [("restored",)]
        assert connection.execute("SELECT count(*) FROM deliveries WHERE state = 'waiting'").fetchone() == (0,)
    connection.close()


def test_a_backup_names_the_master_key_of_its_secrets(tmp_path: Path) -> None:
    open_to = {"FARTHING_WEBHOOK_HTTP": "true", "FARTHING_WEBHOOK_NETWORKS": "127.0.0.0/8"}
    with running(tmp_path / "home", **open_to) as service:
        make(service.client())
        upkeep.backup(service.settings, tmp_path / "copy")
        manifest = backups.read_manifest(tmp_path / "copy")
        assert manifest.master_keys == load_master_keys(service.settings).fingerprints
