"""Gradients of linear predictors in single precision, for steps on samples.

Most of such a step's time goes to fetching records from all over the memory. A record therefore lies in one run of
bytes here, in cache lines of its own: its features in single precision, and beside them the inputs of its number, in
double. A sum is that of parts of few rows, each added up in single precision and rounded to integers: `network_grid`
charges for them.

Terms. A record's features are its own, rounded to single precision once, when the object is made, those below
LEAST_SINGLE to zero; a row of a norm beyond LARGEST counts as zero. Its margin is one product in single precision. Its
number is the loss's score there, in double precision, weighted, clipped to C over an upper bound of the rounded row's
norm and to LARGEST, and rounded to single precision. The term is thus a product of two floats, no factor exceeds 2^41,
and its exact norm is at most C (1 + 2^-24), inside the charged C / (1 - 2^-10). (Where that rounding underflows it errs
by 2^-109 at most.) All this holds whatever margin and score were. Scores that are not finite are zero by selection, and
weighted ones below LEAST_SINGLE, so that no product is denormal; every feature in here is finite.

Excluded rows are zeros in features, target, weight and inverse. Records that are left out are overwritten with zeros
when they are read, before any arithmetic.

Error. A term passes through one rounding for its product and m - 1 for additions in a part of m = PART_ROWS rows: less
than is charged.

Same floats. A row's margin, and a part's sum, are made from those rows alone, in an order that public shapes decide;
rows lie at multiples of 64 bytes. Neighbours differ in the part that holds the changed record's slot, and in no other
integers.

Compiled sums (`core.queries.sums.rows`) read the records of a list where they stand, in the order of the list, and ask
the memory for those that come soon, whichever they are. They add up four rows of a part at a time, m - 1 additions at
most on any term's way, and multiply and add in two roundings. The charge covers any order. Numbers are made by the same
operations in double precision, so a term is the same up to its margin's last bits, whatever those are.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LARGEST_SUM, LEAST_SINGLE, SMALLEST_SINGLE_STEP
from core.queries.sums import rows as compiled
from core.queries.sums.rows import Score, place
from core.queries.sums.terms import Records, overwrite

PART_ROWS: Final = 32
"""More would let sums err by more, of which less than two parts in ten thousand are charged now."""

SMALLEST_CLIP: Final = 2.0**-30
"""Clips below this are for double precision: beside them products that underflow would count."""

LARGEST: Final = 2.0**40
BLOCK_ROWS: Final = 2**12
"""Rows that are summed at a time where all are: a multiple of a part's."""

_BESIDE: Final = 3
"""Numbers beside a record's features: target, weight, and one over the norm."""

_LINE_NUMBERS: Final = 8
"""Doubles in a cache line."""

_UPWARD: Final = 1 + 2.0**-22
_LEAST: Final = 2.0**-130
"""Above what rounding adds to a norm: a quarter of _UPWARD's excess, and 2^-150 for each entry that underflows."""

Array = NDArray[np.float64]


