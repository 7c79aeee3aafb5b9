"""Laws that every loss of one margin obeys: each by its example, and by its formula in `tests.support.losses`."""

from itertools import pairwise
from math import isclose, log, nextafter, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.base.errors import PrivacyInvariantError
from core.losses.bases import AbstractRobust
from core.losses.categorical import Brier, Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.phase import AbstractPhase, RobustPhase
from core.losses.records import per_record
from core.losses.registry import Loss
from core.losses.robust import Huber, LogCosh, OstrovskiiBach, PseudoHuber, SmoothedHuber
from core.losses.squares import Squared
from core.losses.weights import Mallows, Schweppe, Weights, curvature_bound, gradient_bound, gradient_diameter
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums.linear import LinearProblem
from tests.support.losses import ALL, HUBER, PAIRS, WEIGHTS, T, gradients, plain_value, public, told, weighted
from tests.support.problems import LOGISTIC, rows

every_loss = pytest.mark.parametrize("loss", ALL, ids=told)
every_pair = pytest.mark.parametrize(("loss", "weights"), PAIRS, ids=told)
THETA = torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64)
OTHER = torch.tensor([-0.4, 0.6, 0.2, 1.1], dtype=torch.float64)


def total(loss: Loss, weights: Weights, question: Question, seed: int, other: Tensor | None = None) -> Tensor:
    x, y, present = rows(300, 4, loss, seed)
    problem = LinearProblem(x, y, present, loss, weights)
    return problem.bounded_sum(question, public(300, 4, loss, weights), THETA, other=other)


class TestAgainstAutograd:
    @every_pair
    def test_gradient(self, loss: Loss, weights: Weights) -> None:
        x, y, _ = rows(300, 4, loss, seed=3)
        expected = gradients(loss, weights, THETA, x, y).sum(0)
        torch.testing.assert_close(total(loss, weights, Gradient(sigma=1), 3), expected, rtol=1e-10, atol=1e-12)

    @every_pair
    def test_hessian(self, loss: Loss, weights: Weights) -> None:
        if public(1, 4, loss, weights).curvature_bound is None:
            with pytest.raises(AssertionError, match="bounds no curvature"):
                total(loss, weights, Curvature(of="hessian", sigma=1), 4)
            return
        x, y, _ = rows(300, 4, loss, seed=4)
        expected = torch.autograd.functional.hessian(lambda at: weighted(loss, weights, at, x, y).sum(), THETA)
        found = total(loss, weights, Curvature(of="hessian", sigma=1), 4)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)
        assert torch.equal(found, found.mT)

    @every_pair
    def test_outer_product_of_the_score(self, loss: Loss, weights: Weights) -> None:
        x, y, _ = rows(300, 4, loss, seed=5)
        each = gradients(loss, weights, THETA, x, y)
        found = total(loss, weights, Curvature(of="score", sigma=1), 5)
        torch.testing.assert_close(found, each.mT @ each, rtol=1e-9, atol=1e-10)

    @every_pair
    def test_slope_between_two_points(self, loss: Loss, weights: Weights) -> None:
        x, y, _ = rows(300, 4, loss, seed=6)
        rises = weighted(loss, weights, OTHER, x, y) - weighted(loss, weights, THETA, x, y)
        bound = gradient_bound(loss, weights)
        expected = (rises / (OTHER - THETA).norm()).clamp(-bound, bound).sum(0, keepdim=True)
        found = total(loss, weights, Secant(sigma=1), 6, OTHER)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)

    @every_loss
    def test_value(self, loss: Loss) -> None:
        x, y, _ = rows(50, 4, loss, seed=7)
        torch.testing.assert_close(
            per_record(loss).value(x @ THETA, y), plain_value(loss, x @ THETA, y), rtol=1e-10, atol=1e-12
        )

    def test_cubic(self) -> None:
        x, _, _ = rows(300, 4, seed=8)
        norm = x.norm(dim=-1)
        weights = Mallows(bound=1.3, power=3)
        expected = (x * ((1.3 / norm).clamp(max=1) ** 3 * norm).unsqueeze(-1)).mT @ x
        torch.testing.assert_close(
            total(LOGISTIC, weights, Curvature(of="cubic", sigma=1), 8), expected, rtol=1e-10, atol=1e-12
        )


