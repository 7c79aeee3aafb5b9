"""A secret told through a database: one reader opens it, and nobody else, nor it about anything else."""

import base64

import pytest

from core.store.encryption import Tampered
from core.store.sealing import Reader, seal

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
