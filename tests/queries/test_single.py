"""Gradients of linear predictors in single precision: their charged bounds hold, record by record."""

from fractions import Fraction
from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from core.data.limits import LARGEST_SUM
from core.losses.registry import Loss
from core.losses.squares import Squared
from core.losses.weights import Clip, Schweppe, Weights
from core.mechanisms.lattice import CHARGED_MARGIN, Grid
from core.oracle.noise import grid_for
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient
from core.queries.sums import rows as compiled
from core.queries.sums import single
from core.queries.sums.linear import LinearProblem
from core.queries.sums.single import LARGEST, PART_ROWS, SMALLEST_CLIP
from tests.support.problems import LOGISTIC, LOSSES, WEIGHTS, facts, rows

UNITS = 333
THETA = torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)
GRADIENT = Gradient(sigma=1.0, clip=0.7)


@pytest.fixture(autouse=True)
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use NumPy; `test_rows` compares compiled code with it, and float by float with the order in the code's text."""
    monkeypatch.setattr(compiled, "KERNELS", None)


def charged(
    units: int = UNITS, loss: Loss = LOGISTIC, weights: Weights = WEIGHTS, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> tuple[Facts, Grid]:
    """Return facts that ask for single precision, and the grid that is charged by them."""
    public = facts(units, 3, loss, weights=weights, adjacency=adjacency).model_copy(update={"part_rows": PART_ROWS})
    return public, grid_for(GRADIENT, public, units)


def terms(records: LinearProblem, theta: Tensor, clip: float) -> list[list[Fraction]]:
    """Return every record's term, made of the very floats that enter the sum, in rational arithmetic."""
    assert records._single is not None
    captured: list[np.ndarray] = []
    genuine = np.matmul

    def seen(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        if first.ndim == 3:
            captured.append(first.reshape(-1, 1) * 1.0)
            captured.append(second.reshape(-1, second.shape[-1]) * 1.0)
        return genuine(first, second)

    with patch.object(single.np, "matmul", seen):
        records._single.gradient(records.loss.score, theta, clip, 2.0**-40, None, None)
    numbers, features = captured
    assert numbers.dtype == features.dtype == np.float32
    return [
        [Fraction(float(number)) * Fraction(float(entry)) for entry in row]
        for (number,), row in zip(numbers, features, strict=True)
    ]


def hostile(loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of every size, some of them none at all, and targets far away."""
    x, y, present = rows(UNITS, 3, loss)
    x *= torch.logspace(-60, 45, UNITS, base=2.0, dtype=torch.float64).unsqueeze(-1)
    x[0], x[1], x[2, 0] = 1e300, 1e-310, torch.inf
    x[3], x[4] = 2.0**-149, torch.tensor([2.0**-126, 1.0, 2.0**-149])
    y[5], present[6] = torch.nan, False
    if isinstance(loss, Squared):
        y[7:50] *= 1e30
    return x, y, present


@pytest.mark.parametrize("weights", [WEIGHTS, Clip(bound=1.0), Schweppe(bound=1.0)], ids=lambda one: one.kind)
@pytest.mark.parametrize("loss", [*LOSSES, Squared()], ids=lambda one: one.kind)
def test_no_term_passes_its_clip_and_the_sum_errs_by_what_is_charged(loss: Loss, weights: Weights) -> None:
    if isinstance(loss, Squared) and not isinstance(weights, Clip):
        weights = Clip(bound=2.0)  # nothing else bounds its gradients
    records = LinearProblem(*hostile(loss), loss, weights)
    public, grid = charged(loss=loss, weights=weights)
    for theta in (THETA, 50 * THETA, torch.full((3,), 1e200, dtype=torch.float64)):
        found = records.integer_sum(GRADIENT, public, theta, grid.part_step)
        every = terms(records, theta, 0.7)
        largest = max(sum(entry * entry for entry in term) for term in every)
        assert largest <= Fraction(0.7 * (1 + 2.0**-23)) ** 2 < Fraction(0.7 * CHARGED_MARGIN) ** 2
        exact = [sum(column, Fraction(0)) for column in zip(*every, strict=True)]
        gaps = [
            Fraction(steps) * Fraction(grid.part_step) - one for steps, one in zip(found.tolist(), exact, strict=True)
        ]
        assert sqrt(float(sum(gap * gap for gap in gaps))) <= grid.error
    assert sum(any(term) for term in terms(records, THETA, 0.7)) > UNITS / 2, "most rows count"


def test_a_limit_that_forgets_what_rounding_adds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a norm that is a thousandth too small."""
    monkeypatch.setattr(single, "_UPWARD", 0.999)
    with pytest.raises(AssertionError):
        test_no_term_passes_its_clip_and_the_sum_errs_by_what_is_charged(Squared(), Clip(bound=2.0))


def test_sums_in_half_precision_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: products are rounded to bfloat16, as tensor cores do."""
    genuine = np.matmul

    def half(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return torch.from_numpy(genuine(first, second)).bfloat16().float().numpy()

    monkeypatch.setattr(single.np, "matmul", half)
    with pytest.raises(AssertionError):
        test_no_term_passes_its_clip_and_the_sum_errs_by_what_is_charged(Squared(), Clip(bound=2.0))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_neighbours_differ_in_one_part_and_by_no_more_than_is_charged(adjacency: Adjacency) -> None:
    """Rows in one direction at the clip, the worst there is, and a list that holds the changed one."""
    public, grid = charged(units=UNITS, loss=Squared(), weights=Clip(bound=1.0), adjacency=adjacency)
    x, y, present = rows(UNITS, 3, Squared())
    y += 100.0
    listed = torch.arange(UNITS).flip(0)[:200]
    worst = 0.0
    for unit in (332, 200, 150):
        sums, others = [], []
        other = y.clone()
        other[unit] *= -1
        valid = present.index_fill(0, torch.tensor(unit), value=False)
        changed = (x, y, valid) if adjacency is Adjacency.ZERO_OUT else (x, other, present)
        place = int((listed == unit).nonzero())
        own = listed[place // PART_ROWS * PART_ROWS :][:PART_ROWS]
        for one in ((x, y, present), changed):
            records = LinearProblem(*(tensor.clone() for tensor in one), Squared(), Clip(bound=1.0))
            whole, part = (
                records.integer_sum(GRADIENT, public, THETA, grid.part_step, rows=some) for some in (listed, own)
            )
            sums.append(whole)
            others.append(whole - part)
        assert torch.equal(*others), "all other parts are the same integers"
        worst = max(worst, float((sums[0] - sums[1]).double().norm()) / 2**grid.part_bits)
    assert 0.99 * grid.sensitivity < worst <= grid.sensitivity


def test_lists_masks_and_blocks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    public, grid = charged()
    x, y, present = rows(UNITS, 3)
    records = LinearProblem(x, y, present, LOGISTIC, WEIGHTS)
    some = torch.arange(0, UNITS, 3)
    mask = torch.zeros(UNITS, dtype=torch.bool).index_fill(0, some, value=True)
    ask = lambda **chosen: records.integer_sum(GRADIENT, public, THETA, grid.part_step, **chosen)  # noqa: E731 - short
    by_mask, by_list = ask(included=mask), ask(rows=some)
    assert (by_mask - by_list).double().norm() <= 2 * grid.error / grid.part_step
    assert torch.equal(ask(rows=torch.arange(UNITS)), ask()), "the same parts"
    left = torch.arange(len(some)) < 50
    assert (ask(rows=some, included=left) - ask(rows=some[:50])).double().norm() <= 2 * grid.error / grid.part_step
    assert torch.equal(ask(rows=some), by_list), "a shorter list leaves nothing behind"
    monkeypatch.setattr(single, "BLOCK_ROWS", 2 * PART_ROWS)
    assert torch.equal(ask(included=mask), by_mask)
    in_double = facts(UNITS, 3)
    step = grid_for(GRADIENT, in_double, UNITS).part_step
    apart = ask().double() * grid.part_step - records.integer_sum(GRADIENT, in_double, THETA, step).double() * step
    assert 0 < apart.norm() < 1e-6 * UNITS, "rounded records are nearly the records"


def test_what_is_charged_is_little_more_than_in_double() -> None:
    public, grid = charged(102_400)
    assert grid.sensitivity < (1 + 2e-4) * grid_for(GRADIENT, facts(102_400, 3), 102_400).sensitivity
    assert public.part_rows == 32


def test_what_is_not_offered_is_refused() -> None:
    public, grid = charged()
    records = LinearProblem(*rows(UNITS, 3), LOGISTIC, WEIGHTS)
    with pytest.raises(AssertionError, match="names records"):
        records.integer_sum(GRADIENT, public, THETA, grid.part_step, rows=torch.tensor([3, UNITS]))
    with pytest.raises(AssertionError, match="only gradients"):
        records.integer_sum(Curvature(of="hessian", sigma=1.0), public, THETA, grid.part_step)
    with pytest.raises(AssertionError, match="as is charged"):
        records.integer_sum(GRADIENT, public.model_copy(update={"part_rows": 64}), THETA, grid.part_step)
    with pytest.raises(AssertionError, match="ordinary"):
        records.integer_sum(Gradient(sigma=1.0, clip=SMALLEST_CLIP / 2), public, THETA, grid.part_step)
    with pytest.raises(AssertionError, match="a step"):
        records.integer_sum(GRADIENT, public, THETA, 2.0**-121)
    replicates = LinearProblem(*(one.unsqueeze(0) for one in rows(4, 3)), LOGISTIC, WEIGHTS)
    assert replicates.single_rows is None


def test_past_their_public_bound_are_a_broken_promise() -> None:
    public, grid = charged()
    records = LinearProblem(*rows(UNITS, 3), LOGISTIC, WEIGHTS)
    genuine = np.matmul
    spoilt = lambda first, second: genuine(first, second) * np.float32(2.0**60)  # noqa: E731 - short
    with patch.object(single.np, "matmul", spoilt), pytest.raises(AssertionError, match="public bound"):
        records.integer_sum(GRADIENT, public, THETA, grid.part_step)
    assert LARGEST < LARGEST_SUM
