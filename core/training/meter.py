"""The ledger's meter: pays for chunks ahead of the reading they cover, and keeps noised states with the payments."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from safetensors.torch import load, save
from torch import Tensor

from core.privacy.events import NOTHING, Composed, Event, compose
from core.privacy.renyi import cost_nano
from core.training.order import Drained, Payer


class Till(Protocol):
    """Where a meter pays: the ledger, through the attempt's fence."""

    def spend(self, chunk: int, state: bytes | None, step: int) -> None:
        """Commit the payment of a chunk. Raises StaleAttempt when the job is no longer ours."""

    def keep(self, state: bytes, step: int) -> None:
        """Commit a state that has every paid chunk in it."""


@dataclass(frozen=True)
class _Kept:
    """The method's last state, what had been drawn when it was offered, and its step."""

    state: dict[str, Tensor]
    drawn: tuple[tuple[int, ...], ...]
    step: int


class LedgerMeter:
    """Covers totals by the smallest prefix of the job's frozen chunks that is worth as much at every order.

    The total of all attempts counts: an earlier attempt's draws are the chunks in its kept state. A state is stored
    only where it has every paid chunk in it, for only then may a later attempt go on from it without drawing again
    what was drawn and lost.

    Args:
        till: where chunks are paid.
        payers: the accounts, with cumulative prices of the chunks.
        schedule: the event of each chunk.
        kept: the last state an earlier attempt kept.
        kept_chunks: how many chunks are in it.
        stop: says whether this attempt was asked to stop; looked at where stopping loses nothing.
    """

    def __init__(
        self,
        till: Till,
        payers: Sequence[Payer],
        schedule: Sequence[Event],
        *,
        kept: bytes | None = None,
        kept_chunks: int = 0,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._till = till
        self._payers = payers
        self._chunks = len(schedule)
        self._before: Event = compose(Counter(schedule[:kept_chunks]))
        self._drawn: Event = NOTHING
        self._paid = kept_chunks
        self._stored = kept_chunks
        self._resumed = None if kept is None else load(kept)
        self._kept: _Kept | None = None
        self._step = 0 if self._resumed is None else int(self._resumed.get("step", 0))
        self._stop = stop

    @property
    def chunks_paid(self) -> int:
        """How many chunks are paid, by all attempts."""
        return self._paid

    def cover(self, total: Event, position: int) -> None:
        """Pay for everything up to `total`, before it is read.

        Raises:
            StaleAttempt: the job is no longer ours.
            Drained: this attempt was asked to stop, and stopping here loses nothing.
            AssertionError: the total passes the reservation; a method drew more than its price.
        """
        del position  # the total says it all: chunks are counted by their worth
        if self._stop() and self._paid == self._stored:
            raise Drained
        price = self._price(total)
        state = self._complete_state()
        while not self._covered(price):
            assert self._paid < self._chunks, "what is drawn never passes what was priced"
            self._till.spend(self._paid, state, self._step)
            if state is not None:
                self._stored, state = self._paid, None
            self._paid += 1
        self._drawn = total

    def affords(self, total: Event) -> bool:
        """Say whether the reservation covers `total` at every order."""
        return self._within(self._price(total), self._chunks)

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Store this state with the next payment; when asked to stop, store it now and stop.

        Raises:
            Drained: this attempt was asked to stop.
            StaleAttempt: it was, and the job is no longer ours.
        """
        copied = {name: value.detach().clone() for name, value in state.items()}
        self._kept = _Kept(copied, self._price(self._drawn), step)
        self._step = step
        complete = self._complete_state()
        if self._stop() and complete is not None:
            self._till.keep(complete, step)
            self._stored = self._paid
            raise Drained

    def resume(self) -> dict[str, Tensor] | None:
        """Return the last stored state of an earlier attempt, if any."""
        return self._resumed

    def _price(self, total: Event) -> tuple[tuple[int, ...], ...]:
        """Return the price of all attempts' draws with this one's total, per payer and order."""
        whole = Composed(events=(self._before, total))
        return tuple(cost_nano(whole, payer.orders) for payer in self._payers)

    def _covered(self, price: Sequence[Sequence[int]]) -> bool:
        return self._within(price, self._paid)

    def _within(self, price: Sequence[Sequence[int]], chunks: int) -> bool:
        """Say whether the first `chunks` chunks are worth a price at every order of every payer."""
        return all(
            one <= most
            for payer, amounts in zip(self._payers, price, strict=True)
            for one, most in zip(amounts, self._worth(payer, chunks), strict=True)
        )

    @staticmethod
    def _worth(payer: Payer, chunks: int) -> tuple[int, ...]:
        return payer.totals[chunks - 1] if chunks else (0,) * len(payer.orders)

    def _complete_state(self) -> bytes | None:
        """Return the last kept state if it has every paid chunk in it."""
        if self._kept is None or self._kept.drawn != self._price(self._drawn):
            return None
        worth = tuple(self._worth(payer, self._paid) for payer in self._payers)
        return save(self._kept.state) if self._kept.drawn == worth else None
