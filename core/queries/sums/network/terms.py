"""Each record's gradient of one layer's parameters: its norm, and its contribution to the sum.

Records are the first axis of everything here, and nothing is added over it but in `add`. The values computed for a
record thus depend on that record's floats alone.

Cost decides the form of a layer. Where a record meets a matrix once, its gradient is the outer product of two vectors,
whose norm takes (inputs + units) operations instead of inputs * units. The product is never made. Where it meets the
matrix at T places, the norm needs the sum of T products, the row. Making it costs as much as the layer's gradient in
ordinary training, T * inputs * units operations. The weighted sum over records then takes inputs * units a record,
which ordinary training does not need. Where the matrix is large and places are few, rows cost far more to move than to
make. Then T x T products of inputs and of slopes give the norm, and no row is made (`core.queries.sums.network.grams`,
which also decides).

Norms. The terms are products of the very floats that are measured here, and every measure is within 2^-13 of the exact
square, relatively, but for 2^-100 in all where squares of rows underflow, 2^-126 each. Factors of outer products are
measured in double precision, since the error of one is multiplied by the other. Squares of single-precision numbers are
exact in double precision. Runs of MEASURED numbers are added up in their own precision. Since all are squares, their
sum has a relative error of at most (MEASURED + 2) 2^-24 < 2^-13 in any order (Higham 2002, section 3.1).
"""

from collections.abc import Iterable
from math import inf
from typing import Final, Protocol

import torch
from torch import Tensor

from core.native.library import Kernel
from core.native.signatures import SQUARES
from core.queries.sums.network.parts import is_here, place_of
from core.queries.sums.parts_at_once import by_part
from core.queries.sums.terms import ones

_SQUARES: Final = SQUARES.kernel()

LARGEST: Final = 2.0**40
"""A record whose gradient has a larger norm, or a factor of it, counts as zero."""

MEASURED: Final = 1024
"""Numbers whose squares are added up in single precision."""

DOUBLED: Final = 2**16
"""Numbers that are copied in double precision at a time: they stay in a core's cache."""

_BITS: Final = {torch.float32: torch.int32, torch.float64: torch.int64}


