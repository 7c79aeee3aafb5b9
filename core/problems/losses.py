"""Per-record losses of a linear predictor, with Mallows weights; their public constants are in the catalogue.

A record's loss is w(x) * value(margin, y) with margin = x.theta, so that its gradient is score * w * x and its Hessian
curvature * w * x x^T. Everything broadcasts, so a margin of shape (n,) or (R, n) needs no other code.

Source: Avella-Medina, Bradshaw and Loh (2023), losses (6) and (7) and section 5; W2 is their squared Mallows weight.
"""

from typing import Protocol, assert_never

import torch
from torch import Tensor

from core.catalogue.losses import Clip, Huber, Logistic, Loss, Mallows, Schweppe, Weights


class PerRecord(Protocol):
    """A loss of one record, before its weight; tensors are float64 and broadcast against one another."""

    def valid(self, target: Tensor) -> Tensor:
        """Say which targets this loss is defined for; other records count as null."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the derivative in the margin; its size never passes the public bound, in floats too."""

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the second derivative in the margin, never negative; it may ignore kinks."""


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


class HuberRecords:
    """scale * rho_c((target - margin) / scale); |score| <= c and curvature <= 1/scale.

    Args:
        c: where the loss turns linear, in units of the scale.
        scale: the known residual scale, in the units of the target given here.
    """

    def __init__(self, c: float, scale: float) -> None:
        self.c = c
        self.scale = scale

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is finite."""
        return target.isfinite()

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return scale * rho_c(r), rho_c(r) = r^2/2 up to c and c|r| - c^2/2 beyond."""
        size = ((target - margin) / self.scale).abs()
        return self.scale * torch.where(size <= self.c, size * size / 2, self.c * size - self.c**2 / 2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return -psi_c(r): the derivative carries no 1/scale."""
        return (margin - target).div_(self.scale).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 1{|r| < c} / scale: the second derivative does carry it."""
        residual = (margin - target).div_(self.scale)
        return (residual.abs_() < self.c).to(margin.dtype).div_(self.scale)


def per_record(loss: Loss) -> PerRecord:
    """Return the per-record code of a loss.

    Raises:
        AssertionError: a Huber scale is still open; planning fills it before a job is stored.
    """
    match loss:
        case Logistic():
            return LogisticRecords()
        case Huber(c=c, scale=scale):
            assert scale is not None, "the planner fills the residual scale"
            return HuberRecords(c, scale)
        case _:
            raise AssertionError(f"no code for {loss.kind} yet")


def record_weights(norms: Tensor, weights: Weights) -> Tensor:
    """Return what each record's loss is multiplied by, same shape as the norms.

    Mallows weights are powers of a quotient, which overflows for no norm: w |x| <= t and, from the second power on,
    w |x|^2 <= t^2 hold up to a few roundings, far inside the margin that the lattice charges. A norm of zero has weight
    1 and nothing to weigh.
    """
    assert weights.bound is not None, "plan first"
    match weights:
        case Mallows(power=power):
            return (weights.bound / norms).clamp_(max=1.0).pow_(power)
        case Clip() | Schweppe():
            return torch.ones_like(norms)
    assert_never(weights)
