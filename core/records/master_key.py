"""The master key: it wraps each dataset's own key, and is in no database and no backup.

It comes from the environment or a file. A file may hold several keys, one a line: the first wraps, the others only
unwrap what is still under them, so that a key is replaced while the service runs. A wrapped key names its master key by
a fingerprint, so that a wrong one is distinguished from a damaged one before any use.
"""

import base64
import binascii
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.base.errors import NotReady
from core.base.files import create, replace, sync_folder
from core.base.settings import ServiceSettings
from core.records.encryption import KEY_BYTES, Tampered, new_key

_NONCE_BYTES: Final = 12
_VERSION: Final = "v1"
_NEEDED: Final = (
    "Give the master key as FARTHING_MASTER_KEY_FILE, a file with the base64 of 32 random bytes in a line "
    "(`openssl rand -base64 32`), or as FARTHING_MASTER_KEY."
)


@dataclass(frozen=True)
class MasterKey:
    """A key that wraps other keys."""

    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that name this key and tell nothing of it."""
        return self._derive("fingerprint").hex()[:16]

    def wrap(self, dataset_id: str, key: bytes) -> str:
        """Return a dataset's key encrypted, bound to that dataset."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + AESGCM(self._derive("wrap")).encrypt(nonce, key, _bound(dataset_id))
        return f"{_VERSION}.{self.fingerprint}.{base64.b64encode(sealed).decode()}"

    def unwrap(self, dataset_id: str, wrapped: str) -> bytes:
        """Return the key that was wrapped.

        Raises:
            Tampered: the text is not what `wrap` made for this dataset under this key.
        """
        try:
            version, _, text = wrapped.split(".")
            sealed = base64.b64decode(text, validate=True)
            if version != _VERSION:
                raise Tampered
            nonce = sealed[:_NONCE_BYTES]
            return AESGCM(self._derive("wrap")).decrypt(nonce, sealed[_NONCE_BYTES:], _bound(dataset_id))
        except (InvalidTag, ValueError):
            raise Tampered from None

    def of_groups(self) -> bytes:
        """Return the key by which processes of several machines know one another."""
        return self._derive("group")

    def of_codes(self) -> bytes:
        """Return the key of the codes that confirm email addresses."""
        return self._derive("email codes")

    def of_marks(self) -> bytes:
        """Return the key that authenticates marks of verified ledgers."""
        return self._derive("ledger marks")

    def _derive(self, purpose: str) -> bytes:
        """Return a key for one purpose, so that none is used for two."""
        return hmac.digest(self.secret, f"farthing master key: {purpose}".encode(), sha256)


@dataclass(frozen=True)
class MasterKeys:
    """The master keys of an installation: `current` wraps, all of them unwrap."""

    keys: tuple[MasterKey, ...]

    @property
    def current(self) -> MasterKey:
        """The key that wraps."""
        return self.keys[0]

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Of all keys, the current one first."""
        return tuple(key.fingerprint for key in self.keys)

    def unwrap(self, dataset_id: str, wrapped: str) -> bytes:
        """Return a dataset's key.

        Raises:
            NotReady: it is under none of these master keys.
            Tampered: it was changed, or is another dataset's.
        """
        name = fingerprint_of(wrapped)
        for key in self.keys:
            if key.fingerprint == name:
                return key.unwrap(dataset_id, wrapped)
        raise NotReady(wrong_key([name], self))


def fingerprint_of(wrapped: str) -> str:
    """Return the fingerprint of the master key that a wrapped key is under."""
    return wrapped.split(".")[1] if wrapped.count(".") == 2 else "unknown"  # noqa: PLR2004 - version, name, key


def wrong_key(names: Iterable[str], here: MasterKeys) -> str:
    """Say that records are under other master keys than those that are here."""
    return (
        f"Records are encrypted under master key {', '.join(sorted(set(names)))}, but the one here is "
        f"{', '.join(here.fingerprints)}: give the service the key that they were stored with."
    )


def load_master_keys(settings: ServiceSettings) -> MasterKeys:
    """Return the master keys that the environment or the file holds; read anew each time.

    Raises:
        NotReady: there is none, or what there is, is none; the text says how to give it.
    """
    if settings.master_key is not None:
        return parse_master_keys(settings.master_key)
    try:
        return parse_master_keys(settings.master_key_path.read_text(encoding="ascii"))
    except FileNotFoundError:
        raise NotReady(f"The master key is missing. {_NEEDED}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotReady(f"The master key's file cannot be read ({type(error).__name__}). {_NEEDED}") from None


def parse_master_keys(text: str) -> MasterKeys:
    """Return the keys in a text, one a line.

    Raises:
        NotReady: a line is not the base64 of 32 bytes, or there is none.
    """
    try:
        found = [base64.b64decode(line, validate=True) for line in text.split()]
    except binascii.Error:
        found = []
    if not found or any(len(secret) != KEY_BYTES for secret in found):
        raise NotReady(f"The master key is not the base64 of 32 bytes. {_NEEDED}")
    return MasterKeys(tuple(MasterKey(secret) for secret in found))


def prepare_master_key(settings: ServiceSettings, wrapped: Iterable[str]) -> MasterKeys:
    """Return the master keys at start-up; on one machine, a first start makes one.

    Several machines need the same one, so there it is never made silently; nor is one in the place of one that was
    lost.

    Args:
        settings: where they are.
        wrapped: the wrapped keys of all datasets.

    Raises:
        NotReady: there is none, or not the one that records are under; the text says what to do.
    """
    wrapped = tuple(wrapped)
    if not (settings.cluster or wrapped or settings.master_key or settings.master_key_path.exists()):
        make_master_key(settings.master_key_path)
    return check_master_keys(settings, wrapped)


def check_master_keys(settings: ServiceSettings, wrapped: Iterable[str]) -> MasterKeys:
    """Return the master keys, all that records are under among them.

    Raises:
        NotReady: as `prepare_master_key`.
    """
    needed = {fingerprint_of(text) for text in wrapped}
    if needed and settings.master_key is None and not settings.master_key_path.exists():
        raise NotReady(
            f"The master key is missing, and records are encrypted under master key {', '.join(sorted(needed))}: put "
            "its file back (FARTHING_MASTER_KEY_FILE, by default master.key in the home). Without it nobody can read "
            "them."
        )
    found = load_master_keys(settings)
    if unknown := needed - set(found.fingerprints):
        raise NotReady(wrong_key(unknown, found))
    return found


def make_master_key(path: Path) -> None:
    """Write a fresh master key into a new file that only this user can read; one that is there stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with create(partial) as file:
        file.write(_text(MasterKeys((MasterKey(new_key()),))))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(partial, path)  # fails where a rival was first, whose key then is the one
    except FileExistsError:
        pass
    finally:
        partial.unlink()
    sync_folder(path.parent)


def add_master_key(path: Path) -> None:
    """Put a fresh key before those in a file, atomically: it wraps from now on, and the others still unwrap."""
    before = parse_master_keys(path.read_text(encoding="ascii"))
    replace(path, _text(MasterKeys((MasterKey(new_key()), *before.keys))))


def _text(keys: MasterKeys) -> bytes:
    return b"".join(base64.b64encode(key.secret) + b"\n" for key in keys.keys)


def _bound(dataset_id: str) -> bytes:
    return f"farthing dataset key {_VERSION}: {dataset_id}".encode()
