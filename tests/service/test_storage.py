"""Uploads into storage: nothing in the clear on the way, losers collected, keys destroyed before objects."""

import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from core.base.errors import DuplicateDataset, NotReady
from core.data.datasets import parse_metadata
from core.db.tables import Dataset
from core.records.encryption import Tampered
from core.records.records import kept_of, open_records
from core.records.storage import Storage, open_storage
from core.service import datasets, health, uploads, weights
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.support.api import csv, metadata

MARKER = "54.20731"

pytestmark = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
"""The stored files do not depend on the database."""


def rows(number: int = 0) -> bytes:
    """Return a hundred rows and a marked one; another number makes other bytes."""
    return csv(100, number) + f"{MARKER},technician,yes\n".encode()


def upload(context: Context, caller: Caller, content: bytes) -> dict[str, Any]:
    view, _ = uploads.create(context, caller, parse_metadata(metadata()), None, [content], None)
    return view


def in_the_clear(folder: Path) -> list[str]:
    """Return the files that hold the marked cell, as it was sent or as a number."""
    values = (MARKER.encode(), struct.pack("<d", float(MARKER)))
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(value in path.read_bytes() for value in values)]


def test_no_cell_is_in_the_clear_on_the_disk_at_any_moment_of_an_upload(
    context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, seen = context.settings.home, []

    def watch(name: str) -> None:
        genuine = getattr(uploads, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            answer = genuine(*args, **kwargs)
            files = [path for path in home.rglob("*") if path.is_file()]
            seen.append((name, len(files), in_the_clear(home)))
            return answer

        monkeypatch.setattr(uploads, name, watched)

    watch("receive")
    watch("decode_upload")
    made = upload(context, someone("owner"), rows())
    assert [name for name, _, _ in seen] == ["receive", "decode_upload"]
    assert seen[0][1] < seen[1][1]  # the upload, then the upload and what was decoded
    assert [clear for _, _, clear in seen] == [[], []]
    assert in_the_clear(home) == []
    with context.database.read() as session:
        kept = kept_of(session.get_one(Dataset, made["id"]))
    with open_records(context.settings, kept) as file:
        assert struct.pack("<d", float(MARKER)) in file.read()
    (home / "planted").write_bytes(rows())
    assert in_the_clear(home) == ["planted"]


def test_each_dataset_has_a_key_and_a_file_of_its_own(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = [upload(context, owner, rows(extra))["id"] for extra in (0, 1, 2)]
    with context.database.read() as session:
        found = [kept_of(session.get_one(Dataset, one)) for one in made]
    assert len({one.wrapped_key for one in found}) == len({one.location for one in found}) == 3
    assert {stored.name for stored in open_storage(context.settings).list()} == {one.location for one in found}
    assert not any(context.settings.spool_path.iterdir())


def test_a_refused_upload_leaves_nothing_stored(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    upload(context, owner, rows())
    with pytest.raises(DuplicateDataset):
        upload(context, owner, rows())
    assert len(list(open_storage(context.settings).list())) == 1
    assert not any(context.settings.spool_path.iterdir())


def test_without_a_master_key_an_upload_is_refused_before_it_is_read(context: Context, someone: Someone) -> None:
    context.settings.master_key_path.unlink()

    def unread() -> Any:
        raise AssertionError("nothing was to be read")
        yield b""

    with pytest.raises(NotReady, match="master key is missing"):
        uploads.create(context, someone("owner"), parse_metadata(metadata()), "csv", unread(), None)


def test_records_that_became_no_dataset_are_collected_after_a_day(context: Context, someone: Someone) -> None:
    made = upload(context, someone("owner"), rows())
    folder, storage = context.settings.records_path, open_storage(context.settings)
    for name, hours in (("rec_lost.sealed", 25), ("rec_young.sealed", 23), ("foreign", 1000)):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, times=(time.time() - 3600 * hours,) * 2)
    with context.database.read() as session:
        kept = kept_of(session.get_one(Dataset, made["id"])).location
    os.utime(folder / kept, times=(0, 0))
    assert datasets.collect_orphans(context) == ["rec_lost.sealed"]
    assert {stored.name for stored in storage.list()} == {kept, "rec_young.sealed", "foreign"}


def test_public_weights_that_nobody_has_are_collected_too(context: Context, someone: Someone) -> None:
    kept, _ = weights.create(context, someone("owner"), "", iter([save({"0.weight": np.ones((2, 3), np.float32)})]))
    folder, storage = context.settings.records_path, open_storage(context.settings)
    (folder / "wts_lost.safetensors").write_bytes(b"x")
    for path in folder.iterdir():
        os.utime(path, times=(0, 0))
    assert datasets.collect_orphans(context) == ["wts_lost.safetensors"]
    assert [stored.name for stored in storage.list()] == [f"{kept.id}.safetensors"]


def test_an_erasure_destroys_the_key_first_and_goes_on_where_it_was_stopped(
    context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = someone("owner")
    made = upload(context, owner, rows())
    storage, found = open_storage(context.settings), []

    def away(self: Storage, name: str) -> None:
        del self, name
        with context.database.read() as session:
            found.append(session.get_one(Dataset, made["id"]).wrapped_key)
        raise NotReady("The object store does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "erase", away)
        assert datasets.erase(context, owner, made["id"]).state == "erasing"
    assert found == [None]
    assert len(list(storage.list())) == 1
    assert datasets.finish_erasures(context) == [made["id"]]
    assert list(storage.list()) == []
    with context.database.read() as session:
        erased = session.get_one(Dataset, made["id"])
        assert (erased.state, erased.location, erased.wrapped_key) == ("erased", None, None)


def test_readiness_asks_for_storage_and_the_right_key(context: Context, someone: Someone) -> None:
    upload(context, someone("owner"), rows())
    assert health.check(context)["storage"] == "ok"
    key = context.settings.master_key_path
    saved = key.read_bytes()
    key.unlink()
    with pytest.raises(NotReady, match="master key is missing"):
        health.check(context)
    assert not key.exists()
    key.write_bytes(saved)
    context.settings.records_path.rename(context.settings.home / "away")
    with pytest.raises(NotReady, match="folder is not there"):
        health.check(context)


def test_two_datasets_files_cannot_be_swapped(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    one, other = (upload(context, owner, rows(extra))["id"] for extra in (0, 1))
    with context.database.read() as session:
        mine, theirs = (kept_of(session.get_one(Dataset, dataset)) for dataset in (one, other))
    folder = context.settings.records_path
    content = {kept.location: (folder / kept.location).read_bytes() for kept in (mine, theirs)}
    (folder / mine.location).write_bytes(content[theirs.location])
    (folder / theirs.location).write_bytes(content[mine.location])
    for kept in (mine, theirs):
        with pytest.raises(Tampered) as refused:
            open_records(context.settings, kept)
        assert str(refused.value) == ""
