"""Per-record losses of a linear predictor, and what weighs them; their public constants are in the catalogue.

A record's loss is w(x) * value(margin, y) with margin = x.theta, so that its gradient is score * w * x and its Hessian
curvature * w * x x^T. Everything broadcasts, so a margin of shape (n,) or (R, n) needs no other code.

Source: Avella-Medina, Bradshaw and Loh (2023), loss (7) with the signs of its printed gradient, section 5, and
appendix H for linear and cubic Mallows weights.
"""

from math import inf, log
from typing import Protocol, assert_never

import torch
from torch import Tensor

from core.data.limits import LEAST_NUMBER
from core.losses.losses import (
    Clip,
    Huber,
    LogCosh,
    Logistic,
    Loss,
    Mallows,
    Multinomial,
    OstrovskiiBach,
    Poisson,
    PseudoHuber,
    Schweppe,
    SmoothedHuber,
    Squared,
    Weights,
)
from core.losses.nonconvex import Brier, Cauchy, GemanMcClure, RobustPhase, SineLink, SmoothPhase
from core.losses.nonconvex_torch import BrierRecords, RobustPhaseRecords, SineLinkRecords, SmoothPhaseRecords
from core.losses.robust_torch import (
    CauchyRecords,
    GemanMcClureRecords,
    HuberRecords,
    LogCoshRecords,
    OstrovskiiBachRecords,
    PseudoHuberRecords,
    SmoothedHuberRecords,
)


class PerRecord(Protocol):
    """A loss of one record, before its weight; tensors are float64 and broadcast against one another."""

    def valid(self, target: Tensor) -> Tensor:
        """Say which targets this loss is defined for; other records count as null."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the derivative in the margin; its size never passes the public bound, in floats too."""

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the second derivative in the margin, never negative where the loss is convex; it may ignore kinks."""


class LogisticRecords:
    """log(1 + exp(margin)) - target * margin, target in {0, 1}; |score| <= 1 and curvature <= 1/4."""

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is 0 or 1."""
        return (target == 0) | (target == 1)

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the loss; softplus keeps it finite for every finite margin."""
        return torch.logaddexp(margin, margin.new_zeros(())) - target * margin

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return expit(margin) - target."""
        return torch.sigmoid(margin).sub_(target)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002 - the logistic one needs no target
        """Return expit(margin) * expit(-margin): no cancellation for large margins."""
        return torch.sigmoid(margin).mul_(torch.sigmoid(-margin))


class PoissonRecords:
    """F(margin) - target * margin, F' = min(exp, cap), with the residual F' - target cut to [-c, c]; target >= 0.

    |score| <= min(c, cap) and curvature <= cap.

    Args:
        cap: the largest mean; larger targets are cut to it.
        c: the largest residual; infinite for none.
    """

    def __init__(self, cap: float, c: float) -> None:
        self.cap = cap
        self.c = c

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is a finite number of at least 0."""
        return target.isfinite() & (target >= 0)

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the loss: that where the residual is cut first, and c for every unit of the margin beyond."""
        counts = target.clamp(max=self.cap)
        # The margins where the residual is -c and c; beyond the cap it is that at the cap, which may be less than c.
        lowest = (counts - self.c).clamp_(min=0).log_()
        highest = torch.where(counts + self.c < self.cap, (counts + self.c).log_(), inf)
        within = torch.minimum(torch.maximum(margin, lowest), highest)
        bent = within.clamp(max=log(self.cap))
        values = torch.exp(bent) - counts * bent + (self.cap - counts) * (within - bent)
        # Without a cut the distance is 0, and 0 times infinity is nan.
        return values if self.c == inf else values.add_((margin - within).abs_(), alpha=self.c)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the cut residual."""
        return torch.exp(margin).clamp_(max=self.cap).sub_(target.clamp(max=self.cap)).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return exp(margin) where neither the mean nor the residual is cut."""
        mean = torch.exp(margin)
        uncut = (mean < self.cap) & ((mean - target.clamp(max=self.cap)).abs_() < self.c)
        return torch.where(uncut, mean, 0.0)


class SquaredRecords:
    """(target - margin)^2 / 2; the score has no bound, so gradients are clipped, and the curvature is 1."""

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is finite."""
        return target.isfinite()

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return half the square of the residual."""
        return (margin - target).square_().div_(2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return margin - target."""
        return margin - target

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 1."""
        # The sum has the shape that both broadcast to.
        return torch.ones_like(margin + target)


def per_record(loss: Loss) -> PerRecord:  # noqa: PLR0911 - one line for each loss
    """Return the per-record code of a loss of one margin at a known scale; others have problems of their own.

    Raises:
        AssertionError: the loss is of another kind, or a figure is still open; planning fills it before a job is
            stored.
    """
    match loss:
        case Logistic():
            return LogisticRecords()
        case Brier():
            return BrierRecords()
        case Poisson(cap=cap, c=c):
            assert cap is not None, "the planner fills the cap"
            return PoissonRecords(cap, inf if c is None else c)
        case Squared():
            return SquaredRecords()
        case SineLink(amplitude=amplitude):
            return SineLinkRecords(amplitude)
        case SmoothPhase():
            return SmoothPhaseRecords(loss.known_cap)
        case RobustPhase():
            return RobustPhaseRecords(loss.known_cap)
        case Multinomial() | Huber(joint=True):
            raise AssertionError("losses of several margins or of an unknown scale have problems of their own")
        case _:
            return _robust(loss)


def _robust(loss: Huber | SmoothedHuber | LogCosh | PseudoHuber | OstrovskiiBach | GemanMcClure | Cauchy) -> PerRecord:  # noqa: PLR0911 - as above
    """Return the per-record code of a robust loss."""
    scale = loss.known_scale
    match loss:
        case Huber(c=c):
            return HuberRecords(c, scale)
        case SmoothedHuber(c=c, h=h):
            return SmoothedHuberRecords(c, h, scale)
        case LogCosh(c=c):
            return LogCoshRecords(c, scale)
        case PseudoHuber(c=c):
            return PseudoHuberRecords(c, scale)
        case OstrovskiiBach(c=c):
            return OstrovskiiBachRecords(c, scale)
        case GemanMcClure(c=c):
            return GemanMcClureRecords(c, scale)
        case Cauchy(c=c):
            return CauchyRecords(c, scale)
    assert_never(loss)


def ordinary(numbers: Tensor) -> Tensor:
    """Return numbers with zero in place of those whose products may be denormal; see `LEAST_NUMBER`."""
    return torch.where(numbers.abs() >= LEAST_NUMBER, numbers, 0.0)


def record_weights(norms: Tensor, weights: Weights) -> Tensor:
    """Return what each record's loss is multiplied by, same shape as the norms; Schweppe's are inside the loss.

    Mallows weights are powers of a quotient, which overflow for no norm. Up to a few roundings, far inside the
    lattice's margin, w |x| <= t holds, and w |x|^2 <= t^2 from the second power on. A cube may be too small for an
    ordinary float; it then errs by less than 2^-1074, negligible beside t^2/|x|^2. A norm of zero has weight 1 and
    nothing to weigh.
    """
    assert weights.bound is not None, "plan first"
    match weights:
        case Mallows(power=power):
            # A norm of zero gives infinity, which the clamp makes a weight of 1.
            return (weights.bound / norms).clamp_(max=1.0).pow_(power)
        case Clip() | Schweppe():
            return torch.ones_like(norms)
    assert_never(weights)


def counts_once(sampling: Tensor) -> Tensor:
    """Say which records count more than zero times and at most once; others are excluded rows."""
    return (sampling > 0) & (sampling <= 1)
