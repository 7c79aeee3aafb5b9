"""The proximal-point method against its own pseudocode, and the bugs that are easily made in it.

`told_again` is the pseudocode, one line a line, with recorded answers in place of records; each planted bug is an
argument of it, and must lead elsewhere. Seeds are fixed.
"""

from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Literal

import pytest
import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.mechanisms.generator import SimulationGenerator
from core.methods.kl.condition import KlCondition
from core.methods.kl.proximal_point.fit import iterate
from core.methods.kl.proximal_point.spec import ProximalPoint, ProximalPointPlan
from core.oracle import Status
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.privacy.conversions import rho_of_mu
from core.privacy.events import NOTHING, Zcdp, compose
from core.privacy.facts import Adjacency, Facts
from studies.kl.powers import PowerProblem
from tests.support import problems as support
from tests.support.pathwise import (
    Blind,
    Recording,
    canaries,
    check_branches,
    check_dominated,
    facts_of,
    likelihood_ratio,
    told,
)

UNITS, DIMENSION, EXPONENT, REPLICATES = 300, 3, 1.5, 400
MU = sqrt(2)
CONDITION = KlCondition(gamma=1 / EXPONENT, kappa=3)
PRACTICAL = ProximalPoint(condition=CONDITION, round_schedule="practical", inner_steps="practical", max_inner=15)

Bug = Literal["half weight", "plain mean", "no ball", "clipped prox", "old centre", "flat steps", "no ridge"]


def public(ridge: float = 0.0) -> Facts:
    return Facts(
        units=UNITS,
        dimension=DIMENSION,
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=EXPONENT,
        weak_convexity=0.0,
        start_gap=1.0,
        ridge=ridge,
    )


def problem() -> PowerProblem:
    return PowerProblem(UNITS, DIMENSION, EXPONENT)


def simulation(facts: Facts, *, noiseless: bool = False, replicates: int | None = None, seed: int = 1) -> Simulation:
    return Simulation(problem(), facts, SimulationGenerator(seed), noiseless=noiseless, replicates=replicates)


@dataclass
class Watched(Recording):
    """Records the states that a run offers, too."""

    def __init__(self, real: Simulation) -> None:
        super().__init__(real)
        self.states: list[dict[str, Tensor]] = []

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        assert step == len(self.states) + 1, "every step is kept"
        self.states.append({name: value.clone() for name, value in state.items()})
        super().keep(state, step)


def told_again(settings: ProximalPointPlan, oracle: Recording, bug: Bug | None = None) -> tuple[list[Tensor], Tensor]:
    """Return the points that the pseudocode asks about, and what it returns."""
    facts, left = oracle.facts, [one.answer.value for one in oracle.releases]
    points, asked, zero = settings.solver_steps, [], torch.zeros(DIMENSION, dtype=torch.float64)
    centre = zero
    for one in settings.arithmetic(facts).rounds:
        weight = one.weight / 2 if bug == "half weight" else one.weight
        ridge = 0.0 if bug == "no ridge" else facts.ridge
        middle = 2 * weight * centre / (2 * weight + ridge)
        radius = facts.gradient_bound / (2 * weight + ridge)
        theta = zero if bug == "old centre" else centre
        visited = [theta]
        for t in range(1, points):
            asked.append(theta)
            prox = 2 * weight * (theta - centre)
            if bug == "clipped prox":
                prox = _projected(prox, zero, facts.gradient_bound / 20)
            slope = left.pop(0) + ridge * theta + prox
            theta = theta - slope / (weight * (1 if bug == "flat steps" else t))
            theta = theta if bug == "no ball" else _projected(theta, middle, radius)
            visited.append(theta)
        weights = [1.0 if bug == "plain mean" else float(t) for t in range(1, points + 1)]
        centre = sum((w * v for w, v in zip(weights, visited, strict=True)), zero) / sum(weights)
    assert not left
    return asked, centre


@cache
def genuine() -> tuple[ProximalPointPlan, Watched, Estimate]:
    """Return a run that every planted bug is compared with."""
    facts = public(0.7)
    settings = PRACTICAL.plan(facts, MU)
    oracle = Watched(simulation(facts))
    return settings, oracle, iterate(settings, oracle)[0]


