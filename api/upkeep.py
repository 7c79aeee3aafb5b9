"""The upkeep of an API process: it ends erasures, erases late drafts, and removes what killed uploads left behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from anyio import to_thread

from core.service import datasets, drafts, quotas
from core.service.context import Context

COLLECT_SECONDS: Final = 3600.0
"""Between two looks for records that became no dataset: listing a bucket costs."""
log = structlog.get_logger("farthing.api")


@asynccontextmanager
async def running(context: Context) -> AsyncIterator[None]:
    """Keep house for the length of the block."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_house, context)
        yield
        tasks.cancel_scope.cancel()


async def _keep_house(context: Context) -> None:
    # The loop's clock is above 0, so the first round looks for orphans at once.
    collected_at = -COLLECT_SECONDS
    while True:
        orphans: list[str] = []
        try:
            await to_thread.run_sync(drafts.erase_late, context)
            erased = await to_thread.run_sync(datasets.finish_erasures, context)
            await to_thread.run_sync(quotas.keep_house, context)
            left = await to_thread.run_sync(datasets.remove_leftovers, context)
            if anyio.current_time() > collected_at + COLLECT_SECONDS:
                collected_at = anyio.current_time()
                orphans = await to_thread.run_sync(datasets.collect_orphans, context)
        except Exception as error:  # noqa: BLE001 - a database away for a moment must not end the upkeep for good
            log.error("upkeep", error=type(error).__name__)  # noqa: TRY400 - a traceback may hold data
        else:
            if erased or left or orphans:
                log.info("upkeep", erased=len(erased), leftovers=left, orphans=len(orphans))
        await anyio.sleep(context.settings.sweep_seconds)
