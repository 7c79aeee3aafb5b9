"""Adaptive noisy gradient descent as it runs: its order of questions, its ends, its budget, and its resumption.

Statistical thresholds: p < 1e-4 with fixed seeds.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from torch import Tensor

from core.base.errors import Diverged
from core.inference.estimate import Estimate
from core.mechanisms.generator import SimulationGenerator
from core.methods.kl.adaptive_gd.fit import _State, _stepped, iterate
from core.methods.kl.adaptive_gd.spec import MOST_STEPS, AdaptiveGradientDescent, AdaptiveGradientDescentPlan
from core.methods.kl.adaptive_gd.theory import MOST_CANDIDATES
from core.oracle import Answer, Oracle, PrivacyFilter, PublicRandomness, Release, Status
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.privacy.events import Event, compose
from core.privacy.facts import Adjacency, Facts
from core.privacy.renyi import cost_nano, prefix_costs
from core.queries.gradients import Gradient, GradientNorm, LeastGradient, Question
from core.queries.sums.linear import LinearProblem
from core.training.ledger_filter import LedgerFilter
from core.training.order import Payer
from studies.kl.powers import PowerProblem
from tests.support.pathwise import Recording
from tests.support.problems import LOGISTIC, WEIGHTS, repeatable_generator, rows
from tests.support.problems import facts as known
from tests.support.radial import planned, simulate

T = TypeVar("T")
ORDERS = (2, 9, 22)
PUBLIC = Facts(units=300, dimension=2, adjacency=Adjacency.REPLACE_ONE, gradient_bound=1.0, smoothness=0.5)


def method(**options: object) -> AdaptiveGradientDescentPlan:
    return AdaptiveGradientDescent.model_validate({"radius": 1e6} | options).plan(PUBLIC, 1.0)


def run(seed: int, exponent: float = 2.0, units: int = 10_000, **options: object) -> tuple[Estimate, Recording]:
    """Run it on a power of the distance, in simulation, within its budget."""
    settled, facts, _ = planned(exponent, units, 3, **options)
    payments = CountingFilter(compose(Counter(settled.schedule(facts))))
    problem = PowerProblem(units, 3, exponent)
    oracle = Recording(Simulation(problem, facts, SimulationGenerator(seed), payments=payments))
    estimate, _ = iterate(settled, oracle)
    return estimate, oracle


class TestARun:
    def test_a_norm_then_a_gradient_at_the_same_point_with_noise_in_proportion(self) -> None:
        estimate, oracle = run(1)
        settled, facts, _ = planned(2.0, 10_000, 3)
        releases = oracle.releases
        assert [type(one.question) for one in releases] == [GradientNorm, Gradient] * int(estimate.steps) + [
            GradientNorm
        ]
        sensitivity = Gradient(sigma=1.0).sensitivity(facts)
        for norm, gradient in zip(releases[::2], releases[1::2], strict=False):
            assert torch.equal(norm.theta, gradient.theta)
            told = float(norm.answer.value)
            assert told > 0
            absolute = told / (2 * settled.noise_length(facts))
            assert gradient.question.sigma * sensitivity == pytest.approx(absolute, rel=1e-12)

    def test_a_small_norm_ends_it_where_it_was_told(self) -> None:
        estimate, oracle = run(1)
        last = oracle.releases[-1]
        assert estimate.error_bound is not None
        assert estimate.error_bound.ended_by == "small_gradient"
        assert torch.equal(estimate.theta, last.theta), "nothing is spent on one more step"
        settled, facts, _ = planned(2.0, 10_000, 3)
        assert settled.gradient_question(float(last.answer.value), facts) is None
        expected = max(0.0, float(last.answer.value) + settled.norm_slack() * last.answer.scale)
        assert estimate.error_bound.value == pytest.approx(expected)
        assert estimate.error_bound.confidence == 0.975
        assert estimate.error_bound.variant == "corrected"

    def test_steps_are_those_of_the_recursion(self) -> None:
        _, oracle = run(2, exponent=3.0)
        _, _, constants = planned(3.0, 10_000, 3)
        assert constants.smoothness is not None
        points = [one.theta for one in oracle.releases[::2]]
        for before, after, gradient in zip(points, points[1:], oracle.releases[1::2], strict=False):
            assert torch.allclose(after, before - gradient.answer.value / (2 * constants.smoothness), atol=1e-15)

    def test_extensions_and_presets_are_named_in_what_they_claim(self) -> None:
        named = {
            "corrected+step_cap": {"step_cap": 40},
            "paper": {"preset": "paper"},
            "corrected+least_norm": {"select": "least_norm"},
        }
        for variant, options in named.items():
            estimate, _ = run(3, **options)
            assert estimate.error_bound is not None
            assert estimate.error_bound.variant == variant

    def test_leaving_the_public_radius_is_a_failure(self) -> None:
        with pytest.raises(Diverged):
            run(1, radius=0.5)

    def test_its_law_is_that_of_the_recursion(self) -> None:
        """Distances at the end of 40 runs against 20,000 of an independent simulator; three times the noise is seen."""
        settled, facts, _ = planned(2.0, 10_000, 3)
        problem = PowerProblem(10_000, 3, 2.0)
        ends = [float((run(seed)[0].theta - problem.minimiser).norm()) for seed in range(40)]
        assert ks_2samp(ends, simulate(settled, facts, 2.0, 20_000, 5).distance).pvalue > 1e-4
        assert ks_2samp(ends, simulate(settled, facts, 2.0, 20_000, 5, noise=3.0).distance).pvalue < 1e-4

    def test_too_small_a_budget_returns_the_start_and_spends_nothing(self) -> None:
        poor = method(mu=1.0).model_copy(update={"norm_sigma": 0.5})
        assert poor.affordable_norms < 1
        payments = CountingFilter(compose(Counter(poor.schedule(PUBLIC))))
        estimate, status = iterate(poor, Scripted(PUBLIC, payments, [1.0]))
        assert (payments.totals, status) == ([], Status.FINISHED)
        assert torch.equal(estimate.theta, estimate.start)
        certificate = estimate.error_bound
        assert certificate is not None
        assert (certificate.ended_by, certificate.value, certificate.confidence) == ("budget_too_small", None, None)

    def test_there_is_a_last_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("core.methods.kl.adaptive_gd.spec.MOST_STEPS", 5)
        assert MOST_STEPS > 5
        estimate, _ = iterate(method(), Scripted(PUBLIC, CountingFilter(), [1.0]))
        assert estimate.error_bound is not None
        assert (int(estimate.steps), estimate.error_bound.ended_by) == (5, "step_cap")
        assert estimate.error_bound.value is None, "no norm was told where it ended"


class Counted(LinearProblem):
    """Records that count how often they are read."""

    sums = 0

    def integer_sum(self, *arguments: Any, **options: Any) -> Tensor:
        self.sums += 1
        return super().integer_sum(*arguments, **options)


@pytest.mark.parametrize("select", ["last", "exponential"])
def test_behind_a_oracle_a_step_reads_the_records_once_and_what_is_drawn_is_within_the_price(select: str) -> None:
    units = 20_000
    public = known(units, 3).model_copy(update={"smoothness": 0.5})
    records = Counted(*rows(units, 3), LOGISTIC, WEIGHTS)
    settled = AdaptiveGradientDescent.model_validate({"select": select}).plan(public, 1.0)
    priced = compose(Counter(settled.schedule(public)))
    payments = CountingFilter(priced)
    oracle = FullOracle(records, public, payments, repeatable_generator())
    estimate, status = iterate(settled, oracle)
    steps = int(estimate.steps)
    assert steps > 2
    told = steps + (estimate.error_bound is not None and estimate.error_bound.ended_by == "small_gradient")
    read = records.sums if select == "last" else records.sums / 2  # the choice reads them once for each candidate
    assert told - 1 < read <= told + 1
    drawn = oracle.release(estimate, status).event
    assert all(one <= most for one, most in zip(cost_nano(drawn, ORDERS), cost_nano(priced, ORDERS), strict=True))
    assert float(estimate.theta.norm()) > 0.1


class TestARidge:
    """Its gradient is in every norm and every step, and none of it is clipped."""

    public = known(20_000, 3).model_copy(update={"smoothness": 0.5, "ridge": 0.3, "weak_convexity": 0.0})

    def slope(self, theta: Tensor) -> Tensor:
        """Return the gradient of the penalised loss, written out."""
        x, target, _ = rows(20_000, 3)
        weight = (WEIGHTS.bound / torch.linalg.vector_norm(x, dim=-1)).clamp(max=1.0) ** 2
        return x.T @ (weight * (torch.sigmoid(x @ theta) - target)) / 20_000 + 0.3 * theta

    @pytest.mark.parametrize("behind", ["an oracle", "a simulation"])
    def test_is_in_the_norm(self, behind: str) -> None:
        records = LinearProblem(*rows(20_000, 3), LOGISTIC, WEIGHTS)
        oracle: Oracle = Simulation(records, self.public, SimulationGenerator(1), noiseless=True)
        if behind == "an oracle":
            oracle = FullOracle(records, self.public, CountingFilter(), repeatable_generator())
        theta = torch.tensor([3.0, -2.0, 5.0], dtype=torch.float64)
        (told,) = oracle.ask(GradientNorm(sigma=1e-3), theta).value.tolist()
        assert told == pytest.approx(float(self.slope(theta).norm()), rel=1e-5)
        points = torch.stack([theta, torch.zeros_like(theta), theta / 2])
        assert int(oracle.ask(LeastGradient(sigma=1e-3), points).value[0]) == 1

    def test_is_in_the_steps_and_tells_the_condition(self) -> None:
        settled = AdaptiveGradientDescent(norm_sigma=50.0).plan(self.public, 20.0)
        assert settled.smoothness == pytest.approx(0.8)
        assert settled.condition is not None
        assert settled.condition.gamma == pytest.approx(1 / sqrt(0.6))
        records = LinearProblem(*rows(20_000, 3), LOGISTIC, WEIGHTS)
        estimate, _ = iterate(settled, Simulation(records, self.public, SimulationGenerator(1), noiseless=True))
        assert float(self.slope(estimate.theta).norm()) < 0.01
        assert estimate.error_bound is not None
        assert estimate.error_bound.ended_by == "small_gradient"

    def test_is_shortened_where_integers_end_and_moves_no_difference(self) -> None:
        far = torch.tensor([1e9, 0.0, 0.0], dtype=torch.float64)
        public, totals = self.public.model_copy(update={"ridge": 1e6}), list[float]()
        for present in (1, 0):
            features, target, there = rows(20_000, 3)
            there[0] = bool(present)
            records = LinearProblem(features, target, there, LOGISTIC, WEIGHTS)
            oracle = FullOracle(records, public, CountingFilter(), repeatable_generator())
            totals.append(float(oracle.ask(GradientNorm(sigma=1.0), far).value[0]))
        assert abs(totals[0] - totals[1]) <= GradientNorm(sigma=1.0).sensitivity(public) * 1.01
        assert min(totals) > 1.0


class Scripted:
    """A oracle to an adversary: norms are what a list says, and each gradient moves theta by one along the first axis.

    Its answers depend on the place alone, and on the attempt, as fresh noise would.
    """

    def __init__(
        self, facts: Facts, payments: PrivacyFilter, norms: list[float], ledger: "Ledger | None" = None
    ) -> None:
        self.facts = facts
        self._payments = payments
        self._norms, self._ledger = norms, ledger or Ledger()
        self.chosen_from: list[int] = []

    @property
    def randomness(self) -> PublicRandomness:
        raise AssertionError("no coins are needed")

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        known = self._payments.log.recall(question, theta, other)
        if known is not None:
            return known
        self._payments.pay(question.event())
        answer = self._draw(question, theta)
        self._payments.log.note(question, theta, answer, other)
        return answer

    def _draw(self, question: Question, theta: Tensor) -> Answer:
        ledger = self._ledger
        ledger.moment()
        ledger.drawn[question.event()] += 1
        ledger.moment()
        if isinstance(question, LeastGradient):
            self.chosen_from.append(len(theta))
            return Answer(torch.tensor([len(theta) // 2], dtype=torch.float64), 0.0)
        norm = self._norms[(round(float(theta[0])) + ledger.deaths) % len(self._norms)]
        if isinstance(question, GradientNorm):
            ledger.norm = norm
            return Answer(torch.tensor([norm], dtype=torch.float64), 0.01)
        assert ledger.norm > 0, "a gradient is asked for only where its measured norm is positive"
        assert PUBLIC.smoothness is not None
        return Answer(torch.tensor([-2 * PUBLIC.smoothness, 0.0], dtype=torch.float64), 0.1)

    def affords(self, question: Question, then: Question | None = None) -> bool:
        events = [one.event() for one in (question, then) if one is not None]
        return self._payments.affords(*events)

    def block(self, name: str) -> Oracle:
        raise AssertionError(f"there is no block {name!r}")

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        kept = self._payments.log.resume()
        return initial if kept is None else kept

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        self._payments.log.keep(state, step)

    def release(self, value: T, status: Status) -> Release[T]:
        return Release(value=value, status=status, event=self._payments.close())


class Killed(Exception):
    """The worker was killed."""


@dataclass
class Ledger:
    """A ledger writer that charges what is paid, writes down what is drawn, and lets workers die at given points."""

    dies_at: list[int] = field(default_factory=list)
    charged: Counter[Event] = field(default_factory=Counter)
    drawn: Counter[Event] = field(default_factory=Counter)
    schedule: tuple[Event, ...] = ()
    state: bytes | None = None
    chunks: int = 0
    moments: int = 0
    deaths: int = 0
    norm: float = inf

    def moment(self) -> None:
        """Die here, or go on."""
        self.moments += 1
        if self.dies_at and self.moments >= self.dies_at[0]:
            self.dies_at.pop(0)
            self.moments, self.deaths = 0, self.deaths + 1
            raise Killed

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        del step
        self.moment()
        self.charged[self.schedule[chunk]] += 1
        if state is not None:
            self.state, self.chunks = state, chunk
        self.moment()

    def keep(self, state: bytes, step: int) -> None:
        raise AssertionError(f"nobody drains, at step {step} or with {len(state)} bytes")


def through_kills(
    settled: AdaptiveGradientDescentPlan, norms: list[float], dies_at: list[int]
) -> tuple[Estimate, Ledger]:
    """Run a job to its end, each attempt with a fresh privacy filter and what the last one kept."""
    schedule = tuple(settled.schedule(PUBLIC))
    ledger = Ledger(dies_at=list(dies_at), schedule=schedule)
    totals = tuple(tuple(total) for total in prefix_costs(schedule, ORDERS))
    while True:
        payments = LedgerFilter(
            ledger,
            [Payer(ORDERS, totals)],
            schedule,
            kept=ledger.state,
            kept_chunks=ledger.chunks,
            charged=ledger.charged,
        )
        try:
            return iterate(settled, Scripted(PUBLIC, payments, norms, ledger))[0], ledger
        except Killed:
            continue


def within(drawn: Counter[Event], most: Counter[Event]) -> bool:
    pairs = zip(cost_nano(compose(drawn), ORDERS), cost_nano(compose(most), ORDERS), strict=True)
    return all(one <= limit for one, limit in pairs)


NORMS = st.lists(
    st.one_of(st.floats(-0.1, 1.1), st.floats(0.08, 0.3), st.sampled_from([1e-3, 0.1, 0.2, 1.0])),
    min_size=1,
    max_size=20,
)
KILLS = st.lists(st.integers(1, 60), max_size=5)
SELECTIONS = ("last", "least_norm", "exponential")


@pytest.mark.parametrize("select", SELECTIONS)
class TestTheBudget:
    @given(norms=NORMS)
    @example(norms=[0.1] * 3)
    @example(norms=[0.2, 0.3])
    @settings(deadline=None, max_examples=20)
    def test_is_never_passed_and_ends_a_run_only_where_the_next_answer_does_not_fit(
        self, select: str, norms: list[float]
    ) -> None:
        settled = method(select=select)
        estimate, ledger = through_kills(settled, norms, [])
        budget = Counter(settled.schedule(PUBLIC))
        assert within(ledger.drawn, budget)
        assert within(ledger.drawn, ledger.charged)
        assert estimate.error_bound is not None
        if estimate.error_bound.ended_by != "budget":
            return
        norm = norms[int(estimate.steps) % len(norms)]
        following = (
            settled.norm_question()
            if ledger.drawn[settled.norm_question().event()] == int(estimate.steps)
            else (settled.gradient_question(norm, PUBLIC))
        )
        assert following is not None
        choice = settled.selection_question()
        spent = ledger.drawn if choice is None else ledger.drawn | Counter([choice.event()])
        assert not within(spent + Counter([following.event()]), budget), "it would have fitted"

    @given(norms=NORMS, dies_at=KILLS)
    @settings(deadline=None, max_examples=20)
    def test_is_kept_by_all_attempts_together_whatever_is_lost(
        self, select: str, norms: list[float], dies_at: list[int]
    ) -> None:
        settled = method(select=select)
        estimate, ledger = through_kills(settled, norms, dies_at)
        assert within(ledger.drawn, ledger.charged)
        assert sum(ledger.charged.values()) <= len(ledger.schedule) + ledger.deaths, (
            "a loss is paid by one chunk at most"
        )
        assert estimate.error_bound is not None
        assert estimate.error_bound.ended_by in {"small_gradient", "budget", "budget_too_small"}


def test_a_lost_worker_that_had_paid_many_slices_leaves_less_to_spend() -> None:
    """An answer worth 40 slices is lost after its payment: one slice is paid again, the others are gone."""
    settled = method()
    norm = settled.multiple * settled.noise_length(PUBLIC) * Gradient(sigma=1.0).sensitivity(PUBLIC)
    norms = [norm * settled.least_sigma * sqrt(0.5 * 97 / 40)] * 3
    first, plain = through_kills(settled, norms, [])
    slices = sum(plain.charged.values())
    assert int(first.steps) == 2
    before_answer = 2 * 1 + 1 + 2 * 40 + 1  # moments: a norm's payment and reading, then 40 payments, then the reading
    second, lossy = through_kills(settled, norms, [before_answer])
    assert int(second.steps) == 1, "what is left pays for one such answer"
    assert second.error_bound is not None
    assert second.error_bound.ended_by == "budget"
    assert sum(lossy.charged.values()) <= len(lossy.schedule) + 1
    assert slices <= 97


@pytest.mark.parametrize("select", SELECTIONS)
def test_a_worker_may_die_at_any_moment(select: str) -> None:
    """At every moment of a cheap run a worker dies once; the next one goes on at the answer that was not stored."""
    settled = method(select=select)
    norms = [1.0] * 5 + [-0.5] * 5
    plain, whole = through_kills(settled, norms, [])
    assert int(plain.steps) == 5
    dead = 0
    for moment in range(1, whole.moments + 1):
        resumed, ledger = through_kills(settled, norms, [moment])
        dead += ledger.deaths
        assert int(resumed.steps) in {4, 5}  # the second worker's noise is another: a place later in the list
        assert resumed.error_bound is not None
        assert resumed.error_bound.ended_by == "small_gradient"
        assert within(ledger.drawn, ledger.charged)
    assert dead == whole.moments


class Unsigned(AdaptiveGradientDescentPlan):
    """A bug: a norm that its noise made negative counts as a long one."""

    def gradient_question(self, norm: float, facts: Facts) -> Gradient | None:
        return super().gradient_question(abs(norm), facts)


class AtTheFloor(AdaptiveGradientDescentPlan):
    """A bug, as printed: a small norm's gradient is asked for, with the least noise."""

    def gradient_question(self, norm: float, facts: Facts) -> Gradient | None:
        return super().gradient_question(norm, facts) or Gradient(sigma=self.least_sigma)


