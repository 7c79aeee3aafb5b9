"""Clipped sums for linear predictors in closed form: two matrix-vector products a gradient, X read once.

Every term is (a number) times x or x x^T, so clipping needs |number| * |x| only and no row is ever materialised.

Terms. For the gradient, g_i = score * weight is one float64; |g_i| |x_i| <= C holds by the weights, which are made
once from the very values that enter the products, and by clipping g_i where C is below the loss's own bound. So the
term g_i x_i is a product of two floats and its exact norm is at most C (1 + 2^-12), inside the C / (1 - 2^-10) that the
lattice charges. For the curvature, g_i = curvature * weight (or (score * weight)^2) with 0 <= g_i |x_i|^2 <= bound, the
term g_i x_ij x_ik is a product of three, and the exact terms are positive semidefinite of rank one. How terms are
added, what that errs, and which records count are in `core.problems.blocks`.

A margin that is not finite gives a zero factor by selection.
"""

from math import inf

import torch
from torch import Tensor

from core.catalogue.losses import Clip, Loss, Weights, gradient_bound
from core.catalogue.questions import Curvature, Gradient, Question
from core.privacy.facts import Facts
from core.problems.blocks import (
    SMALLEST_BOUND,
    BlockProblem,
    Factors,
    Layout,
    Point,
    Records,
    Sums,
    margins,
    mirror,
)
from core.problems.losses import per_record


class LinearProblem(BlockProblem):
    """Records (x, y) with a loss of x.theta and Mallows weights.

    Args:
        features: float64, contiguous, shape (n, p), or (R, n, p) for synthetic lanes; they become this object's.
        target: float64, shape (n,) or (R, n), on the same device.
        present: bool, same shape and device; False marks a null record.
        loss: the loss, nothing open; a Huber scale is in the units of `target`.
        weights: nothing open, on these features.
    """

    def __init__(self, features: Tensor, target: Tensor, present: Tensor, loss: Loss, weights: Weights) -> None:
        self.loss = per_record(loss)
        self._gradient_bound = inf if isinstance(weights, Clip) else gradient_bound(loss, weights)
        super().__init__(features, target, present & self.loss.valid(target), weights, features.shape[-1])

    def _layout(self, question: Question) -> Layout:
        return Layout(linear=1) if isinstance(question, Gradient) else Layout(outer=1)

    def _arrange(self, question: Question, sums: Sums) -> Tensor:
        return sums.linear[..., 0, :] if isinstance(question, Gradient) else mirror(sums.outer[..., 0, :, :])

    def _factors(self, question: Question, facts: Facts, records: Records, at: Point) -> Factors:
        """Return each record's number g, clipped; its term is g x or g x x^T."""
        _, target, weights, norms = records
        margin = margins(records.features, at.theta.unsqueeze(-2)).squeeze(-2)
        finite = margin.isfinite()
        bound = question.bound(facts)
        assert bound >= SMALLEST_BOUND, "a clip is an ordinary positive number"
        match question:
            case Gradient():
                factors = torch.where(finite, self.loss.score(margin, target), 0.0).mul_(weights)
                if bound < self._gradient_bound:  # public; otherwise the weights have clipped already
                    limit = bound / norms  # infinite for null records, whose factor is zero
                    factors = torch.minimum(torch.maximum(factors, -limit), limit)
                return Factors(linear=factors.unsqueeze(-2))
            case Curvature(of="hessian"):
                factors = torch.where(finite, self.loss.curvature(margin, target), 0.0).mul_(weights)
                return Factors(outer=torch.minimum(factors, bound / norms / norms).unsqueeze(-2))
            case Curvature(of="score"):
                factors = torch.where(finite, self.loss.score(margin, target), 0.0).mul_(weights).square_()
                return Factors(outer=torch.minimum(factors, bound / norms / norms).unsqueeze(-2))
            case _:
                raise AssertionError(f"no answer to {question.kind} yet")
