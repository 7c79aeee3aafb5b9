"""Each site's credentials open its own bucket alone, in a store that asks everybody for rights."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.base.errors import NotReady
from core.records.bucket import Bucket
from tests.support.object_store import Credentials, new_bucket, object_store, users

EVERYTHING = ("s3:*",)
"""In one's own bucket: the store of these tests has names of its own for single rights."""
REFUSED = "The object store refuses these credentials"


@dataclass(frozen=True)
class Two:
    """Two sites' buckets, and their credentials."""

    buckets: dict[str, str]
    credentials: dict[str, Credentials]

    def records(self, site: str) -> Bucket:
        """Return a site's records as whoever asks now may have them."""
        return Bucket(f"s3://{self.buckets[site]}/records")


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    with object_store() as store:
        buckets = {site: new_bucket() for site in ("north", "south")}
        yield Two(buckets, users(store, {site: {bucket: EVERYTHING} for site, bucket in buckets.items()}))


def test_a_site_s_credentials_are_good_for_all_that_its_own_storage_needs(two: Two, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"sealed" * 1000)
    with two.credentials["north"].used():
        own = two.records("north")
        own.check()
        own.upload(file, "rec_1.sealed")
        with own.open("rec_1.sealed") as stored:
            assert stored.read() == file.read_bytes()
        assert [found.name for found in own.list("rec_")] == ["rec_1.sealed"]
        own.erase("rec_1.sealed")
        assert not own.has("rec_1.sealed")


def test_they_open_nobody_else_s(two: Two, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"sealed" * 1000)
    with two.credentials["south"].used():
        two.records("south").upload(file, "rec_2.sealed")
    with two.credentials["north"].used():
        other = two.records("south")
        for act in (
            other.check,
            lambda: other.read("rec_2.sealed"),
            lambda: other.open("rec_2.sealed"),
            lambda: list(other.list()),
            lambda: other.upload(file, "rec_2.sealed"),
            lambda: other.write("rec_3.sealed", b"x"),
            lambda: other.erase("rec_2.sealed"),
        ):
            with pytest.raises(NotReady, match=REFUSED):
                act()
    with two.credentials["south"].used():
        assert [found.name for found in two.records("south").list()] == ["rec_2.sealed"]
