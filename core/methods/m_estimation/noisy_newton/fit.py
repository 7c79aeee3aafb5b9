"""Newton steps on a noised gradient and a noised matrix, then gradient steps with the last matrix.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (9), Theorems 3 and 4; eigenvalue floor as in Remark 6. Pooling
of Hessians and the gradient steps behind them are Farthing's; without them this is the paper's method.
Sensitivity: those of `Gradient`, `Curvature` and `Secant`; one Gaussian answer a gradient, a Hessian and a comparison,
everything after an answer is post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

from dataclasses import replace
from math import nan, sqrt
from typing import Final, NamedTuple

import torch
from torch import Tensor

from core.inference.eigen import solve
from core.inference.estimate import Estimate, LateSteps, by_replicate
from core.inference.parameters import penalised_gradient, scale_of, with_own_scale, within_reach
from core.methods.lifecycle import arrived, ended, resumed, settled, starting_point, tensors_of
from core.methods.m_estimation.noisy_newton.options import GradientStartPlan
from core.methods.m_estimation.noisy_newton.rules import LocalAnswers, Searched, damped, search
from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan
from core.oracle import Answer, Oracle, Status
from core.privacy.facts import Facts

_FURTHER: Final = {"theta": 1, "sum": 1, "hessian": 2, "pooled_sum": 2}
"""Dimensions of an entry of the state behind its replicates, where it has some."""


class _State(NamedTuple):
    """Where a run stands after a step; in a simulation replicates come first."""

    theta: Tensor
    """Shape (..., p)."""
    left: Tensor
    """True where the last step left the radius, shape (...)."""
    step: Tensor
    going: Tensor
    """True where no step has stopped the run, shape (...)."""
    taken: Tensor
    raised: Tensor
    """Number of steps whose scale was raised to its floor, shape (...)."""
    hessian: Tensor
    """Floored, of the last Newton step, shape (..., p, p)."""
    floored: Tensor
    """Number of its eigenvalues that the floor moved, shape (...)."""
    pooled_sum: Tensor
    """Of the noised Hessians, weighted relative to the last, shape (..., p, p)."""
    pooled_weight: Tensor
    pooled_squares: Tensor
    sum: Tensor
    """Of the iterates that are averaged, shape (..., p)."""
    summed: Tensor
    scale: Tensor
    """Deviation of the last gradient's noise on a coordinate."""
    curvature_scale: Tensor
    damping: Tensor
    early: Tensor
    """True where no test has ended the early phase, shape (...)."""
    lipschitz: Tensor
    """Private bound on how fast Hessians change; NaN where none was asked for."""
    evaluations: Tensor
    """Number of comparisons that the line search made, shape (...)."""
    searching: Tensor
    """True where no step of size 1 has been accepted, shape (...)."""


