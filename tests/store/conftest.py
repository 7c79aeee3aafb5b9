"""Places for records: a folder of this machine, and a bucket of a real object store over HTTP."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.store.records.storage import Folder, Objects, Storage
from tests.support.object_store import new_bucket, object_store


@pytest.fixture(scope="session")
def s3() -> Iterator[Callable[[], str]]:
    """An object store for this test process; makes buckets."""
    with object_store():
        yield new_bucket


@pytest.fixture
def bucket_url(s3: Callable[[], str]) -> str:
    """A prefix of an empty bucket."""
    return f"s3://{s3()}/some/where"


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    if request.param == "folder":
        (tmp_path / "records").mkdir()
        return Folder(tmp_path / "records")
    return Objects(request.getfixturevalue("bucket_url"))
