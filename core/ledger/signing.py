"""The key by which this installation signs what it says of jobs and ledgers; it is in no database and no backup.

It is a file of lines, `home/signing.key` unless FARTHING_SIGNING_KEY_FILE names another. The first line signs: the
base64 of 32 random bytes, an Ed25519 private key (RFC 8032), and since when, which a line made by hand leaves out. The
lines below are public keys that signed before it, each with its time: their private halves are gone, and what they
signed can still be checked. Public keys are published from this file alone, for whoever could write them into the
database could sign with a key of his own.

A signature is a JWS in compact form (RFC 7515, RFC 8037, RFC 9864), its algorithm Ed25519. When it was made stands in
its header, so that the payload of one thing said twice is the same bytes.
"""

import base64
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from joserfc import jws
from joserfc.jwk import OKPKey
from joserfc.registry import HeaderParameter
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import NotReady
from core.base.files import create, replace, sync_folder
from core.base.identifiers import new_id
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.service_tables import Secret
from core.ledger.claims import put_secret

ALGORITHM: Final = "Ed25519"
INSTALLATION: Final = "installation"
RETIRED: Final = "retired"
_KEY_BYTES: Final = 32
_WORDS: Final = 4
_SECONDS: Final = re.compile(r"[0-9]{1,11}")
_NEEDED: Final = (
    "Give it as FARTHING_SIGNING_KEY_FILE, a file with the base64 of 32 random bytes in a line (`openssl rand -base64 "
    "32`). Jobs run without it; certificates and signed heads do not."
)


