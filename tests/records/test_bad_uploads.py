"""Bad files: each is refused with the field at fault, leaves nothing behind, and the next good file is taken."""

import struct
from collections.abc import Iterator
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from core.base.errors import Invalid, Refusal, TooLarge
from core.data.columns import Columns
from core.records.decoding.decode import Limits, decode_upload
from core.records.encryption import SealedFile, Tampered
from core.records.uploads import Receiver, receive

COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "age", "lower": 18, "upper": 95},
        {"type": "category", "name": "job", "values": ["none", "technician"]},
        {"type": "binary", "name": "y", "values": ["no", "yes"]},
    ]
)
GOOD = b"age,job,y\n40,technician,yes\n,?,maybe\n"
SECRET = b"installation"
LIMITS = Limits()


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in folder.rglob("*"))


def upload(folder: Path, source: bytes, *, limits: Limits = LIMITS, media: str | None = None) -> int:
    """Receive and decode as the service does; the raw file never stays."""
    received = receive([source], folder=folder, secret=SECRET, limit_bytes=2**30)
    try:
        target = SealedFile(path=folder / "rec_1.sealed", context="ds_1")
        return decode_upload(received.file, target, COLUMNS, limits=limits, media=media).rows
    finally:
        received.file.path.unlink()


def refused(folder: Path, source: bytes, **options: Any) -> Refusal:
    """Assert that a file is refused and that nothing of it is left."""
    folder.joinpath("other.arrow").write_bytes(b"somebody else's")
    before = listing(folder)
    with pytest.raises(Refusal) as caught:
        upload(folder, source, **options)
    assert listing(folder) == before
    return caught.value


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


TABLE = pa.table({"age": [40.0, 50.0], "job": ["none", "none"], "y": ["no", "yes"]})


@pytest.mark.parametrize(
    ("source", "pointers"),
    [
        pytest.param(b"", ["/file"], id="empty"),
        pytest.param(b"age,job,y", ["/file"], id="header only"),
        pytest.param(b"age,job,y\n\n\n", ["/file"], id="header and empty lines"),
        pytest.param(b"\n40,none,yes\n", ["/file"], id="no header"),
        pytest.param(b"age,job\n40,none\n", ["/columns/2/name"], id="missing column"),
        pytest.param(b"a,b\n1,2\n", ["/columns/0/name", "/columns/1/name", "/columns/2/name"], id="all missing"),
        pytest.param(b"age;job;y\n40;none;yes\n", ["/reading/separator"], id="semicolons"),
        pytest.param(b"age,job,y,age\n40,none,yes,41\n", ["/columns/0/name"], id="declared name twice"),
        pytest.param(b"age,job,y,x,x\n40,none,yes,1,2\n", ["/file"], id="other name twice"),
        pytest.param(b"age,job,y\n40,none\n", ["/file"], id="short row"),
        pytest.param(GOOD * 100 + b"40,none,yes,1\n", ["/file"], id="long row"),
        pytest.param("age,job,y\n40,caf\u00e9,yes\n".encode("latin-1"), ["/reading/encoding"], id="latin-1"),
        pytest.param("age,job,y\n40,none,yes\n".encode("utf-16"), ["/reading/encoding"], id="utf-16"),
        pytest.param(b"age,job,y,x\n40,none,yes,\xff\n", ["/reading/encoding"], id="not UTF-8 in another column"),
        pytest.param(b"age,job,y\n40,none,yes\n\xe2\x82", ["/reading/encoding"], id="cut inside a letter"),
        pytest.param(b"age,job,y\n40," + b"x" * 9_000_000 + b",yes\n", ["/file"], id="endless row"),
        pytest.param(b"\x00" * 1000, ["/file"], id="zeros"),
        pytest.param(b"PAR1" + b"\x00" * 100, ["/file"], id="no Parquet"),
        pytest.param(b"PAR1" + b"\x15" * 1000 + struct.pack("<I", 990) + b"PAR1", ["/file"], id="wrong footer"),
        pytest.param(b"PAR1" + struct.pack("<I", 2**31) + b"PAR1", ["/file"], id="endless footer"),
        pytest.param(parquet(TABLE)[:-40], ["/file"], id="cut Parquet"),
        pytest.param(parquet(TABLE)[:30] + b"\xff" * 60 + parquet(TABLE)[90:], ["/file"], id="damaged page"),
        pytest.param(arrow(TABLE)[:-300], ["/file"], id="cut Arrow file"),
        pytest.param(b"ARROW1\x00\x00" + b"\x7f" * 500, ["/file"], id="no Arrow file"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 10, ["/file"], id="no Arrow stream"),
        pytest.param(parquet(TABLE.slice(0, 0)), ["/file"], id="no rows"),
        pytest.param(parquet(TABLE.drop_columns("y")), ["/columns/2/name"], id="missing in Parquet"),
        pytest.param(arrow(TABLE.append_column("y", TABLE["y"])), ["/columns/2/name"], id="twice in Arrow"),
        pytest.param(
            parquet(TABLE.set_column(0, "age", pa.array(["40", "50"]))), ["/columns/0/type"], id="texts for numbers"
        ),
        pytest.param(
            arrow(TABLE.set_column(1, "job", pa.array([["none"], []]))), ["/columns/1/type"], id="lists for texts"
        ),
        pytest.param(
            parquet(TABLE.set_column(2, "y", pa.array([True, False]))), ["/columns/2/type"], id="booleans for yes"
        ),
        pytest.param(
            arrow(TABLE.set_column(2, "y", pa.array([b"no", b"yes"]))), ["/columns/2/type"], id="bytes for texts"
        ),
    ],
)
def test_a_bad_file_is_refused_and_leaves_nothing(tmp_path: Path, source: bytes, pointers: list[str]) -> None:
    refusal = refused(tmp_path, source)
    assert type(refusal) is Invalid
    assert [field.pointer for field in refusal.fields] == pointers
    assert all(field.detail for field in refusal.fields)


