"""Going on after a loss: the same answers again, fresh noise for what was lost, and the law of a run without one.

Statistical thresholds: |z| > 4.5 for each of 3 means and 3 variances, a false alarm in 25,000; seeds are fixed.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import log, sqrt
from typing import Any, Final, TypeVar

import pytest
import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.inference.settings import PlannedInference, Shares
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import Fitted, fit, fit_and_infer
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.condition import KlCondition
from core.methods.kl.proximal_point.spec import ProximalPoint
from core.methods.kl.spider.spec import KlSpider
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent, NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.options import LineSearch
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.registry import AnySpec
from core.oracle import Answer, Release, Status
from core.oracle.filters import ORDERS
from core.oracle.simulation import Simulation
from core.planning.planner import chunks
from core.privacy.events import Composed, Event, Repeated, compose
from core.privacy.renyi import cost_nano, prefix_costs
from core.queries.gradients import Question
from core.training.ledger_filter import LedgerFilter
from core.training.notes import unpack
from core.training.order import Payer
from tests.support.problems import facts, problem

T = TypeVar("T")
LIMIT: Final = 4.5
UNITS, DIMENSION = 500, 3
FACTS = facts(UNITS, DIMENSION)
INFERENCE = PlannedInference(
    shares=Shares(estimate=0.8, curvature=0.1, score=0.1),
    curvature_sigma=5.0,
    score_sigma=5.0,
    curvature_floor=0.02,
    score_floor=0.02,
    plausible_radius=3.0,
)
METHODS: dict[str, AnySpec] = {
    "gradient": NoisyGradientDescent(steps=5).plan(FACTS, 3.0),
    "gradient, private stop": NoisyGradientDescent(steps=12, stop="private").plan(FACTS, 0.05),
    "newton": NoisyNewton(steps=3).plan(FACTS, 3.0),
    "newton, private stop": NoisyNewton(steps=6, stop="private").plan(FACTS, 0.05),
}


class Killed(Exception):
    """The worker was killed."""


@dataclass
class Job:
    """A job's rows: its kept state and its charges."""

    schedule: tuple[Event, ...]
    kills: list[tuple[str, int]] = field(default_factory=list)
    """When to die, one for each attempt: `paid` for a chunk, or `told` an answer."""
    state: bytes | None = None
    chunks: int = 0
    answers: int = 0
    """The number of answers of the whole job in the state."""
    charged: Counter[Event] = field(default_factory=Counter)

    def die_if(self, moment: str, number: int) -> None:
        if self.kills and self.kills[0] == (moment, number):
            self.kills.pop(0)
            raise Killed


class Told:
    """An oracle that notes each answer to the method, its place in the whole job, and the draws for it."""

    def __init__(self, job: Job, seed: int, replicates: int | None = None) -> None:
        totals = tuple(tuple(total) for total in prefix_costs(job.schedule, ORDERS))
        payments = LedgerFilter(self, [Payer(ORDERS, totals)], job.schedule, kept=job.state, kept_chunks=job.chunks)
        generator = SimulationGenerator(seed)
        self._inner = Simulation(problem(UNITS, DIMENSION), FACTS, generator, replicates=replicates, payments=payments)
        self._job = job
        self.facts, self.randomness, self.precision = self._inner.facts, self._inner.randomness, self._inner.precision
        self.first_state = job.state
        self.recalled = len(unpack(job.state).answers)
        self.place = job.answers - self.recalled
        self.answers: dict[int, Answer] = {}
        self.drawn: Counter[Event] = Counter()

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        del step
        if state is not None:
            self._job.state, self._job.chunks, self._job.answers = state, chunk, self.place
        self._job.charged[self._job.schedule[chunk]] += 1
        self._job.die_if("paid", chunk)

    def keep(self, state: dict[str, Tensor] | bytes, step: int) -> None:
        assert isinstance(state, dict), "nobody drains"
        self._inner.keep(state, step)

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        answer = self._inner.ask(question, theta, other)
        if len(self.answers) >= self.recalled:
            self.drawn[question.event()] += 1
        self.answers[self.place] = answer
        self.place += 1
        self._job.die_if("told", self.place - 1)
        return answer

    def affords(self, question: Question, then: Question | None = None) -> bool:
        return self._inner.affords(question, then)

    def block(self, name: str) -> Simulation:
        return self._inner.block(name)

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._inner.resume(initial)

    def release(self, value: T, status: Status) -> Release[T]:
        return self._inner.release(value, status)


class Scripted(Told):
    """An oracle that tells what it was given, in order, to a method that runs without a break."""

    def __init__(self, schedule: tuple[Event, ...], answers: dict[int, Answer]) -> None:
        super().__init__(Job(schedule), seed=0)
        self._script = answers

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        del question, theta, other
        self.place += 1
        return self._script[self.place - 1]


def schedule_of(settings: AnySpec) -> tuple[Event, ...]:
    return (*chunks(settings.schedule(FACTS)), *(question.event() for question in INFERENCE.questions()))


