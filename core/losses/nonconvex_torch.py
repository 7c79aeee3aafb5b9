"""Per-record losses that are not convex in the margin; their public constants are in the catalogue.

Their second derivatives may be negative, so the facts bound no Hessian of theirs and no oracle is asked for one; tests
and studies do. Where a margin is too large for a float's square, scores are infinite, and count as zero.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024) for the kinds of problems; Brier (1950) for the first loss.
"""

from torch import Tensor, cos, sigmoid, sin

BRIER_SCORE = 4 / 27


class BrierRecords:
    """(p - target)^2/2, p = expit(margin), target in {0, 1}; |score| <= 4/27."""

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is 0 or 1."""
        return (target == 0) | (target == 1)

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return half the square of the probability of the other value: no cancellation where p is close to 1."""
        return sigmoid(_away(margin, target)).square_().div_(2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return q^2 (1 - q), q the probability of the other value, towards that value."""
        away = _away(margin, target)
        # Rounding must not pass the public bound, which the price rests on.
        size = sigmoid(away).square_().mul_(sigmoid(-away)).clamp_(max=BRIER_SCORE)
        return size.mul_(1 - 2 * target)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return q^2 (1 - q) (2 - 3 q), which is negative where the other value is thought likely."""
        away = _away(margin, target)
        chance = sigmoid(away)
        return chance.square().mul_(sigmoid(-away)).mul_(2 - 3 * chance)


class SineLinkRecords:
    """(s(margin) - target)^2/2, s(m) = m + a sin m; the score has no bound, so gradients are clipped.

    Args:
        amplitude: a, between 0 and 1, so that s grows.
    """

    def __init__(self, amplitude: float) -> None:
        self.amplitude = amplitude

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is finite."""
        return target.isfinite()

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return half the square of the residual."""
        return self._residual(margin, target).square_().div_(2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the residual times the link's slope."""
        return self._residual(margin, target).mul_(1 + self.amplitude * cos(margin))

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return s'^2 + (s - target) s''."""
        bent = self._residual(margin, target).mul_(-self.amplitude * sin(margin))
        return (1 + self.amplitude * cos(margin)).square_().add_(bent)

    def _residual(self, margin: Tensor, target: Tensor) -> Tensor:
        return margin + self.amplitude * sin(margin) - target


class _Phase:
    """Losses of (margin^2, target), target >= 0.

    Args:
        cap: the largest target; larger ones are cut to it.
    """

    def __init__(self, cap: float) -> None:
        self.cap = cap

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is a finite number of at least 0."""
        return target.isfinite() & (target >= 0)

    def _residual(self, margin: Tensor, target: Tensor) -> Tensor:
        return margin * margin - target.clamp(max=self.cap)


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


def _away(margin: Tensor, target: Tensor) -> Tensor:
    """Return the margin of the other value than the target, 0 or 1."""
    return margin * (1 - 2 * target)
