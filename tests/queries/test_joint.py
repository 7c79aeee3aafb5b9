"""Huber regression with its scale: the sums against autograd, exact arithmetic and closed forms."""

from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
import torch
from torch import Tensor

from core.losses.robust import Huber
from core.losses.weights import Mallows, gradient_bound, gradient_diameter
from core.oracle.noise import grid_for
from core.privacy.facts import Adjacency
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums import make_problem
from core.queries.sums.joint import JointProblem
from core.queries.sums.linear import LinearProblem
from tests.support.situations import JOINT, NEW, WEIGHTS, Situation, ask, named

CASES = [situation for situation in NEW if isinstance(situation.loss, Huber)]
every = pytest.mark.parametrize("situation", CASES, ids=named)
GRADIENT, HESSIAN, SCORE = Gradient(sigma=1.0), Curvature(of="hessian", sigma=1.0), Curvature(of="score", sigma=1.0)


def losses(situation: Situation, rows: tuple[Tensor, Tensor, Tensor], theta: Tensor) -> Tensor:
    """Every record's weighted loss, as printed; kappa by quadrature."""
    loss, weights = situation.loss, situation.weights
    assert isinstance(loss, Huber)
    assert isinstance(weights, Mallows)
    assert weights.bound is not None
    x, y, _ = rows
    grid = torch.linspace(-12, 12, 240_001, dtype=torch.float64)
    density = torch.exp(-(grid**2) / 2) / (2 * torch.pi) ** 0.5
    kappa = torch.trapezoid(grid.clamp(-loss.c, loss.c) ** 2 * density, grid)
    w = (weights.bound / x.norm(dim=-1)).clamp(max=1.0) ** weights.power
    r = (y - x @ theta[:-1]) / theta[-1]
    rho = torch.where(r.abs() <= loss.c, r * r / 2, loss.c * r.abs() - loss.c**2 / 2)
    return w * (theta[-1] * rho + kappa * theta[-1] / 2)


@every
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_agrees_with_autograd_the_scales_row_included(situation: Situation, seed: int) -> None:
    rows, theta = situation.rows(200, seed), situation.point(seed)
    assert theta[-1] != 1
    records, public = situation.problem(rows), situation.facts(200)
    each = torch.autograd.functional.jacobian(lambda at: losses(situation, rows, at), theta)
    hessian = torch.autograd.functional.hessian(lambda at: losses(situation, rows, at).sum(), theta)
    close = {"rtol": 1e-8, "atol": 1e-8}
    torch.testing.assert_close(records.bounded_sum(GRADIENT, public, theta), each.sum(0), **close)
    torch.testing.assert_close(records.bounded_sum(HESSIAN, public, theta), theta[-1] * hessian, **close)
    torch.testing.assert_close(records.bounded_sum(SCORE, public, theta), each.mT @ each, **close)
    assert hessian[-1].abs().min() > 1e-3


