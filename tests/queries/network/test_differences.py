"""Changes of clipped gradients: those of every record's own, cut as asked and charged as the lattice says."""

from math import isqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from core.mechanisms.generator import SystemGenerator
from core.mechanisms.lattice import Grid, round_parts
from core.models.network.layers import Activation, Linear
from core.oracle.filters import UnlimitedFilter
from core.oracle.noise import grid_for
from core.oracle.samples import StreamOracle
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientDifference, GradientNorm, LeastGradient
from core.queries.sums.network import problem as problems
from core.queries.sums.network.differences import Measured, changes
from core.queries.sums.network.problem import NetworkProblem
from tests.support.networks import NETWORKS, Network, facts, gradients, problem, records

UNITS = 21
"""No multiple of a micro-batch."""
PART = 8
KINK: Network = ((Linear(units=6), Activation(), Linear(units=1)), (5,), "squared", "all")
"""Its gradients jump where a unit wakes up: Lipschitz with no constant."""


def _points(held: NetworkProblem, apart: float = 0.05) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(9)
    theta, turn = (torch.randn(held.dimension, generator=generator, dtype=torch.float64) for _ in range(2))
    return 0.1 * theta, 0.1 * theta + apart * turn


def _cut(rows: Tensor, bound: float) -> Tensor:
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows * torch.where(norms > 0, bound / norms, 1.0).clamp(max=1.0)


def _exact(held: NetworkProblem, ends: tuple[Tensor, Tensor], clip: float, cap: float) -> Tensor:
    """Return each record's term by torch's own vmap of grad, in double precision."""
    before, after = (_cut(gradients(held, one), clip) for one in ends)
    return _cut(after - before, min(cap, 2 * clip))


def _sizes(name: str, share: float) -> tuple[float, float]:
    """Return a clip that bites for about half of the records, and a cap in shares of the median change."""
    held = problem(NETWORKS[name], UNITS, torch.float64)
    theta, other = _points(held)
    clip = float(torch.linalg.vector_norm(gradients(held, theta), dim=-1).median())
    moved = torch.linalg.vector_norm(_exact(held, (theta, other), clip, 2 * clip), dim=-1)
    return clip, share * float(moved.median())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("share", [0.7, 100.0])
def test_sums_are_those_of_every_records_own_change(name: str, share: float) -> None:
    clip, cap = _sizes(name, share)
    held = problem(NETWORKS[name], UNITS, torch.float64)
    theta, other = _points(held)
    asked = GradientDifference(sigma=1.0, clip=clip, cap=cap)
    found = held.bounded_sum(asked, facts(UNITS, held.dimension, clip), theta, other=other)
    expected = _exact(held, (theta, other), clip, cap).sum(0)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


