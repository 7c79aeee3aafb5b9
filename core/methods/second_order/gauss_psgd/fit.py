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
from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.lifecycle import arrived, ended, resumed, starting_point, tensors_of
from core.methods.second_order.ada_spider import (
    AdaSpider,
    EstimatorState,
    GradientEstimator,
    LastEstimate,
    is_of_these,
    no_estimate,
)
from core.methods.second_order.claims import EscapePlan
from core.methods.second_order.figures import SpiderFigures
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan, PeriodPlan
from core.oracle import Oracle, Status
from core.privacy.facts import Facts

OUTCOMES = ("", "certified", "data_exhausted", "step_cap", "gradient_not_short", "escaped")
"""Of a state: still under way, no round has moved away, too few units are left, too many steps; and, where no descent
would follow: the gradient is long, a round has moved away."""
UNDER_WAY = torch.tensor(0)


class HeldEstimate(NamedTuple):
    """The estimate before a phase began, for rounds that rewind to it."""

    held_slope: Tensor
    held_before: Tensor
    held_drift: Tensor
    held_known: Tensor


class SearchWalk(NamedTuple):
    """Where a walk stands after an estimate."""

    start: Tensor
    theta: Tensor
    anchor: Tensor
    """The point where the last phase began."""
    left: Tensor
    strayed: Tensor
    """True where some iterate had to be brought back into the radius."""
    ended: Tensor
    """A place in OUTCOMES."""
    step: Tensor
    phases: Tensor
    rounds: Tensor
    escapes: Tensor
    round: Tensor
    """Of the phase under way, from 1; 0: none is."""
    taken: Tensor
    """Steps of the round under way."""
    held: HeldEstimate


class SearchState(NamedTuple):
    """Where a run stands."""

    walk: SearchWalk
    estimator: EstimatorState


def iterate(plan: GaussPsgdPlan | PeriodPlan, oracle: Oracle) -> tuple[Estimate, Status]:
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
    return search(plan, oracle, resumed(plan.start, oracle, first_state(start)))


def search(plan: EscapePlan | PeriodPlan, oracle: Oracle, begun: SearchState) -> tuple[Estimate, Status]:
    """Go on from a state, and return the point with what is claimed of it.

    Args:
        plan: filled.
        oracle: the only way to the records.
        begun: a first state, or an earlier attempt's.

    Raises:
        Diverged: an iterate left the public radius at the last step.
    """
    estimator = AdaSpider(plan, oracle, begun.estimator)
    state = begun.walk if is_of_these(begun.estimator, oracle) else _out_of_phase(begun.walk)

    def keep(walked: SearchWalk) -> None:
        oracle.keep(tensors_of(SearchState(walked, estimator.state())), int(walked.step))

    state = walk(plan, oracle.facts, estimator, state, keep)
    counted, claim, outcome = estimator.state(), None, OUTCOMES[int(state.ended)]
    if isinstance(plan, EscapePlan):
        found = plan.ended(
            oracle.facts,
            outcome,
            {
                "phases": int(state.phases),
                "rounds": int(state.rounds),
                "escapes": int(state.escapes),
                "restarts": int(counted.restarts),
                "differences": int(counted.differences),
            },
        )
        claim = plan.claim(oracle.facts, found, strayed=bool(state.strayed))
    if not plan.descends:  # the point is as good as it was, wherever a round has gone
        state = state._replace(theta=state.start, left=torch.tensor(data=False))
    estimate = Estimate(
        theta=state.anchor if is_anchored(state) else state.theta,
        start=state.start,
        family="gradient",
        left=state.left.reshape(()) if state.theta.ndim == 1 else state.left,
        scale=float(counted.scale),
        step=plan.step_size,
        steps=int(state.step),
        error_bound=claim,
    )
    return ended(estimate, Status.STOPPED if outcome == "certified" else Status.FINISHED)


def is_anchored(state: SearchWalk) -> bool:
    """Say whether the point that is returned is the beginning of a phase."""
    outcome = OUTCOMES[int(state.ended)]
    return outcome == "certified" or (outcome == "step_cap" and int(state.round) > 0)


