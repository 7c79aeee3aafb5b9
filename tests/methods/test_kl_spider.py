"""KL-Spider's loop: its corrections by what each changes, its noise, its replicates, and going on after a loss."""

from math import inf, sqrt

import pytest
import torch
from torch import Tensor

from core.base.errors import Diverged
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.methods.kl.condition import KlCondition
from core.methods.kl.spider.fit import iterate, walk
from core.methods.kl.spider.schedule import SpiderConstants, SpiderRound, SpiderSchedule
from core.methods.kl.spider.spec import KlSpider, KlSpiderPlan
from core.oracle import Answer, Oracle, Status
from core.oracle.filters import CountingFilter, LastState, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.privacy.events import NOTHING, compose
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientDifference, Question
from studies.kl.powers import PowerProblem
from tests.support.pathwise import (
    Blind,
    Recording,
    Told,
    canaries,
    check_branches,
    check_dominated,
    facts_of,
    likelihood_ratio,
    told,
)
from tests.support.printed_spider import printed_course, printed_walk
from tests.support.problems import facts as oracle_facts
from tests.support.problems import problem as oracle_problem

UNITS, DIMENSION = 100_000, 3
SQUARE = PowerProblem(UNITS, DIMENSION, 2.0)
"""|w + e_1|^2: at zero it is 1, with a gradient of length 2; at distance r from its minimiser of length 2 r."""
CUBE = PowerProblem(10_000, DIMENSION, 3.0)
START = torch.zeros(DIMENSION, dtype=torch.float64)
LOUD, QUIET = 2000.0, 1500.0


def round_of(steps: int, threshold: float, step: float = 0.1, sigma: float = LOUD) -> SpiderRound:
    return SpiderRound(1.0, steps, threshold, step, 2 * step, sigma, QUIET if steps > 1 else None)


def course_of(*rounds: SpiderRound) -> SpiderSchedule:
    return SpiderSchedule(None, rounds, len(rounds), 0.01, 1.0)


def public(problem: PowerProblem = SQUARE, **changes: float) -> Facts:
    return problem.constants.facts(problem.units, problem.dimension).model_copy(update=changes)


def silent(problem: PowerProblem = SQUARE, **changes: float) -> Recording:
    """Return an oracle that tells the truth."""
    return Recording(Simulation(problem, public(problem, **changes), SimulationGenerator(0), noiseless=True))


def distance(theta: Tensor) -> float:
    return float((theta - SQUARE.minimiser).norm())


def kinds(oracle: Recording) -> str:
    return "".join("g" if isinstance(one.question, Gradient) else "d" for one in oracle.releases)


