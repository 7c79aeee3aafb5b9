"""The privacy filter of a job: covers ahead, stores the answers with each payment, and stops where nothing is lost."""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import le
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.oracle import EVERYTHING, Answer, Part
from core.privacy.events import NOTHING, Event, Gaussian, Repeated, Sampled, Zcdp, compose
from core.privacy.renyi import cost_nano, prefix_costs
from core.queries.gradients import Gradient, Secant
from core.training.ledger_filter import LedgerFilter
from core.training.notes import Notes, unpack
from core.training.order import Drained, Payer

A, B = Gaussian(sigma=3.0), Gaussian(sigma=5.0)
ORDERS = (2, 9, 22)
ZERO = torch.zeros(2, dtype=torch.float64)


def told(state: bytes | None) -> tuple[int | None, list[float]] | None:
    """Return the step that was kept, and the first coordinate of each answer since."""
    if state is None:
        return None
    notes = unpack(state)
    step = None if notes.state is None else int(notes.state["step"])
    return step, [float(noted.answer.value.flatten()[0]) for noted in notes.answers]


class Paper:
    """A ledger writer that writes down its calls, and the state that was kept last."""

    def __init__(self) -> None:
        self.spent: list[tuple[int, Any, int]] = []
        self.drained: list[tuple[Any, int]] = []
        self.state: bytes | None = None
        self.chunks = 0

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        self.spent.append((chunk, told(state), step))
        if state is not None:
            self.state, self.chunks = state, chunk

    def keep(self, state: bytes, step: int) -> None:
        self.drained.append((told(state), step))
        self.state = state


def make(schedule: Sequence[Event], writer: Paper, **options: Any) -> LedgerFilter:
    totals = tuple(tuple(total) for total in prefix_costs(schedule, ORDERS))
    return LedgerFilter(writer, [Payer(ORDERS, totals)], schedule, **options)


def state(step: int) -> dict[str, torch.Tensor]:
    return {"step": torch.tensor(step), "theta": torch.zeros(2)}


def total(*events: Event) -> Event:
    return compose(Counter(events))


def tell(payments: LedgerFilter, value: float, sigma: float = 3.0) -> None:
    """Note an answer."""
    payments.log.note(Gradient(sigma=sigma), ZERO, Answer(torch.full((2,), value, dtype=torch.float64), 0.5))


def test_each_question_is_paid_before_it_and_once() -> None:
    writer = Paper()
    payments = make([A, B, A], writer)
    payments.pay(A)
    assert writer.spent == [(0, None, 0)]
    payments.pay(B)
    payments.pay(A)
    assert [chunk for chunk, _, _ in writer.spent] == [0, 1, 2]
    assert payments.charged == total(A, B, A)


def test_a_chunk_of_several_questions_is_paid_whole_at_the_first() -> None:
    writer = Paper()
    payments = make([total(A, A, A), total(A, A)], writer)
    for position in range(1, 6):
        payments.pay(A)
        assert len(writer.spent) == (1 if position <= 3 else 2)


def test_a_question_worth_several_chunks_pays_them_all() -> None:
    writer = Paper()
    payments = make([B, B, B, B], writer)
    payments.pay(A)  # (5/3)^2 = 2.8 chunks
    assert len(writer.spent) == 3


def test_drawing_more_than_was_reserved_is_a_bug() -> None:
    payments = make([A], Paper())
    assert payments.affords(A)
    assert not payments.affords(A, B)
    payments.pay(A)
    with pytest.raises(AssertionError, match="never exceeds"):
        payments.pay(B)
    payments = make([B, B], writer := Paper())
    with pytest.raises(AssertionError, match="never exceeds"):
        payments.pay(A)  # 2.8 chunks
    assert writer.spent == [], "what passes the price is not paid in part"


