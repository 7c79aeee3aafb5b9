"""One prefix of one bucket of an S3-compatible object store, in the few requests that we need.

Endpoint and credentials come from where every AWS client takes them: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and the other
variables, the files under ~/.aws, or the machine's own role. They are never part of an address and never logged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

from core.base.errors import NotReady

SCHEME: Final = "s3://"
_READ_AHEAD_BYTES: Final = 4 * 2**20
_PART_BYTES: Final = 8 * 2**20
_PARTS_AT_A_TIME: Final = 2
_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 30
_TRIES: Final = 3
_ROUNDS: Final = 2
"""Of tries; the one counts what the store answers, the other what the network does."""
_NO_BUCKET: Final = "The bucket does not exist."
_CLIENTS: Final = frozenset({"aiobotocore", "aiohttp", "botocore", "fsspec", "s3fs"})
"""Modules whose exceptions mean that the store could not be asked."""


class Changed(Exception):
    """The object is not the one that the condition named; nothing was written."""


@dataclass(frozen=True)
class BucketObject:
    """One object: its name below the prefix, its size, the time of its last writing, and its entity tag."""

    name: str
    bytes: int
    modified_at: float
    tag: str


@dataclass(frozen=True)
class Content:
    """An object's bytes and their entity tag."""

    bytes: bytes
    tag: str