class Halved(AdaptiveGradientDescentPlan):
    """A bug, as printed: a record that changes into another counts as one that is left out."""

    def gradient_question(self, norm: float, facts: Facts) -> Gradient | None:
        return super().gradient_question(2 * norm, facts)


class Squared(AdaptiveGradientDescentPlan):
    """A bug: noise on norms that a budget of rho^2 would have."""

    def norm_question(self) -> GradientNorm:
        return GradientNorm(sigma=self.norm_sigma / sqrt(self.rho))


def check_method(kind: type[AdaptiveGradientDescentPlan]) -> None:
    """Fail unless a method asks what the algorithm asks, of adversaries, within its budget."""
    for select in SELECTIONS:
        planned = AdaptiveGradientDescent.model_validate({"select": select, "radius": 1e6}).plan(PUBLIC, 2.0)
        settled = kind.model_validate(planned.model_dump())
        rho, sensitivity = settled.rho, 2 * PUBLIC.gradient_bound / PUBLIC.units
        deviation = settled.norm_question().sigma * sensitivity
        assert deviation == pytest.approx(PUBLIC.gradient_bound / (sqrt(300) * rho**0.25))
        priced = compose(Counter(settled.schedule(PUBLIC)))
        for norms in ([0.9, 0.5, 0.2, -0.9], [0.9, 0.06, 0.01], [0.12]):
            oracle = Recording(Scripted(PUBLIC, CountingFilter(priced), norms))
            estimate, _ = iterate(settled, oracle)
            told = [one for one in oracle.releases if one.question.places == "point"]
            for norm, gradient in zip(told[::2], told[1::2], strict=False):
                deviation = float(norm.answer.value) / (settled.multiple * settled.noise_length(PUBLIC))
                assert deviation > sensitivity / sqrt(rho), "small norms end it"
                assert gradient.question.sigma * sensitivity == pytest.approx(deviation)
            if select == "last":
                assert float(estimate.theta[0]) == len(told) // 2, "each step is 1/(2 L1)"


