"""The reader alone refuses forged certificates and signed heads: no service is asked."""

import base64
import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import OKPKey
from rich.console import Console
from typer.testing import CliRunner

from core.base.errors import NotReady
from core.base.version import software
from core.ledger.signing import SigningKeys, parse_signing_keys, rotate_signing_key
from farthing import Client
from farthing.certificates import BadCertificateError, Signed, check, contained, extends, part_of
from farthing.certificates import released as released_as
from farthing.chain import GENESIS
from farthing.cli import app
from farthing.proving import shown
from farthing.schemas.ledger import EntryView
from tests.farthing.conftest import Released
from tests.support.embedded import KEY, LOGISTIC, Embedded

ISSUER = "inst_one"
SEED = bytes(range(32))
AA = "sha256:" + 32 * "aa"


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def keys(seed: bytes = SEED, since: int = 1000) -> SigningKeys:
    return parse_signing_keys(f"{base64.b64encode(seed).decode()} {since}\n")


def head(seq: int = 3, told: str = AA, **changes: Any) -> str:
    """Return the payload of a signed head."""
    said = {"object": "head", "version": 1, "issuer": ISSUER, "scope": "sc_a", "seq": seq, "hash": told} | changes
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def signed(payload: str | None = None, *, at: float = 2000, by: SigningKeys | None = None) -> str:
    return (by or keys()).sign("farthing-head", payload or head(), at)


PUBLISHED = keys().published(ISSUER)


def test_what_was_signed_is_read() -> None:
    found = check(signed() + "\n", PUBLISHED)
    assert (found.kind, found.scope, found.places, found.at) == ("head", "sc_a", {3: AA}, 2000)
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
        (head(object="certificate"), "the signed text is no head"),
        (head().replace(",", ", "), "the signed text is no head"),
        (head().replace('"seq":3', '"seq":3,"seq":9'), "the signed text is no head"),
        ("[" * 5000 + "]" * 5000, "the signed text is no head"),
        ("null", "the signed text is no head"),
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


def test_of_keys_that_are_none_the_field_and_the_fix_are_named() -> None:
    key = PUBLISHED["keys"][0]
    wrong: dict[str, dict[str, Any]] = {"/keys/0/nbf": {"nbf": "1000"}, "/keys/0/exp": {"exp": None}}
    wrong |= {"/keys/0/crv": {"crv": "P-256"}, "/keys/0/x": {"x": "AAAA"}, "/keys/0/kid": {"kid": 5}}
    for field, change in wrong.items():
        with pytest.raises(BadCertificateError, match=f"{field}: give "):
            check(signed(), PUBLISHED | {"keys": [key | change]})
    for field, more in {"nbf": True, "exp": 1.5}.items():
        with pytest.raises(BadCertificateError, match=f"/keys/0/{field}: give whole seconds since 1970"):
            check(signed(), PUBLISHED | {"keys": [key | {field: more}]})
    with pytest.raises(BadCertificateError, match="/keys: give a list of one key or more"):
        check(signed(), PUBLISHED | {"keys": []})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FUZZ = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a value, with each key that it has."""
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield value, name
        yield from places_in(inner)


def mutated(value: Any, data: st.DataObject) -> Any:
    """Return a copy of which one place or two are something else, or gone."""
    changed = json.loads(json.dumps(value))
    for _ in range(data.draw(st.integers(1, 2))):
        places = list(places_in(changed))
        if not places:
            return data.draw(ANYTHING)
        where, name = data.draw(st.sampled_from(places))
        if data.draw(st.integers(0, 4)):
            where[name] = data.draw(ANYTHING)
        else:
            del where[name]
    return changed


def is_refused(read: Callable[[], object], refusal: type[Exception]) -> bool:
    """Say whether a reader refuses, in words; any other exception fails the test."""
    try:
        read()
    except refusal as refused:
        return bool(str(refused))
    return False


@FUZZ
@given(data=st.data())
def test_whatever_a_file_of_public_keys_holds_is_read_or_refused(data: st.DataObject) -> None:
    wrong = mutated(PUBLISHED, data) if data.draw(st.booleans()) else data.draw(ANYTHING)
    text = signed()
    if not is_refused(
        lambda: check(text, wrong), BadCertificateError
    ):  # then nothing that it says differs for this one
        (key,) = (one for one in wrong["keys"] if one["kid"] == PUBLISHED["keys"][0]["kid"])
        assert (key["x"], wrong["issuer"]) == (PUBLISHED["keys"][0]["x"], ISSUER)
        assert key.get("nbf", 0) <= 2000 <= key.get("exp", 2000)


@FUZZ
@given(data=st.data())
def test_whatever_is_signed_is_read_shown_and_compared_or_refused(data: st.DataObject) -> None:
    """The issuer's own key signs it: a faulty service, or one that means harm."""
    entries = ledger()
    kind, told = data.draw(
        st.sampled_from([("certificate", payload(entries)), ("certificate", WHOLE), ("head", json.loads(head()))])
    )
    said = mutated(told, data)
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return
    text = keys().sign(f"farthing-{kind}", text, 2000)
    if not is_refused(lambda: check(text, PUBLISHED), BadCertificateError):
        found = check(text, PUBLISHED)
        Console(file=StringIO()).print(shown(found))
        is_refused(lambda: contained(found, entries), BadCertificateError)
        is_refused(lambda: extends(found, at(entries, 4), entries), BadCertificateError)
        is_refused(lambda: released_as(found, {"released": 1}), BadCertificateError)
        is_refused(lambda: part_of(found, found), BadCertificateError)


