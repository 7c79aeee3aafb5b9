"""The gradient estimate: the source of its noise, its readings, its restarts, and the inputs of its branches.

Noise tests force their generators, so that a run repeats; stated tolerances are at least 3 standard errors.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.losses.categorical import Logistic
from core.losses.robust import Huber
from core.losses.weights import Mallows
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.methods.second_order import ada_spider
from core.methods.second_order.ada_spider import AdaSpider, no_estimate
from core.methods.second_order.gauss_psgd.fit import beginning, iterate, walk
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.oracle import EVERYTHING, Answer
from core.oracle.cursor import StreamCursor
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.samples import StreamOracle
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian, Repeated
from core.queries.gradients import Gradient, GradientDifference, Question
from core.queries.sampling import StreamSampling
from core.queries.sums.linear import LinearProblem
from tests.support.problems import facts, problem, repeatable_generator, rows
from tests.support.second_order import CountedRecords, Deaf, StillRecords, facts_of, failed, given, planted, settings_of

MODES = ("fresh", "rewind", "continue")


def point(*values: float, dimension: int = 0) -> Tensor:
    at = torch.zeros(max(dimension, len(values)), dtype=torch.float64)
    at[: len(values)] = torch.tensor(values, dtype=torch.float64)
    return at


class Zeros:
    """An oracle that answers with zeros and writes down the questions."""

    def __init__(self, dimension: int = 2) -> None:
        self.facts, self.asked = facts_of(1000, dimension), list[Question]()

    def affords(self, question: Question, then: Question | None = None) -> bool:
        del question, then
        return True

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        del other
        self.asked.append(question)
        return Answer(torch.zeros_like(theta), 0.0)


def kinds(points: list[Tensor], module: Any = ada_spider, **options: Any) -> str:
    """Return which question each point of a path asks: 1 fresh, 2 a change, 0 none."""
    oracle = Zeros(len(points[0]))
    estimator, told = module.AdaSpider(settings_of(options), oracle, no_estimate(points[0])), ""
    for at in points:
        before = len(oracle.asked)
        estimator.query(at)
        asked = oracle.asked[before:]
        told += "".join("1" if one.kind == "gradient" else "2" for one in asked) or "0"
    return told


def check_restarts(module: Any) -> None:
    """A fresh gradient exactly where the squared moves before it, this one included, come to kappa or more."""
    path = [point(x, 0.0) for x in (0, 3, 7, 7, 10, 12, 16)]
    assert kinds(path, module, restart_drift=25.0) == "1210221", "9 + 16 = 25 at the third, 9 + 4 + 16 at the last"
    assert kinds(path, module, restart_drift=25.0 + 1e-9) == "1220122"


def check_way_back(module: Any) -> None:
    """A jump back to where a phase began counts by its length, whatever the estimates say."""
    path = [point(x, 0.0) for x in (0, 1, 2, 0, 1)]
    assert kinds(path, module, restart_drift=5.9) == "12212"


CHECKS: tuple[Callable[[Any], None], ...] = (check_restarts, check_way_back)
BUGS = {
    "the boundary is below": ("starts_again(drift,", "starts_again(drift * (1 - 1e-12),"),
    "moves are forgotten": ("drift += distance**2", "drift = distance**2"),
    "lengths are added up": ("drift += distance**2", "drift += distance"),
    "the move to this point counts later": (
        "if not known or settings.starts_again(drift, int(now.queries)):",
        "if not known or settings.starts_again(float(last.drift), int(now.queries)):",
    ),
    "nothing is asked for a short move": ("if change is not None:", "if change is not None and distance > 2:"),
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_branches_on_scripted_paths(check: Callable[[Any], None]) -> None:
    check(ada_spider)


@pytest.mark.parametrize("bug", BUGS)
def test_other_branches_are_seen(bug: str) -> None:
    assert failed(CHECKS, planted(ada_spider, *BUGS[bug]))


def test_diff2_starts_again_by_number_alone() -> None:
    path = [point(float(x), 0.0) for x in range(8)]
    assert kinds(path, estimator="period", period=3) == "12212212"


def test_no_distance_takes_no_record_and_returns_the_same_estimate() -> None:
    records = CountedRecords(1000)
    oracle = StreamOracle(records, facts(1000, 3), UnlimitedFilter(), SystemGenerator(), np.arange(1000))
    estimator = AdaSpider(given(batch=50, difference_batch=20), oracle, no_estimate(point(dimension=3)))
    first, again = estimator.query(point(dimension=3)), estimator.query(point(dimension=3))
    assert first is not None
    assert again is not None
    assert torch.equal(first, again)
    assert records.sizes == [("gradient", 50)]


def drawn(settings: GaussPsgdPlan, path: list[Tensor], runs: int, dimension: int = 50) -> Tensor:
    """Return the errors of the estimate at the end of a path, over many runs through a real oracle, the truth e1."""
    units = runs * (10 + 2 * len(path))
    public = facts_of(units, dimension)
    oracle = StreamOracle(
        StillRecords(units, dimension), public, UnlimitedFilter(), repeatable_generator(), np.arange(units)
    )
    found = []
    for _ in range(runs):
        estimator = AdaSpider(settings, oracle, no_estimate(path[0]))
        for at in path:
            last = estimator.query(at)
        assert last is not None
        found.append(last)
    return torch.stack(found) - point(1.0, dimension=dimension)


class TestNoise:
    def test_of_a_fresh_gradient_is_twice_the_clip_over_the_batch(self) -> None:
        """A2: 20 000 numbers; 2 % is four standard errors of a deviation, correlations have 0.05 at 400 draws."""
        errors = drawn(given(mu=0.5), [point(dimension=50)], 400)
        assert errors.std() == pytest.approx(2.0 * 2 * 1.0 / 10, rel=0.02)
        assert abs(float(errors.mean())) < 4 * 0.4 / sqrt(errors.numel())
        halves = torch.corrcoef(errors.reshape(-1, 2).T)
        assert abs(float(halves[0, 1])) < 0.05

    @pytest.mark.slow
    def test_of_a_fresh_gradient_in_full_size(self) -> None:
        """A2: 20 000 queries."""
        errors = drawn(given(mu=0.5), [point(dimension=3)], 20_000, dimension=3)
        assert errors.std() == pytest.approx(0.4, rel=0.02)
        assert (errors.mean(0).abs() < 4 * 0.4 / sqrt(20_000)).all()
        correlations = torch.corrcoef(errors.T) - torch.eye(3)
        assert float(correlations.abs().max()) < 0.05

    @pytest.mark.parametrize("distance", [1e-6, 0.01, 1.0, 100.0])
    def test_of_a_change_is_by_the_distance_and_never_above_two_clips(self, distance: float) -> None:
        """A3; kappa is never reached, so the noise of the fresh gradient is taken away by the one before."""
        oracle_of = drawn(given(restart_drift=1e9), [point(dimension=50)], 1)
        assert oracle_of.shape == (1, 50)
        errors = _changes(distance, 240)
        expected = 1.0 * 2 * min(2.0, 0.7 * distance) / 2
        assert errors.std() == pytest.approx(expected, rel=0.02)

    def test_a_change_without_noise_where_the_way_is_short_is_seen(self) -> None:
        """Planted: noise is left out below a distance of 0.001."""

        class Silent(GaussPsgdPlan):
            def change(self, distance: float) -> GradientDifference | None:
                return super().change(distance) if distance > 1e-3 else None

        settings = Silent.model_validate(given(smoothness=0.7, restart_drift=1e9).model_dump())
        assert float(_changes(1e-6, 5, settings).std()) == 0

    def test_adds_up_along_a_path(self) -> None:
        """A4: the variance after t changes is that of a fresh gradient and of all moves; 3 %, 12 000 numbers."""
        path = [point(*xy, dimension=50) for xy in ((0, 0), (0.3, 0), (0.3, 0.4), (0, 0), (0.5, 0.5))]
        errors = drawn(given(restart_drift=1e9, smoothness=2.0), path, 240)
        squares = 0.09 + 0.16 + 0.25 + 0.5
        expected = (2 * 1.0 / 10) ** 2 + (2 * 2.0 / 2) ** 2 * squares
        assert float(errors.var()) == pytest.approx(expected, rel=0.03)


def _changes(distance: float, runs: int, settings: GaussPsgdPlan | None = None) -> Tensor:
    """Return what the estimate moves by over a distance, of records whose gradients do not."""
    settings = given(smoothness=0.7, restart_drift=1e9) if settings is None else settings
    units = runs * 12
    oracle = StreamOracle(
        StillRecords(units, 50), facts_of(units, 50), UnlimitedFilter(), repeatable_generator(), np.arange(units)
    )
    found = []
    for _ in range(runs):
        estimator = AdaSpider(settings, oracle, no_estimate(point(dimension=50)))
        before, after = estimator.query(point(dimension=50)), estimator.query(point(distance, dimension=50))
        assert before is not None
        assert after is not None
        found.append(after - before)
    return torch.stack(found)


class TestRecords:
    def test_one_record_moves_a_fresh_gradient_by_two_clips_over_the_batch(self) -> None:
        """A5: a record with gradient +C, replaced by one with -C; exact sums, as the oracle forms them."""
        features, target, present = rows(10, 3)
        features = 100.0 * features
        question, public = Gradient(sigma=1.0, batch=10, clip=0.1), facts(10, 3)
        sums = []
        for sign in (0.0, 1.0):
            changed = target.clone()
            changed[4] = sign
            data = LinearProblem(features.clone(), changed, present, Logistic(), Mallows(bound=1e6))
            sums.append(data.bounded_sum(question, public, torch.zeros(3, dtype=torch.float64)))
        moved = float((sums[0] - sums[1]).norm())
        assert 0.99 * 0.2 <= moved <= 0.2 * (1 + 1e-9)

    def test_no_record_moves_a_change_by_more_than_two_caps(self) -> None:
        """A5: records far longer than the declared smoothness allows, on a loss with kinks; the cap still holds."""
        cap, zero = 0.01, torch.zeros(2, dtype=torch.float64)
        question, public = GradientDifference(sigma=1.0, batch=1, cap=cap, clip=1.0), facts(1, 2)
        other, present = torch.tensor([0.1, 0.0], dtype=torch.float64), torch.ones(1, dtype=torch.bool)
        target = torch.tensor([1.5], dtype=torch.float64)  # both cross the kink half of the way
        changes = []
        for along in (1000.0, -1000.0):
            features = torch.tensor([[30.0, along]], dtype=torch.float64)
            data = LinearProblem(features, target.clone(), present, Huber(scale=0.01), Mallows(bound=1e6))
            changes.append(data.bounded_sum(question, public, zero, other=other))
        moved = float((changes[0] - changes[1]).norm())
        assert 0.99 * 2 * cap <= moved <= 2 * cap * (1 + 1e-9)

    def test_both_gradients_of_a_change_are_of_the_same_records(self) -> None:
        """A9: records that disagree with each other, and whose gradients do not move: the change is exactly zero."""
        features, _, present = rows(600, 3)
        target = 1e3 * torch.randn(600, generator=torch.Generator().manual_seed(1), dtype=torch.float64).sign()
        data, public = LinearProblem(features, target, present, Huber(scale=0.7), Mallows(bound=2**0.5)), facts(600, 3)
        sampling = StreamSampling(batches=(30, 10))
        oracle = Simulation(data, public, SimulationGenerator(1), noiseless=True, sampling=sampling)
        estimator = AdaSpider(
            given(batch=30, difference_batch=10, restart_drift=1e9), oracle, no_estimate(point(dimension=3))
        )
        first, second = estimator.query(point(dimension=3)), estimator.query(point(0.1, dimension=3))
        assert first is not None
        assert second is not None
        assert float(first.norm()) > 0.01
        assert torch.equal(first, second)
        fresh = Gradient(sigma=1.0, batch=10)
        apart = oracle.ask(fresh, point(0.1, dimension=3)).value - oracle.ask(fresh, point(dimension=3)).value
        assert float(apart.norm()) > 0.01, "planted: two batches would show"


SIZES: dict[str, Any] = {
    "batch": 60,
    "difference_batch": 10,
    "restart_drift": 0.05,
    "error_radius": 0.2,
    "escape_distance": 0.35,
    "round_steps": 5,
    "step_size": 1.0,
    "mu": 5.0,
}


def run(mode: str, *, epochs: int = 1, kind: Any = StreamOracle, **options: Any) -> tuple[CountedRecords, Any, Any]:
    """Run the method on counted records behind a real oracle; return them, the oracle's event and the estimate."""
    units = 1200
    records, public, payments = CountedRecords(units), facts(units, 3), CountingFilter()
    settings = given(**SIZES | {"round_mode": mode, "epochs": epochs, "steps": 250} | options)
    generator = np.random.default_rng(4)
    orders = np.stack([generator.permutation(units) for _ in range(epochs)])
    oracle = kind(records, public, payments, SystemGenerator(), orders)
    estimate, _ = iterate(settings, oracle)
    return records, payments.totals[-1], estimate


