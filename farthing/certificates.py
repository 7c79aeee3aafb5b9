"""Certificates and signed heads checked by whoever holds them: no service is asked, and none is trusted.

Each is a JWS in compact form, signed with Ed25519. The public keys are the installation's JWK Set
(`Client.signing_keys`), which should have come another way than the certificate, or have been kept from before. What
the text says of itself decides nothing: neither a key in its header nor an algorithm of its choice is looked at.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from joserfc.registry import HeaderParameter

from farthing.chain import BrokenChainError, follow
from farthing.views import Entry

ALGORITHM: Final = "Ed25519"
KINDS: Final = {"farthing-certificate": "certificate", "farthing-head": "head"}
VERSION: Final = 1
MOST_BYTES: Final = 4 * 2**20
MOVES: Final = {
    "reserve": ("reserved", "reserved", 1),
    "spend": ("spent", "spent", 1),
    "charge": ("spent", "spent", 1),
    "settle": ("returned", "reserved", -1),
    "compensate": ("corrected", "spent", -1),
}
"""Which amount of a certificate a kind of entry adds to, by which of its movements, and with which sign."""
_HEADER: Final = {"alg", "iat", "kid", "typ"}

Keys = Mapping[str, Any]
"""A JWK Set with its issuer, as `/.well-known/jwks.json` shows it."""


class BadCertificateError(ValueError):
    """It is not what it says, or not of this installation, or does not go with what is known."""


@dataclass(frozen=True)
class Signed:
    """A certificate, or a signed head, whose signature is good."""

    kind: str
    """certificate or head."""
    payload: Mapping[str, Any]
    key: str
    """The name of the key that signed it."""
    at: int
    """When it was signed, seconds since the epoch, by the installation's word."""

    @property
    def scope(self) -> str | None:
        """Whose ledger it speaks of; None: of several, as a federated job's."""
        if self.kind == "head":
            return str(self.payload["scope"])
        return str(self.payload["scope"]["id"]) if "scope" in self.payload else None

    @property
    def places(self) -> dict[int, str]:
        """The ledger's entries that it names: their hashes by number; 0 is the place before the first."""
        if self.kind == "head":
            return {int(self.payload["seq"]): str(self.payload["hash"])}
        told = self.payload.get("ledger", {})
        return {int(told[name]["seq"]): str(told[name]["hash"]) for name in ("before", "first", "last") if name in told}


def check(text: str, keys: Keys) -> Signed:
    """Return what a certificate or a signed head says, if one of these keys signed it while it was in use.

    Args:
        text: the JWS.
        keys: of the installation that it should be of.

    Raises:
        BadCertificateError: the text says what is wrong.
    """
    known = _by_name(keys)
    text = text.strip()
    if len(text) > MOST_BYTES:
        raise BadCertificateError("it is longer than any certificate")
    registry = jws.JWSRegistry(header_registry={"iat": HeaderParameter("when", "int")}, algorithms=[ALGORITHM])
    registry.max_payload_length = MOST_BYTES
    try:
        header = jws.extract_compact(text.encode("ascii"), registry=registry).protected
        if set(header) != _HEADER or header["alg"] != ALGORITHM or header["typ"] not in KINDS:
            raise BadCertificateError("its header is not that of a certificate, signed with Ed25519")
        if header["kid"] not in known:
            raise BadCertificateError(f"it is signed by key {header['kid']}, which is none of {', '.join(known)}")
        key, jwk = known[header["kid"]]
        content = jws.deserialize_compact(text, key, registry=registry).payload
    except (JoseError, UnicodeError, ValueError, TypeError) as error:
        if isinstance(error, BadCertificateError):
            raise
        raise BadCertificateError("it was changed, or is no certificate: its signature does not hold") from None
    if not jwk.get("nbf", 0) <= header["iat"] <= jwk.get("exp", header["iat"]):
        raise BadCertificateError(f"key {header['kid']} was not in use when it says that it was signed")
    return Signed(KINDS[header["typ"]], _read(content, KINDS[header["typ"]], keys), header["kid"], header["iat"])


def _by_name(keys: Keys) -> dict[str, tuple[OKPKey, Mapping[str, Any]]]:
    """Return an installation's keys by their names, which must be their thumbprints."""
    try:
        read = [(OKPKey.import_key({name: jwk[name] for name in ("kty", "crv", "x")}), jwk) for jwk in keys["keys"]]
        wrong = [jwk for key, jwk in read if key.thumbprint() != jwk["kid"] or jwk["crv"] != ALGORITHM]
        issuer = keys["issuer"]
    except (JoseError, KeyError, TypeError, ValueError):
        raise BadCertificateError(
            "these are no keys of an installation: give what `farthing certificate keys` shows"
        ) from None
    if wrong or not isinstance(issuer, str):
        raise BadCertificateError("a key is not the one that it is called by")
    return {str(jwk["kid"]): (key, jwk) for key, jwk in read}