def run(settings: AnySpec, kills: list[tuple[str, int]]) -> tuple[Job, list[Told], Release[Fitted]]:
    """Run a job through kills to its end; every attempt has noise of its own."""
    job = Job(schedule_of(settings), list(kills))
    attempts: list[Told] = []
    while True:
        attempts.append(Told(job, seed=1 + len(attempts)))
        try:
            return job, attempts, fit_and_infer(settings, INFERENCE, attempts[-1])
        except Killed:
            continue


def check_replay(settings: AnySpec, attempts: list[Told], release: Release[Fitted], schedule: Any) -> None:
    """Assert that the release is that of one run without a break that receives the attempts' final answers."""
    script: dict[int, Answer] = {}
    for attempt in attempts:
        script |= attempt.answers
    again = fit_and_infer(settings, INFERENCE, Scripted(schedule, script))
    assert again.status == release.status
    assert torch.equal(again.value.estimate.theta, release.value.estimate.theta)
    assert again.value.sandwich is not None
    assert release.value.sandwich is not None
    assert torch.equal(again.value.sandwich.covariance, release.value.sandwich.covariance)


@pytest.mark.parametrize("moment", ["paid", "told"])
@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS.keys())
def test_a_run_goes_on_from_wherever_it_was_lost(settings: AnySpec, moment: str) -> None:
    schedule = schedule_of(settings)
    stopped = 0
    for chunk in range(len(schedule)):
        job, attempts, release = run(settings, [(moment, chunk)])
        stopped += release.status is Status.STOPPED
        if len(attempts) == 1:  # it stopped before it came there
            assert release.status is Status.STOPPED
            continue
        check_replay(settings, attempts, release, schedule)
        lost, resumed = attempts
        common = lost.answers.keys() & resumed.answers.keys()
        known = {place for place in common if torch.equal(lost.answers[place].value, resumed.answers[place].value)}
        assert len(known) == resumed.recalled
        assert common - known == ({chunk} if moment == "told" else set())  # its noise is fresh
        drawn = lost.drawn + resumed.drawn
        assert resumed.drawn == Counter(_leaves(release.event))
        if release.status is Status.FINISHED and settings.stop == "budgeted":
            assert job.charged == Counter([*schedule, schedule[chunk]])
            assert drawn == (job.charged if moment == "told" else Counter(schedule))
        pairs = zip(cost_nano(compose(drawn), ORDERS), cost_nano(compose(job.charged), ORDERS), strict=True)
        assert all(one <= most for one, most in pairs)
    assert bool(stopped) is (settings.stop == "private")


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS.keys())
def test_losing_several_workers_costs_a_chunk_each(settings: AnySpec) -> None:
    kills = [("told", 1), ("paid", 1), ("told", 1), ("told", 3)]
    job, attempts, release = run(settings, kills)
    assert len(attempts) == 5 - len(job.kills)
    check_replay(settings, attempts, release, job.schedule)
    if settings.stop == "budgeted":
        assert job.charged == Counter([*job.schedule, *[job.schedule[1]] * 3, job.schedule[3]])


@pytest.mark.parametrize("moment", ["paid", "told"])
def test_a_line_search_goes_on_from_wherever_it_was_lost(moment: str) -> None:
    """The answers decide on the number and times of comparisons: every draw is paid, at every order."""
    search = NoisyNewton(steps=3, memory=0, line_search=LineSearch(evaluations=4), start=(3.0, -3.0, 3.0))
    settings = search.plan(FACTS, 3.0)
    lost = 0
    for number in range(len(schedule_of(settings))):
        job, attempts, release = run(settings, [(moment, number)])
        lost += len(attempts) - 1
        check_replay(settings, attempts, release, job.schedule)
        drawn = sum((attempt.drawn for attempt in attempts), Counter[Event]())
        pairs = zip(cost_nano(compose(drawn), ORDERS), cost_nano(compose(job.charged), ORDERS), strict=True)
        assert all(one <= most for one, most in pairs)
    assert lost > 6


CONDITION: Final = KlCondition(gamma=1.5, kappa=1.6)
SMOOTH: Final = {"smoothness": 0.5, "start_gap": log(2), "condition": CONDITION}
KL_METHODS: dict[str, AnySpec] = {
    "spider": KlSpider(variant="calibrated", **SMOOTH).plan(FACTS, 6.0),
    "spider, forced": KlSpider(variant="calibrated", force=True, **SMOOTH).plan(FACTS, 3.0),
    "proximal point": ProximalPoint(
        condition=KlCondition(gamma=1.5), weak_convexity=0.1, start_gap=log(2), round_schedule="practical", max_inner=8
    ).plan(FACTS, 6.0),
    "adaptive": AdaptiveGradientDescent(smoothness=0.5).plan(FACTS, 3.0),
    "adaptive, capped": AdaptiveGradientDescent(smoothness=0.5, step_cap=15).plan(FACTS, 6.0),
    "adaptive, choosing": AdaptiveGradientDescent(smoothness=0.5, step_cap=15, select="exponential").plan(FACTS, 6.0),
    "adaptive, at random": AdaptiveGradientDescent(smoothness=0.5, step_cap=15, start="random").plan(FACTS, 6.0),
    "gradient, at random": NoisyGradientDescent(steps=12, start="random").plan(FACTS, 3.0),
}