def test_the_next_good_file_is_taken(tmp_path: Path) -> None:
    for bad in (b"", b"\xff", b"PAR1", b"age,job\n1,2\n"):
        refused(tmp_path, bad)
    assert upload(tmp_path, GOOD) == 2


@pytest.mark.slow
def test_a_header_of_ten_million_columns(tmp_path: Path) -> None:
    refusal = refused(tmp_path, b",".join(b"c%d" % place for place in range(10_000_000)) + b"\n1,2\n")
    assert isinstance(refusal, TooLarge)
    assert refusal.fields[0].pointer == "/file"


def test_a_wide_parquet_file(tmp_path: Path) -> None:
    wide = pa.table({f"c{place}": [1] for place in range(3_000)})
    assert isinstance(refused(tmp_path, parquet(wide)), TooLarge)


def test_more_rows_or_cells_than_are_taken(tmp_path: Path) -> None:
    rows = b"age,job,y\n" + b"40,none,yes\n" * 101
    assert isinstance(refused(tmp_path, rows, limits=Limits(rows=100)), TooLarge)
    assert isinstance(refused(tmp_path, rows, limits=Limits(cells=300)), TooLarge)


def test_a_file_that_is_not_what_it_is_said_to_be(tmp_path: Path) -> None:
    assert refused(tmp_path, GOOD, media="parquet").fields[0].pointer == "/file"


def zeros(rows: int) -> Iterator[pa.RecordBatch]:
    batch = pa.record_batch(
        {"age": pa.array([0.0]).take(pa.array([0] * 1_000_000)), "job": ["none"] * 1_000_000, "y": ["no"] * 1_000_000}
    )
    yield from repeat(batch, rows // 1_000_000)


class TestZipBombs:
    def bomb(self, rows: int) -> bytes:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, next(zeros(1_000_000)).schema, compression="zstd") as writer:
            for batch in zeros(rows):
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    def test_many_rows_in_few_bytes(self, tmp_path: Path) -> None:
        bomb = self.bomb(19_000_000)
        assert len(bomb) < 200_000
        assert isinstance(refused(tmp_path, bomb), TooLarge)

    @pytest.mark.slow
    def test_one_text_of_half_a_gigabyte(self, tmp_path: Path) -> None:
        table = pa.table({"age": [40.0], "job": ["x" * 2**29], "y": ["no"]})
        bomb = parquet(table, compression="zstd", use_dictionary=False, write_statistics=False)
        assert len(bomb) < 200_000
        assert isinstance(refused(tmp_path, bomb, limits=Limits(memory_bytes=2**31)), TooLarge)

    def test_a_footer_that_lies_about_the_sizes(self, tmp_path: Path) -> None:
        """The footer says less than is there: decoding stops at the child's memory, and nothing is left."""
        table = pa.table({"age": [40.0], "job": ["x" * 2**29], "y": ["no"]})
        options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
        bomb = parquet(table, **options)
        size = pq.read_metadata(pa.BufferReader(bomb)).row_group(0).column(1).total_uncompressed_size
        claims = varint(size)
        assert claims in bomb[-2000:]
        small = bytes([100 | 0x80, *([0x80] * (len(claims) - 2)), 0])
        lying = bomb[:-2000] + bomb[-2000:].replace(claims, small)
        claimed = pq.read_metadata(pa.BufferReader(lying)).row_group(0).column(1).total_uncompressed_size
        assert claimed < 200
        refusal = refused(tmp_path, lying, limits=Limits(memory_bytes=1_000_000_000))
        assert refusal.fields[0].pointer == "/file"

    def test_a_long_text_that_comes_often(self, tmp_path: Path) -> None:
        often = pa.DictionaryArray.from_arrays([0] * 20_000, ["x" * 2**20])
        table = pa.table({"age": [40.0] * 20_000, "job": often, "y": ["no"] * 20_000})
        assert upload(tmp_path, parquet(table), limits=Limits(memory_bytes=2**31)) == 20_000


