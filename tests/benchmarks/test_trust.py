"""The fast gate: do intervals cover the truth, on many data sets, by the real planner and the real oracle?

Data sets have fixed seeds and the noise follows from a test's name, so a run repeats and none fails by chance. After a
change of what is drawn, the rules judge new draws once: with their slack of two to 2.8 simulation deviations some cell
fails once in twenty such changes.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.trust.fresh import FRESH
from benchmarks.trust.fresh_second import SECOND
from benchmarks.trust.grid import GATE, Gated, rows
from benchmarks.trust.jobs import planned, run
from benchmarks.trust.shapes import draw
from benchmarks.trust.verdicts import QUANTILE, broken, judge
from core.inference.checks import Checks
from core.methods.m_estimation.whitened_newton import column_look, linear_walk
from core.methods.m_estimation.whitened_newton import fit as method
from core.methods.m_estimation.whitened_newton import questions as whitened_questions
from core.methods.m_estimation.whitened_newton.inference import coefficient_checks, last_step
from core.methods.m_estimation.whitened_newton.inference.last_step import Last, NoisedAnswer, Whitened
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.models.assumed import Assumed
from core.models.outlook import make_outlook
from core.planning.prediction import predict
from core.privacy.events import Event
from core.privacy.facts import Facts
from core.queries.looks import AbstractCounts

Array = NDArray[np.float64]


PREDICTIONS: Final = "predict worse"


def rules_broken(row: Gated) -> list[str]:
    """Return the rules of intervals that a cell's jobs break."""
    return [said for said in _rules_broken(row) if PREDICTIONS not in said]


def _rules_broken(row: Gated) -> list[str]:
    found = judge([run(row.cell, (row.seed, number)) for number in range(row.jobs)], row.named)
    return broken(found, row.expected, row.stored)


@pytest.mark.parametrize("name", GATE)
def test_intervals_cover_and_what_fails_is_flagged(name: str) -> None:
    assert rules_broken(GATE[name]) == []


def test_predictions_short_of_budget_are_no_worse_than_the_base_rate() -> None:
    """Unshrunk a quarter of these jobs lose to it, shrunk three of 80: eight are in one of 200 changes of draws."""
    row = GATE["short of budget"]
    found = judge([run(row.cell, (row.seed, number)) for number in range(row.jobs)], row.named)
    assert found.losing is not None
    assert found.losing < 0.1


ASKED: list[NoisedAnswer] = []
"""Hessians of a job with a pool of them planted, in order."""


def _remembering(oracle: Any, theta: Array, sigma: float, of: str = "hessian") -> NoisedAnswer:
    found: NoisedAnswer = MATRIX(oracle, theta, sigma, of)
    if of == "hessian":
        ASKED.append(found)
    return found


def _pool_of_all(hessians: tuple[NoisedAnswer, NoisedAnswer], size: int) -> NoisedAnswer:
    """Pool the Hessians of all points on the way, as they are."""
    assert len(hessians[0].value) == size
    precisions = [one.deviation**-2 for one in ASKED]
    value = sum(one.value * weight for one, weight in zip(ASKED, precisions, strict=True)) / sum(precisions)
    ASKED.clear()
    return NoisedAnswer(np.asarray(value), sum(precisions) ** -0.5)


def _stale(hessians: tuple[NoisedAnswer, NoisedAnswer], size: int) -> NoisedAnswer:
    """Take the Hessian of the point before, as it is."""
    assert len(hessians[0].value) == size
    return hessians[0]


def _no_drift(*given: Any) -> tuple[Array, float, tuple[float, float]]:
    relative, _, dispersed = SCORES(*given)
    return relative, 1.0, dispersed


def _deaf(last: Last) -> Whitened:
    """Count a quarter of the noise."""
    found = FINISH(last)
    return replace(found, covariance=found.covariance - 0.75 * (found.covariance - found.sampling - found.guess))


def _exact_hessian(last: Last) -> Whitened:
    """Leave out what the Hessian's own noise does to the steps."""
    found, (_, first), (_, second) = FINISH(last), *last.gradients
    pool, size = last_step.pooled(last.hessians, len(last.theta)), len(last.theta)
    shrunk = last_step.shrink(pool.value, pool.deviation, last_step.LEAST_MEAN_PART * last.peak)
    least = max(0.75 * shrunk.kept * pool.deviation * size**0.5, last_step.MEAN_FLOOR * shrunk.mean)
    inverse = (shrunk.vectors / np.maximum(shrunk.values, least)) @ shrunk.vectors.T
    moved = (1 - found.omega) * last.moved + float(np.linalg.norm(found.theta - last.theta))
    assert first > 0
    assert second > 0
    return replace(found, covariance=found.covariance - shrunk.kept * (pool.deviation * moved) ** 2 * inverse @ inverse)


def _without_sampling(last: Last) -> Whitened:
    found = FINISH(last)
    return replace(found, covariance=found.covariance - found.sampling)


def _first_step_only(*given: Any) -> Array:
    """Take no step from zero."""
    return np.zeros(len(given[-1]))


def _start_at_zero(*given: Any) -> Array:
    return np.zeros(len(given[1].matrix))


def _unlooked(*given: Any) -> None:
    """Leave every number with a scale of its declared range: see nothing."""
    _, oracle, _, found = given
    ranges = oracle.facts.ranges
    for at in ranges.places("number"):
        found.scale[at] = (ranges.upper[at] - ranges.lower[at]) / 2


def _unpaid(settings: WhitenedNewtonPlan, facts: Facts) -> list[Event]:
    """Price all but the look."""
    del facts
    return [question.event() for question in settings.questions() if not isinstance(question, AbstractCounts)]


