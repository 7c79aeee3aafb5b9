"""Clipped stochastic gradient descent, once through disjoint batches, and the average of its iterates.

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov, Differentially private Clipped-SGD: high-probability
convergence with arbitrary clipping level (preprint), algorithm 1. Ours are per-unit clipping of a batch of fixed size,
and the average of the iterates x^0 to x^K that K updates make; x^(K+1) of the printed loop is never made.
Sensitivity: that of `Gradient` on a batch, clip/b where a unit is zeroed and 2 clip/b where it may change into any
other. A unit is in one batch at most, so all steps together cost one Gaussian answer.
Failure: depends on noised values only, so it tells no more than the release. Batches that a lost worker has paid for
are not read again: fewer steps are taken then.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.buffers import BufferPool
from core.methods.clipped.one_pass.spec import OnePassClippedSgdPlan
from core.methods.lifecycle import arrived, ended, resumed, starting_point, tensors_of
from core.methods.step_rules import averaged, slope_at
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient


class _State(NamedTuple):
    """Where a run stands after a step; in a simulation replicates come first."""

    start: Tensor
    theta: Tensor
    returned: Tensor
    """The mean of the iterates so far, or one of them."""
    left: Tensor
    strayed: Tensor
    """True where some iterate had left the radius."""
    step: Tensor
    raised: Tensor
    scale: Tensor
    """Deviation of the last answer's noise on a coordinate."""


def iterate(plan: OnePassClippedSgdPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of a model.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records; each question reads the next batch.

    Returns:
        The average of the iterates, one chosen at random, or the last, shape (p,), replicates first in a simulation,
        with what is claimed of it; and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    (gradient,) = plan.questions()
    start, none, zero = starting_point(plan.start, oracle), torch.tensor(data=False), torch.tensor(0)
    noiseless = torch.tensor(0.0, dtype=torch.float64)
    # The start is the first of the iterates.
    state = resumed(plan.start, oracle, _State(start, start, start, none, none, zero, zero, noiseless))
    buffers = BufferPool()
    # Batches lost with a worker are not read again: the stream may end before the planned steps.
    while int(state.step) < plan.steps and oracle.affords(gradient):
        state = _stepped(plan, oracle, gradient, state, buffers)
        oracle.keep(tensors_of(state), int(state.step))
    theta, steps, noise = state.returned, int(state.step), float(state.scale)
    claim = None
    # A claim is about one run; a simulation returns many replicates.
    if theta.ndim == 1:
        claim = plan.claim(oracle.facts, steps, noise, strayed=bool(state.strayed))
    estimate = Estimate(
        theta=theta,
        start=state.start,
        family="gradient",
        left=state.left,
        scale=noise,
        step=plan.step_size,
        steps=steps,
        scale_floored=state.raised,
        error_bound=claim,
    )
    return ended(estimate, Status.FINISHED)


def _stepped(
    plan: OnePassClippedSgdPlan, oracle: Oracle, gradient: Gradient, state: _State, buffers: BufferPool
) -> _State:
    """Return the state after one more step; the answer is let go of before the next is asked for."""
    theta, step = state.theta, int(state.step) + 1
    answer = oracle.ask(gradient, theta)
    slope = slope_at(oracle.facts, answer.value, theta)
    # An iterate that may be returned long after it was made stays where it is.
    into = None if plan.returns == "random_iterate" else buffers.of("theta", slope)
    moved = torch.sub(theta, slope, alpha=plan.step_size, out=into)
    moved, left, raised = arrived(oracle.facts, moved, plan.radius)
    return _State(
        start=state.start,
        theta=moved,
        returned=_with_one_more(plan, oracle, state.returned, moved, step, buffers),
        left=left,
        strayed=state.strayed | left,
        step=torch.tensor(step),
        raised=state.raised + raised.long(),
        scale=torch.tensor(answer.scale, dtype=torch.float64),
    )


def _with_one_more(
    plan: OnePassClippedSgdPlan, oracle: Oracle, held: Tensor, moved: Tensor, step: int, buffers: BufferPool
) -> Tensor:
    """Return the mean of step + 1 iterates; or one of them, each as likely, as draws say that no record sways."""
    if plan.returns == "last":
        return moved
    if plan.returns == "average":
        return averaged(held, moved, step + 1, buffers)
    # Reservoir sampling: after each step all iterates so far are equally likely.
    return moved if oracle.randomness.integer(step + 1) == 0 else held.expand_as(moved)
