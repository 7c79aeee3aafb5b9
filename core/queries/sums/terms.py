"""Parts of problems that sum by blocks: records, points, each record's numbers, and their sums."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

_BITS: Final = {8: torch.int64, 4: torch.int32, 1: torch.uint8}
"""Integers by their bytes."""


class Records(NamedTuple):
    """Some records, shape (m, ...) or (L, m, ...) in replicates; null ones have zeros alone."""

    features: Tensor
    target: Tensor
    weights: Tensor
    norms: Tensor
    """Upper bounds of the norms of the very features that enter the products."""
    offset: Tensor | None = None
    """Offset of a record, added to x.theta; None: nothing."""
    sampling: Tensor | None = None
    """Sampling weight of a record, 0 to 1, already a factor of its weight; None: 1."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those there are, in order."""
        return tuple(one for one in self if one is not None)

    def of(self, tensors: Sequence[Tensor]) -> "Records":
        """Return records of other tensors, one for each there is, in order."""
        given = iter(tensors)
        return Records(*(None if one is None else next(given) for one in self))  # type: ignore[arg-type] # the first four are

    def each(self, make: Callable[[Tensor], Tensor]) -> "Records":
        """Return records of what is made of each tensor."""
        return self.of([make(one) for one in self.tensors])

    def listed(self, rows: Tensor, included: Tensor | None) -> "Records":
        """Return copies of the records of a list, with zeros in place of what is left out, as excluded rows are."""
        chosen = self.each(lambda one: one.index_select(0, rows))
        if included is not None:
            for one in chosen.tensors:
                overwrite(one, included)
        return chosen


def overwrite(numbers: Tensor, kept: Tensor) -> Tensor:
    """Overwrite all rows but some with zeros, in place, by a mask of bits: no bit of the old values remains.

    No branch and no loop asks which rows these are.

    Args:
        numbers: of any type, shape (m, ...).
        kept: bool, or `ones`, shape (m,).
    """
    bits = _BITS[numbers.element_size()]
    numbers.view(bits).bitwise_and_(ones(kept, bits).view(-1, *[1] * (numbers.ndim - 1)))
    return numbers


def ones(kept: Tensor, bits: torch.dtype) -> Tensor:
    """Return integers of all ones where a mask, bool or such integers, says so, and of none elsewhere."""
    return -kept.to(bits) if kept.dtype == torch.bool else kept.to(bits)


@lru_cache(maxsize=256)
def constants(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return public numbers on a device, which they are copied to once and not for each block; never written to."""
    with torch.inference_mode(mode=False):  # others may use them outside it
        return torch.tensor(values, dtype=dtype, device=device)


class Point(NamedTuple):
    """Where a question is asked, float64, shape (p,), replicates first; `other` for questions about two points."""

    theta: Tensor
    other: Tensor | None = None

    def both(self) -> Tensor:
        """Return both points of a pair, shape (2, p), replicates first."""
        assert self.other is not None, "two points"
        return torch.stack((self.theta, self.other), -2)


class AnswerLayout(NamedTuple):
    """Numbers of sums behind an answer: of numbers, of numbers times x, and of numbers times x x^T."""

    plain: int = 0
    linear: int = 0
    outer: int = 0


class Factors(NamedTuple):
    """Each record's numbers, shape (..., how many, m), where the layout has any."""

    plain: Tensor | None = None
    linear: Tensor | None = None
    outer: Tensor | None = None


class SumsByKind(NamedTuple):
    """Sums by kind, as views of their entries in a row, shape (..., entries), float64 or int64.

    The d x d ones are symmetric up to their last bits.
    """

    flat: Tensor
    layout: AnswerLayout
    width: int
    """The number of features, d."""

    @property
    def plain(self) -> Tensor:
        """Shape (..., how many)."""
        return self.flat[..., : self.layout.plain]

    @property
    def linear(self) -> Tensor:
        """Shape (..., how many, d)."""
        first, many = self.layout.plain, self.layout.linear
        return self.flat[..., first : first + many * self.width].view(*self.flat.shape[:-1], many, self.width)

    @property
    def outer(self) -> Tensor:
        """Shape (..., how many, d, d)."""
        first = self.layout.plain + self.layout.linear * self.width
        return self.flat[..., first:].view(*self.flat.shape[:-1], self.layout.outer, self.width, self.width)


def size_of(layout: AnswerLayout, width: int) -> int:
    """Return the number of entries of all sums of a layout."""
    return layout.plain + layout.linear * width + layout.outer * width * width


def split(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Walk through tensors of equal length together, `size` entries at a time."""
    if tensors[0].shape[0] <= size:
        return iter((tensors,))
    pieces = [tensor.split(size) for tensor in tensors]  # type: ignore[no-untyped-call] # torch's stub has no types
    return zip(*pieces, strict=True)


def counted_errors(records: Records, errors: Tensor) -> Tensor:
    """Return errors of records, shape (..., m), between 0 and 1: 1 where one is not finite, 0 where none is counted."""
    cut = torch.where(errors.isfinite(), errors, 1.0).clamp_(0.0, 1.0)
    return torch.where(records.weights > 0, cut if records.sampling is None else cut * records.sampling, 0.0)


def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return a matrix times a vector, or each of several times its own."""
    return matrix @ vector if matrix.ndim == 2 else (matrix @ vector.unsqueeze(-1)).squeeze(-1)  # noqa: PLR2004


def mirror(matrix: Tensor) -> Tensor:
    """Return the symmetric matrix that agrees with this one on and above the diagonal."""
    return matrix.triu() + matrix.triu(1).mT
