"""The registry: one closed union of every method's settings."""

from functools import cache
from typing import Annotated

from pydantic import Field, TypeAdapter

from core.catalogue.clipped.certified import CertifiedClippedSgd
from core.catalogue.clipped.practical import ClippedSgd
from core.catalogue.describe import Describe
from core.catalogue.kl.adaptive_gd import AdaptiveGradientDescent
from core.catalogue.kl.proximal_point import ProximalPoint
from core.catalogue.kl.spider import KlSpider
from core.catalogue.noisy_gd import NoisyGradientDescent
from core.catalogue.noisy_newton import NoisyNewton
from core.catalogue.second_order.certify import Certify
from core.catalogue.second_order.gauss import GaussPsgd
from core.catalogue.second_order.perturbed import PerturbedSpider
from core.catalogue.second_order.selecting import SelectModel
from core.catalogue.sufficient_statistics import SufficientStatistics
from core.catalogue.whitened_newton import WhitenedNewton
from core.privacy.facts import Frozen

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
METHODS = (
    NoisyGradientDescent,
    NoisyNewton,
    SufficientStatistics,
    KlSpider,
    ProximalPoint,
    AdaptiveGradientDescent,
    ClippedSgd,
    CertifiedClippedSgd,
    GaussPsgd,
    PerturbedSpider,
    Certify,
    SelectModel,
    WhitenedNewton,
    Describe,
)


@cache
def _defaults() -> dict[str, str]:
    return {model: card.kind for card in (method.card() for method in METHODS) for model in card.default_for}


def default_method(model: object) -> str | None:
    """Return the method that fits a kind of model where a job names none; None: one has to be named."""
    return _defaults().get(model) if isinstance(model, str) else None


class MethodSource(Frozen):
    """Which method a job runs, and whose it is."""

    kind: str
    title: str
    source: str = Field(description="a paper's, or ours")


@cache
def source_of(kind: str) -> MethodSource:
    """Return a method's name and source, by its kind."""
    card = next(card for card in (method.card() for method in METHODS) if card.kind == kind)
    return MethodSource(kind=card.kind, title=card.title, source=card.paper)
