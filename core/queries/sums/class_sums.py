"""Sums of a multinomial model over re-encoded rows, as `core.queries.classes` defines them.

Terms, of the very floats of a record: s_a x_i with s = w U'(q - e_y), and c_ab x_i x_j f. Here c_ab is w S_ab, or s_a
s_b, times sqrt(2) where a < b, and f is 1 or sqrt(2). This is a product of four floats; the last one is public and
multiplies sums of a block. Roundings in probabilities and contrasts raise a term's norm by less than K 2^-48 of it, far
inside the 2^-10 that the lattice charges. A record with a margin that is not finite has weight zero by selection.
"""

from math import sqrt
from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from core.data.contrasts import contrast_rows
from core.losses.losses_torch import ordinary
from core.queries.classes import ClassCurvature, ClassGradient, ClassMoments
from core.queries.sums.terms import constants


class EncodedRows(NamedTuple):
    """Re-encoded rows of a block with upper bounds of their norms, and their weights."""

    features: Tensor
    target: Tensor
    norms: Tensor
    weights: Tensor
    offset: Tensor | None = None


def class_sum(question: ClassMoments | ClassGradient | ClassCurvature, rows: EncodedRows, theta: Tensor) -> Tensor:
    """Return the sum of a block's terms.

    Args:
        question: the sum to make.
        rows: re-encoded, shape (m, p), or (parts, m, p) for the sums of several parts.
        theta: on their device, shape ((K - 1) p,).
    """
    x = rows.features
    if isinstance(question, ClassMoments):
        seen = torch.where(rows.weights.unsqueeze(-1) > 0, _contrasts(question.classes, rows), 0.0)
        weighed = x * rows.weights.unsqueeze(-1)
        return torch.cat((_listed(x.mT @ weighed), sqrt(2) * (weighed.mT @ seen).flatten(-2)), -1)
    chances, weights = _chances(question.classes, rows, theta)
    basis = _basis(question.classes, x.device)
    scores = ordinary((chances @ basis - _contrasts(question.classes, rows)) * weights.unsqueeze(-1))
    match question:
        case ClassGradient():
            return (scores.mT @ x).flatten(-2)
        case ClassCurvature(of="score"):
            pairs = [scores[..., one] * scores[..., other] for one, other in _pairs(question.contrasts)]
        case ClassCurvature():
            means = chances @ basis
            pairs = [
                (chances @ (basis[:, one] * basis[:, other]) - means[..., one] * means[..., other]) * weights
                for one, other in _pairs(question.contrasts)
            ]
        case _:
            assert_never(question)
    sums = []
    for (one, other), pair in zip(_pairs(question.contrasts), pairs, strict=True):
        numbers = ordinary(pair if one == other else pair * sqrt(2))
        sums.append(_listed(x.mT @ (x * numbers.unsqueeze(-1))))
    return torch.cat(sums, -1)


def _basis(classes: int, device: torch.device) -> Tensor:
    """Return U, shape (K, K - 1)."""
    return constants(contrast_rows(classes), device)


def _pairs(contrasts: int) -> list[tuple[int, int]]:
    """Return pairs a <= b."""
    return [(one, other) for one in range(contrasts) for other in range(one, contrasts)]


def _listed(matrix: Tensor) -> Tensor:
    """Return a symmetric matrix's entries on and above the diagonal, those above times sqrt(2), in a row."""
    first, second = torch.triu_indices(*matrix.shape[-2:], device=matrix.device)
    factors = matrix.new_full((len(first),), sqrt(2)).masked_fill_(first == second, 1.0)
    return matrix[..., first, second] * factors


def _contrasts(classes: int, rows: EncodedRows) -> Tensor:
    """Return U'e_y of each record, shape (m, K - 1)."""
    codes = torch.arange(classes, dtype=rows.target.dtype, device=rows.target.device)
    seen = (rows.target.unsqueeze(-1) == codes).to(rows.features.dtype)
    return seen @ _basis(classes, rows.features.device)


def _chances(classes: int, rows: EncodedRows, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return chances of all classes, shape (m, K), and weights that are zero where there are none."""
    basis = _basis(classes, rows.features.device)
    margins = rows.features @ (basis @ theta.view(classes - 1, -1)).mT
    finite = margins.isfinite().all(-1)
    # Zeros before the softmax: of one infinite margin it makes NaN, which no weight takes away.
    chances = torch.softmax(torch.where(finite.unsqueeze(-1), margins, 0.0), -1)
    return chances, torch.where(finite, rows.weights, 0.0)
