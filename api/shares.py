"""Shares of the service's time that principals may take while others ask, for one kind of work.

A request that is short alone is long a hundred times a second. The time that each principal takes is therefore counted,
less its share of the time that has gone by. A short excess is free; beyond it the principal waits until the excess has
gone by as well.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

TOGETHER_SECONDS: Final = 2.0
"""Seconds for which a principal counts as present after a request."""
LONGEST_REST_SECONDS: Final = 10.0
_MOST_TAKEN: Final = 4096


class Presence:
    """The principals that have asked lately."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()

    def note(self, who: str) -> None:
        """Note the principal that asks now; forget those who have not asked for a while."""
        now = time.monotonic()
        self._seen[who] = now
        # Kept in the order of the last request, so that those to forget are the first.
        self._seen.move_to_end(who)
        # It never runs empty: `who` was noted just now.
        while next(iter(self._seen.values())) < now - TOGETHER_SECONDS:
            self._seen.popitem(last=False)

    def is_alone(self, who: str) -> bool:
        """Return True if nobody else has asked lately: a lone principal has all of the service."""
        since = time.monotonic() - TOGETHER_SECONDS
        return not any(at >= since for one, at in self._seen.items() if one != who)


class Shares:
    """The time that each principal has taken of one kind of work, and the rest that it owes.

    Args:
        is_alone: tells whether a principal has nobody beside it.
        share: of the time that goes by, for each principal.
        free_seconds: seconds in a row that harm nobody.
        most_seconds: more than that is not remembered.
    """

    def __init__(
        self, is_alone: Callable[[str], bool], share: float, free_seconds: float, most_seconds: float = float("inf")
    ) -> None:
        self._is_alone = is_alone
        self._share = share
        self._free_seconds = free_seconds
        self._most_seconds = most_seconds
        self._taken: dict[str, tuple[float, float]] = {}

    def rest(self, who: str, spent_seconds: float) -> float:
        """Count what a principal took; return for how many seconds it is to take no more, 0 mostly."""
        now = time.monotonic()
        taken, at = self._taken.get(who, (0.0, now))
        taken = min(self._most_seconds, max(0.0, taken - self._share * (now - at)) + spent_seconds)
        self._taken[who] = taken, now
        # An excess that has gone by says nothing, so dropping it changes no rest.
        if len(self._taken) > _MOST_TAKEN:
            self._taken = {
                one: (seconds, since)
                for one, (seconds, since) in self._taken.items()
                if seconds > self._share * (now - since)
            }
        # Counted also of a lone principal: the excess is there when another one comes.
        if taken <= self._free_seconds or self._is_alone(who):
            return 0.0
        return min(LONGEST_REST_SECONDS, (taken - self._free_seconds) / self._share)
