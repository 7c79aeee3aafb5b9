"""The privacy filter of a job: pays for chunks ahead of the reading they cover, each with the answers so far.

Each payment carries all earlier answers of the attempt: the method's last state and the noised answers since. An
attempt that is lost after a payment loses the chunk just paid and nothing else, wherever in a step the chunk ends. The
next attempt recalls the rest and draws that chunk again, with fresh noise, for another payment.

Draws within payments. Let C be the frozen cumulative prices. An attempt that begins with k chunks kept draws at most
C(m) - C(k) while it has paid the chunks k to m - 1 itself, because `cover` counts the kept ones as worth all of C(k).
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
from typing import Final, NoReturn, Protocol

from core.base.errors import ensure
from core.privacy.events import NOTHING, Composed, Event, Repeated, compose
from core.privacy.renyi import Leaf, cost_nano
from core.training.answer_log import AttemptLog
from core.training.draws import DrawCount
from core.training.order import Drained, Payer

MOST_COVERED: Final = 2**20
"""Equal draws that are looked for at a time in what is paid."""

_NOTHING: Final[Mapping[Event, int]] = {}


class LedgerWriter(Protocol):
    """Where a privacy filter pays: the ledger, through the attempt's fence."""

    def spend(self, chunk: int, state: bytes | None, step: int) -> None:
        """Commit the payment of a chunk. Raises StaleAttempt when the job is no longer ours."""

    def keep(self, state: bytes, step: int) -> None:
        """Commit the answers so far, without paying."""


class LedgerFilter:
    """Covers totals by the smallest prefix of the job's frozen chunks that is worth as much at every order.

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
        self._writer = writer
        self._payers = payers
        self._schedule = schedule
        self._before: Event = compose(Counter(schedule[:kept_chunks]))
        self._paid = kept_chunks
        self._charged = Counter(charged)
        self.log: Final = AttemptLog(kept, DrawCount() if draws is None else draws)
        self._stop = stop
        self._covered = Repeated(event=NOTHING, times=1)
        self._prepaid = 0
        self._once_paid: list[Callable[[], None]] = []

    def once_paid(self, act: Callable[[], None]) -> None:
        """Call this after each payment from now on, before anything is read for it."""
        self._once_paid.append(act)

    @property
    def charged(self) -> Event:
        """The payments for the job, by all attempts."""
        return compose(self._charged)

    def cover(self, total: Event, position: int) -> None:
        """Pay for everything up to `total`, before it is read.

        Raises:
            StaleAttempt: the job is no longer ours.
            Drained: this attempt was asked to stop; nothing of this total is paid, and its answers are kept.
            PrivacyInvariantError: the total passes the reservation; a method drew more than its price.
        """
        del position  # the total says it all: chunks are counted by their worth
        ensure(self.log.next_recalled is None, "answers of an earlier attempt come before anything new")
        drawn = total if isinstance(total, Repeated) else Repeated(event=total, times=1)
        # More of the same draws, up to a number found before, are paid already: pricing is the dear part.
        if drawn.event != self._covered.event or drawn.times > self._covered.times:
            price = self._price(total)
            self._pay_until(lambda chunks: self._within(price, chunks))
            self._covered = self._most(drawn) if isinstance(drawn.event, Leaf) else drawn
        self._prepaid = self._covered.times - drawn.times

    def prepaid(self) -> int:
        """Return how many more of the same draws are covered by what is paid."""
        return self._prepaid

    def _most(self, drawn: Repeated) -> Repeated:
        """Return as many of the same draws as what is paid covers: most steps of a chunk are then not priced again."""
        step = 1
        # Doubling, then halving: a price is found a few dozen times and not once a draw.
        while step <= MOST_COVERED and self._is_paid(more := _repeated(drawn, step)):
            drawn, step = more, 2 * step
        while step := step // 2:
            if self._is_paid(more := _repeated(drawn, step)):
                drawn = more
        return drawn

    def _is_paid(self, total: Event) -> bool:
        return self._within(self._price(total), self._paid)

    def affords(self, total: Event) -> bool:
        """Say whether the reservation covers `total` at every order.

        While this attempt replays an earlier one's answers it has drawn nothing, so the total is one question's event.
        It then affords the next replayed answer, as the earlier attempt did.
        """
        if (recalled := self.log.next_recalled) is not None:
            # Anything but the recalled question would take another branch than the earlier attempt did.
            return total == recalled.event()
        return self._within(self._price(total), len(self._schedule))

    def _pay_until(self, enough: Callable[[int], bool]) -> None:
        """Pay for the next chunks until their number is enough, each payment with all answers before it.

        Raises:
            StaleAttempt, Drained, PrivacyInvariantError: as `cover` does.
        """
        if enough(self._paid):
            return
        # Packed once: several chunks may pay for one answer, and carry the same notes.
        answers = self.log.pack()
        # Before the first payment only: between two payments for one answer a stop would lose the first.
        if self._stop():
            self._drain(answers)
        while not enough(self._paid):
            ensure(self._paid < len(self._schedule), "a draw never exceeds its price")
            # Before the first chunk there is nothing to keep.
            self._writer.spend(self._paid, answers if self._paid else None, self.log.step)
            self._charged[self._schedule[self._paid]] += 1
            self._paid += 1
            for act in self._once_paid:
                act()

    def _drain(self, answers: bytes) -> NoReturn:
        # An attempt that has paid nothing has no answers to keep.
        if self._paid:
            self._writer.keep(answers, self.log.step)
        raise Drained

    def may_stop(self, total: Event) -> bool:
        """Say whether stopping before `total` is paid loses nothing: every paid chunk was drawn."""
        drawn = total if isinstance(total, Repeated) else Repeated(event=total, times=1)
        covered = drawn.event == self._covered.event and drawn.times <= self._covered.times
        return not covered and not self._is_paid(total)

    def stop_here(self) -> NoReturn:
        """Keep the answers and stop, for a site of a federation, which stops when the others do.

        Raises:
            Drained: always.
            StaleAttempt: the job is no longer ours.
        """
        self._drain(self.log.pack())

    def _price(self, total: Event) -> tuple[tuple[int, ...], ...]:
        """Return the price of what was kept with this attempt's draws, per payer and order."""
        # The kept chunks count as worth their frozen price, so the draws of all attempts add up.
        whole = Composed(events=(self._before, total))
        return tuple(cost_nano(whole, payer.orders) for payer in self._payers)

    def _within(self, price: Sequence[Sequence[int]], chunks: int) -> bool:
        """Say whether the first `chunks` chunks are worth a price at every order of every payer."""
        return all(
            one <= most
            for payer, amounts in zip(self._payers, price, strict=True)
            # At every order: a total that fits at one order alone would pass the charge at another.
            for one, most in zip(amounts, self._worth(payer, chunks), strict=True)
        )

    @staticmethod
    def _worth(payer: Payer, chunks: int) -> tuple[int, ...]:
        return payer.totals[chunks - 1] if chunks else (0,) * len(payer.orders)


def _repeated(drawn: Repeated, more: int) -> Repeated:
    """Return the same draws, some more times."""
    return drawn.model_copy(update={"times": drawn.times + more})
