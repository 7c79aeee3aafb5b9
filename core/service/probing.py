"""A probe of writing: with a full disk, reads go on and jobs do not."""

import os
import time
from threading import Lock
from typing import TYPE_CHECKING, Final

from core.base.errors import LedgerBusy, NotReady, Refusal
from core.db import clock
from core.ledger.claims import put_secret

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from core.service.context import Context

EVERY_SECONDS: Final = 5.0
"""Between two probes: anybody may ask for the service's state, and a probe writes."""
_NAME: Final = "write-probe"


class WriteProbe:
    """Writes a row and a file, at most once in some seconds, and remembers what came of it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._at = -EVERY_SECONDS
        self._wrong: str | None = None

    def check(self, context: "Context") -> None:
        """Find out whether the database and the home can be written to.

        Raises:
            NotReady: one of them cannot.
        """
        with self._lock:
            if time.monotonic() >= self._at + EVERY_SECONDS:
                self._wrong = _probe(context)
                self._at = time.monotonic()
            wrong = self._wrong
        if wrong is not None:
            raise NotReady(wrong, retry_after_seconds=round(EVERY_SECONDS))


def _probe(context: "Context") -> str | None:
    """Write, and return what is wrong."""
    settings = context.settings
    try:
        if not settings.site:  # a site's login writes no such row
            context.database.transaction(_write)
        settings.spool_path.mkdir(parents=True, exist_ok=True)
        path = settings.spool_path / f"{_NAME}-{os.getpid()}"  # processes share the folder
        try:
            path.write_bytes(os.urandom(4096))
        finally:
            path.unlink(missing_ok=True)
    except LedgerBusy:
        return None  # it is written to
    except Refusal as refusal:
        return refusal.detail
    except OSError as error:
        return f"The service's home cannot be written to, as on a full disk: {os.strerror(error.errno or 0)}."
    return None


def _write(session: "Session") -> None:
    put_secret(session, _NAME, repr(clock.read(session)))
