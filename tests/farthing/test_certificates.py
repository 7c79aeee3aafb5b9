"""What an attacker makes of certificates and signed heads is refused, and by the reader alone: no service is asked."""

import base64
import hmac
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jws
from joserfc.jwk import OKPKey
from typer.testing import CliRunner

from core.store.signing import SigningKeys, parse_signing_keys, rotate_signing_key
from core.version import software
from farthing import Client
from farthing.certificates import BadCertificateError, Signed, check, contained, extends, part_of
from farthing.certificates import released as released_as
from farthing.chain import GENESIS
from farthing.cli import app
from farthing.views import Entry
from tests.farthing.conftest import Released
from tests.support.embedded import KEY, LOGISTIC, Embedded

ISSUER = "inst_one"
SEED = bytes(range(32))


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def keys(seed: bytes = SEED, since: int = 1000) -> SigningKeys:
    return parse_signing_keys(f"{base64.b64encode(seed).decode()} {since}\n")


def head(seq: int = 3, told: str = "sha256:aa", **changes: Any) -> str:
    """Return the payload of a signed head."""
    said = {"object": "head", "version": 1, "issuer": ISSUER, "scope": "sc_a", "seq": seq, "hash": told} | changes
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def signed(payload: str | None = None, *, at: float = 2000, by: SigningKeys | None = None) -> str:
    return (by or keys()).sign("farthing-head", payload or head(), at)


PUBLISHED = keys().published(ISSUER)


def test_what_was_signed_is_read() -> None:
    found = check(signed() + "\n", PUBLISHED)
    assert (found.kind, found.scope, found.places, found.at) == ("head", "sc_a", {3: "sha256:aa"}, 2000)
    assert found.key == PUBLISHED["keys"][0]["kid"]


def with_payload(text: str) -> str:
    top, _, end = text.split(".")
    return f"{top}.{b64(head(seq=2).encode())}.{end}"


def with_header(text: str, **changes: Any) -> str:
    """Change the header and leave the signature as it is."""
    top, payload, end = text.split(".")
    header = {name: value for name, value in (json.loads(raw(top)) | changes).items() if value is not None}
    return f"{b64(json.dumps(header).encode())}.{payload}.{end}"


def without_algorithm(text: str) -> str:
    top, payload, _ = with_header(text, alg="none").split(".")
    return f"{top}.{payload}."


def confused(text: str, secret: bytes) -> str:
    """Sign with HMAC under what everybody has: the public key."""
    top, payload, _ = with_header(text, alg="HS256").split(".")
    return f"{top}.{payload}.{b64(hmac.digest(secret, f'{top}.{payload}'.encode(), sha256))}"


def by_another(text: str, **header: Any) -> str:
    """Sign anew with a key of one's own, under the name of the installation's."""
    other = keys(bytes(reversed(SEED)))
    private = OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": other.public.x, "d": b64(other.seed)})
    top = json.loads(raw(text.split(".", maxsplit=1)[0])) | header
    registry = jws.JWSRegistry(algorithms=["Ed25519"], strict_check_header=False)
    return jws.serialize_compact(top, raw(text.split(".")[1]), private, registry=registry)


