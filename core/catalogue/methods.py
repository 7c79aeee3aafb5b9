"""The registry: one closed union of every method's settings."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from core.catalogue.clipped.certified import CertifiedClippedSgd
from core.catalogue.clipped.practical import ClippedSgd
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
    | WhitenedNewton,
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
)
