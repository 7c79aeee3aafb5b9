"""What the planner chooses by predicted widths: the division of mu^2, and how many steps gradient descent takes.

Too few steps leave the start unforgotten, each step more makes all of them noisier: the error as a function of their
number is U-shaped. As columns may fill less of their declared ranges than the reference design's do, and directions be
slower to learn, the reference of this choice has them fill FILLED_PART of it, unless deviations are assumed.
"""

from math import ceil
from typing import Final

from core.catalogue.assumed import Assumed
from core.catalogue.completion import Completed, complete, planned_shares
from core.catalogue.design import Design
from core.catalogue.jobs import Inference, Shares
from core.catalogue.losses import Clip
from core.catalogue.methods import AnySettings
from core.catalogue.models import RegressionModel
from core.catalogue.noisy_gd import MOST_STEPS, NoisyGradientDescent
from core.catalogue.prediction import (
    MOST_COEFFICIENTS,
    Outlook,
    make_outlook,
    mean_log_error,
    mean_log_width,
)
from core.catalogue.shares import best_shares, equal_shares
from core.catalogue.sufficient_statistics import SufficientStatistics
from core.errors import FieldError, Invalid
from core.privacy.facts import Facts

FILLED_PART: Final = 0.5
FEWEST_STEPS: Final = 10
STRIDE: Final = 1.4
"""From one number of steps that is compared to the next."""
WORTHWHILE: Final = 0.01
"""A change of steps must promise intervals narrower by this part."""


def choose(
    optimizer: AnySettings,
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
    inference = inference.model_copy(update={"shares": None if isinstance(asked, str) else asked})
    if asked == "equal":
        optimizer, shares = equal_shares(optimizer, facts, mu)
        return complete(optimizer, inference.model_copy(update={"shares": shares}), mu, facts)
    predictable = (
        facts.dimension <= MOST_COEFFICIENTS
        and not isinstance(model.weights, Clip)
        and not isinstance(optimizer, SufficientStatistics)
    )
    if asked == "optimised" and not predictable:
        raise Invalid(
            f"Widths are predicted for models of up to {MOST_COEFFICIENTS} coefficients.",
            FieldError("/inference/shares", "leave it out, give equal, or give numbers"),
        )
    if isinstance(optimizer, NoisyGradientDescent) and optimizer.steps is None and predictable:
        cautious = make_outlook(design, model, assumed, filled=FILLED_PART)
        optimizer = _with_steps(optimizer, inference, mu, facts, cautious)
    if asked == "optimised":
        outlook = make_outlook(design, model, assumed)
        inference = _with_best_shares(optimizer, inference, mu, facts, outlook)
    return complete(optimizer, inference, mu, facts)


def _with_steps(
    optimizer: NoisyGradientDescent, inference: Inference, mu: float, facts: Facts, outlook: Outlook
) -> NoisyGradientDescent:
    """Return gradient descent with the number of steps that predicts the narrowest intervals."""

    def predicted(steps: int) -> float:
        tried = complete(optimizer.model_copy(update={"steps": steps}), inference, mu, facts)
        if inference.intervals:
            return mean_log_width(outlook, facts, tried.optimizer, tried.inference)
        assert inference.plausible_radius is not None, "filled before"
        return mean_log_error(outlook, facts, tried.optimizer, inference.plausible_radius)

    usual = complete(optimizer, inference, mu, facts).optimizer.steps
    assert usual is not None, "planned"
    candidates, steps = [], float(FEWEST_STEPS)
    while steps <= MOST_STEPS:
        candidates.append(ceil(steps))
        steps *= STRIDE
    best = min((predicted(steps), steps) for steps in candidates)
    chosen = best[1] if best[0] < predicted(usual) - WORTHWHILE else usual
    return optimizer.model_copy(update={"steps": chosen})


def _with_best_shares(
    optimizer: AnySettings, inference: Inference, mu: float, facts: Facts, outlook: Outlook
) -> Inference:
    """Return the inference with the shares that predict the narrowest intervals."""

    def predicted(shares: Shares) -> float:
        tried = complete(optimizer, inference.model_copy(update={"shares": shares}), mu, facts)
        return mean_log_width(outlook, facts, tried.optimizer, tried.inference)

    return inference.model_copy(update={"shares": best_shares(predicted, planned_shares(optimizer, mu, facts))})
