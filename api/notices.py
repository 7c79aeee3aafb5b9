"""Notices of an API process: it reads events from committed rows, and sends what is due, beside requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from anyio import to_thread

from api.posting import post
from core.service import mailing, notices, parcels
from core.service.context import Context
from core.service.parcels import Mail, Post

MAILS_AT_ONCE: Final = 2
log = structlog.get_logger("farthing.api")


@asynccontextmanager
async def running(context: Context) -> AsyncIterator[None]:
    """Send notices for the length of the block. A site's service sends none: its login sees no webhook."""
    async with anyio.create_task_group() as tasks:
        if not context.settings.site:
            tasks.start_soon(_go_on, context)
        yield
        tasks.cancel_scope.cancel()


async def _go_on(context: Context) -> None:
    mailers = anyio.CapacityLimiter(MAILS_AT_ONCE)
    is_ready = False
    while True:
        sent = 0
        try:
            is_ready = is_ready or await to_thread.run_sync(context.database.ready)
            if is_ready:
                await to_thread.run_sync(notices.read, context)
                sent = await _send(context, mailers)
        except Exception as error:  # noqa: BLE001 - a database away for a moment must not end the notices for good
            log.error("notices", error=type(error).__name__)  # noqa: TRY400 - a traceback may hold an address
        # After a delivery more may be due, so only an empty look is followed by a pause.
        if not sent:
            await anyio.sleep(context.settings.notice_seconds)


async def _send(context: Context, mailers: anyio.CapacityLimiter) -> int:
    """Send what is due now; return how many deliveries were claimed."""
    if not await to_thread.run_sync(parcels.any_due, context):
        return 0
    claimed = await to_thread.run_sync(parcels.claim, context)
    async with anyio.create_task_group() as tasks:
        for one in claimed:
            tasks.start_soon(_send_one, context, one, mailers)
    return len(claimed)


async def _send_one(context: Context, parcel: Post | Mail, mailers: anyio.CapacityLimiter) -> None:
    if isinstance(parcel, Mail):
        outcome = await to_thread.run_sync(mailing.send, context.settings, parcel, limiter=mailers)
    else:
        outcome = await post(context.settings, parcel)
    await to_thread.run_sync(parcels.note, context, parcel, outcome)