def test_every_order_of_every_payer_counts() -> None:
    schedule: list[Event] = [A, A]
    totals = [tuple(one) for one in prefix_costs(schedule, ORDERS)]
    poor = [totals[0], (*totals[1][:2], totals[0][2])]  # the grant's second chunk adds nothing at one order
    writer = Paper()
    payments = LedgerFilter(writer, [Payer(ORDERS, tuple(totals)), Payer(ORDERS, tuple(poor))], schedule)
    payments.pay(A)
    assert not payments.affords(A)


def test_each_payment_carries_all_that_was_told_before_it() -> None:
    writer = Paper()
    payments = make([A, B, A, B], writer)
    payments.pay(A)
    tell(payments, 1.0)
    payments.pay(B)
    tell(payments, 2.0)
    payments.log.keep(state(1), 1)
    payments.pay(A)
    tell(payments, 3.0)
    payments.pay(B)
    assert writer.spent == [(0, None, 0), (1, (None, [1.0]), 0), (2, (1, []), 1), (3, (1, [3.0]), 1)]


def test_a_chunk_of_several_questions_is_lost_whole_or_not_at_all() -> None:
    writer = Paper()
    payments = make([total(A, A), total(A, A)], writer)
    for position in range(1, 4):
        payments.pay(A)
        tell(payments, float(position))
    assert writer.spent == [(0, None, 0), (1, (None, [1.0, 2.0]), 0)]


def test_a_later_attempt_recalls_what_was_told_and_pays_for_what_was_lost() -> None:
    first, second = Paper(), Paper()
    schedule: list[Event] = [A, B, A, B]
    before = make(schedule, first)
    before.pay(A)
    tell(before, 1.0)
    before.pay(B)
    tell(before, 2.0, sigma=5.0)
    before.log.keep(state(1), 1)
    before.pay(A)
    tell(before, 3.0)
    before.pay(B)  # chunk 3 is paid; its answer goes with the worker
    after = make(schedule, second, kept=first.state, kept_chunks=3, charged=Counter(schedule))
    resumed = after.log.resume()
    assert resumed is not None
    assert int(resumed["step"]) == 1
    known = after.log.recall(Gradient(sigma=3.0), ZERO)
    assert known is not None
    assert (known.value.tolist(), known.scale) == ([3.0, 3.0], 0.5)
    assert after.log.recall(Gradient(sigma=5.0), ZERO) is None
    after.pay(B)
    assert second.spent == [(3, (1, [3.0]), 1)]
    assert after.charged == compose(Counter([*schedule, B]))
    with pytest.raises(AssertionError, match="never exceeds"):
        after.pay(B)


def test_a_method_that_asks_something_else_on_resuming_is_stopped() -> None:
    writer = Paper()
    before = make([A, A, A], writer)
    before.pay(A)
    tell(before, 1.0)
    before.pay(A)
    for question, theta in ((Gradient(sigma=5.0), ZERO), (Gradient(sigma=3.0), ZERO + 1)):
        with pytest.raises(AssertionError, match="asks again"):
            make([A, A, A], Paper(), kept=writer.state, kept_chunks=1).log.recall(question, theta)
    for hasty in (
        lambda payments: payments.pay(A),
        lambda payments: payments.log.keep(state(1), 1),
    ):
        with pytest.raises(AssertionError, match="come before"):
            hasty(make([A, A, A], Paper(), kept=writer.state, kept_chunks=1))


def test_stopping_loses_nothing_paid() -> None:
    asked = [False]
    writer = Paper()
    payments = make([total(A, A), B, A], writer, stop=lambda: asked[0])
    payments.pay(A)
    tell(payments, 1.0)
    asked[0] = True
    payments.pay(A)  # paid with the first
    tell(payments, 2.0)
    with pytest.raises(Drained):
        payments.pay(B)
    assert writer.drained == [((None, [1.0, 2.0]), 0)]
    assert [chunk for chunk, _, _ in writer.spent] == [0]


