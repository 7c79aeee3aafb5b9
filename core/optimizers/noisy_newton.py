"""Newton steps on a noised gradient and a noised matrix, then gradient steps with the last matrix.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (9), Theorem 3; eigenvalue floor as in Remark 6. Pooling of
Hessians and the gradient steps behind them are Farthing's; without them this is the paper's method.
Sensitivity: those of `Gradient` and `Curvature`; one Gaussian answer a gradient and one a Hessian, everything after an
answer is post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

from math import sqrt

import torch
from torch import Tensor

from core.catalogue.noisy_newton import NoisyNewton
from core.inference.eigen import floor_eigenvalues, inside, solve
from core.inference.estimate import Estimate, LateSteps
from core.optimizers.lifecycle import ended, settled, starting_point
from core.oracle import Answer, Oracle, Status


def iterate(settings: NoisyNewton, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        settings: public settings, nothing open that the paper does not fix.
        oracle: the only way to the records.

    Returns:
        The mean of the last iterates, shape (features,), with the noised Hessians that the intervals use at no further
        cost, shape (features, features): all of them where they are pooled, else those of the later half of the steps;
        and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert settings.steps is not None, "plan first"
    assert settings.radius is not None, "plan first"
    gradients, curvatures, floors = settings.gradients(), settings.curvatures(), settings.floors(oracle.facts)
    state = oracle.resume(_start(settings, oracle))
    status = Status.FINISHED
    for step in range(int(state["step"]) + 1, settings.steps + 1):
        slope = oracle.ask(gradients[step - 1], state["theta"])
        if settings.stop == "private" and settled(slope, 0.5):
            status = Status.STOPPED
            break
        damping = 1.0
        if step <= settings.newton_steps:
            assert settings.damping is not None, "plan first"
            damping = settings.damping
            bend = oracle.ask(curvatures[step - 1], state["theta"])
            before = (curvatures[step - 1].sigma / curvatures[max(0, step - 2)].sigma) ** 2
            state = state | _matrix(settings, state, bend, before, floors[step - 1])
        moved = state["theta"] - damping * solve(state["hessian"], slope.value)
        theta, left = inside(moved, settings.radius)
        averaged = step > settings.steps - (settings.averaged or 1)
        state = state | {
            "theta": theta,
            "left": left,
            "step": torch.tensor(step),
            "sum": state["sum"] + theta if averaged else state["sum"],
            "summed": state["summed"] + int(averaged),
            "scale": torch.tensor(slope.scale, dtype=torch.float64),
        }
        oracle.keep(state, step)
    return ended(_estimate(settings, oracle, state), status)


def _start(settings: NoisyNewton, oracle: Oracle) -> dict[str, Tensor]:
    """Return the state before the first step."""
    theta = starting_point(settings.start, oracle.facts)
    nothing = torch.zeros(theta.shape[-1], theta.shape[-1], dtype=torch.float64)
    zero = torch.tensor(0.0, dtype=torch.float64)
    return {
        "theta": theta,
        "left": torch.zeros((), dtype=torch.bool),
        "step": torch.tensor(0),
        "hessian": nothing,
        "floored": torch.tensor(0),
        "pooled_sum": nothing,
        "pooled_weight": zero,
        "pooled_squares": zero,
        "sum": torch.zeros_like(theta),
        "summed": torch.tensor(0),
        "scale": zero,
        "curvature_scale": zero,
    }


def _matrix(
    settings: NoisyNewton, state: dict[str, Tensor], bend: Answer, before: float, floor: float
) -> dict[str, Tensor]:
    """Return the floored matrix of a step with this noised Hessian, and what is pooled so far.

    Weights are relative to the precision of this answer: an earlier one counts as much less as it was noisier (`before`
    for the one before), times `memory` for each step since. Without memory, the later half of the Hessians is pooled
    for the intervals alone.
    """
    memory = settings.memory or 0.0
    later_half = 2 * int(state["step"]) > settings.newton_steps
    kept = before * (memory if memory > 0 else float(later_half))
    total = bend.value + kept * state["pooled_sum"]
    weight = 1 + kept * state["pooled_weight"]
    matrix = total / weight if memory > 0 else bend.value
    hessian, floored = floor_eigenvalues(matrix, floor)
    return {
        "hessian": hessian,
        "floored": floored,
        "pooled_sum": total,
        "pooled_weight": weight,
        "pooled_squares": 1 + kept**2 / before * state["pooled_squares"],
        "curvature_scale": torch.tensor(bend.scale, dtype=torch.float64),
    }


def _estimate(settings: NoisyNewton, oracle: Oracle, state: dict[str, Tensor]) -> Estimate:
    """Return what the last state tells."""
    assert settings.damping is not None, "plan first"
    assert settings.eigenvalue_floor is not None, "plan first"
    taken, scale, summed = int(state["step"]), float(state["scale"]), int(state["summed"])
    late = taken - settings.newton_steps
    if late <= 0 and taken == settings.steps:
        scale = _stationary_scale(settings, scale)
    return Estimate(
        theta=state["sum"] / summed if summed else state["theta"],
        start=starting_point(settings.start, oracle.facts),
        eigenvalue_floor=settings.eigenvalue_floor,
        family="newton",
        left=state["left"],
        scale=scale,
        step=settings.damping,
        steps=taken,
        floored=state["floored"],
        hessian=state["hessian"] if taken else None,
        late_sum=state["pooled_sum"],
        late_count=float(state["pooled_weight"]),
        late_squares=float(state["pooled_squares"]),
        curvature_scale=float(state["curvature_scale"]),
        late=LateSteps(steps=late, averaged=max(1, summed)) if late > 0 else None,
    )


def _stationary_scale(settings: NoisyNewton, last: float) -> float:
    """Return the noise of equal steps that would leave the last iterate as uncertain as these do.

    With step k's noise s_k the variance along any direction is, times the inverse Hessian squared, the sum over k of
    d^2 (1 - d)^(2 (K - k)) s_k^2, d the damping; equal steps leave s^2 d/(2 - d). A pure step leaves its own.
    """
    assert settings.damping is not None, "plan first"
    sigmas = [gradient.sigma for gradient in settings.gradients()]
    if min(sigmas) == max(sigmas):
        return last
    damping, variance = settings.damping, 0.0
    for sigma in sigmas:
        variance = (1 - damping) ** 2 * variance + (damping * sigma / sigmas[-1]) ** 2
    return last * sqrt(variance * (2 - damping) / damping)
