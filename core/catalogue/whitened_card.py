"""Whitened Newton's entry in the catalogue."""

from typing import Final

from core.catalogue.method import Assumption, Card
from core.privacy.facts import Adjacency

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
    returns="coefficients with intervals; what fails a check is flagged, and its interval withheld",
    default_for=("logistic", "multinomial", "linear", "poisson"),
)
