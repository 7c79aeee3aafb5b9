"""The registry: one closed union of every method's settings."""

from functools import cache
from typing import Annotated

from pydantic import Field, TypeAdapter

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
