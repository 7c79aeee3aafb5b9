"""The score of one record's count with its residual cut; see `core.losses.counts.CutPoisson`."""

import torch
from torch import Tensor

from core.losses.counts import CutPoisson


class CutPoissonRecords:
    """psi = v (C - y) cut to [-b, b], and d where it is not cut.

    |score| <= b and 0 <= curvature <= M, in floats too.

    Args:
        loss: with M, b and the law that C belongs to.
    """

    def __init__(self, loss: CutPoisson) -> None:
        self.loss = loss
        self._tables = {torch.device("cpu"): tuple(torch.from_numpy(one) for one in loss.centres())}

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the cut residual."""
        return self._residual(margin, target).clamp_(-self.loss.cut, self.loss.cut)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return d where the residual is not cut."""
        weighed = torch.exp(margin).clamp_(max=self.loss.rate_cap)
        bent = weighed * self._at(margin, 2)
        inside = self._residual(margin, target).abs_() < self.loss.cut
        return torch.where(inside, bent.clamp_(0.0, self.loss.rate_cap), 0.0)

    def _residual(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return v (C - y); v mu is min(mu, M), so that no mean is too large."""
        mean = torch.exp(margin)
        # Before the next line, which cuts the mean in place.
        weight = (self.loss.rate_cap / mean).clamp_(max=1.0)
        return mean.clamp_(max=self.loss.rate_cap) * self._at(margin, 1) - weight * target

    def _at(self, margin: Tensor, table: int) -> Tensor:
        """Interpolate a table linearly between the grid's log means; constant beyond both ends."""
        tables = self._tables.get(margin.device)
        if tables is None:  # copied to a device once
            tables = tuple(one.to(margin.device) for one in self._tables[torch.device("cpu")])
            self._tables[margin.device] = tables
        margins, heights = tables[0], tables[table]
        step = (margins[-1] - margins[0]) / (len(margins) - 1)
        place = ((margin - margins[0]) / step).clamp(0.0, len(margins) - 1.0)
        # clamp lets nan pass, and nan is no index.
        place = torch.where(place.isfinite(), place, 0.0)
        # At the grid's end the right neighbour must still exist.
        left = place.floor().clamp(max=len(margins) - 2.0)
        at = left.to(torch.int64)
        part = place - left
        return heights[at] * (1 - part) + heights[at + 1] * part
