"""Descent on SPIDER's estimates, which are disturbed on purpose where they are short: prior work, for comparison.

Source: [external/choice] our reconstruction, from the prose of Tao, Zhang, Yu, Cheng, Dressler and Wang (Second-order
convergence in private stochastic non-convex optimization), of the method of Liu, Ganesh, Oh and Thakurta (2023).
Sensitivity: that of the estimator's questions; this only computes with their answers. The noise that disturbs an
estimate is NOT privacy noise: it comes of the oracle's public randomness, is no part of the price, and would be worth
nothing to whoever took it off again. It is kept with the state before anything more is asked, so that an attempt that
goes on repeats it. Failure: depends on noised values and public randomness only, so it tells no more than the release.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.lifecycle import arrived, ended, resumed, starting_point, tensors_of
from core.methods.second_order.ada_spider import (
    AdaSpider,
    EstimatorState,
    GradientEstimator,
    is_of_these,
    no_estimate,
)
from core.methods.second_order.perturbed_spider.spec import PerturbedSpiderPlan
from core.oracle import Oracle, PublicRandomness, Status
from core.privacy.facts import Facts

OUTCOMES = ("", "data_exhausted", "steps")
"""Of a state: still under way, too few units are left, all steps are taken."""


class _KeptIterates(NamedTuple):
    """Iterates beside the last one, evenly spaced."""

    stride: Tensor
    """Steps from one that is held to the next."""
    held: Tensor
    """Number of those that are held."""
    iterates: Tensor | None
    """Shape (K - 1, p), the first `held` of them in use; None: the last iterate alone is kept."""


class _Walk(NamedTuple):
    """Where a walk stands after an estimate."""

    start: Tensor
    theta: Tensor
    slope_told: Tensor
    """The last estimate, with what disturbed it."""
    left: Tensor
    ended: Tensor
    """A place in OUTCOMES."""
    step: Tensor
    frozen: Tensor
    """Number of steps before an estimate may be disturbed again."""
    disturbed: Tensor
    kept: _KeptIterates | None


class _State(NamedTuple):
    """Where a run stands."""

    walk: _Walk
    estimator: EstimatorState


class DisturbedEstimator(GradientEstimator, Protocol):
    """An estimator that carries along what is added to an estimate."""

    def disturb(self, extra: Tensor) -> None:
        """Add to the last estimate."""


def iterate(plan: PerturbedSpiderPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Go down, and away from where estimates are short.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records; each question reads the next units of a stream.

    Returns:
        The last iterate, shape (p,), with evenly spaced ones before it if they are to be kept, shape (K, p). A
        simulation has one replicate: a run branches on its answers.

    Raises:
        Diverged: an iterate left the public radius at the last step.
    """
    start = starting_point(plan.start, oracle)
    begun = resumed(plan.start, oracle, _State(beginning(plan, start), no_estimate(start)))
    estimator, own = AdaSpider(plan, oracle, begun.estimator), begun.walk

    def keep(walked: _Walk) -> None:
        oracle.keep(tensors_of(_State(walked, estimator.state())), int(walked.step))

    if not is_of_these(begun.estimator, oracle):
        # Whether to disturb is asked of no estimate with a lost client in it.
        own = own._replace(slope_told=torch.full_like(own.slope_told, torch.inf))
    state = walk(plan, oracle.facts, oracle.randomness, estimator, own, keep)
    estimate = Estimate(
        theta=state.theta,
        start=state.start,
        family="gradient",
        left=state.left.reshape(()) if state.theta.ndim == 1 else state.left,
        scale=float(estimator.state().scale),
        step=plan.step_size,
        steps=int(state.step),
        error_bound=plan.claim(OUTCOMES[int(state.ended)]),
        iterates=kept_iterates(state),
    )
    return ended(estimate, Status.FINISHED)