def iterate(plan: NoisyNewtonPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records.

    Returns: The mean of the last iterates, shape (features,), with the noised Hessians that the intervals use at no
        further cost, shape (features, features). These are all of them where they are pooled, else those of the later
        half of the steps. And the way in which the method ended. In a simulation replicates come first, and a replicate
        that has stopped stays where it is.

    Raises:
        Diverged: the last step left the public radius.
    """
    gradients = plan.gradients()
    state = _begun(plan, oracle)
    status = Status.FINISHED
    for step in range(int(state.step) + 1, plan.steps + 1):
        slope = oracle.ask(gradients[step - 1], state.theta)
        going = state.going
        if plan.stop == "private":
            going = going & ~settled(slope, 0.5)
            if not bool(going.any()):
                status = Status.STOPPED
                break
            assert going.ndim == 0 or not plan.late_steps, "replicates that stop at different steps have none behind"
        moved = _moved(plan, oracle, state, slope, step)
        theta, left, raised = arrived(oracle.facts, moved.theta, plan.radius)
        averaged = step > plan.steps - plan.averaged
        after = moved._replace(
            theta=theta,
            left=left,
            taken=state.taken + 1,
            raised=state.raised + raised.long(),
            sum=state.sum + theta if averaged else state.sum,
            summed=state.summed + int(averaged),
            scale=torch.tensor(slope.scale, dtype=torch.float64),
        )
        state = _where(going, after, state)._replace(step=torch.tensor(step), going=going)
        oracle.keep(tensors_of(state), step)
    return ended(_estimate(plan, oracle, state), status)


def _begun(plan: NoisyNewtonPlan, oracle: Oracle) -> _State:
    """Return the state to go on from; before the first step, with a bound on how fast Hessians change if asked."""
    state = resumed(plan.start, oracle, _start(plan, oracle))
    if int(state.step) == 0:
        # An attempt that is resumed before step 1 asks again; the log recalls that answer for free.
        for question in plan.lipschitz_questions(plan.mu):
            assert oracle.facts.third_derivative is not None, "the planner refuses it"
            largest = torch.linalg.eigvalsh(oracle.ask(question, state.theta).value)[..., -1]
            state = state._replace(lipschitz=oracle.facts.third_derivative * largest)
    return state


def _start(plan: NoisyNewtonPlan, oracle: Oracle) -> _State:
    """Return the state before the first step."""
    theta = starting_point(plan.start, oracle)
    nothing = torch.zeros(theta.shape[-1], theta.shape[-1], dtype=torch.float64)
    none, yes, zero = torch.tensor(0), torch.tensor(data=True), torch.tensor(0.0, dtype=torch.float64)
    return _State(
        theta=theta,
        left=~yes,
        step=none,
        going=yes,
        taken=none,
        raised=none,
        hessian=nothing,
        floored=none,
        pooled_sum=nothing,
        pooled_weight=zero,
        pooled_squares=zero,
        sum=torch.zeros_like(theta),
        summed=none,
        scale=zero,
        curvature_scale=zero,
        damping=torch.tensor(plan.damping, dtype=torch.float64),
        early=yes,
        lipschitz=torch.tensor(nan, dtype=torch.float64),
        evaluations=none,
        searching=yes,
    )


def _where(going: Tensor, after: _State, before: _State) -> _State:
    """Return the state after a step, as it was in replicates that have stopped."""
    entries = zip(after._asdict().items(), before, strict=True)
    return _State(
        *(
            # A step leaves some entries as they are, without replicates.
            new if new is old else torch.where(by_replicate(going, _FURTHER.get(name, 0)), new, old)
            for (name, new), old in entries
        )
    )


def _moved(plan: NoisyNewtonPlan, oracle: Oracle, state: _State, slope: Answer, step: int) -> _State:
    """Return what a step changes, its iterate not yet within bounds: a gradient, a Newton, or a late step."""
    theta, number = state.theta, step - plan.warm_steps
    if number > plan.hessians:
        along = solve(state.hessian, penalised_gradient(oracle.facts, slope.value, theta))
        unit = scale_of(oracle.facts, theta)
        return state._replace(theta=theta - _limited(plan, oracle.facts, unit.unsqueeze(-1) * along, unit))
    if number < 1:
        along = penalised_gradient(oracle.facts, slope.value, theta)
        return state._replace(theta=theta - by_replicate(_warm_size(plan, oracle.facts, theta), 1) * along)
    matrix, state = _pooled(plan, oracle, state, number)
    matrix = matrix if plan.scale_step == "newton" else with_own_scale(oracle.facts, matrix)
    received = LocalAnswers(theta, slope.value, matrix, plan.floors(oracle.facts)[number - 1])
    model, damping, early = damped(plan, oracle.facts, received, number, state.early, state.lipschitz)
    model = replace(model, direction=_limited(plan, oracle.facts, model.direction, model.scale))
    state = state._replace(hessian=model.hessian, floored=model.floored, early=early)
    if plan.line_search is not None:
        so_far = Searched(state.damping, state.evaluations, state.searching)
        (question, *_) = plan.comparisons(plan.mu)
        found = search(plan.line_search, question, oracle, theta, model, so_far)
        damping = found.size
        state = state._replace(evaluations=found.evaluations, searching=found.searching)
    return state._replace(damping=damping, theta=theta - by_replicate(damping, 1) * model.direction)


def _limited(plan: NoisyNewtonPlan, facts: Facts, direction: Tensor, scale: Tensor) -> Tensor:
    """Return a direction that goes no further than its residual scale allows, but for the paper's own steps."""
    own = bool(plan.memory) if facts.scale is None else plan.scale_step != "newton"
    return within_reach(facts, direction, scale) if own else direction


def _warm_size(plan: NoisyNewtonPlan, facts: Facts, theta: Tensor) -> Tensor:
    """Return what the gradient steps in front multiply their gradients by, shape (...)."""
    assert isinstance(plan.warm_start, GradientStartPlan), "there are such steps"
    return plan.warm_start.step_size * scale_of(facts, theta)


def _pooled(plan: NoisyNewtonPlan, oracle: Oracle, state: _State, number: int) -> tuple[Tensor, _State]:
    """Ask for a step's Hessian and return its matrix, not floored, and the state with what is pooled so far.

    Weights are relative to the precision of this answer: an earlier one counts as much less as it was noisier, times
    `memory` for each step since. Without memory, the later half of the Hessians is pooled for the intervals alone.
    """
    curvatures, memory = plan.curvatures(), plan.memory
    question = curvatures[number - 1]
    bend = oracle.ask(question, state.theta)
    before = (question.sigma / curvatures[max(0, number - 2)].sigma) ** 2
    later_half = 2 * (number - 1) > plan.hessians
    kept = before * (memory if memory > 0 else float(later_half))
    total = bend.value + kept * state.pooled_sum
    weight = 1 + kept * state.pooled_weight
    return total / by_replicate(weight, 2) if memory > 0 else bend.value, state._replace(
        pooled_sum=total,
        pooled_weight=weight,
        # In this answer's variance an earlier one's is 1/before.
        pooled_squares=1 + kept**2 / before * state.pooled_squares,
        curvature_scale=torch.tensor(bend.scale, dtype=torch.float64),
    )


def _estimate(plan: NoisyNewtonPlan, oracle: Oracle, state: _State) -> Estimate:
    """Return what the last state tells."""
    taken, summed = state.taken, state.summed
    late = int(taken.max()) - plan.warm_steps - plan.hessians
    scale = state.scale
    if late <= 0:
        scale = torch.where(taken.eq(plan.steps), _stationary_scale(plan, scale), scale)
    # A replicate that stopped early summed nothing; its quotient is replaced below.
    averaged = state.sum / by_replicate(summed.clamp(min=1), 1)
    theta = torch.where(by_replicate(summed > 0, 1), averaged, state.theta)
    unit = scale_of(oracle.facts, theta)
    return Estimate(
        theta=theta,
        start=starting_point(plan.start, oracle),
        eigenvalue_floor=plan.eigenvalue_floor / unit,
        family="newton",
        left=state.left,
        scale=scale,
        step=state.damping,
        steps=taken,
        scale_floored=state.raised,
        floored=state.floored,
        hessian=state.hessian / by_replicate(unit, 2) if int(taken.max()) else None,
        late_sum=state.pooled_sum,
        late_count=state.pooled_weight,
        late_squares=state.pooled_squares,
        curvature_scale=state.curvature_scale,
        late=LateSteps(steps=late, averaged=max(1, int(summed.max()))) if late > 0 else None,
    )


def _stationary_scale(plan: NoisyNewtonPlan, last: Tensor) -> Tensor:
    """Return the noise of equal steps that would leave the last iterate as uncertain as these do.

    With step k's noise s_k and damping d, the variance along any direction is the inverse Hessian squared times the sum
    over k of d^2 (1 - d)^(2 (K - k)) s_k^2. Equal steps leave s^2 d/(2 - d). A pure step leaves its own.
    """
    sigmas = [gradient.sigma for gradient in plan.gradients()[plan.warm_steps :]]
    fixed = plan.step_rule == "fixed" and plan.line_search is None
    if min(sigmas) == max(sigmas) or not fixed:
        return last
    damping, variance = plan.damping, 0.0
    for sigma in sigmas:
        variance = (1 - damping) ** 2 * variance + (damping * sigma / sigmas[-1]) ** 2
    return last * sqrt(variance * (2 - damping) / damping)
