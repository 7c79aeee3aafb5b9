"""Certificates and signed heads checked by whoever holds them: no service is asked, and none is trusted.

Each is a JWS in compact form, signed with Ed25519. The public keys are the installation's JWK Set
(`Client.signing_keys`), which should have come another way than the certificate, or have been kept from before. The
text's own statements decide nothing: neither a key in its header nor an algorithm of its choice is looked at.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from joserfc.registry import HeaderParameter

from farthing.certificate_forms import Certificate, FederatedCertificate, Head, PublicKey, Told, read_keys, read_told
from farthing.certified_entries import canonical, differs, entries_of
from farthing.chain import BrokenChainError, follow
from farthing.schemas.ledger import EntryView

ALGORITHM: Final = "Ed25519"
KINDS: Final = {"farthing-certificate": "certificate", "farthing-head": "head"}
VERSION: Final = 1
MOST_BYTES: Final = 4 * 2**20
_COVERED: Final = {"format", "version", "model", "job", "released"}
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
    told: Told
    """The payload by its form."""

    @property
    def scope(self) -> str | None:
        """The scope of the ledger that it speaks of; None: of several, as a federated job's."""
        if isinstance(self.told, Head):
            return self.told.scope
        return self.told.scope.id if isinstance(self.told, Certificate) else None

    @property
    def places(self) -> dict[int, str]:
        """Hashes of the ledger's entries that the text names, by number; 0 is the place before the first entry."""
        if isinstance(self.told, FederatedCertificate):
            return {}
        named = [self.told] if isinstance(self.told, Head) else entries_of(self.told)
        return {place.seq: place.hash for place in named}


def check(text: str, keys: Keys) -> Signed:
    """Return what a certificate or a signed head says, if one of these keys signed it while it was in use.

    Args:
        text: the JWS.
        keys: of the installation that it should be of.

    Raises:
        BadCertificateError: the text says what is wrong.
    """
    issuer, known = _by_name(keys)
    text = text.strip()
    # Before anything is parsed: whoever hands in a certificate chooses its length.
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
        # It is a ValueError, too, and has words of its own.
        if isinstance(error, BadCertificateError):
            raise
        raise BadCertificateError("it was changed, or is no certificate: its signature does not hold") from None
    kind, at = KINDS[header["typ"]], header["iat"]
    # In Python a bool is an int, and JSON's true would pass for a time.
    if type(at) is not int or not jwk.nbf <= at <= jwk.exp:
        raise BadCertificateError(f"key {header['kid']} was not in use when it says that it was signed")
    payload = _read(content, kind, issuer)
    try:
        told = read_told(content, kind, is_whole="clients" in payload)
    except ValueError as fault:
        raise BadCertificateError(f"the signed text is no {kind}: {fault}") from None
    return Signed(kind, payload, header["kid"], at, told)


def _by_name(keys: Keys) -> tuple[str, dict[str, tuple[OKPKey, PublicKey]]]:
    """Return an installation and its keys by their names, which must be their thumbprints."""
    try:
        told = read_keys(keys)
        read = [(OKPKey.import_key(jwk.model_dump(include={"kty", "crv", "x"})), jwk) for jwk in told.keys]
    except (JoseError, ValueError) as fault:
        raise BadCertificateError(f"these are no keys of an installation: {fault}") from None
    if any(key.thumbprint() != jwk.kid for key, jwk in read):
        raise BadCertificateError("a key is not the one that it is called by")
    return told.issuer, {jwk.kid: (key, jwk) for key, jwk in read}


def _read(content: bytes, kind: str, issuer: str) -> Mapping[str, Any]:
    """Return a payload that is of a known form and of the keys' installation."""
    try:
        payload = json.loads(content)
        # A member that is there twice reads differently elsewhere; one canonical text excludes that.
        is_canonical = canonical(payload) == content.decode("ascii")
    except (ValueError, RecursionError):
        is_canonical, payload = False, None
    if not is_canonical or not isinstance(payload, dict) or payload.get("object") != kind:
        raise BadCertificateError(f"the signed text is no {kind}")
    if payload.get("version") != VERSION:
        raise BadCertificateError(f"it is of version {payload.get('version')}, and this program reads {VERSION}")
    if payload.get("issuer") != issuer:
        raise BadCertificateError(f"it is of installation {payload.get('issuer')}, not of {issuer}")
    return payload


def extends(newer: Signed, older: Signed, entries: Sequence[EntryView] | None = None) -> None:
    """Make sure that one ledger has what both name; with its entries, that it really has.

    Args:
        newer: the signed text that was just received.
        older: the signed text that was kept from before; the ledger has to have gone on from there.
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
    # A hash covers all entries before it, so one common entry settles the history up to there.
    for seq in newer.places.keys() & older.places.keys():
        if newer.places[seq] != older.places[seq]:
            raise BadCertificateError(f"the ledger has another history: entry {seq} is not the one that was signed")
    if entries is not None:
        for signed in (older, newer):
            contained(signed, entries)
    elif not newer.places.keys() & older.places.keys():
        raise BadCertificateError("only the ledger's entries can tell: give them, as `farthing entries --json` prints")


def contained(signed: Signed, entries: Sequence[EntryView]) -> None:
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
    if not isinstance(signed.told, Certificate):
        return
    try:
        said = differs(signed.told, signed.payload, entries)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as fault:
        raise BadCertificateError(f"this ledger's entries cannot be read ({type(fault).__name__})") from None
    if said is not None:
        raise BadCertificateError(f"the ledger says something else than the certificate of {said}")


def released(signed: Signed, model: Mapping[str, Any]) -> None:
    """Make sure that a model is the one that a certificate speaks of.

    Args:
        signed: a job's certificate.
        model: its export as JSON. A certificate that an earlier release signed covers the member `released` alone: of a
            file with more than that and its names, it says nothing.

    Raises:
        BadCertificateError: it is another, or has members that the certificate does not cover.
    """
    told = signed.payload.get("result") or {}
    if told.get("digest") != _digest(model.get("released")):
        raise BadCertificateError("the model is not the one that it speaks of")
    if told.get("export") is None and set(model) - _COVERED:
        beside = ", ".join(sorted(set(model) - _COVERED))
        raise BadCertificateError(f"it does not cover {beside} of this file: have the certificate anew")
    if told.get("export") not in (None, _digest(model)):
        raise BadCertificateError("the model is not the one that it speaks of: its file was changed beside `released`")


def of_job(signed: Signed, job: str) -> None:
    """Make sure that a certificate is of a job, not of another whose certificate is as good.

    Raises:
        BadCertificateError: it is of another, or is none.
    """
    if isinstance(signed.told, Head) or signed.told.job.id != job:
        raise BadCertificateError(f"it is not of {job}")


def part_of(client: Signed, whole: Signed) -> None:
    """Make sure that the certificate of a federated job speaks of that of a client, in these very words.

    Raises:
        BadCertificateError: it does not.
    """
    if _digest(client.payload) not in {one["certificate"] for one in whole.payload.get("clients", ())}:
        raise BadCertificateError("the federated job's certificate does not speak of this one")


def _digest(value: object) -> str:
    return "sha256:" + sha256(canonical(value).encode("ascii")).hexdigest()