class TestRounds:
    """On |w + e_1|^2 without noise: each step of .1 brings the distance from 1 down by .1."""

    def test_a_round_ends_at_the_point_whose_estimate_is_short(self) -> None:
        """2 r < 1.05 first holds at r = .5; as printed, the point before it is kept."""
        oracle = silent()
        state = walk(course_of(round_of(50, 1.05)), START, inf, oracle)
        assert distance(state.theta) == pytest.approx(0.5)
        assert kinds(oracle) == "gddddd"
        assert int(state.taken) == 5
        assert distance(printed_walk(course_of(round_of(50, 1.05)), START, silent())) == pytest.approx(0.6)

    @pytest.mark.parametrize("steps", [1, 2, 3])
    def test_a_round_has_exactly_its_steps_and_no_difference_after_the_last(self, steps: int) -> None:
        """As printed there is one update more, whose point is dropped, and a difference after it."""
        oracle, printed = silent(), silent()
        state = walk(course_of(round_of(steps, 1e-3)), START, inf, oracle)
        assert distance(state.theta) == pytest.approx(1 - 0.1 * steps)
        assert kinds(oracle) == "g" + "d" * (steps - 1)
        printed_walk(course_of(round_of(steps, 1e-3)), START, printed)
        assert kinds(printed) == "g" + "d" * (steps + 1)

    def test_a_round_may_end_where_it_begins(self) -> None:
        oracle = silent()
        state = walk(course_of(round_of(5, 2.1)), START, inf, oracle)
        assert torch.equal(state.theta, START)
        assert kinds(oracle) == "g"
        assert int(state.taken) == 0

    def test_an_estimate_as_long_as_the_threshold_is_not_short(self) -> None:
        state = walk(course_of(round_of(1, 2.0)), START, inf, silent())
        assert distance(state.theta) == pytest.approx(0.9)

    def test_the_next_round_begins_with_a_new_gradient_where_the_last_one_ended(self) -> None:
        oracle = silent()
        state = walk(course_of(round_of(3, 1.7), round_of(2, 0.1, step=0.05)), START, inf, oracle)
        assert kinds(oracle) == "gddgd"
        assert torch.equal(oracle.releases[3].theta, oracle.releases[2].other)
        assert distance(state.theta) == pytest.approx(0.8 - 2 * 0.05)

    def test_every_step_has_the_round_s_length_whatever_the_gradient(self) -> None:
        cube = PowerProblem(UNITS, DIMENSION, 3.0)
        oracle = Recording(Simulation(cube, public(cube), SimulationGenerator(5)))
        walk(course_of(round_of(6, 1e-9, step=0.2)), START, inf, oracle)
        lengths = [float((one.other - one.theta).norm()) for one in oracle.releases if one.other is not None]
        assert lengths == pytest.approx([0.2] * 5, rel=1e-12)

    def test_differences_are_asked_with_the_schedule_s_cap_and_noise_and_the_settings_clip(self) -> None:
        oracle = silent()
        walk(course_of(round_of(2, 1e-3)), START, inf, oracle, clip=1.5)
        assert oracle.releases[0].question == Gradient(sigma=LOUD, clip=1.5)
        assert oracle.releases[1].question == GradientDifference(sigma=QUIET, cap=0.2, clip=1.5)

    def test_a_ridge_is_added_to_the_estimate_and_never_clipped(self) -> None:
        """A step is along the mean gradient plus the ridge times theta, here longer than any unit's may be."""
        oracle = silent(ridge=1000.0)
        start = torch.tensor([0.0, 0.01, 0.0], dtype=torch.float64)
        state = walk(course_of(round_of(1, 1e-3)), start, inf, oracle)
        along = oracle.releases[0].answer.value + 1000.0 * start
        torch.testing.assert_close(state.theta, start - 0.1 * along / along.norm())

    def test_the_corrected_loop_written_twice_is_the_same(self) -> None:
        settings, facts = planned(CUBE)
        course = settings.course(facts)
        once, twice = (Recording(Simulation(CUBE, facts, SimulationGenerator(2))) for _ in range(2))
        theta = walk(course, START, inf, once).theta
        torch.testing.assert_close(theta, printed_walk(course, START, twice, corrected=True), rtol=0, atol=1e-12)
        assert len(once.releases) == len(twice.releases)


def planned(problem: PowerProblem, **options: object) -> tuple[KlSpiderPlan, Facts]:
    """Return settings with nothing open, calibrated unless said otherwise, at rho = 1."""
    facts = public(problem)
    usual = {"condition": problem.constants.condition, "variant": "calibrated"}
    return KlSpider.model_validate(usual | options).plan(facts, sqrt(2)), facts


class Keeping(LastState):
    """Holds every state it was offered."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[dict[str, Tensor]] = []

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        assert step == len(self.states) + 1, "a state is kept after each answer"
        self.states.append({name: value.clone() for name, value in state.items()})


class Resumed(Blind):
    """Gives again the answers after a state, and that state."""

    def __init__(self, facts: Facts, releases: list[Told], state: dict[str, Tensor]) -> None:
        super().__init__(facts, releases, UnlimitedFilter())
        self._state = state

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        assert self._state.keys() == initial.keys(), "a state is whole"
        return self._state


class OneReplicate:
    """Gives one replicate of a recorded run its answers again; skips questions that only other replicates asked."""

    def __init__(self, recorded: Recording, replicate: int) -> None:
        self.facts, self._left, self._replicate = recorded.facts, list(recorded.releases), replicate

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        while self._left:
            one = self._left.pop(0)
            if one.question == question and (other is None or torch.equal(self._of(one.other), other)):
                assert torch.equal(self._of(one.theta), theta), "it is asked at the same point"
                return Answer(self._of(one.answer.value), one.answer.scale)
        raise AssertionError("this replicate was asked nothing else")

    def _of(self, replicates: Tensor | None) -> Tensor:
        assert replicates is not None
        return replicates if replicates.ndim == 1 else replicates[self._replicate]

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return initial

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Nothing to keep."""


def _error_of(problem: PowerProblem, one: Told) -> Tensor:
    """Return what a difference's answer is off by."""
    assert one.other is not None
    return one.answer.value - problem.mean_gradient(one.other) + problem.mean_gradient(one.theta)


