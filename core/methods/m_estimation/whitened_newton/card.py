"""Whitened Newton's entry in the catalogue, and how its bound is worded."""

from math import sqrt
from typing import Final

from core.losses.assumption import Assumption
from core.methods.base import Card
from core.privacy.arithmetic import CONFIDENCE
from core.privacy.facts import Adjacency
from farthing.schemas.estimates import Bound

CARD: Final = Card(
    kind="whitened_newton",
    title="Whitened Newton",
    paper="ours; steps and sandwich after Avella-Medina, Bradshaw, Loh (2023)",
    native="mu-GDP",
    adjacency=tuple(Adjacency),
    assumptions=(
        Assumption(text="each unit's gradient is bounded (the weights see to it)", checked="static"),
        Assumption(text="the model is logistic, multinomial, linear or Poisson, with an intercept", checked="static"),
        Assumption(text="columns vary within their declared ranges as the look found", checked="runtime"),
        Assumption(text="the last steps converged, and directions are identified", checked="runtime"),
    ),
    returns="coefficients with intervals; a coefficient that fails a check is flagged, and its interval withheld",
    default_for=("logistic", "multinomial", "linear", "poisson"),
)


def first_order(value: float, dimension: int) -> Bound:
    """Return the bound on what noise moves the estimate by, in deviations of the linear predictor.

    Args:
        value: of the bound.
        dimension: number of coefficients.
    """
    trivial = 2 * sqrt(dimension)
    return Bound(
        quantity="distance of the private from the weighted non-private estimate, to first order, in deviations of "
        "the linear predictor (of a linear model in residual scales)",
        value=value,
        confidence=CONFIDENCE,
        trivial=trivial,
        vacuous=value >= trivial,
        source="first-order expansion of the last two steps at a re-encoded design; no theorem is claimed",
    )
