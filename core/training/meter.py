"""The ledger's meter: pays for chunks ahead of the reading they cover, and keeps what was told with the payments.

Each payment carries everything that the attempt was told before it: the method's last state and the noised answers
since. Whoever is lost after a payment has therefore lost the chunk just paid and nothing else, wherever in a step the
chunk ends: the next attempt recalls the rest and draws that chunk again, with fresh noise, for another payment.

Draws within payments. An attempt that begins with k chunks kept draws at most C(m) - C(k) while it has paid the chunks
k to m - 1 itself, C being the frozen cumulative prices, because `cover` counts what was kept as worth all of C(k). So
each attempt draws at most what it pays, whatever was lost before it and whatever it asks, and all attempts together
draw at most what the ledger charged.

Losses of adaptive methods. A method that sizes its questions as it goes reserves slices, chunks that stand for no
question, and one answer may take many. Each payment of the many is committed by itself and carries the same notes, so
whoever is lost after k of them has lost the last one, which the retry allowance pays again, and the k - 1 before it are
worth nothing any more: they are in C(k) and no answer is. Nobody can say whether that answer was read, so this is what
it may have cost. The next attempt then finds that it `affords` less. Such a method asks before each question whether it
affords it: it goes on with less, or ends where it stands, and never passes what was reserved. While it is told again
what an earlier attempt was told, it affords exactly that, which is free; so it takes the same branches again. Stopping
on request is between answers, never between the payments for one, and loses nothing.

A method with a fixed schedule never comes short by a loss, even where it skips questions by its own stopping rule: its
draws up to a question are worth at most the schedule up to there, so at most the chunks up to that question's own are
paid, all but the last of these lie before it, and what is left is worth the rest of the schedule.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn, Protocol

from torch import Tensor

from core.catalogue.questions import Question
from core.errors import ensure
from core.oracle import Answer
from core.privacy.events import NOTHING, Composed, Event, Repeated, compose
from core.privacy.renyi import Leaf, cost_nano
from core.training.draws import DrawCount
from core.training.notes import Noted, Notes, held, unpack
from core.training.order import Drained, Payer

MOST_COVERED: Final = 2**20
"""Equal draws that are looked for at a time in what is paid."""

_NOTHING: Final[Mapping[Event, int]] = {}


class LedgerWriter(Protocol):
    """Where a meter pays: the ledger, through the attempt's fence."""

    def spend(self, chunk: int, state: bytes | None, step: int) -> None:
        """Commit the payment of a chunk. Raises StaleAttempt when the job is no longer ours."""

    def keep(self, state: bytes, step: int) -> None:
        """Commit what was told so far, without paying."""


