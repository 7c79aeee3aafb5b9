"""The registry: one closed union of every method's settings. A new method adds its line to the union."""

from collections.abc import Iterable
from functools import cache
from pkgutil import walk_packages
from typing import Annotated, get_args

from pydantic import Field, TypeAdapter

import core.methods
from core.inference.wording import CITED
from core.methods.base import AbstractSettings
from core.methods.clipped.clipped_sgd.spec import ClippedSgd
from core.methods.clipped.one_pass.spec import CertifiedClippedSgd
from core.methods.describe.spec import Describe
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.proximal_point.spec import ProximalPoint
from core.methods.kl.spider.spec import KlSpider
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.m_estimation.sufficient_statistics.spec import SufficientStatistics
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewton
from core.methods.second_order.certify.spec import Certify
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.methods.second_order.perturbed_spider.spec import PerturbedSpider
from core.methods.selection.select_model.spec import SelectModel
from farthing.schemas.jobs import MethodSource

AnySettings = Annotated[
    NoisyGradientDescent
    | NoisyNewton
    | SufficientStatistics
    | KlSpider
    | ProximalPoint
    | AdaptiveGradientDescent
    | ClippedSgd
    | CertifiedClippedSgd
    | GaussPsgd
    | PerturbedSpider
    | Certify
    | SelectModel
    | WhitenedNewton
    | Describe,
    Field(discriminator="kind"),
]
SETTINGS: TypeAdapter[AnySettings] = TypeAdapter(AnySettings)
WithIntervals = NoisyGradientDescent | NoisyNewton
"""The methods that offer intervals, for which widths are predicted."""
# Annotated's first argument is the union.
METHODS: tuple[type[AbstractSettings], ...] = get_args(get_args(AnySettings)[0])
"""In the order of the union, which is the order in which they are listed."""


def check_registered(methods: Iterable[type[AbstractSettings]]) -> None:
    """Refuse a method without one of its parts, and a package of a method that the union leaves out.

    Raises:
        TypeError: with the method's name, and what it lacks.
    """
    found = list(methods)
    for method in found:
        if method.__abstractmethods__:
            raise TypeError(f"{method.__name__} lacks {', '.join(sorted(method.__abstractmethods__))}")
        if method.card().kind != method.model_fields["kind"].default:
            raise TypeError(f"{method.__name__}: its card and its settings name different kinds")
        if method.estimates and method.card().kind not in CITED:
            raise TypeError(f"{method.card().kind}: core.inference.wording cites nobody for it, nor says it is our own")
    specs = {one.name for one in walk_packages(core.methods.__path__, "core.methods.") if one.name.endswith(".spec")}
    missing = specs - {method.__module__ for method in found}
    if missing:
        raise TypeError(f"{', '.join(sorted(missing))}: settings that AnySettings leaves out")


# At import, before any job could name a method that lacks a part.
check_registered(METHODS)


@cache
def _defaults() -> dict[str, str]:
    return {model: card.kind for card in (method.card() for method in METHODS) for model in card.default_for}


def default_method(model: object) -> str | None:
    """Return the method that fits a kind of model where a job names none; None: one has to be named."""
    return _defaults().get(model) if isinstance(model, str) else None


@cache
def source_of(kind: str) -> MethodSource:
    """Return a method's name and source, by its kind."""
    card = next(card for card in (method.card() for method in METHODS) if card.kind == kind)
    return MethodSource(kind=card.kind, title=card.title, source=card.paper)