class TestNoise:
    def test_it_accumulates_in_the_estimate(self) -> None:
        """Var(G_t - mean gradient) = sigma_0^2 + t sigma_k^2, to 3 %: over six standard errors of 100,000 draws."""
        keeping = Keeping()
        problem = PowerProblem(UNITS, 5, 2.0, radius=10.0)
        oracle = Recording(
            Simulation(
                problem, public(problem), SimulationGenerator(7), replicates=20_000, payments=UnlimitedFilter(keeping)
            )
        )
        one = SpiderRound(1.0, 6, 1e-9, 0.02, 0.04, 300.0, 100_000.0)
        walk(course_of(one), torch.zeros(5, dtype=torch.float64), inf, oracle)
        scales = [told.answer.scale for told in oracle.releases]
        assert len(scales) == 6
        assert 0.5 < scales[1] / scales[0] < 2
        for count, state in enumerate(keeping.states):
            error = state["slope"] - problem.mean_gradient(state["theta"])
            expected = scales[0] ** 2 + count * scales[1] ** 2
            assert float(error.var()) == pytest.approx(expected, rel=0.03)
        last = [told.answer.value for told in oracle.releases[-2:]]
        changes = [
            problem.mean_gradient(told.other) - problem.mean_gradient(told.theta) for told in oracle.releases[-2:]
        ]
        errors = torch.stack([(value - exact).flatten() for value, exact in zip(last, changes, strict=True)])
        assert abs(float(torch.corrcoef(errors)[0, 1])) < 4.5 / sqrt(100_000)

    def test_it_depends_on_what_was_released_alone(self) -> None:
        settings, facts = planned(CUBE)
        oracle = Recording(Simulation(CUBE, facts, SimulationGenerator(3)))
        estimate, status = iterate(settings, oracle)
        again = check_branches(lambda blind: iterate(settings, blind), oracle, payments=UnlimitedFilter())
        assert torch.equal(again[0].theta, estimate.theta)
        assert status is Status.FINISHED

    def test_a_replicate_is_a_single_run(self) -> None:
        settings, facts = planned(CUBE)
        oracle = Recording(Simulation(CUBE, facts, SimulationGenerator(3), replicates=6))
        replicates, _ = iterate(settings, oracle)
        assert replicates.error_bound is None
        assert len(set(replicates.steps.tolist())) > 1
        for replicate in range(6):
            single, _ = iterate(settings, OneReplicate(oracle, replicate))
            assert torch.equal(single.theta, replicates.theta[replicate])
            assert int(single.steps) == int(replicates.steps[replicate])


class TestPrivacy:
    """The exact audit: the leakage of each release about one record, beside its charge."""

    @pytest.mark.parametrize("adjacency", list(Adjacency))
    @pytest.mark.parametrize("kappa", [2.0, 1.5])
    @pytest.mark.parametrize("variant", ["proved", "calibrated"])
    def test_no_release_tells_more_than_its_charge_and_some_tell_all(
        self, adjacency: Adjacency, kappa: float, variant: str
    ) -> None:
        """1.0 of the charge at kappa = 2; for differences too, where the canary turns over a step."""
        records, changed = canaries(units=2000, dimension=4, distance=1.5, adjacency=adjacency)
        facts = facts_of(records, bound=1.0, adjacency=adjacency, start_gap=1.0).model_copy(update={"smoothness": 0.5})
        settings = KlSpider(condition=KlCondition(gamma=1.0, kappa=kappa), variant=variant, force=True).plan(
            facts, 20.0 if variant == "proved" else 2.0
        )
        payments = CountingFilter(priced=compose(_counted(settings, facts)))
        oracle = Recording(Simulation(records, facts, SimulationGenerator(4), payments=payments))
        iterate(settings, oracle)
        ratios = check_dominated(oracle.releases, records, changed, facts)
        assert float(told(oracle.releases, records, changed, facts).sum()) <= settings.mu**2 / 2
        for kind in {type(one.question) for one in oracle.releases}:
            of_kind = [ratio for one, ratio in zip(oracle.releases, ratios, strict=True) if type(one.question) is kind]
            assert float(max(of_kind)) > 0.99, kind
        assert ("d" in kinds(oracle)) == (kappa < 2)

    def test_the_printed_budget_is_flagged(self) -> None:
        """The printed noise for rho = 1 tells 2 rho of its gradients alone; as run here, at most rho."""
        records, changed = canaries(units=1000, dimension=4, distance=1.5)
        facts = facts_of(records, bound=1.0, start_gap=1.0).model_copy(update={"smoothness": 0.5})
        ground = SpiderConstants(1000, 4, 2, 1.0, 0.5, 1.0, KlCondition(gamma=1.0, kappa=1.5), 1.0)
        settings = KlSpider(condition=ground.condition, force=True).plan(facts, sqrt(2))
        for course, budget_kept in ((printed_course(ground, 1.0, 0.05), False), (settings.course(facts), True)):
            oracle = Recording(Simulation(records, facts, SimulationGenerator(4)))
            printed_walk(course, torch.zeros(4, dtype=torch.float64), oracle, corrected=budget_kept)
            total = float(told(oracle.releases, records, changed, facts).sum())
            assert total <= 1.0 if budget_kept else total > 1.99

    def test_the_likelihood_ratio_of_whole_runs_keeps_the_budget(self) -> None:
        """Over 400 runs its mean is the leakage of the runs, and at most rho; 4.5 standard errors each."""
        records, changed = canaries(units=2000, dimension=4, distance=1.5)
        facts = facts_of(records, bound=1.0, start_gap=1.0).model_copy(update={"smoothness": 0.5})
        settings = KlSpider(condition=KlCondition(gamma=1.0, kappa=1.5), variant="calibrated").plan(facts, sqrt(2))
        oracle = Recording(Simulation(records, facts, SimulationGenerator(9), replicates=400))
        iterate(settings, oracle)
        ratio = likelihood_ratio(oracle.releases, records, changed, facts)
        spent = told(oracle.releases, records, changed, facts).sum(0)
        assert float(spent.max()) <= 1.0
        error = 4.5 * float((ratio - spent).std()) / sqrt(400)
        assert abs(float((ratio - spent).mean())) < error
        assert 0.7 < float(ratio.mean()) < 1.0 + error

    def test_it_draws_within_its_price(self) -> None:
        settings, facts = planned(CUBE)
        payments = CountingFilter(priced=compose(_counted(settings, facts)))
        iterate(settings, Simulation(CUBE, facts, SimulationGenerator(1), payments=payments))
        assert payments.positions[-1] < len(settings.schedule(facts)), "rounds end early, and are paid back"


