"""Every sum where records live on a device: no operation mixes it with the CPU, and the integers are those of the CPU.

Without a GPU the device is pretended (`tests.support.devices`); FARTHING_TEST_DEVICE=cuda asks a real one.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.oracle.noise import grid_for
from core.privacy.facts import PART_UNITS, Adjacency, Facts
from core.queries.gradients import Counted, Gradient, GradientDifference, GradientNorm, Question, Tabled
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums import Problem, blocks, looking, make_problem, parts_at_once
from core.queries.sums.linear import LinearProblem
from core.queries.sums.multinomial import MultinomialProblem
from core.queries.sums.network import problem as neural
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.table import TableProblem
from core.queries.tables import TableCounts
from tests.laws import test_class_questions as classes
from tests.laws import test_look_questions as looks
from tests.laws import test_table_questions as tables
from tests.support import networks
from tests.support.devices import PRETENDED, MixedDevices, pretending
from tests.support.situations import SITUATIONS, Situation

REAL = os.environ.get("FARTHING_TEST_DEVICE") == "cuda"
DEVICE = torch.device("cuda" if REAL else PRETENDED)
UNITS = PART_UNITS + 700
"""Two parts."""
SELECTIONS = ("all", "mask", "list")


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """Leave records where a test puts them."""
    return iter([None])  # type: ignore[return-value] # in place of the fixture that moves all of them


@dataclass(frozen=True)
class Case:
    """A question about records, made anew on any device."""

    name: str
    question: Question
    facts: Facts
    make: Callable[[torch.device], Problem]
    theta: Tensor
    other: Tensor | None = None
    lists: bool = True


def _to(device: torch.device, *tensors: Tensor) -> list[Tensor]:
    return [one.clone().to(device) for one in tensors]


def _situations() -> Iterator[Case]:
    for situation in SITUATIONS:
        asked = [*situation.questions, GradientNorm(sigma=1.0)]
        if situation.name in {"logistic", "huber", "squared, clipped"}:
            asked += [Hessian(sigma=1.0, clip=0.5), HessianProduct(sigma=1.0, clip=0.5)]
        for question in asked:
            other = situation.point(2) if question.places == "pair" else None
            make = partial(_situation, situation)
            at = situation.point(1)
            yield Case(f"{situation.name}: {question}", question, situation.facts(UNITS), make, at, other)


def _situation(situation: Situation, device: torch.device) -> Problem:
    return make_problem(*_to(device, *situation.rows(UNITS, 2)), situation.loss, situation.weights)


def _looks() -> Iterator[Case]:
    for case in looks.CASES:
        encoded = case.question.places == "encoded"
        at = looks.points(np.random.default_rng(5), 1)[5] if encoded else torch.zeros(looks.WIDTH).double()
        public = looks.known(UNITS, Adjacency.ZERO_OUT, case.loss)
        yield Case(f"look {case.name}", case.question, public, partial(_look, case), at)
    for case in classes.CASES:
        public = classes.known(case, UNITS, Adjacency.ZERO_OUT)
        at = classes.points(case, np.random.default_rng(5), 1)[5] if case.encoded else torch.zeros(public.dimension)
        yield Case(f"classes {case.name}", case.question, public, partial(_class, case), at.double())
    for case in tables.CASES:
        public, at = tables.known(UNITS, Adjacency.ZERO_OUT), torch.zeros(tables.WIDTH).double()
        yield Case(f"table {case.name}", case.question, public, _table, at, lists=False)


def _drawn(width: int, outcomes: int) -> tuple[Tensor, Tensor, Tensor]:
    draws = np.random.default_rng(6)
    x = torch.tensor(draws.uniform(-1, 1, (UNITS, width)))
    x[:, 0] = 1.0
    return x, torch.tensor(draws.integers(0, outcomes, UNITS).astype(float)), torch.ones(UNITS).bool()


def _look(case: looks.Case, device: torch.device) -> Problem:
    return LinearProblem(*_to(device, *_drawn(looks.WIDTH, 2)), case.loss, looks.WEIGHTS)


def _class(case: classes.Case, device: torch.device) -> Problem:
    return MultinomialProblem(*_to(device, *_drawn(classes.WIDTH, case.classes)), case.loss, classes.WEIGHTS)


def _table(device: torch.device) -> Problem:
    x, _, present = _drawn(tables.WIDTH, 2)
    x = x.abs()
    x[:, -1] = torch.tensor(np.random.default_rng(7).integers(0, 4, UNITS).astype(float))
    return TableProblem(*_to(device, x, present))


def _networks() -> Iterator[Case]:
    for name, network in networks.NETWORKS.items():
        make = partial(_network, network)
        dimension = make(torch.device("cpu")).dimension
        generator = torch.Generator().manual_seed(9)
        theta = 0.1 * torch.randn(dimension, generator=generator, dtype=torch.float64)
        other = theta + 0.05 * torch.randn(dimension, generator=generator, dtype=torch.float64)
        public = networks.facts(300, dimension, 0.5, 128)
        difference = GradientDifference(sigma=1.0, clip=0.5, cap=0.2)  # of two gradients
        others = (Gradient(sigma=1.0, clip=0.5), GradientNorm(sigma=1.0, clip=0.5))
        for question in (difference, *(others if name in ("perceptron", "adapters") else ())):
            second = other if question.places == "pair" else None
            yield Case(f"network {name}: {question}", question, public, make, theta, second)


def _network(network: networks.Network, device: torch.device) -> NetworkProblem:
    layers, given, loss, train = network
    x, y, present, start = _to(device, *networks.records(network, 300), networks.start(network))
    return NetworkProblem(x, y, present, layers, loss, given, start, train=train)


CASES = [*_situations(), *_looks(), *_networks()]


def _selected(units: int, selection: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(units, generator=generator) < 0.3
    rows = torch.randperm(units, generator=generator)[: units // 4]
    kept = torch.rand(len(rows), generator=generator) < 0.8
    return {"all": {}, "mask": {"included": mask}, "list": {"rows": rows, "included": kept}}[selection]


def _asked(case: Case, held: Problem, selection: str) -> Tensor:
    grid = grid_for(case.question, case.facts, held.units)
    chosen = _selected(held.units, selection)
    return held.integer_sum(case.question, case.facts, case.theta, grid.part_step, other=case.other, **chosen)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_sum_is_made_on_the_device_alone_and_is_the_cpus(case: Case) -> None:
    """Counts are equal, and other sums differ by at most what the lattice charges for both of them.

    A question asked again copies points, lists and masks to the device, nothing else, and nothing back.
    """
    for selection in SELECTIONS[: 3 if case.lists else 2]:
        here = _asked(case, case.make(torch.device("cpu")), selection)
        with nullcontext(Counter[str]()) if REAL else pretending() as counts:
            held = case.make(DEVICE)
            there = _asked(case, held, selection)
            assert there.device.type == DEVICE.type, "the sum is where the records are"
            counts.clear()
            again = _asked(case, held, selection)
            assert counts["to"] <= (2 if case.other is not None else 1) + SELECTIONS.index(selection)
            assert counts["from"] == 0
            there, again = there.cpu(), again.cpu()
        assert torch.equal(there, again)
        if isinstance(case.question, Counted | TableCounts):
            assert torch.equal(there, here)
        else:
            grid = grid_for(case.question, case.facts, held.units)
            assert float((there - here).double().norm()) * grid.part_step <= 2 * grid.error


PART = 1024
KINDS = {(case.question.kind, case.name.split(":")[0] * case.name.startswith("network")): case for case in CASES}


@pytest.mark.parametrize("case", [one for one in KINDS.values() if not isinstance(one.question, Counted | Tabled)])
def test_records_that_are_left_out_change_their_own_part_alone(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, of every kind of sum and of every network."""
    seen: list[Tensor] = []

    def watch(module: ModuleType, name: str) -> None:
        genuine = getattr(module, name)

        def watched(first: Any, *given: Any) -> Any:
            seen.append(first.clone().cpu() if module is neural else genuine(first, *given).cpu())
            return genuine(first, *given)

        monkeypatch.setattr(module, name, watched)

    for module in (blocks, parts_at_once):
        monkeypatch.setattr(module, "PART_UNITS", PART)
    for module, name in ((blocks, "part_sums"), (looking, "_part_sums"), (neural, "truncated")):
        watch(module, name)
    size = case.facts.part_rows or PART
    row, found = size + 3, list[Tensor]()
    with nullcontext() if REAL else pretending():
        held = case.make(DEVICE)
        for last in (row, row, row + 5):  # some records may add nothing
            seen.clear()
            included = torch.ones(held.units, dtype=torch.bool)
            included[row:last] = False
            step = grid_for(case.question, case.facts, held.units).part_step
            held.integer_sum(case.question, case.facts, case.theta, step, other=case.other, included=included)
            found.append(torch.cat(seen))
    assert len(found[0]) == -(-held.units // size)
    assert torch.equal(found[0], found[1])
    others = torch.arange(len(found[0])) != row // size
    assert torch.equal(found[0][others], found[2][others])
    assert not torch.equal(found[0], found[2])


def test_the_pretended_device_refuses_what_a_gpu_refuses() -> None:
    with pretending() as counts:
        there = torch.ones(3).to(PRETENDED)
        with pytest.raises(MixedDevices):
            there + torch.ones(3)
        with pytest.raises(MixedDevices):
            there[torch.tensor([0, 1])]
        assert float((2 * there).sum().cpu()) == 6.0
        assert (counts["to"], counts["from"]) == (1, 1)


@pytest.mark.parametrize("planted", ["rows", "theta"])
def test_what_stays_on_the_cpu_is_seen(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bugs: a list of rows, or a point, that nobody moves to the device."""
    if planted == "rows":
        monkeypatch.setattr(
            "core.queries.sums.terms.Records.listed",
            lambda self, rows, _: self.each(lambda one: one.index_select(0, rows.cpu())),
        )
    else:
        monkeypatch.setattr(
            LinearProblem,
            "_point",
            lambda _self, _question, _facts, theta, _other: type("At", (), {"theta": theta, "other": None})(),
        )
    case = next(one for one in CASES if isinstance(one.question, Gradient))
    with nullcontext() if REAL else pretending(), pytest.raises(RuntimeError):
        _asked(case, case.make(DEVICE), "list")
