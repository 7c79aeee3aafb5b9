"""Newton steps on a noised gradient and a noised matrix, then gradient steps with the last matrix.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (9), Theorems 3 and 4; eigenvalue floor as in Remark 6. Pooling
of Hessians and the gradient steps behind them are Farthing's; without them this is the paper's method.
Sensitivity: those of `Gradient`, `Curvature` and `Secant`; one Gaussian answer a gradient, a Hessian and a comparison,
everything after an answer is post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

from dataclasses import replace
from math import nan, sqrt

import torch
from torch import Tensor

from core.inference.eigen import solve
from core.inference.estimate import Estimate, LateSteps, by_replicate
from core.inference.parameters import penalised_gradient, scale_of, with_own_scale, within_reach
from core.methods.lifecycle import arrived, ended, settled, starting_point
from core.methods.m_estimation.noisy_newton.options import GradientStart
from core.methods.m_estimation.noisy_newton.rules import LocalAnswers, Searched, damped, search
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.oracle import Answer, Oracle, Status
from core.privacy.facts import Facts

State = dict[str, Tensor]
FURTHER = {"theta": 1, "sum": 1, "hessian": 2, "pooled_sum": 2}
"""Dimensions of an entry of the state behind its replicates, where it has some."""
COMMON = frozenset({"step", "lipschitz"})
"""Entries that go on in replicates that have stopped."""


def iterate(plan: NoisyNewton, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        plan: public plan, nothing open that the paper does not fix.
        oracle: the only way to the records.

    Returns: The mean of the last iterates, shape (features,), with the noised Hessians that the intervals use at no
        further cost, shape (features, features). These are all of them where they are pooled, else those of the later
        half of the steps. And the way in which the method ended. In a simulation replicates come first, and a replicate
        that has stopped stays where it is.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert plan.steps is not None, "plan first"
    assert plan.radius is not None, "plan first"
    gradients = plan.gradients()
    state = _resumed(plan, oracle)
    status = Status.FINISHED
    for step in range(int(state["step"]) + 1, plan.steps + 1):
        slope = oracle.ask(gradients[step - 1], state["theta"])
        going = state["going"]
        if plan.stop == "private":
            going = going & ~settled(slope, 0.5)
            if not bool(going.any()):
                status = Status.STOPPED
                break
            assert going.ndim == 0 or not plan.late_steps, "replicates that stop at different steps have none behind"
        moved = _moved(plan, oracle, state, slope, step)
        theta, left, raised = arrived(oracle.facts, moved.pop("theta"), plan.radius)
        averaged = step > plan.steps - (plan.averaged or 1)
        after = moved | {
            "theta": theta,
            "left": left,
            "step": torch.tensor(step),
            "taken": state["taken"] + 1,
            "raised": state["raised"] + raised.long(),
            "sum": state["sum"] + theta if averaged else state["sum"],
            "summed": state["summed"] + int(averaged),
            "scale": torch.tensor(slope.scale, dtype=torch.float64),
        }
        state = state | {name: _where(name, going, value, state[name]) for name, value in after.items()}
        state["going"] = going
        oracle.keep(state, step)
    return ended(_estimate(plan, oracle, state), status)


def _resumed(plan: NoisyNewton, oracle: Oracle) -> State:
    """Return the state to go on from; before the first step, with a bound on how fast Hessians change if asked."""
    state = oracle.resume(_start(plan, oracle))
    assert plan.mu is not None, "plan first"
    if int(state["step"]) == 0:
        # An attempt that is resumed before step 1 asks again; the log recalls that answer for free.
        for question in plan.lipschitz_questions(plan.mu):
            assert oracle.facts.third_derivative is not None, "the planner refuses it"
            largest = torch.linalg.eigvalsh(oracle.ask(question, state["theta"]).value)[..., -1]
            state["lipschitz"] = oracle.facts.third_derivative * largest
    return state


def _start(plan: NoisyNewton, oracle: Oracle) -> State:
    """Return the state before the first step."""
    assert plan.damping is not None, "plan first"
    theta = starting_point(plan.start, oracle)
    nothing = torch.zeros(theta.shape[-1], theta.shape[-1], dtype=torch.float64)
    zero = torch.tensor(0.0, dtype=torch.float64)
    return {
        "theta": theta,
        "left": torch.tensor(data=False),
        "step": torch.tensor(0),
        "going": torch.tensor(data=True),
        "taken": torch.tensor(0),
        "raised": torch.tensor(0),
        "hessian": nothing,
        "floored": torch.tensor(0),
        "pooled_sum": nothing,
        "pooled_weight": zero,
        "pooled_squares": zero,
        "sum": torch.zeros_like(theta),
        "summed": torch.tensor(0),
        "scale": zero,
        "curvature_scale": zero,
        "damping": torch.tensor(plan.damping, dtype=torch.float64),
        "early": torch.tensor(data=True),
        "lipschitz": torch.tensor(nan, dtype=torch.float64),
        "evaluations": torch.tensor(0),
        "searching": torch.tensor(data=True),
    }


def _where(name: str, going: Tensor, after: Tensor, before: Tensor) -> Tensor:
    """Return an entry of the state after a step, as it was in replicates that have stopped."""
    return after if name in COMMON else torch.where(by_replicate(going, FURTHER.get(name, 0)), after, before)


def _moved(plan: NoisyNewton, oracle: Oracle, state: State, slope: Answer, step: int) -> State:
    """Return what a step changes, its iterate not yet within bounds: a gradient, a Newton, or a late step."""
    theta, number = state["theta"], step - plan.warm_steps
    if number > plan.newton_steps:
        along = solve(state["hessian"], penalised_gradient(oracle.facts, slope.value, theta))
        unit = scale_of(oracle.facts, theta)
        return {"theta": theta - _limited(plan, oracle.facts, unit.unsqueeze(-1) * along, unit)}
    if number < 1:
        along = penalised_gradient(oracle.facts, slope.value, theta)
        return {"theta": theta - by_replicate(_warm_size(plan, oracle.facts, theta), 1) * along}
    pooled = _pooled(plan, oracle, state, number)
    matrix = pooled["matrix"] if plan.scale_step == "newton" else with_own_scale(oracle.facts, pooled["matrix"])
    received = LocalAnswers(theta, slope.value, matrix, plan.floors(oracle.facts)[number - 1])
    model, damping, early = damped(plan, oracle.facts, received, number, state["early"], state["lipschitz"])
    model = replace(model, direction=_limited(plan, oracle.facts, model.direction, model.scale))
    moved = pooled | {"hessian": model.hessian, "floored": model.floored, "early": early}
    del moved["matrix"]
    if plan.line_search is not None:
        assert plan.mu is not None, "plan first"
        so_far = Searched(state["damping"], state["evaluations"], state["searching"])
        (question, *_) = plan.comparisons(plan.mu)
        found = search(plan.line_search, question, oracle, theta, model, so_far)
        damping = found.size
        moved |= {"evaluations": found.evaluations, "searching": found.searching}
    return moved | {"damping": damping, "theta": theta - by_replicate(damping, 1) * model.direction}


def _limited(plan: NoisyNewton, facts: Facts, direction: Tensor, scale: Tensor) -> Tensor:
    """Return a direction that goes no further than its residual scale allows, but for the paper's own steps."""
    own = bool(plan.memory) if facts.scale is None else plan.scale_step != "newton"
    return within_reach(facts, direction, scale) if own else direction


