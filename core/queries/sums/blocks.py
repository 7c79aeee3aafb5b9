"""Bounded sums over records, block by block, for problems whose terms are made of x and x x^T.

Every answer is arranged from sums of three kinds: of numbers, of numbers times x, and of numbers times x x^T, the
numbers being each record's own. A problem gives its numbers and arranges its answer from the sums; all walking over
records is here. No row is ever materialised, and X is read once a question.

Terms. With a record's numbers as floats, its exact term is a sum of products of at most four floats: two factors that
make up a number, and two entries. Each product is rounded at most three times on its way into a sum. A problem proves
that the exact term's norm is at most C (1 + 2^-12), inside the C / (1 - 2^-10) that the lattice charges, and, where it
claims so, that it is positive semidefinite.

Error. In a part of m rows, ordinary summation adds blocks of rows, and the products inside one, in some order. Every
term passes through at most three roundings for its products and m - 1 for additions. (Adding to zero is exact, and a
block's total enters one tree over m leaves.) Hence |float - exact| <= gamma_{m+2} m C in norm for any blocking and any
order (Higham 2002, section 3.1). Parts are then rounded and added as integers: the E that the lattice's bounded-error
route charges. Arranging an answer copies entries, mirrors them or leaves them out, in integers. (A product that
underflows errs by 2^-1074 times at most two entries of 2^400, far below the last bit that is charged, since no bound is
below 2^-100.)

Same integers. A part's rows, its blocks, and their addresses modulo 64 bytes do not depend on the other records here.
On equal processors with equal numbers of threads its float sum is therefore the same. A problem that holds only some
parts of the records contributes the very integers that these parts contribute to the whole.

Compiled sums (`core.queries.sums.passes`) are ordinary summation too. A margin's products, and a part's terms of a
coordinate or of an entry, are leaves of one tree each. The numbers of rows and of features decide the trees' shapes.
Adding a product is one rounding (a fused multiply-add), one less on every term's way, so the same gamma bounds them.
Each part is one thread's, and its floats are the same in any thread and on every processor that runs kernels.

On a GPU a block is many parts. One batched product makes the sums of all of them, each of its own rows. Public figures
decide the blocks: numbers of rows and features, and the memory that was free when the records came. All parts but one
are therefore the same for neighbours there, too. Several processes have other blocks, and other last bits.

Excluded rows count as zero, as do rows with an entry that is not finite, a norm beyond 2^400, or a target outside the
loss's domain. Their features, target, weight and norm are overwritten with zeros once. Row i's term depends on record
i, the points asked about and public shapes only.

Records of a list that are left out are overwritten with the same zeros in the copy that is summed, before any
arithmetic: they become equal to excluded rows (`core.queries.sums.terms.overwrite`). Where all rows are read under a
mask, those left out have weight zero. Their number is then zero, and each product a zero of either sign. In a sum that
changes at most the sign of a zero, and so no integer.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from math import inf

import numpy as np
import torch
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LARGEST_SUM
from core.losses.losses import Weights
from core.losses.losses_torch import counts_once, ordinary, record_weights
from core.privacy.facts import PART_UNITS, Facts
from core.queries.gradients import Gradient, LeastGradient, Question, Summed, summed
from core.queries.sums.parts_at_once import block_numbers, part_sums, sent
from core.queries.sums.terms import AnswerLayout, Factors, Point, Records, SumsByKind, size_of, split

BLOCK_NUMBERS = 2**18
"""Most numbers in a block of X: 2 MB, which stay in a core's cache between the two products."""

LARGEST_NORM = 2.0**400
"""A row beyond this counts as zero: its weight 1/|x|^2 would be a denormal number, whose rounding no margin covers."""

SMALLEST_BOUND = 2.0**-100
"""Clips below this are refused, for the same reason."""


