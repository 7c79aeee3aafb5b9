"""Ghost norms of wide layers that a record meets at few places: no record's row is made, and nothing more is charged.

A record that meets a matrix at T places, with inputs a_t and slopes b_t, has the gradient g = sum_t b_t a_t^T there.
Its norm takes T x T products, |g|^2 = sum_{t,s} (a_t . a_s)(b_t . b_s), and the weighted sum over records is one
product over records and places at once. (Goodfellow 2015; Li, Tramer, Liang and Hashimoto 2022 for sequences; Bu and
others 2023, book-keeping: slopes are kept for the sum, so there is no second backward pass.) Two things then differ
from rows. The norm is not measured of the floats that enter the sum. The rounding errors of both computations are
proportional to A = sum_t |b_t||a_t|, which cancellation may leave far above |g|. Both are therefore in double precision
here, and the measure is an upper bound:

    squares = fl(sum_{t,s} (a_t . a_s)(b_t . b_s)) + ABOVE A^2.

One clip by this measure bounds both |g| and A, so no second clip is needed. The sum's error is within the lattice's
charge for single precision. The lattice, its constants and all other layers' integers are as without.

Measure. Products of two single-precision numbers are exact in double. In any order a summand passes through at most d +
u + T^2 <= MOST_ROUNDINGS = 2^18 roundings (Higham 2002, section 3.1). The sum errs by at most gamma_{2^18} A^2 <= 2^-34
A^2, u = 2^-53. The value of A, from the same matrices' diagonals, errs by less than 2^-32, relatively. ABOVE = 2^-32,
so that

    |g|^2 + 2^-33 A^2 <= squares <= |g|^2 + 2^-31 A^2.                                                            (1)

No square underflows or overflows: products of four single-precision numbers lie within 2^-600 and 2^512. (One below
2^-126 that a trainer's processor takes for zero is zero in the measure and in the sum.) Cost for honest records: the
measure overestimates their norm by a factor of at most 1 + 2^-32 (A / |g|)^2, 1e-5 where A = 200 |g|.

Terms. By (1) the problem's own proof holds for the exact term v = w g, of norm at most C', the charged clip. Over all
layers of this kind w A, as a vector of layers, has norm at most 2^16.5 C'.

Error. The products w b of singles are exact in double. A product of matrices is over at most PLACES = 1024 places of r
>= 1 whole records: one rounding for the product with a, at most PLACES - 1 for additions, gamma_PLACES <= 2^-42. It
errs by at most 2^-42 sum_i w_i A_i in norm. It is rounded to single precision and added to its part's sum, whose m
records make at most m such products. That is one rounding, and one for each of the d additions above it, all of them
relative to the computed numbers. A part's error is thus a sum of two. One is that of terms with d + 1 roundings each, d
+ 2 in rows and outer products; records of one product are no deeper than if they were added one by one. The other is at
most 2^-41 w A for each record and layer (gamma_m of single precision being below 1), over all layers 2^-24.5 C', so m
2^-24.5 C' for a part. `core.mechanisms.lattice.network_grid` charges for d + 3 roundings of every term: c sqrt(m Q_3)
C' where d + 2 are c sqrt(m Q_2) C', c >= 2^-24. With x_i = d_i + 2 of the deepest tree, Q_3 = |x + 1|^2 and Q_2 =
|x|^2. Those x_i, 3 to m + 1 and m + 1 again, have a mean of more than .8 times their root mean square. Hence sqrt(Q_3)
>= sqrt(Q_2) + .8 sqrt(m): both errors are charged. Numbers that single precision underflows are in its 2^-80, too.

(Not done: a product over places in single precision, which would err by gamma_{r T + 1} w A. At a clip of A to 8 C,
with 16 places and four records a product, its charge takes .8 % more noise, and the clip cuts honest records.)

Zero by selection, and the same floats: as everywhere. Zeros are put in place of a record's own a and b, in their double
copies; a record's measure is made of its numbers alone, in batches of public sizes.
"""

from math import prod
from typing import Final

import torch
from torch import Tensor

from core.models.network.layers import Attention, Conv2d, Layer, Linear, Shape
from core.queries.sums.network.terms import selected
from core.queries.sums.parts_at_once import by_part

ABOVE: Final = 2.0**-32
"""Of A^2, added to the measure: four times what the measure may err by."""

MOST_ROUNDINGS: Final = 2**18
"""Layers with more roundings in their measure make rows."""

PLACES: Final = 1024
"""Places that one product of the sum runs over, of whole records; no record meets a layer of this kind at more."""

DOUBLED: Final = 2**18
"""Numbers that are copied in double precision at a time, one record's at least."""

TILE: Final = 2**16
"""Numbers of one product of the sum: in double precision they stay in a core's cache."""

SMALLEST: Final = 2**14
"""Parameters from which on rows leave the caches; below, they cost little."""

OPERATIONS_PER_BYTE: Final = 4.0
"""Single-precision operations in the time that a byte takes to or from memory, on one core."""

ROW_BYTES: Final = 20
"""Moved for a number of a row: written, read for its norm, read and written to be selected, read to be added."""


