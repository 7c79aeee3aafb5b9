"""One door to the database: short write transactions, read-only snapshots, and nothing that spans a wait.

SQLite (one machine): write-ahead log with every commit synced, writers take the lock at BEGIN, readers cannot write.
Libraries older than 3.51.3 can lose committed writes when a log is reset, so on them the rollback journal is used with
its directory synced too. PostgreSQL: row locks with a limit of two seconds, deadlocks and serialization failures
repeated three times; a server that may forget a commit is refused.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Concatenate, Final, NoReturn, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from core.base.errors import DatabaseAway, DiskFull, Forbidden, LedgerBusy, NotReady, ensure
from core.db.connections import (
    BUSY_SECONDS,
    DRIVER,
    LOCK_SECONDS,
    ask_if_idle,
    note_use,
    prepare_postgresql,
    prepare_reader,
    prepare_writer,
    refuse_network_file_system,
)

POLL_SECONDS: Final = 0.003
POOL: Final = 50
KEPT: Final = 24
"""Connections over this number are closed when they go back; to open one takes as long as a dozen statements."""
SILENCE: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""When a PostgreSQL server whose machine is gone counts as gone: the kernel's own patience is a quarter of an hour."""
RETRIES: Final = 3
_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_RETRIED: Final = ("40P01", "40001")  # deadlock, serialization failure
_GONE: Final = ("57P01", "57P02", "57P03", "08000", "08003", "08006")  # shut down, crashed, starting; connections
LOCK_TIMEOUT: Final = "55P03"
_FULL: Final = "53100"
_ROOM_BYTES: Final = 2**20
"""With less room on its disk, an error of SQLite in writing is a full disk's."""
_NO_RIGHT: Final = "42501"

P = ParamSpec("P")
T = TypeVar("T")


def sqlstate(error: DBAPIError) -> str | None:
    """Return PostgreSQL's five-character code of an error, or None."""
    return getattr(error.orig, "sqlstate", None)


def _is_busy(error: DBAPIError) -> bool:
    """Tell whether a lock could not be had in time; nothing was written then."""
    return sqlstate(error) in (LOCK_TIMEOUT, *_RETRIED) or str(error.orig) == "database is locked"


def _is_away(error: DBAPIError) -> bool:
    """Tell whether a PostgreSQL server could not be reached, or went while it was asked."""
    code = sqlstate(error)
    return error.connection_invalidated or (isinstance(error, OperationalError) and (code is None or code in _GONE))


