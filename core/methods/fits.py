"""The algorithms, as their papers tell them, asking the oracle and nobody else."""

from dataclasses import dataclass
from typing import assert_never

from torch import Tensor

from core.inference.estimate import Estimate, Sandwich
from core.inference.looks import Columns
from core.inference.sandwich import infer
from core.inference.settings import Inference
from core.losses.losses import Multinomial
from core.methods.clipped.clipped_sgd import fit as clipped_sgd
from core.methods.clipped.clipped_sgd.spec import ClippedSgd
from core.methods.clipped.one_pass import fit as certified_clipped_sgd
from core.methods.clipped.one_pass.spec import CertifiedClippedSgd
from core.methods.describe.spec import Describe
from core.methods.kl.adaptive_gd import fit as adaptive_gd
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.proximal_point import fit as proximal_point
from core.methods.kl.proximal_point.spec import ProximalPoint
from core.methods.kl.spider import fit as kl_spider
from core.methods.kl.spider.spec import KlSpider
from core.methods.m_estimation.noisy_gd import fit as noisy_gd
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.methods.m_estimation.noisy_newton import fit as noisy_newton
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.m_estimation.sufficient_statistics import fit as sufficient_statistics
from core.methods.m_estimation.sufficient_statistics.spec import SufficientStatistics
from core.methods.m_estimation.whitened_newton import fit as whitened_newton
from core.methods.m_estimation.whitened_newton import fit_classes as whitened_classes
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewton
from core.methods.registry import AnySettings
from core.methods.second_order.certify import fit as certify
from core.methods.second_order.certify.spec import Certify
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.methods.second_order.perturbed_spider import fit as perturbed_spider
from core.methods.second_order.perturbed_spider.spec import PerturbedSpider
from core.methods.selection.select_model import fit as select_model
from core.methods.selection.select_model.spec import SelectModel
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
            raise AssertionError("a description estimates nothing; see `core.methods.describe.fit`")
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
