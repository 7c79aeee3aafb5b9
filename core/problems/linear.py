"""Clipped sums for linear predictors in closed form: two matrix-vector products a gradient, X read once.

A change of gradients between two points takes one product more, with X still read once.

Every term is a number, or a number times x or x x^T, so clipping needs |number| * |x| only and no row is ever
materialised.

Terms. For the gradient, g_i = score * weight is one float64; |g_i| |x_i| <= C holds by the weights, which are made
once from the very values that enter the products, and by clipping g_i where C is below the loss's own bound. So the
term g_i x_i is a product of two floats and its exact norm is at most C (1 + 2^-12), inside the C / (1 - 2^-10) that the
lattice charges. For its change between two points, g_i is the difference of two such numbers, each clipped to C/|x_i|,
rounded once and clipped to cap/|x_i|: one float64 again, and a term of norm at most the cap (1 + 2^-12), whatever the
rounding before the last clip was. For the matrices, g_i = curvature * weight, or (score * weight)^2, or
weight * |x_i|, with 0 <= g_i |x_i|^2 <= bound by clipping, the term g_i x_ij x_ik is a product of three, and the exact
terms are positive semidefinite of rank one. For a slope between two points, g_i itself is the term, clipped to [-B, B].
How terms are added, what that errs, and which records count are in `core.problems.blocks`.

Schweppe weights stand inside the loss, phi((y - x.b) v/scale): it is the loss of v y and v x, unweighted, so rows and
targets are scaled once, when the object is made, and everything above holds for what they are then; |v x| <= C up to
three roundings. Clipped gradients are those of the unweighted loss, and their limit is the facts' bound.

A margin or score that is not finite gives a zero factor by selection, at that point, and so does a slope that is not.
"""

from math import inf
from typing import assert_never

import torch
from torch import Tensor

from core.catalogue.losses import Clip, Loss, Schweppe, Weights, gradient_bound
from core.catalogue.questions import Curvature, Gradient, GradientDifference, Secant, Summed
from core.privacy.facts import Facts
from core.problems.blocks import SMALLEST_BOUND, BlockProblem, margins, mirror, slopes
from core.problems.losses import per_record
from core.problems.terms import Factors, Layout, Point, Records, Sums

_UPWARD = 1 + 2.0**-50
"""Above the roundings of a quotient, its product with an entry, and that with a norm."""


class LinearProblem(BlockProblem):
    """Records (x, y) with a loss of the margin x.theta, and weights.

    Args:
        features: float64, contiguous, shape (n, p), or (R, n, p) for synthetic lanes; they become this object's.
        target: float64, shape (n,) or (R, n), on the same device.
        present: bool, same shape and device; False marks a null record.
        loss: of one margin, at a known scale, nothing open; a scale is in the units of `target`.
        weights: nothing open, on these features.
    """

    def __init__(self, features: Tensor, target: Tensor, present: Tensor, loss: Loss, weights: Weights) -> None:
        self.loss = per_record(loss)
        self._gradient_bound = inf if isinstance(weights, Clip) else gradient_bound(loss, weights)
        super().__init__(features, target, present & self.loss.valid(target), weights, features.shape[-1])
        # x = 0 contributes zero to every sum, so it may count as null, whatever its target leads to.
        kept = torch.where(self._records.norms > 0, self._records.weights, 0.0)
        self._records = self._records._replace(weights=kept)
        if isinstance(weights, Schweppe):
            self._records = _inside(self._records, weights)

    def _layout(self, question: Summed) -> Layout:
        match question:
            case Gradient() | GradientDifference():
                return Layout(linear=1)
            case Secant():
                return Layout(plain=1)
            case Curvature():
                return Layout(outer=1)
        assert_never(question)

    def _arrange(self, question: Summed, sums: Sums) -> Tensor:
        match question:
            case Gradient() | GradientDifference():
                return sums.flat  # one number times x is all that was summed
            case Secant():
                return sums.plain
            case Curvature():
                return mirror(sums.outer[..., 0, :, :])
        assert_never(question)

    def _factors(self, question: Summed, facts: Facts, records: Records, at: Point) -> Factors:
        """Return each record's number g, clipped; its term is g, g x or g x x^T."""
        bound = question.bound(facts)
        assert bound >= SMALLEST_BOUND, "a clip is an ordinary positive number"
        match question:
            case Gradient():
                return Factors(linear=self._gradients(bound, records, _margin(records, at.theta)).unsqueeze(-2))
            case GradientDifference():
                each = Records(*(one.unsqueeze(-2) for one in records))._replace(features=records.features)
                found = self._gradients(question.gradient_clip(facts), each, margins(records.features, at.both()))
                return Factors(linear=_clipped(found[..., 1:, :] - found[..., :1, :], bound, each))
            case Secant():
                return Factors(plain=self._slopes(records, at, bound).unsqueeze(-2))
            case Curvature(of="hessian"):
                margin = _margin(records, at.theta)
                factors = torch.where(margin.isfinite(), self.loss.curvature(margin, records.target), 0.0)
                factors = factors.mul_(records.weights)
            case Curvature(of="score"):
                factors = self._scores(records, _margin(records, at.theta)).square_()
            case Curvature(of="cubic"):
                factors = (records.weights * records.norms).expand(*at.theta.shape[:-1], *records.norms.shape[-1:])
        return Factors(outer=torch.minimum(factors, bound / records.norms / records.norms).unsqueeze(-2))

    def _gradients(self, clip: float, records: Records, margin: Tensor) -> Tensor:
        """Return each record's number at a margin, shaped like it, clipped to a norm."""
        scores = self._scores(records, margin)
        # The bound is public; where the clip is none below it, the weights have clipped already.
        return _clipped(scores, clip, records) if clip < self._gradient_bound else scores

    def _scores(self, records: Records, margin: Tensor) -> Tensor:
        """Return weighted scores at a margin, shaped like it."""
        # A margin that is not finite makes no number of its score, and what is no finite number is selected away.
        score = self.loss.score(margin, records.target).add_(margin, alpha=0.0)
        return score.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).mul_(records.weights)

    def _slopes(self, records: Records, at: Point, bound: float) -> Tensor:
        """Return how much the weighted loss rises from theta to the other point, for each unit of the way, clipped."""
        assert at.other is not None, "slopes are between two points"
        before, after = (self.loss.value(_margin(records, point), records.target) for point in (at.theta, at.other))
        return slopes(before, after, records.weights, at, bound)


def _margin(records: Records, theta: Tensor) -> Tensor:
    """Return x.theta for every record, lanes first."""
    if theta.ndim == 1:
        return torch.mv(records.features, theta)
    return margins(records.features, theta.unsqueeze(-2)).squeeze(-2)


def _clipped(factors: Tensor, bound: float, records: Records) -> Tensor:
    """Return numbers, shape (..., m), whose products with x have at most a norm."""
    limit = records.norms.reciprocal().mul_(bound)  # infinite for null records, whose factor is zero
    return torch.clamp(factors, -limit, limit)


def _inside(records: Records, weights: Schweppe) -> Records:
    """Scale rows and targets by v(x) = min(1, C/|x|), in place where they are rows; norms stay upper bounds."""
    assert weights.bound is not None, "plan first"
    scales = (weights.bound / records.norms).clamp_(max=1.0)
    records.features.mul_(scales.unsqueeze(-1))
    return records._replace(target=records.target * scales, norms=records.norms * scales * _UPWARD)