def _read(content: bytes, kind: str, keys: Keys) -> Mapping[str, Any]:
    """Return a payload that is of a known form and of the keys' installation."""
    try:
        payload = json.loads(content)
        is_canonical = _canonical(payload) == content.decode("ascii")
    except (ValueError, RecursionError):
        is_canonical, payload = False, None
    if not is_canonical or not isinstance(payload, dict) or payload.get("object") != kind:
        raise BadCertificateError(f"what was signed is no {kind}")
    if payload.get("version") != VERSION:
        raise BadCertificateError(f"it is of version {payload.get('version')}, and this program reads {VERSION}")
    if payload.get("issuer") != keys["issuer"]:
        raise BadCertificateError(f"it is of installation {payload.get('issuer')}, not of {keys['issuer']}")
    return payload


def extends(newer: Signed, older: Signed, entries: Sequence[Entry] | None = None) -> None:
    """Make sure that one ledger has what both name; with its entries, that it really has.

    Args:
        newer: what was just had.
        older: what was kept from before; the ledger has to have gone on from there.
        entries: all entries of the ledger; None: only what both say themselves is compared.

    Raises:
        BadCertificateError: the ledger has another history, was put back, or its entries were not given where they
            are needed to tell.
    """
    if newer.scope is None or newer.scope != older.scope:
        raise BadCertificateError("they are not of the same ledger")
    if newer.kind == older.kind == "head" and max(newer.places) < max(older.places):
        raise BadCertificateError(
            f"the ledger was put back: it has {max(newer.places)} entries, and had {max(older.places)}"
        )
    for seq in newer.places.keys() & older.places.keys():
        if newer.places[seq] != older.places[seq]:
            raise BadCertificateError(f"the ledger has another history: entry {seq} is not the one that was signed")
    if entries is not None:
        for signed in (older, newer):
            contained(signed, entries)
    elif not newer.places.keys() & older.places.keys():
        raise BadCertificateError("only the ledger's entries can tell: give them, as `farthing entries --json` prints")


def contained(signed: Signed, entries: Sequence[Entry]) -> None:
    """Make sure that a ledger's chain is whole and has what a certificate or a head says of it.

    Raises:
        BadCertificateError: it is not, or has not.
    """
    try:
        found = follow(entries)
    except BrokenChainError as broken:
        raise BadCertificateError(f"this ledger is not whole: {broken}") from None
    if found.scope != signed.scope:
        raise BadCertificateError(f"this is the ledger of {found.scope}, not of {signed.scope}")
    for seq, told in signed.places.items():
        if found.hashes.get(seq) != told:
            raise BadCertificateError(f"entry {seq} of this ledger is not the one that was signed")
    if signed.kind == "certificate":
        _agrees(signed.payload, entries)


def _agrees(payload: Mapping[str, Any], entries: Iterable[Entry]) -> None:
    """Make sure that the ledger says of a job what its certificate does."""
    job, scope, last = payload["job"]["id"], payload["scope"]["id"], payload["ledger"]["last"]["seq"]
    orders = len(payload["scope"]["orders"])
    bodies = [json.loads(entry.body) for entry in entries if entry.job == job and entry.seq <= last]
    sums = dict.fromkeys(payload["nano_nats"], [0] * orders)
    runs: list[list[Any]] = []
    for body in (one for one in bodies if one["kind"] in MOVES):
        told, name, sign = MOVES[body["kind"]]
        moved = body["accounts"][scope][name][:orders]
        sums[told] = [one + sign * more for one, more in zip(sums[told], moved, strict=True)]
        runs += body["event"] if told == "spent" else []
    if sums != payload["nano_nats"] or _flat(runs) != _flat(payload["events"]["charged"]):
        raise BadCertificateError(f"the ledger says something else of {job} than its certificate")


def _flat(runs: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return runs of events with no two neighbours alike."""
    flat: list[list[Any]] = []
    for times, event in runs:
        if flat and flat[-1][1] == event:
            flat[-1][0] += times
        else:
            flat.append([times, event])
    return flat


def released(signed: Signed, model: Mapping[str, Any]) -> None:
    """Make sure that a model is the one that a certificate speaks of.

    Args:
        signed: a job's certificate.
        model: its export as JSON, whose member `released` has all that was released.

    Raises:
        BadCertificateError: it is another.
    """
    if (signed.payload.get("result") or {}).get("digest") != _digest(model.get("released")):
        raise BadCertificateError("the model is not the one that it speaks of")


def part_of(client: Signed, whole: Signed) -> None:
    """Make sure that the certificate of a federated job speaks of that of a client, in these very words.

    Raises:
        BadCertificateError: it does not.
    """
    if _digest(client.payload) not in {one["certificate"] for one in whole.payload.get("clients", ())}:
        raise BadCertificateError("the federated job's certificate does not speak of this one")


def _digest(value: object) -> str:
    return "sha256:" + sha256(_canonical(value).encode("ascii")).hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
