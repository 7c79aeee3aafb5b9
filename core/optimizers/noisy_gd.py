"""Noisy gradient descent: steps of fixed size on noised mean gradients.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (4), Theorem 2.
Sensitivity: that of `Gradient` (B/n, or 2 B/n under replace_one); `steps` Gaussian answers, everything after an answer
is post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

import torch

from core.catalogue.noisy_gd import NoisyGradientDescent
from core.inference.eigen import inside
from core.inference.estimate import Estimate
from core.optimizers.lifecycle import ended, settled, starting_point
from core.oracle import Oracle, Status


def iterate(settings: NoisyGradientDescent, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        settings: public settings, nothing open.
        oracle: the only way to the records.

    Returns:
        The last iterate, shape (features,), with the size of its noise, and how the method ended.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert settings.steps is not None, "plan first"
    assert settings.step_size is not None, "plan first"
    assert settings.radius is not None, "plan first"
    (gradient,) = settings.questions()
    none_left = torch.zeros((), dtype=torch.bool)
    state = oracle.resume(
        {
            "theta": starting_point(settings.start, oracle.facts),
            "left": none_left,
            "step": torch.tensor(0),
            "scale": torch.tensor(0.0, dtype=torch.float64),
        }
    )
    status = Status.FINISHED
    for step in range(int(state["step"]) + 1, settings.steps + 1):
        slope = oracle.ask(gradient, state["theta"])
        if settings.stop == "private" and settled(slope, 1.0):
            status = Status.STOPPED
            break
        theta, left = inside(state["theta"] - settings.step_size * slope.value, settings.radius)
        scale = torch.tensor(slope.scale, dtype=torch.float64)
        state = {"theta": theta, "left": left, "step": torch.tensor(step), "scale": scale}
        oracle.keep(state, step)
    estimate = Estimate(
        theta=state["theta"],
        start=starting_point(settings.start, oracle.facts),
        family="gradient",
        left=state["left"],
        scale=float(state["scale"]),
        step=settings.step_size,
        steps=int(state["step"]),
    )
    return ended(estimate, status)
