"""Privacy filters without a ledger, for synthetic records and tests."""

from collections.abc import Sequence
from typing import Final

from torch import Tensor

from core.base.errors import ensure
from core.oracle import Answer, AnswerLog
from core.privacy.events import Event
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


class UnlimitedFilter:
    """Everything is affordable and nothing is paid: for synthetic records only.

    Args:
        log: of answers; None: `LastState`.
    """

    def __init__(self, log: AnswerLog | None = None) -> None:
        self.log = LastState() if log is None else log

    def cover(self, total: Event, position: int) -> None:
        """Do nothing."""

    def prepaid(self) -> int:
        """Return 0: nothing is paid."""
        return 0

    def affords(self, total: Event) -> bool:  # noqa: ARG002 - everything is affordable
        """Return True."""
        return True


class CountingFilter:
    """Checks what a ledger's privacy filter would: totals only grow, and a draw never exceeds its price.

    Args:
        priced: the most that may be drawn; None: no limit.
        orders: at which draws are compared with the price.
        log: of answers; None: `LastState`.

    Attributes:
        totals: the covered draws, in order.
        positions: the position of each.
        log: of answers.
    """

    def __init__(
        self, priced: Event | None = None, orders: Sequence[int] = ORDERS, log: AnswerLog | None = None
    ) -> None:
        self.totals: list[Event] = []
        self.positions: list[int] = []
        self._orders = tuple(orders)
        self._limit = None if priced is None else cost_nano(priced, self._orders)
        self._paid = (0,) * len(self._orders)
        self.log = LastState() if log is None else log

    def cover(self, total: Event, position: int) -> None:
        """Note a total.

        Raises:
            PrivacyInvariantError: it passes the price, shrinks, or is out of order.
        """
        ensure(self.affords(total), "a draw never exceeds its price")
        cost = cost_nano(total, self._orders)
        ensure(all(new >= old for new, old in zip(cost, self._paid, strict=True)), "a total only grows")
        ensure(position > (self.positions[-1] if self.positions else 0), "positions follow one another")
        self._paid = cost
        self.totals.append(total)
        self.positions.append(position)

    def prepaid(self) -> int:
        """Return 0: every total is noted."""
        return 0

    def affords(self, total: Event) -> bool:
        """Say whether the price covers `total` at every order."""
        if self._limit is None:
            return True
        return all(one <= most for one, most in zip(cost_nano(total, self._orders), self._limit, strict=True))
