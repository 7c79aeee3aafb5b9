"""Choices of the planner by predicted widths: the division of mu^2, and the number of steps of gradient descent.

Too few steps leave the start unforgotten, each step more makes all of them noisier: the error as a function of their
number is U-shaped. Columns may fill less of their declared ranges than those of the reference design, and directions be
slower to learn. Of the numbers of steps that are as good for the reference as the usual one, it takes the best for
columns that fill FILLED_PART of their ranges. With assumed deviations both designs are one.
"""

from dataclasses import replace
from functools import partial
from math import ceil
from typing import Final

from core.base.errors import FieldError, Invalid
from core.inference.settings import Inference, Shares
from core.losses.losses import Clip
from core.methods.m_estimation.noisy_gd.spec import MOST_STEPS, NoisyGradientDescent
from core.methods.registry import AnySpec
from core.models.assumed import Assumed
from core.models.design import Design
from core.models.kinds import RegressionModel
from core.models.outlook import Outlook, make_outlook
from core.planning.completion import Completed, complete, planned_shares
from core.planning.prediction import MOST_COEFFICIENTS, demerit, demerit_of_estimate
from core.planning.shares import best_shares, equal_shares
from core.privacy.facts import Facts

FILLED_PART: Final = 0.25
PATTERNS: Final = 24
"""Of noise, where shares are compared: fewer than for a prediction that is shown."""
FEWEST_STEPS: Final = 10
COARSE_PATTERNS: Final = 3
"""Where numbers of steps are."""
STRIDE: Final = 2.0
"""From one number of steps that is compared to the next."""


def choose(
    optimizer: AnySpec,
    inference: Inference,
    mu: float,
    facts: Facts,
    described: tuple[Design, RegressionModel, Assumed | None],
) -> Completed:
    """Fill both, choosing by predicted widths where that is asked for or left open.

    Args:
        optimizer: as asked for.
        inference: as asked for, its radius filled.
        mu: the job's.
        facts: public.
        described: design, filled model and assumptions.

    Raises:
        Invalid: given figures contradict each other, or there is no prediction to choose shares by.
    """
    design, model, assumed = described
    asked = inference.shares if inference.intervals else None
    # `complete` takes numbers alone; both words are answered here.
    inference = inference.model_copy(update={"shares": None if isinstance(asked, str) else asked})
    if asked == "equal":
        optimizer, shares = equal_shares(optimizer, facts, mu)
        return complete(optimizer, inference.model_copy(update={"shares": shares}), mu, facts)
    predictable = (
        facts.dimension <= MOST_COEFFICIENTS
        and facts.curvature_bound is not None
        and not isinstance(model.weights, Clip)
        and optimizer.offers_intervals
    )
    if asked == "optimised" and not predictable:
        raise Invalid(
            f"Widths are predicted for models of up to {MOST_COEFFICIENTS} coefficients.",
            FieldError("/inference/shares", "leave it out, give equal, or give numbers"),
        )
    steps_open = isinstance(optimizer, NoisyGradientDescent) and optimizer.steps is None
    if not predictable or not (steps_open or asked == "optimised"):
        return complete(optimizer, inference, mu, facts)
    outlook = replace(make_outlook(design, model, assumed), patterns=PATTERNS)
    if isinstance(optimizer, NoisyGradientDescent) and steps_open:
        cautious = make_outlook(design, model, assumed, filled=FILLED_PART)
        optimizer = with_best_steps(optimizer, inference, mu, facts, (outlook, cautious))
    if asked == "optimised":
        return narrowest(optimizer, inference, mu, facts, outlook)
    return complete(optimizer, inference, mu, facts)


def with_best_steps(
    optimizer: NoisyGradientDescent, inference: Inference, mu: float, facts: Facts, outlooks: tuple[Outlook, Outlook]
) -> NoisyGradientDescent:
    """Return gradient descent with the best number of steps for the second outlook among those good for the first."""
    judged = demerit if inference.intervals else demerit_of_estimate
    coarse = [replace(outlook, patterns=COARSE_PATTERNS) for outlook in outlooks]

    def predicted(steps: int) -> tuple[float, float]:
        tried = complete(optimizer.model_copy(update={"steps": steps}), inference, mu, facts)
        first, second = (judged(outlook, facts, tried.optimizer, tried.inference) for outlook in coarse)
        return first, second

    usual = complete(optimizer, inference, mu, facts).optimizer.steps
    assert usual is not None, "planned"
    candidates, steps = {usual}, float(FEWEST_STEPS)
    while steps <= MOST_STEPS:
        candidates.add(ceil(steps))
        steps *= STRIDE
    found = {steps: predicted(steps) for steps in candidates}
    # The usual number is always among them, hence min has a candidate.
    good = [steps for steps in sorted(candidates) if found[steps][0] <= found[usual][0]]
    return optimizer.model_copy(update={"steps": min(good, key=lambda steps: sum(found[steps]))})


def narrowest(optimizer: AnySpec, inference: Inference, mu: float, facts: Facts, outlook: Outlook) -> Completed:
    """Return what the shares with the narrowest predicted intervals make, beginning at the planned and at equal ones.

    Open shares within a method are planned in the first case and equal in the second.
    """

    def tried(asked: AnySpec, shares: Shares) -> Completed:
        return complete(asked, inference.model_copy(update={"shares": shares}), mu, facts)

    def predicted(asked: AnySpec, shares: Shares) -> float:
        made = tried(asked, shares)
        return demerit(outlook, facts, made.optimizer, made.inference)

    beginnings = ((optimizer, planned_shares(optimizer, mu, facts)), equal_shares(optimizer, facts, mu))
    found = [(*best_shares(partial(predicted, asked), first), asked) for asked, first in beginnings]
    _, shares, asked = min(found, key=lambda one: one[0])
    return tried(asked, shares)