def test_the_method_asks_what_the_algorithm_asks() -> None:
    check_method(AdaptiveGradientDescentPlan)


@pytest.mark.parametrize("bug", [Unsigned, AtTheFloor, Halved, Squared])
def test_a_bug_in_its_figures_is_seen(bug: type[AdaptiveGradientDescentPlan]) -> None:
    with pytest.raises(AssertionError):
        check_method(bug)


def unchecked(settled: AdaptiveGradientDescentPlan, oracle: Oracle, question: Gradient | GradientNorm) -> bool:
    """A bug: every question is affordable, at any cost."""
    del settled, oracle, question
    return True


def greedy(settled: AdaptiveGradientDescentPlan, oracle: Oracle, question: Gradient | GradientNorm) -> bool:
    """A bug: nothing is left for the choice."""
    del settled
    return oracle.affords(question)


def long(settled: AdaptiveGradientDescentPlan, oracle: Oracle, state: _State) -> _State:
    """A bug: steps of 1/L1."""
    told = _stepped(settled, oracle, state)
    return told._replace(theta=2 * told.theta - state.theta)


@pytest.mark.parametrize(("name", "bug"), [("_affords", unchecked), ("_affords", greedy), ("_stepped", long)])
def test_a_bug_in_its_loop_is_seen(name: str, bug: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"core.methods.kl.adaptive_gd.fit.{name}", bug)
    with pytest.raises(AssertionError):
        check_method(AdaptiveGradientDescentPlan)


