"""Records at rest: every change of the stored bytes is noticed, and the bytes reveal nothing of their content."""

import io
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from core.records.encryption import (
    FRAME_BYTES,
    HEADER,
    TAG_BYTES,
    Decrypting,
    Encrypting,
    SealedFile,
    Tampered,
    new_key,
)
from tests.support.sealed import seal

STRIDE = FRAME_BYTES + TAG_BYTES
SIZES = [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES, 40 * FRAME_BYTES + 7]


def pattern(size: int, shift: int = 0) -> bytes:
    """Return bytes that differ from frame to frame."""
    block = b"".join(i.to_bytes(4, "big") for i in range(shift, shift + size // 4 + 1))
    return block[:size]


def encrypted(content: bytes, key: bytes, context: str = "ds_1") -> bytearray:
    file = io.BytesIO()
    sink = Encrypting(file, context, key)
    sink.write(content)
    sink.finish()
    return bytearray(file.getvalue())


def decrypted(stored: bytes | bytearray, key: bytes, context: str = "ds_1") -> bytes:
    with Decrypting(io.BytesIO(bytes(stored)), key, context) as file:
        return file.read()


@pytest.mark.parametrize("size", SIZES)
def test_what_was_written_is_read(size: int) -> None:
    key, content = new_key(), pattern(size)
    stored = encrypted(content, key)
    assert decrypted(stored, key) == content
    assert len(stored) == len(HEADER) + size + TAG_BYTES * max(1, -(-size // FRAME_BYTES))


def test_how_the_pieces_come_changes_nothing() -> None:
    key, content = new_key(), pattern(2 * FRAME_BYTES + 5)
    file = io.BytesIO()
    sink = Encrypting(file, "ds_1", key)
    for start in range(0, len(content), 1000):
        assert sink.write(content[start : start + 1000]) == len(content[start : start + 1000])
        assert sink.tell() == min(start + 1000, len(content))
    sink.finish()
    assert file.getvalue() == encrypted(content, key)


@settings(deadline=None)  # a machine may be busy
@given(
    st.lists(
        st.tuples(st.integers(0, 4 * FRAME_BYTES), st.integers(0, 3 * FRAME_BYTES)),
        min_size=1,
        max_size=8,
    )
)
def test_any_part_is_read_like_that_of_a_plain_file(asked: list[tuple[int, int]]) -> None:
    key, content = bytes(32), pattern(3 * FRAME_BYTES + 11)
    plain = io.BytesIO(content)
    with Decrypting(io.BytesIO(bytes(encrypted(content, key))), key, "ds_1") as file:
        for start, size in asked:
            assert file.seek(start) == plain.seek(start)
            assert file.read(size) == plain.read(size)
            assert file.tell() == plain.tell() or start > len(content)


def test_few_frames_are_in_memory_however_much_is_asked_for() -> None:
    key, content = new_key(), pattern(40 * FRAME_BYTES)
    stored = bytes(encrypted(content, key))
    asked: list[int] = []

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.append(-1 if size is None else size)
            return super().read(size)

    with Decrypting(Counted(stored), key, "ds_1") as file:
        while file.read(FRAME_BYTES // 3):
            pass
        assert max(asked) == STRIDE
        assert len(asked) == 1 + 1 + 40 - 1 + 1  # the header, the last frame for its length, then each frame once
        file.seek(0)
        file.read()
        assert 0 < max(asked) <= 16 * STRIDE


@pytest.mark.parametrize("size", [0, 5, FRAME_BYTES, 2 * FRAME_BYTES + 9])
def test_no_bit_can_be_flipped(size: int) -> None:
    key, content = new_key(), pattern(size)
    stored = encrypted(content, key)
    places = {0, len(HEADER) - 1, len(HEADER), len(stored) // 2, len(stored) - TAG_BYTES - 1, len(stored) - 1}
    for place in places:
        stored[place] ^= 1
        with pytest.raises(Tampered):
            decrypted(stored, key)
        stored[place] ^= 1
    assert decrypted(stored, key) == content


@pytest.mark.parametrize("frames", [1, 2, 3])
@pytest.mark.parametrize("rest", [0, 1, 9])
def test_nothing_can_be_cut_off_or_appended(frames: int, rest: int) -> None:
    key = new_key()
    stored = bytes(encrypted(pattern(frames * FRAME_BYTES + rest), key))
    ends = {0, 5, len(HEADER), len(HEADER) + 3, len(HEADER) + TAG_BYTES, len(stored) - 1, len(stored) - TAG_BYTES}
    ends |= {len(HEADER) + number * STRIDE for number in range(frames + (rest > 0))}
    ends |= {end + 1 for end in ends if end + 1 < len(stored)}
    for end in ends:
        with pytest.raises(Tampered):  # at once: nothing of a file that was cut short is read
            Decrypting(io.BytesIO(stored[:end]), key, "ds_1")
    for more in (b"\0", bytes(TAG_BYTES), stored[len(HEADER) :]):
        with pytest.raises(Tampered):
            decrypted(stored + more, key)


def test_no_frame_can_be_moved_doubled_or_left_out() -> None:
    key = new_key()
    stored = bytes(encrypted(pattern(4 * FRAME_BYTES), key))
    frames = [stored[len(HEADER) + i * STRIDE : len(HEADER) + (i + 1) * STRIDE] for i in range(4)]
    for order in ([1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 1, 3], [0, 1, 3], [1, 2, 3], [0, 1, 2, 2], [3, 1, 2, 3], [3]):
        with pytest.raises(Tampered):
            decrypted(HEADER + b"".join(frames[i] for i in order), key)


def test_one_datasets_file_is_not_anothers_even_under_one_key() -> None:
    key = new_key()
    mine, theirs = encrypted(b"mine", key, "ds_1"), encrypted(b"theirs", key, "ds_2")
    with pytest.raises(Tampered):
        decrypted(theirs, key, "ds_1")
    with pytest.raises(Tampered):
        decrypted(mine, new_key(), "ds_1")
    assert decrypted(mine, key, "ds_1") == b"mine"


def test_a_file_without_bound_numbers_would_not_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: frames are encrypted, but neither nonce nor associated data hold their place."""
    monkeypatch.setattr("core.records.encryption._nonce", lambda *_, **__: bytes(12))
    monkeypatch.setattr("core.records.encryption._bound", lambda *_, **__: b"")
    key, content = new_key(), pattern(3 * FRAME_BYTES)
    stored = bytes(encrypted(content, key))
    frames = [stored[len(HEADER) + i * STRIDE : len(HEADER) + (i + 1) * STRIDE] for i in range(3)]
    swapped = decrypted(HEADER + frames[1] + frames[0] + frames[2], key)
    assert swapped != content  # and no exception: what the tests above would have caught


def test_a_file_whose_writing_failed_cannot_be_read(tmp_path: Path) -> None:
    file = SealedFile(path=tmp_path / "file", context="ds_1")

    def fail_half_way() -> None:
        with file.writing() as sink:
            sink.write(pattern(3 * FRAME_BYTES))
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail_half_way()
    with pytest.raises(Tampered):
        file.open()


def test_a_sealed_file_goes_to_a_child_as_text_and_shows_its_key_to_nobody_else(tmp_path: Path) -> None:
    made = seal(tmp_path / "file", b"content")
    told = SealedFile.model_validate_json(made.model_dump_json())
    assert told == made
    with told.open() as file:
        assert file.read() == b"content"
    assert made.key.hex() not in repr(made)
    assert str(made.key) not in repr(made)
    assert made.path.stat().st_mode & 0o777 == 0o600


def test_each_file_has_a_key_of_its_own(tmp_path: Path) -> None:
    assert len({SealedFile(path=tmp_path, context="x").key for _ in range(100)}) == 100
    assert len({Encrypting(io.BytesIO(), "x").key for _ in range(100)}) == 100


def test_the_layout_is_the_one_that_is_documented() -> None:
    """A file that another program wrote by the documentation alone is read."""
    key = bytes(range(32))
    first, last = pattern(FRAME_BYTES), b"end"

    def frame(content: bytes, number: int, final: int) -> bytes:
        nonce = number.to_bytes(11, "big") + bytes([final])
        bound = b"farthing-rec\x00\x00\x00\x01" + number.to_bytes(8, "big") + bytes([final]) + b"ds_1"
        return AESGCM(key).encrypt(nonce, content, bound)

    stored = b"farthing-rec\x00\x00\x00\x01" + frame(first, 0, 0) + frame(last, 1, 1)
    assert decrypted(stored, key) == first + last