class BlockProblem(ABC):
    """Records (x, y) behind an oracle: see `core.queries.sums.SyntheticProblem`.

    Args:
        features: float64, contiguous, shape (n, d), or (R, n, d) for synthetic replicates. They become this object's:
            rows that count as zero are overwritten with zeros, so that no second copy of the data is needed. All sums
            are made where they are: on the CPU or, for one set of records, a GPU.
        target: float64, shape (n,) or (R, n), on the same device.
        valid: bool, same shape and device; False marks a record that contributes nothing.
        weights: nothing open, on these features.
        dimension: p, the number of parameters.
        numbers: the most numbers of one record that a question makes; blocks are the smaller for it.
        diameter: the largest distance of two records' gradients, where it is less than twice their bound.
        offset: float64, shape of the target: added to x.theta; None: nothing.
        sampling: float64, shape of the target, 0 to 1: weight of each record; None: 1. A record of weight 0 is an
            excluded row.
    """

    def __init__(
        self,
        features: Tensor,
        target: Tensor,
        valid: Tensor,
        weights: Weights,
        dimension: int,
        *,
        numbers: int = 1,
        diameter: float | None = None,
        offset: Tensor | None = None,
        sampling: Tensor | None = None,
    ) -> None:
        ensure(features.dtype == torch.float64, "features are float64")
        ensure(target.dtype == torch.float64, "targets are float64")
        ensure(valid.dtype == torch.bool, "presence is boolean")
        ensure(features.ndim in (2, 3), "features have shape (n, d) or (R, n, d)")
        ensure(features.is_contiguous(), "blocks of rows are contiguous")
        ensure(target.shape == valid.shape == features.shape[:-1], "every record has a target and a presence")
        assert weights.bound is not None, "plan first"
        ensure(weights.bound >= SMALLEST_BOUND, "a weight bound is an ordinary positive number")
        self.dimension = dimension
        self._diameter = diameter
        for one in (offset, sampling):
            assert one is None or (one.dtype == torch.float64 and one.shape == target.shape), "one number a record"
        if offset is not None:
            valid = valid & offset.isfinite()
        if sampling is not None:
            valid = valid & counts_once(sampling)
        here = features.device.type == "cpu"
        most = BLOCK_NUMBERS if here else block_numbers(features.device)
        found = clean(features.view(-1, features.shape[-1]), valid.reshape(-1), most)
        norms, kept = (one.view(target.shape) for one in found)
        # A record's weight is at most what it was, so every bound holds as without sampling weights.
        scales = record_weights(norms, weights)
        scales = torch.where(kept, scales if sampling is None else ordinary(scales * sampling), 0.0)
        beside = (None if one is None else torch.where(kept, one, 0.0) for one in (offset, sampling))
        self._records = Records(features, torch.where(kept, target, 0.0), scales, norms, *beside)
        # A power of two, so that blocks tile parts, or parts them.
        rows = 1 << max(0, (most // max(features.shape[-1], numbers)).bit_length() - 1)
        self._rows_per_block = min(PART_UNITS, rows) if here else rows

    @abstractmethod
    def _layout(self, question: Summed) -> AnswerLayout:
        """Return what the answer is made of; public."""

    @abstractmethod
    def _factors(self, question: Summed, facts: Facts, records: Records, at: Point) -> Factors:
        """Return each record's numbers, clipped; zero where its weight is, and by selection where none is finite."""

    @abstractmethod
    def _arrange(self, question: Summed, sums: SumsByKind) -> Tensor:
        """Return the answer, shape (..., p) or (..., p, p), exactly symmetric, or (..., 1), by copying entries."""

    @property
    def units(self) -> int:
        """n, excluded rows included."""
        return self._records.features.shape[-2]

    @property
    def replicates(self) -> int | None:
        """R, or None for one set of records."""
        features = self._records.features
        return features.shape[0] if features.ndim == 3 else None  # noqa: PLR2004 - as shaped above

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Return the sum of clipped answers, int64, in steps; see `core.queries.sums.Problem`.

        Memory beyond the records is O(block + the answer). A list of points is one sum after the other.
        """
        ensure(self.replicates is None, "replicates are summed in floats")
        if isinstance(question, LeastGradient):
            one = question.gradient()
            sums = [self.integer_sum(one, facts, point, step, rows=rows, included=included) for point in theta]
            return torch.stack(sums)
        ensure(theta.shape == (self.dimension,), "parameters have shape (p,)")
        read = self.units if rows is None else len(rows)
        ensure(included is None or included.shape == (read,), "a mask is over what is read")
        question = summed(question)
        at = self._point(question, facts, theta, other)
        layout, width = self._layout(question), self._width
        together = max(1, BLOCK_NUMBERS // size_of(layout, width))
        total: Tensor | int = 0
        largest = self._records.features.new_zeros(())  # of all parts: a GPU is waited for once
        # What stays in here needs no gradients; a small sample's operations are short enough to notice.
        with torch.inference_mode():
            parts = self._parts(question, facts, at, rows, included)
            while some := list(islice(parts, together)):
                steps = torch.cat(some).div_(step) if len(some) > 1 else some[0].div_(step)
                largest = torch.maximum(largest, torch.linalg.vector_norm(steps, inf))
                integers = steps.round_().to(torch.int64)
                total = total + (integers.sum(0) if len(integers) > 1 else integers[0])
            ensure(float(largest) < LARGEST_SUM, "every part is finite and within its public bound")
            assert isinstance(total, Tensor), "there is one part at least"
            return self._arrange(question, SumsByKind(total, layout, width))

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum of clipped answers, float64, for simulations; see `core.queries.sums.SyntheticProblem`.

        Returns:
            The shapes of the answers, replicates first where a point or the records have them. Memory beyond the
            records is O(block), and O(R times the answer) for replicates.
        """
        ensure(theta.shape[-1] == self.dimension, "parameters have shape (..., p)")
        question = summed(question)
        at = self._point(question, facts, theta, other)
        if self.replicates is not None:
            shape = (self.replicates, self.dimension)
            replicates = Point(at.theta.expand(shape), None if at.other is None else at.other.expand(shape))
            return self._sum_replicates(question, facts, replicates)
        if theta.ndim > 1:
            return self._sum_shared(question, facts, at)
        layout = self._layout(question)
        total = at.theta.new_zeros(size_of(layout, self._width))
        for parts in self._parts(question, facts, at, None, None):
            total += parts.sum(0)
        return self._arrange(question, SumsByKind(total, layout, self._width))

    def block_rows(self, question: Question, facts: Facts) -> int:
        """Return after how many rows of a list a part ends: processes that hold all rows share lists there."""
        del question, facts  # all sums in double precision have the same parts
        return PART_UNITS

    @property
    def _width(self) -> int:
        """The number of features, d."""
        return self._records.features.shape[-1]

    def _point(self, question: Summed, facts: Facts, theta: Tensor, other: Tensor | None) -> Point:
        """Check what is promised of an answer and where it is asked."""
        ensure(question.bound(facts) >= SMALLEST_BOUND, "a clip is an ordinary positive number")
        if isinstance(question, Gradient) and question.diameter(facts) < 2 * question.bound(facts):
            assert self._diameter is not None, "no diameter is proved here"
            ensure(self._diameter <= question.diameter(facts), "gradients may lie as far apart as is proved")
        ensure(theta.dtype == torch.float64, "parameters are float64")
        ensure((other is not None) == (question.places == "pair"), "pairs are asked at two points, all else at one")
        there = sent(theta, self._records.features.device)
        if other is None:
            return Point(there)
        ensure(other.dtype == torch.float64, "parameters are float64")
        ensure(other.shape == theta.shape, "two points have one shape")
        return Point(there, sent(other, there.device))

    def _blocks(self, rows: Tensor | None, included: Tensor | None) -> Iterator[Records]:
        """Yield records block by block, where they are; records left out get weight zero."""
        size, records = self._rows_per_block, self._records
        rows, included = (None if one is None else sent(one, records.features.device) for one in (rows, included))
        if rows is not None:
            for part, *left in split(size, rows, *([] if included is None else [included])):
                yield records.listed(part, left[0] if left else None)
            return
        if included is not None:
            records = records._replace(weights=torch.where(included, records.weights, 0.0))
        for block in split(size, *records.tensors):
            yield records.of(block)

    def _parts(
        self, question: Summed, facts: Facts, at: Point, rows: Tensor | None, included: Tensor | None
    ) -> Iterator[Tensor]:
        """Yield the float sums of some parts, shape (parts, entries), over one set of records at one point."""
        layout, width = self._layout(question), self._width
        if self._rows_per_block > PART_UNITS:
            for block in self._blocks(rows, included):
                yield part_sums(block.features, self._factors(question, facts, block, at))
            return
        blocks_per_part = PART_UNITS // self._rows_per_block
        total = SumsByKind(at.theta.new_zeros(size_of(layout, width)), layout, width)
        for number, block in enumerate(self._blocks(rows, included), start=1):
            _add(total, block.features, self._factors(question, facts, block, at))
            if number % blocks_per_part == 0:
                yield total.flat.unsqueeze(0)
                total = total._replace(flat=torch.zeros_like(total.flat))
        yield total.flat.unsqueeze(0)

    def _sum_shared(self, question: Summed, facts: Facts, at: Point) -> Tensor:
        """Sum over one set of records at many points, shape (R, p)."""
        replicates, width = at.theta.shape[0], self._width
        layout = self._layout(question)
        total = at.theta.new_zeros(replicates, size_of(layout, width))
        size = max(1, BLOCK_NUMBERS // max(replicates * sum(layout), width * width))
        for block in split(size, *self._records.tensors):
            records = self._records.of(block)
            x, factors = records.features, self._factors(question, facts, records, at)
            if factors.plain is not None:
                SumsByKind(total, layout, width).plain.add_(factors.plain.sum(-1))
            if factors.linear is not None:
                SumsByKind(total, layout, width).linear.add_(factors.linear @ x)
            if factors.outer is not None:
                squares = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(1)
                sums = SumsByKind(total, layout, width).outer
                sums.add_((factors.outer @ squares).view(sums.shape))
        return self._arrange(question, SumsByKind(total, layout, width))

    def _sum_replicates(self, question: Summed, facts: Facts, at: Point) -> Tensor:
        """Sum over many sets of records, each at its own point, shape (R, p); some replicates at a time."""
        layout, width = self._layout(question), self._width
        size = max(1, BLOCK_NUMBERS // (self.units * max(width, sum(layout))))
        points = (at.theta,) if at.other is None else (at.theta, at.other)
        sums: list[Tensor] = []
        known = len(self._records.tensors)
        for some in split(size, *self._records.tensors, *points):
            records = self._records.of(some[:known])
            x, factors = records.features, self._factors(question, facts, records, Point(*some[known:]))
            total = x.new_zeros(x.shape[0], size_of(layout, width))
            found = SumsByKind(total, layout, width)
            if factors.plain is not None:
                found.plain.copy_(factors.plain.sum(-1))
            if factors.linear is not None:
                found.linear.copy_(torch.bmm(factors.linear, x))
            if factors.outer is not None:
                for number in range(layout.outer):
                    found.outer[:, number] = torch.bmm(x.mT, x * factors.outer[:, number].unsqueeze(-1))
            sums.append(total)
        return self._arrange(question, SumsByKind(torch.cat(sums), layout, width))


def margins(features: Tensor, coefficients: Tensor) -> Tensor:
    """Return x.b for every record and coefficient vector b.

    Args:
        features: shape (m, d), or (L, m, d) in replicates.
        coefficients: shape (J, d); (R, J, d) for many points about one set of records, (L, J, d) for replicates.

    Returns:
        Shape (J, m), replicates first.
    """
    if features.ndim == 3:  # noqa: PLR2004 - replicates
        return torch.bmm(coefficients, features.mT)
    if coefficients.shape[:-1] == (1,):
        return product(features, coefficients[0]).unsqueeze(0)
    if coefficients.shape[:-1] == (2,):
        # The block is in the cache, and threads share a matrix-vector product out better than so narrow a matrix.
        return torch.stack([product(features, one) for one in coefficients])
    return coefficients @ features.mT


def product(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return a matrix times a vector; on a CPU by numpy's BLAS, whose calls take about half the time of torch's."""
    if matrix.device.type == "cpu":
        with np.errstate(all="ignore"):  # a warning would tell of a record; what is not finite is selected away
            return torch.from_numpy(np.dot(matrix.numpy(), vector.numpy()))
    return torch.mv(matrix, vector)


def slopes(before: Tensor, after: Tensor, weights: Tensor, at: Point, bound: float) -> Tensor:
    """Return each record's mean slope of its loss from one point to the other.

    Args:
        before: the losses at theta, without weights, shape (..., m); not a number where one is not defined.
        after: the same at the other point.
        weights: shape (m,), or (L, m) in replicates.
        at: both points.
        bound: limit of slopes, which are clamped to it.

    Returns:
        Shape (..., m), zero where there is none, as between equal points.
    """
    assert at.other is not None, "a slope is between two points"
    distance = torch.linalg.vector_norm(at.other - at.theta, dim=-1, keepdim=True)
    slope = (after - before) * weights / distance
    return torch.where(slope.isfinite(), slope, 0.0).clamp_(-bound, bound)


def clean(features: Tensor, valid: Tensor, most: int = BLOCK_NUMBERS) -> tuple[Tensor, Tensor]:
    """Zero the rows that shall not count, in place.

    Args:
        features: shape (n, d).
        valid: bool, shape (n,).
        most: numbers that are read at a time.

    Returns:
        Upper bounds of the norms, shape (n,), and which rows count.
    """
    norms = torch.empty_like(valid, dtype=torch.float64)
    kept = torch.empty_like(valid)
    # The computed norm errs by less than (d + 8) 2^-53 relatively; see Higham 2002, section 3.1.
    upward = 1 + (features.shape[-1] + 8) * 2.0**-52
    size = max(1, most // features.shape[-1])
    for block, ok, norm, keep in split(size, features, valid, norms, kept):
        # Norms by the largest entry, so that huge and denormal rows neither overflow nor vanish.
        largest = block.abs().amax(-1)
        scaled = block / torch.where(largest > 0, largest, 1.0).unsqueeze(-1)
        computed = largest * torch.linalg.vector_norm(scaled, dim=-1) * upward
        keep.copy_(ok & (computed <= LARGEST_NORM))  # false for NaN
        norm.copy_(torch.where(keep, computed, 0.0))
        block.copy_(torch.where(keep.unsqueeze(-1), block, 0.0))
    return norms, kept


def _add(total: SumsByKind, x: Tensor, factors: Factors) -> None:
    """Add a block's sums, one set of records at one point."""
    if factors.plain is not None:
        total.plain.add_(factors.plain.sum(-1))
    if factors.linear is not None:
        if total.layout.linear == 1:
            total.linear[0].add_(product(x.T, factors.linear[0]))
        else:
            total.linear.addmm_(factors.linear, x)
    if factors.outer is not None:
        for matrix, numbers in zip(total.outer, factors.outer, strict=True):
            matrix.addmm_(x.T, x * numbers.unsqueeze(-1))