class Bucket:
    """A prefix of a bucket.

    Args:
        url: s3://bucket/prefix.

    Raises:
        NotReady: it is no such address, or the client for it is not installed.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        # An address is no secret and may be shown, so one with credentials in it is refused.
        if not url.startswith(SCHEME) or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            raise NotReady("An object store is named as s3://bucket/prefix; credentials go into AWS_... variables.")
        self._bucket = parts.netloc
        # Keys begin without a slash; an empty path leaves an empty prefix.
        self._prefix = f"{parts.path.strip('/')}/".lstrip("/")
        self._system = _connect()

    def read(self, name: str) -> Content | None:
        """Return an object; None where there is none."""
        from fsspec.asyn import sync  # noqa: PLC0415 - one machine needs no object store

        with _asking():
            return cast("Content | None", sync(self._system.loop, self._read, name))

    async def _read(self, name: str) -> Content | None:
        try:
            answer = await self._system._call_s3("get_object", Bucket=self._bucket, Key=self._prefix + name)  # noqa: SLF001 - the asynchronous face of call_s3, for the body is read asynchronously
        except FileNotFoundError:
            return None
        async with answer["Body"] as body:
            return Content(await body.read(), answer["ETag"])

    def write(self, name: str, content: bytes) -> str:
        """Write an object, whatever was there; return its tag."""
        with _asking(), _in_a_bucket():
            return self._put(name, content)

    def write_if(self, name: str, content: bytes, tag: str | None) -> str:
        """Write an object if the one there has this tag, or, where the tag is None, if there is none; return its tag.

        Raises:
            Changed: it has another tag, is there, or is gone.
        """
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with _asking():
            try:
                return self._put(name, content, **condition)
            # s3fs gives this name to a failed If-None-Match; a failed If-Match keeps its HTTP status.
            except FileExistsError as error:
                raise Changed(name) from error
            except FileNotFoundError as error:
                # Under If-Match a missing object answers so, too; without it only the bucket can be missing.
                raise (Changed(name) if tag else NotReady(_NO_BUCKET, retry_after_seconds=5)) from error
            except OSError as error:
                # 412: the condition fails; 409: a rival's write to the same name is under way.
                if _status(error) in {409, 412}:
                    raise Changed(name) from error
                raise

    def _put(self, name: str, content: bytes, **condition: str) -> str:
        answer = self._system.call_s3(
            "put_object", Bucket=self._bucket, Key=self._prefix + name, Body=content, **condition
        )
        return str(answer["ETag"])

    def upload(self, path: Path, name: str) -> None:
        """Write a file of any size as one object, which appears when it is whole; each part is sent with a checksum."""
        with _asking(), _in_a_bucket():
            self._system.put_file(str(path), self._key(name), chunksize=_PART_BYTES, max_concurrency=_PARTS_AT_A_TIME)
            stored = self._system.info(self._key(name), refresh=True)["size"]
        if stored != path.stat().st_size:
            raise NotReady(f"The object store kept {stored} of {path.stat().st_size} bytes.")

    def open(self, name: str) -> BinaryIO:
        """Open an object for reading at any place.

        Raises:
            FileNotFoundError: there is none.
        """
        with _asking():
            return cast(
                "BinaryIO",
                self._system.open(
                    self._key(name), "rb", block_size=_READ_AHEAD_BYTES, cache_type="readahead", fill_cache=True
                ),
            )

    def has(self, name: str) -> bool:
        """Tell whether there is such an object."""
        try:
            with _asking():
                self._system.call_s3("head_object", Bucket=self._bucket, Key=self._prefix + name)
        except FileNotFoundError:
            return False
        return True

    def erase(self, name: str) -> None:
        """Delete an object; one that is gone already is no error."""
        with _asking(), _in_a_bucket():
            self._system.call_s3("delete_object", Bucket=self._bucket, Key=self._prefix + name)

    def list(self, prefix: str = "") -> Iterator[BucketObject]:
        """Yield the objects whose names begin so."""
        more: dict[str, str] = {}
        while True:
            with _asking(), _in_a_bucket():
                answer = self._system.call_s3(
                    "list_objects_v2", Bucket=self._bucket, Prefix=self._prefix + prefix, **more
                )
            for found in answer.get("Contents", ()):
                name = found["Key"].removeprefix(self._prefix)
                yield BucketObject(name, found["Size"], found["LastModified"].timestamp(), found["ETag"])
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def check(self) -> None:
        """Ask for the bucket.

        Raises:
            NotReady: it is not there, may not be used, or does not answer.
        """
        with _asking(), _in_a_bucket():
            self._system.call_s3("head_bucket", Bucket=self._bucket)

    def _key(self, name: str) -> str:
        return f"{self._bucket}/{self._prefix}{name}"


@lru_cache(maxsize=1)
def _connect() -> Any:  # noqa: ANN401 - s3fs ships no types
    """Return the client; it keeps its own connections and thread, so one a process will do."""
    try:
        import s3fs  # noqa: PLC0415 - one machine needs no object store
    except ImportError:
        raise NotReady("Object storage needs the extra `cluster`: pip install 'farthing[cluster]'.") from None
    system = s3fs.S3FileSystem(
        # Other machines write here, too: a kept listing would hide their objects.
        use_listings_cache=False,
        # fsspec would share the instance with other callers, but `retries` below is for us alone.
        skip_instance_cache=True,
        config_kwargs={
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": _READ_SECONDS,
            "retries": {"max_attempts": _TRIES, "mode": "standard"},
        },
    )
    system.retries = _ROUNDS
    return system


def _status(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of the client's."""
    response = getattr(error.__cause__, "response", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return None if status is None else int(status)


@contextmanager
def _in_a_bucket() -> Iterator[None]:
    """Take what is not found for the bucket, where no object need be there."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotReady(_NO_BUCKET, retry_after_seconds=5) from error


@contextmanager
def _asking() -> Iterator[None]:
    """Give one name to all that an operator has to look at; its text holds no address and no key."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, Changed, NotReady):
        raise
    except PermissionError as error:
        raise NotReady("The object store refuses these credentials.", retry_after_seconds=5) from error
    except Exception as error:
        # A fault of our own code must not look like an outage of the store.
        if not isinstance(error, OSError) and type(error).__module__.split(".")[0] not in _CLIENTS:
            raise
        raise NotReady(f"The object store does not answer ({type(error).__name__}).", retry_after_seconds=2) from error