def run_alone(settings: AnySpec, kills: list[tuple[str, int]]) -> tuple[Job, list[Told], Release[Estimate]]:
    """Run a job without intervals through kills to its end."""
    job = Job(chunks(settings.schedule(FACTS)), list(kills))
    attempts: list[Told] = []
    while True:
        attempts.append(Told(job, seed=1 + len(attempts)))
        try:
            return job, attempts, fit(settings, attempts[-1])
        except Killed:
            continue


@pytest.mark.parametrize("settings", KL_METHODS.values(), ids=KL_METHODS.keys())
def test_a_method_under_the_kl_condition_goes_on_from_wherever_it_was_lost(settings: AnySpec) -> None:
    """Earlier answers are given again, draws stay within payments, and nothing but the lost chunk is paid twice."""
    whole, (undisturbed,), _ = run_alone(settings, [])
    told, paid = len(undisturbed.answers), sum(whole.charged.values())
    moments = [("told", number) for number in {*range(min(told, 6)), told // 2, told - 1}]
    moments += [("paid", chunk) for chunk in {*range(min(paid, 4)), paid // 2, paid - 1}]
    for kill in moments:
        job, attempts, release = run_alone(settings, [kill])
        lost, resumed = attempts
        drawn = lost.drawn + resumed.drawn
        pairs = zip(cost_nano(compose(drawn), ORDERS), cost_nano(compose(job.charged), ORDERS), strict=True)
        assert all(one <= most for one, most in pairs)
        assert sum(job.charged.values()) <= len(job.schedule) + 1
        common = lost.answers.keys() & resumed.answers.keys()
        same = {place for place in common if torch.equal(lost.answers[place].value, resumed.answers[place].value)}
        assert len(same) == resumed.recalled
        assert release.value.theta.isfinite().all()


@pytest.mark.parametrize("name", ["adaptive, at random", "gradient, at random"])
def test_a_random_start_is_drawn_once_for_all_that_was_told_of_it(name: str) -> None:
    settings = KL_METHODS[name]
    _, (lost, resumed), release = run_alone(settings, [("told", 5)])
    first = unpack(resumed.first_state)
    assert first.state is not None
    assert torch.equal(first.state["start"], release.value.start)
    assert float(torch.linalg.vector_norm(release.value.start)) == pytest.approx(1.0)
    assert lost.recalled == 0
    _, (_, again), other = run_alone(settings, [("paid", 0)])
    assert again.recalled == 0
    assert not torch.equal(other.value.start, release.value.start), "nothing was told of it, so it is drawn anew"


def _leaves(event: Event) -> list[Event]:
    """Return the single draws of an event."""
    match event:
        case Repeated(event=repeated, times=times):
            return _leaves(repeated) * times
        case Composed(events=events):
            return [leaf for part in events for leaf in _leaves(part)]
    return [event]


REPLICATES = 4000
DESCENT = NoisyGradientDescentPlan(steps=4, step_size=2.0, mu=0.5, radius=1e3)


def last_iterates(kills: list[tuple[str, int]], seeds: list[int]) -> Tensor:
    """Return the last iterate of each replicate of a descent, shape (REPLICATES, p); one seed for each attempt."""
    job = Job(chunks(DESCENT.schedule(FACTS)), list(kills))
    for seed in seeds:
        try:
            return fit(DESCENT, Told(job, seed, REPLICATES)).value.theta
        except Killed:
            continue
    raise AssertionError("no attempt is left")


def scores(one: Tensor, other: Tensor) -> Tensor:
    """Return z of the difference of means and of the logarithm of the ratio of variances, for each coordinate."""
    means = (one.mean(0) - other.mean(0)) / ((one.var(0) + other.var(0)) / REPLICATES).sqrt()
    variances = (one.var(0) / other.var(0)).log() / sqrt(4 / REPLICATES)
    return torch.cat([means, variances])


def test_the_law_of_a_resumed_release_is_that_of_an_unbroken_one() -> None:
    unbroken = last_iterates([], [11])
    for seed, kill in enumerate([("paid", 2), ("told", 2), ("told", 3)], start=20):
        resumed = last_iterates([kill], [seed, seed + 100])
        assert float(scores(resumed, unbroken).abs().max()) < LIMIT


def test_noise_that_is_used_again_on_resuming_would_be_seen() -> None:
    """The planted bug: the new attempt's generator begins where the old one's did."""
    reused = last_iterates([("told", 2)], [20, 20])
    assert float(scores(reused, last_iterates([], [11])).abs().max()) > LIMIT
