"""Records' places: stored files are whole, come back, are listed, and go; a place that is away says so."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.base.errors import NotReady
from core.base.settings import ServiceSettings
from core.records import storage as module
from core.records.storage import Folder, Objects, Storage, open_storage
from tests.support.object_store import everything

MEGABYTE = 2**20


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_what_was_put_comes_back_byte_by_byte_at_any_place(storage: Storage, tmp_path: Path) -> None:
    content = os.urandom(9 * MEGABYTE + 17)  # more than one part of an upload
    source = write(tmp_path / "source", content)
    storage.put(source, "rec_1.sealed")
    assert source.read_bytes() == content
    source.unlink()
    with storage.open("rec_1.sealed") as file:
        assert file.seek(0, os.SEEK_END) == len(content)
        for start, size in ((8 * MEGABYTE - 5, 10), (0, 3), (len(content) - 4, 4)):
            file.seek(start)
            assert file.read(size) == content[start : start + size]
        file.seek(0)
        read = b""
        while piece := file.read(MEGABYTE):
            read += piece
        assert read == content


def test_a_name_is_given_once(storage: Storage, tmp_path: Path) -> None:
    storage.put(write(tmp_path / "first", b"first"), "rec_1")
    with pytest.raises(FileExistsError):
        storage.put(write(tmp_path / "second", b"second"), "rec_1")
    with storage.open("rec_1") as file:
        assert file.read() == b"first"


def test_what_is_erased_is_gone_and_may_be_erased_again(storage: Storage, tmp_path: Path) -> None:
    storage.put(write(tmp_path / "source", b"content"), "rec_1")
    storage.erase("rec_1")
    storage.erase("rec_1")
    assert list(storage.list()) == []
    with pytest.raises(FileNotFoundError):
        storage.open("rec_1")


def test_listing_tells_names_sizes_and_times_below_a_prefix(storage: Storage, tmp_path: Path) -> None:
    for name in ("rec_1", "rec_2", "other"):
        storage.put(write(tmp_path / name, name.encode() * 2), name)
    found = {stored.name: stored for stored in storage.list("rec_")}
    assert set(found) == {"rec_1", "rec_2"}
    assert found["rec_1"].bytes == 10
    assert abs(found["rec_1"].modified_at - (tmp_path / "rec_1").stat().st_mtime) < 60


@pytest.mark.parametrize("name", ["../rec_1", "a/b", "", ".hidden", "x" * 101])
def test_a_name_is_no_path(storage: Storage, name: str) -> None:
    with pytest.raises(AssertionError):
        storage.open(name)


def test_a_folder_on_another_file_system_gets_a_copy_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(module.os, "link", refuse)
    folder = Folder(tmp_path / "records")
    folder.path.mkdir()
    folder.put(write(tmp_path / "source", b"content"), "rec_1")
    assert [path.name for path in folder.path.iterdir()] == ["rec_1"]
    assert (folder.path / "rec_1").read_bytes() == b"content"
    assert (folder.path / "rec_1").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        folder.put(write(tmp_path / "source", b"other"), "rec_1")


def test_a_repeated_erasure_makes_the_removal_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process may have died between the removal and the sync of the folder."""
    synced: list[Path] = []
    monkeypatch.setattr(module, "sync_folder", synced.append)
    Folder(tmp_path).erase("rec_1")
    assert synced == [tmp_path]
    Folder(tmp_path / "nowhere").erase("rec_1")
    assert synced == [tmp_path]


def test_an_erased_files_blocks_are_overwritten(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "records")
    folder.path.mkdir()
    folder.put(write(tmp_path / "source", b"content"), "rec_1")
    folder.erase("rec_1")
    assert (tmp_path / "source").read_bytes() == bytes(7)  # the same blocks, under the name they still have


def test_a_folder_that_is_not_there_is_not_ready(tmp_path: Path) -> None:
    away = Folder(tmp_path / "nowhere")
    with pytest.raises(NotReady, match="folder is not there"):
        away.check()
    with pytest.raises(NotReady, match="folder is not there"):
        away.put(write(tmp_path / "source", b"content"), "rec_1")
    assert not away.path.exists()  # it may be a disk that was not mounted
    Folder(tmp_path).check()


def test_a_bucket_that_is_not_there_is_not_ready(bucket_url: str) -> None:
    Objects(bucket_url).check()
    with pytest.raises(NotReady, match="bucket does not exist"):
        Objects("s3://no-such-bucket/x").check()


def test_a_store_that_does_not_answer_is_not_ready_and_its_text_tells_no_secret(bucket_url: str) -> None:
    from core.records import bucket  # noqa: PLC0415 - the client is made anew

    away = Objects(bucket_url)
    away._bucket._system = bucket._connect.__wrapped__()
    away._bucket._system.client_kwargs = {"endpoint_url": "http://127.0.0.1:9"}
    for ask in (away.check, lambda: away.open("rec_1")):
        with pytest.raises(NotReady) as refused:
            ask()
        assert "does not answer" in refused.value.detail
        assert "secret" not in refused.value.detail


def test_one_prefix_does_not_see_the_other(s3: Callable[[], str], tmp_path: Path) -> None:
    name = s3()
    one, other, whole = Objects(f"s3://{name}/one"), Objects(f"s3://{name}/other/"), Objects(f"s3://{name}")
    one.put(write(tmp_path / "source", b"1"), "rec_1")
    assert list(other.list()) == []
    assert [stored.name for stored in whole.list("one")] == ["one/rec_1"]
    assert set(everything(name)) == {"one/rec_1"}


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "gs://bucket", "s3:///x", "s3://bucket?key=1"])
def test_an_address_that_is_none_or_holds_a_secret_is_refused_without_repeating_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(NotReady) as refused:
        open_storage(ServiceSettings(home=tmp_path, storage_url=url))
    assert "secret" not in refused.value.detail


def test_the_default_is_a_folder_of_the_home(tmp_path: Path) -> None:
    found = open_storage(ServiceSettings(home=tmp_path))
    assert isinstance(found, Folder)
    assert found.path == tmp_path / "records"
    other = open_storage(ServiceSettings(home=tmp_path, storage_url=str(tmp_path / "elsewhere")))
    assert isinstance(other, Folder)
    assert other.path == tmp_path / "elsewhere"