class LedgerMeter:
    """Covers totals by the smallest prefix of the job's frozen chunks that is worth as much at every order.

    Args:
        writer: where chunks are paid.
        payers: the accounts, with cumulative prices of the chunks.
        schedule: the event of each chunk.
        kept: what an earlier attempt left, `Notes` packed.
        kept_chunks: how many chunks are in it; this attempt pays for those after it, lost ones again.
        charged: the events that earlier attempts paid for.
        stop: says whether this attempt was asked to stop; looked at before what is paid for an answer, where stopping
            loses nothing.
        draws: counts what is drawn against the reservation; None: nothing is reserved.
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
        notes = unpack(kept)
        self._state, self._answers = notes.state, list(notes.answers)
        self._recalled = deque(notes.answers)
        self._resumed = notes.state
        self._step = 0 if self._resumed is None else int(self._resumed.get("step", 0))
        self._stop = stop
        self._covered = Repeated(event=NOTHING, times=1)
        self._prepaid = 0
        self._draws = DrawCount() if draws is None else draws
        self._draws.begin(notes.drawn)
        self._once_paid: list[Callable[[], None]] = []

    def once_paid(self, act: Callable[[], None]) -> None:
        """Call this after each payment from now on, before anything is read for it."""
        self._once_paid.append(act)

    @property
    def charged(self) -> Event:
        """All that was paid for the job, by all attempts."""
        return compose(self._charged)

    def cover(self, total: Event, position: int) -> None:
        """Pay for everything up to `total`, before it is read.

        Raises:
            StaleAttempt: the job is no longer ours.
            Drained: this attempt was asked to stop; nothing of this total is paid, and what it was told is kept.
            PrivacyInvariantError: the total passes the reservation; a method drew more than its price.
        """
        del position  # the total says it all: chunks are counted by their worth
        ensure(not self._recalled, "what an earlier attempt was told comes before anything new")
        drawn = total if isinstance(total, Repeated) else Repeated(event=total, times=1)
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

        While answers of an earlier attempt are told again this one has drawn nothing, so the total is one question's
        event: it affords the next answer to be told, as the earlier attempt did.
        """
        if self._recalled:
            return total == self._recalled[0].question.event()
        return self._within(self._price(total), len(self._schedule))

    def recall(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer | None:
        """Return the next answer that an earlier attempt was given after the state it kept; None after the last.

        One that was not given yet is about to be drawn, and is counted.

        Raises:
            PrivacyInvariantError: another question than then; the method is not deterministic given its answers. Or
                it draws more than was reserved for it.
        """
        if not self._recalled:
            self._draws.add(question, len(theta) if question.places == "list" else 1)
            return None
        noted = self._recalled.popleft()
        ensure(noted.answers(question, theta, other), "a resumed method asks again what it asked before")
        return noted.answer

    def note(self, question: Question, theta: Tensor, answer: Answer, other: Tensor | None = None) -> None:
        """Hold an answer just given."""
        self._draws.tell()
        told = Answer(held(answer.value), answer.scale)
        self._answers.append(Noted(question, held(theta), told, None if other is None else held(other)))

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Hold a state, in place of the answers noted before."""
        ensure(not self._recalled, "what an earlier attempt was told comes before a new state")
        self._answers.clear()  # first: what a network was told is as long as its state
        self._state = {name: held(value) for name, value in state.items()}
        self._step = step

    def resume(self) -> dict[str, Tensor] | None:
        """Return the state that an earlier attempt kept, if any."""
        return self._resumed

    def _pay_until(self, enough: Callable[[int], bool]) -> None:
        """Pay for the next chunks until their number is enough, each payment with all that was told before it.

        Raises:
            StaleAttempt, Drained, PrivacyInvariantError: as `cover` does.
        """
        if enough(self._paid):
            return
        told = self._told()
        self._drain_if_asked(told)
        while not enough(self._paid):
            ensure(self._paid < len(self._schedule), "what is drawn never passes what was priced")
            self._writer.spend(self._paid, told if self._paid else None, self._step)
            self._charged[self._schedule[self._paid]] += 1
            self._paid += 1
            for act in self._once_paid:
                act()

    def _told(self) -> bytes:
        """Return what this attempt was told, with what it was told before, as it is kept."""
        return Notes(self._state, tuple(self._answers), self._draws.told).pack()

    def _drain_if_asked(self, told: bytes) -> None:
        """Keep what was told and stop, before the next payment."""
        if self._stop():
            self._drain(told)

    def _drain(self, told: bytes) -> NoReturn:
        if self._paid:
            self._writer.keep(told, self._step)
        raise Drained

    def may_stop(self, total: Event) -> bool:
        """Say whether stopping before `total` is paid loses nothing: all that is paid was drawn."""
        drawn = total if isinstance(total, Repeated) else Repeated(event=total, times=1)
        covered = drawn.event == self._covered.event and drawn.times <= self._covered.times
        return not covered and not self._is_paid(total)

    def stop_here(self) -> NoReturn:
        """Keep what was told and stop, for a client of a federation, which stops when the others do.

        Raises:
            Drained: always.
            StaleAttempt: the job is no longer ours.
        """
        self._drain(self._told())

    def _price(self, total: Event) -> tuple[tuple[int, ...], ...]:
        """Return the price of what was kept with this attempt's draws, per payer and order."""
        whole = Composed(events=(self._before, total))
        return tuple(cost_nano(whole, payer.orders) for payer in self._payers)

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


def _repeated(drawn: Repeated, more: int) -> Repeated:
    """Return the same draws, some more times."""
    return drawn.model_copy(update={"times": drawn.times + more})
