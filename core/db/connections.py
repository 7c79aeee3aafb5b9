"""Connections to the database: their settings, and the places and servers that could lose a commit."""

import time
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import InvalidatePoolError

from core.base.errors import NotReady

try:
    from pysqlite3 import dbapi2 as sqlite
except ImportError:  # pragma: no cover - no wheel for this machine: the standard library's, in its safe journal mode
    import sqlite3 as sqlite

DRIVER: Final = sqlite
"""Of SQLite."""
BUSY_SECONDS: Final = 10.0
LOCK_SECONDS: Final = 2.0
STALL_SECONDS: Final = 30.0
"""For so long a transaction may ask nothing: its process stands still then, and all sweeps would wait for its locks."""
IDLE_SECONDS: Final = 1.0
"""A connection that lay for longer is asked whether it lives before it is used."""
_FIRST_SAFE_LOG: Final = (3, 51, 3)
_NETWORK: Final = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "lustre",
        "glusterfs",
        "beegfs",
        "gpfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
    ]
)


def refuse_network_file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Refuse a folder whose locks may lie.

    Args:
        folder: where the database will be.
        mounts: the kernel's table of mounts; where there is none, nothing is refused.

    Raises:
        NotReady: the folder is on a network file system.
    """
    if not mounts.exists():
        return
    best, kind = Path("/"), ""
    for line in mounts.read_text().splitlines():
        _, point, name, *_ = line.split()
        mount = Path(point.replace("\\040", " "))
        if folder.resolve().is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, name
    if kind in _NETWORK:
        raise NotReady(f"{folder} is on {kind}: SQLite's locks do not hold there; use a local disk or PostgreSQL.")


def journal(version: tuple[int, ...]) -> tuple[str, str]:
    """Return the journal mode and the level of syncing that keep commits on this version of SQLite."""
    return ("wal", "FULL") if version >= _FIRST_SAFE_LOG else ("delete", "EXTRA")


def prepare_writer(connection: Any, record: object) -> None:  # noqa: ANN401, ARG001 - the driver's type; the hook's shape
    """Set a writing SQLite connection up."""
    connection.isolation_level = None  # the driver begins nothing by itself; `begin` does
    mode, syncing = journal(sqlite.sqlite_version_info)
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != mode:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}")
        except sqlite.OperationalError:  # a rival is changing it at this moment; the busy timeout does not cover this
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute(f"PRAGMA synchronous = {syncing}")
    connection.execute("PRAGMA foreign_keys = ON")


def prepare_reader(connection: Any, record: object) -> None:  # noqa: ANN401, ARG001 - the driver's type; the hook's shape
    """Set a SQLite connection up that cannot write."""
    connection.isolation_level = None
    connection.execute("PRAGMA query_only = ON")


def note_use(connection: Any, record: Any) -> None:  # noqa: ANN401 - the driver's type; the hook's shape
    """Note when a connection went back to the pool."""
    if connection is not None:
        record.info["used_at"] = time.monotonic()


def ask_if_idle(connection: Any, record: Any, proxy: object) -> None:  # noqa: ANN401, ARG001 - as above
    """Replace connections that lay idle and have died, as all do when the server restarts.

    One that was used a moment ago is taken as it is; should it have died, its error drops all that are as old.
    """
    if time.monotonic() < record.info.get("used_at", 0.0) + IDLE_SECONDS:
        return
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except Exception as error:
        raise InvalidatePoolError("it lay idle and has died") from error


def prepare_postgresql(connection: Any, record: object) -> None:  # noqa: ANN401, ARG001 - the driver's type; the hook's shape
    """Set a PostgreSQL connection up, and refuse a server that may forget a commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
        unsafe = [
            name
            for name, value in zip(("fsync", "synchronous_commit"), cursor.fetchone(), strict=True)
            if value == "off"
        ]
        cursor.execute(f"SET lock_timeout = '{LOCK_SECONDS:.0f}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{STALL_SECONDS:.0f}s'")
    connection.commit()
    if unsafe:
        raise NotReady(f"PostgreSQL runs with {' and '.join(unsafe)} off: a paid charge could be lost. Turn it on.")
