"""Per-record losses of the square of a margin."""

from torch import Tensor

from core.losses.per_record import PerRecord
from core.losses.phase import AbstractPhase


class _Phase(PerRecord[AbstractPhase]):
    """Losses of (margin^2, target), target >= 0 and cut to its cap."""

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is a finite number of at least 0."""
        return target.isfinite() & (target >= 0)

    def _residual(self, margin: Tensor, target: Tensor) -> Tensor:
        return margin * margin - target.clamp(max=self.loss.known_cap)


class SmoothPhaseRecords(_Phase):
    """(margin^2 - target)^2/4; the score has no bound, and the curvature is at least -cap."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return a quarter of the square of the residual."""
        return self._residual(margin, target).square_().div_(4)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return margin (margin^2 - target)."""
        return self._residual(margin, target).mul_(margin)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 3 margin^2 - target."""
        return self._residual(margin, target).add_(2 * margin * margin)


class RobustPhaseRecords(_Phase):
    """|margin^2 - target|; the score has no bound and a kink where the loss is zero."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the size of the residual."""
        return self._residual(margin, target).abs_()

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 2 margin, with the sign of the residual; zero, one of its subgradients, at the kink."""
        return self._residual(margin, target).sign_().mul_(2 * margin)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return 2 with the sign of the residual."""
        return self._residual(margin, target).sign_().mul_(2)
