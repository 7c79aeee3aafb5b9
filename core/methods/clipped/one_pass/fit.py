"""Clipped stochastic gradient descent, once through disjoint batches, and the average of its iterates.

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov, Differentially private Clipped-SGD: high-probability
convergence with arbitrary clipping level (preprint), algorithm 1. Ours are per-unit clipping of a batch of fixed size,
and the average of the iterates x^0 to x^K that K updates make; x^(K+1) of the printed loop is never made.
Sensitivity: that of `Gradient` on a batch, clip/b where a unit is zeroed and 2 clip/b where it may change into any
other. A unit is in one batch at most, so all steps together cost one Gaussian answer.
Failure: depends on noised values only, so it tells no more than the release. Batches that a lost worker has paid for
are not read again: fewer steps are taken then.
"""

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.buffers import BufferPool
from core.methods.clipped.one_pass.spec import CertifiedClippedSgd
from core.methods.lifecycle import arrived, begun, ended, starting_point
from core.methods.step_rules import averaged, slope_at
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient

State = dict[str, Tensor]


def iterate(plan: CertifiedClippedSgd, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of a model.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records; each question reads the next batch.

    Returns:
        The average of the iterates, one chosen at random, or the last, shape (p,), replicates first in a simulation,
        with what is claimed of it; and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert plan.steps is not None, "plan first"
    assert plan.step_size is not None, "plan first"
    assert plan.radius is not None, "plan first"
    (gradient,) = plan.questions()
    state = begun(plan.start, oracle, _beginning(starting_point(plan.start, oracle)))
    buffers = BufferPool()
    # Batches lost with a worker are not read again: the stream may end before the planned steps.
    while int(state["step"]) < plan.steps and oracle.affords(gradient):
        state = _stepped(plan, oracle, gradient, state, buffers)
        oracle.keep(state, int(state["step"]))
    theta, steps, noise = state["returned"], int(state["step"]), float(state["scale"])
    claim = None
    # A claim is about one run; a simulation returns many replicates.
    if theta.ndim == 1:
        claim = plan.claim(oracle.facts, steps, noise, strayed=bool(state["strayed"]))
    estimate = Estimate(
        theta=theta,
        start=state["start"],
        family="gradient",
        left=state["left"],
        scale=noise,
        step=plan.step_size,
        steps=steps,
        scale_floored=state["raised"],
        certificate=claim,
    )
    return ended(estimate, Status.FINISHED)


def _beginning(start: Tensor) -> State:
    """Return the state before the first step: the start is the first of the iterates."""
    return {
        "start": start,
        "theta": start,
        "returned": start,
        "left": torch.tensor(data=False),
        "strayed": torch.tensor(data=False),
        "step": torch.tensor(0),
        "raised": torch.tensor(0),
        "scale": torch.tensor(0.0, dtype=torch.float64),
    }


def _stepped(plan: CertifiedClippedSgd, oracle: Oracle, gradient: Gradient, state: State, buffers: BufferPool) -> State:
    """Return the state after one more step; the answer is let go of before the next is asked for."""
    assert plan.step_size is not None, "plan first"
    assert plan.radius is not None, "plan first"
    theta, step = state["theta"], int(state["step"]) + 1
    answer = oracle.ask(gradient, theta)
    slope = slope_at(oracle.facts, answer.value, theta)
    # An iterate that may be returned long after it was made stays where it is.
    into = None if plan.returns == "random_iterate" else buffers.of("theta", slope)
    moved = torch.sub(theta, slope, alpha=plan.step_size, out=into)
    moved, left, raised = arrived(oracle.facts, moved, plan.radius)
    return {
        "start": state["start"],
        "theta": moved,
        "returned": _with_one_more(plan, oracle, state["returned"], moved, step, buffers),
        "left": left,
        "strayed": state["strayed"] | left,
        "step": torch.tensor(step),
        "raised": state["raised"] + raised.long(),
        "scale": torch.tensor(answer.scale, dtype=torch.float64),
    }


def _with_one_more(
    plan: CertifiedClippedSgd, oracle: Oracle, held: Tensor, moved: Tensor, step: int, buffers: BufferPool
) -> Tensor:
    """Return the mean of step + 1 iterates; or one of them, each as likely, as draws say that no record sways."""
    if plan.returns == "last":
        return moved
    if plan.returns == "average":
        return averaged(held, moved, step + 1, buffers)
    # Reservoir sampling: after each step all iterates so far are equally likely.
    return moved if oracle.randomness.integer(step + 1) == 0 else held.expand_as(moved)
