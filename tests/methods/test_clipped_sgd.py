"""Clipped descent's noise, sums and averages against closed forms, with planted bugs that each test must see.

Every statistical test is at |z| <= 4.5 or a chi-square band of that width: one false alarm in 150,000 at other seeds.
"""

from collections.abc import Callable
from math import sqrt

import pytest
import torch
from scipy import stats
from torch import Tensor

from core.base.errors import AdjacencyMismatch, Diverged, Invalid
from core.losses.squares import Squared
from core.losses.weights import Clip
from core.mechanisms.generator import SimulationGenerator
from core.methods.clipped.clipped_sgd.spec import ClippedSgd, ClippedSgdPlan
from core.methods.clipped.rules import NoMean
from core.methods.fits import fit, iterate
from core.oracle import Answer
from core.oracle.filters import CountingFilter, LastState, UnlimitedFilter
from core.oracle.samples import PoissonOracle
from core.oracle.simulation import Simulation
from core.privacy.conversions import gdp_mu
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, Question
from core.queries.sums.linear import LinearProblem
from tests.support.problems import facts, problem, repeatable_generator

MOST_Z = 4.5
CLIP = 2.0

Changing = Callable[[Answer, Tensor], Answer]


def unchanged(answer: Answer, _theta: Tensor) -> Answer:
    """No bug is planted."""
    return answer


def squared(features: Tensor, target: Tensor, clip: float = CLIP) -> tuple[LinearProblem, Facts]:
    """Return least squares with gradients clipped to a norm, and its facts."""
    weights, (units, dimension) = Clip(bound=clip), features.shape
    present = torch.ones(units, dtype=torch.bool)
    known = facts(units, dimension, Squared(), weights=weights)
    return LinearProblem(features, target, present, Squared(), weights), known.model_copy(
        update={"curvature_bound": 1.0}
    )


class Changed:
    """An oracle whose answers a planted bug changes; it notes every answer."""

    def __init__(self, real: Simulation, change: Changing = unchanged) -> None:
        self._oracle, self._change = real, change
        self.facts, self.randomness, self.affords = real.facts, real.randomness, real.affords
        self.resume, self.keep, self.release, self.precision = real.resume, real.keep, real.release, real.precision
        self.told: list[Tensor] = []
        self.asked: list[Question] = []

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        assert other is None
        answer = self._change(self._oracle.ask(question, theta), theta)
        self.told.append(answer.value)
        self.asked.append(question)
        return answer


class TestLinearRecursion:
    """On L |x|^2/2 with no clipping, K steps from zero leave each coordinate N(0, v), v known."""

    curvature, size, deviation, steps, dimension, replicates = 2.0, 0.05, 0.3, 60, 50, 4000

    def ratio(self, change: Changing = unchanged) -> float:
        """Return the variance of 200,000 coordinates over what it should be."""
        features = torch.eye(self.dimension, dtype=torch.float64) * sqrt(self.curvature * self.dimension)
        data, known = squared(features, torch.zeros(self.dimension, dtype=torch.float64), clip=1000.0)
        settings = ClippedSgdPlan(
            steps=self.steps,
            batch=self.dimension,
            sigma=self.deviation / (1000.0 / self.dimension),
            clip=1000.0,
            step_size=self.size,
            average=NoMean(),
            radius=1e6,
        )
        oracle = Changed(Simulation(data, known, SimulationGenerator(3), replicates=self.replicates), change)
        estimate, _ = iterate(settings, oracle)
        rho = 1 - self.size * self.curvature
        expected = self.size**2 * float(estimate.scale) ** 2 * (1 - rho ** (2 * self.steps)) / (1 - rho**2)
        assert float(estimate.scale) == pytest.approx(self.deviation, rel=2e-3), "the lattice adds next to nothing"
        return float(estimate.theta.square().mean()) / expected

    @property
    def band(self) -> float:
        return MOST_Z * sqrt(2 / (self.dimension * self.replicates))

    def test_each_coordinate_is_normal_with_the_known_variance(self) -> None:
        assert abs(self.ratio() - 1) <= self.band

    def test_noise_that_is_left_out_where_nothing_was_clipped_is_caught(self) -> None:
        """Planted: the answer without its noise; here nothing is ever clipped."""

        def silent(answer: Answer, theta: Tensor) -> Answer:
            return Answer(self.curvature * theta.expand_as(answer.value), answer.scale)

        assert abs(self.ratio(silent) - 1) > self.band

    def test_noise_that_is_used_again_is_caught(self) -> None:
        """Planted: the first answer's noise at every step."""
        first: list[Tensor] = []

        def again(answer: Answer, theta: Tensor) -> Answer:
            first.append(answer.value - self.curvature * theta)
            return Answer(self.curvature * theta + first[0], answer.scale)

        assert abs(self.ratio(again) - 1) > self.band