class TestTheChoice:
    def test_of_the_least_norm_is_free(self) -> None:
        norms = [0.9, 0.2, 0.4, 0.15, 0.6, -1.0]
        estimate, ledger = through_kills(method(select="least_norm"), norms, [])
        assert float(estimate.theta[0]) == 5.0
        estimate, ledger = through_kills(method(select="least_norm"), norms[:5], [])
        assert float(estimate.theta[0]) == 3.0
        assert estimate.error_bound is not None
        assert estimate.error_bound.value == pytest.approx(0.15 + 0.01 * method().norm_slack())
        assert not any(event.kind == "bounded_range" for event in ledger.drawn)

    def test_by_an_exponential_mechanism_is_paid_and_shown_the_least_norms_in_order(self) -> None:
        settled = method(select="exponential")
        estimate, ledger = through_kills(settled, [0.9, 0.2, 0.4, 0.15, 0.6, -1.0], [])
        choice = settled.selection_question()
        assert choice is not None
        assert ledger.drawn[choice.event()] == 1
        assert float(estimate.theta[0]) == 2.0  # the adversary takes the fourth of six, in order of their norms

    def test_among_one_asks_nothing(self) -> None:
        settled = method(select="exponential")
        _, ledger = through_kills(settled, [-1.0], [])
        assert set(ledger.drawn) == {settled.norm_question().event()}

    def test_is_among_so_many_of_the_least_norms(self) -> None:
        settled = method(select="exponential", step_cap=2000)
        norms = [*np.linspace(1.0, 0.5, 300), -1.0]
        oracle = Scripted(PUBLIC, CountingFilter(), [float(norm) for norm in norms])
        estimate, _ = iterate(settled, oracle)
        assert oracle.chosen_from == [MOST_CANDIDATES]
        assert float(estimate.theta[0]) == 300 - MOST_CANDIDATES // 2

    @pytest.mark.parametrize("select", ["least_norm", "exponential"])
    def test_finds_the_best_point_of_a_run(self, select: str) -> None:
        estimate, oracle = run(4, exponent=2.0, select=select)
        problem, (_, facts, _) = PowerProblem(10_000, 3, 2.0), planned(2.0, 10_000, 3)
        slopes = [
            float(problem.mean_gradient(one.theta).norm()) for one in oracle.releases if one.question.places != "list"
        ]
        reached = float(problem.mean_gradient(estimate.theta).norm())
        assert estimate.error_bound is not None
        assert estimate.error_bound.value is not None
        assert reached <= min(slopes) + 2 * 5 * facts.gradient_bound / sqrt(10_000)
        assert reached <= estimate.error_bound.value

    def test_is_paid_however_often_it_was_lost(self) -> None:
        """The questions before it never take more than all slices, and its own chunk is the last."""
        settled = method(select="exponential", selection_share=0.9)
        norms = [0.9, 0.2, -1.0]
        _, plain = through_kills(settled, norms, [])
        estimate, ledger = through_kills(settled, norms, [plain.moments, 4, 4])
        assert ledger.deaths == 3
        assert float(estimate.theta[0]) in {0.0, 1.0, 2.0}
        assert estimate.error_bound is not None
        assert estimate.error_bound.value is not None
        assert within(ledger.drawn, ledger.charged)
