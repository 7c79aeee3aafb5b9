"""Noisy gradient descent: steps of fixed size on noised mean gradients.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (4), Theorem 2; with an unknown residual scale, steps on
coefficients and scale together, multiplied by the current scale as in the authors' own experiments.
Sensitivity: that of `Gradient` (B/n, or its diameter over n under replace_one); `steps` Gaussian answers, everything
after an answer is post-processing.
Failure: depends on noised values only, so it tells no more than the release.
"""

import torch
from torch import Tensor

from core.inference.estimate import Estimate, by_replicate
from core.inference.parameters import penalised_gradient, scale_of
from core.methods.lifecycle import arrived, begun, ended, settled, starting_point
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.oracle import Oracle, Status


def iterate(settings: NoisyGradientDescent, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        settings: public settings, nothing open.
        oracle: the only way to the records.

    Returns:
        The last iterate, shape (features,), with the size of its noise, and how the method ended. In a simulation
        replicates come first, and a replicate that has stopped stays where it is while others go on.

    Raises:
        Diverged: the last step left the public radius.
    """
    assert settings.steps is not None, "plan first"
    assert settings.radius is not None, "plan first"
    (gradient,) = settings.questions()
    state = begun(settings.start, oracle, _start(settings, oracle))
    status = Status.FINISHED
    for step in range(int(state["step"]) + 1, settings.steps + 1):
        theta = state["theta"]
        slope = oracle.ask(gradient, theta)
        going = state["going"]
        if settings.stop == "private":
            going = going & ~settled(slope, 1.0 if oracle.facts.scale is None else 0.5)
            if not bool(going.any()):
                status = Status.STOPPED
                break
        along = penalised_gradient(oracle.facts, slope.value, theta)
        moved = theta - by_replicate(_step_size(settings, oracle, theta), 1) * along
        moved, left, raised = arrived(oracle.facts, moved, settings.radius)
        state = {
            "start": state["start"],
            "theta": torch.where(going.unsqueeze(-1), moved, theta),
            "left": torch.where(going, left, state["left"]),
            "step": torch.tensor(step),
            "going": going,
            "taken": state["taken"] + going.long(),
            "raised": state["raised"] + (raised & going).long(),
            "scale": torch.tensor(slope.scale, dtype=torch.float64),
        }
        oracle.keep(state, step)
    estimate = Estimate(
        theta=state["theta"],
        start=state["start"],
        family="gradient",
        left=state["left"],
        scale=float(state["scale"]),
        step=_step_size(settings, oracle, state["theta"]),
        steps=state["taken"],
        scale_floored=state["raised"],
    )
    return ended(estimate, status)


def _start(settings: NoisyGradientDescent, oracle: Oracle) -> dict[str, Tensor]:
    """Return the state before the first step."""
    start = starting_point(settings.start, oracle)
    return {
        "start": start,
        "theta": start,
        "left": torch.tensor(data=False),
        "step": torch.tensor(0),
        "going": torch.tensor(data=True),
        "taken": torch.tensor(0),
        "raised": torch.tensor(0),
        "scale": torch.tensor(0.0, dtype=torch.float64),
    }


def _step_size(settings: NoisyGradientDescent, oracle: Oracle, theta: Tensor) -> Tensor | float:
    """Return what a gradient at theta is multiplied by, in all, shape (...)."""
    assert settings.step_size is not None, "plan first"
    if settings.scaling == "plain" or oracle.facts.scale is None:
        return settings.step_size
    return settings.step_size * scale_of(oracle.facts, theta)