def _nothing_wrong(one: coefficient_checks.Found) -> Checks:
    found = CHECK(one)
    return found.model_copy(update={"job": (), "coefficients": ((),) * len(found.coefficients)})


def _encoded_once(design: NoisedAnswer, raised: Array) -> Array:
    """Leave columns in the encoding of the first moments."""
    assert design.value.shape == raised.shape
    return np.eye(len(raised))


FINISH, SCORES, MATRIX, CHECK = (
    last_step.finish,
    last_step._scores,
    whitened_questions.EncodedQuestions.matrix,
    coefficient_checks.check,
)
FROM_ZERO: Final = [(method, "_walk", _first_step_only), (method, "_start", _start_at_zero)]
UNLIMITED: Final = dict.fromkeys(method._LONGEST_STEP, 1e9)
PLANTED: Final[dict[str, tuple[str, list[tuple[object, str, object]]]]] = {
    "the last Hessian stale, and no drift": (
        "rare",
        [(last_step, "pooled", _stale), (last_step, "_scores", _no_drift)],
    ),
    "Hessians of all points pooled": (
        "rare",
        [
            (whitened_questions.EncodedQuestions, "matrix", _remembering),
            (last_step, "pooled", _pool_of_all),
            (last_step, "_scores", _no_drift),
            (method, "_start", _start_at_zero),
        ],
    ),
    "no drift": ("rare", [(last_step, "_scores", _no_drift)]),
    "a quarter of the noise": ("loud", [(method, "finish", _deaf)]),
    "a quarter of the noise where it rules": ("noisy", [(method, "finish", _deaf)]),
    "the Hessian's noise left out": ("short of budget", [(method, "finish", _exact_hessian)]),
    "no sampling variance": ("tails", [(method, "finish", _without_sampling)]),
    "no steps": ("rare", FROM_ZERO),
    "no steps, and no flag of it": ("rare", [*FROM_ZERO, (coefficient_checks, "EXCESS", 1e9)]),
    "steps of any length": ("short of budget", [(method, "_LONGEST_STEP", UNLIMITED), (method, "LONGEST_START", 1e9)]),
    "columns encoded once": ("close columns", [(linear_walk, "whitening", _encoded_once)]),
    "residuals measured once": (
        "close columns",
        [(linear_walk, "LEAST_OF_NOISE", 1e9), (linear_walk, "MOST_GROWTH", 1.0)],
    ),
    "no look": ("tails", [(column_look, "_look_at_numbers", _unlooked)]),
    "a look that nobody paid for": ("tails", [(WhitenedNewtonPlan, "schedule", _unpaid)]),
    "no flags": ("alias", [(method, "check", _nothing_wrong)]),
    "no flag of hidden directions": ("alias", [(coefficient_checks, "MOST_GUESSED", 9.0)]),
    "no certificate of columns that decide": ("decided", [(coefficient_checks, "EXCLUDED", -1e9)]),
    "no flag of outcomes that are all alike": (
        "certain",
        [(coefficient_checks, "ALIKE", -1e9), (coefficient_checks, "ALIKE_IF_FAR", -1e9)],
    ),
}


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[Gated]:
    cell, patches = PLANTED[request.param]
    with ExitStack() as stack:
        for where, name, value in patches:
            stack.enter_context(patch.object(where, name, value))
        yield GATE[cell]


@pytest.mark.parametrize("planted", PLANTED, indirect=True)
def test_planted_bugs_fail_the_gate(planted: Gated) -> None:
    """Each bug on one cell that must notice it; a bug that slips through is a gate that sees nothing."""
    try:
        said = rules_broken(planted)
    except AssertionError as refused:
        said = [str(refused)]
        assert "never exceeds its price" in said[0], "by the oracle's privacy filter: nobody paid"
    assert said


def test_the_grid_names_each_cell_once_and_has_every_fresh_shape() -> None:
    names = [row.cell.name for row in rows()]
    assert len(names) == len(set(names))
    assert set(FRESH | SECOND) <= {row.cell.shape for row in rows()}


FORETOLD_JOBS: Final = 20


@pytest.mark.parametrize("name", ["loud", "rare", "tails", pytest.param("counts", marks=pytest.mark.nightly)])
def test_widths_come_out_as_an_estimate_with_true_deviations_foretold(name: str) -> None:
    """Within .7 to 1.35 in the median over twenty jobs and all coefficients but the intercept.

    Not where noise rules: there the noise of Hessians widens intervals by a third more, which no prediction has.
    """
    assert 0.7 < _found_over_foretold(GATE[name], first=5000) < 1.35


def _found_over_foretold(row: Gated, first: int) -> float:
    cell = row.cell
    draws = np.random.default_rng((row.seed, first))
    data = draw(draws, cell.shape, cell.units, cell.dimension - 1, cell.outcome, wide=cell.wide)
    plan = planned(cell, data)
    names = [column.name for column in plan.design.columns]
    deviations = dict(zip(names, data.features.std(0).tolist(), strict=True))
    means = dict(zip(names, data.features.mean(0).tolist(), strict=True))
    assume: dict[str, object] = {"means": means, "deviations": deviations}
    if cell.outcome.kind != "linear":
        assume["base_rate"] = float(data.target.mean())
    model: Any = plan.spec.model
    outlook = make_outlook(plan.design, model, Assumed.model_validate(assume))
    told = predict(outlook, plan.facts, plan.spec.optimizer, plan.spec.inference)
    assert told is not None
    foretold = np.array([one.width for one in told])[1:]
    found = [run(cell, (row.seed, first + k)).error[1:] * 2 * QUANTILE for k in range(FORETOLD_JOBS)]
    return float(np.median(np.array(found) / foretold))
