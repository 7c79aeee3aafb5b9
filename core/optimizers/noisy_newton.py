"""Damped Newton steps on a noised gradient and a noised Hessian.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (9), Theorem 3; eigenvalue floor as in Remark 6.
Sensitivity: those of `Gradient` and `Curvature`; 2*steps Gaussian answers, everything after an answer is
post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

from math import sqrt

import torch
from torch import Tensor

from core.catalogue.noisy_newton import NoisyNewton
from core.inference.eigen import floor_eigenvalues, inside, solve
from core.inference.estimate import Estimate
from core.optimizers.lifecycle import ended, settled, starting_point
from core.oracle import Oracle, Status


def iterate(settings: NoisyNewton, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        settings: public settings, nothing open.
        oracle: the only way to the records.

    Returns:
        The last iterate, shape (features,), with the noised Hessians of the later half of the steps, shape (features,
        features), which the intervals use at no further cost; and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert settings.steps is not None, "plan first"
    assert settings.damping is not None, "plan first"
    assert settings.radius is not None, "plan first"
    assert settings.eigenvalue_floor is not None, "plan first"
    gradient, curvature = settings.questions()
    state = oracle.resume(_start(settings, oracle))
    status = Status.FINISHED
    for step in range(int(state["step"]) + 1, settings.steps + 1):
        slope = oracle.ask(gradient if step < settings.steps else settings.last_gradient(), state["theta"])
        if settings.stop == "private" and settled(slope, 0.5):
            status = Status.STOPPED
            break
        bend = oracle.ask(curvature, state["theta"])
        hessian, floored = floor_eigenvalues(bend.value, settings.eigenvalue_floor)
        theta, left = inside(state["theta"] - settings.damping * solve(hessian, slope.value), settings.radius)
        late = 2 * step > settings.steps
        state = {
            "theta": theta,
            "left": left,
            "step": torch.tensor(step),
            "hessian": hessian,
            "floored": floored,
            "late_sum": state["late_sum"] + bend.value if late else state["late_sum"],
            "late_count": state["late_count"] + int(late),
            "scales": torch.tensor([slope.scale, bend.scale], dtype=torch.float64),
        }
        oracle.keep(state, step)
    return ended(_estimate(settings, oracle, state), status)


def _start(settings: NoisyNewton, oracle: Oracle) -> dict[str, Tensor]:
    """Return the state before the first step."""
    theta = starting_point(settings.start, oracle.facts)
    nothing = torch.zeros(theta.shape[-1], theta.shape[-1], dtype=torch.float64)
    return {
        "theta": theta,
        "left": torch.zeros((), dtype=torch.bool),
        "step": torch.tensor(0),
        "hessian": nothing,
        "floored": torch.tensor(0),
        "late_sum": nothing,
        "late_count": torch.tensor(0),
        "scales": torch.zeros(2, dtype=torch.float64),
    }


def _estimate(settings: NoisyNewton, oracle: Oracle, state: dict[str, Tensor]) -> Estimate:
    """Return what the last state tells."""
    assert settings.damping is not None, "plan first"
    assert settings.eigenvalue_floor is not None, "plan first"
    scale, curvature_scale = state["scales"].tolist()
    taken = int(state["step"])
    return Estimate(
        theta=state["theta"],
        start=starting_point(settings.start, oracle.facts),
        eigenvalue_floor=settings.eigenvalue_floor,
        family="newton",
        left=state["left"],
        scale=_stationary_scale(settings, scale) if taken == settings.steps else scale,
        step=settings.damping,
        steps=taken,
        floored=state["floored"],
        hessian=state["hessian"] if taken else None,
        late_sum=state["late_sum"],
        late_count=int(state["late_count"]),
        curvature_scale=curvature_scale,
    )


def _stationary_scale(settings: NoisyNewton, last: float) -> float:
    """Return the noise of equal steps that would leave the last iterate as uncertain as these do.

    With earlier noise s and the last step's, the variance along any direction is, times the inverse Hessian squared,
    d^2 last^2 + (1 - d)^2 s^2 d/(2 - d), d the damping; equal steps leave s^2 d/(2 - d). A pure step leaves its own.
    """
    assert settings.damping is not None, "plan first"
    ratio = settings.questions()[0].sigma / settings.last_gradient().sigma
    if ratio == 1:
        return last
    damping = settings.damping
    return last * sqrt(damping * (2 - damping) + (1 - damping) ** 2 * ratio**2)