def walk(
    plan: PerturbedSpiderPlan,
    facts: Facts,
    randomness: PublicRandomness,
    estimator: DisturbedEstimator,
    state: _Walk,
    keep: Callable[[_Walk], None],
) -> _Walk:
    """Drive an estimator until all steps are taken or units run out.

    Args:
        plan: filled.
        facts: public.
        randomness: of the noise that disturbs.
        estimator: of the mean gradient.
        state: to begin with; see `beginning`.
        keep: is given each state that is made of one more estimate.
    """
    while int(state.ended) == 0:
        if int(state.step) >= plan.steps:
            return state._replace(ended=torch.tensor(OUTCOMES.index("steps")))
        due = is_due(plan, state)
        if due:
            estimator.begin_round("fresh", estimator.snapshot())
        slope = estimator.query(state.theta)
        if slope is None:
            return state._replace(ended=torch.tensor(OUTCOMES.index("data_exhausted")))
        if due:
            slope, state = _disturbed(plan, facts, randomness, estimator, state, slope)
        else:
            state = state._replace(frozen=state.frozen - 1)
        state = _moved(plan, facts, state, slope)
        keep(state)
    return state


def is_due(plan: PerturbedSpiderPlan, state: _Walk) -> bool:
    """Say whether the last estimate was short, and none was disturbed lately."""
    # Before the first step no estimate is known: the zero in its place would look short.
    if int(state.step) == 0 or int(state.frozen) > 0:
        return False
    return bool(torch.linalg.vector_norm(state.slope_told, dim=-1) <= 3 * plan.error_radius)


def _disturbed(
    plan: PerturbedSpiderPlan,
    facts: Facts,
    randomness: PublicRandomness,
    estimator: DisturbedEstimator,
    state: _Walk,
    slope: Tensor,
) -> tuple[Tensor, _Walk]:
    """Return a fresh gradient with noise on top, which later estimates carry along."""
    extra = plan.extra_noise * randomness.normal(facts.dimension)
    estimator.disturb(extra)
    counted = state._replace(frozen=torch.tensor(plan.frozen_steps), disturbed=state.disturbed + 1)
    return slope + extra, counted


def _moved(plan: PerturbedSpiderPlan, facts: Facts, state: _Walk, slope: Tensor) -> _Walk:
    """Take one step, and keep where it leads if it is one that is kept."""
    theta, left, _ = arrived(facts, torch.sub(state.theta, slope, alpha=plan.step_size), plan.radius)
    moved = state._replace(theta=theta, left=left, step=state.step + 1, slope_told=slope)
    return moved if moved.kept is None else moved._replace(kept=_with_iterate(moved.kept, moved))


def _with_iterate(kept: _KeptIterates, state: _Walk) -> _KeptIterates:
    """Return the iterates with a state's, if its step is one of those; every second one goes when all are there."""
    if kept.iterates is None:
        return kept
    held, count, stride = kept.iterates, int(kept.held), int(kept.stride)
    if count == len(held) and int(state.step) % stride == 0:
        count, stride = count // 2, 2 * stride
        # These are the steps that the doubled stride divides.
        held = torch.cat((held[1::2], torch.zeros_like(held[: len(held) - count])))
    if int(state.step) % stride == 0:
        # A state that was kept shares this tensor: writing in place would change it, too.
        held = held.clone()
        held[count] = state.theta.reshape(-1)
        count += 1
    return _KeptIterates(stride=torch.tensor(stride), held=torch.tensor(count), iterates=held)


def kept_iterates(state: _Walk) -> Tensor | None:
    """Return the iterates kept, shape (K, p), the last one with them; None where none are."""
    if state.kept is None:
        return None
    last, count, step = state.theta.reshape(1, -1), int(state.kept.held), int(state.step)
    if state.kept.iterates is None or step == 0:
        return last
    held = state.kept.iterates[:count]
    # The last iterate is already held where its step is a multiple of the stride.
    return held if count * int(state.kept.stride) == step else torch.cat((held, last))


def beginning(plan: PerturbedSpiderPlan, start: Tensor) -> _Walk:
    """Return the state before the first estimate, shape (p,) for points."""
    zero, kept = torch.tensor(0), None
    if plan.keep_iterates is not None:
        iterates = start.new_zeros(plan.keep_iterates - 1, len(start)) if plan.keep_iterates > 1 else None
        kept = _KeptIterates(stride=torch.tensor(1), held=zero, iterates=iterates)
    return _Walk(
        start=start,
        theta=start,
        slope_told=torch.zeros_like(start),
        left=torch.tensor(data=False),
        ended=zero,
        step=zero,
        frozen=zero,
        disturbed=zero,
        kept=kept,
    )
