"""The integer lattice: from bounded real contributions to integers with a proven sensitivity.

Floating-point sums depend on order, and a float plus float noise can betray the float (Mironov 2012; Casacuberta,
Shoemate, Vadhan and Wagaman 2022). Contributions therefore become integers first, the noise is an integer, and only the
noisy integer becomes a float again.

Parts of the rows are summed as floats, at memory speed. Each part's sum is rounded to a finer grid, where parts add up
without error, and the total is rounded to the grid; the sensitivity pays for the worst roundings of both neighbours.
Which process sums a part, and in what order parts arrive, changes nothing.

A clip C is charged as C / (1 - 2^-10), so that a row within its declared bound is never altered, whatever the last bits
of its computed norm.

A row's contribution must depend on that row, public state and public shapes only: rows are never compacted, and a row
that fails a check becomes zero by selection, never by multiplication with zero.
"""

from dataclasses import dataclass, replace
from math import ceil, frexp, isfinite, isqrt, ldexp, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.privacy.facts import PART_UNITS, Adjacency, parts_in

CHARGED_MARGIN: Final = 1 / (1 - 2**-10)
"""A clip C is charged as CHARGED_MARGIN * C."""

UNIT_ROUNDOFF: Final = 2.0**-53
SINGLE_ROUNDOFF: Final = 2.0**-24
_ROUNDED_UP: Final = 1 + 2.0**-40
_PART_BITS: Final = 21
_MOST_SQUARES: Final = 2**20
"""Products of two parts that a machine word holds the sum of."""

_SMALLEST_STEP: Final = 2.0**-900
_TOTAL_BITS: Final = 61
"""Sums of parts stay below 2^61 on the finer grid, the parts' own roundings aside: 63 bits hold them with room."""
_MOST_PART_BITS: Final = 20
_UNDERFLOW: Final = 2.0**-80
"""Bound on the loss of a single-precision product that underflows, its factors being below 2^41, with room."""


@dataclass(frozen=True)
class Grid:
    """A grid for one integer sum, with how far one unit can move it.

    Attributes:
        step: width of the grid, in the units of the sum.
        sensitivity: l2 sensitivity of the integer sum, in steps, rounded up to an integer.
        error: l2 bound on the summing's own error, in the units of the sum.
        part_bits: parts of the sum are rounded to a grid 2^part_bits times finer.
    """

    step: float
    sensitivity: int
    error: float
    part_bits: int = 0

    @property
    def part_step(self) -> float:
        """Width of the grid that parts of the sum are rounded to; the step divided by a power of two, exactly."""
        return ldexp(self.step, -self.part_bits)

    def parameter(self, sigma: float) -> float:
        """Return the parameter of integer noise that is `sigma` times the sensitivity."""
        ensure(isfinite(sigma) and sigma > 0, "a noise multiplier is a positive number")
        return sigma * self.sensitivity * _ROUNDED_UP


