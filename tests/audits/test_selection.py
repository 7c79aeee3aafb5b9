"""Private selection, replayed on neighbouring records: integer sums and scores alone differ, by what is paid for."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from core.losses.phase import SmoothPhase
from core.losses.weights import Clip
from core.methods.selection.select_model import fit as select_model
from core.methods.selection.select_model.spec import SelectModel, SelectModelPlan
from core.oracle import Oracle, stationarity
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, Question
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums import rows as compiled
from core.queries.sums.linear import LinearProblem
from core.queries.sums.terms import Factors, Point, Records
from tests.support.grey_box import check_neighbours, neighbours, run
from tests.support.situations import Situation

UNITS = 200
PHASE = Situation("phase", SmoothPhase(cap=3.0), Clip(bound=0.8))
MODES = ("sound", "hessian_products", "above_threshold", "exponential")
POINTS = torch.stack([PHASE.point(seed) / 4 for seed in range(3)])


def replay_on_neighbours(mode: str, adjacency: Adjacency, **changed: float) -> None:
    """Tests let everything pass but the last, so that every question is asked; noise is next to none."""
    public = PHASE.facts(UNITS, adjacency).model_copy(update={"hessian_rank": 1, "smoothness": 0.7})
    figures = {"alpha": 0.05, "gamma_star": 10.0, "candidates": len(POINTS), **changed}
    settings = SelectModel.model_validate({"mode": mode, **figures}).plan(public, 50.0)

    def method(oracle: Oracle) -> Tensor:
        return select_model.iterate(settings.model_copy(update={"units": 10**9}), oracle, POINTS)[0].theta

    x, y, present = PHASE.rows(UNITS, seed=11)
    x[7] *= 3  # an influential row
    first = run(PHASE.problem((x, y, present)), public, method)
    for name, records in neighbours(x, y, present, row=7).items():
        if adjacency is Adjacency.ZERO_OUT and name not in {"zeroed", "not a number"}:
            continue
        check_neighbours(first, run(PHASE.problem(records), public, method, recorded=first))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_neighbours_differ_in_integers_alone(mode: str, adjacency: Adjacency) -> None:
    replay_on_neighbours(mode, adjacency)
    replay_on_neighbours(mode, adjacency, alpha=10.0)  # a Hessian is asked for as well


@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives_that_nothing_cuts_are_caught(mode: str) -> None:
    """Planted bug: each unit's curvature as it is."""
    genuine = LinearProblem._factors

    def uncut(self: LinearProblem, question: Question, facts: Facts, records: Records, at: Point) -> Factors:
        if isinstance(question, Gradient):
            return genuine(self, question, facts, records, at)
        bends = self.loss.curvature(records.features @ at.theta, records.target) * records.weights
        if isinstance(question, HessianProduct):
            assert at.other is not None
            return Factors(linear=(bends * (records.features @ at.other)).unsqueeze(0))
        assert isinstance(question, Hessian)
        return Factors(outer=bends.unsqueeze(0))

    reference = patch.object(compiled, "KERNELS", None)  # the native code clips in C: tests/queries/test_rows.py
    with reference, patch.object(LinearProblem, "_factors", uncut), pytest.raises(AssertionError):
        replay_on_neighbours(mode, Adjacency.REPLACE_ONE, alpha=10.0, gamma_star=1e-3)


def test_scores_in_units_of_what_half_a_unit_does_are_caught() -> None:
    """Planted bug: scores that a unit moves twice as far as is paid for."""
    genuine = stationarity.SCORE_STEPS
    with patch.object(stationarity, "SCORE_STEPS", 4 * genuine), pytest.raises(AssertionError, match="sensitivity"):
        replay_on_neighbours("exponential", Adjacency.REPLACE_ONE, alpha=1e-6, gamma_star=1e-6)


def test_a_look_at_the_records_is_caught() -> None:
    """Planted bug: the candidate with the least mean loss of the records is tested first."""
    genuine = select_model._first_that_passes

    def peeking(
        plan: SelectModelPlan, oracle: Oracle, points: Tensor, state: select_model._State
    ) -> select_model._State:
        records = oracle._problem.records._records  # type: ignore[attr-defined] # the bug
        return genuine(plan, oracle, points + 1e-9 * records.features[7].nan_to_num(), state)

    with patch.object(select_model, "_first_that_passes", peeking), pytest.raises(AssertionError, match="points"):
        replay_on_neighbours("sound", Adjacency.REPLACE_ONE)