@FUZZ
@given(text=st.text(max_size=80) | st.binary(max_size=80).map(b64), at_place=st.integers(0, 200), cut=st.integers(0, 9))
def test_whatever_text_is_no_certificate_is_refused(text: str, at_place: int, cut: int) -> None:
    good = signed()
    for wrong in (text, good[:at_place] + text + good[at_place + cut :]):
        if not is_refused(lambda wrong=wrong: check(wrong, PUBLISHED), BadCertificateError):  # type: ignore[misc]
            assert wrong.strip() == good


@FUZZ
@given(data=st.data())
def test_whatever_a_file_of_entries_holds_is_followed_or_refused(data: st.DataObject) -> None:
    entries = ledger()
    certificate, told = certified(payload(entries)), mutated(bodies(), data)
    if not isinstance(told, list) or not all(isinstance(body, dict) for body in told):
        return
    try:
        wrong = chained(told)
    except ValueError:  # no entry at all: the file is refused as it is read
        return
    if not is_refused(lambda: contained(certificate, wrong), BadCertificateError):
        assert wrong[:5] == entries


LINE = st.sampled_from(["retired", "-", "1000", "3000", b64(SEED), base64.b64encode(SEED).decode()]) | st.text(
    max_size=50
)


@FUZZ
@given(lines=st.lists(st.lists(LINE, max_size=5).map(" ".join), max_size=3))
def test_whatever_the_signing_key_s_file_holds_makes_good_signatures_or_is_refused(lines: list[str]) -> None:
    for text in ("\n".join(lines), "\n".join([f"{base64.b64encode(SEED).decode()} 1000", *lines])):
        if not is_refused(lambda text=text: parse_signing_keys(text), NotReady):  # type: ignore[misc]
            found = parse_signing_keys(text)
            assert (
                check(signed(by=found, at=max(2000, found.public.since or 0)), found.published(ISSUER)).scope == "sc_a"
            )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("no", "Line 1 of the signing key's file, the key: give 32 bytes in base64"),
        (f"{base64.b64encode(SEED).decode()} soon", "Line 1 .*, since: give whole seconds since 1970"),
        (f"{base64.b64encode(SEED).decode()} 1 2", "Line 1 .*, the key: give one private key"),
        (f"{base64.b64encode(SEED).decode()} 1\n\nretired {b64(SEED)} 9", 'Line 3 .*, the words: give "retired"'),
        (f"{base64.b64encode(SEED).decode()} 1\nretired {b64(SEED)}! 1 9", "Line 2 .*, the public key: give 32 bytes"),
        (f"{base64.b64encode(SEED).decode()} 1\nretired {b64(SEED)} - 1.5", "Line 2 .*, until: give whole seconds"),
        (f"{base64.b64encode(SEED).decode()} 1\nretired {b64(SEED)} 9 1", "Line 2 .*, until: give a time that is not"),
    ],
)
def test_of_a_signing_key_s_file_the_line_the_field_and_the_fix_are_named(text: str, why: str) -> None:
    with pytest.raises(NotReady, match=why):
        parse_signing_keys(text)


def test_another_installation_s_certificate_is_refused_even_under_a_copied_key() -> None:
    with pytest.raises(BadCertificateError, match="not of inst_two"):
        check(signed(), keys().published("inst_two"))


# Histories -----------------------------------------------------------------------------------------------------------