class TestNoise:
    """Answers of a real Poisson oracle about gradients of zero: nothing but noise is left."""

    units, dimension, asks, sigma = 1000, 400, 150, 3.0

    def noise(self, parts: int) -> tuple[Tensor, float]:
        """Return the noise of many answers, shape (asks, p), and its standard deviation as it should be."""
        features = torch.zeros(self.units, self.dimension, dtype=torch.float64)
        data, known = squared(features, torch.zeros(self.units, dtype=torch.float64))
        oracle = PoissonOracle(data, known, CountingFilter(), repeatable_generator(), parts)
        question = Gradient(sigma=self.sigma, clip=CLIP)
        theta = torch.zeros(self.dimension, dtype=torch.float64)
        told = [oracle.ask(question, theta) for _ in range(self.asks)]
        expected = self.sigma * CLIP / (self.units * parts / 2**64)
        assert told[0].scale == pytest.approx(expected, rel=3e-3), "sigma C/(q n), and what the lattice adds"
        return torch.stack([one.value for one in told]), told[0].scale

    @pytest.mark.parametrize("parts", [2**64 // 10, 1], ids=["a tenth", "an empty sample, always"])
    def test_has_its_size_and_its_law_whoever_is_in_the_sample(self, parts: int) -> None:
        noise, scale = self.noise(parts)
        scaled = (noise / scale).flatten()
        assert abs(float(scaled.square().mean()) - 1) <= MOST_Z * sqrt(2 / len(scaled))
        assert stats.kstest(scaled.numpy(), "norm").pvalue > 1e-5

    def test_is_uncorrelated_between_coordinates_and_steps(self) -> None:
        noise, scale = self.noise(2**63)
        scaled = noise / scale
        pairs = ((scaled[:, 1:], scaled[:, :-1]), (scaled[1:], scaled[:-1]))
        for one, other in pairs:
            assert abs(float((one * other).mean()) * sqrt(one.numel())) <= MOST_Z

    @pytest.mark.parametrize("factor", [1.05, 0.95, 1 / 100, 100])
    def test_noise_of_another_size_is_caught(self, factor: float) -> None:
        """Planted: 5 % more or less, divided by the batch twice or not at all."""
        noise, scale = self.noise(2**64 // 10)
        scaled = (factor * noise / scale).flatten()
        assert abs(float(scaled.square().mean()) - 1) > MOST_Z * sqrt(2 / len(scaled))


class TestFunctionalPrivacy:
    """K full samples on worst-case neighbours: the sum of all answers separates them by sqrt(K) S/sw deviations."""

    steps, sigma, replicates, units = 4, 2.0, 100_000, 4

    def separation(self, change: Changing = unchanged) -> float:
        """Return the difference of the statistic's means between two neighbours over its deviation."""
        found = []
        for seed, present in enumerate((0.0, 1.0)):
            features = torch.zeros(self.units, 1, dtype=torch.float64)
            features[0] = present
            data, known = squared(features, torch.full((self.units,), 1e6, dtype=torch.float64))
            settings = ClippedSgdPlan(
                steps=self.steps,
                batch=self.units,
                sigma=self.sigma,
                clip=CLIP,
                step_size=1e-3,
                average=NoMean(),
                radius=1e6,
            )
            simulation = Simulation(data, known, SimulationGenerator(seed), replicates=self.replicates)
            oracle = Changed(simulation, change)
            iterate(settings, oracle)
            found.append(torch.stack(oracle.told).sum(0)[:, 0])
        pooled = sqrt(float(found[0].var() + found[1].var()) / 2)
        return abs(float(found[0].mean() - found[1].mean())) / pooled

    def test_is_the_mu_that_is_priced(self) -> None:
        """Within 3 %, as 200,000 runs tell it; and at mu = 1 that is AGM(epsilon, delta) for a known pair."""
        expected = sqrt(self.steps) / self.sigma
        assert self.separation() == pytest.approx(expected, rel=0.03)
        assert gdp_mu(1.0, 1e-5) == pytest.approx(1 / 3.730632, rel=1e-6)
        assert gdp_mu(8.0, 1e-6) > expected > gdp_mu(1.0, 1e-5)

    @pytest.mark.parametrize("factor", [0.8, 1.2, 1 / 4, 4])
    def test_noise_of_another_size_is_caught(self, factor: float) -> None:
        """Planted: noise a fifth smaller or larger, divided by the batch again, or not divided."""

        def louder(answer: Answer, _theta: Tensor) -> Answer:
            exact = answer.value.mean(0, keepdim=True)
            return Answer(exact + factor * (answer.value - exact), answer.scale)

        assert self.separation(louder) != pytest.approx(sqrt(self.steps) / self.sigma, rel=0.03)


def test_a_sampled_sum_is_divided_by_the_expected_size() -> None:
    """Var of the mean of a constant gradient is |v|^2 (1 - q)/(n q); dividing by the realised size would leave none."""
    units, rate, replicates = 400, 0.25, 3000
    features = torch.ones(units, 1, dtype=torch.float64)
    data, known = squared(features, torch.full((units,), -1e6, dtype=torch.float64))
    settings = ClippedSgdPlan(
        steps=1, batch=int(units * rate), sigma=1e-3, clip=CLIP, step_size=1.0, average=NoMean(), radius=1e6
    )
    simulation = Simulation(
        data, known, SimulationGenerator(8), replicates=replicates, noiseless=True, sampling=settings.sampling(known)
    )
    moved = -iterate(settings, simulation)[0].theta[:, 0]
    assert abs(float(moved.mean()) - CLIP) <= MOST_Z * CLIP * sqrt((1 - rate) / (units * rate) / replicates)
    expected = CLIP**2 * (1 - rate) / (units * rate)
    assert abs(float(moved.var()) / expected - 1) <= MOST_Z * sqrt(2 / replicates)


def test_nothing_is_asked_but_one_gradient_a_step() -> None:
    """No best iterate, no loss, no norm: the returned point is made of K answers about samples."""
    known = facts(2000, 4)
    settings = ClippedSgd(steps=9, batch=100).plan(known, 1.0)
    oracle = Changed(Simulation(problem(2000, 4), known, SimulationGenerator(1), sampling=settings.sampling(known)))
    iterate(settings, oracle)
    assert oracle.asked == list(settings.questions()) * 9


class TestPlan:
    def test_calibrates_noise_to_what_is_allowed_and_keeps_its_own_plan(self) -> None:
        known = facts(5000, 4)
        settings = ClippedSgd(steps=100, batch=250).plan(known, 0.5)
        assert settings.sigma is not None
        less = settings.model_copy(update={"sigma": settings.sigma * 0.999})
        with pytest.raises(Invalid, match="more than the privacy target"):
            less.calibrated(known, lambda event: event == settings.drawn(known))
        assert settings.plan(known, 50.0) == settings
        assert None not in settings.model_dump().values()

    def test_more_noise_for_more_steps_larger_batches_and_smaller_targets(self) -> None:
        known = facts(5000, 4)

        def sigma(mu: float = 1.0, **changes: object) -> float:
            planned = ClippedSgd.model_validate({"steps": 100, "batch": 250} | changes).plan(known, mu)
            assert planned.sigma is not None
            return planned.sigma

        assert sigma() < sigma(steps=200)
        assert sigma() < sigma(batch=500)
        assert sigma() < sigma(mu=0.5)

    @pytest.mark.parametrize(
        ("changes", "pointer"),
        [
            ({"batch": 3000}, "/optimizer/batch"),
            ({"steps": 5, "average": {"kind": "tail", "steps": 6}}, "/optimizer/average/steps"),
            ({"steps": 5, "warm_up": 5}, "/optimizer/warm_up"),
            ({"clip": 100.0}, "/optimizer/clip"),
        ],
    )
    def test_figures_that_contradict_each_other_are_refused(self, changes: dict[str, object], pointer: str) -> None:
        with pytest.raises(Invalid) as refused:
            ClippedSgd.model_validate(changes).plan(facts(2000, 4), 1.0)
        assert [one.pointer for one in refused.value.fields] == [pointer]

    def test_is_refused_where_a_unit_may_change_into_any_other(self) -> None:
        with pytest.raises(AdjacencyMismatch) as refused:
            ClippedSgd().plan(facts(2000, 4, adjacency=Adjacency.REPLACE_ONE), 1.0)
        assert refused.value.fields[0].pointer == "/optimizer"


def test_an_iterate_outside_the_radius_is_a_failure() -> None:
    known = facts(2000, 4)
    settings = ClippedSgd(steps=9, batch=100, radius=1e-6).plan(known, 1.0)
    with pytest.raises(Diverged):
        fit(settings, Simulation(problem(2000, 4), known, SimulationGenerator(1), sampling=settings.sampling(known)))


def test_a_start_that_coins_made_survives_a_loss() -> None:
    known = facts(2000, 4)
    settings = ClippedSgd(steps=6, batch=100, start="random", rule={"kind": "adam"}).plan(known, 1.0)

    class Lost(LastState):
        def keep(self, state: dict[str, Tensor], step: int) -> None:
            super().keep({name: value.clone() for name, value in state.items()}, step)
            if step == 3 and not self.again:
                self.again = True
                raise KeyboardInterrupt

        again = False

    payments = UnlimitedFilter(Lost())

    def oracle(seed: int) -> Simulation:
        data = problem(2000, 4)
        return Simulation(data, known, SimulationGenerator(seed), payments=payments, sampling=settings.sampling(known))

    with pytest.raises(KeyboardInterrupt):
        iterate(settings, oracle(1))
    kept = payments.log.resume()
    assert kept is not None
    start = kept["start"]
    assert torch.linalg.vector_norm(start) == pytest.approx(1.0)
    estimate, _ = iterate(settings, oracle(2))
    assert torch.equal(estimate.start, start)
    assert estimate.steps == 6