def _counted(settings: KlSpiderPlan, facts: Facts) -> dict[object, int]:
    events = settings.schedule(facts)
    return {event: events.count(event) for event in set(events)}


class TestResuming:
    def test_every_answer_is_a_place_to_go_on_from(self) -> None:
        settings, facts = planned(CUBE)
        keeping = Keeping()
        oracle = Recording(Simulation(CUBE, facts, SimulationGenerator(3), payments=UnlimitedFilter(keeping)))
        estimate, _ = iterate(settings, oracle)
        assert len(keeping.states) == len(oracle.releases)
        assert "d" in kinds(oracle)
        for number, state in enumerate(keeping.states, start=1):
            rest = Resumed(facts, oracle.releases[number:], state)
            again, _ = iterate(settings, rest)
            assert rest.finished()
            assert torch.equal(again.theta, estimate.theta)
            assert int(again.steps) == int(estimate.steps)

    @pytest.mark.parametrize("answers", [1, 2, 3, 4])
    def test_a_round_that_is_gone_on_with_has_no_more_steps_than_it_had(self, answers: int) -> None:
        course, keeping = course_of(round_of(4, 1e-3)), Keeping()
        oracle = Recording(
            Simulation(SQUARE, public(), SimulationGenerator(0), noiseless=True, payments=UnlimitedFilter(keeping))
        )
        walk(course, START, inf, oracle)
        rest = Resumed(public(), oracle.releases[answers:], keeping.states[answers - 1])
        assert distance(walk(course, START, inf, rest).theta) == pytest.approx(0.6)
        assert rest.finished()


class TestRegion:
    def test_no_iterate_is_farther_than_all_steps_together(self) -> None:
        settings, facts = planned(CUBE, force=True, start_gap=0.2)
        oracle = Recording(Simulation(CUBE, facts, SimulationGenerator(8), replicates=50))
        estimate, _ = iterate(settings, oracle)
        assert settings.radius == pytest.approx(settings.course(facts).travel)
        assert not bool(estimate.left.any())
        assert max(float(one.theta.norm(dim=-1).max()) for one in oracle.releases) <= settings.radius

    def test_leaving_the_declared_region_is_a_failure(self) -> None:
        settings, facts = planned(CUBE, radius=0.5)
        with pytest.raises(Diverged):
            iterate(settings, Simulation(CUBE, facts, SimulationGenerator(1)))

    def test_a_replicate_that_leaves_stays_where_it_left_and_the_others_go_on(self) -> None:
        settings, facts = planned(CUBE)
        free, _ = iterate(settings, Simulation(CUBE, facts, SimulationGenerator(1), replicates=50))
        radius = float(free.theta.norm(dim=-1).median())
        settings = settings.model_copy(update={"radius": radius})
        estimate, _ = iterate(settings, Simulation(CUBE, facts, SimulationGenerator(1), replicates=50))
        assert 5 < int(estimate.left.sum()) < 45
        assert torch.equal(estimate.theta.norm(dim=-1) > radius, estimate.left)

    def test_the_region_is_around_the_start_wherever_that_is(self) -> None:
        """Published beforehand: not around zero, and not around a minimiser, which nobody may know."""
        far = START.clone()
        far[1] = 0.7
        one = course_of(round_of(3, 1e-3))
        assert not bool(walk(one, far, 0.31, silent()).left)
        assert bool(walk(one, far, 0.29, silent()).left)

    def test_a_run_that_left_asks_no_more(self) -> None:
        oracle = silent()
        state = walk(course_of(round_of(5, 1e-3), round_of(5, 1e-3)), START, 0.15, oracle)
        assert bool(state.left)
        assert kinds(oracle) == "gd"


