"""A secret for one reader, sent through a place that others can read, such as a database.

The reader draws a key pair and shows the public half. The sender draws another, and encrypts under the secret that
only the two can derive (X25519, HKDF with SHA-256, AES-256-GCM). A reader is used for one secret, and is forgotten
with it. That the public half is the reader's own is for the place to vouch for: nothing here knows who writes there.
"""

import base64
import binascii
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from core.records.encryption import KEY_BYTES, Tampered

_NONCE: Final = bytes(12)
"""Always the same: each key is worked out for one message."""


class Reader:
    """The reader of a secret; its private half never leaves this object."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()

    @property
    def public_key(self) -> str:
        """The half that is shown, in base64."""
        return base64.b64encode(self._private.public_key().public_bytes_raw()).decode()

    def open(self, sealed: str, context: str) -> bytes:
        """Return the secret that `seal` was given.

        Raises:
            Tampered: it was sealed for somebody else, or about something else, or was changed.
        """
        try:
            content = base64.b64decode(sealed, validate=True)
            theirs = X25519PublicKey.from_public_bytes(content[:KEY_BYTES])
            key = _key(self._private.exchange(theirs), content[:KEY_BYTES], self.public_key, context)
            return AESGCM(key).decrypt(_NONCE, content[KEY_BYTES:], context.encode())
        # `exchange` raises ValueError for a public half that would make the secret zero.
        except (InvalidTag, ValueError, binascii.Error):
            raise Tampered from None


def seal(secret: bytes, public_key: str, context: str) -> str:
    """Return a secret as only the reader with this public key can open it.

    Args:
        secret: the secret to seal.
        public_key: the reader's.
        context: its subject; opening needs the same.
    """
    mine = X25519PrivateKey.generate()
    shown = mine.public_key().public_bytes_raw()
    shared = mine.exchange(X25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True)))
    sealed = AESGCM(_key(shared, shown, public_key, context)).encrypt(_NONCE, secret, context.encode())
    return base64.b64encode(shown + sealed).decode()


def _key(shared: bytes, shown: bytes, public_key: str, context: str) -> bytes:
    """Return the key of one message, bound to both public halves and to what it is about."""
    about = b"farthing seat key: " + shown + public_key.encode() + context.encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=about).derive(shared)
