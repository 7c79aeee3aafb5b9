"""The heads that a witness remembers, and their file.

Lines are appended and synced, under a lock that holds between the processes of a machine, or of several that share a
folder whose locks hold. A process reads what others have appended since it looked last, and no more.
"""

import fcntl
import json
import os
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from core.base.files import replace
from core.ledger import chain

COMPACT_BYTES: Final = 4 * 2**20
COMPACT_FACTOR: Final = 2
"""A file is rewritten when it is large and holds this many times the lines it needs."""


@dataclass(frozen=True)
class Seen:
    """The witness's record of one scope."""

    seq: int
    head: str
    taken: dict[str, list[int]]
    """Spent + reserved of each account at that entry, by slot."""
    draws: dict[str, int]
    """Units of draws of each account then."""
    tag: str | None = field(default=None, compare=False)
    """Names this very writing of it, where the place has such names."""

    def line(self, scope_id: str) -> dict[str, Any]:
        """Return it as JSON."""
        return {"scope": scope_id, **{name: value for name, value in asdict(self).items() if name != "tag"}}


@dataclass(frozen=True)
class Name:
    """Which witness it is: drawn when it is made, and again by every reconciliation."""

    own: str
    before: tuple[str, ...] = ()
    """Its earlier names, oldest first."""

    def line(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"witness": self.own, "before": list(self.before)}


def seen_in(told: Mapping[str, Any]) -> Seen:
    """Return what a line tells of a scope."""
    return Seen(told["seq"], told["head"], told["taken"], told["draws"])


def name_in(told: Mapping[str, Any]) -> Name | None:
    """Return the name that a heading tells; None where it tells none."""
    return Name(told["witness"], tuple(told["before"])) if "witness" in told else None


@dataclass(frozen=True)
class Change:
    """A scope that has moved on: its record before the database was read, and after."""

    before: Seen | None
    after: Seen


class Place(Protocol):
    """Where a witness keeps what it knows."""

    def check(self) -> None:
        """Refuse a place in which an older head could replace a newer one."""

    def turn(self) -> AbstractContextManager[None]:
        """Let one process at a time in, where the place cannot tell by itself that another one was faster."""

    def exists(self, *, certain: bool = True) -> bool:
        """Tell whether anything was ever witnessed; without `certain`, whether it was when last asked."""

    def identity(self) -> str | None:
        """Return the identity of the server that was witnessed, None where it has none."""

    def name(self) -> Name | None:
        """Return which witness it is; None where it is empty."""

    def call(self, name: Name) -> None:
        """Give a name to a witness that has none."""

    def known(self, scopes: Collection[str] | None = None, *, certain: bool = False) -> Mapping[str, Seen]:
        """Return what is known of these scopes, or of all; `certain` reads named ones now, whatever was read before."""

    def write(self, changes: Mapping[str, Change]) -> set[str]:
        """Write changes durably; return the scopes that somebody else has changed since they were known."""

    def renew(self, server: str | None, name: Name, changes: Mapping[str, Change]) -> set[str]:
        """Begin anew with these scopes and the datasets erased so far; return as `write`."""

    def erased(self) -> set[str]:
        """Return the datasets whose records were destroyed."""

    def bury(self, dataset_id: str) -> None:
        """Write down durably that a dataset's records are about to be destroyed; nothing where there is no witness."""


class WitnessFile:
    """A file of lines: the server, scopes as they moved on, datasets as they were erased."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._caching = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        """Know nothing of the file yet."""
        self._first = b""
        self._offset = 0
        self._lines = 0
        self._server: str | None = None
        self._name: Name | None = None
        self._seen: dict[str, Seen] = {}
        self._erased: set[str] = set()

    def check(self) -> None:
        """Do nothing: the lock serves."""

    def exists(self, *, certain: bool = True) -> bool:
        """As `Place.exists`; a look at the disk is cheap."""
        del certain
        return self.path.exists()

    def identity(self) -> str | None:
        """As `Place.identity`."""
        self._catch_up()
        return self._server

    def name(self) -> Name | None:
        """As `Place.name`."""
        self._catch_up()
        return self._name

    def call(self, name: Name) -> None:
        """As `Place.call`."""
        self._append([name.line()])

    def known(self, scopes: Collection[str] | None = None, *, certain: bool = False) -> Mapping[str, Seen]:
        """As `Place.known`; a look at what was appended is cheap."""
        del certain
        self._catch_up()
        return self._seen if scopes is None else {one: self._seen[one] for one in scopes if one in self._seen}

    def erased(self) -> set[str]:
        """As `Place.erased`."""
        self._catch_up()
        return set(self._erased)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """As `Place.turn`; the lock is a file beside, which the file's rewriting leaves alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as file:
            # Closing the file releases the lock, also where the process dies.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def write(self, changes: Mapping[str, Change]) -> set[str]:
        """As `Place.write`; nobody else can, during a turn."""
        self._append(change.after.line(scope_id) for scope_id, change in changes.items())
        needed = 1 + len(self._seen) + len(self._erased)
        if self._offset > COMPACT_BYTES and self._lines > COMPACT_FACTOR * needed:
            self._rewrite(self._server, self._name, self._seen)
        return set()

    def renew(self, server: str | None, name: Name, changes: Mapping[str, Change]) -> set[str]:
        """As `Place.renew`."""
        self._rewrite(server, name, {scope_id: change.after for scope_id, change in changes.items()})
        return set()

    def bury(self, dataset_id: str) -> None:
        """As `Place.bury`."""
        with self.turn():
            if self.exists():
                self._append([{"erased": dataset_id}])

    def _append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines and sync, after cutting off what a crash left of an unfinished one."""
        self._catch_up()
        # `r+b` creates nothing: a witness that vanished must not come back empty.
        with self.path.open("r+b") as file:
            file.truncate(self._offset)
            file.seek(self._offset)
            file.write(_written(lines))
            file.flush()
            os.fsync(file.fileno())
        self._catch_up()

    def _rewrite(self, server: str | None, name: Name | None, seen: Mapping[str, Seen]) -> None:
        """Put a new file in the old one's place; its first line is like no other's, so that readers notice."""
        called = {} if name is None else name.line()
        lines: list[Mapping[str, Any]] = [{"server": server, "file": secrets.token_hex(8), **called}]
        lines += [one.line(scope_id) for scope_id, one in seen.items()]
        lines += [{"erased": dataset_id} for dataset_id in sorted(self.erased())]
        replace(self.path, _written(lines))
        self._catch_up()

    def _catch_up(self) -> None:
        """Read what was appended since the last time, or all of a file that is another one."""
        with self._caching:
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                self._forget()
                return
            with file:
                same = self._offset > 0 and file.read(len(self._first)) == self._first
                if not same or os.fstat(file.fileno()).st_size < self._offset:
                    self._forget()
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):  # of a crash while appending: it does not count
                        break
                    self._first = self._first or line
                    self._offset += len(line)
                    self._lines += 1
                    self._take(json.loads(line))

    def _take(self, told: Mapping[str, Any]) -> None:
        if "scope" in told:
            self._seen[told["scope"]] = seen_in(told)
        if "erased" in told:
            self._erased.add(told["erased"])
        self._server = told.get("server", self._server)
        self._name = name_in(told) or self._name


def _written(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(chain.canonical(line) + "\n" for line in lines).encode("ascii")
