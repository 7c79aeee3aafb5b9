"""Schedules: the draws of a job, chunk by chunk, and their costs, worked out once for all equal jobs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from core.base.errors import ensure
from core.ledger import allowance
from core.ledger.accounts import Totals
from core.ledger.bodies import slots
from core.privacy.budget import Terms
from core.privacy.events import EVENT, NOTHING, Event, compose
from core.privacy.renyi import prefix_costs

MAX_CHUNKS: Final = 100
_NOTHING: Final = EVENT.dump_python(NOTHING, mode="json")


class Schedule:
    """The events of a job's chunks in order, frozen from here on.

    Args:
        events: the draws of each chunk; 1 to 100 chunks.
        retry_allowance: the number of times that the most expensive chunk is reserved on top, to pay lost chunks again.
        draws: the most units of draws that a job may make with it, however often it is lost (`core.privacy.draws`).
        whole_runs: the number of runs, each as long; 1 where attempts share one.

    Attributes:
        events: the same as values.
        price: all of it as one event, JSON-ready.
        chunks: the event of each chunk, JSON-ready.
        runs: the same as runs of equal events, see `runs_of`.
    """

    def __init__(self, events: Sequence[Event], retry_allowance: int = 0, *, draws: int, whole_runs: int = 1) -> None:
        ensure(1 <= len(events) <= MAX_CHUNKS, "a job has 1 to 100 chunks")
        ensure(draws % whole_runs == 0, "each run draws as much")
        self.retry_allowance = retry_allowance
        self.draws = draws
        self.whole_runs = whole_runs
        self.price: Any = EVENT.dump_python(compose(Counter(events)), mode="json")
        self.chunks: list[Any] = [EVENT.dump_python(event, mode="json") for event in events]
        self.runs = runs_of(self.chunks)
        self.events: Final = tuple(events)
        self._amounts: dict[Terms, tuple[Totals, list[int]]] = {}

    def amounts(self, terms: Terms) -> tuple[Totals, list[int]]:
        """Return C(1), ..., C(K) in an account with these terms, and the allowance there, all in its slots."""
        if terms not in self._amounts:
            totals = [slots(total) for total in prefix_costs(self.events, terms.orders)]
            self._amounts[terms] = (totals, allowance.promised(self.events, self.retry_allowance, terms))
        return self._amounts[terms]


def is_stream(chunks: Sequence[Any]) -> bool:
    """Say whether the first chunk of each pass, JSON-ready, pays for all of it, and the others cost nothing.

    Then no two chunks of a pass read the same unit. A chunk that is lost with a worker is skipped, never read or paid
    again. Every pass has as many chunks, two at least.
    """
    priced = [place for place, chunk in enumerate(chunks) if chunk != _NOTHING]
    # `max`: a schedule without cost has no priced chunk to divide by.
    passes, length = len(priced), len(chunks) // max(len(priced), 1)
    return length > 1 and priced == list(range(0, passes * length, length)) and len(chunks) == passes * length


def is_whole(chunks: Sequence[Any], spent: int) -> bool:
    """Say whether this number of paid chunks is a job's whole price; any later chunk costs nothing."""
    return spent > 0 and all(chunk == _NOTHING for chunk in chunks[spent:])


def runs_of(chunks: Sequence[Any]) -> list[list[Any]]:
    """Return events as runs of equal ones: [how many, event]."""
    runs: list[list[Any]] = []
    for event in chunks:
        if runs and runs[-1][1] == event:
            runs[-1][0] += 1
        else:
            runs.append([1, event])
    return runs
