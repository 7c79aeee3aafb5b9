"""Avella-Medina, Bradshaw and Loh (2023): stationary laws (S1, S2) and coverage (S7, S8) under replace_one.

Data and noise seeds are fixed, so a verdict repeats. At other seeds a true coverage of .95 leaves [.93, .97] with
probability 4e-5 a coefficient (2000 replicates: 4.1 standard errors) and [.925, .975] with 3e-7. The band of 10 %
around each of the four variances of S1 and S2 is left with probability 8e-6, and that of a correlation with 7e-6.
"""

from math import sqrt

import numpy as np
import pytest
import torch

from core.losses.robust import Huber
from core.losses.robust_torch import HuberRecords
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan
from core.oracle import Answer
from core.oracle.simulation import Simulation
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.sums.linear import LinearProblem
from studies.inference import studies
from tests.support.studies import D1, D2, SCALE, coverage, equal_shares, known_scale_problem, minimiser, simulation

REPLICATES = 4000


def newton(mu: float, steps: int, damping: float) -> NoisyNewtonPlan:
    return studies.newton(steps, damping, mu, floor=0.05 / SCALE)


class TestStationaryLaw:
    """Each eigen-variance lies within 10 % of theory, over 4000 noise draws: 4.47 standard errors of a variance."""

    @pytest.mark.parametrize(
        ("units", "mu"), [(500, 2.0), *(pytest.param(one, 1.0, marks=pytest.mark.slow) for one in (1000, 4000))]
    )
    def test_gradient_descent_moves_as_the_autoregression_says(self, units: int, mu: float) -> None:
        """The noise is that of mu n: with half of the records at twice the mu it is as large, for half of the work."""
        problem = known_scale_problem(D1, units, None, seed=1)
        answer = minimiser(problem)
        settings = NoisyGradientDescentPlan(steps=100, step_size=1.0, mu=mu, radius=1e6, start=tuple(answer.tolist()))
        hessian = exact_hessian(problem, answer)
        noise = 2 * sqrt(2) * 1.345 * sqrt(100) / (mu * units)
        check_law(settings, problem, answer, noise**2 / (1 - (1 - torch.linalg.eigvalsh(hessian)) ** 2))

    @pytest.mark.slow
    def test_pure_newton_moves_as_its_last_step(self) -> None:
        units = 4000
        problem = known_scale_problem(D1, units, None, seed=3)
        answer = minimiser(problem)
        settings = newton(1.0, 12, 1.0).model_copy(update={"start": tuple(answer.tolist())})
        noise = 2 * sqrt(2) * 1.345 * sqrt(2 * 12) / units
        check_law(settings, problem, answer, noise**2 / torch.linalg.eigvalsh(exact_hessian(problem, answer)) ** 2)

    @pytest.mark.slow
    def test_a_budget_for_half_of_newtons_answers_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Mutation: sqrt(K) for sqrt(2K)."""
        genuine = Simulation.ask

        def quieter(self: Simulation, question: Question, theta: torch.Tensor) -> Answer:
            less = sqrt(2) if isinstance(question, Gradient) else 1.0
            return genuine(self, question.model_copy(update={"sigma": question.sigma / less}), theta)

        monkeypatch.setattr(Simulation, "ask", quieter)
        with pytest.raises(AssertionError, match="eigen-variances"):
            self.test_pure_newton_moves_as_its_last_step()


def check_law(
    settings: NoisyGradientDescentPlan | NoisyNewtonPlan,
    problem: LinearProblem,
    answer: torch.Tensor,
    expected: torch.Tensor,
) -> None:
    """Fail unless 4000 last iterates vary around the minimiser as expected, along each eigenvector of its Hessian."""
    estimate, _ = iterate(settings, simulation(problem, 2, REPLICATES))
    _, vectors = torch.linalg.eigh(exact_hessian(problem, answer))
    along = ((estimate.theta - answer) @ vectors).numpy()
    ratios = along.var(0) / expected.numpy()
    assert np.all(np.abs(ratios - 1) < 0.1), f"eigen-variances are {ratios} times those expected"
    correlations = np.corrcoef(along.T)[np.triu_indices(4, 1)]
    assert np.all(np.abs(correlations) < 4.5 / sqrt(REPLICATES)), f"eigenvectors are correlated: {correlations}"


def exact_hessian(problem: LinearProblem, theta: torch.Tensor) -> torch.Tensor:
    return simulation(problem, 0, noiseless=True).ask(Curvature(of="hessian", sigma=1.0), theta).value


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


class TestCoverage:
    """E5's table for known scale, step 1, and E6: design, budget and corrections as there, floors as there."""

    @pytest.mark.parametrize(("units", "raw"), [(1000, 0.822), slow(2000, 0.888)])
    def test_gradient_descent(self, units: int, raw: float) -> None:
        mu, inference = equal_shares(50)
        settings = NoisyGradientDescentPlan(steps=50, step_size=1.0, mu=mu, radius=1e6)
        seen = coverage(known_scale_problem(D1, units, 2000, seed=units), settings, inference, seed=5)
        assert np.all(np.abs(seen.plain[1:] - raw) < 0.03)
        assert np.all((seen.printed[1:] > 0.93) & (seen.printed[1:] < 0.97))
        assert np.all((seen.stationary > 0.925) & (seen.stationary < 0.975))

    @pytest.mark.parametrize(
        ("damping", "units", "steps"),
        [
            (0.5, 1000, 17),
            (1.0, 1000, 17),
            slow(0.5, 2000, 18),
            slow(1.0, 2000, 18),
            slow(0.5, 4000, 19),
            slow(1.0, 4000, 19),
        ],
    )
    def test_newton(self, damping: float, units: int, steps: int) -> None:
        """With the paper's own matrix M, noised at the last iterate; the third coefficient."""
        mu, inference = equal_shares(2 * steps)
        problem = known_scale_problem(D2, units, 2000, seed=7)
        seen = coverage(problem, newton(mu, steps, damping), inference, seed=8, pooled=False)
        assert 0.93 < seen.stationary[2] < 0.97
        assert 0.90 < seen.printed[2] < 0.97
        assert np.all((seen.stationary > 0.925) & (seen.stationary < 0.975)), "the intercept too"
        assert seen.plain[2] < min(seen.stationary[2], seen.printed[2])
        if units == 1000:
            assert seen.plain[2] < min(seen.stationary[2], seen.printed[2]) - 0.08

    @pytest.mark.parametrize(
        ("damping", "units", "steps"), [(0.5, 1000, 17), slow(0.5, 2000, 18), slow(1.0, 2000, 18), slow(1.0, 4000, 19)]
    )
    def test_newton_with_the_late_hessians_averaged(self, damping: float, units: int, steps: int) -> None:
        """Jobs do this. Not for pure steps at 1000 units: 6 % of those diverge, and the planner damps them.

        A diverged replicate's last Hessian alone is floored nearly everywhere, so its interval covers by being endless;
        an average of several is not, and there the coverage of the third coefficient is .926.
        """
        mu, inference = equal_shares(2 * steps)
        seen = coverage(known_scale_problem(D2, units, 2000, seed=7), newton(mu, steps, damping), inference, seed=8)
        assert np.all((seen.stationary > 0.93) & (seen.stationary < 0.97))
        assert seen.plain[2] < seen.stationary[2] - 0.04

    @pytest.mark.parametrize("law", ["coverage", slow("stationary")])
    def test_forgetting_the_scale_in_the_hessian_fails(self, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Mutation: Hessian and bound without 1/scale, as printed. M is twice too large, a step half as long."""
        genuine = HuberRecords.curvature

        def unscaled(self: HuberRecords, margin: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return genuine(self, margin, target) * self.scale

        monkeypatch.setattr(HuberRecords, "curvature", unscaled)
        monkeypatch.setattr(Huber, "curvature_peak", 1.0)
        if law == "coverage":
            with pytest.raises(AssertionError):
                self.test_newton(0.5, 1000, 17)
        else:
            with pytest.raises(AssertionError, match="eigen-variances"):
                TestStationaryLaw().test_pure_newton_moves_as_its_last_step()