ATTACKS: dict[str, Callable[[str], str]] = {
    "another payload": with_payload,
    "another time": lambda text: with_header(text, iat=2001),
    "another kind": lambda text: with_header(text, typ="farthing-certificate"),
    "no algorithm": without_algorithm,
    "HMAC under the public key's bytes": lambda text: confused(text, raw(PUBLISHED["keys"][0]["x"])),
    "HMAC under the public key's text": lambda text: confused(text, PUBLISHED["keys"][0]["x"].encode()),
    "HMAC under the public key's JWK": lambda text: confused(text, json.dumps(PUBLISHED["keys"][0]).encode()),
    "EdDSA in place of Ed25519": lambda text: with_header(text, alg="EdDSA"),
    "another's key under our name": by_another,
    "another's key under its own name": lambda text: by_another(text, kid=keys(bytes(reversed(SEED))).public.kid),
    "another's key in the header": lambda text: by_another(text, jwk=keys(bytes(reversed(SEED))).public.jwk),
    "an address of keys in the header": lambda text: by_another(text, jku="https://example.org/keys"),
    "a payload that is none": lambda text: by_another(text, b64=False, crit=["b64"]),
    "no name of a key": lambda text: with_header(text, kid=None),
    "no time": lambda text: with_header(text, iat=None),
    "time as text": lambda text: with_header(text, iat="2000"),
    "no signature": lambda text: text.rpartition(".")[0] + ".",
    "two signatures": lambda text: text + "." + text.rpartition(".")[2],
    "a signature cut short": lambda text: text[:-4],
    "no JWS": lambda _: "certificate",
    "nothing": lambda _: "",
    "letters of no alphabet": lambda text: text + "\u00e9",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_an_attack_is_refused(attack: Callable[[str], str]) -> None:
    text = attack(signed())
    assert text != signed()
    with pytest.raises(BadCertificateError):
        check(text, PUBLISHED)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (head(issuer="inst_two"), "it is of installation inst_two"),
        (head(version=2), "it is of version 2"),
        (head(object="certificate"), "what was signed is no head"),
        (head().replace(",", ", "), "what was signed is no head"),
        (head().replace('"seq":3', '"seq":3,"seq":9'), "what was signed is no head"),
        ("[" * 5000 + "]" * 5000, "what was signed is no head"),
        ("null", "what was signed is no head"),
    ],
)
def test_a_good_signature_makes_no_other_thing_good(payload: str, why: str) -> None:
    with pytest.raises(BadCertificateError, match=why):
        check(signed(payload), PUBLISHED)


def test_keys_are_good_for_the_time_in_which_they_signed(tmp_path: Path) -> None:
    file = tmp_path / "signing.key"
    file.write_text(f"{base64.b64encode(SEED).decode()} 1000\n")
    old = parse_signing_keys(file.read_text())
    new = rotate_signing_key(file, 3000)
    later = new.published(ISSUER)
    assert base64.b64encode(SEED).decode() not in file.read_text()  # nobody can sign with it any more
    assert check(signed(by=old, at=3000), later).key == old.public.kid  # what it signed stays good
    assert check(signed(by=new, at=3001), later).key == new.public.kid
    for by, at in ((old, 3001), (old, 999), (new, 2999)):
        with pytest.raises(BadCertificateError, match="was not in use"):
            check(signed(by=by, at=at), later)
    with pytest.raises(BadCertificateError, match="none of"):
        check(signed(by=new, at=3001), old.published(ISSUER))  # keys that were kept from before name the new one not


def test_a_key_that_leaked_makes_nothing_good_any_more(tmp_path: Path) -> None:
    file = tmp_path / "signing.key"
    file.write_text(base64.b64encode(SEED).decode())
    old = parse_signing_keys(file.read_text())
    third = rotate_signing_key(file, 3000, leaked=True)
    with pytest.raises(BadCertificateError, match="none of"):
        check(signed(by=old, at=2000), third.published(ISSUER))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        {"issuer": ISSUER, "keys": [{"kty": "oct", "k": "AAAA", "kid": "x"}]},
        {"issuer": ISSUER, "keys": [PUBLISHED["keys"][0] | {"kid": "mine"}]},
        {"issuer": ISSUER, "keys": [{**PUBLISHED["keys"][0], "x": "AAAA"}]},
        {"keys": PUBLISHED["keys"]},
    ],
)
def test_keys_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(BadCertificateError, match="key"):
        check(signed(), wrong)


def test_another_installation_s_certificate_is_refused_even_under_a_copied_key() -> None:
    with pytest.raises(BadCertificateError, match="not of inst_two"):
        check(signed(), keys().published("inst_two"))


# Histories -----------------------------------------------------------------------------------------------------------