def grams_cost_less(places: int, inputs: int, units: int) -> bool:
    """Say whether a layer's gradients are to be had without rows; from its shape alone, which is public.

    Costs are of one record, in single-precision operations; one in double precision counts as two.

    Args:
        places: T, at which a record meets the matrix.
        inputs: d.
        units: u.
    """
    numbers = inputs * units
    if numbers < SMALLEST or places > PLACES or inputs + units + places**2 > MOST_ROUNDINGS:
        return False
    rows = 2 * places * numbers + OPERATIONS_PER_BYTE * ROW_BYTES * numbers
    measured = 2 * places**2 * (inputs + units) + OPERATIONS_PER_BYTE * 12 * places * (inputs + units)
    return 2 * (measured + 2 * places * numbers) < rows


def numbers_saved(layer: Layer, given: Shape) -> int:
    """Return how many numbers fewer a pass holds for one record, its row being none but its inputs and slopes kept.

    Args:
        layer: one that a record meets at places.
        given: its record's shape.
    """
    return sum(
        inputs * units - places * (inputs + units)
        for places, inputs, units in _matrices(layer, given)
        if grams_cost_less(places, inputs, units)
    )


def _matrices(layer: Layer, given: Shape) -> tuple[tuple[int, int, int], ...]:
    """Return a layer's matrices as places, inputs and units; those of a vector, which is no place, are none here."""
    match layer:
        case Linear() if len(given) > 1:
            return ((prod(given[:-1]), given[-1], layer.units),)
        case Conv2d():
            made, *places = layer.output(given)
            return ((prod(places), given[0] * layer.kernel**2, made),)
        case Attention():
            positions, features = given
            return ((positions, features, 3 * features), (positions, features, features))
    return ()


class GramTerms:
    """Of a matrix that each record meets at few places; see this module's text.

    Args:
        offset: where the matrix begins in the flat vector.
        inputs: a, shape (m, T, d).
        slopes: b, shape (m, T, u).
    """

    def __init__(self, offset: int, inputs: Tensor, slopes: Tensor) -> None:
        self._offset, self._inputs, self._slopes = offset, inputs.detach(), slopes
        size = max(1, DOUBLED // (inputs.shape[1] * (inputs.shape[2] + slopes.shape[2])))
        size = size if inputs.is_cpu else max(1, len(inputs))
        parts = zip(_split(self._inputs, size), _split(slopes, size), strict=True)
        found = [squares_from_above(some.double(), sloped.double()) for some, sloped in parts]
        self.squares = torch.cat(found) if len(found) > 1 else found[0]

    def add(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
        """Add sum_i w_i b_i^T a_i in products over some records' places; see `Terms`."""
        inputs, slopes = self._inputs[rows], self._slopes[rows]
        (_, places, width), units = inputs.shape, slopes.shape[2]
        into = total[self._offset : self._offset + units * width].view(units, width)
        size, tile = PLACES // places, max(1, TILE // width)
        some = (_split(one, size) for one in (inputs, slopes, weights, kept))
        for given, sloped, weight, counted in zip(*some, strict=True):
            each = counted.repeat_interleave(places)
            a = selected(_doubled(given).flatten(0, 1), each)
            b = selected(_doubled(sloped).mul_(weight.double().view(-1, 1, 1)).flatten(0, 1), each)
            for at in range(0, units, tile):
                into[at : at + tile] += (b[:, at : at + tile].mT @ a).to(total.dtype)

    def put(self, totals: Tensor, weights: Tensor, kept: Tensor) -> None:
        """Do so for all parts at once, over the same records of each in one product; see `Terms`."""
        (_, places, width), units, parts = self._inputs.shape, self._slopes.shape[2], len(totals)
        into = totals[:, self._offset : self._offset + units * width].view(parts, units, width)
        each = kept.repeat_interleave(places)
        a = selected(_doubled(self._inputs).flatten(0, 1), each)
        b = selected(_doubled(self._slopes).mul_(weights.double().view(-1, 1, 1)).flatten(0, 1), each)
        a, b, size = by_part(a, 0, parts), by_part(b, 0, parts), PLACES // places * places
        for start in range(0, a.shape[1], size):
            some = slice(start, start + size)
            into += torch.bmm(b[:, some].mT, a[:, some]).to(totals.dtype)

    def write(self, rows: Tensor) -> None:
        """Make the rows, in their own precision; the caller measures them again, see `Terms`."""
        width = self._slopes.shape[2] * self._inputs.shape[2]
        rows[:, self._offset : self._offset + width] = (self._slopes.mT @ self._inputs).flatten(1)


def squares_from_above(inputs: Tensor, slopes: Tensor) -> Tensor:
    """Return each record's squared norm plus ABOVE A^2, float64, shape (m,); see this module's text.

    Args:
        inputs: a, float64, shape (m, T, d).
        slopes: b, float64, shape (m, T, u).
    """
    given, sloped = inputs @ inputs.mT, slopes @ slopes.mT
    lengths = given.diagonal(dim1=1, dim2=2) * sloped.diagonal(dim1=1, dim2=2)
    return (given * sloped).sum((1, 2)) + ABOVE * lengths.sqrt_().sum(1).square_()


def _doubled(numbers: Tensor) -> Tensor:
    """Return a copy in double precision, whatever the numbers' own."""
    return numbers.to(torch.float64, copy=True, memory_format=torch.contiguous_format)


def _split(numbers: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return some records at a time."""
    return numbers.split(size)  # type: ignore[no-untyped-call, no-any-return] # torch's stub has no types
