"""One reader for every long poll and event stream of this process; a waiting client holds no connection and no thread.

One query looks at all jobs that somebody waits for. The new lines of changed jobs are read once, for any number of
followers: a few times a second for clients of the API, once a second for pages alone.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Final

import anyio
import structlog
from anyio import to_thread

from core.service import jobs
from core.service.context import Context
from core.service.seen import Head, SeenJob
from farthing.schemas.jobs import EventView

log = structlog.get_logger("farthing.api")

POLL_SECONDS: Final = 0.25
PAGE_SECONDS: Final = 1.0
"""Between two looks where only pages wait."""
_SOONEST_SECONDS: Final = 0.02
"""Between two looks, also where a new client asks for one at once."""


class Feed:
    """State shared by all who wait for one job: its status, and the visible part of its history."""

    def __init__(self) -> None:
        self.head: Head | None = None
        """None until it was looked at."""
        self.lines: list[EventView] = []
        """From the first on, for those who may see everything; read only while somebody follows them."""
        self.waiting = 0
        self.following = 0
        self.hurried = 0
        """Of those who wait, clients of the API."""
        self.changed = anyio.Event()

    @property
    def wanted_after(self) -> int | None:
        """The number of the last line that was read, None where nobody follows them."""
        if not self.following:
            return None
        return self.lines[-1].seq if self.lines else 0

    def put(self, look: SeenJob) -> None:
        """Note a look at the job, and wake everybody where it has changed."""
        if look.head == self.head and not look.lines:
            return
        self.head = look.head
        self.lines += look.lines
        self.wake()

    def wake(self) -> None:
        """Let everybody look."""
        # An event of anyio cannot be cleared, so each wake has one of its own.
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def after(self, place: int) -> Sequence[EventView]:
        """Return the lines with numbers above `place`."""
        return self.lines[bisect_right(self.lines, place, key=attrgetter("seq")) :]

    async def wait(self, seconds: float) -> bool:
        """Wait until something has changed, at most so long; tell whether it has."""
        # Kept before the wait: `wake` puts another event in its place.
        changed = self.changed
        with anyio.move_on_after(seconds):
            await changed.wait()
        return changed.is_set()


class Watcher:
    """Looks at the jobs that somebody waits for."""

    def __init__(self, context: Context) -> None:
        """Watch the jobs of one service."""
        self._context = context
        self._feeds: dict[str, Feed] = {}
        self._asked = anyio.Event()
        self.closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the reader alive for the length of the block."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read)
            yield
            self.close()
            tasks.cancel_scope.cancel()

    def close(self) -> None:
        """Let everybody who waits go: the process is about to end."""
        self.closing = True
        for feed in self._feeds.values():
            feed.wake()

    @asynccontextmanager
    async def following(self, job: str, *, lines: bool = False, page: bool = False) -> AsyncIterator[Feed]:
        """Yield what is known of a job, and keep it up to date for the length of the block.

        Args:
            job: its identifier.
            lines: whether its history is wanted, not only how it stands.
            page: it is for a page, which a look each second serves well.
        """
        feed = self._feeds.setdefault(job, Feed())
        feed.waiting += 1
        feed.following += lines
        feed.hurried += not page
        if feed.head is None or (lines and not feed.lines) or not page:
            self._asked.set()
        try:
            while not self.closing and (feed.head is None or (lines and not feed.lines and feed.head.seq)):
                await feed.wait(POLL_SECONDS)
            yield feed
        finally:
            feed.waiting -= 1
            feed.following -= lines
            feed.hurried -= not page
            if not feed.waiting and self._feeds.get(job) is feed:
                del self._feeds[job]
            # Nobody follows the lines: kept, they would have a gap for the next follower.
            elif not feed.following:
                feed.lines = []

    async def _read(self) -> None:
        while True:
            if not self._feeds:
                await self._asked.wait()
            self._asked = anyio.Event()
            # The event is renewed first: a client that comes during the look asks for another one.
            wanted = {job: feed.wanted_after for job, feed in self._feeds.items()}
            try:
                looks = await to_thread.run_sync(jobs.look, self._context, wanted)
            except Exception as error:  # noqa: BLE001 - a database away for a moment must not end every wait for good
                log.error("watch", error=type(error).__name__)  # noqa: TRY400 - a traceback may hold data
                looks = {}
            for job, look in looks.items():
                feed = self._feeds.get(job)
                # Followers may have gone and come during the look; lines that do not join the feed's are dropped.
                if feed is not None and (not look.lines or feed.wanted_after == wanted[job]):
                    feed.put(look)
            await anyio.sleep(_SOONEST_SECONDS)
            hurried = any(feed.hurried for feed in self._feeds.values())
            with anyio.move_on_after(POLL_SECONDS if hurried else PAGE_SECONDS):
                await self._asked.wait()