class Database:
    """A database of ours: `write` and `read` give sessions, `migrate` makes the tables."""

    begin_writing = "BEGIN IMMEDIATE"  # a deferred transaction that turns to writing fails at once under contention

    def __init__(self, url: str | URL) -> None:
        """Connect, and check what the promises rest on.

        Args:
            url: ``sqlite+pysqlite:////path`` or ``postgresql+psycopg://...``.

        Raises:
            NotReady: the file system or the server's settings could lose a commit.
        """
        self.url = make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        # SQLite's writers poll for their lock, which starves some of many threads: one of each process polls at a time.
        self._turn = threading.BoundedSemaphore(1 if self.is_sqlite else POOL)
        if self.is_sqlite:
            self._open_sqlite()
        else:
            self._open_postgresql()
        self._writing = sessionmaker(self._writer, expire_on_commit=False)
        self._reading = sessionmaker(self._reader, expire_on_commit=False)
        self._looking = sessionmaker(self._looker, expire_on_commit=False)
        self._patience = 0.0
        with self._writer.connect():
            pass

    def _open_sqlite(self) -> None:
        """Make the two engines of a SQLite file."""
        if not self.url.database or self.url.database == ":memory:":
            raise NotReady("SQLite needs a file: several processes share it.")
        path = Path(self.url.database)
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_network_file_system(path.parent)
        url = self.url.set(drivername="sqlite+pysqlite")
        options = {
            "module": DRIVER,
            "connect_args": {"timeout": BUSY_SECONDS},
            "pool_size": 10,
            "max_overflow": POOL - 10,
        }
        self._writer = create_engine(url, **options)
        self._reader = create_engine(url, **options)
        event.listen(self._writer, "connect", prepare_writer)
        event.listen(self._reader, "connect", prepare_reader)
        self._looker = self._reader
        event.listen(self._writer, "begin", self._begin)
        event.listen(self._reader, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))

    def _begin(self, connection: Connection) -> None:
        """Begin to write, trying every few milliseconds: SQLite waits so long in between that busy rivals starve us."""
        deadline = time.monotonic() + BUSY_SECONDS
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        while True:
            try:
                connection.exec_driver_sql(self.begin_writing)
                break
            except DBAPIError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS:.0f}")

    def _open_postgresql(self) -> None:
        """Make the engine of a PostgreSQL server and its read-only face."""
        self._writer = create_engine(
            self.url.set(drivername="postgresql+psycopg"),
            pool_size=KEPT,
            max_overflow=POOL - KEPT,
            connect_args=SILENCE,
            isolation_level="READ COMMITTED",
        )
        event.listen(self._writer, "connect", prepare_postgresql)
        event.listen(self._writer, "checkin", note_use)
        event.listen(self._writer, "checkout", ask_if_idle)
        self._reader = self._writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._looker = self._writer.execution_options(isolation_level="AUTOCOMMIT", postgresql_readonly=True)

    @property
    def engine(self) -> Engine:
        """The writing engine, for migrations and backups."""
        return self._writer

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Give one short transaction; it commits at the end of the block and rolls back on any exception.

        Raises:
            LedgerBusy: a lock could not be had in time, or others' locks crossed ours; nothing was written.
            DiskFull: there is no room on the database's disk; nothing was written.
            DatabaseAway: the server does not answer; if it went during the commit, that may have been done.
        """
        if not self._turn.acquire(timeout=BUSY_SECONDS):
            raise LedgerBusy("The ledger is busy; try again.", retry_after_seconds=1)
        try:
            with self._writing.begin() as session:
                yield session
        except DBAPIError as error:
            self._refuse(error)
        finally:
            self._turn.release()

    def _refuse(self, error: DBAPIError) -> NoReturn:
        """Raise a refusal for an error that passes with time or that a site's login meets by design, else the error."""
        if _is_busy(error):
            raise LedgerBusy("The ledger is busy; try again.", retry_after_seconds=1) from error
        if self._is_full(error):
            raise DiskFull("The database's disk is full: nothing was written.", retry_after_seconds=60) from error
        if not self.is_sqlite and _is_away(error):
            raise DatabaseAway("The database does not answer; try again.", retry_after_seconds=2) from error
        if sqlstate(error) == _NO_RIGHT:
            raise Forbidden(
                "The login of this site's service to the database may not do that: ask the service's own API, or that "
                "of the site whose records they are."
            ) from error
        raise error

    def _is_full(self, error: DBAPIError) -> bool:
        """Tell whether the database's disk has no room; the transaction was rolled back then."""
        if not self.is_sqlite:
            return sqlstate(error) == _FULL
        full = shutil.disk_usage(Path(self.url.database or "").parent).free < _ROOM_BYTES
        return str(error.orig) == "database or disk is full" or (full and str(error.orig) == "disk I/O error")

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Give one read-only snapshot; writing in it fails.

        Raises:
            DatabaseAway: the server does not answer.
        """
        try:
            with self._reading.begin() as session:
                yield session
        except DBAPIError as error:
            self._refuse(error)

    @contextmanager
    def look(self) -> Iterator[Session]:
        """Give a session for one statement that reads: no snapshot is opened before and closed behind it."""
        try:
            with self._looking.begin() as session:
                yield session
        except DBAPIError as error:
            self._refuse(error)

    def transaction(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``work(session, ...)`` of one write transaction, which is repeated as `insist` says.

        Raises:
            LedgerBusy: a lock could not be had in time; nothing was written.
        """
        began, tried = time.monotonic(), 0
        while True:
            try:
                with self.write() as session:
                    return work(session, *args, **kwargs)
            except (LedgerBusy, DBAPIError) as error:
                self._rest(error, began, tried)
            tried += 1

    def insist(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what an act returns that may be done twice.

        It is repeated up to three times where locks crossed, and for `patience` seconds while the database is busy or
        away.

        Raises:
            LedgerBusy, DBAPIError: from the last try.
        """
        began, tried = time.monotonic(), 0
        while True:
            try:
                return act(*args, **kwargs)
            except (LedgerBusy, DBAPIError) as error:
                self._rest(error, began, tried)
            tried += 1

    def _rest(self, error: LedgerBusy | DBAPIError, began: float, tried: int) -> None:
        """Wait before the next try; raise the error again where none would help, or there was time enough."""
        crossed = isinstance(error.__cause__, DBAPIError) and sqlstate(error.__cause__) in _RETRIED
        if crossed and tried < RETRIES:
            time.sleep(0.01 * 2**tried)
            return
        # Any other error is a fault of the statement, which repeating would not mend.
        passing = isinstance(error, LedgerBusy | OperationalError | InterfaceError)
        if not passing or time.monotonic() >= began + self._patience:
            raise error
        time.sleep(min(_PAUSE_SECONDS * 2**tried, _LONGEST_PAUSE_SECONDS))

    def patient(self, seconds: float) -> Self:
        """Return this database, whose transactions are repeated for so long while it is busy or away."""
        database = copy(self)
        database._patience = seconds  # noqa: SLF001 - a copy of our own
        return database

    def migrate(self) -> None:
        """Bring the tables to this code's revision; several processes may ask at once, one does it."""
        from core.db.revisions import upgrade  # noqa: PLC0415 - slow; most processes migrate nothing

        with self._writer.connect() as connection:
            if self.is_sqlite:  # a table that is copied is dropped, and others refer to it; inside it is too late
                _set_foreign_keys(connection, on=False)
            else:
                connection.exec_driver_sql("SET lock_timeout = '60s'")
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7041793)")
            upgrade(connection)
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SET lock_timeout = '{LOCK_SECONDS:.0f}s'")
            elif connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                raise NotReady("The migration would leave rows that refer to nothing; nothing was changed.")
            connection.commit()
            if self.is_sqlite:
                _set_foreign_keys(connection, on=True)

    def revision(self) -> str | None:
        """Return the tables' revision, None before the first migration."""
        from core.db.revisions import revision_of  # noqa: PLC0415 - as above

        with self._reader.connect() as connection:
            return revision_of(connection)

    def is_empty(self) -> bool:
        """Tell whether there are no tables at all, of whichever revision."""
        return not inspect(self._reader).get_table_names()

    def ready(self) -> bool:
        """Tell whether this code can serve these tables: they are at its own revision or the next one."""
        from core.db.revisions import head_revision  # noqa: PLC0415 - as above

        head, revision = head_revision(), self.revision()
        return head is not None and revision is not None and int(revision) - int(head) in (0, 1)

    def backup(self, path: Path) -> None:
        """Write a consistent copy of a SQLite database to `path`, which must not exist yet."""
        ensure(self.is_sqlite, "PostgreSQL is backed up with its own tools")
        connection = self._writer.raw_connection()
        try:
            connection.driver_connection.execute("VACUUM INTO ?", (str(path),))  # type: ignore[union-attr]  # is open
        finally:
            connection.close()

    def dispose(self) -> None:
        """Close every pooled connection."""
        self._reader.dispose()
        self._writer.dispose()


def _set_foreign_keys(connection: Connection, *, on: bool) -> None:
    """Turn SQLite's check of references on or off, outside a transaction, where alone that works."""
    raw = connection.connection.driver_connection
    assert raw is not None, "it is open"
    raw.execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}")
