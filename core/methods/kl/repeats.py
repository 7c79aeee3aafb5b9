"""The same event so many times over, as a schedule that takes no room.

A proximal-point run may ask the same question a million times; planning cuts its schedule into chunks and counts each.
"""

from collections import Counter
from collections.abc import Sequence
from typing import overload

from core.privacy.events import Event


class Repeats(Sequence[Event]):
    """A sequence of equal events; slices of it are such sequences, too.

    Args:
        event: each of them.
        times: number of repeats, 0 or more.
    """

    def __init__(self, event: Event, times: int) -> None:
        assert times >= 0, "a number of events is not negative"
        self._event = event
        self._times = times

    def __len__(self) -> int:
        """Return how many there are."""
        return self._times

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> "Repeats": ...

    def __getitem__(self, index: int | slice) -> "Event | Repeats":
        """Return the event, or so many of them."""
        # range raises IndexError beyond the end, by which iteration over a Sequence stops.
        within = range(self._times)[index]
        return Repeats(self._event, len(within)) if isinstance(within, range) else self._event

    def counted(self) -> Counter[Event]:
        """Return the counts of the events, as `Counter` would after going through them all."""
        return Counter({self._event: self._times} if self._times else {})
