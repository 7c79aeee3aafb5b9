"""Clipped sums for linear predictors in closed form: two matrix-vector products a gradient, X read once.

A change of gradients between two points takes one product more, with X still read once.

Every term is a number, or a number times x or x x^T, so clipping needs |number| * |x| only and no row is ever
materialised.

Terms. For the gradient, g_i = score * weight is one float64. The weights are made once from the very values that enter
the products. They give |g_i| |x_i| <= C; where C is below the loss's own bound, clipping g_i does. The term g_i x_i is
a product of two floats, with an exact norm of at most C (1 + 2^-12), inside the C / (1 - 2^-10) that the lattice
charges. For its change between two points, g_i is the difference of two such numbers, each clipped to C/|x_i|, rounded
once and clipped to cap/|x_i|. It is one float64 again, with a term of norm at most the cap (1 + 2^-12), for any
rounding before the last clip. For the matrices, g_i is curvature * weight, or (score * weight)^2, or weight * |x_i|,
with 0 <= g_i |x_i|^2 <= bound by clipping. The term g_i x_ij x_ik is a product of three, and the exact terms are
positive semidefinite of rank one. For the Hessian of any loss g_i = curvature * weight with |g_i| |x_i|^2 <= M by
clipping, of either sign and still of rank one. For its product with v, g_i = curvature * weight * (x_i.v), one float64
with |g_i| |x_i| <= M, for any roundings before the clip. For a slope between two points, g_i itself is the term,
clipped to [-B, B]. An error is cut to [0, 1]. `core.queries.sums.blocks` has the order of addition, its error, and the
rule for excluded rows.

Schweppe weights stand inside the loss, phi((y - x.b) v/scale), which is the unweighted loss of v y and v x. Rows and
targets are therefore scaled once, when the object is made, and all of the above holds for the scaled ones; |v x| <= C
up to three roundings. Clipped gradients are those of the unweighted loss, and their limit is the facts' bound.

An offset is added to a margin before any score is made of it; scores, curvatures and slopes keep their bounds for
every margin, so nothing above changes. A product with v has none. Sampling weights are in the weights, and at most 1.

A margin or score that is not finite gives a zero factor by selection, at that point, and so does a slope that is not. A
weighted score or curvature below LEAST_NUMBER gives zero too: the time of its products would reveal facts about the
record.

The choice of code depends on public numbers and on the installation, so it is the same for neighbours. With kernels
built and records as one set on a CPU, `core.queries.sums.passes` makes every sum in double precision, of all records or
of a list. The numbers of rows and of features decide its order, so one process and several make the same integers.
There changes of gradients and second moments are clipped by an inverse of the norm that was rounded
once: g_i |x_i|^2 passes the bound by a few roundings more, far inside 2^-12. Else the walk over blocks does. There a
gradient over one block on a CPU takes less time than the calls of the walk. `core.queries.sums.short` makes it by the
same operations in the same order, so with the same floats and integers. Gradients of steps on samples are in single
precision where the facts say so: `core.queries.sums.single`.
"""

from functools import partial
from math import inf
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LEAST_NUMBER
from core.losses.records import ordinary, per_record
from core.losses.registry import Loss
from core.losses.weights import Clip, Schweppe, Weights, gradient_bound
from core.privacy.facts import Facts
from core.queries.errors import MeanError
from core.queries.gradients import (
    Curvature,
    Gradient,
    GradientDifference,
    GradientNorm,
    Looked,
    Question,
    Secant,
    Summed,
    summed,
)
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums import rows as compiled
from core.queries.sums.along import along, along_both, errors_at, margin_of, shifted
from core.queries.sums.blocks import SMALLEST_BOUND, slopes
from core.queries.sums.looked_at import LookedAtProblem
from core.queries.sums.passes import BlockSums, FactorSums, add_parts
from core.queries.sums.rows import Score
from core.queries.sums.short import ClippedRecords, limits
from core.queries.sums.single import BLOCK_ROWS, PART_ROWS, SingleRecords
from core.queries.sums.terms import AnswerLayout, Factors, Point, Records, SumsByKind, mirror

Array = NDArray[np.float64]

_UPWARD = 1 + 2.0**-50
"""Above the roundings of a quotient, its product with an entry, and that with a norm."""


