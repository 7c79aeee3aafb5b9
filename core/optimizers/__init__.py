"""The algorithms, as their papers tell them, asking the oracle and nobody else."""

from dataclasses import dataclass
from typing import assert_never

from torch import Tensor

from core.catalogue.clipped.certified import CertifiedClippedSgd
from core.catalogue.clipped.practical import ClippedSgd
from core.catalogue.describe import Describe
from core.catalogue.inference_settings import Inference
from core.catalogue.kl.adaptive_gd import AdaptiveGradientDescent
from core.catalogue.kl.proximal_point import ProximalPoint
from core.catalogue.kl.spider import KlSpider
from core.catalogue.losses import Multinomial
from core.catalogue.methods import AnySettings
from core.catalogue.noisy_gd import NoisyGradientDescent
from core.catalogue.noisy_newton import NoisyNewton
from core.catalogue.second_order.certify import Certify
from core.catalogue.second_order.gauss import GaussPsgd
from core.catalogue.second_order.perturbed import PerturbedSpider
from core.catalogue.second_order.selecting import SelectModel
from core.catalogue.sufficient_statistics import SufficientStatistics
from core.catalogue.whitened_newton import WhitenedNewton
from core.inference.estimate import Estimate, Sandwich
from core.inference.looks import Columns
from core.inference.sandwich import infer
from core.optimizers import (
    adaptive_gd,
    certified_clipped_sgd,
    certify,
    clipped_sgd,
    gauss_psgd,
    kl_spider,
    noisy_gd,
    noisy_newton,
    perturbed_spider,
    proximal_point,
    select_model,
    sufficient_statistics,
    whitened_classes,
    whitened_newton,
)
from core.oracle import Oracle, Release, Status


@dataclass(frozen=True)
class Fitted:
    """An estimate with its covariance, None where a job asks for no intervals."""

    estimate: Estimate
    sandwich: Sandwich | None


def iterate(  # noqa: C901, PLR0912 - a case for each method
    settings: AnySettings, oracle: Oracle, points: Tensor | None = None, looked: Columns | None = None
) -> tuple[Estimate, Status]:
    """Run the method that these filled settings name and leave the oracle open.

    Args:
        settings: the method's, nothing open.
        oracle: the only way to the records.
        points: released before, shape (K, p), float64, encoded units; None for methods that are about none.
        looked: where columns lie, of a description that the job names; None: it names none.

    Raises:
        Diverged: the last step left the public radius; decided from noised values only.
    """
    match settings:
        case NoisyGradientDescent():
            ended = noisy_gd.iterate(settings, oracle)
        case NoisyNewton():
            ended = noisy_newton.iterate(settings, oracle)
        case SufficientStatistics():
            ended = sufficient_statistics.iterate(settings, oracle)
        case KlSpider():
            ended = kl_spider.iterate(settings, oracle)
        case ProximalPoint():
            ended = proximal_point.iterate(settings, oracle)
        case AdaptiveGradientDescent():
            ended = adaptive_gd.iterate(settings, oracle)
        case ClippedSgd():
            ended = clipped_sgd.iterate(settings, oracle)
        case CertifiedClippedSgd():
            ended = certified_clipped_sgd.iterate(settings, oracle)
        case GaussPsgd():
            ended = gauss_psgd.iterate(settings, oracle)
        case PerturbedSpider():
            ended = perturbed_spider.iterate(settings, oracle)
        case Certify():
            assert points is not None, "a job of this kind is about a model"
            ended = certify.iterate(settings, oracle, points)
        case SelectModel():
            assert points is not None, "a job of this kind is about models"
            ended = select_model.iterate(settings, oracle, points)
        case WhitenedNewton():
            several = isinstance(settings.loss, Multinomial)
            ended = (whitened_classes if several else whitened_newton).iterate(settings, oracle, looked)
        case Describe():
            raise AssertionError("a description estimates nothing; see `core.optimizers.describe`")
        case _:
            assert_never(settings)
    return ended


def fit(settings: AnySettings, oracle: Oracle, points: Tensor | None = None) -> Release[Estimate]:
    """Run a method and close the oracle; arguments as `iterate`.

    Raises:
        Diverged: as `iterate`.
    """
    estimate, status = iterate(settings, oracle, points)
    return oracle.release(estimate, status)


def fit_and_infer(
    settings: AnySettings,
    inference: Inference,
    oracle: Oracle,
    shifts: Tensor | None = None,
    points: Tensor | None = None,
    looked: Columns | None = None,
) -> Release[Fitted]:
    """Run a method, ask for the two matrices of its intervals where wanted, and close the oracle.

    Args:
        settings: the method's, nothing open.
        inference: what intervals are asked for, nothing open.
        oracle: the only way to the records.
        shifts: directions that move many coefficients together; see `infer`.
        points: of the released models that the job is about, shape (K, p).
        looked: where columns lie, of a description that the job names.

    Raises:
        Diverged: as `iterate`; nothing is asked for the intervals then.
    """
    estimate, status = iterate(settings, oracle, points, looked)
    if settings.has_covariance:
        sandwich = estimate.sandwich if inference.intervals else None
    else:
        sandwich = infer(inference, estimate, oracle, shifts) if inference.intervals else None
    return oracle.release(Fitted(estimate, sandwich), status)