class SingleRecords:
    """Records in single precision, one to a row, with rows of zeros behind them that fill the last part.

    Takes 4 bytes for each feature and 24 for each record, rounded up to cache lines.

    Args:
        records: on a CPU, without replicates; they are read only.
    """

    def __init__(self, records: Records) -> None:
        self.units, self._width = records.features.shape
        self._first = -(-self._width // 2)
        row = -(-(self._first + _BESIDE) // _LINE_NUMBERS) * _LINE_NUMBERS
        table = torch.zeros(-(-self.units // PART_ROWS) * PART_ROWS, row, dtype=torch.float64)  # torch aligns to lines
        kept = (records.norms <= LARGEST) & (records.weights > 0)  # all others are zeros, as excluded rows are
        features = table.view(torch.float32)[: self.units, : self._width]
        features.copy_(records.features).masked_fill_(~kept.unsqueeze(-1), 0.0)
        for block in features.split(BLOCK_ROWS):  # type: ignore[no-untyped-call] # torch's stub has no types
            block.masked_fill_(block.abs() < LEAST_SINGLE, 0.0)
        beside = table[: self.units, self._first : self._first + _BESIDE]
        several = records.target, records.weights, (records.norms * _UPWARD + _LEAST).reciprocal_()
        for column, numbers in zip(beside.T, several, strict=True):
            column.copy_(torch.where(kept, numbers, 0.0))
        self._table: Array = table.numpy()
        self._listed: Array = self._table[:0]
        self._compiled = None if compiled.KERNELS is None else _Compiled(compiled.KERNELS, table, self._width)

    def gradient(
        self,
        score: Score,
        theta: Tensor,
        bound: float,
        step: float,
        rows: Tensor | None,
        included: Tensor | None,
    ) -> Tensor:
        """Return the sum of clipped gradients, int64, shape (p,), in steps.

        Args:
            score: of a loss at margins and targets, float64.
            theta: float64, shape (p,).
            bound: C.
            step: a power of two.
            rows: as `core.queries.sums.Problem` has them; parts are then those of the list.
            included: as above.
        """
        ensure(bound >= SMALLEST_CLIP, "a clip is an ordinary positive number")
        ensure(SMALLEST_SINGLE_STEP < step < 1 / SMALLEST_SINGLE_STEP, "single precision holds a step and its inverse")
        read = self.units if rows is None else len(rows)
        ensure(included is None or included.shape == (read,), "a mask is over what is read")
        if self._compiled is not None:
            return self._compiled.gradient(score, theta, bound, step, rows, included, self.units)
        left = None if included is None else included.numpy()
        table = self._table if rows is None else self._copied(rows.numpy(), left)
        total = np.zeros(self._width, dtype=np.int64)
        # No warning tells of a record, and what is not finite is selected away.
        with torch.inference_mode(), np.errstate(all="ignore"):
            at = np.where(np.abs(theta.numpy()) < LEAST_SINGLE, 0.0, theta.numpy()).astype(np.float32)
            for block in _blocks(table, left if rows is None else None):
                features = block.view(np.float32)[:, : self._width]
                target, weights, inverse = block[:, self._first : self._first + _BESIDE].T
                margin = np.matmul(features, at).astype(np.float64)
                numbers = numbers_of(score, margin, target.copy(), weights, None, LEAST_SINGLE)
                limit = inverse * bound
                np.minimum(limit, LARGEST, out=limit)
                np.minimum(numbers, limit, out=numbers)
                np.maximum(numbers, np.negative(limit, out=limit), out=numbers)
                parts = np.matmul(
                    numbers.astype(np.float32).reshape(-1, 1, PART_ROWS), features.reshape(-1, PART_ROWS, self._width)
                )
                parts = parts.reshape(-1, self._width)
                parts *= np.float32(1 / step)
                flat = parts.reshape(-1)
                # A sum of squares bounds each number in one pass, and NaN fails the comparison.
                ensure(np.dot(flat, flat) < LARGEST_SUM**2, "every part is finite and within its public bound")
                total += parts.astype(np.int64).sum(0)
        return torch.from_numpy(total)

    def _copied(self, rows: NDArray[np.int64], included: NDArray[np.bool_] | None) -> Array:
        """Return the records of a list, and rows of zeros that fill its last part, until the next one is asked for.

        Zeros stand in place of records that are left out.
        """
        ensure(0 <= rows.min() <= rows.max() < self.units, "a list names records")
        filled = -(-len(rows) // PART_ROWS) * PART_ROWS
        if len(self._listed) != filled:
            self._listed = torch.zeros(filled, self._table.shape[1], dtype=torch.float64).numpy()
        # The list before this one may have left records there.
        self._listed[len(rows) :] = 0.0
        # NumPy would buffer `out` in its default mode; the numbers are checked above.
        self._table.take(rows, axis=0, out=self._listed[: len(rows)], mode="clip")
        if included is not None:
            overwrite(torch.from_numpy(self._listed[: len(rows)]), torch.from_numpy(included))
        return self._listed


class _Compiled:
    """The same sum in compiled code, which reads the records of a list where they stand.

    Args:
        kernels: all of them.
        table: as above.
        width: d.
    """

    def __init__(self, kernels: compiled.Kernels, table: Tensor, width: int) -> None:
        self._kernels, self._table = kernels, table
        self._width, self._stride = width, table.shape[1]
        self._in_row = (self._stride, width, -(-width // 2))
        self._room = torch.empty(2, BLOCK_ROWS, dtype=torch.float64)
        self._single = torch.empty(2, width, dtype=torch.float32)
        self._some = self._views(0)

    def _views(self, count: int) -> tuple[int, Tensor, Tensor]:
        """Return a count with room for as many margins and targets."""
        return count, self._room[0, :count], self._room[1, :count]

    def gradient(
        self,
        score: Score,
        theta: Tensor,
        bound: float,
        step: float,
        rows: Tensor | None,
        included: Tensor | None,
        units: int,
    ) -> Tensor:
        """Return what `SingleRecords.gradient` does."""
        read, theta, first = units if rows is None else rows.shape[0], theta.contiguous(), self._table.data_ptr()
        at = place(theta, torch.float64, self._width)
        listed = None if rows is None else place(rows, torch.int64, read)
        left = None if included is None else place(included, torch.bool, read)
        rounded, part = self._single.data_ptr(), self._single[1].data_ptr()
        total = torch.zeros(self._width, dtype=torch.int64)
        for start in range(0, read, BLOCK_ROWS):
            count = min(BLOCK_ROWS, read - start)
            if count != self._some[0]:
                self._some = self._views(count)
            _, margin, target = self._some
            table = first if rows is not None else first + 8 * self._stride * start
            some = None if listed is None else listed + 8 * start
            kept = None if left is None else left + start
            wrong = self._kernels.single_margins(
                table, *self._in_row, units, some, kept, count, at, rounded, margin.data_ptr(), target.data_ptr()
            )
            ensure(not wrong, "a list names records")
            scores = score(margin, target)  # a name of its own: it must last as long as its place is used
            broken = self._kernels.single_sum(
                table,
                *self._in_row,
                some,
                count,
                place(scores, torch.float64, count),
                margin.data_ptr(),
                kept,
                bound,
                LARGEST,
                1 / step,
                LARGEST_SUM**2,
                part,
                total.data_ptr(),
            )
            ensure(not broken, "every part is finite and within its public bound")
        return total


def numbers_of(
    score: Score, margin: Array, target: Array, weights: Array, included: NDArray[np.bool_] | None, least: float
) -> Array:
    """Return each record's weighted score, shape (m,), zero by selection where its margin or score is not finite.

    And where it is too small. Operations of numpy, whose calls take half the time of torch's; the margin is used up.

    Args:
        score: of a loss at margins and targets.
        margin: shape (m,).
        target: shape (m,), contiguous.
        weights: shape (m,), finite, at most one.
        included: which records count; None: all.
        least: the size that it has at least.
    """
    numbers: Array = score(torch.from_numpy(margin), torch.from_numpy(target)).numpy()
    numbers *= weights
    margin *= 0.0  # a margin that is not finite makes no number of its score
    numbers += margin
    np.abs(numbers, out=margin)
    counted = (margin >= least) & (margin < inf)
    if included is not None:
        counted &= included
    return np.where(counted, numbers, 0.0)


def _blocks(table: Array, included: NDArray[np.bool_] | None) -> Iterator[Array]:
    """Yield rows, whole parts at a time; zeros stand in place of records that are left out, as behind the last one."""
    for start in range(0, len(table), BLOCK_ROWS):
        block = table[start : start + BLOCK_ROWS]
        if included is not None:
            some = torch.from_numpy(included[start : start + BLOCK_ROWS])
            block = torch.from_numpy(block).clone().numpy()
            overwrite(torch.from_numpy(block[: len(some)]), some)
        yield block
