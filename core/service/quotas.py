"""Disk: each principal may have so much of it, and the service keeps a little of it free."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.orm import Session

from core.base.errors import DiskFull, FieldError, QuotaExceeded
from core.base.identifiers import new_id
from core.records import quotas as rows
from core.service.context import Caller, Context
from farthing.schemas.keys import UsageView

_STEP_BYTES: Final = 16 * 2**20
"""An upload is counted anew after each, and the disk may hold that much more than the quota for a moment."""


def usage(context: Context, caller: Caller) -> UsageView:
    """Return what the caller's files take, and may take."""
    with context.database.read() as session:
        found = rows.usage(session, caller.id, context.settings.site)
    most = context.settings.disk_bytes_per_owner
    return UsageView(
        stored_bytes=found.stored,
        pending_bytes=found.pending,
        most_bytes=most,
        remaining_bytes=max(0, most - found.total),
    )


def refuse_full(context: Context, caller: Caller, said_bytes: int) -> None:
    """Refuse an upload before it is read, where it cannot fit.

    Raises:
        QuotaExceeded: the caller's files would take more than one principal's may.
        DiskFull: the service has too little free disk.
    """
    leave_free(context, said_bytes)
    with context.database.read() as session:
        _admit(context, rows.usage(session, caller.id, context.settings.site).total + said_bytes)


def leave_free(context: Context, more_bytes: int = 0) -> None:
    """Refuse bytes that would take the disk which the service keeps free.

    Raises:
        DiskFull: they would.
    """
    folder = context.settings.home
    if folder.exists() and shutil.disk_usage(folder).free - more_bytes < context.settings.min_free_disk_bytes:
        raise DiskFull("The service has too little free disk to take this upload.", retry_after_seconds=60)


@contextmanager
def counted(
    context: Context, owner_id: str, pieces: Iterable[bytes], *, announced: bool = False
) -> Iterator[Iterator[bytes]]:
    """Count an upload against its owner's disk while it comes and until the end of the block; yield its pieces.

    Args:
        context: the service.
        owner_id: the owner of the files.
        pieces: of the file.
        announced: whether its bytes were counted by `announce`, and are not to be counted again.

    Raises:
        QuotaExceeded: on the way, at the piece that passes what the owner may have.
        DiskFull: on the way, as soon as the service has too little free disk.
    """
    upload_id, site = new_id("upl"), context.settings.site

    if announced:
        yield leaving_free(context, pieces)
        return

    def begin(session: Session) -> None:
        rows.lock(session, owner_id)
        _admit(context, rows.usage(session, owner_id, site).total)
        rows.begin(session, upload_id, owner_id, site, 0)

    def grow(session: Session, received: int) -> None:
        rows.grow(session, upload_id, received)
        _admit(context, rows.usage(session, owner_id, site).total)

    def passing() -> Iterator[bytes]:
        received = noted = 0
        for piece in pieces:
            received += len(piece)
            if received - noted >= _STEP_BYTES:
                leave_free(context)
                context.database.transaction(grow, received)
                noted = received
            yield piece
        context.database.transaction(grow, received)  # the rest, less than a step

    context.database.transaction(begin)
    try:
        yield passing()
    finally:
        context.database.transaction(rows.end, upload_id)


def leaving_free(context: Context, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces of a file, as long as the service has enough free disk.

    Raises:
        DiskFull: on the way.
    """
    received = 0
    for piece in pieces:
        before, received = received, received + len(piece)
        if received // _STEP_BYTES > before // _STEP_BYTES:
            leave_free(context)
        yield piece


def announce(context: Context, session: Session, owner_id: str, file_bytes: int) -> None:
    """Refuse an upload in parts that its owner has no room for; the caller adds its row in the same transaction.

    Raises:
        QuotaExceeded: the owner's files would take more than one owner's may.
    """
    rows.lock(session, owner_id)
    _admit(context, rows.usage(session, owner_id, context.settings.site).total + file_bytes, "/bytes")


def room(context: Context, owner_id: str) -> int:
    """Return how many bytes more an owner's files may take; at least 1."""
    with context.database.read() as session:
        used = rows.usage(session, owner_id, context.settings.site).stored
    return max(1, context.settings.disk_bytes_per_owner - used)


def admit(context: Context, session: Session, owner_id: str, added_bytes: int) -> None:
    """Refuse a file that is about to be kept, where its owner's would take too much; uploads under way do not count.

    Args:
        context: the service.
        session: the transaction that keeps it; the owner stays locked until its end.
        owner_id: the owner of the files.
        added_bytes: its size.

    Raises:
        QuotaExceeded: they would.
    """
    rows.lock(session, owner_id)
    _admit(context, rows.usage(session, owner_id, context.settings.site).stored + added_bytes)


def _admit(context: Context, wanted_bytes: int, pointer: str = "/file") -> None:
    most = context.settings.disk_bytes_per_owner
    if wanted_bytes > most:
        raise QuotaExceeded(
            f"With this upload the owner's files would take {wanted_bytes} bytes, of {most} that one owner may have "
            "here; GET /v1/usage shows them. Erase a dataset or delete weights, or ask the operator for more.",
            FieldError(pointer, "send a smaller file, or make room first"),
            wanted_bytes=wanted_bytes,
            most_bytes=most,
        )


def keep_house(context: Context) -> None:
    """Forget uploads whose process has died."""
    settings = context.settings
    context.database.transaction(rows.remove_silent, settings.upload_seconds + settings.decode_seconds)