def _projected(point: Tensor, middle: Tensor, radius: float) -> Tensor:
    away = point - middle
    return middle + away * min(1.0, radius / max(float(away.norm()), 1e-300))


@pytest.mark.parametrize("weight", ["scheduled", "paper"])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_it_is_the_pseudocode(weight: str, ridge: float) -> None:
    facts = public(ridge)
    settings = PRACTICAL.model_copy(update={"prox_weight": weight}).plan(facts, MU)
    oracle = Watched(simulation(facts))
    estimate, status = iterate(settings, oracle)
    asked, final = told_again(settings, oracle)
    assert status is Status.FINISHED
    assert len(asked) == len(oracle.releases) == settings.steps
    for one, point in zip(oracle.releases, asked, strict=True):
        assert torch.allclose(one.theta, point, rtol=0, atol=1e-12)
    assert torch.allclose(estimate.theta, final, rtol=0, atol=1e-12)
    assert estimate.steps == settings.steps
    assert estimate.scale == oracle.releases[0].answer.scale
    assert not bool(estimate.left)


@pytest.mark.parametrize(
    "bug", ["half weight", "plain mean", "no ball", "clipped prox", "old centre", "flat steps", "no ridge"]
)
def test_a_planted_bug_leads_elsewhere(bug: Bug) -> None:
    settings, oracle, estimate = genuine()
    _, final = told_again(settings, oracle, bug)
    assert float((estimate.theta - final).norm()) > 1e-4


def test_telescoping_steps_are_twice_as_long_in_the_long_run() -> None:
    facts = public()
    printed, telescoping = (
        PRACTICAL.model_copy(update={"step_rule": rule}).plan(facts, MU) for rule in ("printed", "telescoping")
    )
    assert [printed.rate(0.5, t) for t in (1, 2, 4)] == [2, 1, 0.5]
    assert [telescoping.rate(0.5, t) for t in (1, 3, 7)] == [2, 1, 0.5]
    found = [iterate(one, simulation(facts, noiseless=True))[0] for one in (printed, telescoping)]
    assert not torch.equal(found[0].theta, found[1].theta)


def test_it_finds_the_minimum_without_noise_and_better_with_a_ridge_counted() -> None:
    longer = PRACTICAL.model_copy(update={"max_inner": 60})
    found, _ = iterate(longer.plan(public(), MU), simulation(public(), noiseless=True))
    assert float(problem().excess(found.theta)) < 1e-3
    facts = public(0.7)
    held, _ = iterate(longer.plan(facts, MU), simulation(facts, noiseless=True))
    slope = problem().mean_gradient(held.theta) + 0.7 * held.theta
    assert float(slope.norm()) < 1e-2


