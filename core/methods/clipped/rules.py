"""Uses of a noised gradient: step rules, their learning rate schedule, and averages of iterates.

All of it is post-processing of the oracle's answers and has no price: moments and velocities are functions of noised
gradients alone. No certificate covers momentum or Adam.

Source: Polyak (1964) for momentum, Kingma and Ba (2015) for Adam, Polyak and Juditsky (1992) for averages.
"""

from math import cos, pi
from typing import Annotated, Literal

from pydantic import Field

from core.privacy.facts import Frozen

Kept = Annotated[float, Field(ge=0, lt=1)]
LearningRateSchedule = Literal["constant", "cosine"]


class Sgd(Frozen):
    """theta <- theta - step_size * v, v <- momentum * v + gradient."""

    kind: Literal["sgd"] = "sgd"
    momentum: Kept = 0.0


class Adam(Frozen):
    """theta <- theta - step_size * m / (sqrt(s) + floor), m and s running means of gradients and of their squares."""

    kind: Literal["adam"] = "adam"
    first: Kept = 0.9
    second: Kept = 0.999
    floor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-8


Rule = Annotated[Sgd | Adam, Field(discriminator="kind")]


class NoMean(Frozen):
    """The last iterate."""

    kind: Literal["none"] = "none"


class TailMean(Frozen):
    """The mean of the iterates after the last `steps` steps."""

    kind: Literal["tail"] = "tail"
    steps: Annotated[int, Field(ge=1)]


class MovingMean(Frozen):
    """mean <- decay * mean + (1 - decay) * theta after each step, the start's part taken out at the end."""

    kind: Literal["ema"] = "ema"
    decay: Annotated[float, Field(gt=0, lt=1)]


Average = Annotated[NoMean | TailMean | MovingMean, Field(discriminator="kind")]


def scheduled_share(step: int, steps: int, learning_rate_schedule: LearningRateSchedule, warm_up: int) -> float:
    """Return what the step size is multiplied by at a step.

    Args:
        step: from 1 to `steps`.
        steps: number of steps.
        learning_rate_schedule: `cosine` falls from 1 to 0 after the warm-up.
        warm_up: number of first steps, over which the size rises linearly to the full one.
    """
    if step <= warm_up:
        return step / warm_up
    if learning_rate_schedule == "constant":
        return 1.0
    # Counted from step - 1: the first such step is full, and the last is not zero.
    return (1 + cos(pi * (step - 1 - warm_up) / (steps - warm_up))) / 2
