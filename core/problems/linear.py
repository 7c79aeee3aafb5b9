"""Clipped sums for linear predictors in closed form: two matrix-vector products a gradient, X read once.

Every term is (a number) times x or x x^T, so clipping needs |number| * |x| only and no row is ever materialised.

Sums. For the gradient, g_i = score * weight is one float64; |g_i| |x_i| <= C holds by the weights, which are made
once from the very values that enter the products, and by clipping g_i where C is below the loss's own bound. So the
term g_i x_i is a product of two floats and its exact norm is at most C (1 + 2^-12), inside the C / (1 - 2^-10) that the
lattice charges. For the curvature, g_i = curvature * weight (or (score * weight)^2) with 0 <= g_i |x_i|^2 <= bound, the
term g_i x_ij x_ik is a product of three, and the exact terms are positive semidefinite of rank one.

Error. In a part of m rows, blocks of rows and the products inside one are added up in some order by ordinary summation:
every term passes through at most two roundings for its products and m - 1 for additions, since adding to zero is exact
and a block's total enters one tree over m leaves. So |float - exact| <= gamma_{m+2} m C in norm for any blocking and
any order (Higham 2002, section 3.1). Parts are then rounded and added as integers: the E that the lattice's
bounded-error route charges.

Same integers. A part's rows, its blocks, and where they lie in memory modulo 64 bytes are the same whatever else this
object holds, and so is its float sum on equal processors with equal numbers of threads. A problem that holds only some
parts of the records contributes the very integers that these parts contribute to the whole.

Null records, rows with an entry that is not finite or a norm beyond 2^400, and targets the loss is not defined for
count as zero: their features are overwritten with zeros once, and their factor is zero by selection. A margin that is
not finite gives a zero factor by selection too. Row i's term depends on record i, theta and public shapes only.
"""

from collections.abc import Iterator
from itertools import islice
from math import inf

import torch
from torch import Tensor

from core.catalogue.losses import Clip, Loss, Weights, gradient_bound
from core.catalogue.questions import Curvature, Gradient, Question
from core.privacy.facts import PART_UNITS, Facts
from core.problems.losses import per_record, record_weights

BLOCK_NUMBERS = 2**18
"""Most numbers in a block of X: 2 MB, which stay in a core's cache between the two products."""

GPU_BLOCK_NUMBERS = 2**24
"""The same where records live on a GPU: 128 MB, for fewer and larger products."""

LARGEST_NORM = 2.0**400
"""A row beyond this counts as zero: its weight 1/|x|^2 would be a denormal number, whose rounding no margin covers."""

SMALLEST_BOUND = 2.0**-100
"""Clips below this are refused, for the same reason."""

LARGEST_SUM = 2.0**62
"""Steps that no part may reach; what the lattice allows for is half of it."""