def test_stopping_before_anything_was_paid_is_free() -> None:
    writer = Paper()
    payments = make([A], writer, stop=lambda: True)
    with pytest.raises(Drained):
        payments.pay(A)
    assert (writer.spent, writer.drained) == ([], [])
    assert payments.affords(NOTHING)


def test_what_is_kept_is_a_copy() -> None:
    writer = Paper()
    payments = make([A, A, A], writer)
    payments.pay(A)
    kept = state(1)
    payments.log.keep(kept, 1)
    kept["step"] += 5  # a method that works in place
    answer = Answer(torch.ones(2, dtype=torch.float64), 0.5)
    payments.log.note(Gradient(sigma=3.0), ZERO, answer)
    answer.value.add_(5)
    payments.pay(A)
    assert writer.spent[-1] == (1, (1, [1.0]), 1)


@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_long_is_copied_when_it_is_changed(*, in_place: bool) -> None:
    """A network's state, points and answers: one memory until a method works in place, in whichever of them."""
    payments = make([A, A, A], writer := Paper())
    payments.pay(A)
    theta, foreign = torch.zeros(5000, dtype=torch.float64), torch.from_numpy(np.ones(5000))
    answer = Answer(torch.ones(5000, dtype=torch.float64), 0.5)
    row = torch.ones(2, 5000)[1]
    payments.log.keep({"theta": theta, "foreign": foreign, "row": row, "step": torch.tensor(1)}, 1)
    assert torch._C._data_address(payments.log._state["theta"]) == torch._C._data_address(theta)
    payments.log.note(Gradient(sigma=3.0), theta, answer)
    if in_place:
        for changed in (theta, foreign, answer.value):
            changed[7:].add_(5)
    payments.pay(A)
    notes = unpack(writer.state)
    assert notes.state is not None
    (noted,) = notes.answers
    for stored, number in (
        (notes.state["theta"], 0.0),
        (notes.state["foreign"], 1.0),
        (notes.state["row"], 1.0),
        (noted.theta, 0.0),
        (noted.answer.value, 1.0),
    ):
        assert torch.equal(stored, torch.full_like(stored, number))


def test_notes_survive_being_stored() -> None:
    assert unpack(None) == Notes()
    payments = make([A, A], writer := Paper())
    payments.pay(A)
    payments.log.keep({"step": torch.tensor(3), "hessian": torch.eye(2).mT, "left": torch.tensor(True)}, 3)
    payments.log.note(Gradient(sigma=3.0), ZERO, Answer(torch.arange(4.0).reshape(2, 2).mT, 0.25))
    payments.pay(A)
    notes = unpack(writer.state)
    assert notes.state is not None
    assert {name: value.tolist() for name, value in notes.state.items()} == {
        "step": 3,
        "hessian": [[1.0, 0.0], [0.0, 1.0]],
        "left": True,
    }
    (noted,) = notes.answers
    assert noted.answer.value.tolist() == [[0.0, 2.0], [1.0, 3.0]]


def test_an_answer_about_two_points_is_recalled_for_both() -> None:
    slope, other = Secant(sigma=3.0), ZERO + 2
    payments = make([A, A], writer := Paper())
    payments.pay(A)
    payments.log.note(slope, ZERO, Answer(torch.ones(1, dtype=torch.float64), 0.5), other)
    other += 5  # a method that works in place
    payments.pay(A)

    def again() -> LedgerFilter:
        return make([A, A], Paper(), kept=writer.state, kept_chunks=1)

    known = again().log.recall(slope, ZERO, ZERO + 2)
    assert known is not None
    assert known.value.tolist() == [1.0]
    for end in (None, ZERO + 7, ZERO):
        with pytest.raises(AssertionError, match="asks again"):
            again().log.recall(slope, ZERO, end)
    with pytest.raises(AssertionError, match="asks again"):
        again().log.recall(slope, ZERO + 2, ZERO)


class Killed(Exception):
    """The worker was killed."""


