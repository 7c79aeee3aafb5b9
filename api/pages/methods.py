"""Methods and models: the choices of a job, each with its assumptions."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response

from api.cost import ANYBODY, Cost
from api.pages.rendering import render
from api.pages.routes import PageRoute, page
from api.pages.words import KINDS
from api.routes import catalogue as api
from core.losses.registry import kind_of, losses_of
from core.methods.base import Card
from core.methods.registry import METHODS

router = APIRouter(route_class=PageRoute)
CHECKS: Final[Mapping[str, tuple[str, str, str]]] = {
    "static": ("holds by its plan", "tick", ""),
    "runtime": ("checked as it runs", "now", ""),
    "declared": ("yours to know", "eye", "warn"),
}
"""Words, icon and kind of badge of each way in which an assumption is seen to."""


@dataclass(frozen=True)
class Kind:
    """A kind of model as the table writes it."""

    kind: str
    title: str
    text: str
    method: Card | None
    losses: tuple[str, ...]


@page(router, "/methods", api=api.list_optimizers, cost=Cost(ANYBODY))
def show_methods(request: Request) -> Response:
    """Show kinds of models with their default methods, and every method with what it assumes."""
    methods = sorted(METHODS, key=lambda method: not method.card().default_for)
    cards = [method.card() for method in methods]
    intervals = [method.card() for method in methods if method.offers_intervals]
    groups = (
        ("With private intervals", intervals),
        ("Without intervals", [one for one in cards if one not in intervals]),
    )
    facts = {"kinds": _kinds(cards), "methods": groups, "checks": CHECKS}
    return render(request, "methods.html", facts, at="methods")


def _kinds(cards: list[Card]) -> list[Kind]:
    return [
        Kind(
            kind=kind,
            title=KINDS[kind],
            text=(inspect.getdoc(model) or "").partition("\n")[0],
            method=next((card for card in cards if kind in card.default_for), None),
            losses=tuple(map(kind_of, losses_of(kind))),
        )
        for kind, model in api.OFFERED.items()
    ]
