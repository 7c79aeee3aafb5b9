"""Closed-form sums: their error, their clipping, null records, lanes, and that no row touches another."""

from fractions import Fraction
from math import inf, nan, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from core.catalogue.losses import Loss
from core.catalogue.questions import Curvature, Gradient, Question
from core.mechanisms import lattice
from core.oracle.noise import grid_for
from core.privacy.facts import Facts
from core.problems import blocks
from core.problems.blocks import Factors, Point
from core.problems.linear import LinearProblem
from tests.support.problems import LOSSES, WEIGHTS, facts, problem, rows

QUESTIONS = [
    Gradient(sigma=1.0),
    Gradient(sigma=1.0, clip=0.5),
    Curvature(of="hessian", sigma=1.0),
    Curvature(of="score", sigma=1.0),
]
each = pytest.mark.parametrize("question", QUESTIONS, ids=str)
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
THETA = torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)


def numbers(records: LinearProblem, question: Question, public: Facts, theta: Tensor) -> Tensor:
    """What each record's x or x x^T is multiplied by, shape (n,)."""
    factors = records._factors(question, public, records._records, Point(theta))
    (found,) = [kind[0] for kind in factors if kind is not None]
    return found


def exact_sum(records: LinearProblem, question: Question, loss: Loss, theta: Tensor) -> np.ndarray:
    """The sum of the very floats g_i and x_i in rational arithmetic, each g_i from a pass over row i alone."""
    n, p = records.units, records.dimension
    total = np.full((p,) if isinstance(question, Gradient) else (p, p), Fraction(0), dtype=object)
    public = facts(n, p, loss)
    factors = numbers(records, question, public, theta)
    for x, g in zip(records._records.features.tolist(), factors.tolist(), strict=True):
        row = np.array([Fraction(value) for value in x], dtype=object)
        total = total + Fraction(g) * (row if isinstance(question, Gradient) else np.outer(row, row))
    return total