def check_single_use(records: CountedRecords, epochs: int = 1) -> None:
    """Fail unless every record was read once a pass at most, in batches of their full sizes."""
    assert int(records.counts.max()) <= epochs, "no record is read twice in a pass"
    assert {size for _, size in records.sizes} <= {60, 10}, "a batch is never what is left"
    assert all(size == (60 if kind == "gradient" else 10) for kind, size in records.sizes)


class TestSingleUse:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("epochs", [1, 2])
    def test_no_record_is_in_two_questions_of_a_pass(self, mode: str, epochs: int) -> None:
        """A6: whole runs, with rounds in them, until the records are used up."""
        records, event, estimate = run(mode, epochs=epochs)
        check_single_use(records, epochs)
        assert estimate.error_bound.second_order.rounds > 2
        sigma, read = sqrt(epochs) / 5.0, int(records.counts.sum())
        assert read > 400, "whole phases were read"
        one = Gaussian(sigma=sigma)
        assert event == (one if read <= 1200 else Repeated(event=one, times=2))

    def test_a_place_in_the_stream_that_goes_back_with_a_round_is_seen(self) -> None:
        """Planted: the state that a round begins with holds the place in the stream too."""

        class Rewound(AdaSpider):
            def snapshot(self) -> Any:
                behind = self._oracle._streams[EVERYTHING].behind
                return super().snapshot()._replace(drift=super().snapshot().drift + 0 * behind)

            def begin_round(self, mode: Any, snapshot: Any) -> None:
                super().begin_round(mode, snapshot)
                self._oracle._streams[EVERYTHING].behind = 0

        units = 1200
        records, settings = CountedRecords(units), given(**SIZES | {"steps": 60, "escape_distance": 1e9})
        oracle = StreamOracle(records, facts(units, 3), CountingFilter(), SystemGenerator(), np.arange(units))
        start = torch.zeros(3, dtype=torch.float64)
        walk(settings, oracle.facts, Rewound(settings, oracle, no_estimate(start)), beginning(start), lambda _: None)
        with pytest.raises(AssertionError, match="read twice"):
            check_single_use(records)

    def test_a_last_batch_of_what_is_left_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Planted: where too few units are left, a question is answered from these."""

        def whatever_is_left(course: StreamCursor, batch: int) -> int | None:
            del batch
            return course.behind if course.behind < course._units else None

        monkeypatch.setattr(StreamCursor, "first", whatever_is_left)
        records, _, _ = run("fresh", escape_distance=0.01)
        with pytest.raises(AssertionError, match="what is left"):
            check_single_use(records)


class Told(StreamOracle):  # type: ignore[misc]  # a final class: this one only listens
    """A oracle that writes down what it tells."""

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        answer = super().ask(question, theta, other)
        self.__dict__.setdefault("told", []).append((question, answer))
        return answer


@pytest.mark.parametrize("mode", MODES)
def test_a_transcript_alone_repeats_a_run_bit_for_bit(mode: str) -> None:
    """A7: the same questions, branches, escapes and output from recorded answers, with no records behind them."""
    settings = given(**SIZES | {"round_mode": mode, "steps": 250})
    oracle = Told(CountedRecords(1200), facts(1200, 3), CountingFilter(), SystemGenerator(), np.arange(1200))
    real, _ = iterate(settings, oracle)
    deaf, _ = iterate(settings, Deaf(oracle.facts, oracle.told))  # type: ignore[arg-type]
    assert torch.equal(real.theta, deaf.theta)
    assert real.error_bound == deaf.error_bound
    assert real.steps == deaf.steps
    assert real.error_bound is not None
    assert real.error_bound.second_order is not None
    assert real.error_bound.second_order.rounds > 0


@pytest.mark.parametrize("mode", MODES)
def test_an_attempt_goes_on_exactly_where_another_kept(mode: str) -> None:
    """Lost after any answer: with the answers that were to come it ends at the very same point."""
    settings = given(**SIZES | {"round_mode": mode, "steps": 250})
    oracle = Told(CountedRecords(1200), facts(1200, 3), CountingFilter(), SystemGenerator(), np.arange(1200))
    whole, _ = iterate(settings, oracle)

    class Keeping(Deaf):
        def __init__(self, told: Any, state: Any = None) -> None:
            super().__init__(oracle.facts, told)
            self.states: list[Any] = []
            self.state = state

        def resume(self, initial: Any) -> Any:
            return initial if self.state is None else self.state

        def keep(self, state: Any, step: int) -> None:
            self.states.append(({name: value.clone() for name, value in state.items()}, len(self._told), step))

    first = Keeping(oracle.told)
    iterate(settings, first)  # type: ignore[arg-type]
    for state, left, step in first.states[:: max(1, len(first.states) // 8)]:
        assert int(state["step"]) == step
        going_on, _ = iterate(settings, Keeping(oracle.told[len(oracle.told) - left :], state))  # type: ignore[arg-type]
        assert torch.equal(going_on.theta, whole.theta)
        assert going_on.error_bound == whole.error_bound


def test_replicates_are_a_mistake_that_is_heard() -> None:
    settings = given(**SIZES)
    oracle = Simulation(problem(4000, 3), facts(4000, 3), SimulationGenerator(1), replicates=3,
                        sampling=StreamSampling(batches=(60, 10)))  # fmt: skip
    with pytest.raises(RuntimeError):
        iterate(settings, oracle)
