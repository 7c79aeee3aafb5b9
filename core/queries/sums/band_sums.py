"""Sums by bands of the residual's size over re-encoded rows, as `core.queries.banded` defines them.

Terms, of the very floats of a record: a x_i of its own band, a = w r/(t e_k) cut to 1/|x|; a^2 x_i x_j; and a count of
1 beside an energy, cut to 1. A row is multiplied by an indicator of its band, 0 or 1, which is exact, and all bands are
summed over all rows: shapes and times do not depend on where residuals lie. A record without a finite residual has
number zero and is not counted.
"""

from typing import assert_never

import torch
from torch import Tensor

from core.losses.records import ordinary
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.sums.class_sums import EncodedRows
from core.queries.sums.terms import constants


def band_sum(question: BandTotals | BandGradients | BandScores, rows: EncodedRows, theta: Tensor) -> Tensor:
    """Return the sum of a block's terms.

    Args:
        question: the sum to make.
        rows: re-encoded, shape (m, p), or (parts, m, p) for the sums of several parts.
        theta: on their device, shape (p,).
    """
    x, edges = rows.features, constants(question.edges, rows.features.device)
    residual = x @ theta - (rows.target - question.target_centre) / question.target_unit
    present = (rows.weights > 0) & residual.isfinite()
    cut = torch.where(present, residual, 0.0).clamp(-question.edges[-1], question.edges[-1])
    band = torch.searchsorted(edges, cut.abs())
    places = constants(tuple(range(question.bands)), x.device, torch.int64)
    # An indicator of each record's band, zero where it does not count.
    own = (present.unsqueeze(-1) & (band.unsqueeze(-1) == places)).to(x.dtype)
    # Zeros have no length, and it divides.
    longest = torch.where(present, 1 / rows.norms, 0.0)
    numbers = rows.weights * cut / (edges[band] * question.weight_bound)
    numbers = ordinary(torch.where(present, numbers, 0.0).clamp(-longest, longest))
    match question:
        case BandTotals():
            energies = (numbers * rows.norms).square().clamp(max=1.0)
            each = torch.cat((own, own * energies.unsqueeze(-1)), -1)
            return each.sum(-2)
        case BandGradients():
            return (own * numbers.unsqueeze(-1)).mT.matmul(x).flatten(-2)
        case BandScores():
            squares, size = ordinary(numbers.square()).unsqueeze(-1), x.shape[-1]
            first, second = torch.triu_indices(size, size, device=x.device)
            found = [
                (x.mT @ (x * (squares * own[..., band : band + 1])))[..., first, second]
                for band in range(question.bands)
            ]
            return torch.cat(found, -1)
    assert_never(question)