class LayerTerms(Protocol):
    """Some records' gradients of one layer's parameters."""

    squares: Tensor
    """Of norms, float64, shape (m,): within 2^-13, relatively, or from above; not finite where the gradient is not."""

    def add(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
        """Add the weighted gradients of some of these records; they are used up.

        Args:
            total: all parameters' sum, shape (p,), in the gradients' precision.
            weights: shape (k,), zero for records that are not kept.
            kept: bool, shape (k,): records left out add zero, whatever their gradients are.
            rows: which of the records, k of them.
        """

    def put(self, totals: Tensor, weights: Tensor, kept: Tensor) -> None:
        """Write the weighted gradients' sums of all parts at once into their columns; they are used up.

        Args:
            totals: all parameters' sums, shape (parts, p), zero there.
            weights: shape (m,), zero for records that are not kept; the records of each part, one after the other.
            kept: all ones or none as integers, shape (m,).
        """

    def write(self, rows: Tensor) -> None:
        """Write the gradients out, before any is added, into their columns of rows of all parameters.

        Args:
            rows: shape (m, p), in the gradients' precision.
        """


class OuterTerms:
    """Of a matrix that each record meets once: the outer product b a^T, never made; with a bias, b itself.

    |b a^T|^2 + |b|^2 = |b|^2 (|a|^2 + 1).

    Args:
        offset: where the matrix, and its bias after it, begin in the flat vector.
        inputs: a, shape (m, d).
        slopes: b, the loss's gradient of what the layer made, shape (m, u).
        given: the inputs' squared norms, as `exact_squares` has them, where these are the very records: all finite,
            and only read; None: they are another layer's.
        bias: whether there is one.
    """

    def __init__(self, offset: int, inputs: Tensor, slopes: Tensor, given: Tensor | None = None, *, bias: bool) -> None:
        self._offset, self._inputs, self._slopes, self._bias = offset, inputs.detach(), slopes, bias
        self._are_records = given is not None
        self.span: Final = slice(offset, offset + slopes.shape[-1] * (inputs.shape[-1] + bias))
        given, sloped = exact_squares(self._inputs) if given is None else given, exact_squares(slopes)
        bounded = torch.maximum(given, sloped) <= LARGEST**2  # false for NaN
        self.squares = torch.where(bounded, sloped * (given + float(bias)), inf)

    def begin(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
        """Do what `add` does, over whatever stands in the total."""
        slopes, inputs, matrix, bias = self._factors(total, weights, kept, rows)
        torch.mm(slopes.mT, inputs, out=matrix)
        if self._bias:
            torch.sum(slopes, 0, out=bias)

    def add(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
        """Add (w b)^T a in one product; see `LayerTerms`."""
        slopes, inputs, matrix, bias = self._factors(total, weights, kept, rows)
        matrix.addmm_(slopes.mT, inputs)
        if self._bias:
            bias.add_(slopes.sum(0))

    def put(self, totals: Tensor, weights: Tensor, kept: Tensor) -> None:
        """Make a product for each part; see `LayerTerms`."""
        slopes, inputs = self._weighted(weights, kept, slice(None))
        parts, units, width = len(totals), slopes.shape[-1], inputs.shape[-1]
        slopes, inputs, end = by_part(slopes, 0, parts), by_part(inputs, 0, parts), self._offset + units * width
        torch.bmm(slopes.mT, inputs, out=totals[:, self._offset : end].view(parts, units, width))
        if self._bias:
            torch.sum(slopes, 1, out=totals[:, end : end + units])

    def _factors(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> tuple[Tensor, ...]:
        """Return w b and a of some records, and the places of the matrix and of its bias."""
        slopes, inputs = self._weighted(weights, kept, rows)
        shape = (slopes.shape[-1], inputs.shape[-1])
        end = self._offset + shape[0] * shape[1]
        return slopes, inputs, total[self._offset : end].view(shape), total[end : end + shape[0]]

    def _weighted(self, weights: Tensor, kept: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Return w b and a of some records, zeros of those that are left out."""
        inputs = self._inputs[rows]
        if not self._are_records:  # whose every number times zero is zero
            # Whoever else holds the inputs, another layer's output, puts zeros at the same records.
            inputs = selected(inputs, kept)
        return selected(self._slopes[rows] * weights.unsqueeze(-1), kept), inputs

    def write(self, rows: Tensor) -> None:
        """Make the outer products; see `LayerTerms`."""
        slopes, inputs = self._slopes, self._inputs
        end = self._offset + slopes.shape[-1] * inputs.shape[-1]
        rows[:, self._offset : end] = (slopes.unsqueeze(-1) * inputs.unsqueeze(-2)).flatten(1)
        if self._bias:
            rows[:, end : end + slopes.shape[-1]] = slopes


class RowTerms:
    """Of parameters that a record meets many times: the record's gradient, a row of numbers.

    Args:
        offset: where the parameters begin in the flat vector.
        rows: shape (m, numbers), contiguous; they become this object's.
    """

    def __init__(self, offset: int, rows: Tensor) -> None:
        self._offset, self._rows = offset, rows
        self.squares = squared_norms(rows)

    def add(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
        """Add the rows times their weights; see `LayerTerms`."""
        some = selected(self._rows[rows], kept)
        total[self._offset : self._offset + some.shape[-1]].addmv_(some.mT, weights)

    def put(self, totals: Tensor, weights: Tensor, kept: Tensor) -> None:
        """Make a product for each part; see `LayerTerms`."""
        put_rows(self._rows, totals[:, self._offset : self._offset + self._rows.shape[-1]], weights, kept)

    def write(self, rows: Tensor) -> None:
        """Write the rows; see `LayerTerms`."""
        rows[:, self._offset : self._offset + self._rows.shape[-1]] = self._rows


class TokenTerms:
    """Of an embedding: a record's slopes at the positions of one token add up to that token's row, all others are zero.

    Which positions hold the same token is a matrix of zeros and ones, so that a record's rows are one small product,
    whatever its tokens are. Each token's row stands at its first position; later ones hold zeros.

    Args:
        offset: where the embedding begins in the flat vector.
        many: number of tokens that there are.
        tokens: int64, shape (m, positions).
        slopes: shape (m, positions, width).
    """

    def __init__(self, offset: int, many: int, tokens: Tensor, slopes: Tensor) -> None:
        same = tokens.unsqueeze(-1) == tokens.unsqueeze(-2)
        first = ~same.tril(-1).any(-1)
        self._rows = (same & first.unsqueeze(-1)).to(slopes.dtype) @ slopes
        self._offset, self._many, self._tokens = offset, many, tokens
        self.squares = squared_norms(self._rows.flatten(1))

    def add(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
        """Add each token's row to its place, always the same number of places; see `LayerTerms`."""
        width = self._rows.shape[-1]
        some = selected(self._rows[rows].flatten(1), kept).mul_(weights.unsqueeze(-1))
        self._table(total).index_add_(0, self._tokens[rows].flatten(), some.view(-1, width))

    def put(self, totals: Tensor, weights: Tensor, kept: Tensor) -> None:
        """Add each token's row to its place in its part; see `LayerTerms`."""
        parts, width = len(totals), self._rows.shape[-1]
        some = selected(self._rows.flatten(1), kept).mul_(weights.unsqueeze(-1))
        tables = totals.new_zeros(parts * self._many, width)
        first = torch.arange(0, parts * self._many, self._many, device=totals.device)
        places = by_part(self._tokens, 0, parts) + first.view(-1, 1, 1)
        tables.index_add_(0, places.flatten(), some.view(-1, width))
        self._table(totals).copy_(tables.view(parts, self._many, width))

    def _table(self, numbers: Tensor) -> Tensor:
        """Return the embedding's place in vectors of all parameters, shape (..., tokens, width)."""
        width = self._rows.shape[-1]
        found = numbers[..., self._offset : self._offset + self._many * width]
        return found.view(*numbers.shape[:-1], self._many, width)

    def write(self, rows: Tensor) -> None:
        """Add each position's row to its token's, zeros for all but a token's first; see `LayerTerms`."""
        self._table(rows).scatter_add_(1, self._tokens.unsqueeze(-1).expand_as(self._rows), self._rows)


def begin(every: Iterable[LayerTerms], total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
    """Write some records' weighted gradients of all layers over a total; see `LayerTerms.add`.

    Matrices that records meet once are written by their product, and not set to zero before.
    """
    every = list(every)
    outer = [one for one in every if isinstance(one, OuterTerms)]
    at = 0
    for matrix in sorted(outer, key=lambda one: one.span.start):
        total[at : matrix.span.start].zero_()
        matrix.begin(total, weights, kept, rows)
        at = matrix.span.stop
    total[at:].zero_()
    for one in every:
        if not isinstance(one, OuterTerms):
            one.add(total, weights, kept, rows)


def put_rows(rows: Tensor, into: Tensor, weights: Tensor, kept: Tensor) -> None:
    """Write the weighted sums of rows of each part, shape (parts, numbers), where the rows have shape (m, numbers)."""
    parts = len(into)
    some = by_part(selected(rows, kept), 0, parts)
    torch.bmm(by_part(weights, 0, parts).unsqueeze(1), some, out=into.unsqueeze(1))


def squared_norms(rows: Tensor) -> Tensor:
    """Return each row's squared norm, float64, shape (m,), of rows of shape (m, numbers); see this module's text."""
    numbers = rows.shape[-1]
    whole = 0 if rows.dtype == torch.float64 else numbers // MEASURED * MEASURED
    found = list[Tensor]()
    if whole < numbers:
        found.append(torch.linalg.vector_norm(rows[:, whole:], dim=-1).double().square_())
    if whole:
        parts = torch.linalg.vector_norm(rows[:, :whole].view(len(rows), -1, MEASURED), dim=-1)
        found.append(parts.double().square_().sum(-1))
    return found[0] if len(found) == 1 else found[0].add_(found[1])


def exact_squares(rows: Tensor, kernel: Kernel | None = _SQUARES) -> Tensor:
    """Return each row's squared norm added up in double precision, where no square of a single underflows.

    A factor of an outer product needs it: the error of one norm is multiplied by the other. The native one
    adds up in another order, and the measure is as good. By torch some rows at a time: copies in double precision of
    all inputs of a layer would be most of what a step holds.

    Args:
        rows: floats, shape (m, numbers).
        kernel: compiled, for rows in single precision; None: torch does it.
    """
    if kernel and is_here(rows, torch.float32):
        found = rows.new_empty(len(rows), dtype=torch.float64)
        kernel(place_of(rows), *rows.shape, found.data_ptr())
        return found
    size = max(1, DOUBLED // rows.shape[-1]) if rows.is_cpu else max(1, len(rows))
    parts = rows.split(size)  # type: ignore[no-untyped-call] # torch's stub has no types
    norms = [torch.linalg.vector_norm(some, dim=-1, dtype=torch.float64) for some in parts]
    return (torch.cat(norms) if len(norms) > 1 else norms[0]).square_()


def selected(rows: Tensor, kept: Tensor) -> Tensor:
    """Overwrite all rows but some with zeros, in place, by a mask of bits: no bit of the old values remains.

    Args:
        rows: floats, shape (m, numbers).
        kept: shape (m,): bool, or all ones and no ones as integers, of which a mask for many rows is made once.
    """
    bits = _BITS[rows.dtype]
    rows.view(bits).bitwise_and_(ones(kept, bits).unsqueeze(-1))
    return rows
