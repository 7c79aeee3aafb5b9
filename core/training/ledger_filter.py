"""The privacy filter of a job: pays for chunks ahead of the reading they cover, each with the answers so far.

Each payment carries all earlier answers of the attempt: the method's last state and the noised answers since. An
attempt that is lost after a payment loses the chunk just paid and nothing else, wherever in a step the chunk ends. The
next attempt recalls the rest and draws that chunk again, with fresh noise, for another payment.

Draws within payments. Let C be the frozen cumulative prices. An attempt that begins with k chunks kept draws at most
C(m) - C(k) while it has paid the chunks k to m - 1 itself, because `pay` counts the kept ones as worth all of C(k).
Each attempt draws at most its payments, after any loss and for any questions. All attempts together draw at most the
ledger's charge.

Losses of adaptive methods. A method that sizes its questions as it goes reserves slices, chunks that stand for no
question, and one answer may take many. Each of these payments is committed by itself and carries the same notes. An
attempt that is lost after k of them has lost the last one, which the retry allowance pays again. The k - 1 before it
have no value any more: they are in C(k) without an answer. Whether the answer was read is unknown, so this is its
largest possible cost. The next attempt then finds that it `affords` less. Such a method asks before each question
whether it affords it: it goes on with less, or ends where it stands, and never passes what was reserved. While it
replays the answers of an earlier attempt, it affords exactly those, which are free, and takes the same branches.
Stopping on request is between answers, never between the payments for one, and loses nothing.

A method with a fixed schedule always affords its rest after a loss, even where it skips questions by its own stopping
rule. Its draws up to a question are worth at most the schedule up to there, so at most the chunks up to that question's
own are paid. All but the last of these lie before it, and the remainder is worth the rest of the schedule.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import add, le
from typing import Final, NoReturn, Protocol

from core.base.errors import ensure
from core.oracle import EVERYTHING, Part
from core.oracle.filters import AbstractFilter
from core.privacy.events import Event, compose
from core.privacy.renyi import PER_NANO, cost_fine
from core.training.answer_log import AttemptLog
from core.training.draws import DrawCount
from core.training.order import Drained, Payer

Price = tuple[int, ...]
"""At every order of every payer, in units of 1e-30 nats: exact, so sums hang on no grouping."""

_NOTHING: Final[Mapping[Event, int]] = {}


class LedgerWriter(Protocol):
    """Where a privacy filter pays: the ledger, through the attempt's fence."""

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        """Commit the payment of a chunk. Raises StaleAttempt when the job is no longer ours."""

    def keep(self, state: bytes, step: int) -> None:
        """Commit the answers so far, without paying."""


