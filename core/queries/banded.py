"""Sums over re-encoded rows by bands of the residual's size, for least squares where its short steps end.

A question is asked at a point theta above an encoding E, see `core.queries.reencoded`. A record's residual is
r = (E x).theta - (y - target_centre)/target_unit, cut to [-e_K, e_K]. Band k holds the residuals with
e_(k-1) < |r| <= e_k of the rising `edges` e_1, ..., e_K, the first one those down to 0: a record is in one band. Its
weight is w = min(1, t^2/|E x|^2), t = `weight_bound`, and w |E x| |r| <= t e_k. Each answer is in units of its band's
own bound, so that one noise multiplier serves all bands.

Sensitivities hold for any edges, any E, any theta and any record. A unit that leaves changes one band. A unit that
changes into another one may leave a band and enter another, where both terms are orthogonal.
"""

from itertools import pairwise
from math import sqrt
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from core.privacy.facts import Adjacency, Facts
from core.queries.bases import AbstractQuestion, SamplingCut

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Edges = Annotated[tuple[Positive, ...], Field(min_length=1, max_length=64)]


class AbstractBanded(AbstractQuestion):
    """Common settings of these questions: the bands, the weights and the target's encoding."""

    places: ClassVar = "encoded"

    edges: Edges
    weight_bound: Positive
    target_centre: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    target_unit: Positive = 1.0
    sampling_cut: SamplingCut = 1.0

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if any(one >= other for one, other in pairwise(self.edges)):
            raise ValueError("edges are in rising order")
        return self

    @property
    def bands(self) -> int:
        """K, the number of bands."""
        return len(self.edges)

    def bound(self, facts: Facts) -> float:
        """Return the norm of one unit's term."""
        raise NotImplementedError

    def diameter(self, facts: Facts) -> float:
        """Return the largest distance of two units' terms."""
        raise NotImplementedError

    def sensitivity(self, facts: Facts) -> float:
        """Return the bound over n, or the diameter over n when a unit may change into any other."""
        moved = self.diameter(facts) if facts.adjacency is Adjacency.REPLACE_ONE else self.bound(facts)
        return moved / self.consumed(facts)


class BandTotals(AbstractBanded):
    """Shares of records in each band, and the means of their energies w^2 |E x|^2 r^2/(t^2 e_k^2), shape (2 K,).

    Sensitivity. An energy lies between 0 and 1, so one unit's term has norm at most sqrt(2). Two terms in one band
    differ by at most 1, two in different bands by at most 2. Attained by rows of norm t with residuals at edges.
    """

    kind: Literal["band_totals"] = "band_totals"

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (2 K,)."""
        del dimension  # as many for any number of parameters
        return (2 * self.bands,)

    def bound(self, facts: Facts) -> float:
        """Return sqrt(2): a count and an energy."""
        del facts  # the weights bound it
        return sqrt(2)

    def diameter(self, facts: Facts) -> float:
        """Return 2."""
        return sqrt(2) * self.bound(facts)


class BandGradients(AbstractBanded):
    """The means of w r E x/(t e_k) of each band, one after the other, shape (K p,).

    Sensitivity. One unit's term has norm at most w |E x| |r|/(t e_k) <= 1. Changing a unit moves the sum by at most 2,
    within a band. Attained by rows of norm t with opposite residuals at an edge.
    """

    kind: Literal["band_gradients"] = "band_gradients"

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (K p,)."""
        return (self.bands * dimension,)

    def bound(self, facts: Facts) -> float:
        """Return 1."""
        del facts  # in units of its band's own bound
        return 1.0

    def diameter(self, facts: Facts) -> float:
        """Return 2."""
        return 2 * self.bound(facts)


class BandScores(AbstractBanded):
    """The means of w^2 r^2 E x (E x)'/(t e_k)^2 of each band, entries on and above the diagonal, row by row.

    Shape (K p (p + 1)/2,), band after band.

    Sensitivity. One unit's matrix is positive semidefinite of rank one with Frobenius norm at most 1, and leaving out
    entries raises no norm. Of A and B in one band |A - B|^2 <= |A|^2 + |B|^2, for tr(AB) >= 0 (see `Curvature`); in
    different bands both sides are equal: at most sqrt(2). Attained by rows of norm t along axes, residuals at edges.
    """

    kind: Literal["band_scores"] = "band_scores"

    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return (K p (p + 1)/2,)."""
        return (self.bands * dimension * (dimension + 1) // 2,)

    def bound(self, facts: Facts) -> float:
        """Return 1."""
        del facts  # in units of its band's own bound
        return 1.0

    def diameter(self, facts: Facts) -> float:
        """Return sqrt(2)."""
        return sqrt(2) * self.bound(facts)
