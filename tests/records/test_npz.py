"""NumPy archives: good ones are read whatever plain dtype they hold, bad ones are refused by name and leave nothing."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from core.base.errors import Invalid, Refusal, TooLarge
from core.data.columns import Columns
from core.records.decoding.decode import Limits, decode_upload
from core.records.encryption import SealedFile
from tests.records.test_arrays import LABEL, declared, kept, report_of, stored
from tests.support.arrays import npy, npz, zipped
from tests.support.sealed import seal

COLUMNS = declared({"type": "array", "name": "image", "shape": [2, 2], "lower": 0, "upper": 255}, LABEL)
PIXELS = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
LABELS = np.array([0, 1, 2])
GOOD = npz(image=PIXELS, label=LABELS)
ORDINARY = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "age", "lower": 18, "upper": 95},
        {"type": "integer", "name": "kids", "lower": 0, "upper": 20},
        {"type": "date", "name": "seen", "lower": "2003-01-01", "upper": "2006-12-31"},
        {"type": "category", "name": "job", "values": ["none", "caf\u00e9"], "other": "none"},
        {"type": "binary", "name": "y", "values": ["false", "true"]},
    ]
)
CELLS = {
    "age": np.array([40.5, np.nan, 200], dtype=np.float32),
    "kids": np.array([1, 25, 3], dtype=np.uint64),
    "seen": np.array(["2005-06-07", "NaT", "1999-01-01"], dtype="datetime64[D]"),
    "job": np.array(["caf\u00e9", "", "pilot"]),
    "y": np.array([True, False, True]),
}


def test_ordinary_columns_are_arrays_of_one_axis(tmp_path: Path) -> None:
    decoded, file = stored(tmp_path, npz(**CELLS), ORDINARY)
    table = kept(file).to_pydict()
    assert repr(table["age"]) == "[40.5, nan, 95.0]"
    assert table["kids"] == [1, 20, 3]
    assert repr(table["seen"]) == "[888.0, nan, 0.0]"
    assert table["job"] == [1, -1, 0]
    assert table["y"] == [1, 0, 1]
    assert report_of(decoded, "job") == {"unknown": 1, "missing": 1}


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("age", np.array([40.5, np.nan, 200], dtype=">f8")),
        ("age", np.array([40.5, np.nan, 200], dtype=np.float16)),
        ("kids", np.array([1, 25, 3], dtype=">i2")),
        ("seen", np.array(["2005-06-07", "x", "1999-01-01"])),
        ("seen", np.array(["2005-06-07T23:59", "NaT", "1999-01-01"], dtype="datetime64[ns]")),
        ("job", np.array(["caf\u00e9", "", "pilot"], dtype=">U9")),
        ("y", np.array(["true", "false", "true"])),
    ],
    ids=lambda value: value if isinstance(value, str) else value.dtype.str,
)
def test_many_dtypes_mean_the_same(tmp_path: Path, name: str, cells: Any) -> None:
    _, file = stored(tmp_path, npz(**CELLS), ORDINARY)
    wanted = kept(file)[name].to_pylist()
    _, file = stored(tmp_path, npz(**{**CELLS, name: cells}), ORDINARY)
    assert repr(kept(file)[name].to_pylist()) == repr(wanted)


def header(text: str) -> bytes:
    """An array's header with that text in it, and nothing behind it."""
    raw = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw


def with_image(content: bytes) -> bytes:
    return zipped(("image.npy", content), ("label.npy", npy(LABELS)))


def damaged(content: bytes) -> bytes:
    """Change a byte in the middle of the numbers, which are stored as they are."""
    place = content.index(bytes(range(12)))
    return content[: place + 3] + b"\xff" + content[place + 4 :]


def doubled(content: bytes) -> bytes:
    """Call the second array by the name of the first."""
    return content.replace(b"label.npy", b"image.npy")


def flagged(content: bytes) -> bytes:
    """Say in the directory that the first member is encrypted."""
    place = content.index(b"PK\x01\x02")
    return content[: place + 8] + b"\x01" + content[place + 9 :]