def walk(
    plan: EscapePlan | PeriodPlan,
    facts: Facts,
    estimator: GradientEstimator,
    state: SearchWalk,
    keep: Callable[[SearchWalk], None],
) -> SearchWalk:
    """Drive an estimator until a phase ends where it began, or units or steps run out.

    Args:
        plan: filled.
        facts: public.
        estimator: of the mean gradient.
        state: to begin with; see `beginning`.
        keep: is given each state that is made of one more estimate.
    """
    rounds = plan if isinstance(plan, EscapePlan) else None
    while int(state.ended) == 0:
        if int(state.step) >= plan.steps:
            return _ended(state, "step_cap")
        before = estimator.snapshot()
        slope = estimator.query(state.theta)
        if slope is None:
            return _ended(state, "data_exhausted")
        state = state._replace(step=state.step + 1)
        if rounds is not None and int(state.round) > 0:
            state = _escaping(rounds, facts, estimator, state, slope)
        elif rounds is not None and is_short(rounds, slope):
            state = _with_phase(rounds, estimator, state, before)
        elif plan.descends:
            state = _moved(plan, facts, state, slope)
        else:
            state = _ended(state, "gradient_not_short")
        keep(state)
    return state


def is_short(plan: EscapePlan, slope: Tensor) -> bool:
    """Say whether a noised gradient is at most three times its error long: then rounds of escape begin."""
    return bool(torch.linalg.vector_norm(slope, dim=-1) <= 3 * plan.error_radius)


def _moved(plan: SpiderFigures, facts: Facts, state: SearchWalk, slope: Tensor) -> SearchWalk:
    """Take one step."""
    theta, left, _ = arrived(facts, torch.sub(state.theta, slope, alpha=plan.step_size), plan.radius)
    return state._replace(theta=theta, left=left, strayed=state.strayed | left.any())


def _with_phase(plan: EscapePlan, estimator: GradientEstimator, state: SearchWalk, before: LastEstimate) -> SearchWalk:
    """Begin a phase here; the estimate that says so makes no step."""
    state = state._replace(
        anchor=state.theta, phases=state.phases + 1, round=torch.tensor(0), held=HeldEstimate(*before)
    )
    return _with_round(plan, estimator, state)


def _with_round(plan: EscapePlan, estimator: GradientEstimator, state: SearchWalk) -> SearchWalk:
    """Begin the next round where the phase began."""
    estimator.begin_round(plan.round_mode, LastEstimate(*state.held))
    return state._replace(theta=state.anchor, round=state.round + 1, rounds=state.rounds + 1, taken=torch.tensor(0))


def _out_of_phase(state: SearchWalk) -> SearchWalk:
    """Go back to where a phase began, if one is under way: another mean, of fewer clients, said that the place is."""
    theta = state.anchor if int(state.round) > 0 else state.theta
    return state._replace(theta=theta, round=torch.tensor(0), taken=torch.tensor(0))


def _escaping(
    plan: EscapePlan, facts: Facts, estimator: GradientEstimator, state: SearchWalk, slope: Tensor
) -> SearchWalk:
    """Take a step of a round; look after each one whether it has moved away."""
    state = _moved(plan, facts, state, slope)
    state = state._replace(taken=state.taken + 1)
    if bool(torch.linalg.vector_norm(state.theta - state.anchor, dim=-1) >= plan.escape_distance):
        if not plan.descends:
            state = _ended(state, "escaped")
        return state._replace(round=torch.tensor(0), escapes=state.escapes + 1)
    if int(state.taken) < plan.round_steps:
        return state
    if int(state.round) < plan.rounds:
        return _with_round(plan, estimator, state)
    return _ended(state._replace(theta=state.anchor), "certified")


def _ended(state: SearchWalk, outcome: str) -> SearchWalk:
    """Return the state of a walk that has ended so."""
    return state._replace(ended=torch.tensor(OUTCOMES.index(outcome)))


def beginning(start: Tensor) -> SearchWalk:
    """Return the state before the first estimate, shape (p,) for points."""
    zero, no = torch.tensor(0), torch.tensor(data=False)
    return SearchWalk(
        start=start,
        theta=start,
        anchor=start,
        left=no,
        strayed=no,
        ended=UNDER_WAY,
        step=zero,
        phases=zero,
        rounds=zero,
        escapes=zero,
        round=zero,
        taken=zero,
        held=HeldEstimate(*no_estimate(start).last),
    )


def first_state(start: Tensor) -> SearchState:
    """Return the state of a run before the first estimate."""
    return SearchState(beginning(start), no_estimate(start))