def test_the_printed_loss_of_ostrovskii_and_bach_is_this_one_away_from_zero() -> None:
    loss, r = OstrovskiiBach(scale=1.0), torch.linspace(0.5, 30, 60, dtype=torch.float64)
    u = r / loss.c
    s = torch.sqrt(1 + 4 * u**2)
    printed = loss.c**2 / 2 * (s - 1 + torch.log((s - 1) / (2 * u**2)))
    torch.testing.assert_close(per_record(loss).value(r, torch.zeros_like(r)), printed, rtol=1e-12, atol=1e-12)
    assert per_record(loss).value(r[:1] * 0, r[:1] * 0).item() == 0


class TestClosedForms:
    def test_of_the_constants(self) -> None:
        huber = Huber(scale=1.0)
        assert isclose(huber.kappa, 0.7101645, abs_tol=1e-7)
        assert isclose(gradient_bound(huber, WEIGHTS), 1.9021172, abs_tol=1e-7)
        assert isclose(2 * gradient_bound(huber, WEIGHTS), 3.8042345, abs_tol=1e-7)
        assert isclose(curvature_bound(Huber(scale=2.0), WEIGHTS), 1.0, abs_tol=1e-12)
        assert isclose(gradient_bound(LOGISTIC, WEIGHTS), T, abs_tol=1e-12)
        assert isclose(curvature_bound(LOGISTIC, WEIGHTS), 0.5, abs_tol=1e-12)
        assert isclose(curvature_bound(LOGISTIC, Mallows(bound=5.0)), 6.25, abs_tol=1e-12)

    def test_of_an_unknown_scale(self) -> None:
        joint = Huber(scale=1.0, joint=True)
        assert isclose(gradient_diameter(joint, WEIGHTS), 3.9102868, abs_tol=1e-7)
        assert isclose(curvature_bound(joint, WEIGHTS), 3.809025, abs_tol=1e-12)
        narrow = Huber(scale=1.0, c=0.1, joint=True)  # where the entry for the scale moves by more than c^2 - kappa
        width = sqrt(gradient_diameter(narrow, WEIGHTS) ** 2 - (2 * T * 0.1) ** 2)
        assert isclose(width, 0.1**2 / 2, rel_tol=1e-9)

    def test_of_every_loss_with_schweppe_weights(self) -> None:
        for loss in (LogCosh(scale=2.0), PseudoHuber(scale=2.0), OstrovskiiBach(scale=2.0)):
            assert gradient_bound(loss, Schweppe(bound=1.5)) == 1.345 * 1.5
            assert curvature_bound(loss, Schweppe(bound=1.5)) == 1.5**2 / 2
        smooth = SmoothedHuber(scale=1.0)
        assert gradient_bound(smooth, WEIGHTS) == T * 1.595
        assert curvature_bound(smooth, WEIGHTS) == pytest.approx(2.0, rel=1e-15)

    def test_of_many_classes(self) -> None:
        assert gradient_bound(Multinomial(classes=2), WEIGHTS) == gradient_bound(LOGISTIC, WEIGHTS)
        assert curvature_bound(Multinomial(classes=2), WEIGHTS) == curvature_bound(LOGISTIC, WEIGHTS)
        assert gradient_bound(Multinomial(classes=5), WEIGHTS) == pytest.approx(2.0)
        assert curvature_bound(Multinomial(classes=5), WEIGHTS) == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("loss", "value", "slope"),
        [
            (Huber(scale=1.0), 1.78549, 1.345),
            (SmoothedHuber(scale=1.0), 1.91174, 1.595),
            (LogCosh(scale=1.0), 1.52624, 1.21422),
            (OstrovskiiBach(scale=1.0), 1.27593, 0.96674),
        ],
        ids=told,
    )
    def test_of_the_losses_that_the_paper_draws(self, loss: Loss, value: float, slope: float) -> None:
        two, zero = torch.tensor([2.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        assert isclose(per_record(loss).value(two, zero).item(), value, abs_tol=6e-6)
        assert isclose(per_record(loss).score(two, zero).item(), slope, abs_tol=6e-6)


@every_loss
@given(margin=st.floats(-1e308, 1e308), label=st.booleans(), level=st.floats(-1e308, 1e308))
@settings(max_examples=150, deadline=None)
def test_derivatives_stay_within_their_public_bounds(loss: Loss, margin: float, label: bool, level: float) -> None:
    if isinstance(loss, Logistic | Brier):
        level = float(label)
    elif isinstance(loss, Poisson | AbstractPhase):
        level = abs(level)
    target = torch.tensor([level], dtype=torch.float64)
    code = per_record(loss)
    assert code.valid(target).item()
    for where in (margin, margin / 1e308 * 30, level):
        at = torch.tensor([where], dtype=torch.float64)
        assert loss.score_bound is None or abs(code.score(at, target).item()) <= loss.score_bound
        bent = code.curvature(at, target).item()
        assert loss.weak_convexity is None or bent >= -loss.weak_convexity * (1 + 1e-15)
        assert loss.curvature_peak is None or bent <= loss.curvature_peak * (1 + 1e-15)  # the lattice pays
        assert not code.value(at, target).isnan().item()


@every_loss
def test_every_derivative_is_that_of_the_one_above(loss: Loss) -> None:
    """Integrals between the kinks; with this, what does not jump at a kink is continuous there."""
    nodes, masses = (torch.from_numpy(one) for one in np.polynomial.legendre.leggauss(40))
    code, y = per_record(loss), 1.0 if isinstance(loss, Logistic | Brier) else 2.0
    target = torch.tensor([y], dtype=torch.float64)
    edges = sorted({*np.linspace(-8.0, 8.0, 81), *kinks(loss, y)})
    for low, high in pairwise(edges):
        at = (low + high) / 2 + (high - low) / 2 * nodes
        ends = torch.tensor([nextafter(low, high), nextafter(high, low)], dtype=torch.float64)
        for above, below in ((code.value, code.score), (code.score, code.curvature)):
            grown = above(ends, target).diff().item()
            assert (below(at, target) * masses).sum().item() * (high - low) / 2 == pytest.approx(grown, abs=1e-10)


@pytest.mark.parametrize("loss", [loss for loss in ALL if isinstance(loss, AbstractRobust)], ids=told)
def test_the_forecasts_score_is_that_of_records(loss: AbstractRobust) -> None:
    residuals = torch.linspace(-9, 9, 181, dtype=torch.float64)
    scores = per_record(loss).score(-loss.known_scale * residuals, torch.zeros(()).double())
    np.testing.assert_allclose(loss.psi(residuals.numpy()), -scores, rtol=1e-12, atol=1e-14)


def kinks(loss: Loss, y: float) -> list[float]:
    """Margins where the second derivative of a loss or the next one jumps."""
    if isinstance(loss, Huber | SmoothedHuber):
        ends = [loss.c] if isinstance(loss, Huber) else [loss.c, loss.c + loss.h]
        return [y + sign * loss.scale * end for sign in (1, -1) for end in ends]
    if isinstance(loss, Poisson):
        cuts = [] if loss.c is None else [log(y + loss.c), log(y - loss.c)]
        return [log(loss.cap), *cuts]
    if isinstance(loss, RobustPhase):
        return [sqrt(y), -sqrt(y)]
    return []


def test_the_smoothed_corner_joins_smoothly() -> None:
    loss = SmoothedHuber(scale=1.0)
    code, zero, step = per_record(loss), torch.zeros(1, dtype=torch.float64), 1e-5
    for joint, third in ((loss.c, 0.0), (loss.c + loss.h, 0.0)):
        before, after = nextafter(joint, 0), nextafter(joint, 9)
        sides = torch.tensor([before, after], dtype=torch.float64)
        assert abs(code.score(sides, zero).diff().item()) <= 1e-10
        assert abs(code.curvature(sides, zero).diff().item()) <= 1e-10
        for side in (-step, step):
            near = torch.tensor([joint, joint + side], dtype=torch.float64)
            assert code.curvature(near, zero).diff().item() / side == pytest.approx(third, abs=1e-3)


class TestSelfConcordance:
    """|f'''| <= gamma f'' with the least gamma, on a dense grid."""

    AT = torch.linspace(-60, 60, 1_200_001, dtype=torch.float64)
    STEP = 1e-5

    def ratio(self, loss: Loss, power: float = 1.0) -> Tensor:
        code, zero = per_record(loss), torch.zeros(1, dtype=torch.float64)
        third = (code.curvature(self.AT + self.STEP, zero) - code.curvature(self.AT - self.STEP, zero)) / (
            2 * self.STEP
        )
        return third.abs() / code.curvature(self.AT, zero) ** power

    @pytest.mark.parametrize(
        ("loss", "constant"),
        [
            (Logistic(), 1.0),
            (LogCosh(scale=1.0), 2 / 1.345),
            (PseudoHuber(scale=1.0), 1.5 / 1.345),
            (OstrovskiiBach(scale=1.0), 1.5908 / 1.345),
            (LogCosh(scale=2.5, c=0.9), 2 / (0.9 * 2.5)),
            (PseudoHuber(scale=2.5, c=0.9), 1.5 / (0.9 * 2.5)),
            (OstrovskiiBach(scale=2.5, c=0.9), 1.5908 / (0.9 * 2.5)),
        ],
        ids=told,
    )
    def test_the_constants_are_the_least(self, loss: Loss, constant: float) -> None:
        assert loss.concordance == pytest.approx(constant, rel=1e-12)
        assert self.ratio(loss).max().item() == pytest.approx(constant, rel=1e-3)

    def test_the_printed_one_of_ostrovskii_and_bach_is_too_small(self) -> None:
        assert self.ratio(OstrovskiiBach(scale=1.0), 1.5).max().item() == pytest.approx(2 * T / 1.345, rel=1e-2)

    def test_the_smoothed_corner_has_none(self) -> None:
        loss = SmoothedHuber(scale=1.0)
        assert loss.concordance is None
        assert self.ratio(loss).nan_to_num(0, posinf=0).max() > 1e3
        assert per_record(loss).curvature(torch.tensor([1e9]), torch.zeros(1)).item() == 0

    def test_the_smoothed_corner_bends_at_most_that_fast(self) -> None:
        loss = SmoothedHuber(scale=2.5, c=0.9, h=0.4)
        assert self.ratio(loss, 0.0).max().item() == pytest.approx(loss.lipschitz, rel=1e-3)

    def test_losses_with_kinks_have_none(self) -> None:
        assert [loss.concordance for loss in (HUBER, Poisson(cap=2.0), Squared())] == [None, None, None]


def test_an_open_figure_is_refused() -> None:
    for loss, figure in ((Huber(), "scale"), (Poisson(), "cap")):
        with pytest.raises(PrivacyInvariantError, match=f"{figure} is open"):
            per_record(loss)


def test_losses_of_several_margins_or_an_unknown_scale_have_problems_of_their_own() -> None:
    for loss in (Multinomial(classes=3), Huber(scale=1.0, joint=True)):
        with pytest.raises(PrivacyInvariantError, match="problems of their own"):
            per_record(loss)
