"""Per-record robust losses at a known scale: scale * rho(r), r = (target - margin)/scale; the last two not convex.

Gradients carry no 1/scale and Hessians do. Residuals too large for a float reach the limits of psi and rho'', so both
are numbers for every finite margin. Values are infinite only where the loss itself is beyond the largest float.

Source: Avella-Medina, Bradshaw and Loh (2023), loss (6), examples 1 and 2 and appendix C. The self-concordant losses
are those of Ostrovskii and Bach (2021), in an equal form without 0/0 at zero.
"""

from math import log, sqrt
from typing import TypeVar

import torch
from torch import Tensor

from core.losses.bases import AbstractRobust
from core.losses.per_record import PerRecord
from core.losses.robust import SmoothedHuber

FARTHEST = 2.0**500
"""A residual of more than so many c counts as one of so many: its square is still a float."""

FLAT = 2.0**110
"""One over its square is no curvature any more (`core.data.limits.LEAST_NUMBER`), and no denormal number either."""


R = TypeVar("R", bound=AbstractRobust)


class RobustRecords(PerRecord[R]):
    """Common base of these losses; c is in units of the scale, and the scale in those of the target given here."""

    def __init__(self, loss: R) -> None:
        super().__init__(loss)
        self.c = loss.c
        self.scale = loss.known_scale

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is finite."""
        return target.isfinite()

    def _argument(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return u = (margin - target)/(c scale), within what can be squared."""
        return (margin - target).div_(self.scale).div_(self.c).clamp_(-FARTHEST, FARTHEST)


