"""Clipped sums for Huber regression whose residual scale is a parameter too: the last one, sigma.

With r = (y - x.b)/sigma and weights w, a record's loss is w (sigma rho_c(r) + kappa sigma/2). Its gradient is (a x, s),
a = -w psi_c(r) and s = w (kappa - psi_c(r)^2)/2, and sigma times its Hessian is w 1{|r| < c} u u^T with u = (x, r).
Every answer therefore consists of sums of numbers, numbers times x and numbers times x x^T: see
`core.queries.sums.blocks`.

Terms, of the very floats a, s, r and g = w 1{|r| < c} of a record, and of x:

* gradient (a x, s): products of at most two. In floats too |psi_c| <= c, and w |x| <= t, so |a| |x| <= t c; and s lies
  in w [(kappa - c^2)/2, kappa/2] for |psi_c|^2 <= c^2. Hence its norm is at most B, and two of them are at most the
  catalogue's diameter apart: 2 t c along x, c^2/2 along the scale. Both hold up to some roundings, inside the margin.
  Clipping to C < B multiplies a and s by one number and makes new floats of them, of norm at most C. A projection on a
  ball never increases distances.
* change of the gradient between two points: the differences of two numbers a and of two numbers s, clipped to the cap
  as above: new floats again, of norm at most the cap.
* Hessian g u u^T: entries g x_j x_k, g r x_j and g r r, three floats each, whatever was rounded on the way. Since g >=
  0 it is positive semidefinite of rank one, and g (|x|^2 + r^2) <= bound by the weights, |r| < c, and clipping g.
* score v v^T, v = (a x, s) the gradient: entries a a x_j x_k, a s x_j and s s. These are at most four floats and, with
  a a and a s rounded first, three roundings; rank one with |v|^2 <= B^2.
* slope: one float, clamped to [-B, B].

Where a scale is not positive and finite, the numbers of all records are zero by selection. Where a margin is not
finite, those of that record are. A slope between equal points is zero too.

Source: Avella-Medina, Bradshaw and Loh (2023), loss (6).
"""

import torch
from torch import Tensor

from core.base.errors import ensure
from core.losses.robust import Huber
from core.losses.weights import Mallows, gradient_bound, gradient_diameter
from core.privacy.facts import Facts
from core.queries.errors import MeanError
from core.queries.gradients import Curvature, Gradient, GradientDifference, Secant, Summed
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums.blocks import BlockProblem, margins, slopes
from core.queries.sums.terms import AnswerLayout, Factors, Point, Records, SumsByKind, mirror

NO_HESSIAN = "shortened Hessians and errors are not offered for losses of an unknown scale; the planner refuses them"


