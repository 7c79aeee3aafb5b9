"""Per-record squared losses, by a link that is linear or not.

Where a margin is too large for a float's square, scores are infinite, and count as zero.
"""

import torch
from torch import Tensor, cos, sin

from core.losses.per_record import PerRecord
from core.losses.squares import SineLink, Squared


class SquaredRecords(PerRecord[Squared]):
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


class SineLinkRecords(PerRecord[SineLink]):
    """(s(margin) - target)^2/2, s(m) = m + a sin m; the score has no bound, so gradients are clipped."""

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is finite."""
        return target.isfinite()

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return half the square of the residual."""
        return self._residual(margin, target).square_().div_(2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the residual times the link's slope."""
        return self._residual(margin, target).mul_(1 + self.loss.amplitude * cos(margin))

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return s'^2 + (s - target) s''."""
        bent = self._residual(margin, target).mul_(-self.loss.amplitude * sin(margin))
        return (1 + self.loss.amplitude * cos(margin)).square_().add_(bent)

    def _residual(self, margin: Tensor, target: Tensor) -> Tensor:
        return margin + self.loss.amplitude * sin(margin) - target
