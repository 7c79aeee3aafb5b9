"""Avella-Medina, Bradshaw and Loh (2023): unit tests stated in the paper's own symbols, n, K, mu, B and Bbar.

They cover the noise of every release for a grid of K, mu and n, and the composition of shares. The two worst neighbours
are distinguished exactly as often as claimed. The minimiser is that of an independent solver; floors are covered too.
Seeds are fixed. The audit's band of 4 standard errors has a false-alarm rate of 6e-5.
"""

from math import sqrt

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm, rankdata

from core.base.errors import Invalid
from core.inference.sandwich import infer
from core.inference.settings import PlannedInference
from core.mechanisms.generator import SimulationGenerator
from core.methods.base import Spec
from core.methods.fits import fit, iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent, NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.registry import AnySpec
from core.oracle.filters import CountingFilter
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian, Repeated
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.sums.linear import LinearProblem
from studies.inference.studies import newton
from tests.oracle.test_full import LOGISTIC, check_noise
from tests.planning.test_planning import plan, worth
from tests.support.studies import (
    D1,
    LOSS,
    SCALE,
    WEIGHT,
    WEIGHTS,
    equal_shares,
    known_scale_facts,
    known_scale_problem,
    simulation,
)

B = WEIGHT * 1.345
BBAR = WEIGHT**2 / SCALE
GRID = [(1, 0.5, 10), (8, 2.0, 1000), (60, 1.0, 4000)]
LATTICE = 1.002


def settings_of(method: type[Spec], steps: int, mu: float) -> AnySpec:
    if method is NoisyGradientDescent:
        return NoisyGradientDescentPlan(steps=steps, step_size=1.0, mu=mu, radius=1e6)
    return newton(steps, 0.5, mu)


class TestNoiseOfEveryRelease:
    """U4. The formulas at every point of the grid, and 200,000 draws of a real oracle at one question of each kind."""

    @pytest.mark.parametrize(("steps", "mu", "units"), GRID)
    def test_is_as_printed(self, steps: int, mu: float, units: int) -> None:
        public = known_scale_facts(units)

        def deviation(question: Question) -> float:
            return question.sigma * question.sensitivity(public)

        (descent,) = settings_of(NoisyGradientDescent, steps, mu).questions()
        gradient, hessian = settings_of(NoisyNewton, steps, mu).questions()
        _, inference = equal_shares(steps)
        curvature, score = inference.questions()
        assert deviation(descent) == pytest.approx(2 * B * sqrt(steps) / (mu * units), rel=1e-12)
        assert deviation(gradient) == pytest.approx(2 * B * sqrt(2 * steps) / (mu * units), rel=1e-12)
        assert deviation(hessian) == pytest.approx(sqrt(2) * BBAR * sqrt(2 * steps) / (mu * units), rel=1e-12)
        assert deviation(curvature) == pytest.approx(sqrt(2) * BBAR * sqrt(steps + 2) / units, rel=1e-12)
        assert deviation(score) == pytest.approx(sqrt(2) * B**2 * sqrt(steps + 2) / units, rel=1e-12)

    @pytest.mark.parametrize(
        "kind", ["descent", "gradient", *(pytest.param(one, marks=pytest.mark.slow) for one in ("hessian", "score"))]
    )  # matrices are among the laws of tests/oracle/test_full.py
    def test_is_what_a_oracle_adds(self, kind: str) -> None:
        (steps, mu, units), (_, inference) = GRID[1], equal_shares(GRID[1][0])
        gradient, hessian = settings_of(NoisyNewton, steps, mu).questions()
        asked: dict[str, Question] = {
            "descent": settings_of(NoisyGradientDescent, steps, mu).questions()[0],
            "gradient": gradient,
            "hessian": hessian,
            "score": inference.questions()[1],
        }
        check_noise(LOGISTIC, asked[kind], Adjacency.REPLACE_ONE, units, 200_000)

    def test_reference_values(self) -> None:
        """n = 1000, K = 8, mu = 2, c = 1.345 and scale 1: .00760847 on gradients, .008 on Hessians with factor 2."""
        newton = settings_of(NoisyNewton, 8, 2.0).model_copy(update={"matrix_noise": "printed"})
        gradient, hessian = newton.questions()
        public = known_scale_facts(1000).model_copy(update={"curvature_bound": 2.0})
        assert gradient.sigma * gradient.sensitivity(public) == pytest.approx(0.00760847, abs=5e-9)
        assert hessian.sigma * hessian.sensitivity(public) == pytest.approx(0.008, abs=1e-9)


