"""Weights bound what they are for, and no adversary moves an answer further than claimed, whatever loss and weights."""

from math import log, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.losses.categorical import Brier, Logistic
from core.losses.counts import Poisson
from core.losses.phase import AbstractPhase
from core.losses.records import record_weights
from core.losses.registry import Loss
from core.losses.robust import Cauchy, GemanMcClure
from core.losses.weights import Clip, Mallows, Schweppe, Weights, cubic_bound, curvature_bound, gradient_bound
from core.privacy.facts import Adjacency
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums.linear import LinearProblem
from tests.support.losses import HUBER, PAIRS, WEIGHED, T, public, suitable, told
from tests.support.problems import LOGISTIC

every_pair = pytest.mark.parametrize(("loss", "weights"), PAIRS, ids=told)


TILT = 1e-3
"""Of rows next to an axis: at a point far out on another one their margins are what is wanted of them."""


def check_mallows(norm: float, t: float) -> None:
    at = torch.tensor([norm], dtype=torch.float64)
    for power in (1, 2, 3):
        weights = Mallows(bound=t, power=power)
        weight = record_weights(at, weights)
        assert 0 <= weight.item() <= 1
        assert (weight * at).item() <= t * (1 + 1e-12)
        if curvature_bound(LOGISTIC, weights) is not None:
            assert (weight * at).item() * norm <= t**2 * (1 + 1e-12)
        if norm <= t:
            assert weight.item() == 1.0


def steepest(loss: Loss) -> float:
    """Return the distance from the target at which the score of a loss that redescends is largest; 1 for others."""
    if isinstance(loss, GemanMcClure):
        return loss.scale * loss.c / sqrt(3)
    return loss.scale * loss.c if isinstance(loss, Cauchy) else 1.0


class TestWeights:
    @given(exponent=st.floats(-300, 120), t=st.floats(1e-3, 1e3))
    @settings(max_examples=300, deadline=None)
    def test_mallows_weights_bound_every_norm(self, exponent: float, t: float) -> None:
        check_mallows(10.0**exponent, t)

    @given(exponent=st.floats(-200, 120), bound=st.floats(1e-3, 1e3))
    @settings(max_examples=200, deadline=None)
    def test_schweppe_weights_bound_what_enters_the_loss(self, exponent: float, bound: float) -> None:
        x = torch.tensor([[0.6, -0.8, 0.1]], dtype=torch.float64) * 10.0**exponent
        before, target = x.clone(), torch.ones(1, dtype=torch.float64)
        problem = LinearProblem(x, target, torch.ones(1, dtype=torch.bool), HUBER, Schweppe(bound=bound))
        kept = problem._records.each(lambda one: one.cpu())
        scaled = (kept.features / kept.features.abs().max()).norm() * kept.features.abs().max()
        assert scaled.item() <= bound * (1 + 1e-12)
        assert scaled.item() <= kept.norms.item() <= min(bound, before.abs().max().item() * 2) * (1 + 1e-12)
        torch.testing.assert_close(kept.features * before[0, 0], before * kept.features[0, 0], rtol=1e-12, atol=0)
        assert kept.target.item() == pytest.approx((kept.features[0, 0] / before[0, 0]).item(), rel=1e-12)

    def test_linear_mallows_weights_bound_no_curvature(self) -> None:
        """W1 = min(1, t/|x|) in place of W2."""
        norm = torch.tensor([1e6], dtype=torch.float64)
        linear = record_weights(norm, Mallows(bound=T, power=1))
        assert (linear * norm).item() <= T * (1 + 1e-12)
        assert (linear * norm * norm).item() > 1000 * T**2
        for loss in WEIGHED:
            assert curvature_bound(loss, Mallows(bound=T, power=1)) is None
            assert curvature_bound(loss, Clip(bound=T)) is None

    def test_only_cubic_weights_bound_third_powers(self) -> None:
        norm = torch.tensor([0.5, 1.3, 7.0, 1e30], dtype=torch.float64)
        for weights in suitable(HUBER):
            bound = cubic_bound(weights)
            assert (bound is None) == (weights != Mallows(bound=1.3, power=3))
            if bound is not None:
                assert (record_weights(norm, weights) * norm**3).max().item() == pytest.approx(bound, rel=1e-12)