@dataclass(frozen=True)
class PublicKey:
    """A key by which signatures are checked, and when it signed: seconds since the epoch, None where not known."""

    x: str
    """The 32 bytes of an Ed25519 public key, base64url."""
    since: int | None
    until: int | None = None
    """None: it still signs."""

    @property
    def kid(self) -> str:
        """Its name: its JWK thumbprint (RFC 7638), so that no other key can have it."""
        return str(OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": self.x}).thumbprint())

    @property
    def jwk(self) -> dict[str, Any]:
        """It as a JWK; `nbf` and `exp` are when it began and ceased to sign."""
        made = {"kty": "OKP", "crv": "Ed25519", "x": self.x, "kid": self.kid, "use": "sig", "alg": ALGORITHM}
        times = {"nbf": self.since, "exp": self.until}
        return made | {name: at for name, at in times.items() if at is not None}


@dataclass(frozen=True)
class SigningKeys:
    """The content of a file of keys: the one that signs, and earlier ones."""

    seed: bytes = field(repr=False)
    public: PublicKey
    retired: tuple[PublicKey, ...]

    def sign(self, kind: str, payload: str, at: float) -> str:
        """Return a payload signed, in compact form.

        Args:
            kind: `typ` of the header, so that what is said of one kind of thing is not taken for another.
            payload: canonical JSON.
            at: seconds since the epoch, by the database's clock.
        """
        header = {"alg": ALGORITHM, "iat": int(at), "kid": self.public.kid, "typ": kind}
        # joserfc refuses header members and algorithms that its registry does not list.
        numbers = {"iat": HeaderParameter("when it was signed", "int")}
        registry = jws.JWSRegistry(header_registry=numbers, algorithms=[ALGORITHM])
        private = OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": self.public.x, "d": _text(self.seed)})
        return jws.serialize_compact(header, payload, private, registry=registry)

    def published(self, issuer: str) -> dict[str, Any]:
        """Return all public keys as a JWK Set (RFC 7517), with the installation that they are of."""
        return {"issuer": issuer, "keys": [key.jwk for key in (self.public, *self.retired)]}


def installation(database: Database) -> str:
    """Return what this installation is called in all that it signs, drawn at first use."""

    def made(session: Session) -> str:
        put_secret(session, INSTALLATION, new_id("inst"), keep=True)
        return session.execute(select(Secret.value).where(Secret.name == INSTALLATION)).scalar_one()

    with database.read() as session:
        found = session.execute(select(Secret.value).where(Secret.name == INSTALLATION)).scalar_one_or_none()
    return found or database.transaction(made)


def load_signing_keys(settings: ServiceSettings) -> SigningKeys:
    """Return the keys that the file holds; read anew each time, so that a rotation needs no restart.

    Raises:
        NotReady: there is no file, or what is in it are no keys; the text says how to make one.
    """
    try:
        return parse_signing_keys(settings.signing_key_path.read_text(encoding="ascii"))
    except FileNotFoundError:
        raise NotReady(f"The signing key is missing. {_NEEDED}") from None
    # `from None`: a UnicodeDecodeError holds the bytes of the file, the key among them.
    except (OSError, UnicodeDecodeError) as error:
        raise NotReady(f"The signing key's file cannot be read ({type(error).__name__}). {_NEEDED}") from None


def parse_signing_keys(text: str) -> SigningKeys:
    """Return the keys in a text: one that signs in its first line, retired ones below.

    Raises:
        NotReady: a line is none of these; the text names the line, the field and what to give.
    """
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise NotReady(f"The signing key's file is empty. {_NEEDED}")
    (first, words), *others = lines
    if len(words) > 2:  # noqa: PLR2004 - a key, and since when
        raise _wrong(first, "the key", "one private key and the time since when it signs, or the key alone")
    secret = _decoded(first, "the key", words[0])
    key = PublicKey(_public(secret), _time(first, "since", words[1]) if words[1:] else None)
    return SigningKeys(secret, key, tuple(_retired(number, line) for number, line in others))


def _wrong(number: int, name: str, fix: str) -> NotReady:
    return NotReady(f"Line {number} of the signing key's file, {name}: give {fix}. {_NEEDED}")


def _decoded(number: int, name: str, text: str, kind: str = "base64") -> bytes:
    """Return the 32 bytes of a key; `kind` is how they are written."""
    standard = text if kind == "base64" else text.replace("-", "+").replace("_", "/") + "="
    try:
        content = base64.b64decode(standard, validate=True)
    except ValueError:
        content = b""
    # Base64 ignores spare bits, so several texts decode to one key: only the canonical one counts.
    if len(content) != _KEY_BYTES or (kind != "base64" and _text(content) != text):
        raise _wrong(number, name, f"{_KEY_BYTES} bytes in {kind}")
    return content


def _time(number: int, name: str, text: str) -> int:
    """Return seconds since the epoch."""
    if not _SECONDS.fullmatch(text):
        raise _wrong(number, name, "whole seconds since 1970")
    return int(text)


def _retired(number: int, words: Sequence[str]) -> PublicKey:
    """Return what a line below the first says."""
    if len(words) != _WORDS or words[0] != RETIRED:
        raise _wrong(number, "the words", f'"{RETIRED}", a public key, since when and until when it signed')
    _, x, since, until = words
    _decoded(number, "the public key", x, "base64url")
    began = None if since == "-" else _time(number, "since", since)
    ended = _time(number, "until", until)
    if began is not None and began > ended:
        raise _wrong(number, "until", "a time that is not before since")
    return PublicKey(x, began, ended)


def prepare_signing_key(settings: ServiceSettings, at: float) -> bool:
    """Make a key where one machine has none yet, and say whether it was made; several machines are given theirs."""
    path = settings.signing_key_path
    if settings.cluster or path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with create(partial) as file:
        file.write(_written(secrets.token_bytes(_KEY_BYTES), int(at), ()))
        file.flush()
        # Synced before it has its name, so that a crash leaves no empty key there.
        os.fsync(file.fileno())
    try:
        os.link(partial, path)  # fails where a rival was first, whose key then is the one
    except FileExistsError:
        return False
    finally:
        partial.unlink()
    sync_folder(path.parent)
    return True


def rotate_signing_key(path: Path, at: float, *, leaked: bool = False) -> SigningKeys:
    """Put a fresh key in the place of the one that signs, atomically; the private half of that one is destroyed.

    Args:
        path: of the file, which must be there.
        at: seconds since the epoch.
        leaked: forget the public half as well: with a key that others have, they can sign for any past time, so
            nothing that it signed counts any more. Certificates can be had anew.
    """
    before = parse_signing_keys(path.read_text(encoding="ascii"))
    # `max`: after a clock was set back, `parse_signing_keys` would refuse a key that ends before it began.
    old = PublicKey(before.public.x, before.public.since, max(int(at), before.public.since or 0))
    retired = before.retired if leaked else (old, *before.retired)
    replace(path, _written(secrets.token_bytes(_KEY_BYTES), int(at), retired))
    return parse_signing_keys(path.read_text(encoding="ascii"))


def _public(seed: bytes) -> str:
    """Return the public half of a private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - who only asks for tables needs none

    return _text(Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())


def _written(seed: bytes, since: int, retired: tuple[PublicKey, ...]) -> bytes:
    lines = [f"{base64.b64encode(seed).decode()} {since}"]
    lines += [f"{RETIRED} {key.x} {'-' if key.since is None else key.since} {key.until}" for key in retired]
    return ("\n".join(lines) + "\n").encode()


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
