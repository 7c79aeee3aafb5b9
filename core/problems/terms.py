"""What problems that sum by blocks are made of: records, points, each record's numbers, and their sums."""

from typing import NamedTuple

import torch
from torch import Tensor


class Records(NamedTuple):
    """Some records, shape (m, ...) or (L, m, ...) in lanes; null ones have features, target, weight and norm zero."""

    features: Tensor
    target: Tensor
    weights: Tensor
    norms: Tensor
    """Upper bounds of the norms of the very features that enter the products."""


class Point(NamedTuple):
    """Where a question is asked, float64, shape (p,), lanes first; `other` for questions about two points."""

    theta: Tensor
    other: Tensor | None = None

    def both(self) -> Tensor:
        """Return both points of a pair, shape (2, p), lanes first."""
        assert self.other is not None, "two points"
        return torch.stack((self.theta, self.other), -2)


class Layout(NamedTuple):
    """How many sums an answer is made of: of numbers, of numbers times x, and of numbers times x x^T."""

    plain: int = 0
    linear: int = 0
    outer: int = 0


class Factors(NamedTuple):
    """Each record's numbers, shape (..., how many, m), where the layout has any."""

    plain: Tensor | None = None
    linear: Tensor | None = None
    outer: Tensor | None = None


class Sums(NamedTuple):
    """Sums by kind, shapes (..., how many), (..., how many, d) and (..., how many, d, d), float64 or int64.

    The d x d ones are symmetric up to their last bits.
    """

    plain: Tensor
    linear: Tensor
    outer: Tensor


def views(flat: Tensor, layout: Layout, width: int) -> Sums:
    """Return sums by kind, as views of their entries in a row, shape (..., entries)."""
    plain, linear = layout.plain, layout.plain + layout.linear * width
    lanes = flat.shape[:-1]
    return Sums(
        flat[..., :plain],
        flat[..., plain:linear].view(*lanes, layout.linear, width),
        flat[..., linear:].view(*lanes, layout.outer, width, width),
    )


def size_of(layout: Layout, width: int) -> int:
    """Return the number of entries of all sums of a layout."""
    return layout.plain + layout.linear * width + layout.outer * width * width
