"""A secret sent through a database: one reader opens it, and nobody else, nor it about anything else."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from core.records.encryption import Tampered
from core.records.sealing import Reader, seal

SECRET = bytes(range(32))


def test_its_reader_opens_it() -> None:
    reader = Reader()
    assert reader.open(seal(SECRET, reader.public_key, "job_1/1/a"), "job_1/1/a") == SECRET


def test_no_two_seals_are_alike() -> None:
    reader = Reader()
    assert seal(SECRET, reader.public_key, "x") != seal(SECRET, reader.public_key, "x")


def test_nobody_else_opens_it_nor_it_about_another_attempt() -> None:
    reader, other = Reader(), Reader()
    sealed = seal(SECRET, reader.public_key, "job_1/1/a")
    for who, about in ((other, "job_1/1/a"), (reader, "job_1/2/a")):
        with pytest.raises(Tampered):
            who.open(sealed, about)


@pytest.mark.parametrize("place", [0, 31, 32, 63, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    reader = Reader()
    changed = bytearray(base64.b64decode(seal(SECRET, reader.public_key, "x")))
    changed[place] ^= 1
    for text in (base64.b64encode(changed).decode(), "", "not base64"):
        with pytest.raises(Tampered):
            reader.open(text, "x")


def by_hand(reader: Reader, about: bytes) -> str:
    """Return the secret, sealed for an attempt under the key that is worked out of some bytes."""
    mine, theirs = X25519PrivateKey.generate(), base64.b64decode(reader.public_key)
    shown, shared = mine.public_key().public_bytes_raw(), mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    key = HKDF(SHA256(), 32, None, b"farthing seat key: " + shown + about).derive(shared)
    return base64.b64encode(shown + AESGCM(key).encrypt(bytes(12), SECRET, b"job_1/1/a")).decode()


def test_the_key_is_bound_to_both_halves_and_to_what_it_is_about() -> None:
    reader = Reader()
    shown, about = reader.public_key.encode(), b"job_1/1/a"
    assert reader.open(by_hand(reader, shown + about), "job_1/1/a") == SECRET
    for less in (b"", shown, about):
        with pytest.raises(Tampered):
            reader.open(by_hand(reader, less), "job_1/1/a")