class TestOutcome:
    def test_a_certificate_says_what_is_certified(self) -> None:
        settings, facts = planned(CUBE)
        estimate, _ = iterate(settings, Simulation(CUBE, facts, SimulationGenerator(1)))
        certificate = estimate.error_bound
        assert certificate is not None
        assert certificate.ended_by == "rounds"
        assert certificate.quantity == "excess_risk"
        assert certificate.value == settings.bound(facts).value
        assert certificate.value is not None
        assert certificate.confidence == 0.95
        assert float(CUBE.excess(estimate.theta)) <= certificate.value
        assert certificate.variant == "calibrated"

    def test_where_nothing_is_gained_the_start_is_returned_and_nothing_spent(self) -> None:
        facts = PowerProblem(5000, DIMENSION, 3.0).constants.facts(5000, DIMENSION)
        settings = KlSpiderPlan(
            condition=CUBE.constants.condition,
            mu=sqrt(2),
            mean_smoothness=6.0,
            smoothness=6.0,
            start_gap=1.0,
            radius=1.0,
            steps=1,
            extremes=(),
        )
        oracle = Simulation(
            PowerProblem(5000, DIMENSION, 3.0), facts, SimulationGenerator(1), payments=CountingFilter()
        )
        estimate, status = iterate(settings, oracle)
        assert torch.equal(estimate.theta, START)
        assert estimate.error_bound is not None
        assert estimate.error_bound.ended_by == "trivial_regime"
        assert estimate.error_bound.value == pytest.approx(1.0)
        assert oracle.release(estimate, status).event == NOTHING

    def test_a_forced_run_claims_nothing(self) -> None:
        few = PowerProblem(5000, DIMENSION, 3.0)
        facts = public(few)
        settings = KlSpider(condition=few.constants.condition, force=True).plan(facts, sqrt(2))
        estimate, _ = iterate(settings, Simulation(few, facts, SimulationGenerator(1)))
        certificate = estimate.error_bound
        assert certificate is not None
        assert certificate.ended_by == "rounds"
        assert certificate.value is None
        assert any("forced" in condition for condition in certificate.conditions)

    def test_a_real_oracle_answers_it(self) -> None:
        """Logistic records with a ridge: kappa = 2, and, as a weaker condition, 1.5 with its differences."""
        facts = oracle_facts(20_000, 3, adjacency=Adjacency.REPLACE_ONE).model_copy(
            update={"ridge": 0.2, "smoothness": 0.5, "weak_convexity": 0.0, "start_gap": 0.7}
        )
        strong = KlCondition.strongly_convex(0.2)
        exact = _minimiser(facts)
        for condition in (None, strong.weaker(1.5, 0.7)):
            settings = KlSpider(condition=condition, variant="calibrated").plan(facts, 4.0)
            real: Oracle = FullOracle(oracle_problem(20_000, 3), facts, CountingFilter(), SystemGenerator())
            oracle = Recording(real)
            estimate, _ = iterate(settings, oracle)
            assert ("d" in kinds(oracle)) == (condition is not None)
            assert estimate.error_bound is not None
            assert estimate.error_bound.value is not None
            # strong convexity: excess >= (ridge/2) |theta - exact|^2
            assert 0.1 * float((estimate.theta - exact).square().sum()) <= estimate.error_bound.value
            assert (estimate.error_bound.conditions == ()) == (condition is None)


def _minimiser(facts: Facts) -> Tensor:
    """Return the ridge estimate of the oracle's records by plain gradient descent."""
    oracle = Simulation(oracle_problem(20_000, 3), facts, SimulationGenerator(0), noiseless=True)
    theta = torch.zeros(3, dtype=torch.float64)
    for _ in range(200):
        theta = theta - (oracle.ask(Gradient(sigma=1.0), theta).value + facts.ridge * theta) / 0.7
    return theta