TERMS = {"epsilon": "1", "delta": "1e-6", "orders": [9], "weights": ["0.699"], "caps_nano": [100]}
SCHEDULE = [[2, {"kind": "gaussian", "sigma": 20.0}]]


def bodies(scope: str = "sc_a", spent: int = 5) -> list[dict[str, Any]]:
    """Return a small ledger: terms, records, a reservation, a payment, and what was left of it."""
    terms = {"terms": TERMS, "adjacency": "zero_out", "units": 700, "unit": "record"}
    told: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("open", {}, terms),
        ("upload", {}, {"dataset": "ds_a", "fingerprint": "fp_a", "rows": 700}),
        ("reserve", {"reserved": [9]}, {"schedule": SCHEDULE, "dataset": "ds_a"}),
        ("spend", {"spent": [spent], "reserved": [-spent]}, {"event": [[1, SCHEDULE[0][1]]]}),
        ("settle", {"reserved": [spent - 9]}, {"reason": "succeeded"}),
    ]
    made = []
    for seq, (kind, moved, more) in enumerate(told, start=1):
        job = "job_a" if moved else None
        accounts = {scope: {"spent": [0], "reserved": [0]} | moved} if moved else {}
        body: dict[str, Any] = {"v": 1, "scope": scope, "seq": seq, "kind": kind, "job": job, "accounts": accounts}
        made.append(body | {"attempt": None, "chunk": None, "at": 0} | more)
    return made


def chained(told: Sequence[Mapping[str, Any]]) -> list[EntryView]:
    """Return entries with these bodies, whose every hash is right."""
    made, previous = [], GENESIS
    for body in told:
        text = json.dumps(body)
        digest = "sha256:" + sha256(f"{previous}\n{text}".encode()).hexdigest()
        columns = {"seq": 1, "kind": "open"} | {name: body.get(name) for name in ("job", "attempt", "chunk")}
        columns |= {name: body[name] for name in ("seq", "kind") if name in body}
        made.append(EntryView(**columns, body=text, prev_hash=previous, hash=digest, created_at="2026-11-22"))
        previous = digest
    return made


def ledger(scope: str = "sc_a", spent: int = 5) -> list[EntryView]:
    return chained(bodies(scope, spent))


def at(entries: list[EntryView], seq: int) -> Signed:
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
    with pytest.raises(BadCertificateError, match="entry 4 of this ledger is not the one that was signed"):
        extends(at(other, 5), at(entries, 4), other)  # every hash and sum of the new history is right
    with pytest.raises(BadCertificateError, match="not whole: entry 3: it is missing"):
        extends(at(entries, 4), at(entries, 2), [*entries[:2], entries[3]])
    elsewhere = ledger("sc_b")
    with pytest.raises(BadCertificateError, match="not of the same ledger"):
        extends(check(signed(head(4, elsewhere[3].hash, scope="sc_b")), PUBLISHED), at(entries, 4))
    with pytest.raises(BadCertificateError, match="the ledger of sc_b"):
        contained(at(entries, 4), elsewhere)


def place(entries: list[EntryView], seq: int) -> dict[str, Any]:
    return {"seq": seq, "hash": entries[seq - 1].hash}


def payload(entries: list[EntryView]) -> dict[str, Any]:
    """Return what the certificate of the job in `ledger` says."""
    terms = {name: at for name, at in TERMS.items() if name != "declared"}
    figures = {"epsilon": "0.1", "delta": "1e-6", "rho": None, "mu": "0.05"}
    places = (("before", 2), ("first", 3), ("last", 5))
    return {
        "object": "certificate",
        "version": 1,
        "issuer": ISSUER,
        "job": {"id": "job_a", "state": "succeeded", "error": None},
        "method": {"optimizer": {"kind": "noisy_gd"}},
        "result": None,
        "dataset": {"id": "ds_a", "fingerprint": "fp_a", "rows": 700, "entry": place(entries, 2)},
        "scope": {"id": "sc_a", "unit": "record", "adjacency": "zero_out", "units": 700, **terms},
        "events": {"reserved": SCHEDULE, "charged": [[1, SCHEDULE[0][1]]]},
        "nano_nats": {"reserved": [9], "spent": [5], "returned": [4], "corrected": [0]},
        "promise": {"label": "informational", "zero_out": figures, "replace_one": None},
        "software": [{"attempt": 1, "with": None}],
        "ledger": {name: place(entries, seq) for name, seq in places} | {"reconciled": []},
    }


WHOLE = {name: payload(ledger())[name] for name in ("object", "version", "issuer", "job", "method", "result")} | {
    "clients": [{"place": 0, "state": "succeeded", "certificate": AA}]
}