class TestAccountant:
    """U5."""

    @pytest.mark.parametrize("steps", [1, 8, 60])
    @pytest.mark.parametrize("method", [NoisyGradientDescent, NoisyNewton])
    def test_equal_shares_compose(self, method: type[Spec], steps: int) -> None:
        settings = settings_of(method, steps, 0.7)
        sigmas = [event.sigma for event in settings.schedule(known_scale_facts(100)) if isinstance(event, Gaussian)]
        each = sqrt(steps * len(settings.questions())) / 0.7
        assert sigmas == pytest.approx([each] * len(sigmas), rel=1e-12)
        assert sqrt(sum(sigma**-2 for sigma in sigmas)) == pytest.approx(0.7, rel=1e-12)

    @pytest.mark.parametrize("kind", ["noisy_gd", "noisy_newton"])
    def test_intervals_after_an_estimate_cost_the_square_root_of_three(self, kind: str) -> None:
        """Proposition 3: the estimate and both matrices at mu = .3 each."""
        third = 1 / 3
        planned = plan(
            optimizer={"kind": kind},
            privacy={"mu": "0.519615242271"},
            inference={"shares": {"estimate": third, "curvature": third, "score": third}},
        )
        assert planned.spec.optimizer.mu == pytest.approx(0.3, rel=1e-11)
        assert [one.sigma for one in planned.spec.inference.questions()] == pytest.approx([1 / 0.3] * 2, rel=1e-11)
        assert worth(planned.schedule) == pytest.approx(sqrt(3) * 0.3, rel=1e-11)

    @pytest.mark.parametrize("steps", [6, 50])
    @pytest.mark.parametrize("method", [NoisyGradientDescent, NoisyNewton])
    def test_intervals_within_one_mu(self, method: type[Spec], steps: int) -> None:
        """Of K + 2 or 2 K + 2 answers each costs 1/sqrt of their number."""
        answers = steps * (1 if method is NoisyGradientDescent else 2)
        mu, inference = equal_shares(answers)
        questions = (*settings_of(method, steps, mu).questions(), *inference.questions())
        assert [one.sigma for one in questions] == pytest.approx([sqrt(answers + 2)] * len(questions), rel=1e-12)

    def test_overspending_is_refused(self) -> None:
        priced = Repeated(event=Gaussian(sigma=2.0), times=2)
        oracle = Simulation(
            known_scale_problem(D1, 20, None, 1),
            known_scale_facts(20),
            SimulationGenerator(1),
            payments=CountingFilter(priced),
        )
        theta = torch.zeros(4, dtype=torch.float64)
        oracle.ask(Gradient(sigma=2.0), theta)
        with pytest.raises(AssertionError, match="its price"):
            oracle.ask(Gradient(sigma=1.9), theta)
        with pytest.raises(Invalid):
            plan(optimizer={"kind": "noisy_gd", "mu": 0.5001}, inference={"intervals": False})


@pytest.mark.parametrize("method", [NoisyGradientDescent, NoisyNewton])
@pytest.mark.parametrize("steps", [6, 60])
@pytest.mark.parametrize("units", [1000, 4000])
def test_the_correction_knows_the_noise_of_every_share(method: type[Spec], steps: int, units: int) -> None:
    """Where everything is paid in K + 2 (or 2 K + 2) shares, K in the correction's formula is K + 2 (or 2 K + 2)."""
    answers = steps * (1 if method is NoisyGradientDescent else 2)
    mu, _ = equal_shares(answers)
    estimate, _ = iterate(settings_of(method, steps, mu), simulation(known_scale_problem(D1, units, None, 1), 1))
    assert 1 <= estimate.scale / (2 * B * sqrt(answers + 2) / units) <= LATTICE