def ledger(scope: str = "sc_a", spent: int = 5) -> list[Entry]:
    """Return a small ledger: terms, a reservation, a payment, and what was left of it."""
    movements = [{}, {"reserved": [9]}, {"spent": [spent], "reserved": [-spent]}, {"reserved": [spent - 9]}]
    kinds = ["open", "reserve", "spend", "settle"]
    made, previous = [], GENESIS
    for seq, (kind, moved) in enumerate(zip(kinds, movements, strict=True), start=1):
        job, account = (None, {}) if seq == 1 else ("job_a", {scope: {"spent": [0], "reserved": [0]} | moved})
        body: dict[str, Any] = {"v": 1, "scope": scope, "seq": seq, "kind": kind, "job": job, "accounts": account}
        body |= {"attempt": None, "chunk": None, "at": 0}
        if seq == 1:
            body["terms"] = {"caps_nano": [100]}
        text = json.dumps(body)
        digest = "sha256:" + sha256(f"{previous}\n{text}".encode()).hexdigest()
        made.append(
            Entry(seq=seq, kind=kind, job=job, body=text, prev_hash=previous, hash=digest, created_at="2026-11-22")
        )
        previous = digest
    return made


def at(entries: list[Entry], seq: int) -> Signed:
    return check(signed(head(seq, entries[seq - 1].hash)), PUBLISHED)


def test_a_later_head_extends_an_earlier_one() -> None:
    entries = ledger()
    extends(at(entries, 4), at(entries, 2), entries)
    extends(at(entries, 4), at(entries, 4))
    with pytest.raises(BadCertificateError, match="only the ledger's entries can tell"):
        extends(at(entries, 4), at(entries, 2))


def test_a_ledger_that_was_put_back_or_rewritten_is_found_out() -> None:
    entries, other = ledger(), ledger(spent=4)
    with pytest.raises(BadCertificateError, match="was put back: it has 3 entries, and had 4"):
        extends(at(entries, 3), at(entries, 4), entries)
    with pytest.raises(BadCertificateError, match="another history: entry 4"):
        extends(at(other, 4), at(entries, 4))
    with pytest.raises(BadCertificateError, match="entry 3 of this ledger is not the one that was signed"):
        extends(at(other, 4), at(entries, 3), other)  # every hash and sum of the new history is right
    with pytest.raises(BadCertificateError, match="not whole: entry 3: it is missing"):
        extends(at(entries, 4), at(entries, 2), [*entries[:2], entries[3]])
    elsewhere = ledger("sc_b")
    with pytest.raises(BadCertificateError, match="not of the same ledger"):
        extends(check(signed(head(4, elsewhere[3].hash, scope="sc_b")), PUBLISHED), at(entries, 4))
    with pytest.raises(BadCertificateError, match="the ledger of sc_b"):
        contained(at(entries, 4), elsewhere)


def certificate(entries: list[Entry], spent: int = 5) -> Signed:
    """Return a certificate of the job in `ledger`."""
    body: dict[str, Any] = {"object": "certificate", "version": 1, "issuer": ISSUER, "job": {"id": "job_a"}}
    body |= {"scope": {"id": "sc_a", "orders": [9]}, "events": {"charged": []}}
    body["nano_nats"] = {"reserved": [9], "spent": [spent], "returned": [9 - spent], "corrected": [0]}
    places = (("before", 1), ("first", 2), ("last", 4))
    body["ledger"] = {name: {"seq": seq, "hash": entries[seq - 1].hash} for name, seq in places}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return check(keys().sign("farthing-certificate", text, 2000), PUBLISHED)


def test_a_certificate_that_says_less_than_its_ledger_is_found_out() -> None:
    entries = [one.model_copy() for one in ledger()]
    bodies = [json.loads(one.body) | ({"event": []} if one.kind == "spend" else {}) for one in entries]
    previous = GENESIS
    for place, body in enumerate(bodies):
        text = json.dumps(body)
        digest = "sha256:" + sha256(f"{previous}\n{text}".encode()).hexdigest()
        entries[place] = entries[place].model_copy(update={"body": text, "prev_hash": previous, "hash": digest})
        previous = digest
    contained(certificate(entries), entries)
    with pytest.raises(BadCertificateError, match="says something else of job_a"):
        contained(certificate(entries, spent=4), entries)


# Through the service -------------------------------------------------------------------------------------------------


