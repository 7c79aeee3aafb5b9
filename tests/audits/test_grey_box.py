"""Replays on neighbouring records: only integer sums may differ, by no more than is paid for."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from core.oracle import Oracle, full
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums import blocks, joint, linear
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.terms import Factors, Point, Records
from tests.support.grey_box import check_neighbours, neighbours, run
from tests.support.situations import SITUATIONS, Situation, named

every = pytest.mark.parametrize("situation", SITUATIONS, ids=named)
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))
UNITS = 200
LOGISTIC = SITUATIONS[0]


def newton(oracle: Oracle) -> Tensor:
    """Two steps, each shortened if the loss is said to rise, and a sandwich: everything depends on all before it."""
    theta = torch.ones(oracle.facts.dimension, dtype=torch.float64)
    matrix = "score" if oracle.facts.curvature_bound is None else "hessian"
    for clip in (None, 0.5):
        slope = oracle.ask(Gradient(sigma=2.0, clip=clip), theta).value
        hessian = oracle.ask(Curvature(of=matrix, sigma=2.0), theta).value
        step = torch.linalg.solve(hessian + torch.eye(len(theta), dtype=torch.float64), slope)
        ahead = theta - step
        ahead[-1] = ahead[-1].abs()  # it may be a scale
        theta = ahead if oracle.ask(Secant(sigma=2.0), theta, ahead).value < 0 else (theta + ahead) / 2
    return theta + oracle.ask(Curvature(of="score", sigma=2.0), theta).value.sum() + oracle.randomness.normal(1)


def replay_on_neighbours(situation: Situation, adjacency: Adjacency) -> None:
    x, y, present = situation.rows(UNITS, seed=11)
    x[7] *= 3  # an influential row
    public = situation.facts(UNITS, adjacency)
    first = run(_problem((x, y, present), situation), public, newton)
    for name, records in neighbours(x, y, present, row=7).items():
        if adjacency is Adjacency.ZERO_OUT and name not in {"zeroed", "not a number"}:
            continue
        check_neighbours(first, run(_problem(records, situation), public, newton, recorded=first))


def _problem(records: tuple[Tensor, Tensor, Tensor], situation: Situation) -> BlockProblem:
    return situation.problem(records)


@every
@every_adjacency
def test_neighbours_differ_in_integer_sums_alone(situation: Situation, adjacency: Adjacency) -> None:
    replay_on_neighbours(situation, adjacency)


@every
def test_null_and_invalid_rows_are_the_same_record(situation: Situation) -> None:
    public = situation.facts(UNITS)
    both = neighbours(*situation.rows(UNITS, seed=11), row=7)
    first = run(_problem(both["zeroed"], situation), public, newton)
    second = run(_problem(both["not a number"], situation), public, newton)
    assert first.released == second.released


def test_true_n_division_is_caught() -> None:
    """Planted bug: dividing by the number of records that are present."""
    genuine = full.FullOracle._select

    def by_the_present(self: full.FullOracle, question: Gradient) -> full.ReadSelection:
        selected = genuine(self, question)
        problem = self._problem
        return replace(selected, divisor=int((problem.records._records.weights > 0).sum()))

    with patch.object(full.FullOracle, "_select", by_the_present), pytest.raises(AssertionError, match="public"):
        replay_on_neighbours(LOGISTIC, Adjacency.ZERO_OUT)


def test_missing_clipping_is_caught() -> None:
    """Planted bug: no clipping, with weights that bound nothing either."""

    def unclipped(
        self: LinearProblem,
        question: Question,
        facts: Facts,  # noqa: ARG001 - the bug
        records: Records,
        at: Point,
    ) -> Factors:
        margin = records.features @ at.theta
        if isinstance(question, Curvature):
            return Factors(outer=torch.ones_like(margin).unsqueeze(0))
        if isinstance(question, Secant):
            return Factors(plain=margin.unsqueeze(0))
        return Factors(linear=self.loss.score(margin, records.target).unsqueeze(0))

    with patch.object(LinearProblem, "_factors", unclipped), pytest.raises(AssertionError, match="sensitivity"):
        replay_on_neighbours(LOGISTIC, Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("situation", SITUATIONS[1:3], ids=named)
def test_slopes_that_nothing_bounds_are_caught(situation: Situation) -> None:
    """Planted bug: losses without their weights, and no clamp."""
    genuine = blocks.slopes

    def raw(before: Tensor, after: Tensor, weights: Tensor, at: Point, bound: float) -> Tensor:
        return genuine(before, after, (weights > 0).double(), at, 1e6 * bound)

    with (
        patch.object(joint, "slopes", raw),
        patch.object(linear, "slopes", raw),
        pytest.raises(AssertionError, match="sensitivity"),
    ):
        replay_on_neighbours(situation, Adjacency.REPLACE_ONE)


def test_features_scaled_by_the_data_are_caught() -> None:
    """Planted bug: standardising by the records' own largest value."""

    def scaled(
        records: tuple[Tensor, Tensor, Tensor],
        situation: Situation,
    ) -> BlockProblem:
        x, y, present = records
        return situation.problem((x / x.nan_to_num().abs().max(), y, present))

    with patch(f"{__name__}._problem", scaled), pytest.raises(AssertionError, match="sensitivity"):
        replay_on_neighbours(LOGISTIC, Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("which", ["one point", "the other point"])
def test_a_look_at_the_records_is_caught(which: str) -> None:
    """Planted bug: the raw sum decides the next question's argument."""
    x, y, present = LOGISTIC.rows(UNITS, seed=11)
    public, theta = LOGISTIC.facts(UNITS), LOGISTIC.point()

    def method(oracle: Oracle) -> Tensor:
        raw = oracle._problem.records.bounded_sum(Gradient(sigma=2.0), oracle.facts, theta) / UNITS
        if which == "one point":
            return oracle.ask(Gradient(sigma=2.0), raw).value
        return oracle.ask(Secant(sigma=2.0), theta, theta - raw).value

    first = run(_problem((x, y, present), LOGISTIC), public, method)
    other = neighbours(x, y, present, row=7)["zeroed"]
    replayed = run(_problem(other, LOGISTIC), public, method, recorded=first)
    with pytest.raises(AssertionError, match="points"):
        check_neighbours(first, replayed)
