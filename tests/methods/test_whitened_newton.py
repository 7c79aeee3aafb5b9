"""Whitened Newton: it draws what was priced, goes on after a loss, and without noise it solves the weighted equation.

Coverage is judged in `tests/benchmarks/test_trust.py`, on fresh data sets.
"""

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.trust.exact import minimum
from benchmarks.trust.jobs import Cell
from benchmarks.trust.shapes import Outcome
from core.inference.checks import Checks, Learned
from core.mechanisms.generator import SystemGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.whitened_newton import fit as method
from core.methods.m_estimation.whitened_newton.shares import LEVELS, SHARES
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.oracle import Answer, Oracle
from core.oracle.filters import ORDERS, CountingFilter
from core.oracle.full import FullOracle
from core.privacy.events import Event, Gaussian, compose
from core.privacy.facts import Adjacency
from core.privacy.renyi import prefix_costs
from core.queries.gradients import Question
from core.queries.looks import ValueCounts
from core.training.ledger_filter import LedgerFilter
from core.training.order import Payer
from tests.support.grey_box import check_neighbours, neighbours, run
from tests.support.planned_scenes import Scene
from tests.support.problems import repeatable_generator

CELLS = {
    "logistic": Cell("indicators", 3000, 5, 1.0, Outcome("logistic")),
    "huber": Cell("normal", 3000, 4, 1.0, Outcome("linear")),
    "least squares": Cell("normal", 3000, 4, 1.0, Outcome("linear"), least_squares=True),
    "poisson": Cell("normal", 3000, 4, 1.0, Outcome("poisson", 2.0)),
}
every = pytest.mark.parametrize("name", CELLS)


class Noting:
    """An oracle that notes its questions and answers, and may die."""

    def __init__(self, oracle: FullOracle, die_after: int | None = None) -> None:
        self._oracle, self._left = oracle, die_after
        self.facts, self.randomness, self.precision = oracle.facts, oracle.randomness, oracle.precision
        self.questions: list[Question] = []
        self.answers: list[Answer] = []

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        if self._left == len(self.questions):
            raise KeyboardInterrupt
        answer = self._oracle.ask(question, theta, other)
        self.questions.append(question)
        self.answers.append(Answer(answer.value.clone(), answer.scale))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)


@every
def test_it_asks_what_was_priced_in_that_order_and_no_answer_moves_a_price(name: str) -> None:
    scene = Scene(CELLS[name])
    oracle = Noting(scene.oracle())
    scene.fitted(oracle)  # type: ignore[arg-type] # it passes everything else on
    assert [one.event() for one in oracle.questions] == list(scene.plan.schedule)
    assert [one.kind for one in oracle.questions] == [one.kind for one in scene.settings.questions()]
    size = scene.plan.facts.dimension
    pairs = zip(oracle.questions, scene.settings.questions(), strict=True)
    assert all(one.draws(size) <= planned.draws(size) for one, planned in pairs), "no answer draws more than planned"
    worth = sum(event.sigma**-2 for event in scene.plan.schedule if isinstance(event, Gaussian))
    assert worth == pytest.approx(1.0, rel=1e-9), "mu is 1"
    assert sum(SHARES) == pytest.approx(1.0)