class LedgerFilter(AbstractFilter):
    """Pays for draws by the smallest prefix of the job's frozen chunks that is worth as much at every order.

    Each payment stores the answer log as it is then.

    Args:
        writer: where chunks are paid.
        payers: the accounts, with cumulative prices of the chunks.
        schedule: the event of each chunk.
        kept: the state of an earlier attempt, `Notes` packed.
        kept_chunks: the number of chunks in it; this attempt pays for those after it, lost ones again.
        charged: the events that earlier attempts paid for.
        stop: says whether this attempt was asked to stop; looked at before what is paid for an answer, where stopping
            loses nothing.
        draws: counts what is drawn against the reservation; None: nothing is reserved.

    Attributes:
        log: this attempt's answers, after those that an earlier one left.
    """

    log: AttemptLog

    def __init__(
        self,
        writer: LedgerWriter,
        payers: Sequence[Payer],
        schedule: Sequence[Event],
        *,
        kept: bytes | None = None,
        kept_chunks: int = 0,
        charged: Mapping[Event, int] = _NOTHING,
        stop: Callable[[], bool] = lambda: False,
        draws: DrawCount | None = None,
    ) -> None:
        super().__init__(AttemptLog(kept, DrawCount() if draws is None else draws))
        self._writer = writer
        self._payers = payers
        self._schedule = schedule
        self._charged = Counter(charged)
        self._stop = stop
        self._prices: dict[Event, Price] = {}
        self._sums: dict[Part, Price] = {}
        # The kept chunks count as worth their frozen price, so the draws of all attempts add up.
        self._before = self._price(compose(Counter(schedule[:kept_chunks])))
        self._paid = kept_chunks
        self._worth = self._worth_of(kept_chunks)

    @property
    def charged(self) -> Event:
        """The payments for the job, by all attempts."""
        return compose(self._charged)

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Pay for the chunks that one more draw needs, each payment with all answers before it.

        Raises:
            StaleAttempt: the job is no longer ours.
            Drained: this attempt was asked to stop; nothing of this draw is paid, and its answers are kept.
            PrivacyInvariantError: it passes the reservation; a method drew more than its price. Nothing is paid then.
        """
        ensure(self._open, "the oracle is closed: its value was released")
        ensure(self.log.next_recalled is None, "answers of an earlier attempt come before anything new")
        drawn = self._with(part, event)
        needed = self._needed(self._whole(part, drawn), length)
        pays = needed > self._paid
        if pays:
            # Packed once: several chunks may pay for one answer, and carry the same notes.
            answers = self.log.pack()
            # Before the first payment only: between two payments for one answer a stop would lose the first.
            if self._stop():
                self._drain(answers)
        while self._paid < needed:
            # Before the first chunk there is nothing to keep.
            self._writer.pay(self._paid, answers if self._paid else None, self.log.step)
            self._charged[self._schedule[self._paid]] += 1
            self._paid += 1
            self._worth = self._worth_of(self._paid)
        # After the payment: where it is refused, the counts stay as they were.
        self._sums[part] = drawn
        self._count(event, part, length)
        return pays

    def _needed(self, price: Price, length: int) -> int:
        """Return how many chunks pay for everything at a price, those of earlier attempts included.

        Raises:
            PrivacyInvariantError: all of them do not.
        """
        del length  # the price says it all: chunks are counted by their worth
        if all(map(le, price, self._worth)):
            return self._paid
        later = range(self._paid + 1, len(self._schedule) + 1)
        needed = next((chunks for chunks in later if all(map(le, price, self._worth_of(chunks)))), None)
        ensure(needed is not None, "a draw never exceeds its price")
        assert needed is not None, "ensured above"
        return needed

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        """Say whether the reservation covers these draws besides those made, at every order.

        While this attempt replays an earlier one's answers it has drawn nothing. It then affords the next replayed
        answer, as the earlier attempt did, and nothing else.
        """
        if (recalled := self.log.next_recalled) is not None:
            # Anything but the recalled question would take another branch than the earlier attempt did.
            return self.total(*events, part=part) == recalled.event()
        return self._is_within(len(self._schedule), *events, part=part)

    def may_stop(self, event: Event, part: Part = EVERYTHING) -> bool:
        """Say whether stopping before one more draw is paid loses nothing: every paid chunk was drawn."""
        return not self._is_within(self._paid, event, part=part)

    def stop_here(self) -> NoReturn:
        """Keep the answers and stop, for a site of a federation, which stops when the others do.

        Raises:
            Drained: always.
            StaleAttempt: the job is no longer ours.
        """
        self._drain(self.log.pack())

    def _drain(self, answers: bytes) -> NoReturn:
        # An attempt that has paid nothing has no answers to keep.
        if self._paid:
            self._writer.keep(answers, self.log.step)
        raise Drained

    def _is_within(self, chunks: int, *events: Event, part: Part) -> bool:
        """Say whether the first chunks are worth all draws, with these, at every order of every payer."""
        # At every order: a total that fits at one order alone would pass the charge at another.
        return all(map(le, self._whole(part, self._with(part, *events)), self._worth_of(chunks)))

    def _with(self, part: Part, *events: Event) -> Price:
        """Return the price of the draws about a part, these included."""
        price = self._sums.get(part, (0,) * len(self._before))
        # No two draws of one pass read the same unit, so the most expensive one counts.
        together = max if isinstance(part, int) else add
        for event in events:
            if event not in self._prices:
                self._prices[event] = self._price(event)
            price = tuple(map(together, price, self._prices[event]))
        return price

    def _whole(self, part: Part, drawn: Price) -> Price:
        """Return the price of what was kept with this attempt's draws, where one part's are at a price."""
        sums = {**self._sums, part: drawn}
        if len(sums) > 1:
            passes = [one for name, one in sums.items() if isinstance(name, int)]
            sides = [one for name, one in sums.items() if isinstance(name, str)]
            if passes:
                sides.append(tuple(map(sum, zip(*passes, strict=True))))
            drawn = tuple(map(max, zip(*sides, strict=True)))
        return tuple(map(add, self._before, drawn))

    def _price(self, event: Event) -> Price:
        """Return the price of an event."""
        return tuple(cost_fine(event, order) for payer in self._payers for order in payer.orders)

    def _worth_of(self, chunks: int) -> Price:
        """Return the frozen price of the first chunks."""
        if not chunks:
            return (0,) * len(self._before)
        return tuple(PER_NANO * amount for payer in self._payers for amount in payer.totals[chunks - 1])