def test_a_real_job_s_certificate_is_checked_offline(client: Client, released: Released, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("job.jws", "keys.json", "head.jws", "ledger.jsonl", "model.json")}
    env = {"FARTHING_URL": client.url, "FARTHING_KEY": KEY}
    commands = {
        "job.jws": ["certificate", "get", released.job.id],
        "keys.json": ["certificate", "keys"],
        "head.jws": ["certificate", "head", released.scope],
        "ledger.jsonl": ["entries", released.scope, "--json"],
    }
    for name, command in commands.items():
        done = CliRunner().invoke(app, command, env=env)
        assert done.exit_code == 0, done.output
        files[name].write_text(done.stdout)
    answer = httpx.get(
        f"{client.url}/v1/models/{released.model}/export?format=json", headers={"Authorization": f"Bearer {KEY}"}
    )
    files["model.json"].write_text(answer.text)

    def run(*more: str) -> Any:
        command = ["certificate", "check", str(files["job.jws"]), "--jwks", str(files["keys.json"]), *more]
        return CliRunner().invoke(app, command, env={"FARTHING_URL": "http://127.0.0.1:9"})

    done = run("--ledger", str(files["ledger.jsonl"]), "--model", str(files["model.json"]))
    assert done.exit_code == 0, done.output
    for said in (released.job.id, released.model, "epsilon", "replace_one", "torch", "guarantee"):
        assert said in done.output
    assert run("--after", str(files["head.jws"]), "--ledger", str(files["ledger.jsonl"])).exit_code == 0
    payload = json.loads(run("--json").output)
    assert payload["software"] == [{"attempt": 1, "with": software()}]
    assert payload["software"][0]["with"]["libraries"].keys() >= {"numpy", "torch", "scipy"}
    files["model.json"].write_text(answer.text.replace(released.model, "mdl_other").replace('"theta":[', '"theta":[1,'))
    other = run("--model", str(files["model.json"]))
    assert (other.exit_code, "the model is not the one" in other.output) == (1, True)
    files["job.jws"].write_text(files["head.jws"].read_text()[:-9])
    assert run().exit_code == 1
    files["keys.json"].write_text("no")
    assert run().exit_code == 2


def test_a_real_federated_job_has_a_certificate_of_the_whole_and_of_each_client(
    service: Embedded, client: Client
) -> None:
    datasets = [service.upload(budget={"epsilon": "3", "delta": "1e-6"}) for _ in range(2)]
    asked = {
        "model": LOGISTIC,
        "optimizer": {"kind": "noisy_gd", "steps": 3},
        "privacy": {"mu": "0.5"},
        "inference": {"intervals": False},
    }
    job = client.wait(client.submit(asked, datasets=datasets).id)
    published = client.signing_keys()
    whole = check(client.certificate(job.id), published)
    export = httpx.get(
        f"{client.url}/v1/models/{job.model}/export?format=json", headers={"Authorization": f"Bearer {KEY}"}
    )
    released_as(whole, export.json())
    assert job.federation is not None
    assert job.federation.clients is not None
    for one, dataset in zip(job.federation.clients, datasets, strict=True):
        own = check(client.certificate(str(one.job)), published)
        part_of(own, whole)
        assert own.payload["dataset"]["id"] == dataset
        assert own.payload["software"] == [{"attempt": 1, "with": software()}]
        assert own.payload["promise"]["zero_out"]["mu"] == "0.5"
        contained(own, list(client.entries(str(own.scope))))


def test_keys_are_public_and_a_rotation_needs_no_restart(service: Embedded, released: Released, client: Client) -> None:
    answer = httpx.get(f"{service.url}/.well-known/jwks.json")  # no API key
    assert answer.status_code == 200
    assert all("d" not in one for one in answer.json()["keys"])
    before = client.certificate(released.job.id)
    rotate_signing_key(service.home / "signing.key", check(before, answer.json()).at)
    after, published = client.certificate(released.job.id), client.signing_keys()
    assert len(published["keys"]) == len(answer.json()["keys"]) + 1
    assert check(before, published).key != check(after, published).key
    with pytest.raises(BadCertificateError, match="none of"):
        check(after, answer.json())
