"""Linear predictors of records, and errors made of them."""

import torch
from torch import Tensor

from core.queries.errors import MeanError
from core.queries.sums import rows as compiled
from core.queries.sums.blocks import margins, product
from core.queries.sums.terms import Point, Records, counted_errors


def errors_at(question: MeanError, records: Records, theta: Tensor) -> Tensor:
    """Return each record's error between 0 and 1, replicates first."""
    margin, width = margin_of(records, theta), question.width
    residual = torch.sigmoid(margin) - records.target if width is None else (margin - records.target) / width
    return counted_errors(records, residual.square_())


def margin_of(records: Records, theta: Tensor) -> Tensor:
    """Return x.theta and the offset for every record, replicates first."""
    return shifted(records, along(records, theta))


def shifted(records: Records, margin: Tensor) -> Tensor:
    """Return margins with the offset, where there is one."""
    return margin if records.offset is None else margin + records.offset


def along(records: Records, theta: Tensor) -> Tensor:
    """Return x.theta for every record, replicates first."""
    if theta.ndim == 1:
        if compiled.KERNELS is not None and records.features.is_cpu:
            return compiled.margins(compiled.KERNELS, records.features, theta)
        return product(records.features, theta)
    return margins(records.features, theta.unsqueeze(-2)).squeeze(-2)


def along_both(records: Records, at: Point) -> Tensor:
    """Return x.theta at both points of a pair, shape (2, m), replicates first."""
    if at.theta.ndim > 1 or at.other is None:
        return margins(records.features, at.both())
    # The block is in the cache: the second product takes little.
    return torch.stack([along(records, at.theta), along(records, at.other)])
