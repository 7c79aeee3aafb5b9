"""An attempt's draws through its oracles, and the payment ahead of each answer."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from torch import Tensor

from core.base.errors import ensure
from core.oracle import Answer, PrivacyFilter
from core.privacy.events import NOTHING, Disjoint, Event, compose
from core.queries.gradients import Question

EVERYTHING: Final = ""
"""The part of the records that is in no named block."""

Part = str | int
"""A named part of the records, or the number of a pass of a stream."""


class DrawAccount:
    """Counts draws, part by part, between the oracles of one attempt and its privacy filter.

    Draws about one part compose; parts share no unit, so their totals stand side by side and the most expensive one
    counts. A number for a part is that of a pass of a stream, in which no two questions read the same unit. Draws of
    one pass are parallel, and equal ones cost no more than one; passes compose.

    Filters pay for chunks of many draws. Where one says how many more of the last draw it has paid for, so many are
    counted here without pricing a total each time: that takes longer than a short sum does.

    Args:
        payments: pays for totals ahead of reading.
    """

    def __init__(self, payments: PrivacyFilter) -> None:
        self.payments: Final = payments
        self._drawn: dict[Part, Counter[Event]] = {}
        self._last: tuple[Part, Event] = (EVERYTHING, NOTHING)
        self._prepaid = 0
        self._again = 0
        self._position = 0
        self._open = True

    def total(self, part: Part = EVERYTHING, *events: Event) -> Event:
        """Return everything drawn so far, as one event, with these `events` about `part` besides."""
        return _together(self._with(part, *events) if events else self._counted())

    def _counted(self) -> dict[Part, Counter[Event]]:
        """Return the draws about each part, the last one as often as it was made."""
        if self._again:
            part, event = self._last
            self._drawn[part][event] += self._again
            self._again = 0
        return self._drawn

    def _with(self, part: Part, *events: Event) -> dict[Part, Counter[Event]]:
        """Return the draws about each part, these included."""
        drawn = self._counted()
        # A copy, for `affords` asks about draws that may never be made.
        counted = Counter(drawn.get(part))
        counted.update(events)
        return {**drawn, part: counted}

    def affords(self, part: Part, *events: Event) -> bool:
        """Say whether the reservation covers these draws besides those made."""
        return self.payments.affords(self.total(part, *events))

    def answer(
        self,
        part: Part,
        event: Event,
        question: Question,
        theta: Tensor,
        other: Tensor | None,
        draw: Callable[[], Answer],
        length: int = 1,
    ) -> Answer:
        """Return the answer that an earlier attempt received here; else pay for one more draw, make it and note it.

        `length` is what the position grows by: a question, or the units of a stream that are then behind.

        Raises:
            StaleAttempt: from the privacy filter, when the job is no longer ours. Nothing was drawn then.
        """
        ensure(self._open, "the oracle is closed: its value was released")
        known = self.payments.log.recall(question, theta, other)
        if known is not None:
            return known
        self.cover(part, event, length)
        drawn = draw()
        self.payments.log.note(question, theta, drawn, other)
        return drawn

    def cover(self, part: Part, event: Event, length: int = 1) -> None:
        """Pay for one more draw; only then may records be read.

        Raises:
            StaleAttempt: from the privacy filter, when the job is no longer ours. Nothing was drawn then.
        """
        ensure(self._open, "the oracle is closed: its value was released")
        # Equal questions share one event object (`event_of`), and to compare identities is quick.
        if self._prepaid and event is self._last[1] and part == self._last[0]:
            self._prepaid -= 1
            self._again += 1
        else:
            drawn = self._with(part, event)
            self.payments.cover(_together(drawn), self._position + length)
            # After the payment: where it is refused, the counts stay as they were.
            self._drawn, self._last, self._prepaid = drawn, (part, event), self.payments.prepaid()
        self._position += length

    def close(self) -> Event:
        """Let nothing more be asked and return what was drawn."""
        ensure(self._open, "the oracle is closed: its value was released")
        self._open = False
        return self.total()


def _together(drawn: Mapping[Part, Counter[Event]]) -> Event:
    """Return one event for the draws about each part, and of each pass: parts share no unit."""
    parts = [compose(counted) for part, counted in drawn.items() if isinstance(part, str)]
    passes = Counter(_side_by_side(counted) for part, counted in drawn.items() if isinstance(part, int))
    return _side_by_side([*parts, compose(passes)] if passes else parts)


def _side_by_side(events: Iterable[Event]) -> Event:
    """Return one event for events about units that no two of them share."""
    # Side by side the dearest counts, so equal ones need stand there once.
    distinct = tuple(dict.fromkeys(events))
    if not distinct:
        return NOTHING
    return distinct[0] if len(distinct) == 1 else Disjoint(events=distinct)
