"""Gauss-PSGD: descent on noised gradients, and rounds of escape where they are short; the point no round leaves.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithm 1. Corrected: the returned point is the one where the rounds began, which the theorem is about
(printed: the last iterate of the last round). Steps have a cap. The estimate that began a phase makes no step, as
printed. Rounds begin with a fresh gradient, without which they would share one noise (printed: not said).
Sensitivity: that of the estimator's questions; this only computes with their answers. `walk` is given an estimator
and nothing else, so that its branches are functions of the estimates.
Failure: depends on noised values only, so it tells no more than the release.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.lifecycle import arrived, begun, ended, starting_point
from core.methods.second_order.ada_spider import (
    ESTIMATE,
    AdaSpider,
    GradientEstimator,
    State,
    is_of_these,
    nothing_known,
)
from core.methods.second_order.claims import AbstractEscape
from core.methods.second_order.figures import EscapeFigures
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.oracle import Oracle, Status
from core.privacy.facts import Facts

OUTCOMES = ("", "certified", "data_exhausted", "step_cap", "gradient_not_short", "escaped")
"""Of a state: still under way, no round has moved away, too few units are left, too many steps; and, where no descent
would follow: the gradient is long, a round has moved away."""
UNDER_WAY = torch.tensor(0)
_HELD = tuple(f"held_{name}" for name in ESTIMATE)


def iterate(plan: GaussPsgd, oracle: Oracle) -> tuple[Estimate, Status]:
    """Look for a second-order stationary point.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records; each question reads the next units of a stream.

    Returns: The point where the last phase of rounds began, if none of them moved away. Where units or steps ran out
        before, the last iterate, or the beginning of the phase under way at the cap of steps. Shape (p,), with what is
        claimed of it. A simulation has one replicate: a run branches on its answers.

    Raises:
        Diverged: an iterate left the public radius at the last step.
    """
    start = starting_point(plan.start, oracle)
    return search(plan, oracle, begun(plan.start, oracle, {**beginning(start), **nothing_known(start)}))


def search(plan: AbstractEscape, oracle: Oracle, state: State) -> tuple[Estimate, Status]:
    """Go on from a state, and return the point with what is claimed of it.

    Args:
        plan: filled.
        oracle: the only way to the records.
        state: a first one, or an earlier attempt's; see `beginning` and `nothing_known`.

    Raises:
        Diverged: an iterate left the public radius at the last step.
    """
    estimator = AdaSpider(plan, oracle, state)
    if not is_of_these(state, oracle):
        state = _out_of_phase(state)

    def keep(walked: State) -> None:
        oracle.keep({**walked, **estimator.state()}, int(walked["step"]))

    # The estimator keeps the other entries; both are put together when a state is kept.
    own = {name: state[name] for name in beginning(state["start"])}
    state = walk(plan, oracle.facts, estimator, own, keep)
    counted, claim, outcome = estimator.state(), None, OUTCOMES[int(state["ended"])]
    if plan.escapes:
        found = plan.ended(
            oracle.facts,
            outcome,
            {name: int(state[name]) for name in ("phases", "rounds", "escapes")}
            | {name: int(counted[name]) for name in ("restarts", "differences")},
        )
        claim = plan.claim(oracle.facts, found, strayed=bool(state["strayed"]))
    assert plan.step_size is not None, "plan first"
    if not plan.descends:  # the point is as good as it was, wherever a round has gone
        state = {**state, "theta": state["start"], "left": torch.tensor(data=False)}
    estimate = Estimate(
        theta=state["anchor"] if is_anchored(state) else state["theta"],
        start=state["start"],
        family="gradient",
        left=state["left"].reshape(()) if state["theta"].ndim == 1 else state["left"],
        scale=float(counted["scale"]),
        step=plan.step_size,
        steps=int(state["step"]),
        certificate=claim,
    )
    return ended(estimate, Status.STOPPED if outcome == "certified" else Status.FINISHED)


def is_anchored(state: State) -> bool:
    """Say whether the point that is returned is the beginning of a phase."""
    outcome = OUTCOMES[int(state["ended"])]
    return outcome == "certified" or (outcome == "step_cap" and int(state["round"]) > 0)


def walk(
    plan: EscapeFigures,
    facts: Facts,
    estimator: GradientEstimator,
    state: State,
    keep: Callable[[State], None],
) -> State:
    """Drive an estimator until a phase ends where it began, or units or steps run out.

    Args:
        plan: filled.
        facts: public.
        estimator: of the mean gradient.
        state: to begin with; see `beginning`.
        keep: is given each state that is made of one more estimate.
    """
    assert plan.steps is not None, "plan first"
    while int(state["ended"]) == 0:
        if int(state["step"]) >= plan.steps:
            return {**state, "ended": torch.tensor(OUTCOMES.index("step_cap"))}
        before = estimator.snapshot()
        slope = estimator.query(state["theta"])
        if slope is None:
            return {**state, "ended": torch.tensor(OUTCOMES.index("data_exhausted"))}
        state = {**state, "step": state["step"] + 1}
        if int(state["round"]) > 0:
            state = _escaping(plan, facts, estimator, state, slope)
        elif plan.escapes and is_short(plan, slope):
            state = _with_phase(plan, estimator, state, before)
        elif plan.descends:
            state = _moved(plan, facts, state, slope)
        else:
            state = {**state, "ended": torch.tensor(OUTCOMES.index("gradient_not_short"))}
        keep(state)
    return state


def is_short(plan: EscapeFigures, slope: Tensor) -> bool:
    """Say whether a noised gradient is at most three times its error long: then rounds of escape begin."""
    assert plan.error_radius is not None, "plan first"
    return bool(torch.linalg.vector_norm(slope, dim=-1) <= 3 * plan.error_radius)


def _moved(plan: EscapeFigures, facts: Facts, state: State, slope: Tensor) -> State:
    """Take one step."""
    assert plan.step_size is not None, "plan first"
    assert plan.radius is not None, "plan first"
    theta, left, _ = arrived(facts, torch.sub(state["theta"], slope, alpha=plan.step_size), plan.radius)
    return {**state, "theta": theta, "left": left, "strayed": state["strayed"] | left.any()}


def _with_phase(plan: EscapeFigures, estimator: GradientEstimator, state: State, before: State) -> State:
    """Begin a phase here; the estimate that says so makes no step."""
    held = dict(zip(_HELD, (before[name] for name in ESTIMATE), strict=True))
    state = {**state, "anchor": state["theta"], "phases": state["phases"] + 1, "round": torch.tensor(0), **held}
    return _with_round(plan, estimator, state)


def _with_round(plan: EscapeFigures, estimator: GradientEstimator, state: State) -> State:
    """Begin the next round where the phase began."""
    estimator.begin_round(plan.round_mode, dict(zip(ESTIMATE, (state[name] for name in _HELD), strict=True)))
    return {
        **state,
        "theta": state["anchor"],
        "round": state["round"] + 1,
        "rounds": state["rounds"] + 1,
        "taken": torch.tensor(0),
    }


def _out_of_phase(state: State) -> State:
    """Go back to where a phase began, if one is under way: another mean, of fewer clients, said that the place is."""
    theta = state["anchor"] if int(state["round"]) > 0 else state["theta"]
    return {**state, "theta": theta, "round": torch.tensor(0), "taken": torch.tensor(0)}


def _escaping(plan: EscapeFigures, facts: Facts, estimator: GradientEstimator, state: State, slope: Tensor) -> State:
    """Take a step of a round; look after each one whether it has moved away."""
    assert plan.escape_distance is not None, "plan first"
    assert plan.round_steps is not None, "plan first"
    assert plan.rounds is not None, "plan first"
    state = _moved(plan, facts, state, slope)
    state = {**state, "taken": state["taken"] + 1}
    if bool(torch.linalg.vector_norm(state["theta"] - state["anchor"], dim=-1) >= plan.escape_distance):
        if not plan.descends:
            state = {**state, "ended": torch.tensor(OUTCOMES.index("escaped"))}
        return {**state, "round": torch.tensor(0), "escapes": state["escapes"] + 1}
    if int(state["taken"]) < plan.round_steps:
        return state
    if int(state["round"]) < plan.rounds:
        return _with_round(plan, estimator, state)
    return {**state, "theta": state["anchor"], "ended": torch.tensor(OUTCOMES.index("certified"))}


def beginning(start: Tensor) -> State:
    """Return the state before the first estimate, shape (p,) for points."""
    zero, held = torch.tensor(0), nothing_known(start)
    return {
        "start": start,
        "theta": start,
        "anchor": start,
        "left": torch.tensor(data=False),
        "strayed": torch.tensor(data=False),
        "ended": UNDER_WAY,
        **dict.fromkeys(("step", "phases", "rounds", "escapes", "round", "taken"), zero),
        **{f"held_{name}": held[name] for name in ESTIMATE},
    }
