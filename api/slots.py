"""Places for requests that are being answered: limited in all and for each principal, and shared fairly when scarce.

A request beyond them waits a little for its turn, where its kind of work lets it, and is refused then. Turns go to the
principal who holds the fewest places, so that no queue of one delays another.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from core.base.errors import ServiceBusy, TooManyAtOnce

RETRY_SECONDS: Final = 2
_KEPT_SHARE: Final = 4
"""The last quarter of all places goes only to who holds fewer than an equal share of them."""


@dataclass
class Hold:
    """A place that somebody holds."""

    apart_seconds: float = 0.0
    """Of the time that it was held: spent waiting, or counted elsewhere."""


class Slots:
    """The places of one kind of work in this process; used by the event loop alone.

    Args:
        what: the work in words, plural, for refusals.
        total: places of all principals together.
        each: places of one principal.
        wait_seconds: seconds that a request waits for a place at most; 0: it is refused at once.
        queued: requests of one principal that may wait at a time.
        rest_seconds: the seconds that a place stays taken, given the seconds that a principal has held it.
    """

    def __init__(
        self,
        what: str,
        total: int,
        each: int,
        wait_seconds: float = 0.0,
        queued: int = 0,
        rest_seconds: Callable[[str, float], float] = lambda principal, held_seconds: 0.0,  # noqa: ARG005 - named
    ) -> None:
        self._what = what
        self._total = total
        self._each = each
        self._wait_seconds = wait_seconds
        self._queued = queued
        self._rest_seconds = rest_seconds
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def held(self, principal: str) -> AsyncIterator[Hold]:
        """Hold a place for the length of the block, and yield it.

        Raises:
            TooManyAtOnce: the principal holds as many as one may, or more than a fair share of what is left.
            ServiceBusy: all are taken.
        """
        # A new request overtakes none of its own principal's that waits.
        if principal not in self._queues and self._fits(principal):
            self._held[principal] += 1
        else:
            await self._wait(principal)
        loop = asyncio.get_running_loop()
        begun_at, hold = loop.time(), Hold()
        try:
            yield hold
        finally:
            seconds = self._rest_seconds(principal, max(0.0, loop.time() - begun_at - hold.apart_seconds))
            if seconds > 0:
                # The place stays taken after the answer, and so slows the next request instead of this one.
                loop.call_later(seconds, self._leave, principal)
            else:
                self._leave(principal)

    async def _wait(self, principal: str) -> None:
        """Wait for a turn; the giver has taken the place already."""
        queue = self._queues.setdefault(principal, deque())
        if not self._wait_seconds or len(queue) >= self._queued:
            self._forget(principal)
            raise self._refusal(principal)
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
        # A cancelled request must give back its turn as well, or the place would be lost for good.
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # it came as the wait ended
                self._leave(principal)
            elif turn in queue:
                queue.remove(turn)
            self._forget(principal)
            if isinstance(error, TimeoutError):
                raise self._refusal(principal) from None
            raise

    def _leave(self, principal: str) -> None:
        self._held[principal] -= 1
        if not self._held[principal]:
            del self._held[principal]
        # sorted() makes a list, so `_forget` may take keys away within the loop.
        for following in sorted(self._queues, key=lambda one: self._held[one]):
            queue = self._queues.get(following)
            while queue and self._fits(following):
                turn = queue.popleft()
                # A turn that is done here was cancelled, and its waiter has not yet run to remove it.
                if not turn.done():
                    self._held[following] += 1
                    turn.set_result(None)
            self._forget(following)

    def _forget(self, principal: str) -> None:
        if principal in self._queues and not self._queues[principal]:
            del self._queues[principal]

    def _fits(self, principal: str) -> bool:
        own, taken = self._held[principal], self._held.total()
        few_left = self._total - taken <= self._total // _KEPT_SHARE
        most = min(self._each, self._share(principal)) if few_left else self._each
        return taken < self._total and own < most

    def _share(self, principal: str) -> int:
        """Return an equal share of all places, where one more principal than is here may come."""
        others = (self._held.keys() | self._queues.keys()) - {principal}
        return max(1, self._total // (len(others) + 2))

    def _refusal(self, principal: str) -> TooManyAtOnce | ServiceBusy:
        own = self._held[principal]
        if own:
            text = f"{own} of your {self._what} are being answered, the most of one principal now: wait for one to end."
            return TooManyAtOnce(text, retry_after_seconds=RETRY_SECONDS)
        text = f"All places for {self._what} are taken: this service has {self._total} at a time."
        return ServiceBusy(text, retry_after_seconds=RETRY_SECONDS)