BAD = {
    "no arrays": (zipped(), ["/columns/0/name", "/columns/1/name"]),
    "cut short": (GOOD[:-30], ["/file"]),
    "only its start": (b"PK\x03\x04" + bytes(100), ["/file"]),
    "only its end": (b"PK\x05\x06" + bytes(17), ["/file"]),
    "something behind it": (GOOD + b"x", ["/file"]),
    "a directory elsewhere": (GOOD[:-6] + struct.pack("<I", 5) + GOOD[-2:], ["/file"]),
    "a missing array": (npz(image=PIXELS), ["/columns/1/name"]),
    "an unknown array": (npz(image=PIXELS, label=LABELS, weight=LABELS), ["/file"]),
    "a name twice": (doubled(GOOD), ["/columns/0/name"]),
    "a file that is no array": (zipped(("image.npy", npy(PIXELS)), ("label.csv", b"0\n1\n")), ["/file"]),
    "something else under an array's name": (with_image(b"label\n0\n1\n2\n"), ["/file"]),
    "an empty array file": (with_image(b""), ["/file"]),
    "pickled objects": (npz(image=PIXELS, label=np.array(["0", 1, None], dtype=object)), ["/columns/1/type"]),
    "Fortran order": (npz(image=np.asfortranarray(PIXELS), label=LABELS), ["/columns/0/type"]),
    "complex numbers": (npz(image=PIXELS.astype(complex), label=LABELS), ["/columns/0/type"]),
    "longdouble numbers": (npz(image=PIXELS.astype(np.longdouble), label=LABELS), ["/columns/0/type"]),
    "texts in an array": (npz(image=PIXELS.astype(str), label=LABELS), ["/columns/0/type"]),
    "bytes for texts": (npz(image=PIXELS, label=np.array([b"0", b"1", b"2"])), ["/columns/1/type"]),
    "records": (npz(image=PIXELS, label=np.zeros(3, dtype=[("a", "i4"), ("\u00e9", "i4")])), ["/columns/1/type"]),
    "another shape": (npz(image=PIXELS.reshape(3, 4, 1)[:, :3], label=LABELS), ["/columns/0/shape"]),
    "axes in another order": (npz(image=PIXELS.transpose(2, 1, 0), label=LABELS[:2]), ["/columns/0/type"]),
    "no rows' axis": (npz(image=PIXELS, label=np.array(1)), ["/columns/1/type"]),
    "an array for single values": (npz(image=PIXELS, label=np.ones((3, 2))), ["/columns/1/type"]),
    "other numbers of rows": (npz(image=PIXELS, label=LABELS[:2]), ["/file"]),
    "no rows": (npz(image=PIXELS[:0], label=LABELS[:0]), ["/file"]),
    "a truncated member": (with_image(npy(PIXELS)[:-1]), ["/file"]),
    "a member with more in it": (with_image(npy(PIXELS) + b"x"), ["/file"]),
    "a damaged member": (damaged(npz(image=PIXELS, label=LABELS, compressed=False)), ["/file"]),
    "an encrypted member": (flagged(GOOD), ["/file"]),
    "another compression": (
        zipped(("image.npy", npy(PIXELS)), ("label.npy", npy(LABELS)), method=zipfile.ZIP_LZMA),
        ["/file"],
    ),
    "no header": (with_image(header("{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2,")), ["/file"]),
    "code in a header": (with_image(header("{'descr': '|u1', 'fortran_order': False, 'shape': exit()}")), ["/file"]),
    "negative axes": (
        with_image(header("{'descr': '|u1', 'fortran_order': False, 'shape': (-3, -2, 2)}") + bytes(12)),
        ["/file"],
    ),
    "a header that says more": (
        with_image(header("{'descr': '|u1', 'fortran_order': False, 'shape': (9000000000, 2, 2)}")),
        ["/file"],
    ),
    "texts of no letters": (
        zipped(
            ("image.npy", npy(PIXELS)), ("label.npy", npy(np.array(["0", "1", "2"])).replace(b"0\0\0\0", b"\0\xd8\0\0"))
        ),
        ["/file"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_archive_is_refused_by_the_field_at_fault(tmp_path: Path, name: str) -> None:
    source, pointers = BAD[name]
    with pytest.raises(Invalid) as refused:
        stored(tmp_path, source, COLUMNS)
    assert [field.pointer for field in refused.value.fields] == pointers
    assert all(field.detail for field in refused.value.fields)


def child(folder: Path, source: bytes, columns: Any = COLUMNS, **limits: Any) -> int:
    """Decode as the service does, in a limited process."""
    target = SealedFile(path=folder / "rec_1", context="ds_1")
    return decode_upload(seal(folder / "source", source), target, columns, limits=Limits(**limits), media="npz").rows


def test_a_refusal_comes_from_the_child_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        child(tmp_path, BAD["pickled objects"][0])
    assert [field.pointer for field in refused.value.fields] == ["/columns/1/type"]
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert child(tmp_path, GOOD) == 3


class TestBombs:
    def zeros(self, rows: int) -> bytes:
        """Images of zeros as an archive that is a thousandth of them."""
        sink, text = io.BytesIO(), f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, 1000, 1000)}}"
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("image.npy", "w") as member:
                member.write(header(text))
                for _ in range(rows):
                    member.write(bytes(10**6))
            archive.writestr("label.npy", npy(np.zeros(rows, dtype=np.int8)))
        return sink.getvalue()

    columns = declared({"type": "array", "name": "image", "shape": [1000, 1000], "lower": 0, "upper": 255}, LABEL)

    def test_many_zeros_in_few_bytes_are_too_large(self, tmp_path: Path) -> None:
        with pytest.raises(TooLarge):
            stored(tmp_path, self.zeros(300), self.columns)

    def test_a_directory_that_lies_about_the_size_is_found_out(self, tmp_path: Path) -> None:
        """It says that the array is short, as its header does; the bytes beyond stay unread and are refused."""
        bomb = self.zeros(100).replace(b"(100, 1000", b"(3, 1000  ").replace(b"1000  , 1000", b"1000, 1000  ")
        size = struct.pack("<I", 128 + 10**8 + 1)
        assert bomb.count(size) >= 1
        lying = bomb.replace(size, struct.pack("<I", 128 + 3 * 10**6 + 1))
        with pytest.raises(Refusal) as refused:
            stored(tmp_path, lying, self.columns)
        assert refused.value.fields[0].pointer == "/file"

    def test_a_million_members(self, tmp_path: Path) -> None:
        many = bytearray(GOOD)
        many[-12:-10] = many[-14:-12] = struct.pack("<H", 60_000)
        with pytest.raises(TooLarge):
            stored(tmp_path, bytes(many), COLUMNS)

    def test_a_directory_of_a_gigabyte(self, tmp_path: Path) -> None:
        many = bytearray(GOOD)
        many[-10:-6] = struct.pack("<I", 2**30)
        with pytest.raises(TooLarge):
            stored(tmp_path, bytes(many), COLUMNS)

    def test_another_directory_for_large_archives_is_not_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(TooLarge):
            stored(tmp_path, GOOD[:-22] + b"PK\x06\x07" + bytes(16) + GOOD[-22:], COLUMNS)

    def test_texts_that_are_mostly_room(self, tmp_path: Path) -> None:
        label = np.zeros(40, dtype="<U1000000")
        with pytest.raises(TooLarge):
            stored(tmp_path, npz(image=np.zeros((40, 2, 2)), label=label), COLUMNS)

    def test_a_header_without_an_end(self, tmp_path: Path) -> None:
        endless = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**30) + b" " * 2**20
        with pytest.raises(Invalid) as refused:
            stored(tmp_path, with_image(endless), COLUMNS)
        assert [field.pointer for field in refused.value.fields] == ["/columns/0/type"]

    def test_a_child_without_memory(self, tmp_path: Path) -> None:
        content = npz(image=np.zeros((60, 1000, 1000), dtype=np.uint8), label=np.zeros(60, dtype=np.int8))
        with pytest.raises(Invalid) as refused:
            child(tmp_path, content, self.columns, memory_bytes=200 * 2**20)
        assert refused.value.detail == "The file could not be decoded within its limits."
