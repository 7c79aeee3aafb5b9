"""Privacy filters: the base that counts draws, and two without a ledger, for synthetic records and tests."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from torch import Tensor

from core.base.errors import ensure
from core.oracle import EVERYTHING, Answer, AnswerLog, Part
from core.privacy.events import NOTHING, Disjoint, Event, compose
from core.privacy.renyi import cost_nano
from core.queries.gradients import Question

ORDERS: Final = (2, 4, 9, 22)
"""Where drawn and priced are compared: the orders planned for epsilon 8, 3 and 1, and the smallest."""


class LastState:
    """An answer log of one attempt that no other resumes: it holds the last state in memory, and no answer."""

    def __init__(self) -> None:
        self._state: dict[str, Tensor] | None = None

    def recall(  # there was no attempt before
        self,
        question: Question,  # noqa: ARG002 - as above
        theta: Tensor,  # noqa: ARG002 - as above
        other: Tensor | None = None,  # noqa: ARG002 - as above
    ) -> Answer | None:
        """Return None."""
        return None

    def note(self, question: Question, theta: Tensor, answer: Answer, other: Tensor | None = None) -> None:
        """Do nothing."""

    def keep(self, state: dict[str, Tensor], step: int) -> None:  # noqa: ARG002 - the last state is enough here
        """Hold the last state in memory."""
        self._state = state

    def resume(self) -> dict[str, Tensor] | None:
        """Return the last state."""
        return self._state


class AbstractFilter(ABC):
    """Counts an attempt's draws, part by part; see `core.oracle.PrivacyFilter`.

    Args:
        log: of answers; None: `LastState`.

    Attributes:
        log: as above.
    """

    def __init__(self, log: AnswerLog | None = None) -> None:
        self.log = LastState() if log is None else log
        self._drawn: dict[Part, Counter[Event]] = {}
        self._position = 0
        self._open = True

    @abstractmethod
    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Pay for one more draw, ahead of reading; see `core.oracle.PrivacyFilter`."""

    @abstractmethod
    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        """Say whether the reservation covers these draws besides those made."""

    def total(self, *events: Event, part: Part = EVERYTHING) -> Event:
        """Return everything drawn so far, as one event, with these about a part besides."""
        drawn = {**self._drawn, part: self._drawn.get(part, Counter()) + Counter(events)} if events else self._drawn
        parts = [compose(counted) for name, counted in drawn.items() if isinstance(name, str)]
        passes = Counter(_side_by_side(counted) for name, counted in drawn.items() if isinstance(name, int))
        return _side_by_side([*parts, compose(passes)] if passes else parts)

    def close(self) -> Event:
        """Let nothing more be drawn and return what was, as one event."""
        ensure(self._open, "the oracle is closed: its value was released")
        self._open = False
        return self.total()

    def _count(self, event: Event, part: Part, length: int) -> None:
        """Count one more draw; it was paid for."""
        self._drawn.setdefault(part, Counter())[event] += 1
        self._position += length


class UnlimitedFilter(AbstractFilter):
    """Everything is affordable and nothing is paid: for synthetic records only."""

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Count a draw."""
        ensure(self._open, "the oracle is closed: its value was released")
        self._count(event, part, length)
        return False

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:  # noqa: ARG002 - everything is affordable
        """Return True."""
        return True


class CountingFilter(AbstractFilter):
    """Checks what a ledger's privacy filter would: a draw never exceeds its price.

    Args:
        priced: the most that may be drawn; None: no limit.
        orders: at which draws are compared with the price.
        log: of answers; None: `LastState`.

    Attributes:
        totals: the paid draws, in order.
        positions: the position of each.
        log: of answers.
    """

    def __init__(
        self, priced: Event | None = None, orders: Sequence[int] = ORDERS, log: AnswerLog | None = None
    ) -> None:
        super().__init__(log)
        self.totals: list[Event] = []
        self.positions: list[int] = []
        self._orders = tuple(orders)
        self._limit = None if priced is None else cost_nano(priced, self._orders)

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Note the total with one more draw.

        Raises:
            PrivacyInvariantError: it passes the price, or reads no unit.
        """
        ensure(self._open, "the oracle is closed: its value was released")
        ensure(length > 0, "positions follow one another")
        total = self.total(event, part=part)
        ensure(self._covers(total), "a draw never exceeds its price")
        self._count(event, part, length)
        self.totals.append(total)
        self.positions.append(self._position)
        return False

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        """Say whether the price covers these draws besides those made, at every order."""
        return self._covers(self.total(*events, part=part))

    def _covers(self, total: Event) -> bool:
        if self._limit is None:
            return True
        return all(one <= most for one, most in zip(cost_nano(total, self._orders), self._limit, strict=True))


def _side_by_side(events: Iterable[Event]) -> Event:
    """Return one event for events about units that no two of them share."""
    # Side by side the dearest counts, so equal ones need stand there once.
    distinct = tuple(dict.fromkeys(events))
    if not distinct:
        return NOTHING
    return distinct[0] if len(distinct) == 1 else Disjoint(events=distinct)