class HuberRecords(RobustRecords[AbstractRobust]):
    """scale * rho_c((target - margin) / scale); |score| <= c and curvature <= 1/scale."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return scale * rho_c(r), rho_c(r) = r^2/2 up to c and c|r| - c^2/2 beyond."""
        size = ((target - margin) / self.scale).abs()
        # The square may be infinite, but only in the branch that is dropped.
        return self.scale * torch.where(size <= self.c, size * size / 2, self.c * size - self.c**2 / 2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return -psi_c(r): the derivative carries no 1/scale."""
        return (margin - target).div_(self.scale).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 1{|r| < c} / scale: the second derivative does carry it."""
        residual = (margin - target).div_(self.scale)
        return (residual.abs_() < self.c).to(margin.dtype).div_(self.scale)


class SmoothedHuberRecords(RobustRecords[SmoothedHuber]):
    """scale * rho_{c,h}(r), psi a quartic between c and c + h; |score| <= c + h/2 and curvature <= 1/scale."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return scale * rho(r), the three pieces added up: each grows only where the others have stopped."""
        size = (margin - target).div_(self.scale).abs_()
        s = self._within(size)
        square = s * s
        bent = square * (0.5 - square * (0.25 - 0.1 * s))
        values = size.clamp(max=self.c).square_().div_(2) + self.c * self.loss.h * s + self.loss.h**2 * bent
        return values.add_((size - self.c - self.loss.h).clamp_(min=0), alpha=self.c + self.loss.h / 2).mul_(self.scale)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return -psi(r), psi = c + h (s - s^3 + s^4/2) with s the part of the bend that is behind."""
        residual = (margin - target).div_(self.scale)
        s = self._within(residual.abs())
        bent = s * (1 - s * s * (1 - s / 2))
        most = self.c + self.loss.h / 2
        size = residual.abs().clamp_(max=self.c).add_(bent, alpha=self.loss.h).clamp_(max=most)
        return torch.copysign(size, residual)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return (1 - 3 s^2 + 2 s^3)/scale as (1 - s)^2 (1 + 2 s)/scale, which is never negative."""
        s = self._within((margin - target).div_(self.scale).abs_())
        return (1 - s).square_().mul_(1 + 2 * s).clamp_(max=1).div_(self.scale)

    def _within(self, size: Tensor) -> Tensor:
        """Return s, what part of the bend lies below a residual's size."""
        return (size - self.c).div_(self.loss.h).clamp_(0, 1)


class LogCoshRecords(RobustRecords[AbstractRobust]):
    """scale c^2 log cosh(u), u = r/c; |score| <= c and curvature <= 1/scale."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return |u| + log(1 + exp(-2 |u|)) - log 2, times scale c^2."""
        size = self._argument(margin, target).abs_()
        return torch.log1p(torch.exp(-2 * size)).add_(size).sub_(log(2)).mul_(self.scale * self.c**2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return c tanh(u)."""
        # Rounding must not pass the public bound, which the price rests on.
        return self._argument(margin, target).tanh_().mul_(self.c).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 1/cosh(u)^2 over the scale."""
        return (
            self._argument(margin, target)
            .cosh_()
            .clamp_(max=FLAT)
            .reciprocal_()
            .square_()
            .clamp_(max=1)
            .div_(self.scale)
        )


class PseudoHuberRecords(RobustRecords[AbstractRobust]):
    """scale c^2 (sqrt(1 + u^2) - 1), u = r/c; |score| <= c and curvature <= 1/scale."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return u^2/(1 + sqrt(1 + u^2)), times scale c^2: no cancellation at zero."""
        u = self._argument(margin, target)
        return (u * u).div_(self._root(u).add_(1)).mul_(self.scale * self.c**2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return c u/sqrt(1 + u^2)."""
        u = self._argument(margin, target)
        return u.div_(self._root(u)).mul_(self.c).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return (1 + u^2)^(-3/2) over the scale."""
        root = self._root(self._argument(margin, target))
        # The reciprocal first: the cube of a large root is no float.
        return root.reciprocal_().pow_(3).div_(self.scale)

    @staticmethod
    def _root(u: Tensor) -> Tensor:
        return (u * u).add_(1).sqrt_()


class OstrovskiiBachRecords(RobustRecords[AbstractRobust]):
    """scale c^2/2 [s - 1 + log(2/(1 + s))], s = sqrt(1 + 4 u^2), u = r/c; |score| <= c and curvature <= 1/scale."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return q - log(1 + q/2) with q = s - 1 = 4 u^2/(1 + s), times scale c^2/2: no cancellation at zero."""
        u = self._argument(margin, target)
        q = (4 * u * u).div_(self._root(u).add_(1))
        return q.sub_(torch.log1p(q / 2)).mul_(self.scale * self.c**2 / 2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 2 c u/(1 + s)."""
        u = self._argument(margin, target)
        return u.div_(self._root(u).add_(1)).mul_(2 * self.c).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 2/(s (1 + s)) over the scale."""
        root = self._root(self._argument(margin, target))
        return (2 / root).div_(1 + root).div_(self.scale)

    @staticmethod
    def _root(u: Tensor) -> Tensor:
        return (4 * u * u).add_(1).sqrt_()


class GemanMcClureRecords(RobustRecords[AbstractRobust]):
    """scale c^2/2 u^2/(1 + u^2), u = r/c; |score| <= 3 sqrt(3) c/16 and curvature between -1/4 and 1 over the scale."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return half scale c^2 times 1 - 1/(1 + u^2), as u^2/(1 + u^2): no cancellation at zero."""
        square = self._argument(margin, target).square_()
        return square.div_(square + 1).mul_(self.scale * self.c**2 / 2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return c u/(1 + u^2)^2; zero where the square of a square is no float."""
        u = self._argument(margin, target)
        most = 3 * sqrt(3) / 16 * self.c
        return u.div_((u * u).add_(1).square_()).mul_(self.c).clamp_(-most, most)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return (1 - 3 u^2)/(1 + u^2)^3 over the scale."""
        square = self._argument(margin, target).square_()
        return (1 - 3 * square).div_((1 + square).pow_(3)).div_(self.scale)


class CauchyRecords(RobustRecords[AbstractRobust]):
    """scale c^2/2 log(1 + u^2), u = r/c; |score| <= c/2 and curvature between -1/8 and 1 over the scale."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return log(1 + u^2) times half scale c^2."""
        return self._argument(margin, target).square_().log1p_().mul_(self.scale * self.c**2 / 2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return c u/(1 + u^2)."""
        u = self._argument(margin, target)
        return u.div_((u * u).add_(1)).mul_(self.c).clamp_(-self.c / 2, self.c / 2)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return (1 - u^2)/(1 + u^2)^2 over the scale."""
        square = self._argument(margin, target).square_()
        return (1 - square).div_((1 + square).square_()).div_(self.scale)