@each
@every_loss
@pytest.mark.parametrize("block", [64, 300, blocks.BLOCK_NUMBERS])
def test_error_stays_within_what_the_lattice_charges(
    question: Question, loss: Loss, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", block)
    records = problem(700, 3, loss, seed=2)
    found = records.bounded_sum(question, facts(700, 3, loss), THETA)
    exact = exact_sum(records, question, loss, THETA)
    gaps = np.array([Fraction(value) for value in found.flatten().tolist()], dtype=object) - exact.ravel()
    upper = gaps if exact.ndim == 1 else gaps.reshape(3, 3)[np.triu_indices(3)]
    error = sqrt(float(sum(gap * gap for gap in upper)))
    assert error <= grid_for(question, facts(700, 3, loss), 700).error


@each
def test_float32_sums_would_be_seen(question: Question) -> None:
    """Planted bug: accumulation in single precision passes the charged error."""
    records = problem(700, 3, seed=2)
    exact = records.bounded_sum(question, facts(700, 3), THETA)
    factors = numbers(records, question, facts(700, 3), THETA).float()
    x = records._records.features.float()
    single = x.T @ factors if isinstance(question, Gradient) else x.T @ (x * factors.unsqueeze(-1))
    assert (single.double() - exact).norm() > 100 * grid_for(question, facts(700, 3), 700).error


@each
@every_loss
@pytest.mark.parametrize("part", [2, 64, 512])
def test_the_integers_err_by_what_the_lattice_charges(
    question: Question, loss: Loss, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "PART_UNITS", part)
    monkeypatch.setattr(lattice, "PART_UNITS", part)
    monkeypatch.setattr(lattice, "parts_in", lambda units: -(-units // part))
    records, public = problem(700, 3, loss, seed=2), facts(700, 3, loss)
    grid = grid_for(question, public, 700)
    found = records.integer_sum(question, public, THETA, grid.part_step)
    exact = exact_sum(records, question, loss, THETA)
    steps = np.array([int(value) for value in found.flatten().tolist()], dtype=object) * Fraction(grid.part_step)
    gaps = (steps - exact.ravel()).reshape(exact.shape)
    error = sqrt(float(sum(gap * gap for gap in (gaps if exact.ndim == 1 else gaps[np.triu_indices(3)]))))
    assert error <= grid.error
    assert error > 0


@pytest.mark.parametrize("spoilt", [nan, inf, 1e300])
def test_a_part_past_its_public_bound_is_a_broken_promise(spoilt: float, monkeypatch: pytest.MonkeyPatch) -> None:
    records, public = problem(700, 3), facts(700, 3)
    spoiling = Factors(linear=torch.full((1, 700), spoilt, dtype=torch.float64))
    monkeypatch.setattr(records, "_factors", lambda *_: spoiling)
    with pytest.raises(AssertionError, match="public bound"):
        records.integer_sum(QUESTIONS[0], public, THETA, grid_for(QUESTIONS[0], public, 700).part_step)


@each
@every_loss
def test_order_and_blocks_change_nothing_beyond_the_error(question: Question, loss: Loss) -> None:
    x, y, present = rows(5000, 3, loss, seed=8)
    public = facts(5000, 3, loss)
    straight = LinearProblem(x.clone(), y, present, loss, WEIGHTS).bounded_sum(question, public, THETA)
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(1))
    mixed = LinearProblem(x[order].contiguous(), y[order], present, loss, WEIGHTS)
    error = grid_for(question, public, 5000).error
    assert (mixed.bounded_sum(question, public, THETA) - straight).norm() <= 3 * error
    step = grid_for(question, public, 5000).part_step
    by_rows = mixed.integer_sum(question, public, THETA, step, rows=torch.arange(5000))
    assert torch.equal(by_rows, mixed.integer_sum(question, public, THETA, step))


@each
@every_loss
def test_the_same_question_gives_the_same_bits(question: Question, loss: Loss) -> None:
    first, second = (problem(4000, 3, loss).bounded_sum(question, facts(4000, 3, loss), THETA) for _ in range(2))
    assert torch.equal(first, second)


@each
@every_loss
def test_every_row_is_clipped(question: Question, loss: Loss) -> None:
    """Norms from 1e-100 to 1e100, tiny clips included; computed norms stay within a few roundings of the bound."""
    draws = torch.Generator().manual_seed(5)
    x = torch.randn(400, 3, generator=draws, dtype=torch.float64)
    x *= (10.0 ** torch.linspace(-100, 100, 400, dtype=torch.float64)).unsqueeze(-1)
    y = rows(400, 3, loss)[1] * (1 if loss.kind == "logistic" else 1e90)
    present = torch.ones(400, dtype=torch.bool)
    public = facts(400, 3, loss)
    tight = public.model_copy(update={"gradient_bound": 0.01, "curvature_bound": 0.001})
    records = LinearProblem(x, y, present, loss, WEIGHTS)
    for bounds in (public, tight):
        for row in range(400):
            step = grid_for(question, bounds, 1).part_step
            total = records.integer_sum(question, bounds, THETA, step, rows=torch.tensor([row])).double() * step
            assert total.norm() <= question.bound(bounds) * (1 + 1e-9)


@each
@every_loss
def test_what_cannot_count_is_exactly_zero(question: Question, loss: Loss) -> None:
    x, y, present = rows(12, 3, loss)
    public = facts(12, 3, loss)
    clean = LinearProblem(x.clone(), y.clone(), present.clone(), loss, WEIGHTS)
    step = grid_for(question, public, 12).part_step
    expected = clean.integer_sum(question, public, THETA, step, included=torch.arange(12) >= 7)
    x[0, 1], x[1, 2], x[2, 0], x[3] = nan, inf, -inf, 1e200
    y[4], y[5] = nan, inf
    present[6] = False
    spoilt = LinearProblem(x, y, present, loss, WEIGHTS)
    assert torch.equal(spoilt.integer_sum(question, public, THETA, step), expected)
    alone = [spoilt.integer_sum(question, public, THETA, step, rows=torch.tensor([row])) for row in range(7)]
    assert not any(total.any() for total in alone)


@each
@every_loss
@pytest.mark.parametrize("theta", [nan, inf, 1e308])
def test_any_theta_gives_a_bounded_sum(question: Question, loss: Loss, theta: float) -> None:
    total = problem(50, 3, loss).bounded_sum(question, facts(50, 3, loss), torch.full((3,), theta, dtype=torch.float64))
    assert total.isfinite().all()
    assert total.norm() <= 50 * question.bound(facts(50, 3, loss))


def test_a_label_outside_zero_and_one_is_null() -> None:
    x, y, present = rows(3, 3)
    y[:] = torch.tensor([0.5, 7.0, -1.0])
    assert not LinearProblem(x, y, present, LOSSES[0], WEIGHTS).bounded_sum(QUESTIONS[0], facts(3, 3), THETA).any()


@each
@every_loss
def test_a_row_touches_no_other(question: Question, loss: Loss) -> None:
    """Bit for bit: what each other row adds is the same whatever stands in row 17."""
    public = facts(60, 3, loss)
    kept = [index for index in range(60) if index != 17]

    def others(change: float) -> list[Tensor]:
        x, y, present = rows(60, 3, loss)
        x[17] = change
        records = LinearProblem(x, y, present, loss, WEIGHTS)
        factors = numbers(records, question, public, THETA)
        return [records._records.features[kept], factors[kept], records._records.norms[kept]]

    expected = others(0.1)
    for change in (0.0, 1e9, nan):
        assert all(torch.equal(one, two) for one, two in zip(others(change), expected, strict=True))


@each
@every_loss
def test_a_mask_counts_what_the_rows_count(question: Question, loss: Loss) -> None:
    records, public = problem(300, 3, loss), facts(300, 3, loss)
    mask = torch.arange(300) % 3 == 0
    step = grid_for(question, public, 300).part_step
    masked = records.integer_sum(question, public, THETA, step, included=mask).double() * step
    chosen = records.integer_sum(question, public, THETA, step, rows=mask.nonzero().squeeze(1)).double() * step
    torch.testing.assert_close(masked, chosen, rtol=1e-10, atol=1e-10)


@each
@every_loss
def test_lanes_equal_single_problems(question: Question, loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 700)
    several = [rows(100, 3, loss, seed) for seed in range(5)]
    x, y, present = (torch.stack(parts) for parts in zip(*several, strict=True))
    thetas = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    public = facts(100, 3, loss)
    together = LinearProblem(x, y, present, loss, WEIGHTS)
    assert together.lanes == 5
    singles = [LinearProblem(*parts, loss, WEIGHTS) for parts in several]
    expected = [one.bounded_sum(question, public, at) for one, at in zip(singles, thetas, strict=True)]
    torch.testing.assert_close(
        together.bounded_sum(question, public, thetas), torch.stack(expected), rtol=1e-12, atol=1e-12
    )
    shared = [singles[0].bounded_sum(question, public, at) for at in thetas]
    torch.testing.assert_close(
        singles[0].bounded_sum(question, public, thetas), torch.stack(shared), rtol=1e-12, atol=1e-12
    )


def test_no_second_copy_of_the_features() -> None:
    x, y, present = rows(100, 3)
    assert LinearProblem(x, y, present, LOSSES[0], WEIGHTS)._records.features.data_ptr() == x.data_ptr()
