"""The proximal-point method's rates on sharp losses, and the printed prox weight's failure there (experiment 5).

F(w) = |w - m|^p to the right of m and 4 |w - m|^p to the left, equal for all units, has kappa = p/(p-1). The claim is
an excess of x^kappa up to constants, x = gamma L0 sqrt(T d)/(n sqrt(rho)). An independent simulation gave slopes of log
median excess in log x of 1.91, 2.88 and 3.90 for kappa = 2, 3, 4 with the scheduled weight, and 1.80 and 1.84 for 3 and
4 with the printed one, whose excess over x^kappa drifts. Rounds, steps and noise are the extensions that those runs
used. Runs are lanes of one; seeds are fixed. A run takes 4 n^2/d steps, so the quick study has few units.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from core.catalogue.kl.condition import KlCondition
from core.catalogue.kl.problems import robust_phase_retrieval
from core.catalogue.kl.proximal_point import ProximalPoint
from core.catalogue.losses import Clip
from core.catalogue.nonconvex_losses import RobustPhase
from core.catalogue.questions import Gradient, Question
from core.mechanisms.generator import SimulationGenerator
from core.optimizers.proximal_point import iterate
from core.oracle.simulation import Simulation
from core.privacy.facts import Adjacency, Facts
from core.problems import SyntheticProblem
from core.problems.linear import LinearProblem
from core.problems.powers import PowerProblem

LANES, STEEPNESS, MU = 41, 4.0, sqrt(2)
"""rho = 1."""
QUICK, SLOW = (60, 100), (60, 150, 300)
SLACK, DRIFT, FAILING = 0.3, 4.0, 2.3
"""How far a slope may be from kappa, by what factor the excess over x^kappa may change, and what no right slope is."""


class SteeperToTheLeft:
    """`PowerProblem` in one dimension, in as few operations as can be: a study has a million steps and more."""

    dimension, lanes = 1, None

    def __init__(self, units: int, exponent: float) -> None:
        self.units, self._exponent = units, exponent

    def integer_sum(self, *arguments: object, **named: object) -> Tensor:
        raise AssertionError(f"powers are simulated, not {arguments} {named}")

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        assert isinstance(question, Gradient)
        assert question.bound(facts) >= STEEPNESS * self._exponent, "nothing is clipped"
        assert other is None
        away = theta + 1
        size = away.abs().clamp_(max=1).pow_(self._exponent - 1).mul_(self._exponent * self.units)
        return torch.where(away < 0, -STEEPNESS * size, size)


@dataclass(frozen=True)
class Study:
    """Medians of lanes, for so many units each."""

    kappa: float
    x: np.ndarray
    excess: np.ndarray

    @property
    def slope(self) -> float:
        """Of log excess in log x, by least squares."""
        return float(np.polyfit(np.log(self.x), np.log(self.excess), 1)[0])

    @property
    def drift(self) -> float:
        """Largest over smallest excess/x^kappa."""
        quotients = self.excess / self.x**self.kappa
        return float(quotients.max() / quotients.min())

    def keeps_the_rate(self) -> bool:
        """Say whether excess falls as x^kappa: what the printed weight, silence and shuffled units must fail."""
        return abs(self.slope - self.kappa) <= SLACK and self.drift < DRIFT


def study(
    kappa: float,
    weight: str,
    units: tuple[int, ...],
    *,
    dimension: int = 1,
    lanes: int = LANES,
    noiseless: bool = False,
) -> Study:
    exponent = kappa / (kappa - 1)
    steepness = STEEPNESS if dimension == 1 else 1.0
    asked = ProximalPoint(
        condition=KlCondition(gamma=1 / exponent, kappa=kappa),
        prox_weight=weight,
        pace="practical",
        inner_steps="practical",
        noise="exact",
        max_inner=10_000_000,
    )
    found, resolved = [], []
    for count in units:
        whole = PowerProblem(count, dimension, exponent, steepness=steepness)
        lean: SyntheticProblem = SteeperToTheLeft(count, exponent) if dimension == 1 else whole
        facts = Facts(
            units=count,
            dimension=dimension,
            adjacency=Adjacency.REPLACE_ONE,
            gradient_bound=steepness * exponent,
            weak_convexity=0.0,
            start_gap=1.0,
        )
        settings = asked.plan(facts, MU)
        oracle = Simulation(lean, facts, SimulationGenerator(1), noiseless=noiseless, lanes=lanes)
        estimate, _ = iterate(settings, oracle)
        found.append(float(whole.excess(estimate.theta).median()))
        resolved.append(settings.ground(facts).resolution(settings.max_rho, settings.rounds or 0))
    return Study(kappa, np.array(resolved), np.array(found))


def test_the_lean_problem_is_the_other_one() -> None:
    whole, lean = PowerProblem(70, 1, 1.5, steepness=STEEPNESS), SteeperToTheLeft(70, 1.5)
    facts = Facts(units=70, dimension=1, adjacency=Adjacency.REPLACE_ONE, gradient_bound=6.0)
    points = torch.linspace(-4, 2, 41, dtype=torch.float64).unsqueeze(-1)
    gradient = Gradient(sigma=1.0)
    sums = [one.bounded_sum(gradient, facts, points) for one in (whole, lean)]
    assert torch.allclose(sums[0], sums[1], rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_the_scheduled_weight_keeps_the_rate_and_the_printed_one_does_not_on_few_units() -> None:
    scheduled, paper = (study(4.0, weight, QUICK, lanes=5 * LANES) for weight in ("scheduled", "paper"))
    assert scheduled.keeps_the_rate(), (scheduled.slope, scheduled.drift)
    assert paper.slope < FAILING
    assert not paper.keeps_the_rate(), (paper.slope, paper.drift)
    shuffled = Study(4.0, scheduled.x, scheduled.excess[::-1])
    assert not shuffled.keeps_the_rate()


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [2.0, 3.0, 4.0])
def test_the_scheduled_weight_keeps_the_rate(kappa: float) -> None:
    found = study(kappa, "scheduled", SLOW)
    assert found.keeps_the_rate(), (found.slope, found.drift)


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [3.0, 4.0])
def test_the_printed_weight_does_not(kappa: float) -> None:
    found = study(kappa, "paper", SLOW)
    assert found.slope < FAILING
    assert not found.keeps_the_rate(), (found.slope, found.drift)
    assert found.drift > DRIFT


@pytest.mark.slow
def test_in_five_dimensions_too() -> None:
    scheduled, paper = (study(3.0, weight, (100, 200, 300), dimension=5) for weight in ("scheduled", "paper"))
    assert scheduled.keeps_the_rate(), (scheduled.slope, scheduled.drift)
    assert paper.slope < FAILING


def test_without_noise_there_is_no_rate() -> None:
    silent = study(3.0, "scheduled", (60, 80), lanes=1, noiseless=True)
    assert not silent.keeps_the_rate(), (silent.slope, silent.drift)


@pytest.mark.slow
@pytest.mark.parametrize(("kappa", "sizes"), [(3.0, (150, 300)), (4.0, (200, 300))])
def test_robust_phase_retrieval_is_solved_near_its_solution(kappa: float, sizes: tuple[int, ...]) -> None:
    """|(x.w)^2 - (x.w*)^2| is neither convex nor smooth; it is sharp, and gamma is that of a slope bounded below."""
    dimension, within = 2, 0.2
    constants = robust_phase_retrieval(dimension, kappa, within=within)
    truth = torch.tensor([1.0, 0.0], dtype=torch.float64)
    begin = truth + torch.tensor([0.1, 0.17], dtype=torch.float64)
    assert float((begin - truth).norm()) < within
    excesses = []
    for units in sizes:
        draws = torch.Generator().manual_seed(units)
        rows = torch.randn(units, dimension, generator=draws, dtype=torch.float64)
        rows *= sqrt(dimension) / rows.norm(dim=1, keepdim=True)
        target, present = (rows @ truth).square(), torch.ones(units, dtype=torch.bool)
        loss, weights = RobustPhase(cap=float(dimension)), Clip(bound=constants.lipschitz)
        problem = LinearProblem(rows, target, present, loss, weights)
        asked = ProximalPoint(
            condition=constants.condition,
            start=tuple(begin.tolist()),
            start_gap=constants.start_gap,
            pace="practical",
            inner_steps="practical",
            noise="exact",
            max_inner=10_000_000,
        )
        facts = constants.facts(units, dimension)
        settings = asked.plan(facts, MU)
        estimate, _ = iterate(settings, Simulation(problem, facts, SimulationGenerator(1), lanes=LANES))
        ends = (estimate.theta - truth).norm(dim=1)
        assert float(ends.median()) < within / 2, "nearer than the start, where all constants hold"
        excesses.append((rows @ estimate.theta.T).square().sub(target.unsqueeze(1)).abs().mean(0).median())
        first = float((rows @ begin).square().sub(target).abs().mean())
        assert float(excesses[-1]) < first / 2
    assert float(excesses[1]) < float(excesses[0]) / 2


def test_at_kappa_two_both_weights_are_one() -> None:
    weights = [study(2.0, weight, (40,), lanes=3) for weight in ("scheduled", "paper")]
    assert weights[0].excess[0] == weights[1].excess[0]
