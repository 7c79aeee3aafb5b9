"""What an attempt has drawn through its doors, and the payment ahead of each answer."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from torch import Tensor

from core.catalogue.questions import Question
from core.oracle import Answer, Meter
from core.privacy.events import NOTHING, Disjoint, Event, compose

EVERYTHING: Final = ""
"""The part of the records that is in no named block."""


class Account:
    """Counts draws, part by part, between the doors of one attempt and its meter.

    Draws about one part compose; parts share no unit, so their totals stand side by side and the most expensive one
    counts. `part` None means units that no other question reads: such draws stand side by side too, and equal ones
    cost no more than one.

    Args:
        meter: pays for totals ahead of reading.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter: Final = meter
        self._drawn: dict[str | Event, Counter[Event]] = {}
        self._asked = 0
        self._open = True

    def total(self, part: str | None = None, event: Event | None = None) -> Event:
        """Return everything drawn so far, as one event, with one more `event` about `part` if given."""
        return _together(self._drawn if event is None else self._with(part, event))

    def _with(self, part: str | None, event: Event) -> dict[str | Event, Counter[Event]]:
        """Return the draws about each part, this one included."""
        key = event if part is None else part
        counted = Counter[Event]() if part is None else Counter(self._drawn.get(part))
        counted[event] += 1
        return {**self._drawn, key: counted}

    def affords(self, part: str | None, event: Event) -> bool:
        """Say whether the reservation covers one more draw."""
        return self.meter.affords(self.total(part, event))

    def answer(
        self,
        part: str | None,
        event: Event,
        question: Question,
        theta: Tensor,
        other: Tensor | None,
        draw: Callable[[], Answer],
    ) -> Answer:
        """Return what an earlier attempt was told here; else pay for one more draw, make it and note it.

        Raises:
            StaleAttempt: from the meter, when the job is no longer ours. Nothing was drawn then.
        """
        assert self._open, "the door is closed: its value was released"
        known = self.meter.recall(question, theta, other)
        if known is not None:
            return known
        self.cover(part, event)
        drawn = draw()
        self.meter.note(question, theta, drawn, other)
        return drawn

    def cover(self, part: str | None, event: Event) -> None:
        """Pay for one more draw; only then may records be read.

        Raises:
            StaleAttempt: from the meter, when the job is no longer ours. Nothing was drawn then.
        """
        assert self._open, "the door is closed: its value was released"
        drawn = self._with(part, event)
        self.meter.cover(_together(drawn), self._asked + 1)
        self._asked += 1
        self._drawn = drawn

    def close(self) -> Event:
        """Let nothing more be asked and return what was drawn."""
        assert self._open, "the door is closed: its value was released"
        self._open = False
        return self.total()


def _together(drawn: Mapping[str | Event, Counter[Event]]) -> Event:
    """Return one event for the draws about each part: parts share no unit."""
    distinct = tuple(dict.fromkeys(compose(counted) for counted in drawn.values()))
    if not distinct:
        return NOTHING
    return distinct[0] if len(distinct) == 1 else Disjoint(events=distinct)
