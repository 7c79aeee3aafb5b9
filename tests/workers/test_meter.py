"""The ledger's meter: covers ahead, keeps only what may be gone on from, and stops only where nothing is lost."""

from collections import Counter
from typing import Any

import pytest
import torch
from safetensors.torch import load

from core.privacy.events import NOTHING, Event, Gaussian, compose
from core.privacy.renyi import prefix_costs
from core.training.meter import LedgerMeter
from core.training.order import Drained, Payer

A, B = Gaussian(sigma=3.0), Gaussian(sigma=5.0)
ORDERS = (2, 9, 22)


class Paper:
    """A till that writes down what it is told."""

    def __init__(self) -> None:
        self.spent: list[tuple[int, int | None, int]] = []
        self.kept: list[tuple[int, int]] = []

    def spend(self, chunk: int, state: bytes | None, step: int) -> None:
        self.spent.append((chunk, None if state is None else int(load(state)["step"]), step))

    def keep(self, state: bytes, step: int) -> None:
        self.kept.append((int(load(state)["step"]), step))


def make(schedule: list[Event], till: Paper, **options: Any) -> LedgerMeter:
    totals = tuple(tuple(total) for total in prefix_costs(schedule, ORDERS))
    return LedgerMeter(till, [Payer(ORDERS, totals)], schedule, **options)


def state(step: int) -> dict[str, torch.Tensor]:
    return {"step": torch.tensor(step), "theta": torch.zeros(2)}


def total(*events: Event) -> Event:
    return compose(Counter(events))


def test_each_question_is_paid_before_it_and_once() -> None:
    till = Paper()
    meter = make([A, B, A], till)
    meter.cover(total(A), 1)
    assert till.spent == [(0, None, 0)]
    meter.cover(total(A, B), 2)
    meter.cover(total(A, B, A), 3)
    assert [chunk for chunk, _, _ in till.spent] == [0, 1, 2]
    assert meter.chunks_paid == 3


def test_a_chunk_of_several_questions_is_paid_whole_at_the_first() -> None:
    till = Paper()
    meter = make([total(A, A, A), total(A, A)], till)
    for position in range(1, 6):
        meter.cover(total(*[A] * position), position)
        assert len(till.spent) == (1 if position <= 3 else 2)


def test_a_question_worth_several_chunks_pays_them_all() -> None:
    till = Paper()
    meter = make([B, B, B, B], till)
    meter.cover(total(A), 1)  # (5/3)^2 = 2.8 chunks
    assert len(till.spent) == 3


def test_drawing_more_than_was_reserved_is_a_bug() -> None:
    meter = make([A], Paper())
    assert meter.affords(total(A))
    assert not meter.affords(total(A, B))
    meter.cover(total(A), 1)
    with pytest.raises(AssertionError, match="never passes"):
        meter.cover(total(A, B), 2)


def test_every_order_of_every_payer_counts() -> None:
    schedule: list[Event] = [A, A]
    totals = [tuple(one) for one in prefix_costs(schedule, ORDERS)]
    poor = [totals[0], (*totals[1][:2], totals[0][2])]  # the grant's second chunk adds nothing at one order
    till = Paper()
    meter = LedgerMeter(till, [Payer(ORDERS, tuple(totals)), Payer(ORDERS, tuple(poor))], schedule)
    meter.cover(total(A), 1)
    assert not meter.affords(total(A, A))


def test_a_state_goes_with_the_next_payment_if_everything_paid_is_in_it() -> None:
    till = Paper()
    meter = make([A, B, A, B], till)
    meter.cover(total(A), 1)
    meter.cover(total(A, B), 2)
    meter.keep(state(1), 1)
    meter.cover(total(A, B, A), 3)
    meter.cover(total(A, B, A, B), 4)  # the gradient of step 2 was drawn since: the state of step 1 lacks it
    assert till.spent == [(0, None, 0), (1, None, 0), (2, 1, 1), (3, None, 1)]


def test_a_state_inside_a_chunk_is_not_stored() -> None:
    till = Paper()
    meter = make([total(A, A), total(A, A)], till)
    meter.cover(total(A), 1)
    meter.keep(state(1), 1)
    meter.cover(total(A, A), 2)
    meter.cover(total(A, A, A), 3)  # nothing was kept since the second question
    assert [kept for _, kept, _ in till.spent] == [None, None]


def test_a_later_attempt_goes_on_after_the_chunks_in_its_state() -> None:
    first, second = Paper(), Paper()
    schedule: list[Event] = [A, B, A, B]
    before = make(schedule, first)
    before.cover(total(A), 1)
    before.cover(total(A, B), 2)
    from safetensors.torch import save  # noqa: PLC0415 - what the till would have stored

    after = make(schedule, second, kept=save(state(1)), kept_chunks=2)
    resumed = after.resume()
    assert resumed is not None
    assert int(resumed["step"]) == 1
    after.cover(total(A), 1)
    after.cover(total(A, B), 2)
    assert [chunk for chunk, _, _ in second.spent] == [2, 3]
    with pytest.raises(AssertionError, match="never passes"):
        after.cover(total(A, B, B), 3)


def test_stopping_loses_nothing_paid() -> None:
    asked = [False]
    till = Paper()
    meter = make([A, B, A, B], till, stop=lambda: asked[0])
    meter.cover(total(A), 1)
    asked[0] = True
    meter.cover(total(A, B), 2)  # stopping here would lose the first answer
    with pytest.raises(Drained):
        meter.keep(state(1), 1)
    assert till.kept == [(1, 1)]


def test_stopping_before_anything_was_paid_is_free() -> None:
    till = Paper()
    meter = make([A], till, stop=lambda: True)
    with pytest.raises(Drained):
        meter.cover(total(A), 1)
    assert till.spent == []
    assert meter.affords(NOTHING)


def test_a_kept_state_is_a_copy() -> None:
    till = Paper()
    meter = make([A, A], till)
    meter.cover(total(A), 1)
    kept = state(1)
    meter.keep(kept, 1)
    kept["step"] += 5  # a method that works in place
    meter.cover(total(A, A), 2)
    assert till.spent[-1] == (1, 1, 1)