def _warm_size(plan: NoisyNewton, facts: Facts, theta: Tensor) -> Tensor:
    """Return what the gradient steps in front multiply their gradients by, shape (...)."""
    assert isinstance(plan.warm_start, GradientStart), "there are such steps"
    assert plan.warm_start.step_size is not None, "plan first"
    return plan.warm_start.step_size * scale_of(facts, theta)


def _pooled(plan: NoisyNewton, oracle: Oracle, state: State, number: int) -> State:
    """Ask for a step's Hessian and return its matrix, not floored, and what is pooled so far.

    Weights are relative to the precision of this answer: an earlier one counts as much less as it was noisier, times
    `memory` for each step since. Without memory, the later half of the Hessians is pooled for the intervals alone.
    """
    curvatures, memory = plan.curvatures(), plan.memory or 0.0
    question = curvatures[number - 1]
    bend = oracle.ask(question, state["theta"])
    before = (question.sigma / curvatures[max(0, number - 2)].sigma) ** 2
    later_half = 2 * (number - 1) > plan.newton_steps
    kept = before * (memory if memory > 0 else float(later_half))
    total = bend.value + kept * state["pooled_sum"]
    weight = 1 + kept * state["pooled_weight"]
    return {
        "matrix": total / by_replicate(weight, 2) if memory > 0 else bend.value,
        "pooled_sum": total,
        "pooled_weight": weight,
        # In this answer's variance an earlier one's is 1/before.
        "pooled_squares": 1 + kept**2 / before * state["pooled_squares"],
        "curvature_scale": torch.tensor(bend.scale, dtype=torch.float64),
    }


def _estimate(plan: NoisyNewton, oracle: Oracle, state: State) -> Estimate:
    """Return what the last state tells."""
    assert plan.eigenvalue_floor is not None, "plan first"
    assert plan.steps is not None, "plan first"
    taken, summed = state["taken"], state["summed"]
    late = int(taken.max()) - plan.warm_steps - plan.newton_steps
    scale = state["scale"]
    if late <= 0:
        scale = torch.where(taken.eq(plan.steps), _stationary_scale(plan, scale), scale)
    # A replicate that stopped early summed nothing; its quotient is replaced below.
    averaged = state["sum"] / by_replicate(summed.clamp(min=1), 1)
    theta = torch.where(by_replicate(summed > 0, 1), averaged, state["theta"])
    unit = scale_of(oracle.facts, theta)
    return Estimate(
        theta=theta,
        start=starting_point(plan.start, oracle),
        eigenvalue_floor=plan.eigenvalue_floor / unit,
        family="newton",
        left=state["left"],
        scale=scale,
        step=state["damping"],
        steps=taken,
        scale_floored=state["raised"],
        floored=state["floored"],
        hessian=state["hessian"] / by_replicate(unit, 2) if int(taken.max()) else None,
        late_sum=state["pooled_sum"],
        late_count=state["pooled_weight"],
        late_squares=state["pooled_squares"],
        curvature_scale=state["curvature_scale"],
        late=LateSteps(steps=late, averaged=max(1, int(summed.max()))) if late > 0 else None,
    )


def _stationary_scale(plan: NoisyNewton, last: Tensor) -> Tensor:
    """Return the noise of equal steps that would leave the last iterate as uncertain as these do.

    With step k's noise s_k and damping d, the variance along any direction is the inverse Hessian squared times the sum
    over k of d^2 (1 - d)^(2 (K - k)) s_k^2. Equal steps leave s^2 d/(2 - d). A pure step leaves its own.
    """
    assert plan.damping is not None, "plan first"
    sigmas = [gradient.sigma for gradient in plan.gradients()[plan.warm_steps :]]
    fixed = plan.step_rule == "fixed" and plan.line_search is None
    if min(sigmas) == max(sigmas) or not fixed:
        return last
    damping, variance = plan.damping, 0.0
    for sigma in sigmas:
        variance = (1 - damping) ** 2 * variance + (damping * sigma / sigmas[-1]) ** 2
    return last * sqrt(variance * (2 - damping) / damping)
