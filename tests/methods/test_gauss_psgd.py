"""The controller of Gauss-PSGD on scripted estimates, with every shortcut planted and seen."""

from typing import Any

import pytest
import torch

from core.methods.lifecycle import tensors_of
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.oracle import Answer
from tests.support.second_order import (
    LONG,
    SHORT,
    STILL,
    Deaf,
    Scripted,
    facts_of,
    failed,
    given,
    planted,
    settings_of,
    walk,
)


def walked(slopes: list[list[float]], module: Any = gauss_psgd, **options: Any) -> tuple[dict[str, Any], Scripted]:
    """Walk along scripted estimates from zero; return the last state, with the point returned, and the script."""
    state, outcome, script = walk(module, settings_of(options), slopes, start=0.0)
    point = state.anchor if module.is_anchored(state) else state.theta
    return {**tensors_of(state), "outcome": outcome, "point": point.tolist()}, script


def check_trigger(module: Any) -> None:
    """A gradient of exactly three radii begins a phase, a longer one a step; the trigger itself makes none."""
    state, script = walked([LONG, SHORT], module)
    assert script.points == [[0, 0], [-0.4, 0], [-0.4, 0]]
    assert (int(state["phases"]), state["outcome"]) == (1, "data_exhausted")


def check_failing_rounds(module: Any) -> None:
    """Three rounds of four steps that stay: each begins where the phase did, and that point is returned."""
    state, script = walked([SHORT] + [[1.0, 0.0]] * 12, module)
    assert (state["outcome"], state["point"]) == ("certified", [0, 0])
    assert len(script.points) == 13
    assert [points for points in script.points if points == [0, 0]] == [[0, 0]] * 4
    assert [int(state[name]) for name in ("phases", "rounds", "escapes", "step")] == [1, 3, 0, 13]


def check_escape(module: Any) -> None:
    """A round ends at once at distance R exactly, keeps where it is, and the next estimate is a test, not a step."""
    state, script = walked([SHORT, [6.0, 0.0], [0.0, 8.0], SHORT, STILL], module)
    assert script.points[:4] == [[0, 0], [0, 0], [-0.6000000000000001, 0], [-0.6000000000000001, -0.8]]
    assert int(state["escapes"]) == 1
    assert int(state["phases"]) == 2, "the estimate after an escape begins a phase at once"
    assert script.points[4] == script.points[3]


def check_way_back(module: Any) -> None:
    """Out of the distance and back within one round counts as an escape: it is looked at after every step."""
    state, _ = walked([SHORT, [20.0, 0.0], [-20.0, 0.0], STILL, STILL, *[STILL] * 8], module)
    assert int(state["escapes"]) == 1


def check_distance(module: Any) -> None:
    """The distance is Euclidean: 0.8 along each of two axes is more than 1."""
    state, _ = walked([SHORT, [8.0, 8.0], *[LONG] * 3], module)
    assert int(state["escapes"]) == 1


def check_cap(module: Any) -> None:
    """Steps have a cap: descent ends where it is, a round where its phase began."""
    state, script = walked([[10.0, 0.0]] * 50, module, steps=7)
    assert (state["outcome"], len(script.points)) == ("step_cap", 7)
    assert state["point"] == pytest.approx([-7, 0])
    state, script = walked([SHORT, *[[1.0, 0.0]] * 50], module, steps=3)
    assert (state["outcome"], len(script.points), state["point"]) == ("step_cap", 3, [0, 0])


CHECKS = (check_trigger, check_failing_rounds, check_escape, check_way_back, check_distance, check_cap)

_STEP = "state = _moved(plan, facts, state, slope)\n    state = state._replace(taken"
_LAST = '_ended(state._replace(theta=state.anchor), "certified")'
BUGS = {
    "the distance is looked at when a round ends": (
        ">= plan.escape_distance):",
        ">= plan.escape_distance) and int(state.taken) == plan.round_steps:",
    ),
    "the trigger makes the first step": (
        "state = _with_phase(rounds, estimator, state, before)",
        "state = _moved(plan, facts, _with_phase(rounds, estimator, state, before), slope)",
    ),
    "failed rounds are kept": ("theta=state.anchor, round=", "round="),
    "the last iterate is returned": (_LAST, _LAST.replace("theta=state.anchor", "anchor=state.theta")),
    "the largest coordinate is the distance": (
        "state.theta - state.anchor, dim=-1)",
        'state.theta - state.anchor, dim=-1, ord=float("inf"))',
    ),
    "one round is enough": ("int(state.round) < plan.rounds", "int(state.round) < 1"),
    "there is no cap": ("int(state.step) >= plan.steps", "int(state.step) >= 10**9"),
    "descent goes on with a step": (
        "return state._replace(round=torch.tensor(0), escapes=state.escapes + 1)",
        "return _moved(plan, facts, state._replace(round=torch.tensor(0), escapes=state.escapes + 1), slope)",
    ),
    "exactly three radii are long": ("<= 3 * plan.error_radius", "< 3 * plan.error_radius"),
    "exactly the distance is near": (">= plan.escape_distance", "> plan.escape_distance"),
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_controller(check: Any) -> None:
    check(gauss_psgd)


@pytest.mark.parametrize("bug", BUGS)
def test_every_shortcut_is_seen(bug: str) -> None:
    assert failed(CHECKS, planted(gauss_psgd, *BUGS[bug]))


@pytest.mark.parametrize("mode", ["fresh", "rewind", "continue"])
def test_rounds_begin_as_their_mode_says_with_what_was_before_the_trigger(mode: str) -> None:
    _, script = walked([LONG, LONG, SHORT, *[STILL] * 12], round_mode=mode)
    assert script.rounds == [(mode, 2)] * 3


def test_units_that_run_out_in_a_round_certify_nothing() -> None:
    state, _ = walked([SHORT, [1.0, 0.0], [1.0, 0.0]])
    assert state["outcome"] == "data_exhausted"
    assert state["point"] == pytest.approx([-0.2, 0])


def test_at_the_cap_a_round_s_beginning_is_returned() -> None:
    settings = given(steps=3)
    change = settings.change(0.1)
    assert change is not None
    told = ((settings.fresh(), SHORT), (settings.fresh(), [1.0, 0.0]), (change, STILL))
    answers = [(question, Answer(torch.tensor(slope).double(), 0.1)) for question, slope in told]
    estimate, _ = gauss_psgd.iterate(settings, Deaf(facts_of(1000, 2), answers))  # type: ignore[arg-type] # one in all that is asked
    assert estimate.theta.tolist() == [0, 0]
    assert estimate.error_bound is not None
    assert estimate.error_bound.ended_by == "step_cap"


def test_no_distance_certifies_saddles_and_an_empty_one_nothing() -> None:
    assert walked([SHORT] + [[9.0, 0.0]] * 12, escape_distance=1e9)[0]["outcome"] == "certified"
    assert walked([SHORT, *[[1e-3, 0.0]] * 39], escape_distance=1e-300)[0]["outcome"] == "data_exhausted"


def test_an_iterate_outside_the_radius_is_brought_back_and_claims_nothing() -> None:
    state, script = walked([[40.0, 0.0], SHORT, *[STILL] * 12], radius=2.0)
    assert script.points[1] == [-2, 0]
    assert bool(state["strayed"])
    assert state["outcome"] == "certified"


def test_diff2_has_no_rounds() -> None:
    state, script = walked([SHORT, STILL, SHORT, SHORT], estimator="period", period=10)
    assert (int(state["phases"]), state["outcome"]) == (0, "data_exhausted")
    assert script.points[-1] == pytest.approx([-0.9, 0])
