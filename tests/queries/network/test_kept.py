"""A trainer of a network holds the same after every step: its memory is bounded for any number of steps.

The process's memory would tell the same, much later. Python's collector is off while tensors are counted: a step that
leaves a circle of references behind, with all its layers made in it, lives on until the collector comes. Trainers of
such steps were seen to grow by half a megabyte in each of a thousand.
"""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from core.mechanisms.generator import SystemGenerator
from core.mechanisms.sampling import rate_parts
from core.methods.clipped.clipped_sgd.spec import ClippedSgdPlan
from core.methods.clipped.rules import MovingMean
from core.methods.fits import fit
from core.models.network.layers import Layer
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle
from core.privacy.renyi import prefix_costs
from core.queries.gradients import Gradient, GradientDifference, Question
from core.queries.sums.network import problem as neural
from core.queries.sums.network.modules import ForwardPass, Site
from core.training.answer_log import AttemptLog
from core.training.draws import DrawCount
from core.training.ledger_filter import LedgerFilter
from core.training.order import Payer
from tests.support.networks import NETWORKS, facts, problem

UNITS, PART, ORDERS, STEPS = 40, 8, (2, 9), 6
CHANGE = GradientDifference(sigma=1.0, clip=0.5, cap=0.2)


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> tuple[int, int]:
    """Return how many tensors are alive, and how many bytes are behind them."""
    tensors = [one for one in gc.get_objects() if type(one) is Tensor]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return len(tensors), sum(storages.values())


def left_by(act: Callable[[], object]) -> int:
    """Return how many tensors three more of the same leave behind; the first one may fill what is kept for all."""
    act()
    before = held()
    for _ in range(3):
        act()
    return held()[0] - before[0]


class Circular(ForwardPass):
    """Planted bug: a pass holds on to what it noted, which holds on to the pass."""

    noted: list[Site]

    def run(self, layers: tuple[Layer, ...], records: Tensor, under: str = "") -> Tensor:
        made = super().run(layers, records, under)
        self.noted = list(self.sites)
        return made


@pytest.mark.parametrize("question", [Gradient(sigma=1.0, clip=0.5), CHANGE], ids=lambda one: one.kind)
def test_no_sum_leaves_anything_behind(question: Question) -> None:
    sums = [summing(name, question) for name in NETWORKS]
    assert left_by(lambda: [one() for one in sums]) == 0


def test_a_pass_that_holds_on_to_itself_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural, "ForwardPass", Circular)
    assert left_by(summing("convolution", CHANGE)) >= 3


def summing(name: str, question: Question) -> Callable[[], Tensor]:
    """Return a sum over a network's records."""
    records = problem(NETWORKS[name], UNITS)
    public = facts(UNITS, records.dimension, 0.5, PART)
    theta = torch.zeros(records.dimension, dtype=torch.float64)
    step = grid_for(question, public, UNITS).part_step
    other = theta + 0.1 if question.places == "pair" else None
    return lambda: records.integer_sum(question, public, theta, step, other=other)


class Watched(PoissonOracle):  # type: ignore[misc] # final, for nobody but a test looks over its shoulder
    """A oracle that counts what is alive whenever a state is kept."""

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        super().keep(state, step)
        seen.append(held())


seen: list[tuple[int, int]] = []


class DiscardingWriter:
    """Keeps the last state as bytes."""

    kept: bytes | None = None

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        del chunk, step
        self.kept = state

    def keep(self, state: bytes, step: int) -> None:
        raise AssertionError((state, step))


class HoardingLog(AttemptLog):
    """Planted bug: answers from before a state stay beside it."""

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        told = list(self._answers)
        super().keep(state, step)
        self._answers += told


class Hoarder(LedgerFilter):
    """A filter with such a log."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.log = HoardingLog(options.get("kept"), DrawCount())  # type: ignore[misc] # planted


def train(payments: type[LedgerFilter]) -> list[tuple[int, int]]:
    """Train a network as a trainer does; return what was alive after each step."""
    seen.clear()
    records = problem(NETWORKS["convolution"], UNITS)
    public, parts = facts(UNITS, records.dimension, 0.5, PART), rate_parts(0.2)
    asked = ClippedSgdPlan(
        steps=STEPS,
        batch=8,
        sigma=2.0,
        clip=0.5,
        step_size=0.1,
        average=MovingMean(decay=0.5),
        start="zeros",
        radius=1e3,
    )
    schedule = list(asked.schedule(public))
    payers = [Payer(ORDERS, tuple(tuple(total) for total in prefix_costs(schedule, ORDERS)))]
    oracle = Watched(records, public, payments(DiscardingWriter(), payers, schedule), SystemGenerator(), parts)
    fit(asked, oracle)
    return list(seen)


def test_every_step_leaves_as_much_as_the_last() -> None:
    found = train(LedgerFilter)
    assert len(found) == STEPS
    assert set(found[2:]) == {found[2]}, "the states of one step, and the records"


def test_answers_that_are_hoarded_are_seen() -> None:
    found = train(Hoarder)
    assert found[-1] > found[2]
