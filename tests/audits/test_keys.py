"""Attacks on keys: the content of a stolen database, the keys that an operator may choose, and the end of keys."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from core.access import principals
from core.access.supplied import refuse_weak
from core.base.errors import Refusal
from core.db.database import Database
from tests.support.api import ROOT, Service, joined, metadata, post_dataset, running, upload
from tests.support.verified import verified

WEAK = ("admin", "letmein", "hunter2", "a" * 40, "ab" * 20, "password1password1password1", "abcdefghijklmnopqrstuvwxyz")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("keys")) as found:
        yield found


def rows(database: Database) -> list[dict[str, Any]]:
    """Return the table of keys, as whoever steals a backup has it."""
    with database.engine.connect() as connection:
        return [dict(row) for row in connection.execute(text("SELECT * FROM api_keys")).mappings()]


def runs(secret: str, letters: int = 6) -> set[str]:
    """Return every run of so many letters of the part of a key that is drawn."""
    drawn = secret.rsplit("_", maxsplit=1)[-1] if secret.count("_") == 1 else secret.split("_", 2)[-1]
    return {drawn[start : start + letters] for start in range(len(drawn) - letters + 1)}


def test_no_part_of_a_secret_is_stored_or_shown(service: Service) -> None:
    _, made = service.someone("analyst")
    database = service.database()
    stored = str(rows(database))
    database.dispose()
    shown = service.client().get("/v1/keys?limit=100").text
    assert [run for run in runs(made["key"]) if run in stored or run in shown] == []


def test_a_dictionary_finds_no_key_of_a_stolen_table(service: Service) -> None:
    """One table of hashes made beforehand would be good for every installation."""
    _, made = service.someone("analyst")
    database = service.database()
    stored = str(rows(database))
    with database.write() as session:
        first, _ = principals.create_key(session, made["principal"], "one", secret="Zk3-same-secret-twice-8Qw2xL5")
    kept = next(row for row in rows(database) if row["id"] == first.id)
    with database.write() as session:
        principals.revoke(session, first.id)
    database.dispose()
    assert hashlib.sha256(made["key"].encode()).hexdigest() not in stored
    guess = b"Zk3-same-secret-twice-8Qw2xL5"
    assert not {hashlib.new(name, guess).hexdigest() for name in ("sha256", "sha512", "blake2b")} & set(
        map(str, kept.values())
    )


def test_one_secret_kept_twice_has_two_hashes(database: Database) -> None:
    secret = "Zk3-same-secret-twice-8Qw2xL5"
    with database.write() as session:
        person = principals.create(session, "Anna", "admin")
        for name in ("first", "second"):
            principals.revoke(session, principals.create_key(session, person.id, name, secret=secret)[0].id)
    first, second = rows(database)
    assert not {str(value) for name, value in first.items() if name in ("salt", "digest")} & {
        str(value) for name, value in second.items() if name in ("salt", "digest")
    }


def prepared(home: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Start a home as `farthing up` and the stack's first container do."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    command = [sys.executable, "-m", "workers.upkeep", "prepare", "--home", str(home)]
    return subprocess.run(
        command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("by_file", [False, True], ids=["environment", "file"])
@pytest.mark.parametrize("secret", [WEAK[0], WEAK[4]])
def test_a_weak_admin_key_is_refused_at_the_start(tmp_path: Path, secret: str, *, by_file: bool) -> None:
    if by_file:
        (tmp_path / "admin_key").write_text(secret + "\n")
        told = prepared(tmp_path / "home", FARTHING_ADMIN_KEY_FILE=str(tmp_path / "admin_key"))
    else:
        told = prepared(tmp_path / "home", FARTHING_ADMIN_KEY=secret)
    assert told.returncode != 0, "it was taken"
    assert "FARTHING_ADMIN_KEY" in told.stderr
    assert "openssl rand" in told.stderr
    assert f"'{secret}'" not in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("secret", WEAK)
def test_the_rule_refuses(database: Database, secret: str) -> None:
    with database.write() as session, pytest.raises(Refusal, match=r"22 to 200|different"):
        principals.create_key(session, principals.create(session, "a", "admin").id, "a", secret=secret)


@pytest.mark.parametrize("make", ["base64", "hex", "digits"])
def test_the_rule_takes_what_is_drawn(make: str) -> None:
    """A false refusal of a drawn text is less likely than 1e-6 each, so of these 3,000 than 0.3 %."""
    for _ in range(1000):
        drawn = {
            "base64": base64.b64encode(os.urandom(16)).decode().rstrip("="),
            "hex": os.urandom(12).hex(),
            "digits": str(int.from_bytes(os.urandom(12), "big") + 10**29)[-29:],
        }[make]
        refuse_weak(drawn)


def test_a_disabled_principal_opens_nothing_on_any_process(tmp_path: Path) -> None:
    """Two API processes on one database; the second one is sent nothing."""
    with running(tmp_path / "home") as first, joined(first) as second:
        client, made = first.someone("analyst")
        one_more = {"name": "second", "role": "analyst", "principal": made["principal"]}
        other = first.client(first.client().post("/v1/keys", json=one_more).json()["key"])
        theirs = [client, other, second.client(made["key"])]
        assert {one.get("/v1/me").status_code for one in theirs} == {200}
        admin = first.client()
        place = f"/v1/principals/{made['principal']}"
        told = admin.post(f"{place}/disable", json={"reason": "left the project"})
        assert told.status_code == 200, told.text
        assert told.json()["disabled_at"] is not None
        assert {one.get("/v1/me").status_code for one in theirs} == {401}
        assert {one.post("/v1/jobs/job_nowhere/cancel").status_code for one in theirs} == {401}
        assert admin.get(place).json()["disabled_reason"] == "left the project"
        assert admin.post("/v1/keys", json=one_more).status_code == 409
        assert admin.post(f"{place}/enable").json()["disabled_at"] is None
        assert {one.get("/v1/me").status_code for one in theirs} == {200}


def test_only_admins_disable_and_never_themselves(service: Service) -> None:
    _, target = service.someone("owner")
    place = f"/v1/principals/{target['principal']}"
    for role in ("owner", "analyst", "auditor"):
        client, made = service.someone(role)
        assert client.post(f"{place}/disable", json={"reason": "I say so"}).status_code == 403
        own = f"/v1/principals/{made['principal']}"
        assert client.post(f"{own}/disable", json={"reason": "I say so"}).status_code == 403
        assert client.get("/v1/principals").status_code == (200 if role == "auditor" else 403)
        assert client.get(place).status_code == (200 if role == "auditor" else 404)
        assert client.get(own).json()["disabled_at"] is None
    me = service.client().get("/v1/me").json()["id"]
    assert service.client().post(f"/v1/principals/{me}/disable", json={"reason": "oops"}).status_code == 403
    assert service.client().post("/v1/principals/pr_nobody/disable", json={"reason": "oops"}).status_code == 404
    listed = service.client().get("/v1/principals?limit=100").json()["data"]
    assert target["principal"] in {one["id"] for one in listed}
    for verb, body in (("disable", {"json": {"reason": "left"}}), ("enable", {})):
        assert service.client().post(f"/v1/principals/pr_nobody/{verb}", **body).status_code == 404


def test_nobody_makes_or_sees_keys_of_others(service: Service) -> None:
    _, victim = service.someone("owner")
    for role in ("owner", "analyst", "auditor"):
        client, made = service.someone(role)
        more = {"name": "x", "role": "owner", "principal": victim["principal"]}
        assert client.post("/v1/keys", json=more).status_code == 403
        assert client.post("/v1/keys", json={"name": "x", "role": "admin"}).status_code == 403
        assert {key["principal"] for key in client.get("/v1/keys?limit=100").json()["data"]} == {made["principal"]}
        for verb in ("rotate", "revoke"):
            assert client.post(f"/v1/keys/{victim['id']}/{verb}").status_code == 404
    assert httpx.get(f"{service.url}/v1/keys").status_code == 401


def test_a_key_s_id_without_its_secret_opens_nothing(service: Service) -> None:
    _, made = service.someone("admin")
    _, other = service.someone("admin")
    head, tail = made["key"].rsplit("_", 1)[0], other["key"].split("_", 2)[-1]
    for wrong in (f"{head}_{tail}", head, head + "_", made["key"] + "x", made["key"][:-1], made["id"]):
        assert service.client(wrong).get("/v1/me").status_code == 401, wrong
    assert service.client(made["key"]).get("/v1/me").status_code == 200


def test_a_check_is_one_hash_whichever_secret_is_shown(database: Database) -> None:
    """By the calls that it makes, so that no load fails it: a flood of wrong secrets costs a hash each."""
    with database.write() as session:
        person = principals.create(session, "Anna", "analyst")
        key, secret = principals.create_key(session, person.id, "laptop")
    called = []
    for shown in (secret, secret[:-1] + "x", "x" + secret[1:]):
        names: list[str] = []

        def note(_: object, event: str, given: Any, names: list[str] = names) -> None:
            if event == "c_call":
                names.append(given.__name__)

        sys.setprofile(note)
        opened = principals.opens(key.digest, key.salt, shown)
        sys.setprofile(None)
        assert opened == (shown == secret)
        called.append(names)
    assert called[0] == called[1] == called[2]
    assert called[0].count("digest") + called[0].count("hexdigest") == 1, called[0]
    assert called[0].count("compare_digest") == 1, called[0]
    assert len(called[0]) < 10, called[0]


@pytest.mark.timing
def test_a_check_costs_no_more_than_a_hundredth_of_a_millisecond(database: Database) -> None:
    """CPU of one salted hash and its comparison, against one SHA-256, interleaved; the best of many rounds."""
    with database.write() as session:
        person = principals.create(session, "Anna", "analyst")
        key, secret = principals.create_key(session, person.id, "laptop")
    salted, plain = [], []
    for _ in range(20):
        marks = [time.process_time()]
        assert all(principals.opens(key.digest, key.salt, secret) for _ in range(500))
        marks.append(time.process_time())
        for _ in range(500):
            hashlib.sha256(secret.encode()).hexdigest()
        marks.append(time.process_time())
        one, other = (after - before for before, after in pairwise(marks))
        salted.append(one / 500)
        plain.append(other / 500)
    assert min(salted) - min(plain) < 1e-5


def owner_key(service: Service, principal: str, **environment: str) -> str:
    """Make a key for an owner who lost his, as the operator does; return its secret."""
    command = [sys.executable, "-m", "workers.upkeep", "owner-key", principal, "--home", str(service.home)]
    told = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=True
    )
    return told.stdout.strip()


class TestTakingOver:
    """An admin makes principals; nobody but an owner ever holds a key that reaches the owner's records."""

    def test_an_admin_gets_no_key_of_who_holds_records(self, service: Service) -> None:
        owner, made = service.someone("owner")
        upload(owner)
        admin, body = service.client(), {"name": "x", "role": "owner", "principal": made["principal"]}
        for answer in (admin.post("/v1/keys", json=body), admin.post(f"/v1/keys/{made['id']}/rotate")):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text
            assert "owner-key" in answer.json()["detail"]
            assert "frt_" not in answer.text
        assert owner.get("/v1/me").status_code == 200, "nothing was revoked"
        assert admin.post(f"/v1/keys/{made['id']}/revoke").status_code == 200, "to end a key is harmless"

    def test_an_owner_makes_and_rotates_his_own(self, service: Service) -> None:
        owner, made = service.someone("owner")
        upload(owner)
        body = {"name": "second", "role": "owner", "principal": made["principal"]}
        second = owner.post("/v1/keys", json=body)
        assert second.status_code == 201, second.text
        third = service.client(second.json()["key"]).post(f"/v1/keys/{made['id']}/rotate")
        assert service.client(third.json()["key"]).get("/v1/me").json()["id"] == made["principal"]
        assert owner.get("/v1/me").status_code == 401
        for wrong in ({"principal": None}, {"role": "admin"}, {"principal": service.someone("owner")[1]["principal"]}):
            refused = service.client(third.json()["key"]).post("/v1/keys", json=body | wrong)
            assert refused.status_code in {403, 404}, refused.text

    def test_a_lost_key_is_made_anew_on_the_host_and_begins_later(self, service: Service) -> None:
        owner, made = service.someone("owner")
        upload(owner)
        secret = owner_key(service, made["principal"])
        assert service.client(secret).get("/v1/me").status_code == 401
        (waits,) = (one for one in owner.get("/v1/keys").json()["data"] if one["starts_at"] is not None)
        seconds = [datetime.fromisoformat(waits[name]).timestamp() for name in ("created_at", "starts_at")]
        assert (waits["made_by"], round(seconds[1] - seconds[0])) == (None, 86400)
        lines = service.client().get("/v1/audit").json()["data"]
        assert ("farthing owner-key", f"keys/{waits['id']}") in {(one["action"], one["target"]) for one in lines}
        scope = owner.get("/v1/datasets").json()["data"][0]["scope"]
        told = [json.loads(one["body"]) for one in owner.get(f"/v1/scopes/{scope}/entries").json()["data"]]
        assert (told[-1]["kind"], told[-1]["key"], told[-1]["actor"]) == ("recovery", waits["id"], "operator")
        assert verified(owner, scope)["ok"] is True
        assert owner.post(f"/v1/keys/{waits['id']}/revoke").status_code == 200, "an owner who lost nothing ends it"
        soon = service.client(owner_key(service, made["principal"], FARTHING_KEY_RECOVERY_SECONDS="1"))
        time.sleep(1)
        assert soon.get("/v1/me").json()["id"] == made["principal"]

    @pytest.mark.parametrize("role", ["owner", "admin"])
    def test_a_key_that_somebody_else_made_uploads_nothing(self, service: Service, role: str) -> None:
        """Its maker has seen it, and would be the owner from the first record on."""
        made = service.client().post("/v1/keys", json={"name": "x", "role": role}).json()
        client = service.client(made["key"])
        for answer in (post_dataset(client), client.post("/v1/datasets", json=metadata())):
            assert (answer.status_code, answer.json()["code"]) == (403, "key-not-own"), answer.text
            assert "rotate" in answer.json()["detail"]
        listed = client.get("/v1/keys").json()["data"]
        assert made["id"] in {
            one["id"] for one in listed if one["made_by"] == service.client().get("/v1/me").json()["id"]
        }
        fresh = client.post(f"/v1/keys/{made['id']}/rotate").json()
        assert upload(service.client(fresh["key"]))["owner"] == made["principal"]

    def test_the_first_records_end_every_other_key(self, service: Service) -> None:
        """An admin who kept the first key makes others by it, as the owner, before the owner rotates it."""
        admin = service.client()
        made = admin.post("/v1/keys", json={"name": "x", "role": "owner"}).json()
        body = {"name": "y", "role": "owner", "principal": made["principal"]}
        kept = [one.post("/v1/keys", json=body).json() for one in (admin, service.client(made["key"]))]
        fresh = service.client(made["key"]).post(f"/v1/keys/{made['id']}/rotate").json()
        owner = service.client(fresh["key"])
        upload(owner)
        assert {service.client(one["key"]).get("/v1/me").status_code for one in kept} == {401}
        live = [one["id"] for one in owner.get("/v1/keys").json()["data"] if one["revoked_at"] is None]
        assert live == [fresh["id"]]
        later = owner.post("/v1/keys", json=body).json()
        upload(owner, shift=1)
        assert service.client(later["key"]).get("/v1/me").status_code == 200, "only the first records end keys"