def test_half_the_levels_paid_would_be_refused() -> None:
    """Planted bug: a plan that prices eight levels of cells of the sixteen that are asked."""
    scene = Scene(CELLS["logistic"])
    short = scene.plan.schedule[LEVELS // 2 :]
    with pytest.raises(AssertionError, match="never exceeds its price"):
        scene.fitted(scene.oracle(CountingFilter(compose(Counter(short)))))


def test_a_look_that_nobody_paid_would_be_refused() -> None:
    """Planted bug: sizes asked once more for free."""
    scene = Scene(CELLS["huber"])
    question = scene.settings.size_question()
    assert question is not None
    oracle = scene.oracle()
    scene_oracle = Noting(oracle)
    iterate(scene.settings, scene_oracle)  # type: ignore[arg-type] # as above
    with pytest.raises(AssertionError, match="never exceeds its price"):
        oracle.ask(question, torch.zeros(oracle.facts.dimension).double())


@every
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_neighbours_differ_in_integer_sums_alone(name: str, adjacency: Adjacency) -> None:
    """Grey box: the whole method, replayed on neighbours with the first run's sums, releases the same bytes."""
    scene = Scene(replace(CELLS[name], units=400, mu=20.0, adjacency=adjacency))

    def fit(oracle: Oracle) -> Tensor:
        estimate = method.iterate(scene.settings, oracle)[0]
        assert estimate.sandwich is not None
        assert estimate.checks is not None
        text = torch.tensor(list(estimate.checks.model_dump_json().encode()), dtype=torch.float64)
        return torch.cat((estimate.theta, estimate.sandwich.covariance.flatten(), text))

    features, target = (torch.from_numpy(one) for one in scene.records)
    first = run(scene.problem(), scene.plan.facts, fit)
    for kind, rows in neighbours(features, target, torch.ones(len(target)).bool(), row=7).items():
        if adjacency is Adjacency.ZERO_OUT and kind not in {"zeroed", "not a number"}:
            continue
        check_neighbours(first, run(scene.problem(rows), scene.plan.facts, fit, recorded=first))


class Kept:
    """A ledger writer that holds what is kept with each payment."""

    def __init__(self) -> None:
        self.state: bytes | None = None
        self.chunks = 0
        self.paid = 0

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        del step
        if state is not None:
            self.state, self.chunks = state, chunk
        self.paid += 1

    def keep(self, state: bytes, step: int) -> None:
        raise AssertionError(f"nobody asks it to stop, at step {step} with {len(state)} bytes")


@pytest.mark.parametrize("name", ["logistic", "huber"])
@pytest.mark.parametrize("lost", [0, 1, 9, 17, 20, 33, 36, 40])
def test_it_goes_on_from_wherever_it_was_lost(name: str, lost: int) -> None:
    """Answers paid for are given again, one chunk is paid twice, and the release is that of one run without a break."""
    scene = Scene(replace(CELLS[name], units=500, mu=5.0))
    schedule: tuple[Event, ...] = scene.plan.schedule
    if lost >= len(schedule):
        pytest.skip("it asks fewer questions")
    totals = tuple(tuple(total) for total in prefix_costs(schedule, ORDERS))
    writer = Kept()
    problem = scene.problem()

    def attempt(die_after: int | None) -> Noting:
        payments = LedgerFilter(writer, [Payer(ORDERS, totals)], schedule, kept=writer.state, kept_chunks=writer.chunks)
        return Noting(FullOracle(problem, scene.plan.facts, payments, SystemGenerator()), die_after)

    first, settings = attempt(lost + 1), scene.settings
    with pytest.raises(KeyboardInterrupt):
        iterate(settings, first)  # type: ignore[arg-type] # it passes everything else on
    second = attempt(None)
    ended = iterate(settings, second)[0]  # type: ignore[arg-type] # as above
    told_again = [torch.equal(one.value, two.value) for one, two in zip(first.answers, second.answers, strict=False)]
    assert told_again == [True] * lost + [False]
    assert writer.paid == len(schedule) + 1
    script = iter(second.answers)
    oracle = Noting(scene.oracle())
    oracle.ask = lambda *_: next(script)  # type: ignore[method-assign] # told what the attempts were told in the end
    again = iterate(settings, oracle)[0]  # type: ignore[arg-type] # as above
    assert torch.equal(again.theta, ended.theta)


def test_a_job_that_release_0_1_0_began_goes_on_with_the_one_count_it_was_answered() -> None:
    scene = Scene(replace(CELLS["logistic"], units=500, mu=5.0))
    schedule: tuple[Event, ...] = scene.plan.schedule
    totals = tuple(tuple(total) for total in prefix_costs(schedule, ORDERS))
    writer, problem = Kept(), scene.problem()

    def attempt(die_after: int | None) -> Noting:
        payments = LedgerFilter(writer, [Payer(ORDERS, totals)], schedule, kept=writer.state, kept_chunks=writer.chunks)
        return Noting(FullOracle(problem, scene.plan.facts, payments, SystemGenerator()), die_after)

    def earlier(settings: WhitenedNewtonPlan) -> ValueCounts:
        return ValueCounts(sigma=settings.sigma(settings.shares.target), of="target", columns=1)

    first = attempt(25)
    with patch.object(WhitenedNewtonPlan, "target_question", earlier), pytest.raises(KeyboardInterrupt):
        iterate(scene.settings, first)  # type: ignore[arg-type] # it passes everything else on
    assert any(isinstance(one, ValueCounts) and one.of == "target" for one in first.questions)
    second = attempt(None)
    ended = iterate(scene.settings, second)[0]  # type: ignore[arg-type] # as above
    assert ended.checks is not None
    assert ended.checks.learned.complete is None
    assert [torch.equal(one.value, two.value) for one, two in zip(first.answers, second.answers, strict=False)][
        :24
    ] == ([True] * 24)


@every
def test_without_noise_it_is_the_root_of_the_weighted_equation_and_its_sandwich(name: str) -> None:
    """Against Newton's method and a sandwich written out in NumPy, in the encoding that the job learned."""
    scene = Scene(replace(CELLS[name], mu=1e5))
    estimate = scene.fitted(scene.oracle())
    checks = estimate.checks
    assert isinstance(checks, Checks)
    assert estimate.sandwich is not None
    assert (checks.job, set(checks.coefficients)) == ((), {()})
    exact, covariance = minimum(scene.settings.loss, checks.learned, scene.records, estimate.theta.numpy())
    errors = np.sqrt(np.diag(covariance))
    assert (np.abs(estimate.theta.numpy() - exact) < 0.02 * errors).all()
    np.testing.assert_allclose(np.sqrt(np.diag(estimate.sandwich.covariance)) / errors, 1.0, atol=0.1)


def test_without_noise_it_learns_where_columns_lie() -> None:
    """Medians within a cell, scales within what powers of two tell, and the frequency of two-valued columns."""
    scene = Scene(replace(CELLS["logistic"], mu=1e6))
    checks = scene.fitted(scene.oracle()).checks
    assert checks is not None
    features, target = scene.records
    ranges = scene.plan.facts.ranges
    assert ranges is not None
    for place, (kind, column) in enumerate(zip(ranges.kinds, checks.learned.columns, strict=True)):
        values = features[:, place]
        if kind == "number":
            assert column.centre == pytest.approx(np.median(values), abs=1e-3)
            assert column.scale == pytest.approx(values.std(), rel=0.15)
        elif kind == "two":
            assert column.centre == pytest.approx(values.mean(), abs=1e-3)
    assert checks.learned.base_rate == pytest.approx(target.mean(), abs=1e-3)


def test_null_records_move_no_median() -> None:
    """A third of the records is missing: ranks are of those that are there."""
    scene = Scene(replace(CELLS["huber"], mu=1e6))
    features, target = (torch.from_numpy(one) for one in scene.records)
    present = torch.arange(len(target)) % 3 > 0
    problem = scene.problem((features, target, present))
    oracle = FullOracle(problem, scene.plan.facts, CountingFilter(), repeatable_generator())
    checks = scene.fitted(oracle).checks
    assert checks is not None
    for place in (1, 2, 3):
        median = np.median(features.numpy()[present.numpy(), place])
        assert checks.learned.columns[place].centre == pytest.approx(median, abs=1e-3)


@pytest.mark.parametrize("name", ["logistic", "huber"])
def test_complete_records_are_counted_and_shares_are_of_them(name: str) -> None:
    """Of 8,000 records 3,300 lacked a value: the base rate was .107 where the complete ones have .183."""
    scene = Scene(replace(CELLS[name], mu=1e6))
    features, target = (torch.from_numpy(one) for one in scene.records)
    present = torch.arange(len(target)) % 3 > 0
    problem = scene.problem((features, target, present))
    oracle = FullOracle(problem, scene.plan.facts, CountingFilter(), repeatable_generator())
    checks = scene.fitted(oracle).checks
    assert checks is not None
    assert checks.learned.complete == pytest.approx(2000, abs=1)
    assert checks.learned.complete_deviation == pytest.approx(0, abs=1)
    assert checks.learned.counted(3000) == pytest.approx(2000, abs=1)
    if name == "logistic":
        assert checks.learned.base_rate == pytest.approx(target[present].mean().item(), abs=1e-3)
    noised = Learned.model_validate(checks.learned.model_dump() | {"complete": 2950.0, "complete_deviation": 30.0})
    assert noised.counted(3000) == 3000, "not clearly fewer"


def test_a_split_that_answers_moved_would_be_seen() -> None:
    """Planted bug: a Hessian asked at four times its price where the first look seemed to call for it."""
    scene = Scene(CELLS["logistic"])
    genuine = WhitenedNewtonPlan.hessian_sigmas

    def louder(settings: WhitenedNewtonPlan) -> tuple[float, ...]:
        return tuple(sigma / 2 for sigma in genuine(settings))

    with (
        patch.object(WhitenedNewtonPlan, "hessian_sigmas", louder),
        pytest.raises(AssertionError, match="never exceeds"),
    ):
        scene.fitted(scene.oracle())


def test_it_says_how_far_counts_vary_beyond_their_law() -> None:
    """Within a quarter of the non-private ratio of squared residuals to fitted means, ten noise deviations."""
    for noise, wide in (("normal", 1.0), ("overdispersed", 5.0)):
        outcome = Outcome("poisson", 4.0, noise)  # type: ignore[arg-type] # names of laws
        scene = Scene(Cell("normal", 6000, 4, 5.0, outcome, wide))
        checks = scene.fitted(scene.oracle()).checks
        assert checks is not None
        learned = checks.learned
        assert learned.score_ratio is not None
        assert learned.variance_ratio is not None
        features, target = scene.records
        plain, _ = minimum(scene.settings.loss, learned, scene.records, np.zeros(4), weighted=False)
        mean = np.exp(features @ plain)
        ratio = float(((target - mean) ** 2).sum() / mean.sum())
        assert learned.score_ratio == pytest.approx(ratio, rel=0.25)
        assert learned.variance_ratio == pytest.approx(ratio, rel=0.25)


def test_each_line_of_least_squares_is_claimed_by_name_and_the_other_stands_beside() -> None:
    """Three records of 3,000 far out, which the noise hides: the light line does not move for them."""
    scene = Scene(CELLS["least squares"])
    scene.records[1][:3] = 1.0
    plans = [scene.settings.model_copy(update={"tails": tails}) for tails in ("counted", "assumed_light")]
    counted, light = (method.iterate(plan, scene.oracle())[0] for plan in plans)
    assert counted.other is not None
    assert light.other is not None
    assert (counted.other.tails, light.other.tails) == ("assumed_light", "counted")
    # One seed draws the noise of both jobs, so each claims what stands beside the other.
    assert abs(counted.theta - light.theta).max() > 1e-3
    np.testing.assert_allclose(light.theta.numpy(), counted.other.theta)
    np.testing.assert_allclose(counted.theta.numpy(), light.other.theta)
    assert counted.sandwich is not None
    np.testing.assert_allclose(counted.sandwich.covariance.numpy(), light.other.covariance)
