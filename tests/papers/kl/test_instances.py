"""Problems with known constants: their promises hold, with equality where they should, and false ones are seen."""

import pytest
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.kl.condition import KlCondition
from core.oracle.simulation import Simulation
from core.queries.gradients import Gradient, GradientDifference, GradientNorm, Question, summed
from studies.kl.gram import GramProblem
from studies.kl.grouped import Copies, GroupedProblem
from studies.kl.hard_pair import HardPair, LinearFamily
from studies.kl.powers import PowerProblem

EXPONENTS = (4 / 3, 1.5, 2.0, 3.0, 4.0)


def around(centre: Tensor, radius: float, count: int = 400, seed: int = 0) -> Tensor:
    """Points uniform in length within a ball, the centre and its rim among them."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(count, len(centre), generator=generator, dtype=torch.float64)
    lengths = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    lengths[0], lengths[1] = 0.0, 1.0
    return centre + radius * lengths * directions / directions.norm(dim=-1, keepdim=True)


def gaps(condition: KlCondition, slopes: Tensor) -> Tensor:
    return torch.tensor([condition.gap_at(float(slope)) for slope in slopes], dtype=torch.float64)


def sphere(units: int, dimension: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(units, dimension, generator=generator, dtype=torch.float64)
    rows /= rows.norm(dim=-1, keepdim=True)
    labels = (rows.sum(-1) / 2 + 0.1 * torch.randn(units, generator=generator, dtype=torch.float64)).clamp(-1, 1)
    return rows, labels


def autograd(problem: GroupedProblem, theta: Tensor) -> Tensor:
    leaf = theta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(problem.mean_loss(leaf).sum(), leaf)
    return slope


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("coefficient", [1.0, 0.3])
class TestPowers:
    def test_the_condition_holds_with_equality_and_not_for_a_smaller_gamma(
        self, exponent: float, coefficient: float
    ) -> None:
        problem = PowerProblem(100, 5, exponent, coefficient=coefficient)
        points = around(problem.minimiser, 1.0)[1:]
        slopes = problem.mean_gradient(points).norm(dim=-1)
        condition = problem.constants.condition
        allowed = gaps(condition, slopes)
        torch.testing.assert_close(problem.excess(points), allowed, rtol=1e-9, atol=1e-15)
        false = condition.model_copy(update={"gamma": 0.9 * condition.gamma})
        assert bool((gaps(false, slopes) < problem.excess(points)).all())

    def test_the_gradient_is_the_derivative_inside_and_outside_the_radius(
        self, exponent: float, coefficient: float
    ) -> None:
        problem = PowerProblem(7, 3, exponent, coefficient=coefficient, radius=0.6)
        points = around(problem.minimiser, 2.0)[1:]
        torch.testing.assert_close(autograd(problem, points), problem.mean_gradient(points))

    def test_the_bounds_hold_everywhere_and_are_attained(self, exponent: float, coefficient: float) -> None:
        problem = PowerProblem(7, 3, exponent, coefficient=coefficient)
        points = around(problem.minimiser, 3.0)
        slopes = problem.mean_gradient(points)
        constants = problem.constants
        assert float(slopes.norm(dim=-1).max()) == pytest.approx(constants.lipschitz)
        if constants.smoothness is not None:
            near = points + 1e-3 * around(torch.zeros(3, dtype=torch.float64), 1.0, seed=1)
            turned = (problem.mean_gradient(near) - slopes).norm(dim=-1)
            steepest = float((turned / (near - points).norm(dim=-1).clamp(min=1e-12)).max())
            assert 0.7 * constants.smoothness < steepest <= constants.smoothness * (1 + 1e-9)
        # Convex, as a weak convexity of 0 says: gradients turn no way back.
        turned = ((slopes[:, None] - slopes[None]) * (points[:, None] - points[None])).sum(-1)
        assert float(turned.min()) > -1e-12


def test_a_start_at_zero_has_the_stated_gap() -> None:
    for exponent in EXPONENTS:
        problem = PowerProblem(10, 4, exponent, coefficient=0.3)
        assert float(problem.excess(torch.zeros(4, dtype=torch.float64))) == pytest.approx(problem.constants.start_gap)


@pytest.mark.parametrize("exponent", [4 / 3, 1.5, 2.0])
def test_of_two_sides_the_gentle_one_decides_gamma_and_the_steep_one_the_length(exponent: float) -> None:
    problem = PowerProblem(10, 1, exponent, steepness=4.0)
    right = problem.minimiser + torch.linspace(0.01, 1, 50, dtype=torch.float64).unsqueeze(-1)
    left = 2 * problem.minimiser - right
    condition = problem.constants.condition
    for points, equal in ((right, True), (left, False)):
        slopes = problem.mean_gradient(points).abs().squeeze(-1)
        allowed = gaps(condition, slopes)
        assert torch.allclose(allowed, problem.excess(points)) is equal
        assert bool((allowed >= problem.excess(points) * (1 - 1e-9)).all())
    assert float(problem.mean_gradient(left).abs().max()) == pytest.approx(problem.constants.lipschitz)
    assert problem.constants.lipschitz == pytest.approx(4 * exponent)
    torch.testing.assert_close(autograd(problem, left), problem.mean_gradient(left))


class TestSums:
    """The answers that a simulated oracle gives are the clipped means, whatever n is."""

    problem = PowerProblem(10_000_000, 3, 3.0)
    facts = problem.constants.facts(10_000_000, 3)
    theta = torch.tensor([[0.0, 0.5, 0.0], [0.3, -0.1, 0.2]], dtype=torch.float64)
    other = torch.tensor([[-0.2, 0.4, 0.1], [0.3, -0.1, 0.2]], dtype=torch.float64)

    def exact(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Tensor:
        oracle = Simulation(self.problem, self.facts, SimulationGenerator(1), noiseless=True, replicates=2)
        return oracle.ask(question, theta, other).value

    def test_a_clip_cuts_each_units_gradient(self) -> None:
        slopes = self.problem.mean_gradient(self.theta)
        torch.testing.assert_close(self.exact(Gradient(sigma=1.0), self.theta), slopes)
        cut = self.exact(Gradient(sigma=1.0, clip=0.5), self.theta)
        torch.testing.assert_close(cut, 0.5 * slopes / slopes.norm(dim=-1, keepdim=True))

    def test_a_difference_and_the_gradient_before_it_make_the_gradient_after_it(self) -> None:
        cap = self.problem.constants.smoothness * 0.3
        difference = self.problem.bounded_sum(
            GradientDifference(sigma=1.0, cap=cap), self.facts, self.theta, other=self.other
        )
        after = self.problem.mean_gradient(self.other) - self.problem.mean_gradient(self.theta)
        torch.testing.assert_close(difference / self.problem.units, after)

    def test_a_difference_is_capped_after_its_two_gradients_are_clipped(self) -> None:
        question = GradientDifference(sigma=1.0, cap=0.01, clip=1.5)
        difference = self.problem.bounded_sum(question, self.facts, self.theta, other=self.other) / self.problem.units
        assert float(difference[0].norm()) == pytest.approx(0.01)
        assert float(difference[1].norm()) == 0.0

    def test_what_is_not_finite_counts_as_zero(self) -> None:
        theta = torch.full((3,), torch.nan, dtype=torch.float64)
        assert float(self.problem.bounded_sum(Gradient(sigma=1.0), self.facts, theta).abs().max()) == 0.0

    def test_a_oracle_s_integers_are_the_same_sums(self) -> None:
        pair = HardPair(401, 1.0, 2.0)
        facts = pair.constants(start_gap=1.0).facts(401, 1)
        theta, step = torch.tensor([0.0], dtype=torch.float64), 2.0**-20
        for question, other in (
            (Gradient(sigma=1.0), None),
            (GradientNorm(sigma=1.0), None),
            (GradientDifference(sigma=1.0, cap=0.1), torch.tensor([0.3], dtype=torch.float64)),
        ):
            whole = pair.integer_sum(question, facts, theta, step, other=other)
            assert whole.dtype == torch.int64
            exact = pair.bounded_sum(summed(question), facts, theta, other=other)
            torch.testing.assert_close(whole.double() * step, exact, rtol=0, atol=step)
            rows = torch.randperm(401, generator=torch.Generator().manual_seed(1))
            halves = [pair.integer_sum(question, facts, theta, step, other=other, rows=one) for one in rows.split(200)]
            assert int((sum(halves[1:], halves[0]) - whole).abs()) <= 3, "each half is rounded by itself"
        mask = torch.arange(401) < 201  # the +1 records come first
        first = pair.integer_sum(Gradient(sigma=1.0), facts, theta, 1.0, included=mask)
        assert first.tolist() == [-201], "the slope of each is -1"
        few = Copies(pair, 3).integer_sum(Gradient(sigma=1.0), facts, theta, 1.0, rows=torch.tensor([0, 401, 802]))
        assert few.tolist() == [-3], "copies of the first record"


class TestGram:
    rows, labels = sphere(500, 4)
    problem = GramProblem(rows, labels, copies=3)
    constants = problem.constants(eigenvalue=0.2, label_bound=1.0, radius=4.0)
    facts = constants.facts(1500, 4)
    theta = around(torch.zeros(4, dtype=torch.float64), 2.0, 20)

    def test_its_sums_are_those_of_its_rows(self) -> None:
        residuals = self.theta @ self.rows.mT - self.labels
        sums = 3 * residuals @ self.rows
        torch.testing.assert_close(self.problem.bounded_sum(Gradient(sigma=1.0), self.facts, self.theta), sums)
        torch.testing.assert_close(self.problem.mean_loss(self.theta), residuals.square().mean(-1) / 2)
        torch.testing.assert_close(
            self.problem.excess(self.theta), self.problem.mean_loss(self.theta) - self.problem.least
        )
        moved = self.theta + 0.1
        question = GradientDifference(sigma=1.0, cap=0.2 + 1e-9)
        found = self.problem.bounded_sum(question, self.facts, self.theta, other=moved)
        torch.testing.assert_close(found, 3 * ((moved - self.theta) @ self.rows.mT) @ self.rows)

    def test_what_a_clip_would_cut_is_refused_not_ignored(self) -> None:
        with pytest.raises(AssertionError, match="the clip is"):
            self.problem.bounded_sum(Gradient(sigma=1.0, clip=0.5), self.facts, self.theta)
        with pytest.raises(AssertionError, match="the cap would cut"):
            self.problem.bounded_sum(
                GradientDifference(sigma=1.0, cap=0.1), self.facts, self.theta, other=self.theta + 0.1
            )

    def test_the_public_eigenvalue_was_a_lower_bound(self) -> None:
        assert self.problem.eigenvalue >= 0.2
        assert self.problem.row_bound == pytest.approx(1.0)

    def test_the_condition_holds_on_the_range_also_with_more_columns_than_rows(self) -> None:
        rows, labels = sphere(8, 20, seed=2)
        wide = GramProblem(rows, labels)
        constants = wide.constants(eigenvalue=wide.eigenvalue, label_bound=1.0, radius=4.0)
        points = around(wide.minimiser, 3.0)
        slopes = wide.mean_gradient(points).norm(dim=-1)
        allowed = gaps(constants.condition, slopes)
        assert bool((wide.excess(points) <= allowed * (1 + 1e-9) + 1e-15).all())
        with pytest.raises(ValueError, match="not zero"):
            wide.constants(eigenvalue=0.0, label_bound=1.0, radius=4.0)


@pytest.mark.parametrize("kappa", [2.0, 3.0, 4.0])
class TestHardPair:
    def pair(self, kappa: float) -> tuple[HardPair, HardPair]:
        return HardPair(1000, 0.5, kappa), HardPair(1000, 0.5, kappa, mirrored=True)

    def test_the_two_sets_differ_in_one_over_epsilon_records_and_mirror_each_other(self, kappa: float) -> None:
        one, two = self.pair(kappa)
        assert float((one._counts - two._counts).abs().sum()) / 2 == 2.0
        theta = torch.linspace(-2, 2, 41, dtype=torch.float64).unsqueeze(-1)
        torch.testing.assert_close(one.mean_loss(theta), two.mean_loss(-theta))
        torch.testing.assert_close(one.minimiser, -two.minimiser)

    def test_the_least_loss_is_where_it_is_said_to_be(self, kappa: float) -> None:
        for problem in self.pair(kappa):
            theta = torch.linspace(-1, 1, 20_001, dtype=torch.float64).unsqueeze(-1)
            excess = problem.excess(theta)
            assert float(excess.min()) >= -1e-12
            assert float(problem.excess(problem.minimiser)) == pytest.approx(0, abs=1e-12)

    def test_constants_hold_and_false_ones_do_not(self, kappa: float) -> None:
        problem, _ = self.pair(kappa)
        near = float(problem.minimiser) * torch.linspace(-1, 1, 101, dtype=torch.float64)[1:-1]
        theta = torch.cat([near, torch.linspace(-0.5, 0.5, 1001, dtype=torch.float64)]).unsqueeze(-1)
        slopes = problem.mean_gradient(theta).squeeze(-1).abs()
        condition = problem.constants(start_gap=1.0).condition
        assert bool((problem.excess(theta) <= gaps(condition, slopes) + 1e-12).all())
        false = condition.model_copy(update={"gamma": 0.45 * condition.gamma})
        assert not bool((problem.excess(theta) <= gaps(false, slopes) + 1e-12).all())
        wide = torch.linspace(-3, 3, 1001, dtype=torch.float64).unsqueeze(-1)
        assert float(problem.gradients(wide).abs().max()) == pytest.approx(1.0)
        inside = wide[(wide.abs() - float(problem.minimiser.abs())).abs().squeeze(-1) > 1e-3]
        torch.testing.assert_close(autograd(problem, inside), problem.mean_gradient(inside))


class TestLinearFamily:
    signs = torch.tensor([[1, 1, -1], [1, -1, -1], [1, 1, 1]])
    problem = LinearFamily(40, signs, lipschitz=2.0, distance=0.5)
    points = around(torch.zeros(3, dtype=torch.float64), 6.0)

    def test_the_minimiser_and_the_condition_are_exact_inside_the_seam(self) -> None:
        inside = self.points[self.points.norm(dim=-1) < 2.0]
        slopes = self.problem.mean_gradient(inside).norm(dim=-1)
        torch.testing.assert_close(self.problem.excess(inside), gaps(self.problem.constants.condition, slopes))
        assert float(self.problem.minimiser.norm()) <= 0.5

    def test_every_loss_is_lipschitz_and_smooth_across_the_seam(self) -> None:
        slopes = self.problem.gradients(self.points)
        assert float(slopes.norm(dim=-1).max()) <= self.problem.constants.lipschitz * (1 + 1e-9)
        torch.testing.assert_close(autograd(self.problem, self.points[1:]), self.problem.mean_gradient(self.points[1:]))
        seam = self.points[1:] / self.points[1:].norm(dim=-1, keepdim=True) * 2.0
        jump = self.problem.mean_gradient(1.0001 * seam) - self.problem.mean_gradient(0.9999 * seam)
        assert float(jump.norm(dim=-1).max()) < 1e-3