class Ledger(Paper):
    """A ledger writer that charges every payment, and dies at the moments that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.charged: Counter[Event] = Counter()
        self.drawn: Counter[Event] = Counter()
        self.moments = 0
        self.dies_at: list[int] = []

    def moment(self) -> None:
        """Die here, or go on."""
        self.moments += 1
        if self.dies_at and self.moments >= self.dies_at[0]:
            self.dies_at.pop(0)
            self.moments = 0
            raise Killed


def attempt(
    ledger: Ledger,
    schedule: Sequence[Event],
    asked: Sequence[Gradient],
    pays: Callable[[int], None],
    kind: type[LedgerFilter] = LedgerFilter,
) -> None:
    """Ask the questions, each through an oracle that may die before, between and after payment and reading."""

    account = account_of(ledger, schedule, pays, kind)
    for question in asked:
        ask(account, ledger, question)


def account_of(
    ledger: Ledger, schedule: Sequence[Event], pays: Callable[[int], None], kind: type[LedgerFilter]
) -> LedgerFilter:
    """Return what an attempt draws from, whose ledger writer may die before and after each payment."""

    class DiscardingWriter:
        def pay(self, chunk: int, state: bytes | None, step: int) -> None:
            ledger.moment()
            pays(chunk)
            ledger.pay(chunk, state, step)
            ledger.moment()

        def keep(self, state: bytes, step: int) -> None:
            raise AssertionError(f"nobody drains, at step {step} or with {len(state)} bytes")

    totals = tuple(tuple(total) for total in prefix_costs(schedule, ORDERS))
    return kind(DiscardingWriter(), [Payer(ORDERS, totals)], schedule, kept=ledger.state, kept_chunks=ledger.chunks)


def ask(account: LedgerFilter, ledger: Ledger, question: Gradient) -> Answer:
    """Draw an answer out of records that may be lost before and after they are read; its scale is the question's."""
    known = account.log.recall(question, ZERO)
    if known is not None:
        return known
    account.pay(question.event())
    ledger.moment()
    ledger.drawn[question.event()] += 1
    ledger.moment()
    answer = Answer(ZERO, question.sigma)
    account.log.note(question, ZERO, answer)
    return answer


SIGMAS = (3.0, 5.0, 11.0)


def run_through_kills(chunks: list[list[float]], dies_at: list[int], *, honest: bool = True) -> Ledger:
    """Run a job whose questions are exactly its schedule, through kills, to its end."""
    ledger = Ledger()
    ledger.dies_at = list(dies_at)
    schedule = [total(*[Gaussian(sigma=sigma) for sigma in chunk]) for chunk in chunks]
    asked = [Gradient(sigma=sigma) for chunk in chunks for sigma in chunk]
    paid = [0]

    def pays(chunk: int) -> None:
        if honest or chunk >= paid[0]:
            ledger.charged[schedule[chunk]] += 1
        paid[0] = max(paid[0], chunk + 1)

    while True:
        try:
            attempt(ledger, schedule, asked, pays)
        except Killed:
            continue
        return ledger


def overdrawn(ledger: Ledger) -> bool:
    drawn, charged = (cost_nano(compose(events), ORDERS) for events in (ledger.drawn, ledger.charged))
    return any(one > most for one, most in zip(drawn, charged, strict=True))


CHUNKS = st.lists(st.lists(st.sampled_from(SIGMAS), min_size=1, max_size=3), min_size=1, max_size=5)
KILLS = st.lists(st.integers(1, 12), max_size=5)


@given(CHUNKS, KILLS)
@settings(deadline=None, max_examples=200)
def test_all_attempts_together_draw_at_most_what_is_charged(chunks: list[list[float]], dies_at: list[int]) -> None:
    ledger = run_through_kills(chunks, dies_at)
    assert not overdrawn(ledger)
    kills = len(dies_at) - len(ledger.dies_at)
    assert sum(ledger.charged.values()) <= len(chunks) + kills  # a kill costs one chunk at most
    once = Counter(Gaussian(sigma=sigma) for chunk in chunks for sigma in chunk)
    assert ledger.drawn >= once


