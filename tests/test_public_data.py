"""Public data sets: each download is compared with its digest, kept, and read without a network afterwards."""

import gzip
import io
import struct
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from core.data.datasets import parse_metadata
from examples.datasets import IMAGE_COLUMNS, NotFetched, Package, _files, _idx

CONTENT = b"0,1\n"


def package(folder: Path, digest: str | None = None, client: tuple[str, ...] | None = None) -> Package:
    """A package whose client copies an archive from `folder`."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as tar:
        member = tarfile.TarInfo("toy-1.0/data.csv")
        member.size = len(CONTENT)
        tar.addfile(member, io.BytesIO(CONTENT))
    (folder / "toy-1.0.tar.gz").write_bytes(sink.getvalue())
    copy = f"import shutil; shutil.copy({str(folder / 'toy-1.0.tar.gz')!r}, '.')"
    return Package(
        name="toy",
        client=client or (sys.executable, "-c", copy),
        archive="toy-1.0.tar.gz",
        files={"toy-1.0/data.csv": digest or sha256(CONTENT).hexdigest()},
    )


def test_a_set_is_fetched_once_and_then_read_offline(tmp_path: Path) -> None:
    (path,) = _files(package(tmp_path), tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    offline = package(tmp_path, client=("no-such-client",))
    assert _files(offline, tmp_path / "cache") == [path]


def test_what_is_not_there_says_where_to_put_it(tmp_path: Path) -> None:
    failing = package(tmp_path, client=(sys.executable, "-c", "raise SystemExit('no network')"))
    with pytest.raises(NotFetched, match=r"no network[^$]*put data.csv into .*cache"):
        _files(failing, tmp_path / "cache")
    with pytest.raises(NotFetched, match="not installed"):
        _files(package(tmp_path, client=("no-such-client",)), tmp_path / "cache")


def test_other_bytes_are_refused_whether_fetched_or_kept(tmp_path: Path) -> None:
    with pytest.raises(NotFetched, match="SHA-256"):
        _files(package(tmp_path, digest="0" * 64), tmp_path / "one")
    (path,) = _files(package(tmp_path), tmp_path / "two")
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(NotFetched, match="SHA-256"):
        _files(package(tmp_path), tmp_path / "two")


def test_images_are_read_in_their_order() -> None:
    images = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    raw = b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4) + images.tobytes()
    assert (_idx(gzip.decompress(gzip.compress(raw))) == images).all()
    with pytest.raises(NotFetched):
        _idx(b"\x93NUMPY" + raw)


def test_declarations_are_valid() -> None:
    body = {"name": "images", "budget": {"epsilon": "3", "delta": "1e-6"}, "columns": IMAGE_COLUMNS}
    assert len(parse_metadata(body).columns) == 2
