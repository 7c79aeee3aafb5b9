"""Clipped sums for multinomial logistic regression: one linear predictor for every class but the baseline.

Let q = softmax(0, x.b_1, ..., x.b_{K-1}) and e_y be the observed class, both without the baseline's entry. A record's
gradient is w (q - e_y) kron x and its Hessian w (diag(q) - q q^T) kron x x^T. Parameters are the b_k, one after the
other. Every answer therefore consists of sums of numbers times x and numbers times x x^T: see
`core.queries.sums.blocks`.

Terms, of the very floats of a record:

* gradient s kron x: s_k = w (q_k - 1{y = k}), products of two. Up to K roundings |q - e_y| <= sqrt(2) (1 for two
  classes), and w |x| <= t. Clipping to C below that multiplies all s_k by one number and makes new floats of them.
* change of the gradient between two points: differences of two numbers s_k each, clipped to the cap as above: new
  floats again.
* Hessian: with c_kl = w q_k q_l rounded, the block (k, l) is -c_kl x x^T and the block (k, k) is d_k x x^T, products of
  three. Here d_k is the sum of c_kl over all other classes l, the baseline's included, rounded up. In the matrix of d_k
  and -c_kl each diagonal entry is at least the sum of its row's other entries in size. The matrix is therefore positive
  semidefinite, and so is its product with x x^T (not of rank one, which the lattice does not require). Rounding up
  raises the norm by less than K 2^-50, inside the margin; without it, the Frobenius norm is at most 1/2 (1/4 for two
  classes) times w |x|^2 <= t^2. Clipping to less multiplies w before any use of it.
* score v v^T, v = s kron x: entries s_k s_l x_i x_j, four floats and three roundings; rank one, |v|^2 <= B^2.
* slope: one float, clamped to [-B, B].
* error: one float, cut to [0, 1].

A record with a margin that is not finite has weight zero by selection. A slope between equal points is zero by
selection too.
"""

from itertools import combinations

import torch
from torch import Tensor

from core.losses.categorical import Multinomial
from core.losses.records import ordinary
from core.losses.weights import Clip, Mallows, curvature_bound, gradient_bound
from core.privacy.facts import Facts
from core.queries.errors import MeanError
from core.queries.gradients import Curvature, Gradient, GradientDifference, Secant, Summed
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums.blocks import margins, slopes
from core.queries.sums.looked_at import LookedAtProblem
from core.queries.sums.terms import (
    AnswerLayout,
    Factors,
    Point,
    Records,
    SumsByKind,
    constants,
    counted_errors,
    mirror,
)

NO_HESSIAN = "Hessians shortened to a norm are not offered for losses of several margins; the planner refuses them"