class TestSensitivity:
    """An adversary's best pair of records, with everything else their choice, against what is claimed.

    Rows lie on the axes and next to them, in both directions, small, as long as the weights allow, and huge. Targets
    lie on the margin, on the kinks and far off. Points lie at zero, far off, and where curvatures peak. All pairs are
    compared.
    """

    AXES = torch.eye(3, dtype=torch.float64)

    def directions(self) -> Tensor:
        tilted = [self.AXES[place] + sign * TILT * self.AXES[0] for place in (1, 2) for sign in (1, -1)]
        spread = torch.randn(12, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        return torch.stack([*self.AXES, *-self.AXES, *tilted, *spread])

    def records(self, loss: Loss, bound: float, theta: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat([self.directions() * scale for scale in (0.1, bound, 1e3, 1e9)])
        margin = x @ theta
        if isinstance(loss, Logistic | Brier):
            targets = [torch.zeros_like(margin), torch.ones_like(margin)]
        elif isinstance(loss, Poisson):
            targets = [torch.full_like(margin, count) for count in (0.0, 1.0, loss.cap, 1e9)]
        elif isinstance(loss, AbstractPhase):
            targets = [torch.full_like(margin, target) for target in (0.0, loss.cap, 1e9)]
        else:
            steep = steepest(loss)
            targets = [margin + offset for offset in (0.0, steep, -steep, 1e15, -1e15)]
        return x.repeat(len(targets), 1), torch.cat(targets)

    def points(self, loss: Loss, bound: float) -> list[tuple[Tensor, Tensor]]:
        ones = torch.ones(3, dtype=torch.float64)
        peak = (log(loss.cap) - 1e-6) / bound if isinstance(loss, Poisson) else 1.0
        tilted = log(2) / bound if isinstance(loss, Brier) else 5e-4
        starts = [0 * ones, 50 * ones, -50 * ones, peak * ones, 1e6 * self.AXES[0], tilted / TILT * self.AXES[0]]
        steps = (0.1, 10.0) if steepest(loss) == 1.0 else (1e-4, 0.1, 10.0)
        return [(start, start + self.AXES[2] * step) for start in starts for step in steps]

    def worst(self, question: Question, loss: Loss, weights: Weights, adjacency: Adjacency) -> float:
        assert weights.bound is not None
        most = 0.0
        points = self.points(loss, weights.bound)
        if question.places != "pair":  # what it is asked beside does not count, so each start once
            points = list({tuple(start.tolist()): (start, other) for start, other in points}.values())
        for theta, other in points:
            x, y = self.records(loss, weights.bound, theta)
            every = torch.ones(len(x), 1, dtype=torch.bool)
            single = LinearProblem(x.unsqueeze(1).contiguous(), y.unsqueeze(1), every, loss, weights)
            at = other if question.places == "pair" else None
            terms = single.bounded_sum(question, public(1, 3, loss, weights), theta, other=at)
            if terms.ndim == 3:
                above, right = torch.triu_indices(3, 3)
                terms = terms[:, above, right]
            if adjacency is Adjacency.ZERO_OUT:
                most = max(most, terms.norm(dim=-1).max().item())
            else:
                most = max(most, torch.cdist(terms, terms, compute_mode="donot_use_mm_for_euclid_dist").max().item())
        return most

    def questions(self, loss: Loss, weights: Weights) -> list[Question]:
        less = min(0.3, gradient_bound(loss, weights) / 2)
        asked: list[Question] = [Gradient(sigma=1), Gradient(sigma=1, clip=less), Secant(sigma=1)]
        asked.append(Curvature(of="score", sigma=1))
        if public(1, 3, loss, weights).curvature_bound is not None:
            asked.append(Curvature(of="hessian", sigma=1))
        if cubic_bound(weights) is not None:
            asked.append(Curvature(of="cubic", sigma=1))
        return asked

    @every_pair
    @pytest.mark.parametrize("adjacency", list(Adjacency))
    def test_is_never_passed_and_almost_reached(self, loss: Loss, weights: Weights, adjacency: Adjacency) -> None:
        for question in self.questions(loss, weights):
            claimed = question.sensitivity(public(1, 3, loss, weights, adjacency=adjacency))
            found = self.worst(question, loss, weights, adjacency)
            assert found <= claimed * (1 + 1e-9), f"{question} moves by {found}, not {claimed}"
            assert found >= 0.95 * claimed, f"{question} moves by {found} at most, not {claimed}"
