"""Multinomial regression: the sums against autograd, exact arithmetic and the case of two classes."""

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from core.losses.categorical import Logistic, Multinomial
from core.losses.weights import Clip, Mallows
from core.queries.gradients import Curvature, Gradient, Secant
from core.queries.sums import make_problem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.multinomial import MultinomialProblem
from tests.support.situations import NEW, WEIGHTS, Situation, ask, named

CASES = [situation for situation in NEW if isinstance(situation.loss, Multinomial)]
FOUR, CLIPPED, TWO = CASES
GRADIENT, HESSIAN, SCORE = Gradient(sigma=1.0), Curvature(of="hessian", sigma=1.0), Curvature(of="score", sigma=1.0)


def losses(situation: Situation, rows: tuple[Tensor, Tensor, Tensor], theta: Tensor) -> Tensor:
    """Every record's weighted loss, by torch's own cross entropy."""
    x, y, _ = rows
    assert isinstance(situation.weights, Mallows)
    assert situation.weights.bound is not None
    margins = torch.cat((x.new_zeros(len(x), 1), x @ theta.view(-1, x.shape[1]).T), 1)
    w = (situation.weights.bound / x.norm(dim=-1)).clamp(max=1.0) ** situation.weights.power
    return w * torch.nn.functional.cross_entropy(margins, y.long(), reduction="none")


@pytest.mark.parametrize("situation", [FOUR, TWO], ids=named)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_agrees_with_autograd(situation: Situation, seed: int) -> None:
    rows, theta, other = situation.rows(200, seed), situation.point(seed), situation.point(seed + 1)
    assert len(rows[1].unique()) == (situation.dimension // situation.features) + 1
    records, public = situation.problem(rows), situation.facts(200)
    each = torch.autograd.functional.jacobian(lambda at: losses(situation, rows, at), theta)
    hessian = torch.autograd.functional.hessian(lambda at: losses(situation, rows, at).sum(), theta)
    change = losses(situation, rows, other).sum() - losses(situation, rows, theta).sum()
    close = {"rtol": 1e-8, "atol": 1e-8}
    torch.testing.assert_close(records.bounded_sum(GRADIENT, public, theta), each.sum(0), **close)
    torch.testing.assert_close(records.bounded_sum(HESSIAN, public, theta), hessian, **close)
    torch.testing.assert_close(records.bounded_sum(SCORE, public, theta), each.mT @ each, **close)
    slope = ask(records, Secant(sigma=1.0), public, theta, other)
    torch.testing.assert_close(slope, (change / (other - theta).norm()).reshape(1), **close)


def test_two_classes_are_logistic_regression() -> None:
    rows, theta, other = TWO.rows(150), TWO.point(1), TWO.point(2)
    alone = Situation("logistic", Logistic(), TWO.weights, features=TWO.features)
    pair, public = TWO.problem(rows), TWO.facts(150)
    plain = LinearProblem(*(tensor.clone() for tensor in rows), Logistic(), TWO.weights)
    assert alone.facts(150) == public
    for question in (GRADIENT, HESSIAN, SCORE, Secant(sigma=1.0)):
        found, expected = (ask(records, question, public, theta, other) for records in (pair, plain))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_clipped_gradients_are_each_cut_to_their_length() -> None:
    x, y, present = CLIPPED.rows(200)
    theta, public = CLIPPED.point(1), CLIPPED.facts(200)
    margins = torch.cat((x.new_zeros(len(x), 1), x @ theta.view(2, 3).T), 1)
    scores = torch.softmax(margins, 1)[:, 1:] - torch.nn.functional.one_hot(y.long(), 3)[:, 1:]
    each = (scores.unsqueeze(-1) * x.unsqueeze(1)).flatten(1)
    assert isinstance(CLIPPED.weights, Clip)
    cut = each * (0.8 / each.norm(dim=1, keepdim=True)).clamp(max=1.0)
    assert (each.norm(dim=1) > 0.8).sum() > 50
    records = CLIPPED.problem((x, y, present))
    torch.testing.assert_close(records.bounded_sum(GRADIENT, public, theta), cut.sum(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(records.bounded_sum(SCORE, public, theta), cut.mT @ cut, rtol=1e-9, atol=1e-9)
    with pytest.raises(AssertionError, match="bounds no curvature"):
        records.bounded_sum(HESSIAN, public, theta)


@pytest.mark.parametrize("factor", [0.1, 1.0, 30.0, 1e4])
def test_hessians_numbers_are_exactly_semidefinite(factor: float) -> None:
    """In rational arithmetic, every diagonal number is at least the sum of the sizes of what is beside it."""
    records = FOUR.problem(FOUR.rows(200))
    numbers = records._bends(1.0, records._records, FOUR.point(1) * factor)
    places = records._places()
    for row in range(200):
        found = {place: Fraction(value) for place, value in zip(places, numbers[:, row].tolist(), strict=True)}
        for own in range(3):
            beside = sum(abs(found[place]) for place in places if own in place and place[0] != place[1])
            assert found[own, own] >= beside


def test_sums_that_are_not_rounded_up_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the diagonal as rounding leaves it."""

    def plain(self: MultinomialProblem, shared: Tensor) -> tuple[Tensor, Tensor]:
        return self._member @ shared * (1 - 2.0**-52), -shared[..., self._others :, :]

    monkeypatch.setattr(MultinomialProblem, "_laplacian", plain)
    with pytest.raises(AssertionError):
        test_hessians_numbers_are_exactly_semidefinite(30.0)


@pytest.mark.parametrize("value", [4.0, -1.0, 0.5, 1e300])
def test_a_code_that_is_no_class_is_null(value: float) -> None:
    x, y, present = FOUR.rows(3)
    y[:] = value
    assert not FOUR.problem((x, y, present)).bounded_sum(GRADIENT, FOUR.facts(3), FOUR.point()).any()


def test_parameters_come_class_after_class() -> None:
    """A record of the class k pulls at the k-th run of coefficients most, and its own features are seen there."""
    x = torch.tensor([[1.0, 0.5, -0.25]], dtype=torch.float64)
    for code in (1, 2, 3):
        records = FOUR.problem((x, torch.tensor([float(code)]).double(), torch.ones(1, dtype=torch.bool)))
        found = records.bounded_sum(GRADIENT, FOUR.facts(1), torch.zeros(9, dtype=torch.float64)).view(3, 3)
        expected = torch.full((3, 1), 0.25, dtype=torch.float64)
        expected[code - 1] = -0.75
        torch.testing.assert_close(found, expected * x)


def test_is_made_for_more_classes_and_answers_no_cubic_question() -> None:
    records = make_problem(*FOUR.rows(5), FOUR.loss, WEIGHTS)
    assert isinstance(records, MultinomialProblem)
    public = FOUR.facts(5).model_copy(update={"cubic_bound": 1.0})
    with pytest.raises(AssertionError, match="how fast"):
        records.bounded_sum(Curvature(of="cubic", sigma=1.0), public, FOUR.point())