class MultinomialProblem(LookedAtProblem):
    """Records (x, y), y a code 0 .. K-1, 0 the baseline; parameters of shape (d (K-1),), class after class.

    Args:
        features: float64, contiguous, shape (n, d), or (R, n, d) for synthetic replicates; they become this object's.
        target: float64, shape (n,) or (R, n), on the same device; records with any other value count as null.
        present: bool, same shape and device; False marks an excluded row.
        loss: nothing open.
        weights: nothing open, on these features.
    """

    def __init__(
        self, features: Tensor, target: Tensor, present: Tensor, loss: Multinomial, weights: Mallows | Clip
    ) -> None:
        device = features.device
        others = loss.known_classes - 1
        self._others = others
        self._weighted = isinstance(weights, Mallows)
        self._gradient_bound = gradient_bound(loss, weights) if self._weighted else torch.inf
        self._curvature_bound = curvature_bound(loss, weights) or torch.inf
        self._codes = torch.arange(1, loss.known_classes, dtype=torch.float64, device=device).unsqueeze(-1)
        pairs = torch.tensor(list(combinations(range(loss.known_classes), 2)), device=device)
        self._pairs = pairs
        # Which pairs each class but the baseline is in, shape (K - 1, pairs); those without the baseline come last.
        self._member = (pairs.T.unsqueeze(1) == self._codes).any(0).to(torch.float64)
        valid = present & (target >= 0) & (target <= others) & (target == target.floor())
        super().__init__(features, target, valid, weights, others * features.shape[-1], numbers=len(pairs))

    def _layout(self, question: Summed) -> AnswerLayout:
        match question:
            case Gradient() | GradientDifference():
                return AnswerLayout(linear=self._others)
            case Secant() | MeanError():
                return AnswerLayout(plain=1)
            case Hessian() | HessianProduct():
                raise AssertionError(NO_HESSIAN)
            case Curvature():
                return AnswerLayout(outer=len(self._pairs))

    def _arrange(self, question: Summed, sums: SumsByKind) -> Tensor:
        """Put class after class; of matrices, every class's own block came first."""
        match question:
            case Gradient() | GradientDifference():
                return sums.linear.flatten(-2)
            case Secant() | MeanError():
                return sums.plain
            case Hessian() | HessianProduct():
                raise AssertionError(NO_HESSIAN)
            case Curvature():
                *replicates, _, width, _ = sums.outer.shape
                blocks = sums.outer.new_zeros(*replicates, self._others, self._others, width, width)
                for place, (row, column) in enumerate(self._places()):
                    blocks[..., row, column, :, :] = sums.outer[..., place, :, :]
                matrix = blocks.transpose(-3, -2).reshape(*replicates, self.dimension, self.dimension)
                return mirror(matrix)

    def _factors(self, question: Summed, facts: Facts, records: Records, at: Point) -> Factors:
        """Return each record's numbers, clipped."""
        bound = question.bound(facts)
        match question:
            case Gradient():
                return Factors(linear=self._scores(bound, records, at.theta))
            case GradientDifference():
                assert at.other is not None, "two points"
                clip = question.gradient_clip(facts)
                before, after = (self._scores(clip, records, point) for point in (at.theta, at.other))
                return Factors(linear=_shrunk(after - before, bound, records))
            case Secant():
                assert at.other is not None, "two points"
                before, after = (self._loss(records, point) for point in (at.theta, at.other))
                return Factors(plain=slopes(before, after, records.weights, at, bound).unsqueeze(-2))
            case MeanError():
                return Factors(plain=counted_errors(records, self._distances(records, at.theta)).unsqueeze(-2))
            case Curvature(of="hessian"):
                return Factors(outer=self._bends(bound, records, at.theta))
            case Curvature(of="score"):
                scores = self._scores(facts.gradient_bound, records, at.theta)
                rows, columns = constants(tuple(zip(*self._places(), strict=True)), scores.device, torch.int64)
                return Factors(outer=scores.index_select(-2, rows) * scores.index_select(-2, columns))
        raise AssertionError("no bound is known of how fast these Hessians change; none may be asked")

    def _places(self) -> list[tuple[int, int]]:
        """Return rows and columns of the blocks on and above the diagonal, in the order of their sums."""
        return [(own, own) for own in range(self._others)] + list(combinations(range(self._others), 2))

    def _margins(self, records: Records, theta: Tensor) -> Tensor:
        """Return those of all classes, the baseline's zero first, shape (..., K, m)."""
        found = margins(records.features, theta.view(*theta.shape[:-1], self._others, -1))
        return torch.cat((torch.zeros_like(found[..., :1, :]), found), -2)

    def _probabilities(self, records: Records, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return q of all classes, shape (..., K, m), and weights that are zero where there is none."""
        margin = self._margins(records, theta)
        finite = margin.isfinite().all(-2)
        # Zeros before the softmax: of one infinite margin it makes NaN, which no weight takes away.
        chances = ordinary(torch.softmax(torch.where(finite.unsqueeze(-2), margin, 0.0), -2))
        return chances, torch.where(finite, records.weights, 0.0)

    def _distances(self, records: Records, theta: Tensor) -> Tensor:
        """Return half the squared distance of each record's probabilities from its class; not a number where none."""
        chances = torch.softmax(self._margins(records, theta), -2)
        codes = torch.arange(self._others + 1, dtype=torch.float64, device=chances.device).unsqueeze(-1)
        seen = (records.target.unsqueeze(-2) == codes).to(torch.float64)
        return (chances - seen).square().sum(-2) / 2

    def _scores(self, bound: float, records: Records, theta: Tensor) -> Tensor:
        """Return the numbers s_k of each record's gradient s kron x, clipped to a norm."""
        chances, weights = self._probabilities(records, theta)
        seen = (records.target.unsqueeze(-2) == self._codes).to(torch.float64)
        scores = (chances[..., 1:, :] - seen) * weights.unsqueeze(-2)
        if bound < self._gradient_bound:  # public; otherwise the weights have clipped already
            return _shrunk(scores, bound, records)
        return scores

    def _bends(self, bound: float, records: Records, theta: Tensor) -> Tensor:
        """Return the numbers d_k, then -c_kl for k < l, of each record's Hessian, clipped to a norm."""
        chances, weights = self._probabilities(records, theta)
        first, second = self._pairs.T
        shared = chances[..., first, :] * chances[..., second, :]
        if bound < self._curvature_bound:  # public, as above
            own, beside = self._laplacian(shared)
            length = (own.square().sum(-2) + 2 * beside.square().sum(-2)).sqrt_() * weights
            weights = weights * (bound / (length * records.norms.square())).clamp_(max=1.0)
        return torch.cat(self._laplacian(shared * weights.unsqueeze(-2)), -2)

    def _laplacian(self, shared: Tensor) -> tuple[Tensor, Tensor]:
        """Return d_k and -c_kl of c_kl for all pairs."""
        upward = 1 + (self._others + 1) * 2.0**-50
        return (self._member @ shared) * upward, -shared[..., self._others :, :]

    def _loss(self, records: Records, theta: Tensor) -> Tensor:
        """Return each record's loss before its weight; not a number where it is not defined."""
        margin = self._margins(records, theta)
        code = records.target.to(torch.int64).unsqueeze(-2)
        seen = margin.gather(-2, code.expand(*margin.shape[:-2], 1, margin.shape[-1])).squeeze(-2)
        return torch.logsumexp(margin, -2) - seen


def _shrunk(scores: Tensor, bound: float, records: Records) -> Tensor:
    """Return the numbers of s kron x, shape (..., K - 1, m), clipped to a norm."""
    length: Tensor = torch.linalg.vector_norm(scores, dim=-2) * records.norms
    return scores * (bound / length).clamp_(max=1.0).unsqueeze(-2)
