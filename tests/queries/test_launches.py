"""Operations that a GPU is given for a sum, counted on the pretended device: they do not grow with the parts."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from benchmarks.gpu import NETWORKS
from core.losses.categorical import Logistic
from core.losses.weights import Mallows
from core.mechanisms.public_start import draw_start
from core.privacy.facts import Adjacency, Facts
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient
from core.queries.sums import Problem, blocks, parts_at_once
from core.queries.sums.linear import LinearProblem
from core.queries.sums.network.problem import NetworkProblem
from tests.support.devices import PRETENDED, pretending

DEVICE, PART, WIDTH = torch.device(PRETENDED), 64, 5
POINT = torch.full((WIDTH,), 0.1, dtype=torch.float64)
ENCODED = torch.cat((POINT.unsqueeze(0), torch.eye(WIDTH, dtype=torch.float64)))
BANDS = (0.5, 1.0, 3.0)
MOST: dict[str, tuple[Question, Tensor, int]] = {
    "gradient": (Gradient(sigma=1.0, clip=0.5), POINT, 25),
    "Hessian": (Curvature(of="hessian", sigma=1.0), POINT, 35),
    "re-encoded gradient": (ReencodedGradient(sigma=1.0, loss=Logistic(), weight_bound=2.0), ENCODED, 80),
    "re-encoded Hessian": (
        ReencodedCurvature(sigma=1.0, of="hessian", loss=Logistic(), weight_bound=2.0),
        ENCODED,
        95,
    ),
    "band totals": (BandTotals(sigma=1.0, weight_bound=2.0, edges=BANDS), ENCODED, 110),
    "band gradients": (BandGradients(sigma=1.0, weight_bound=2.0, edges=BANDS), ENCODED, 110),
    "band scores": (BandScores(sigma=1.0, weight_bound=2.0, edges=BANDS), ENCODED, 140),
}
"""The most operations of each sum."""

STEP = {"CNN": 150, "MLP": 90, "CNN of Papernot et al.": 240}
"""The same of a network's step."""


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have small parts, and records where a test puts them."""
    for module in (blocks, parts_at_once):
        monkeypatch.setattr(module, "PART_UNITS", PART)
    return iter([None])  # type: ignore[return-value] # in place of the fixture that moves all of them


def _counts(make: Callable[[], Problem], asked: Question, facts: Facts, at: Tensor, **chosen: Tensor) -> Counter[str]:
    """Return what is counted of a sum that is asked for again."""
    with pretending() as counts:
        held = make()
        for _ in range(2):
            counts.clear()
            held.integer_sum(asked, facts, at, 2.0**-20, **chosen)
    return counts


def _of_parts(name: str, parts: int) -> Counter[str]:
    question, at, _ = MOST[name]
    generator, units = torch.Generator().manual_seed(1), parts * PART + 9
    x = torch.randn(units, WIDTH, generator=generator, dtype=torch.float64)
    y = (torch.rand(units, generator=generator) < 0.5).double()
    facts = Facts(units=units, dimension=WIDTH, adjacency=Adjacency.ZERO_OUT, gradient_bound=2.0, curvature_bound=1.0)

    def make() -> Problem:
        given = (one.clone().to(DEVICE) for one in (x, y, torch.ones(units, dtype=torch.bool)))
        return LinearProblem(*given, Logistic(), Mallows(bound=2.0))

    return _counts(make, question, facts, at)


@pytest.mark.parametrize("name", MOST)
def test_operations_of_a_sum_do_not_grow_with_its_parts(name: str) -> None:
    few, many = _of_parts(name, 2), _of_parts(name, 7)
    assert few == many
    assert many["launch"] <= MOST[name][2]
    assert (many["to"], many["wait"], many["from"]) == (1, 1, 0)


def test_a_product_for_each_part_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: each part's sum is made by itself."""

    def one_by_one(units: int) -> Iterator[tuple[slice, int]]:
        yield from ((slice(at, min(at + PART, units)), 1) for at in range(0, units, PART))

    monkeypatch.setattr(parts_at_once, "whole_parts", one_by_one)
    assert _of_parts("gradient", 7)["launch"] > _of_parts("gradient", 2)["launch"]


def _of_rows(name: str, rows: int) -> Counter[str]:
    layers, given = NETWORKS[name]
    start = torch.cat([one.flatten() for one in draw_start(layers, given, "all").values()])
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(rows, torch.Size(given).numel(), generator=generator)
    target = torch.randint(0, 10, (rows,), generator=generator).double()

    def make() -> NetworkProblem:
        there = [one.clone().to(DEVICE) for one in (features, target, torch.ones(rows, dtype=torch.bool), start)]
        return NetworkProblem(*there[:3], layers, "cross_entropy", given, there[3])

    facts = Facts(units=rows, dimension=len(start), adjacency=Adjacency.ZERO_OUT, gradient_bound=1.0, part_rows=4)
    listed, theta = torch.arange(rows - 1), torch.zeros(len(start))
    included = torch.ones(rows - 1, dtype=torch.bool)
    return _counts(make, Gradient(sigma=1.0, clip=1.0), facts, theta, rows=listed, included=included)


@pytest.mark.parametrize("name", NETWORKS)
def test_operations_of_a_networks_step_do_not_grow_with_its_parts(name: str) -> None:
    few, many = _of_rows(name, 8), _of_rows(name, 20)
    assert few == many
    assert many["launch"] <= STEP[name]
    assert (many["to"], many["wait"], many["from"]) == (3, 1, 0)
