"""One poller for every long poll and event stream of this process; a waiting client holds no connection."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import structlog
from anyio import to_thread

from core.service import jobs
from core.service.context import Context
from core.service.jobs import Head

log = structlog.get_logger("farthing.api")

POLL_SECONDS = 0.25


class Watcher:
    """Looks at the jobs that somebody waits for, a few times a second, all in one query."""

    def __init__(self, context: Context) -> None:
        """Watch the jobs of one service."""
        self._context = context
        self._wanted: Counter[str] = Counter()
        self._heads: dict[str, Head] = {}
        self._asked = anyio.Event()
        self._looked = anyio.Event()
        self.closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the poller alive for the length of the block."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._poll)
            yield
            self.close()
            tasks.cancel_scope.cancel()

    def close(self) -> None:
        """Let everybody who waits go: the process is about to end."""
        self.closing = True
        self._looked.set()

    async def _poll(self) -> None:
        while True:
            if not self._wanted:
                self._asked = anyio.Event()
                await self._asked.wait()
            try:
                self._heads = await to_thread.run_sync(jobs.heads, self._context, tuple(self._wanted))
            except Exception as error:  # noqa: BLE001 - a database away for a moment must not end every wait for good
                log.error("watch", error=type(error).__name__)  # noqa: TRY400 - a traceback may hold data
            looked, self._looked = self._looked, anyio.Event()
            looked.set()
            await anyio.sleep(POLL_SECONDS)

    async def changed(self, job: str, seen: Head, seconds: float) -> Head:
        """Wait until a job differs from what was `seen`, at most `seconds`; return how it stands.

        Args:
            job: its identifier.
            seen: how it stood.
            seconds: how long to wait at most.
        """
        self._wanted[job] += 1
        self._asked.set()
        try:
            with anyio.move_on_after(seconds):
                while not self.closing:
                    await self._looked.wait()
                    head = self._heads.get(job, seen)
                    if head != seen:
                        return head
            return seen
        finally:
            self._wanted[job] -= 1
            if not self._wanted[job]:
                del self._wanted[job]
                self._heads.pop(job, None)