class JointProblem(BlockProblem):
    """Records (x, y), parameters (b, sigma): shape (d + 1,), the scale last.

    Args:
        features: float64, contiguous, shape (n, d), or (R, n, d) for synthetic replicates; they become this object's.
        target: float64, shape (n,) or (R, n), on the same device.
        present: bool, same shape and device; False marks an excluded row.
        loss: joint, nothing open.
        weights: nothing open, on these features.
        sampling: float64, shape of the target: weight of each record, 0 to 1; None: 1.
    """

    def __init__(
        self,
        features: Tensor,
        target: Tensor,
        present: Tensor,
        loss: Huber,
        weights: Mallows,
        *,
        sampling: Tensor | None = None,
    ) -> None:
        ensure(loss.joint, "with a known scale the predictor is linear")
        self._c = loss.c
        self._kappa = loss.kappa
        self._gradient_bound = gradient_bound(loss, weights)
        super().__init__(
            features,
            target,
            present & target.isfinite(),
            weights,
            features.shape[-1] + 1,
            numbers=3,
            diameter=gradient_diameter(loss, weights),
            sampling=sampling,
        )

    def _layout(self, question: Summed) -> AnswerLayout:
        match question:
            case Gradient() | GradientDifference():
                return AnswerLayout(plain=1, linear=1)
            case Secant():
                return AnswerLayout(plain=1)
            case Hessian() | HessianProduct() | MeanError():
                raise AssertionError(NO_HESSIAN)
            case Curvature():
                return AnswerLayout(plain=1, linear=1, outer=1)

    def _arrange(self, question: Summed, sums: SumsByKind) -> Tensor:
        """Put what belongs to the scale last."""
        match question:
            case Gradient() | GradientDifference():
                return torch.cat((sums.linear.squeeze(-2), sums.plain), -1)
            case Secant():
                return sums.plain
            case Hessian() | HessianProduct() | MeanError():
                raise AssertionError(NO_HESSIAN)
            case Curvature():
                beside = torch.cat((sums.outer.squeeze(-3), sums.linear.mT), -1)
                below = torch.cat((sums.linear, sums.plain.unsqueeze(-1)), -1)
                return mirror(torch.cat((beside, below), -2))

    def _factors(self, question: Summed, facts: Facts, records: Records, at: Point) -> Factors:
        """Return each record's numbers, clipped; those of v v^T are the products of v's."""
        bound = question.bound(facts)
        match question:
            case Gradient():
                along, scale = self._gradient(bound, records, at.theta)
                return _stacked(plain=scale, linear=along)
            case GradientDifference():
                return self._difference(question, facts, records, at)
            case Secant():
                assert at.other is not None, "two points"
                before, after = (self._loss(records, point) for point in (at.theta, at.other))
                return _stacked(plain=slopes(before, after, records.weights, at, bound))
            case Curvature(of="hessian"):
                residual, usable = self._residual(records, at.theta)
                inside = usable & (residual.abs() < self._c)
                residual = torch.where(inside, residual, 0.0)
                limit = bound / (records.norms.square() + residual.square())
                curved = torch.minimum(torch.where(inside, records.weights, 0.0), limit)
                bent = curved * residual
                return _stacked(plain=bent * residual, linear=bent, outer=curved)
            case Curvature(of="score"):
                along, scale = self._gradient(facts.gradient_bound, records, at.theta)
                return _stacked(plain=scale.square(), linear=along * scale, outer=along.square())
        raise AssertionError("no bound is known of how fast Hessians change with a scale; none may be asked")

    def _residual(self, records: Records, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return r, shape (..., m), and where it is defined."""
        margin = margins(records.features, theta[..., :-1].unsqueeze(-2)).squeeze(-2)
        scale = theta[..., -1:]
        usable = margin.isfinite() & (scale > 0) & scale.isfinite()
        return (records.target - margin) / scale, usable

    def _gradient(self, bound: float, records: Records, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers a and s of each record's gradient (a x, s), clipped to a norm."""
        residual, usable = self._residual(records, theta)
        cut = torch.where(usable, residual, 0.0).clamp_(-self._c, self._c)
        weights = torch.where(usable, records.weights, 0.0)
        along, scale = -cut * weights, (self._kappa - cut.square()) / 2 * weights
        if bound < self._gradient_bound:  # public; otherwise the weights have clipped already
            return _shrunk(along, scale, bound, records)
        return along, scale

    def _difference(self, question: GradientDifference, facts: Facts, records: Records, at: Point) -> Factors:
        """Return how the numbers of each record's clipped gradient change between two points, clipped to a norm."""
        assert at.other is not None, "two points"
        clip = question.gradient_clip(facts)
        before, after = (self._gradient(clip, records, point) for point in (at.theta, at.other))
        along, scale = _shrunk(after[0] - before[0], after[1] - before[1], question.bound(facts), records)
        return _stacked(plain=scale, linear=along)

    def _loss(self, records: Records, theta: Tensor) -> Tensor:
        """Return each record's loss before its weight; not a number where it is not defined."""
        residual, usable = self._residual(records, theta)
        size = residual.abs()
        cut = size.clamp(max=self._c)
        loss = theta[..., -1:] * (cut * (size - cut / 2) + self._kappa / 2)  # rho_c without its two branches
        return torch.where(usable, loss, torch.nan)


def _shrunk(along: Tensor, scale: Tensor, bound: float, records: Records) -> tuple[Tensor, Tensor]:
    """Return the numbers of (a x, s) clipped to a norm."""
    # A term of length zero divides to infinity, and the clamp makes one of it.
    shrink = (bound / torch.hypot(along * records.norms, scale)).clamp_(max=1.0)
    return along * shrink, scale * shrink


def _stacked(plain: Tensor | None = None, linear: Tensor | None = None, outer: Tensor | None = None) -> Factors:
    """Return one number a record of each kind."""
    return Factors(*(None if kind is None else kind.unsqueeze(-2) for kind in (plain, linear, outer)))