@every
def test_slopes_are_those_of_the_loss(situation: Situation) -> None:
    rows, theta, other = situation.rows(200), situation.point(1), situation.point(2)
    records, public, question = situation.problem(rows), situation.facts(200), Secant(sigma=1.0)
    change = losses(situation, rows, other).sum() - losses(situation, rows, theta).sum()
    found = ask(records, question, public, theta, other)
    torch.testing.assert_close(found, (change / (other - theta).norm()).reshape(1), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(ask(records, question, public, other, theta), -found, rtol=1e-12, atol=1e-12)
    assert not ask(records, question, public, theta, theta).any()


def test_coefficients_are_those_of_a_known_scale() -> None:
    """At sigma = s, the coefficients' part is what the known scale s gives; Hessians times s."""
    situation = CASES[0]
    rows, theta = situation.rows(150), situation.point(1)
    scale = float(theta[-1])
    known = LinearProblem(*(tensor.clone() for tensor in rows), Huber(scale=scale), WEIGHTS)
    alone = Situation("known", Huber(scale=scale), WEIGHTS).facts(150)
    joint, public = situation.problem(rows), situation.facts(150)
    close = {"rtol": 1e-12, "atol": 1e-12}
    gradient = joint.bounded_sum(GRADIENT, public, theta)[:-1]
    torch.testing.assert_close(gradient, known.bounded_sum(GRADIENT, alone, theta[:-1]), **close)
    hessian = joint.bounded_sum(HESSIAN, public, theta)[:-1, :-1]
    torch.testing.assert_close(hessian, scale * known.bounded_sum(HESSIAN, alone, theta[:-1]), **close)


@pytest.mark.parametrize("question", [GRADIENT, HESSIAN, SCORE, Secant(sigma=1.0)], ids=str)
@pytest.mark.parametrize("scale", [0.0, -0.0, -1.7, nan, inf, -inf])
def test_a_scale_that_is_not_positive_and_finite_answers_zero(question: Question, scale: float) -> None:
    situation = CASES[0]
    records, public, theta = situation.problem(situation.rows(50)), situation.facts(50), situation.point(1)
    other = situation.point(2)
    theta[-1] = scale
    assert not ask(records, question, public, theta, other).any()
    if question.places == "pair":
        assert not ask(records, question, public, other, theta).any()


def test_terms_are_exactly_rank_one_and_err_by_what_is_charged() -> None:
    """Sums of g u u^T, u = (x, r), in rational arithmetic: the integers err by less than the grid's."""
    situation = CASES[0]
    records, public, theta = situation.problem(situation.rows(200)), situation.facts(200), situation.point(1)
    residual, usable = records._residual(records._records, theta)
    inside = (usable & (residual.abs() < JOINT.c)).tolist()
    total = np.full((4, 4), Fraction(0), dtype=object)
    for x, r, w, counts in zip(
        records._records.features.tolist(), residual.tolist(), records._records.weights.tolist(), inside, strict=True
    ):
        u = np.array([Fraction(value) for value in (*x, r)], dtype=object)
        total = total + (Fraction(w) * np.outer(u, u) if counts else 0)
    grid = grid_for(HESSIAN, public, 200)
    found = records.integer_sum(HESSIAN, public, theta, grid.part_step)
    gaps = np.array([int(value) * Fraction(grid.part_step) for value in found.flatten()]).reshape(4, 4) - total
    assert 0 < float(sum(gap * gap for gap in gaps[np.triu_indices(4)])) ** 0.5 <= grid.error


def test_gradients_lie_in_the_printed_box() -> None:
    """Along x at most t c; along the scale between (kappa - c^2)/2 and kappa/2, a width of c^2/2 for every c."""
    for c in (0.3, 0.6, 1.345, 4.0):
        loss = JOINT.model_copy(update={"c": c})
        situation = Situation("joint", loss, WEIGHTS)
        draws = torch.Generator().manual_seed(3)
        x = torch.randn(500, 3, generator=draws, dtype=torch.float64) * 10
        x[::2] *= 1e-3
        y = torch.randn(500, generator=draws, dtype=torch.float64) * 100
        y[:50] = 0.0
        records = situation.problem((x, y, torch.ones(500, dtype=torch.bool)))
        theta = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
        along, scale = records._gradient(inf, records._records, theta)
        assert (along.abs() * records._records.norms).max() <= 2**0.5 * c * (1 + 1e-12)
        assert scale.min() >= (loss.kappa - c * c) / 2 * (1 + 1e-12)
        assert scale.max() <= loss.kappa / 2 * (1 + 1e-12)
        assert scale.max() - scale.min() >= 0.95 * c * c / 2


def test_constants_are_the_printed_ones() -> None:
    assert JOINT.kappa == pytest.approx(0.7101645, abs=5e-8)
    assert gradient_diameter(JOINT, WEIGHTS) == pytest.approx(3.9102868, abs=5e-8)
    public = CASES[0].facts(1000, Adjacency.REPLACE_ONE)
    assert GRADIENT.sensitivity(public) == pytest.approx(3.9102868e-3, abs=5e-11)
    assert public.curvature_bound == pytest.approx(2 + 1.345**2)
    assert public.gradient_bound == gradient_bound(JOINT, WEIGHTS)


def test_rows_without_features_still_tell_of_the_scale() -> None:
    """Without an intercept x may be zero: nothing along x, an ordinary entry for the scale, and no excluded row."""
    x = torch.zeros(2, 3, dtype=torch.float64)
    records = CASES[0].problem((x, torch.tensor([0.0, 5.0], dtype=torch.float64), torch.tensor([True, False])))
    theta = torch.tensor([1.0, 1.0, 1.0, 2.0], dtype=torch.float64)
    found = records.bounded_sum(GRADIENT, CASES[0].facts(2), theta)
    assert found.tolist() == [0.0, 0.0, 0.0, JOINT.kappa / 2]


def test_is_made_where_a_scale_is_unknown() -> None:
    x, y, present = CASES[0].rows(5)
    assert isinstance(make_problem(x, y, present, JOINT, WEIGHTS), JointProblem)
    with pytest.raises(AssertionError, match="known scale"):
        JointProblem(x, y, present, Huber(scale=1.0), WEIGHTS)
    with pytest.raises(AssertionError, match="how fast"):
        CASES[1].problem(CASES[1].rows(5)).bounded_sum(
            Curvature(of="cubic", sigma=1.0), CASES[1].facts(5), CASES[1].point()
        )
