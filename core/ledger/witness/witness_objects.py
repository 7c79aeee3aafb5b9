"""A witness in an object store, for several machines: one object a scope, replaced only by whoever knows it.

Each object is written only if it still is the one that its writer has read (If-Match), or if there is none
(If-None-Match). Its writer reads the database only after it has read the object. In every order of writers that stop
and resume, an older head never replaces a newer one. Either the database already had the newer one when the condition's
tag was read, or the tag has changed. The alternative, an object for each writer and the largest on reading, needs no
conditions, but each trainer is a writer: it would grow with every job, and could not be tidied without them. A store
that ignores conditions is refused at start.
"""

import json
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from core.base.errors import NotReady
from core.ledger import chain
from core.ledger.witness.witness_file import Change, Name, Seen, name_in, seen_in
from core.records.bucket import Bucket, Changed

SERVER: Final = "server"
SCOPES: Final = "scopes/"
ERASED: Final = "erased/"
PROBES: Final = "probes/"
_AT_A_TIME: Final = 8
_UNCONDITIONAL: Final = (
    "This object store ignores conditional writes (If-Match), so an older head could replace a newer one in the "
    "witness. Use a store that honours them, or a file in a folder that the machines share."
)

A = TypeVar("A")
B = TypeVar("B")


class WitnessObjects:
    """Objects below a prefix: scopes, tombstones, and `server`, which is written last and says that they are whole."""

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)
        self._caching = threading.Lock()
        self._seen: dict[str, Seen] = {}
        self._begun = False

    def check(self) -> None:
        """Try, with an object of our own, whether conditions hold.

        Raises:
            NotReady: the store does not answer, or ignores them.
        """
        name = f"{PROBES}{secrets.token_hex(8)}"
        try:
            self._bucket.write_if(name, b"1", None)
            # Both writes must fail: the object is there, and no object has that tag.
            for tag in (None, '"00000000000000000000000000000000"'):
                try:
                    self._bucket.write_if(name, b"2", tag)
                except Changed:
                    continue
                raise NotReady(_UNCONDITIONAL)
        finally:
            self._bucket.erase(name)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let everybody in: the conditions serve."""
        yield

    def exists(self, *, certain: bool = True) -> bool:
        """As `Place.exists`."""
        if certain or not self._begun:
            self._begun = self._bucket.has(SERVER)
        return self._begun

    def identity(self) -> str | None:
        """As `Place.identity`."""
        found = self._bucket.read(SERVER)
        return None if found is None else json.loads(found.bytes)["server"]

    def name(self) -> Name | None:
        """As `Place.name`."""
        found = self._bucket.read(SERVER)
        return None if found is None else name_in(json.loads(found.bytes))

    def call(self, name: Name) -> None:
        """As `Place.call`."""
        self._bucket.write(SERVER, _written({"server": self.identity(), **name.line()}))

    def known(self, scopes: Collection[str] | None = None, *, certain: bool = False) -> Mapping[str, Seen]:
        """As `Place.known`: of named scopes, what was last read or written here, which the condition puts to the test.

        All scopes are listed, and those that have changed are read.
        """
        if scopes is None:
            tags = {one.name.removeprefix(SCOPES): one.tag for one in self._bucket.list(SCOPES)}
            with self._caching:
                held = {one: self._seen.get(one) for one in tags}
            fresh = {one: seen for one, seen in held.items() if seen is not None and seen.tag == tags[one]}
        else:
            tags = dict.fromkeys(scopes, "")
            with self._caching:
                fresh = {} if certain else {one: self._seen[one] for one in scopes if one in self._seen}
        stale = [one for one in tags if one not in fresh]
        read = {one: seen for one, seen in zip(stale, _together(self._read, stale), strict=True) if seen is not None}
        with self._caching:
            self._seen |= read
        return {**fresh, **read}

    def write(self, changes: Mapping[str, Change]) -> set[str]:
        """As `Place.write`."""
        wrote = _together(lambda scope_id: self._write(scope_id, changes[scope_id]), changes)
        return {scope_id for scope_id, done in zip(changes, wrote, strict=True) if not done}

    def renew(self, server: str | None, name: Name, changes: Mapping[str, Change]) -> set[str]:
        """As `Place.renew`; tombstones are objects of their own and stay."""
        refused = self.write({one: change for one, change in changes.items() if change.before != change.after})
        if refused:
            return refused
        for gone in self.known().keys() - changes.keys():
            self._bucket.erase(f"{SCOPES}{gone}")
        self._bucket.write(SERVER, _written({"server": server, **name.line()}))
        self._begun = True
        return set()

    def erased(self) -> set[str]:
        """As `Place.erased`."""
        return {one.name.removeprefix(ERASED) for one in self._bucket.list(ERASED)}

    def bury(self, dataset_id: str) -> None:
        """As `Place.bury`."""
        if self.exists():
            self._bucket.write(f"{ERASED}{dataset_id}", _written({"erased": dataset_id}))

    def _read(self, scope_id: str) -> Seen | None:
        found = self._bucket.read(f"{SCOPES}{scope_id}")
        if found is None:
            return None
        told = json.loads(found.bytes)
        return replace(seen_in(told), tag=found.tag)

    def _write(self, scope_id: str, change: Change) -> bool:
        """Replace an object; tell whether it was still the one that was known. If not, its record is forgotten."""
        after = change.after
        tag = None if change.before is None else change.before.tag
        try:
            tag = self._bucket.write_if(f"{SCOPES}{scope_id}", _written(after.line(scope_id)), tag)
        except Changed:
            with self._caching:
                self._seen.pop(scope_id, None)
            return False
        with self._caching:
            self._seen[scope_id] = replace(after, tag=tag)
        return True


def _together(ask: Callable[[A], B], about: Iterable[A]) -> list[B]:
    """Return the answers to several questions, asked a few at a time."""
    asked = list(about)
    if len(asked) <= 1:
        return [ask(one) for one in asked]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(ask, asked))


def _written(line: Mapping[str, Any]) -> bytes:
    return chain.canonical(line).encode("ascii")
