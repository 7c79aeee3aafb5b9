"""Choices of the planner by predicted widths: the division of mu^2, and the number of steps of gradient descent.

Too few steps leave the start unforgotten, each step more makes all of them noisier: the error as a function of their
number is U-shaped. Columns may fill less of their declared ranges than those of the reference design, and directions be
slower to learn. Of the numbers of steps that are as good for the reference as the usual one, it takes the best for
columns that fill FILLED_PART of their ranges. With assumed deviations both designs are one.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from core.base.errors import FieldError, Invalid
from core.inference.settings import Inference, Shares
from core.losses.weights import Clip
from core.methods.registry import AnyPlan, AnySpec
from core.models.assumed import Assumed
from core.models.design import Design
from core.models.kinds import RegressionModel
from core.models.outlook import Outlook, make_outlook
from core.planning.completion import Completed, complete
from core.planning.prediction import MOST_COEFFICIENTS
from core.planning.shares import best_shares, equal_shares
from core.privacy.facts import Facts

FILLED_PART: Final = 0.25
PATTERNS: Final = 24
"""Of noise, where shares are compared: fewer than for a prediction that is shown."""
COARSE_PATTERNS: Final = 3
"""Where alternatives are."""


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
    usual = complete(optimizer, inference, mu, facts)
    others = optimizer.alternatives(usual.optimizer) if predictable else ()
    if not predictable or not (others or asked == "optimised"):
        return usual
    outlook = replace(make_outlook(design, model, assumed), patterns=PATTERNS)
    if others:
        cautious = make_outlook(design, model, assumed, filled=FILLED_PART)
        optimizer = best_of(others, usual.optimizer, inference, mu, facts, (outlook, cautious))
    if asked == "optimised":
        return narrowest(optimizer, inference, mu, facts, outlook)
    return complete(optimizer, inference, mu, facts)


def best_of(
    asked: Sequence[AnySpec],
    usual: AnyPlan,
    inference: Inference,
    mu: float,
    facts: Facts,
    outlooks: tuple[Outlook, Outlook],
) -> AnySpec:
    """Return the settings with the best plan for the second outlook among those as good as the usual one for the first.

    Args:
        asked: to choose among; the plan of one of them is the usual one.
        usual: the plan without a choice.
        inference: as asked for.
        mu: the job's.
        facts: public.
        outlooks: of the reference design, and of columns that fill a part of their ranges.
    """
    coarse = [replace(outlook, patterns=COARSE_PATTERNS) for outlook in outlooks]

    def predicted(one: AnySpec) -> tuple[float, float]:
        tried = complete(one, inference, mu, facts)
        first, second = (tried.optimizer.demerit(outlook, facts, tried.inference) for outlook in coarse)
        return first, second

    found = [(predicted(one), one) for one in asked]
    least = next(figures[0] for figures, one in found if one.steps == usual.steps)
    good = [(figures, one) for figures, one in found if figures[0] <= least]
    return min(good, key=lambda tried: sum(tried[0]))[1]


def narrowest(optimizer: AnySpec, inference: Inference, mu: float, facts: Facts, outlook: Outlook) -> Completed:
    """Return what the shares with the narrowest predicted intervals make, beginning at the planned and at equal ones.

    Open shares within a method are planned in the first case and equal in the second.
    """

    def tried(asked: AnySpec, shares: Shares) -> Completed:
        return complete(asked, inference.model_copy(update={"shares": shares}), mu, facts)

    def predicted(asked: AnySpec, shares: Shares) -> float:
        made = tried(asked, shares)
        return made.optimizer.demerit(outlook, facts, made.inference)

    beginnings = ((optimizer, optimizer.planned_shares(facts, mu)), equal_shares(optimizer, facts, mu))
    found = [(*best_shares(partial(predicted, asked), first), asked) for asked, first in beginnings]
    _, shares, asked = min(found, key=lambda one: one[0])
    return tried(asked, shares)
