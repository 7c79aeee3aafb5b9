"""The database's own clock: the only one that decides a lease, a deadline or a time on record.

Processes' clocks may be hours apart; they never meet the ones stored here.
"""

from typing import Any

from sqlalchemy import Float, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.functions import GenericFunction


class now(GenericFunction[float]):  # noqa: N801 - reads as the SQL function it is
    """Seconds since the epoch, by the database's wall clock at the moment the statement runs."""

    type = Float()
    inherit_cache = True
    name = "farthing_now"


@compiles(now, "postgresql")
def _postgresql_now(element: now, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401, ARG001 - the hook's shape
    """Return the time of the call, not of the transaction's start: a lease may run out while a lock is waited for."""
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS double precision)"


@compiles(now, "sqlite")
def _sqlite_now(element: now, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401, ARG001 - the hook's shape
    """Return milliseconds' resolution on every SQLite version (`unixepoch('subsec')` needs 3.42)."""
    return "((julianday('now') - 2440587.5) * 86400.0)"


def read(session: Session) -> float:
    """Return the database's time in seconds since the epoch: a statement of its own, so never older than a lock."""
    return float(session.execute(select(now())).scalar_one())