class LinearProblem:
    """Records (x, y) with a loss of x.theta and Mallows weights.

    Args:
        features: float64, contiguous, shape (n, p), or (R, n, p) for synthetic lanes. They become this object's: rows
            that count as zero are overwritten with zeros, so that no second copy of the data is needed. All sums are
            made where they are: on the CPU or, for one set of records, a GPU.
        target: float64, shape (n,) or (R, n), on the same device.
        present: bool, same shape and device; False marks a null record.
        loss: the loss, nothing open; a Huber scale is in the units of `target`.
        weights: nothing open, on these features.
    """

    def __init__(self, features: Tensor, target: Tensor, present: Tensor, loss: Loss, weights: Weights) -> None:
        assert features.dtype == torch.float64, "features are float64"
        assert target.dtype == torch.float64, "targets are float64"
        assert present.dtype == torch.bool, "presence is boolean"
        assert features.ndim in (2, 3), "features have shape (n, p) or (R, n, p)"
        assert features.is_contiguous(), "blocks of rows are contiguous"
        assert target.shape == present.shape == features.shape[:-1], "every record has a target and a presence"
        assert weights.bound is not None, "plan first"
        assert weights.bound >= SMALLEST_BOUND, "a weight bound is an ordinary positive number"
        self.loss = per_record(loss)
        self._gradient_bound = inf if isinstance(weights, Clip) else gradient_bound(loss, weights)
        self._features = features
        valid = present & self.loss.valid(target)
        self._norms = _clean(features.view(-1, features.shape[-1]), valid.reshape(-1)).view(target.shape)
        valid &= self._norms > 0  # x = 0 contributes zero to every sum, so it may count as null
        self._target = torch.where(valid, target, 0.0)
        self._weights = torch.where(valid, record_weights(self._norms, weights), 0.0)
        # A power of two, so that blocks tile parts.
        most = BLOCK_NUMBERS if features.device.type == "cpu" else GPU_BLOCK_NUMBERS
        self._rows_per_block = min(PART_UNITS, 1 << max(0, (most // features.shape[-1]).bit_length() - 1))

    @property
    def units(self) -> int:
        """n, null records included."""
        return self._features.shape[-2]

    @property
    def dimension(self) -> int:
        """The number of parameters, p."""
        return self._features.shape[-1]

    @property
    def lanes(self) -> int | None:
        """R, or None for one set of records."""
        return self._features.shape[0] if self._features.ndim == 3 else None  # noqa: PLR2004 - as shaped above

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Return the sum of clipped answers, int64, in steps; see `core.problems.Problem`.

        Memory beyond the records is O(block + p^2).
        """
        assert self.lanes is None, "lanes are summed in floats"
        assert theta.dtype == torch.float64, "parameters are float64"
        assert theta.shape == (self.dimension,), "parameters have shape (p,)"
        assert rows is None or included is None, "rows are chosen in one way"
        total = torch.zeros(self._shape(question), dtype=torch.int64, device=self._features.device)
        parts = self._parts(question, facts, theta, rows, included)
        while some := list(islice(parts, max(1, BLOCK_NUMBERS // total.numel()))):
            steps = torch.stack(some).div_(step)
            assert bool((steps.abs() < LARGEST_SUM).all()), "every part is finite and within its public bound"
            total += steps.round_().to(torch.int64).sum(0)
        return total if isinstance(question, Gradient) else _mirror(total)

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor) -> Tensor:
        """Return the sum of clipped answers, float64, for simulations; see `core.problems.SyntheticProblem`.

        Returns:
            Shape (p,) for a gradient and (p, p), symmetric, for a curvature; lanes first where theta or the records
            have them. Memory beyond the records is O(block), and O(R p^2) for lanes.
        """
        assert theta.dtype == torch.float64, "parameters are float64"
        assert theta.shape[-1] == self.dimension, "parameters have shape (..., p)"
        if self.lanes is not None:
            return self._sum_lanes(question, facts, theta.expand(self.lanes, self.dimension))
        if theta.ndim > 1:
            return self._sum_shared(question, facts, theta)
        total = theta.new_zeros(self._shape(question))
        for part in self._parts(question, facts, theta, None, None):
            total += part
        return total if isinstance(question, Gradient) else _mirror(total)

    def _shape(self, question: Question) -> tuple[int, ...]:
        """Return the shape of an answer."""
        return (self.dimension,) if isinstance(question, Gradient) else (self.dimension, self.dimension)

    def _factors(
        self, question: Question, facts: Facts, margin: Tensor, target: Tensor, weights: Tensor, norms: Tensor
    ) -> Tensor:
        """Return each record's number g, clipped; its term is g x or g x x^T."""
        finite = margin.isfinite()
        bound = question.bound(facts)
        assert bound >= SMALLEST_BOUND, "a clip is an ordinary positive number"
        match question:
            case Gradient():
                factors = torch.where(finite, self.loss.score(margin, target), 0.0).mul_(weights)
                if bound < self._gradient_bound:  # public; otherwise the weights have clipped already
                    limit = bound / norms  # infinite for null records, whose factor is zero
                    factors = torch.minimum(torch.maximum(factors, -limit), limit)
            case Curvature(of="hessian"):
                factors = torch.where(finite, self.loss.curvature(margin, target), 0.0).mul_(weights)
                factors = torch.minimum(factors, bound / norms / norms)
            case Curvature():
                factors = torch.where(finite, self.loss.score(margin, target), 0.0).mul_(weights).square_()
                factors = torch.minimum(factors, bound / norms / norms)
        return factors

    def _blocks(self, rows: Tensor | None, included: Tensor | None) -> Iterator[tuple[Tensor, ...]]:
        """Yield features, targets, weights and norms block by block; what is left out gets weight zero."""
        size = self._rows_per_block
        if rows is not None:
            for (part,) in _split(size, rows):
                yield self._features[part], self._target[part], self._weights[part], self._norms[part]
            return
        weights = self._weights if included is None else torch.where(included, self._weights, 0.0)
        yield from _split(size, self._features, self._target, weights, self._norms)

    def _parts(
        self, question: Question, facts: Facts, theta: Tensor, rows: Tensor | None, included: Tensor | None
    ) -> Iterator[Tensor]:
        """Yield the float sum of each part, over one set of records at one theta; symmetric up to its last bits."""
        device = self._features.device
        theta = theta.to(device)
        rows = None if rows is None else rows.to(device)
        included = None if included is None else included.to(device)
        blocks_per_part = PART_UNITS // self._rows_per_block
        total = theta.new_zeros(self._shape(question))
        for number, (x, target, weights, norms) in enumerate(self._blocks(rows, included), start=1):
            factors = self._factors(question, facts, torch.mv(x, theta), target, weights, norms)
            if isinstance(question, Gradient):
                total.addmv_(x.T, factors)
            else:
                total.addmm_(x.T, x * factors.unsqueeze(-1))
            if number % blocks_per_part == 0:
                yield total
                total = torch.zeros_like(total)
        yield total

    def _sum_shared(self, question: Question, facts: Facts, theta: Tensor) -> Tensor:
        """Sum over one set of records at many thetas, shape (R, p)."""
        lanes, p = theta.shape
        gradient = isinstance(question, Gradient)
        total = theta.new_zeros(lanes, p if gradient else p * p)
        size = max(1, BLOCK_NUMBERS // max(lanes, p * p))
        for x, target, weights, norms in _split(size, self._features, self._target, self._weights, self._norms):
            factors = self._factors(question, facts, theta @ x.T, target, weights, norms)
            total.addmm_(factors, x if gradient else (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(1))
        return total if gradient else _mirror(total.view(lanes, p, p))

    def _sum_lanes(self, question: Question, facts: Facts, theta: Tensor) -> Tensor:
        """Sum over many sets of records, each at its own theta, shape (R, p); some lanes at a time."""
        size = max(1, BLOCK_NUMBERS // (self.units * self.dimension))
        sums: list[Tensor] = []
        for x, target, weights, norms, at in _split(
            size, self._features, self._target, self._weights, self._norms, theta
        ):
            margin = torch.bmm(at.unsqueeze(1), x.mT).squeeze(1)
            factors = self._factors(question, facts, margin, target, weights, norms)
            if isinstance(question, Gradient):
                sums.append(torch.bmm(factors.unsqueeze(1), x).squeeze(1))
            else:
                sums.append(_mirror(torch.bmm(x.mT, x * factors.unsqueeze(-1))))
        return torch.cat(sums)


def _split(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Walk through tensors of equal length together, `size` entries at a time."""
    pieces = [tensor.split(size) for tensor in tensors]  # type: ignore[no-untyped-call] # torch's stub has no types
    return zip(*pieces, strict=True)


def _clean(features: Tensor, valid: Tensor) -> Tensor:
    """Zero the rows that shall not count, in place, and return upper bounds of the norms, shape (n,)."""
    norms = torch.empty_like(valid, dtype=torch.float64)
    # The computed norm errs by less than (p + 8) 2^-53 relatively; see Higham 2002, section 3.1.
    upward = 1 + (features.shape[-1] + 8) * 2.0**-52
    size = max(1, BLOCK_NUMBERS // features.shape[-1])
    for block, ok, norm in _split(size, features, valid, norms):
        # Norms by the largest entry, so that huge and denormal rows neither overflow nor vanish.
        largest = block.abs().amax(-1)
        scaled = block / torch.where(largest > 0, largest, 1.0).unsqueeze(-1)
        computed = largest * torch.linalg.vector_norm(scaled, dim=-1) * upward
        keep = ok & (computed <= LARGEST_NORM)  # false for NaN
        norm.copy_(torch.where(keep, computed, 0.0))
        block.copy_(torch.where(keep.unsqueeze(-1), block, 0.0))
    return norms


def _mirror(matrix: Tensor) -> Tensor:
    """Return the symmetric matrix that agrees with this one on and above the diagonal."""
    return matrix.triu() + matrix.triu(1).mT