def bounded_error_grid(clip: float, units: int, coordinates: int, multiple: float) -> Grid:
    """Return the grid of float64 sums of parts of `units` clipped terms, rounded and added as integers.

    The terms v_i have norms at most C' = clip / (1 - 2^-10). Each coordinate of v_i is a product of at most four
    floats: one or two make up the record's number, one or two are entries. There are K = ceil(n / PART_UNITS) parts of
    at most m = min(n, PART_UNITS) terms. Each is summed in any order by ordinary (not Strassen-like) summation in
    float64, with or without fused multiply-adds, and rounded to the nearest multiple of the part step. These integers
    are added exactly, by whomever and in any order, and the total is rounded to the nearest step.

    Error before the last rounding. By Higham 2002, section 3.1, each coordinate of a part errs by at most gamma_{m+2}
    times the sum of its absolute products, gamma_k = k u / (1 - k u), u = 2^-53. There are at most three roundings for
    the product's factors and m - 1 additions. (Products that underflow add at most n sqrt(D) 2^-1073 in all.) The
    part's rounding adds half a part step in each of D coordinates. Dividing by the part step, a power of two, loses
    nothing. Taking norms over the coordinates, the triangle inequality over parts gives E = gamma_{m+2} * n * C' + K *
    sqrt(D) * part_step / 2.

    Sensitivity. Let the exact sums of two neighbours differ by at most `multiple` * C'. Both sums err by at most E,
    even if the parts without the changed unit come out differently. Both last roundings err by at most half a step in
    each coordinate. The integers thus differ, in steps, by at most (multiple * C' + 2 E) / step + sqrt(D).

    Size. All n terms together are below 2^61 part steps in norm, so no sum of any parts overflows.

    Args:
        clip: C, checked in float64 on the very values that enter the products.
        units: n, or a public cap on the number of terms; never a realised sample size.
        coordinates: D, the number of coordinates noised: d, or p (p + 1) / 2 on and above the diagonal.
        multiple: sensitivity of the exact sum over its terms' bound, as `vector_grid` and `matrix_grid` prove it.
    """
    ensure(_is_size(clip), "a clip is positive and finite")
    ensure(units > 0, "a sum has at least one term")
    ensure(coordinates > 0, "a sum has at least one coordinate")
    ensure(multiple > 0, "a sensitivity is positive")
    bound = clip * CHARGED_MARGIN
    step = ldexp(1.0, frexp(clip)[1] - 21)  # in (C/2^21, C/2^20]
    ensure(step >= _SMALLEST_STEP, "the clip is far above the smallest floats")
    part_bits = min(_MOST_PART_BITS, _TOTAL_BITS - frexp(units * bound / step)[1])
    ensure(part_bits > 0, "the sum fits 63 bits")
    roundings = (min(units, PART_UNITS) + 2) * UNIT_ROUNDOFF
    error = roundings / (1 - roundings) * units * bound + units * sqrt(coordinates) * 2.0**-1073
    error += parts_in(units) * sqrt(coordinates) * ldexp(step, -part_bits - 1)
    error *= _ROUNDED_UP
    # The float operations here err by a few 2^-53 relatively: _ROUNDED_UP is above them.
    steps = ((multiple * bound + 2 * error) / step + sqrt(coordinates)) * _ROUNDED_UP
    return Grid(step=step, sensitivity=ceil(steps), error=error, part_bits=part_bits)


def vector_grid(clip: float, units: int, dimension: int, adjacency: Adjacency, diameter: float | None = None) -> Grid:
    """Return the grid for a sum of vectors of norm at most `clip`.

    Zeroing a unit moves the exact sum by one term: multiple 1. Changing it moves the sum by the difference of two: at
    most 2 C' by the triangle inequality, so multiple 2; both are attained.

    With a diameter D. All exact terms, an excluded row's zero among them, lie within D' = D / (1 - 2^-10) of one
    another. The caller proves D for the very floats that terms are products of, as `bounded_error_grid` requires of C.
    Changing a unit thus moves the exact sum by at most D' = (D / C) C': multiple D / C. It is at most 2, and at least
    1, since a term of norm C and an excluded row's zero are two of them. Zeroing a unit is as before: a ball around
    zero knows nothing of D. Parts and roundings add the same as for all sums.

    Args:
        clip: C.
        units: n, or a public cap on the number of terms.
        dimension: p, the number of coordinates.
        adjacency: when records are neighbours.
        diameter: D; None: 2 C.
    """
    ensure(diameter is None or clip <= diameter <= 2 * clip, "terms are up to C apart from zero, and 2 C from others")
    changed = 2.0 if diameter is None else diameter / clip
    return bounded_error_grid(clip, units, dimension, changed if adjacency is Adjacency.REPLACE_ONE else 1.0)


