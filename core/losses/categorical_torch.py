"""Per-record losses of a target with two values.

Source: Avella-Medina, Bradshaw and Loh (2023), loss (7) with the signs of its printed gradient; Brier (1950).
"""

import torch
from torch import Tensor

from core.losses.categorical import Brier, Logistic
from core.losses.per_record import PerRecord

BRIER_SCORE = 4 / 27


class LogisticRecords(PerRecord[Logistic]):
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


class BrierRecords(PerRecord[Brier]):
    """(p - target)^2/2, p = expit(margin), target in {0, 1}; |score| <= 4/27."""

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is 0 or 1."""
        return (target == 0) | (target == 1)

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return half the square of the probability of the other value: no cancellation where p is close to 1."""
        return torch.sigmoid(_away(margin, target)).square_().div_(2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return q^2 (1 - q), q the probability of the other value, towards that value."""
        away = _away(margin, target)
        # Rounding must not pass the public bound, which the price rests on.
        size = torch.sigmoid(away).square_().mul_(torch.sigmoid(-away)).clamp_(max=BRIER_SCORE)
        return size.mul_(1 - 2 * target)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return q^2 (1 - q) (2 - 3 q), which is negative where the other value is thought likely."""
        away = _away(margin, target)
        chance = torch.sigmoid(away)
        return chance.square().mul_(torch.sigmoid(-away)).mul_(2 - 3 * chance)


def _away(margin: Tensor, target: Tensor) -> Tensor:
    """Return the margin of the other value than the target, 0 or 1."""
    return margin * (1 - 2 * target)