@given(CHUNKS, KILLS)
@settings(deadline=None, max_examples=200)
def test_a_method_that_stops_early_draws_at_most_what_is_charged(chunks: list[list[float]], dies_at: list[int]) -> None:
    """Its later questions do not fall on the chunks' boundaries; some of what was paid is then left unused."""
    ledger = Ledger()
    ledger.dies_at = list(dies_at)
    tail = [Gaussian(sigma=4.0), Gaussian(sigma=7.0)]
    schedule = [*(total(*[Gaussian(sigma=sigma) for sigma in chunk]) for chunk in chunks), *tail]
    asked = [Gradient(sigma=chunks[0][0]), *(Gradient(sigma=event.sigma) for event in tail)]

    def pays(chunk: int) -> None:
        ledger.charged[schedule[chunk]] += 1

    for _ in range(len(dies_at) + 1):
        try:
            attempt(ledger, schedule, asked, pays)
            break
        except Killed:
            continue
    assert not overdrawn(ledger)


def test_a_resume_that_does_not_pay_again_would_be_seen() -> None:
    """The planted bug: a chunk that some attempt has paid for is not paid a second time."""
    assert not overdrawn(run_through_kills([[3.0], [3.0]], [8]))
    assert overdrawn(run_through_kills([[3.0], [3.0]], [8], honest=False))