def certified(told: Mapping[str, Any]) -> Signed:
    """Return a certificate that says so."""
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return check(keys().sign("farthing-certificate", text, 2000), PUBLISHED)


LIES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a smaller amount": (lambda told: told["nano_nats"].update(spent=[4]), "draws and cost of job_a"),
    "weaker noise": (
        lambda told: told["events"].update(charged=[[1, {"kind": "gaussian", "sigma": 90.0}]]),
        "draws and cost of job_a",
    ),
    "a smaller reservation": (
        lambda told: told["events"].update(reserved=[[1, SCHEDULE[0][1]]]),
        "draws and cost of job_a",
    ),
    "another end": (lambda told: told["job"].update(state="failed"), "request and release of job_a"),
    "another job asked": (
        lambda told: told.update(entries={"spec": AA, "release": None}),
        "request and release of job_a",
    ),
    "another model": (lambda told: told.update(entries={"spec": None, "release": AA}), "request and release of job_a"),
    "another fingerprint": (lambda told: told["dataset"].update(fingerprint="fp_b"), "the records that came"),
    "more rows": (lambda told: told["dataset"].update(rows=7000), "the records that came"),
    "records without an entry": (lambda told: told["dataset"].update(entry=None), "the records that came"),
    "another dataset": (
        lambda told: told["dataset"].update(id="ds_b", fingerprint=None, rows=None, entry=None),
        "the records that job_a reads",
    ),
    "a smaller epsilon": (lambda told: told["scope"].update(epsilon="0.1"), "the owner of the budget"),
    "a smaller delta": (lambda told: told["scope"].update(delta="1e-9"), "the owner of the budget"),
    "smaller caps": (lambda told: told["scope"].update(caps_nano=[10]), "the owner of the budget"),
    "other orders": (lambda told: told["scope"].update(orders=[8]), "the owner of the budget"),
    "other weights": (lambda told: told["scope"].update(weights=["0.7"]), "the owner of the budget"),
    "the other adjacency": (lambda told: told["scope"].update(adjacency="replace_one"), "the owner of the budget"),
    "more people": (lambda told: told["scope"].update(units=7000), "the owner of the budget"),
    "another unit": (lambda told: told["scope"].update(unit={"user": "id", "most": 3}), "the owner of the budget"),
    "another job": (lambda told: told["job"].update(id="job_b"), "cannot be read"),
    "an end before the end": (
        lambda told: told["ledger"].update(last=place(ledger(), 4)),
        "the entries about job_a",
    ),
    "a later beginning": (lambda told: told["ledger"].update(first=place(ledger(), 4)), "the entries about job_a"),
}


@pytest.mark.parametrize(("change", "why"), LIES.values(), ids=LIES.keys())
def test_a_certificate_that_says_something_else_than_its_ledger_is_found_out(
    change: Callable[[dict[str, Any]], None], why: str
) -> None:
    """Its signature is good, and every hash that it names is one of the ledger."""
    entries = ledger()
    told = payload(entries)
    contained(certified(told), entries)
    change(told)
    with pytest.raises(BadCertificateError, match=why):
        contained(certified(told), entries)


def test_a_gap_that_is_left_out_is_found_out() -> None:
    start, records, *rest = bodies()
    gap = records | {"kind": "unwitnessed", "since": 3.0, "until": 9.0}
    told = [start, records, gap, *rest]
    entries = chained([body | {"seq": seq} for seq, body in enumerate(told, start=1)])
    said = payload(entries)
    said["ledger"] = {name: place(entries, seq) for name, seq in (("before", 3), ("first", 4), ("last", 6))}
    said["ledger"]["reconciled"] = [place(entries, 3) | {"kind": "unwitnessed", "since": 3.0, "until": 9.0}]
    contained(certified(said), entries)
    said["ledger"]["reconciled"] = []
    with pytest.raises(BadCertificateError, match="times in which payments may be missing"):
        contained(certified(said), entries)


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
    assert run("--job", released.job.id).exit_code == 0
    other = run("--job", "job_another")
    assert (other.exit_code, "it is not of job_another" in other.output) == (1, True)
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
        f"{client.url}/v1/models/{job.released}/export?format=json", headers={"Authorization": f"Bearer {KEY}"}
    )
    released_as(whole, export.json())
    assert job.federation is not None
    assert job.federation.sites is not None
    for one, dataset in zip(job.federation.sites, datasets, strict=True):
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
