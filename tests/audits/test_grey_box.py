"""Replays on neighbouring records: only integer sums may differ, by no more than is paid for."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from core.catalogue.losses import Loss
from core.catalogue.questions import Curvature, Gradient, Question
from core.oracle import Oracle, door
from core.privacy.facts import Adjacency, Facts
from core.problems.blocks import Factors, Point, Records
from core.problems.linear import LinearProblem
from tests.support.grey_box import check_neighbours, neighbours, run
from tests.support.problems import LOSSES, WEIGHTS, facts, rows

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))
UNITS = 200


def newton(oracle: Oracle) -> Tensor:
    """Two steps and a sandwich, each depending on all answers before it."""
    theta = torch.zeros(oracle.facts.dimension, dtype=torch.float64)
    for clip in (None, 0.5):
        slope = oracle.ask(Gradient(sigma=2.0, clip=clip), theta).value
        hessian = oracle.ask(Curvature(of="hessian", sigma=2.0), theta).value
        theta = theta - torch.linalg.solve(hessian + torch.eye(len(theta), dtype=torch.float64), slope)
    return theta + oracle.ask(Curvature(of="score", sigma=2.0), theta).value.sum() + oracle.coins.normal(1)


def replay_on_neighbours(loss: Loss, adjacency: Adjacency) -> None:
    x, y, present = rows(UNITS, 3, loss, seed=11)
    x[7] *= 3  # an influential row
    public = facts(UNITS, 3, loss, adjacency)
    first = run(_problem((x.clone(), y.clone(), present.clone()), loss), public, newton)
    for name, records in neighbours(x, y, present, row=7).items():
        if adjacency is Adjacency.ZERO_OUT and name not in {"zeroed", "not a number"}:
            continue
        check_neighbours(first, run(_problem(records, loss), public, newton, recorded=first))


def _problem(records: tuple[Tensor, Tensor, Tensor], loss: Loss) -> LinearProblem:
    return LinearProblem(*records, loss, WEIGHTS)


@every_loss
@every_adjacency
def test_neighbours_differ_in_integer_sums_alone(loss: Loss, adjacency: Adjacency) -> None:
    replay_on_neighbours(loss, adjacency)


@every_loss
def test_null_and_invalid_rows_are_the_same_record(loss: Loss) -> None:
    x, y, present = rows(UNITS, 3, loss, seed=11)
    public = facts(UNITS, 3, loss)
    both = neighbours(x, y, present, row=7)
    first = run(_problem(both["zeroed"], loss), public, newton)
    second = run(_problem(both["not a number"], loss), public, newton)
    assert first.released == second.released


def test_true_n_division_is_caught() -> None:
    """Planted bug: dividing by the number of records that are present."""
    genuine = door.FullDoor._select

    def by_the_present(self: door.FullDoor, question: Gradient) -> door._Selection:
        genuine(self, question)
        problem = self._problem
        return door._Selection(divisor=int((problem.records._records.weights > 0).sum()))

    with patch.object(door.FullDoor, "_select", by_the_present), pytest.raises(AssertionError, match="public"):
        replay_on_neighbours(LOSSES[0], Adjacency.ZERO_OUT)


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
        return Factors(linear=self.loss.score(margin, records.target).unsqueeze(0))

    with patch.object(LinearProblem, "_factors", unclipped), pytest.raises(AssertionError, match="sensitivity"):
        replay_on_neighbours(LOSSES[0], Adjacency.REPLACE_ONE)


def test_features_scaled_by_the_data_are_caught() -> None:
    """Planted bug: standardising by the records' own largest value."""

    def scaled(
        records: tuple[Tensor, Tensor, Tensor],
        loss: Loss,
    ) -> LinearProblem:
        x, y, present = records
        return LinearProblem(x / x.nan_to_num().abs().max(), y, present, loss, WEIGHTS)

    with patch(f"{__name__}._problem", scaled), pytest.raises(AssertionError, match="sensitivity"):
        replay_on_neighbours(LOSSES[0], Adjacency.REPLACE_ONE)


def test_a_look_at_the_records_is_caught() -> None:
    """Planted bug: the raw sum decides the next question's argument."""
    x, y, present = rows(UNITS, 3, LOSSES[0], seed=11)
    public = facts(UNITS, 3, LOSSES[0])

    def method(oracle: Oracle) -> Tensor:
        raw = oracle._problem.records.bounded_sum(
            Gradient(sigma=2.0), oracle.facts, torch.zeros(3, dtype=torch.float64)
        )
        return oracle.ask(Gradient(sigma=2.0), raw / UNITS).value

    first = run(_problem((x.clone(), y, present), LOSSES[0]), public, method)
    other = neighbours(x, y, present, row=7)["zeroed"]
    replayed = run(_problem(other, LOSSES[0]), public, method, recorded=first)
    with pytest.raises(AssertionError, match="points"):
        check_neighbours(first, replayed)