def matrix_grid(clip: float, units: int, dimension: int, adjacency: Adjacency, *, semidefinite: bool = True) -> Grid:
    """Return the grid for a sum of symmetric matrices, noised on and above the diagonal.

    The terms are w_i a_i a_i^T with |w_i| |a_i|^2 <= clip, a bound on their Frobenius norm. Leaving out the entries
    below the diagonal never raises a norm.

    Zeroing a unit: the norm of one term, multiple 1, attained by an axis. Changing A into B: if both are positive
    semidefinite, |A - B|_F^2 = |A|_F^2 + |B|_F^2 - 2 tr(AB) <= 2 clip^2, for tr(AB) >= 0: multiple sqrt(2), attained by
    orthogonal axes. (In one dimension |A - B| <= max(A, B): multiple 1.) Signed terms: 2. The float terms need not
    be semidefinite; only the exact ones must, and the distance between both sums is inside the grid's error.
    """
    coordinates = dimension * (dimension + 1) // 2
    if adjacency is Adjacency.ZERO_OUT:
        multiple = 1.0
    elif not semidefinite:
        multiple = 2.0
    else:
        multiple = sqrt(2) if dimension > 1 else 1.0
    return bounded_error_grid(clip, units, coordinates, multiple)


def network_grid(clip: float, part_rows: int, terms: int, dimension: int, adjacency: Adjacency) -> Grid:
    """Return the grid for single-precision sums of clipped gradients of networks, by parts of few rows.

    The terms v_i have norms at most C' = clip / (1 - 2^-10); each coordinate is a product of at most three floats of
    single precision (the record's weight and one or two entries). There are K = ceil(terms / part_rows) parts of at
    most m = min(part_rows, terms) terms. Each is summed in any order by ordinary summation in single precision, with or
    without fused multiply-adds, and truncated toward zero to a multiple of the part step. The integers are added
    exactly, and the total is rounded to the nearest step.

    Error of one part, before its truncation. A sum of m terms is a binary tree with the terms for leaves, maybe another
    one in each coordinate. A term d additions deep passes through d roundings there and at most two in its products.
    One more is for the error of sums over places (`core.queries.sums.network.grams`). The term's share of the error is
    at most gamma_{d+3} of its size (Higham 2002, section 3.1). Here gamma_k = k u / (1 - k u) <= k c, c = u / (1 - (m +
    2) u), u = 2^-24, for d <= m - 1. By Cauchy and Schwarz a coordinate with terms t_i, d_i deep, errs by at most c
    (sum_i (d_i + 3)^2)^(1/2) (sum_i t_i^2)^(1/2). The terms' squared norms are at most C'^2 each, so all coordinates
    together err by at most e = c sqrt(m Q) C' in norm. Here Q is the largest sum_i (d_i + 3)^2 of any tree, about m^3 /
    3: e is about .58 of the error with m + 2 roundings of every term; see `deepest_squares`. Products that underflow,
    or that a processor flushes to zero, add m sqrt(D) 2^-80.

    Sensitivity. A term depends on its own record, its slot and public values, and a part's float sum on its terms
    alone. Neighbours thus differ in the one part that holds the changed record's slot; all other parts' integers are
    the same. The exact sums of that part differ by at most `multiple` C', 1 where a unit is zeroed, 2 where it changes.
    Both float sums err by at most e, both truncations by less than a part step in each of D coordinates, and both last
    roundings by at most half a step. The integers thus differ, in steps, by at most (multiple C' + 2 e + 2 sqrt(D)
    part_step) / step + sqrt(D). The number of parts does not enter, so a sample larger than planned may be read in two
    lists.

    Size. All terms together are below 2^61 part steps in norm, so no sum of any parts overflows.

    Args:
        clip: C.
        part_rows: public; no part has more rows than this, nor than the list.
        terms: the public length of the list that is read; never a realised sample size.
        dimension: D, the number of coordinates.
        adjacency: when records are neighbours.
    """
    ensure(_is_size(clip), "a clip is positive and finite")
    ensure(min(part_rows, terms, dimension) > 0, "a sum has terms and coordinates")
    bound = clip * CHARGED_MARGIN
    step = ldexp(1.0, frexp(clip)[1] - 21)  # in (C/2^21, C/2^20]
    ensure(step >= _SMALLEST_STEP, "the clip is far above the smallest floats")
    part_bits = min(_MOST_PART_BITS, _TOTAL_BITS - frexp(terms * bound / step)[1])
    ensure(part_bits > 0, "the sum fits 63 bits")
    rows = min(part_rows, terms)
    roundings = (rows + 2) * SINGLE_ROUNDOFF
    ensure(roundings < 1 / 2, "single precision has room for so many terms")
    part = SINGLE_ROUNDOFF / (1 - roundings) * sqrt(rows * deepest_squares(rows)) * bound
    part += rows * sqrt(dimension) * _UNDERFLOW
    truncated = sqrt(dimension) * ldexp(step, -part_bits)
    multiple = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    steps = ((multiple * bound + 2 * part + 2 * truncated) / step + sqrt(dimension)) * _ROUNDED_UP
    error = -(-terms // part_rows) * (part + truncated) * _ROUNDED_UP
    return Grid(step=step, sensitivity=ceil(steps), error=error, part_bits=part_bits)


def deepest_squares(leaves: int) -> int:
    """Return the most that the squares of (depth + 3), added over the leaves of a binary tree, come to.

    It is that of the tree which adds one leaf after the other, with depths 1, 2, ..., m - 1 and m - 1 again. Proof, for
    f(d) = (d + s)^2 and every s > 0, by induction. Take a tree of m >= 4 leaves with a and b of them on its sides, 2 <=
    a <= b. It has at most those of two such trees, one level down, with depths 2..a, a and 2..b, b; ours has 2..m-1,
    m-1 and 1 there. Without 2..b on both sides, the a - 1 depths 2..a are no more than b+1..m-1, f being increasing,
    and f(a) + f(b) <= f(m - 1) + f(1), f being convex and a + b = (m - 1) + 1. With a = 1 it is ours.
    """
    ensure(leaves > 0, "a tree has leaves")
    return (leaves + 2) ** 2 + sum((depth + 3) ** 2 for depth in range(1, leaves))


def norm_grid(grid: Grid) -> Grid:
    """Return the grid for the integer norm of a sum on another one, which is rounded down.

    Sensitivity. Norms of neighbours' integer sums differ by at most the sums' sensitivity s, and their floors by less
    than s + 1. (Whole numbers that do so differ by at most s, s being whole; the step is charged all the same.)
    """
    return replace(grid, sensitivity=grid.sensitivity + 1)


def round_parts(total: NDArray[np.int64], grid: Grid) -> NDArray[np.int64]:
    """Return the nearest grid points of a sum of parts, as integers of the same shape; ties go up."""
    ensure(total.dtype == np.int64, "parts add up as integers")
    ensure(grid.part_bits > 0, "this grid is for sums of parts")
    rounded = np.asarray(total + 2 ** (grid.part_bits - 1), dtype=np.int64)
    # A shift rounds down for both signs; with the half added, that is to the nearest.
    rounded >>= grid.part_bits
    return rounded


def from_grid(integers: NDArray[np.int64], grid: Grid) -> NDArray[np.float64]:
    """Return noisy integers in the units of the sum, float64, same shape; post-processing."""
    return integers.astype(np.float64) * grid.step


def integer_norm(integers: NDArray[np.int64]) -> int:
    """Return floor(sqrt(sum S_j^2)) exactly.

    Sensitivity: norms of neighbours differ by at most the integer sensitivity of S, their floors by at most one more.

    Time: each entry is cut into three parts of 21 bits, whose products add up in machine words. The time depends on
    shapes alone, except for the last root, of one number, where it varies by less than a microsecond.
    """
    squares, cut = 0, np.int64(2**_PART_BITS - 1)
    flat = np.abs(integers.ravel())
    for start in range(0, flat.size, _MOST_SQUARES):
        some = flat[start : start + _MOST_SQUARES]
        low, middle, high = some & cut, (some >> _PART_BITS) & cut, some >> 2 * _PART_BITS
        pairs = ((low, low), (low, middle), (low, high), (middle, middle), (middle, high), (high, high))
        for (one, other), place, times in zip(pairs, (0, 1, 2, 2, 3, 4), (1, 2, 2, 1, 2, 1), strict=True):
            squares += times * int(one @ other) << place * _PART_BITS
    return isqrt(squares)


def _is_size(value: float) -> bool:
    return isfinite(value) and value > 0
