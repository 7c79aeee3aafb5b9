"""Per-record losses of a count: Poisson's, and the score with its residual cut; see `core.losses.counts.CutPoisson`."""

from math import inf, log

import torch
from torch import Tensor

from core.losses.counts import CutPoisson, Poisson
from core.losses.per_record import PerRecord


class PoissonRecords(PerRecord[Poisson]):
    """F(margin) - target * margin, F' = min(exp, cap), with the residual F' - target cut to [-c, c]; target >= 0.

    |score| <= min(c, cap) and curvature <= cap. Larger targets are cut to the cap; c is infinite for no cut.
    """

    def __init__(self, loss: Poisson) -> None:
        super().__init__(loss)
        self.cap = loss.known_cap
        self.c = inf if loss.c is None else loss.c

    def valid(self, target: Tensor) -> Tensor:
        """Return where the target is a finite number of at least 0."""
        return target.isfinite() & (target >= 0)

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the loss: that where the residual is cut first, and c for every unit of the margin beyond."""
        counts = target.clamp(max=self.cap)
        # The margins where the residual is -c and c; beyond the cap it is that at the cap, which may be less than c.
        lowest = (counts - self.c).clamp_(min=0).log_()
        highest = torch.where(counts + self.c < self.cap, (counts + self.c).log_(), inf)
        within = torch.minimum(torch.maximum(margin, lowest), highest)
        bent = within.clamp(max=log(self.cap))
        values = torch.exp(bent) - counts * bent + (self.cap - counts) * (within - bent)
        # Without a cut the distance is 0, and 0 times infinity is nan.
        return values if self.c == inf else values.add_((margin - within).abs_(), alpha=self.c)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the cut residual."""
        return torch.exp(margin).clamp_(max=self.cap).sub_(target.clamp(max=self.cap)).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return exp(margin) where neither the mean nor the residual is cut."""
        mean = torch.exp(margin)
        uncut = (mean < self.cap) & ((mean - target.clamp(max=self.cap)).abs_() < self.c)
        return torch.where(uncut, mean, 0.0)


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