def varint(number: int) -> bytes:
    """Thrift's compact encoding of a positive number."""
    number <<= 1
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


class TestLimitsOfTheChild:
    ROWS = b"age,job,y\n" + b"40,none,yes\n" * 200_000

    def test_out_of_memory(self, tmp_path: Path) -> None:
        refusal = refused(tmp_path, self.ROWS, limits=Limits(memory_bytes=200 * 2**20))
        assert refusal.detail == "The file could not be decoded within its limits."
        assert refusal.fields[0].pointer == "/file"

    def test_out_of_time(self, tmp_path: Path) -> None:
        refusal = refused(tmp_path, self.ROWS, limits=Limits(seconds=0.2))
        assert refusal.detail == "The file could not be decoded within its limits."


class TestReceiving:
    def test_a_stream_of_two_gigabytes_stops_at_the_cap(self, tmp_path: Path) -> None:
        taken = 0

        def stream() -> Iterator[bytes]:
            nonlocal taken
            for chunk in repeat(bytes(2**20), 2048):
                taken += len(chunk)
                yield chunk

        with pytest.raises(TooLarge) as caught:
            receive(stream(), folder=tmp_path, secret=SECRET, limit_bytes=8 * 2**20)
        assert caught.value.fields[0].pointer == "/file"
        assert taken == 9 * 2**20
        assert listing(tmp_path) == []

    def test_a_stream_that_breaks_leaves_nothing(self, tmp_path: Path) -> None:
        def stream() -> Iterator[bytes]:
            yield b"age,"
            raise ConnectionError

        with pytest.raises(ConnectionError):
            receive(stream(), folder=tmp_path, secret=SECRET, limit_bytes=100)
        assert listing(tmp_path) == []

    def test_what_arrives_is_encrypted_on_the_disk_and_readable_only_when_whole(self, tmp_path: Path) -> None:
        with Receiver(tmp_path, secret=SECRET, limit_bytes=100) as receiver:
            receiver.write(GOOD[:7])
            with pytest.raises(Tampered):
                receiver._sealed.open()
            receiver.write(GOOD[7:])
            received = receiver.finish()
        with received.file.open() as file:
            assert file.read() == GOOD
        assert received.bytes == len(GOOD)
        assert b"technician" not in received.file.path.read_bytes()
        assert received.file.key.hex() not in repr(received)
        assert received.file.path.stat().st_mode & 0o777 == 0o600

    def test_the_digest_is_keyed_and_sees_every_byte(self, tmp_path: Path) -> None:
        def digest(chunks: list[bytes], secret: bytes) -> str:
            return receive(chunks, folder=tmp_path, secret=secret, limit_bytes=100).digest

        assert digest([b"ab", b"c"], b"s") == digest([b"abc"], b"s")
        assert len({digest([b"abc"], b"s"), digest([b"abd"], b"s"), digest([b"abc"], b"t")}) == 3
        by_hand = sha256(
            bytes(c ^ 0x5C for c in b"s".ljust(64, b"\0"))
            + sha256(bytes(c ^ 0x36 for c in b"s".ljust(64, b"\0")) + b"abc").digest()
        ).hexdigest()
        assert digest([b"abc"], b"s") == f"hmac-sha256:{by_hand}"