class Careless(LedgerFilter):
    """The planted bug: each attempt after a kept state may use payments that were made before it and not used."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        answers = unpack(options["kept"]).answers
        self._before = self._price(compose(Counter(noted.question.event() for noted in answers)))


def test_using_what_was_left_over_once_for_each_attempt_would_be_seen() -> None:
    schedule = [Gaussian(sigma=2.0), *[Gaussian(sigma=3.0)] * 9]
    asked = [Gradient(sigma=3.0), Gradient(sigma=2.05)]

    def overdraws(payments: type[LedgerFilter]) -> bool:
        ledger = Ledger()
        ledger.dies_at = [8, 4]  # after the second answer, twice
        for _ in range(3):
            try:
                attempt(ledger, schedule, asked, lambda chunk: ledger.charged.update([schedule[chunk]]), payments)
                break
            except Killed:
                continue
        assert not ledger.dies_at
        return overdrawn(ledger)

    assert not overdraws(LedgerFilter)
    assert overdraws(Careless)


SLICES = 7
SLICE = Zcdp(rho=0.05)
NORM = Gradient(sigma=6.0)
"""Of a price of 0.28 slices."""


def adaptive_attempt(
    ledger: Ledger, sigmas: Sequence[float], kind: type[LedgerFilter] = LedgerFilter
) -> list[tuple[str, float]]:
    """Ask for a norm, then for a gradient of a size that only its answer could tell, while both are afforded."""
    schedule = [SLICE] * SLICES

    def pays(_: int) -> None:
        ledger.charged[SLICE] += 1

    account = account_of(ledger, schedule, pays, kind)
    asked = []
    for sigma in sigmas:
        for name, question in (("norm", NORM), ("gradient", Gradient(sigma=sigma))):
            if not account.affords(question.event()):
                return asked
            asked.append((name, ask(account, ledger, question).scale))
    return asked


@given(st.lists(st.sampled_from((1.3, 2.0, 3.0, 20.0)), min_size=1, max_size=6), KILLS)
@settings(deadline=None, max_examples=200)
def test_an_adaptive_method_goes_on_with_less_or_ends_whatever_is_lost(sigmas: list[float], dies_at: list[int]) -> None:
    """Its answers take up to six slices each; a loss may take all but one of these out of its reach."""
    ledger, whole = Ledger(), Ledger()
    ledger.dies_at = list(dies_at)
    undisturbed = adaptive_attempt(whole, sigmas)
    asked = None
    while asked is None:
        try:
            asked = adaptive_attempt(ledger, sigmas)
        except Killed:
            continue
    assert not overdrawn(ledger)
    assert asked == undisturbed[: len(asked)]
    kills = len(dies_at) - len(ledger.dies_at)
    assert sum(ledger.charged.values()) <= SLICES + kills
    if not kills:
        assert asked == undisturbed


def test_an_answer_of_several_slices_that_was_lost_leaves_less_to_draw() -> None:
    """Lost when the last of its slices was paid: one is paid again, the others can pay for nothing any more."""
    ledger = Ledger()
    ledger.dies_at = [12]  # after five payments of two moments each, and before the reading of the second question
    with pytest.raises(Killed):
        adaptive_attempt(ledger, [1.5, 20.0])
    assert ledger.charged[SLICE] == 5
    assert ledger.chunks == 4
    assert adaptive_attempt(ledger, [1.5, 20.0]) == [("norm", 6.0)]
    lucky = Ledger()
    assert len(adaptive_attempt(lucky, [1.5, 20.0])) == 4


class Forgetful(LedgerFilter):
    """The planted bug: an answer that is given again would have to be afforded again."""

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        return self._is_within(len(self._schedule), *events, part=part)


@pytest.mark.parametrize(("kind", "ends_with"), [(LedgerFilter, 4), (Forgetful, 1)])
def test_what_was_told_once_is_afforded_again(kind: type[LedgerFilter], ends_with: int) -> None:
    ledger = Ledger()
    ledger.dies_at = [18]
    with pytest.raises(Killed):
        adaptive_attempt(ledger, [1.5, 3.0], kind)
    assert len(unpack(ledger.state).answers) == 3
    assert len(adaptive_attempt(ledger, [1.5, 3.0], kind)) == ends_with


def test_stopping_is_never_between_the_payments_for_one_answer() -> None:
    looked: list[int] = []
    writer = Paper()
    payments = make([B, B, B, B], writer, stop=lambda: bool(looked.append(len(writer.spent))))
    payments.pay(A)  # three chunks
    payments.pay(B)
    assert looked == [0, 3]


@pytest.mark.parametrize("event", [A, Sampled(numerator=2**57, sigma=1.0)])
def test_equal_draws_pay_when_their_price_says_so_whether_or_not_it_is_looked_up(event: Event) -> None:
    schedule = [Repeated(event=event, times=times) for times in (1, 7, 2, 40)]
    totals = prefix_costs(schedule, ORDERS)
    writer = Paper()
    payments = make(schedule, writer)
    for times in range(1, 51):
        payments.pay(event)
        price = cost_nano(compose({event: times}), ORDERS)
        least = next(at for at, most in enumerate(totals, 1) if all(map(le, price, most)))
        assert len(writer.spent) == least
    with pytest.raises(AssertionError, match="never exceeds"):
        payments.pay(event)
    assert payments.close() == compose({event: 50})


def test_parts_stand_side_by_side_and_a_pass_costs_its_most_expensive_draw() -> None:
    payments = make([total(A, A), A, A], writer := Paper())
    for part, event, chunks in (("holdout", A, 1), (EVERYTHING, A, 1), (EVERYTHING, A, 1), (0, A, 1), (0, B, 1)):
        payments.pay(event, part)
        assert len(writer.spent) == chunks
    for part, chunks in ((1, 1), (2, 2), ("holdout", 2), ("holdout", 2), ("holdout", 3)):
        payments.pay(A, part)
        assert len(writer.spent) == chunks


def test_draws_in_turn_are_priced_together() -> None:
    writer = Paper()
    payments = make([total(A, A, A, A), B, total(A, A, A, A)], writer)
    for event, chunks in ((A, 1), (A, 1), (B, 1), (A, 1), (A, 2), (A, 3)):
        payments.pay(event)
        assert len(writer.spent) == chunks
    assert payments.total() == total(A, A, B, A, A, A)