class LinearProblem(LookedAtProblem):
    """Records (x, y) with a loss of the margin x.theta, and weights.

    Args:
        features: float64, contiguous, shape (n, p), or (R, n, p) for synthetic replicates; they become this object's.
        target: float64, shape (n,) or (R, n), on the same device.
        present: bool, same shape and device; False marks an excluded row.
        loss: of one margin, at a known scale, nothing open; a scale is in the units of `target`.
        weights: nothing open, on these features.
        offset: float64, shape of the target, on the same device: added to x.theta; None: nothing.
        sampling: the same, 0 to 1: weight of each record; None: 1.
    """

    def __init__(
        self,
        features: Tensor,
        target: Tensor,
        present: Tensor,
        loss: Loss,
        weights: Weights,
        *,
        offset: Tensor | None = None,
        sampling: Tensor | None = None,
    ) -> None:
        self.loss = per_record(loss)
        self._gradient_bound = inf if isinstance(weights, Clip) else gradient_bound(loss, weights)
        present = present & self.loss.valid(target)
        assert offset is None or not isinstance(weights, Schweppe), "a number's offset is taken from its target"
        super().__init__(features, target, present, weights, features.shape[-1], offset=offset, sampling=sampling)
        # x = 0 contributes zero to every sum, so it may count as null, whatever its target leads to.
        kept = torch.where(self._records.norms > 0, self._records.weights, 0.0)
        self._records = self._records._replace(weights=kept)
        if isinstance(weights, Schweppe):
            self._records = _inside(self._records, weights)
        self._is_plain = self.replicates is None and features.device.type == "cpu"
        # Short sums and those in single precision know of no offset; all others do.
        self._is_short = self._is_plain and offset is None
        self._beside: ClippedRecords | None = None
        self._inverses: Tensor | None = None
        self._limited: dict[type, tuple[tuple[float, ...], compiled.Block]] = {}
        self._asked: tuple[Question, Facts] | None = None
        self._single: SingleRecords | None = None

    @property
    def single_rows(self) -> int | None:
        """Number of rows in a part of a gradient in single precision, which facts may ask for; None: there is none."""
        return PART_ROWS if self._is_short else None

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

        A gradient in parts of `single_rows` rows where the facts say so.
        """
        if facts.part_rows is not None and not isinstance(question, Looked):
            return self._single_gradient(question, facts, theta, step, rows, included)
        read = self.units if rows is None else rows.shape[0]
        kernels = compiled.KERNELS if self._is_plain else None
        if isinstance(question, Gradient | GradientNorm):
            if kernels is not None or (self._is_short and read <= self._rows_per_block):
                fits = other is None and theta.shape == (self.dimension,)
                ensure(fits, "gradients are asked at one point, of shape (p,)")
                ensure(included is None or included.shape == (read,), "a mask is over what is read")
                beside = self._beside_for(question, facts, theta)
                if beside.compiled is not None:
                    return self._compiled_gradient(beside.compiled, theta, step, rows, included)
                return beside.gradient(self.loss.score, theta, step, rows, included)
        elif kernels is not None and isinstance(question, Summed):
            ensure(theta.shape == (self.dimension,), "parameters have shape (p,)")
            ensure(included is None or included.shape == (read,), "a mask is over what is read")
            at = self._point(question, facts, theta, other)
            block = self._limited_for(kernels, question, facts)
            if block is not None:
                bends = isinstance(question, Hessian) or (isinstance(question, Curvature) and question.of == "hessian")
                score, point = (
                    self.loss.curvature if bends else self.loss.score,
                    at.both() if other is not None else theta,
                )
                total = self._compiled_blocks(block, score, point, step, rows, included)
                return self._arrange(question, SumsByKind(total, self._layout(question), self._width))
            return self._compiled_sum(kernels, question, facts, at, step, rows, included)
        return super().integer_sum(question, facts, theta, step, other=other, rows=rows, included=included)

    def block_rows(self, question: Question, facts: Facts) -> int:
        """Return after how many rows of a list a part ends, and what is multiplied at a time in single precision."""
        return super().block_rows(question, facts) if facts.part_rows is None else BLOCK_ROWS

    def _single_gradient(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        rows: Tensor | None,
        included: Tensor | None,
    ) -> Tensor:
        """Return the sum in single precision, of records that are rounded once."""
        assert isinstance(question, Gradient), "only gradients are summed in single precision"
        ensure(facts.part_rows == self.single_rows, "parts are as large as is charged")
        ensure(theta.shape == (self.dimension,), "parameters have shape (p,)")
        self._point(question, facts, theta, None)
        if self._single is None:
            self._single = SingleRecords(self._records)
        return self._single.gradient(self.loss.score, theta, question.bound(facts), step, rows, included)

    def _compiled_gradient(
        self, block: compiled.Block, theta: Tensor, step: float, rows: Tensor | None, included: Tensor | None
    ) -> Tensor:
        """Return the sum over all blocks by kernels. One block is one call of each: its floats are those of several."""
        score, read = self.loss.score, block.units if rows is None else rows.shape[0]
        if 0 < read <= self._rows_per_block:
            if rows is None:
                return block.gradient(score, theta, step, included)
            return block.of(rows, included).gradient(score, theta, step, None)
        return self._compiled_blocks(block, score, theta, step, rows, included)

    def _compiled_blocks(
        self, block: compiled.Block, score: Score, at: Tensor, step: float, rows: Tensor | None, included: Tensor | None
    ) -> Tensor:
        """Return the sum over all blocks, of numbers that kernels make."""
        read = block.units if rows is None else rows.shape[0]
        make = partial(BlockSums, block, score, at, step, rows, included, block.rows)
        return add_parts(read, block.width, make, copied=rows is not None)

    def _compiled_sum(
        self,
        kernels: compiled.Kernels,
        question: Summed,
        facts: Facts,
        at: Point,
        step: float,
        rows: Tensor | None,
        included: Tensor | None,
    ) -> Tensor:
        """Return the sum over all blocks, of numbers that torch makes, by kernels."""
        # Half of what a cache holds: the next block comes meanwhile. Whole fours, of which blocks' sums are made.
        records, layout, size = self._records, self._layout(question), max(4, self._rows_per_block // 2)
        if rows is None and included is not None:
            records = records._replace(weights=torch.where(included, records.weights, 0.0))

        def factors(block: Records) -> Factors:
            return self._factors(question, facts, block, at)

        total = add_parts(
            self.units if rows is None else rows.shape[0],
            self._width,
            lambda: FactorSums(kernels, layout, records, factors, step, rows, included, size),
            copied=rows is not None,
        )
        return self._arrange(question, SumsByKind(total, layout, self._width))

    def _beside_for(self, question: Gradient | GradientNorm, facts: Facts, theta: Tensor) -> ClippedRecords:
        """Return the records with the limits of a question's clip; its public values are checked once."""
        last = self._asked
        if self._beside is not None and last is not None and last[0] is question and last[1] is facts:
            ensure(theta.dtype == torch.float64, "parameters are float64")
            return self._beside
        gradient = summed(question)
        assert isinstance(gradient, Gradient), "a norm is that of a gradient"
        self._point(gradient, facts, theta, None)
        bound = gradient.bound(facts)
        if self._beside is None or self._beside.bound != bound:
            # The bound is public; where the clip is none below it, the weights have clipped already.
            self._beside = ClippedRecords(self._records, bound, clips=bound < self._gradient_bound)
        self._asked = (question, facts)
        return self._beside

    def _limited_for(self, kernels: compiled.Kernels, question: Summed, facts: Facts) -> compiled.Block | None:
        """Return the records as kernels clip their terms; None: they clip no such ones."""
        kind: type[compiled.Differences | compiled.Moments] = compiled.Moments
        match question:
            case GradientDifference():
                # As for gradients: where the clip is none below the loss's own bound, the weights have clipped already.
                clip, kind = question.gradient_clip(facts), compiled.Differences
                limits = clip if clip < self._gradient_bound else inf, question.bound(facts)
            case Hessian(clip=clip):
                limits = clip, 0.0
            case Curvature(of="hessian" | "score"):
                limits = question.bound(facts), float(question.of == "score")
            case _:
                return None
        found = self._limited.get(kind)
        if found is None or found[0] != limits:
            if self._inverses is None:
                self._inverses = compiled.inverses(self._records)
            found = self._limited[kind] = limits, kind(kernels, self._records, self._inverses, *limits)
        return found[1]

    def _layout(self, question: Summed) -> AnswerLayout:
        match question:
            case Gradient() | GradientDifference() | HessianProduct():
                return AnswerLayout(linear=1)
            case Secant() | MeanError():
                return AnswerLayout(plain=1)
            case Curvature() | Hessian():
                return AnswerLayout(outer=1)
        assert_never(question)

    def _arrange(self, question: Summed, sums: SumsByKind) -> Tensor:
        match question:
            case Gradient() | GradientDifference() | HessianProduct():
                return sums.flat  # one number times x is all that was summed
            case Secant() | MeanError():
                return sums.plain
            case Curvature() | Hessian():
                return mirror(sums.outer[..., 0, :, :])
        assert_never(question)

    def _factors(self, question: Summed, facts: Facts, records: Records, at: Point) -> Factors:
        """Return each record's number g, clipped; its term is g, g x or g x x^T."""
        bound = question.bound(facts)
        ensure(bound >= SMALLEST_BOUND, "a clip is an ordinary positive number")
        match question:
            case Gradient():
                return Factors(linear=self._gradients(bound, records, margin_of(records, at.theta)).unsqueeze(-2))
            case GradientDifference():
                each = records.each(lambda one: one.unsqueeze(-2))._replace(features=records.features)
                margin = shifted(each, along_both(records, at))
                found = self._gradients(question.gradient_clip(facts), each, margin)
                return Factors(linear=_clipped(found[..., 1:, :] - found[..., :1, :], bound, each))
            case Secant() | MeanError():
                return Factors(plain=self._plain(question, bound, records, at).unsqueeze(-2))
            case Hessian(clip=clip):
                limit = clip / records.norms / records.norms
                factors = torch.clamp(self._bends(records, margin_of(records, at.theta)), -limit, limit)
                return Factors(outer=factors.unsqueeze(-2))
            case HessianProduct():
                assert at.other is not None, "a product is with a vector"
                turned = self._bends(records, margin_of(records, at.theta)) * along(records, at.other)
                turned = torch.where(turned.isfinite(), turned, 0.0)
                return Factors(linear=_clipped(turned, bound, records).unsqueeze(-2))
            case Curvature(of="hessian"):
                factors = self._bends(records, margin_of(records, at.theta))
            case Curvature(of="score"):
                factors = self._scores(records, margin_of(records, at.theta)).square_()
            case Curvature(of="cubic"):
                factors = (records.weights * records.norms).expand(*at.theta.shape[:-1], *records.norms.shape[-1:])
        return Factors(outer=torch.minimum(factors, bound / records.norms / records.norms).unsqueeze(-2))

    def _gradients(self, clip: float, records: Records, margin: Tensor) -> Tensor:
        """Return each record's number at a margin, shaped like it, clipped to a norm."""
        scores = self._scores(records, margin)
        # The bound is public; where the clip is none below it, the weights have clipped already.
        return _clipped(scores, clip, records) if clip < self._gradient_bound else scores

    def _bends(self, records: Records, margin: Tensor) -> Tensor:
        """Return weighted second derivatives at a margin, shaped like it."""
        # A margin that is not finite makes no number of its curvature, and what is no finite number is selected away.
        bends = (self.loss.curvature(margin, records.target) * records.weights).add_(margin, alpha=0.0)
        size = bends.abs()
        return torch.where((size >= LEAST_NUMBER) & (size < inf), bends, 0.0)

    def _scores(self, records: Records, margin: Tensor) -> Tensor:
        """Return weighted scores at a margin, shaped like it."""
        return ordinary(self._score(margin, records.target).mul_(records.weights))

    def _score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return scores at a margin without weights, shaped like it."""
        # A margin that is not finite makes no number of its score, and what is no finite number is selected away.
        score = self.loss.score(margin, target).add_(margin, alpha=0.0)
        return score.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    def _plain(self, question: Secant | MeanError, bound: float, records: Records, at: Point) -> Tensor:
        """Return each record's slope or error."""
        if isinstance(question, MeanError):
            return errors_at(question, records, at.theta)
        return self._slopes(records, at, bound)

    def _slopes(self, records: Records, at: Point, bound: float) -> Tensor:
        """Return how much the weighted loss rises from theta to the other point, for each unit of the way, clipped."""
        assert at.other is not None, "slopes are between two points"
        before, after = (self.loss.value(margin_of(records, point), records.target) for point in (at.theta, at.other))
        return slopes(before, after, records.weights, at, bound)


def _clipped(factors: Tensor, bound: float, records: Records) -> Tensor:
    """Return numbers, shape (..., m), whose products with x have at most a norm."""
    limit = limits(records, bound)
    return torch.clamp(factors, -limit, limit)


def _inside(records: Records, weights: Schweppe) -> Records:
    """Scale rows and targets by v(x) = min(1, C/|x|), in place where they are rows; norms stay upper bounds."""
    scales = (weights.known_bound / records.norms).clamp_(max=1.0)
    records.features.mul_(scales.unsqueeze(-1))
    return records._replace(target=records.target * scales, norms=records.norms * scales * _UPWARD)
