"""Candidates of a sweep: the groups they are run in, what runs ask and draw, and how many of them are planned."""

from typing import Any
from unittest.mock import patch

import pytest

from core.base.errors import Invalid
from core.methods.selection.sweep.candidates import asked_of
from core.oracle import runs
from core.oracle.filters import CountingFilter
from core.planning.job import PlannedSpec
from core.planning.planner import read_planned
from core.privacy import renyi
from core.privacy.facts import Adjacency
from tests.methods.test_sweep import COLUMNS, GRID, NEWTON, UNITS, asked, plan_of


def test_candidates_with_other_noise_are_another_group() -> None:
    """Laws of noise are made ready one by one, and some are kept: a slot's time would tell its candidate."""
    changes = ({}, {"growth": 1.3}, {"curvature_share": 0.2}, {"last_gradient_share": 0.6}, {"damping": 0.5})
    newton = [{"optimizer": {"kind": "noisy_newton", "steps": 6, "hessians": 6, **one}} for one in changes]
    planned = asked(newton, optimizer={"way": "selection"})
    plan = plan_of(planned)
    assert plan.groups == ((0, 4), (1,), (2,), (3,))
    for group in plan.groups:
        assert len({plan.candidates[place].optimizer.questions() for place in group}) == 1
    assert len(plan.event().means) == len(plan.groups)


def test_few_runs_leave_each_more_than_the_job_is_worth_and_are_planned() -> None:
    for runs_drawn in (1e-6, 0.3):
        planned = asked(privacy={"mu": "0.3"}, optimizer={"way": "selection", "runs": runs_drawn})
        assert plan_of(planned).mu > 0.29
        stored = PlannedSpec.read(planned.spec.model_dump(mode="json"))
        assert read_planned(stored, columns=COLUMNS, units=UNITS, adjacency=Adjacency.ZERO_OUT) == planned


def test_what_a_run_asks_is_counted_without_its_schedule() -> None:
    planned = asked(GRID + NEWTON)
    for one in plan_of(planned).candidates:
        gradients, hessians = asked_of(one)
        assert gradients + hessians == len(one.optimizer.schedule(planned.facts))
        assert one.optimizer.passes(planned.facts) == 2 * gradients + planned.facts.dimension * hessians


def test_thousands_of_equal_questions_are_made_once() -> None:
    """Planning 256 candidates of 5000 steps each takes minutes otherwise."""
    newton = {"kind": "noisy_newton", "steps": 5000}
    plan = plan_of(asked([{"optimizer": newton, "ridge": ridge} for ridge in (0.1, 0.2)], optimizer={"runs": 1.0}))
    gradients = plan.candidates[0].optimizer.gradients()
    assert len(gradients) == 5000
    assert len({id(one) for one in gradients}) < 30


def test_draws_that_all_differ_are_counted_in_as_long_as_equal_ones() -> None:
    candidates = [
        {"optimizer": {"kind": "noisy_newton", "steps": 40, "hessians": 40, "growth": growth}, "ridge": 0.1}
        for growth in (1.0, 1.01)
    ]
    planned = asked(candidates, optimizer={"way": "composition"})
    priced: list[int] = []
    leaf = renyi._leaf
    for one in plan_of(planned).candidates:
        filter_ = runs.filter_of(plan_of(planned).event(), CountingFilter().log)
        with patch.object(renyi, "_leaf", side_effect=leaf) as counted:
            for event in one.optimizer.schedule(planned.facts):
                filter_.pay(event)
        priced.append(counted.call_count)
    assert priced[0] == priced[1]


@pytest.mark.parametrize(
    ("candidates", "pointer"),
    [
        ([GRID[0], {"optimizer": {"kind": "noisy_newton", "curvature_share": 5e-324}}], "/optimizer/candidates/1"),
        (
            [{"optimizer": {"kind": "noisy_newton", "steps": steps, "hessians": steps}} for steps in (4000, 7000)],
            "/optimizer/candidates",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_at_its_own_field(candidates: list[dict[str, Any]], pointer: str) -> None:
    with pytest.raises(Invalid) as caught:
        asked(candidates)
    assert pointer in [one.pointer for one in caught.value.fields]