def _public(
    held: NetworkProblem, asked: GradientDifference, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> tuple[Facts, Grid]:
    known = facts(held.units, held.dimension, 0.5, PART, adjacency)
    return known, grid_for(asked, known, held.units)


def _integers(held: NetworkProblem, asked: GradientDifference, apart: float = 0.05, **selection: Tensor) -> Tensor:
    known, grid = _public(held, asked)
    theta, other = _points(held, apart)
    return held.integer_sum(asked, known, theta, grid.part_step, other=other, **selection)


def _norm(steps: Tensor) -> int:
    return isqrt(sum(one * one for one in steps.tolist()))


@pytest.mark.parametrize("name", ["perceptron", "pools", "transformer"])
@pytest.mark.parametrize("micro", [1, 4, 16, None])
def test_single_precision_and_micro_batches_change_nothing_but_roundings(name: str, micro: int | None) -> None:
    clip, cap = _sizes(name, 1.0)
    asked = GradientDifference(sigma=1.0, clip=clip, cap=cap)
    held = problem(NETWORKS[name], UNITS, micro=micro)
    _, grid = _public(held, asked)
    single = sum(_integers(held, asked, rows=torch.tensor([row])) for row in range(UNITS))
    assert _norm(_integers(held, asked) - single) * grid.part_step <= 2 * grid.error
    double = problem(NETWORKS[name], UNITS, torch.float64)
    exact = _exact(double, _points(double), clip, cap).sum(0)
    assert float((_integers(held, asked) * grid.part_step - exact).norm()) < 1e-4 * clip * UNITS


def _outlying(kind: str, held: tuple[Tensor, ...], row: int) -> tuple[Tensor, ...]:
    features, target, present = (one.clone() for one in held)
    match kind:
        case "zeroed":
            present[row] = False
        case "not a number":
            target[row] = torch.nan
        case "turned":
            features[row] = features[row].flip(0)
            target[row] = -30 * target[row] if held[1].ne(held[1].round()).any() else 1 - target[row].clamp(max=1)
        case "overflowing":
            features[row] = features[row] if features.dtype == torch.int64 else features[row] * 1e36
    return features, target, present


@pytest.mark.parametrize("name", ["perceptron", "pools", "norms", "transformer"])
@pytest.mark.parametrize("kind", ["zeroed", "not a number", "turned", "overflowing"])
@pytest.mark.parametrize("cap", [2.0**-40, 0.3])
def test_neighbours_differ_in_one_part_and_by_no_more_than_is_charged(name: str, kind: str, cap: float) -> None:
    row, asked = 13, GradientDifference(sigma=1.0, clip=0.5, cap=cap)
    base = records(NETWORKS[name], UNITS)
    pair = [problem(NETWORKS[name], UNITS, held=one, micro=4) for one in (base, _outlying(kind, base, row))]
    adjacency = Adjacency.ZERO_OUT if kind in ("zeroed", "not a number") else Adjacency.REPLACE_ONE
    known, grid = _public(pair[0], asked, adjacency)
    theta, other = _points(pair[0])
    parts = ([part.clone() for part in one._parts(asked, known, theta, None, None, other)] for one in pair)
    for number, (one, changed) in enumerate(zip(*parts, strict=True)):
        assert torch.equal(one, changed) or number == row // PART, "other parts are the same, bit by bit"
    moved = (round_parts(_integers(one, asked).numpy(), grid) for one in pair)
    assert _norm(torch.from_numpy(next(moved) - next(moved))) <= grid.sensitivity


def _largest(asked: GradientDifference) -> float:
    """Return the largest term that adversaries reach, as a share of what may enter: kinks crossed, targets far off."""
    features, target, present = records(KINK, 16)
    target = target * 1e4
    held = problem(KINK, 16, held=(features, target, present))
    _, grid = _public(held, asked)
    sizes = [_norm(_integers(held, asked, rows=torch.tensor([row]))) for row in range(16)]
    return max(sizes) * grid.part_step / min(asked.cap, 2 * asked.clip)


@pytest.mark.parametrize("cap", [1e-3, 0.2, 0.9, 1.0, 50.0])
def test_kinks_turn_no_term_past_its_cap_and_some_reach_it(cap: float) -> None:
    reached = _largest(GradientDifference(sigma=1.0, clip=0.5, cap=cap))
    assert reached <= 1 + 2**-11, "terms are inside the charged margin"
    assert reached > (0.99 if cap < 0.9 else 0.2)


def _shifted(held: NetworkProblem, bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug in how changes are made."""

    def wrong(before: Measured, after: Measured, dimension: int, bound: float) -> Measured:
        match bug:
            case "other rows at the second point":
                moved = held._measured(
                    held._weights(_points(held)[1]), held._records.some(torch.arange(8).roll(1), after[2]), 0.5
                )
                return changes(before, moved, dimension, bound)
            case "a clip of the change alone":
                free = [(terms, torch.ones_like(scales), kept) for terms, scales, kept in (before, after)]
                return changes(*free, dimension, bound)
            case "no cut":
                terms, scales, kept = changes(before, after, dimension, bound)
                return terms, kept.to(scales.dtype), kept
        raise AssertionError(bug)

    monkeypatch.setattr(problems, "changes", wrong)


@pytest.mark.parametrize("bug", ["other rows at the second point", "a clip of the change alone", "no cut"])
def test_planted_bugs_are_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cap = 0.1
    asked = GradientDifference(sigma=1.0, clip=0.5, cap=cap)
    base = records(KINK, 8)
    held = problem(KINK, 8, held=(base[0], 5 * base[1], base[2]))
    _, grid = _public(held, asked)
    theta, other = _points(held)
    exact = _exact(held, (theta, other), 0.5, cap).sum(0)

    def off() -> float:
        return float((_integers(held, asked) * grid.part_step - exact).norm())

    assert off() < 1e-4
    _shifted(held, bug, monkeypatch)
    assert off() > 1e-2
    if bug == "no cut":
        most = max(_norm(_integers(held, asked, rows=torch.tensor([row]))) for row in range(8))
        assert most > 2 * grid.sensitivity * 2**grid.part_bits


def test_a_difference_added_to_a_gradient_is_the_next_gradient() -> None:
    held = problem(NETWORKS["convolution"], UNITS, torch.float64)
    theta, other = _points(held)
    known = facts(UNITS, held.dimension, 0.5)
    first, last = (held.bounded_sum(Gradient(sigma=1.0, clip=0.5), known, one) for one in (theta, other))
    change = held.bounded_sum(GradientDifference(sigma=1.0, clip=0.5, cap=2.0), known, theta, other=other)
    assert torch.allclose(first + change, last, atol=1e-12)


def test_a_stream_reads_one_batch_at_both_points_and_the_next_question_the_next_one() -> None:
    """Noise is a thousandth of a record's; other rows, planted, are off by far more than six of its deviations."""
    clip, cap = _sizes("perceptron", 1.0)
    held = problem(NETWORKS["perceptron"], UNITS, torch.float64)
    known, ends = facts(UNITS, held.dimension, clip, PART), _points(held)
    order = np.random.default_rng(4).permutation(UNITS)
    oracle = StreamOracle(held, known, UnlimitedFilter(), SystemGenerator(), order)
    oracle.ask(Gradient(sigma=1e-3, batch=8, clip=clip), ends[0])
    told = oracle.ask(GradientDifference(sigma=1e-3, batch=5, clip=clip, cap=cap), *ends)
    terms = _exact(held, ends, clip, cap)
    expected, wrong = (terms[torch.from_numpy(rows)].mean(0) for rows in (order[8:13], order[:5]))
    within = 6 * told.scale
    assert float((told.value - expected).abs().max()) < within
    assert float((told.value - wrong).abs().max()) > within


def test_norms_are_compared_over_the_sums_at_each_point() -> None:
    held = problem(NETWORKS["perceptron"], UNITS)
    known, grid = facts(UNITS, held.dimension, 0.5, PART), grid_for(Gradient(sigma=1.0), facts(UNITS, 9, 0.5), UNITS)
    points = torch.stack(_points(held))
    found = held.integer_sum(LeastGradient(sigma=1.0), known, points, grid.part_step)
    each = [held.integer_sum(GradientNorm(sigma=1.0), known, one, grid.part_step) for one in points]
    assert torch.equal(found, torch.stack(each))