def test_all_iterates_stay_in_the_balls_whatever_the_noise() -> None:
    facts = public(0.2)
    loud = PRACTICAL.plan(facts, MU).model_copy(update={"sigma": 1e6})
    oracle = Watched(simulation(facts))
    iterate(loud, oracle)
    course = loud.arithmetic(facts)
    centre = torch.zeros(DIMENSION, dtype=torch.float64)
    for number, state in enumerate(oracle.states, 1):
        one = course.rounds[(number - 1) // (loud.solver_steps - 1)]
        assert float((state["theta"] - one.shrinkage * centre).norm()) <= one.radius * (1 + 1e-12)
        assert float(state["theta"].norm()) <= course.reach * (1 + 1e-12)
        centre = state["centre"]


def test_a_start_beyond_where_any_minimiser_can_be_is_brought_back_first() -> None:
    facts = public(0.7)
    far = PRACTICAL.model_copy(update={"start": (30.0, 0.0, 0.0), "start_gap": 1.0}).plan(facts, MU)
    oracle = Watched(simulation(facts))
    estimate, _ = iterate(far, oracle)
    first = far.arithmetic(facts).rounds[0]
    begun = oracle.releases[0].theta
    assert float(begun[0]) == pytest.approx(first.shrinkage * 30 + first.radius, rel=1e-12)
    assert estimate.start.tolist() == [30.0, 0.0, 0.0]
    assert float((estimate.theta - estimate.start).norm()) <= far.arithmetic(facts).reach


def test_replicates_are_runs_of_their_own() -> None:
    facts = public()
    settings = PRACTICAL.plan(facts, MU)
    alone, _ = iterate(settings, simulation(facts, noiseless=True))
    silent, _ = iterate(settings, simulation(facts, noiseless=True, replicates=3))
    assert torch.allclose(silent.theta, alone.theta.expand(3, -1), rtol=0, atol=1e-14)
    assert silent.left.shape == (3,)
    assert silent.error_bound is None
    noisy, _ = iterate(settings, simulation(facts, replicates=REPLICATES))
    assert noisy.theta.shape == (REPLICATES, DIMENSION)
    spread = noisy.theta.std(0)
    assert float(spread.min()) > 0
    centred = (noisy.theta - noisy.theta.mean(0)) / spread
    assert float((centred[1:] * centred[:-1]).mean().abs()) < 4.5 / sqrt(REPLICATES * DIMENSION)


class Resumed(Blind):
    """Goes on from a state, with the answers that were given after it."""

    def __init__(self, recorded: Watched, step: int) -> None:
        super().__init__(recorded.facts, recorded.releases[step:], UnlimitedFilter())
        self._state = recorded.states[step - 1]

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        assert initial.keys() == self._state.keys()
        return self._state


def test_it_goes_on_from_any_step_as_if_nothing_had_been_lost() -> None:
    facts = public(0.1)
    settings = PRACTICAL.model_copy(update={"start": (0.1, 0.2, 0.3), "max_inner": 4}).plan(facts, MU)
    oracle = Watched(simulation(facts))
    whole, _ = iterate(settings, oracle)
    ends = {settings.solver_steps - 1, settings.solver_steps, settings.steps - 1, settings.steps}
    for step in {*range(1, settings.steps + 1, 5), *ends}:  # 5 and the steps of a round have no common factor
        again, _ = iterate(settings, Resumed(oracle, step))
        assert torch.equal(again.theta, whole.theta)
        assert (again.scale, again.step, again.steps) == (whole.scale, whole.step, whole.steps)


def test_where_nothing_is_promised_the_start_is_returned_and_nothing_asked() -> None:
    facts = public()
    settings = ProximalPointPlan(
        condition=CONDITION,
        constant=1e4,
        weak_convexity=0.0,
        start_gap=1.0,
        mu=MU,
        start=(0.5, 0.0, 0.0),
        max_inner=2,
        rounds=1,
        solver_steps=2,
        sigma=1.0,
    )
    oracle = simulation(facts)
    estimate, status = iterate(settings, oracle)
    assert oracle.release(estimate, status).event == NOTHING
    assert estimate.theta.tolist() == [0.5, 0.0, 0.0]
    assert estimate.error_bound is not None
    assert estimate.error_bound.ended_by == "trivial_regime"
    assert (estimate.error_bound.value, estimate.error_bound.confidence) == (1.0, 1.0)


def test_a_run_tells_which_form_made_it_and_what_is_proved_of_it() -> None:
    facts = public()
    estimate, _ = iterate(PRACTICAL.plan(facts, MU), simulation(facts))
    assert estimate.error_bound is not None
    assert estimate.error_bound.value is None
    assert estimate.error_bound.variant == "scheduled, practical rounds, practical inner steps"


def test_a_real_oracle_says_the_same_and_is_paid_what_was_priced() -> None:
    records = support.problem(400, 3, support.HUBER)
    facts = support.facts(400, 3, support.HUBER).model_copy(update={"weak_convexity": 0.0, "ridge": 0.5})
    settings = PRACTICAL.model_copy(update={"condition": None, "noise": "exact"}).plan(facts, 3e4)
    price = compose(settings.schedule(facts).counted())
    oracle = FullOracle(records, facts, CountingFilter(priced=price), support.repeatable_generator())
    estimate, status = iterate(settings, oracle)
    assert oracle.release(estimate, status).event == price
    silent = Simulation(records, facts, SimulationGenerator(1), noiseless=True)
    assert torch.allclose(estimate.theta, iterate(settings, silent)[0].theta, rtol=0, atol=1e-4)


class TestPathwise:
    """The exact leakage of each answer about one record (audits A1, A2 and A5)."""

    SETTINGS = ProximalPoint(
        condition=KlCondition(gamma=1.0, kappa=2), round_schedule="practical", inner_steps="practical", max_inner=6
    )

    def run(
        self, settings: ProximalPoint, facts: Facts, adjacency: Adjacency, replicates: int | None = None
    ) -> Recording:
        records, _ = canaries(facts.units, DIMENSION, adjacency=adjacency)
        payments = CountingFilter(priced=Zcdp(rho=rho_of_mu(MU)))
        oracle = Recording(Simulation(records, facts, SimulationGenerator(3), replicates=replicates, payments=payments))
        iterate(settings, oracle)
        return oracle

    @pytest.mark.parametrize("adjacency", list(Adjacency))
    @pytest.mark.parametrize("noise", ["exact", "printed"])
    def test_no_answer_tells_more_than_it_is_charged_and_all_together_no_more_than_the_budget(
        self, adjacency: Adjacency, noise: str
    ) -> None:
        records, changed = canaries(1000, DIMENSION, adjacency=adjacency)
        facts = facts_of(records, bound=1.0, adjacency=adjacency, start_gap=0.5)
        settings = self.SETTINGS.model_copy(update={"noise": noise}).plan(facts, MU)
        oracle = self.run(settings, facts, adjacency)
        ratios = check_dominated(oracle.releases, records, changed, facts)
        assert float(ratios.min()) > 0.99
        total = float(told(oracle.releases, records, changed, facts).sum())
        assert total <= 1
        assert total == pytest.approx(settings.rho, rel=0.01)
        if noise == "exact":
            assert total > 0.99

    def test_a_round_that_spends_the_whole_budget_is_stopped(self) -> None:
        records, _ = canaries(1000, DIMENSION)
        facts = facts_of(records, bound=1.0, start_gap=0.5)
        settings = self.SETTINGS.model_copy(update={"noise": "exact"}).plan(facts, MU)
        greedy = settings.model_copy(update={"sigma": settings.sigma / sqrt(settings.rounds)})
        with pytest.raises(AssertionError, match="never exceeds"):
            self.run(greedy, facts, Adjacency.REPLACE_ONE)

    def test_the_likelihood_ratio_of_a_whole_run_has_the_mean_that_was_charged(self) -> None:
        records, changed = canaries(1000, DIMENSION)
        facts = facts_of(records, bound=1.0, start_gap=0.5)
        settings = self.SETTINGS.model_copy(update={"noise": "exact"}).plan(facts, MU)
        oracle = self.run(settings, facts, Adjacency.REPLACE_ONE, replicates=REPLICATES)
        ratio = likelihood_ratio(oracle.releases, records, changed, facts)
        error = float(ratio.std()) / sqrt(REPLICATES)
        realised = settings.rho  # told without replicates: canaries differ by all they may at every point
        assert float(ratio.mean()) <= 1 + 4.5 * error
        assert abs(float(ratio.mean()) - realised) <= 4.5 * error + 0.01

    def test_every_branch_follows_from_what_was_told(self) -> None:
        records, _ = canaries(1000, DIMENSION)
        facts = facts_of(records, bound=1.0, start_gap=0.5)
        settings = self.SETTINGS.plan(facts, MU)
        oracle = self.run(settings, facts, Adjacency.REPLACE_ONE)

        def again(blind: Blind) -> Estimate:
            return iterate(settings, blind)[0]

        payments = CountingFilter(priced=Zcdp(rho=rho_of_mu(MU)))
        result = check_branches(again, oracle, payments=payments)
        assert isinstance(result, Estimate)
        assert torch.equal(result.theta, iterate(settings, Blind(facts, oracle.releases, UnlimitedFilter()))[0].theta)