class TestTwoWorstNeighbours:
    """U7. An attacker sees one answer and ranks 200,000 of each data set by the best linear statistic."""

    RUNS = 200_000

    def area(self, question: Question, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> float:
        """Return the share of pairs that the attacker ranks right: the area under the curve of the best test.

        Gradients: one record with opposite residuals. Matrices: one record on one axis, or on the other; far out for
        Hessians, as long as the weights allow for scores.
        """
        public = known_scale_facts(2).model_copy(update={"dimension": 2, "adjacency": adjacency})
        match question:
            case Gradient():
                worlds = (([[WEIGHT, 0.0]], 1e9), ([[WEIGHT, 0.0]], -1e9))
            case Curvature(of="hessian"):
                worlds = (([[1e8, 0.0]], 0.0), ([[0.0, 1e8]], 0.0))
            case Curvature():
                worlds = (([[WEIGHT, 0.0]], 1e9), ([[0.0, WEIGHT]], 1e9))
        answers, means = [], []
        for seed, (x, y) in enumerate(worlds):
            features = torch.tensor([*x, [0.0, 0.0]], dtype=torch.float64)
            target = torch.tensor([y, 0.0], dtype=torch.float64)
            records = LinearProblem(features, target, torch.ones(2, dtype=torch.bool), LOSS, WEIGHTS)
            oracle = Simulation(records, public, SimulationGenerator(seed + 1), replicates=self.RUNS)
            theta = torch.zeros(2, dtype=torch.float64)
            upper = np.triu_indices(2)
            answer = oracle.ask(question, theta).value.numpy()
            mean = records.bounded_sum(question, public, theta).numpy() / 2
            answers.append(answer[:, *upper] if answer.ndim == 3 else answer)
            means.append(mean[upper] if mean.ndim == 2 else mean)
        best = means[0] - means[1]
        scores = np.concatenate([part @ best for part in answers])
        ranks = rankdata(scores)[: self.RUNS].sum()
        return float((ranks - self.RUNS * (self.RUNS + 1) / 2) / self.RUNS**2)

    def check(self, question: Question, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> None:
        mu = 1 / question.sigma
        claimed = float(norm.cdf(mu / sqrt(2)))
        # The standard error as Hanley and McNeil give it; their paper is of 1982.
        error = sqrt((claimed / (2 - claimed) + 2 * claimed**2 / (1 + claimed) - 2 * claimed**2) / self.RUNS)
        seen = self.area(question, adjacency)
        assert seen <= claimed + 4 * error, f"the answer tells more than claimed: {seen} > {claimed}"
        assert seen >= claimed - 4 * error, f"the answer is noisier than claimed: {seen} < {claimed}"

    QUESTIONS = (
        Gradient(sigma=1.0),
        Gradient(sigma=0.5),
        Curvature(of="hessian", sigma=1.0),
        Curvature(of="score", sigma=2.0),
    )

    @pytest.mark.parametrize("question", QUESTIONS, ids=str)
    def test_are_told_apart_as_often_as_claimed(self, question: Question) -> None:
        self.check(question)

    @pytest.mark.parametrize("question", QUESTIONS, ids=str)
    def test_with_the_noise_of_the_other_adjacency_more_often(self, question: Question) -> None:
        """Mutations: 2 B for B on gradients, factor 1 on matrices."""
        with pytest.raises(AssertionError, match="tells more"):
            self.check(question, Adjacency.ZERO_OUT)


@pytest.mark.parametrize("method", [NoisyGradientDescent, NoisyNewton])
def test_without_noise_huber_estimates_are_those_of_another_solver(method: type[Spec]) -> None:
    """U10, for the loss whose Hessian carries a scale; the logistic one is a law of every optimizer."""
    problem = known_scale_problem(D1, 1000, None, seed=12)
    x, y = problem._records.features.numpy(), problem._records.target.numpy()
    weights = np.minimum(1, WEIGHT**2 / (x**2).sum(1))

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        residual = (y - x @ theta) / SCALE
        size = np.abs(residual)
        each = SCALE * np.where(size <= 1.345, size**2 / 2, 1.345 * size - 1.345**2 / 2)
        return float((weights * each).mean()), -(x.T @ (weights * residual.clip(-1.345, 1.345))) / len(y)

    options = {"gtol": 1e-12, "ftol": 1e-16, "maxiter": 10_000}
    answer = minimize(objective, np.zeros(4), jac=True, method="L-BFGS-B", options=options).x
    steps = 400 if method is NoisyGradientDescent else 60  # each halves the distance: 1e-18 is left
    found = fit(settings_of(method, steps, 1.0), simulation(problem, 0, noiseless=True)).value.theta.numpy()
    assert np.abs(found - answer).max() < 1e-6


def test_matrices_drowned_in_noise_are_floored() -> None:
    """U8 in its place: no eigenvalue below its floor, the moves counted, and a covariance that is one."""
    public = Facts(units=60, dimension=4, adjacency=Adjacency.REPLACE_ONE, gradient_bound=B, curvature_bound=BBAR)
    oracle = Simulation(known_scale_problem(D1, 60, None, 5), public, SimulationGenerator(5), replicates=500)
    estimate, _ = iterate(settings_of(NoisyGradientDescent, 5, 1.0), oracle)
    inference = PlannedInference(
        curvature_sigma=8.0,
        score_sigma=8.0,
        curvature_floor=0.01,
        score_floor=0.02,
        plausible_radius=3.0,
    )
    sandwich = infer(inference, estimate, oracle)
    for matrix, floor, moved in (
        (sandwich.curvature, 0.01, sandwich.curvature_floored),
        (sandwich.score, 0.02, sandwich.score_floored),
    ):
        assert torch.linalg.eigvalsh(matrix).min() > floor * (1 - 1e-9)
        assert (moved > 0).double().mean() > 0.5
    assert torch.linalg.eigvalsh(sandwich.covariance).min() > 0
