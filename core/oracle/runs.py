"""The best of several runs of a method, paid for at once; see `core.privacy.selection`.

An observer must not learn how many runs are drawn. All slots are therefore run, in public order, each with
coins of its own, and secret numbers decide afterwards which of them count: the first K of each group. All runs of a
group are alike, so it makes no difference which. A run keeps no state and no answer, for what is stored would tell of
slots that do not count.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Protocol, TypeVar

from torch import Tensor

from core.base.errors import ensure
from core.mechanisms.counted import number_of_runs
from core.mechanisms.generator import Generator
from core.oracle import EVERYTHING, Answer, AnswerLog, Oracle, Part
from core.oracle.filters import ORDERS, AbstractFilter, LastState
from core.privacy.events import Event, Repeated, Selected
from core.privacy.renyi import cost_fine
from core.queries.gradients import Question

T = TypeVar("T")


class RunsOracle(Oracle, Protocol):
    """An oracle that makes several runs for one payment."""

    def with_ridge(self, ridge: float) -> Oracle:
        """Return the oracle over the same records and account with another public ridge, which no question reads."""

    def best_of(self, event: Repeated | Selected, run: "Run[T]") -> T | None:
        """Pay for several runs at once, make them, and return the release of the best that counts; None: none does.

        Args:
            event: the price of all of them together.
            run: makes one run. Release and score are made of its oracle's answers and of public values alone.
        """


Run = Callable[[RunsOracle, int], tuple[T, float]]
"""One run: of an oracle of its own and the number of its group, its release and its score, both made of answers."""


class RunLog(LastState):
    """The answer log of one run of several: it counts what is drawn where the job's log does, and keeps nothing."""

    def __init__(self, log: AnswerLog) -> None:
        super().__init__()
        self._log = log

    def recall(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer | None:
        """Return None, once the answer about to be drawn is counted."""
        known = self._log.recall(question, theta, other)
        ensure(known is None, "no answer of a run is ever kept")
        return None


class RunFilter(AbstractFilter):
    """Takes each draw of one run from what one run is priced for, at once however many different ones there were.

    Args:
        priced: the most that the run may draw.
        log: of the run's answers.
    """

    def __init__(self, priced: Event, log: AnswerLog) -> None:
        super().__init__(log)
        self._left = tuple(cost_fine(priced, order) for order in ORDERS)

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Count a draw.

        Raises:
            PrivacyInvariantError: it passes the price of a run.
        """
        ensure(self._open, "the oracle is closed: its value was released")
        left = self._without(event)
        ensure(min(left) >= 0, "a draw never exceeds its price")
        self._left = left
        self._count(event, part, length)
        return False

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:  # noqa: ARG002 - blocks cost as one more draw
        """Say whether the price covers these draws besides those made, at every order."""
        return min(self._without(*events)) >= 0

    def _without(self, *events: Event) -> tuple[int, ...]:
        """Return what is left at each order after these draws, in units of 1e-30 nats."""
        return tuple(
            left - sum(cost_fine(event, order) for event in events)
            for left, order in zip(self._left, ORDERS, strict=True)
        )


def filter_of(event: Repeated | Selected, log: AnswerLog) -> RunFilter:
    """Return the filter of one run, which draws at most what one run is priced for."""
    return RunFilter(event.event, RunLog(log))


def best_of(
    event: Repeated | Selected, oracle: Callable[[], RunsOracle], run: Run[T], generator: Generator
) -> T | None:
    """Make all runs and return what one of the least score among those that count releases; None: none counts.

    Args:
        event: of the payment: each of `times` runs once, a group of its own, or groups whose number of runs is drawn.
        oracle: makes the oracle of one run, on a filter of `filter_of`.
        run: makes one run; a score that is not a number is never the least.
        generator: the job's own.
    """
    best: T | None = None
    least = inf
    for group, counts in _slots(event, generator):
        release, score = run(oracle(), group)
        if counts and score < least:
            best, least = release, score
    return best


def _slots(event: Repeated | Selected, generator: Generator) -> Iterator[tuple[int, bool]]:
    """Yield the group of every slot in public order, and whether its run counts."""
    if isinstance(event, Repeated):
        yield from ((number, True) for number in range(event.times))
        return
    groups: Iterable[tuple[float, int]] = zip(event.means, event.slots, strict=True)
    for group, (mean, slots) in enumerate(groups):
        counted = number_of_runs(generator, mean, slots)
        yield from ((group, slot < counted) for slot in range(slots))
