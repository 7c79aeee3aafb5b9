"""Base of all questions: their public facts; the questions themselves are in `questions` and `hessian_questions`."""

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.privacy.events import Event, Gaussian
from core.privacy.facts import Facts, Frozen

Sigma = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Clipped = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
SamplingCut = Annotated[float, Field(gt=0, le=1, exclude_if=lambda cut: cut == 1)]
"""Sampling weights count min(1, a/cut) times, a a part of the declared upper bound: at most once, as any weight."""


class AbstractQuestion(Frozen, ABC):
    """Public facts of every question before it is asked."""

    places: ClassVar[Literal["point", "pair", "list", "encoded"]] = "point"
    """Where it is asked: at theta, shape (p,); at theta and another point; at K thetas, shape (K, p), K public; or at
    theta and an encoding of rows together, shape (p + 1, p)."""

    sigma: Sigma
    batch: Annotated[int, Field(gt=0)] | None = None
    """Units to consume, on a stream; None elsewhere."""

    @abstractmethod
    def shape(self, dimension: int) -> tuple[int, ...]:
        """Return the shape of the answer for so many parameters."""

    def draws(self, dimension: int, points: int = 1) -> int:
        """Return how many units of draws one answer takes, see `core.privacy.draws`: coordinates, or one for a choice.

        A symmetric matrix is noised on and above its diagonal.

        Args:
            dimension: of a point.
            points: number of points that it is asked at.
        """
        del points  # a choice among K points is within K 2^-166 of its law, less than a unit for any K
        rows, *columns = self.shape(dimension)
        return rows * (rows + 1) // 2 if columns else rows

    @abstractmethod
    def sensitivity(self, facts: Facts) -> float:
        """Return the l2 sensitivity of the answer, in its own units."""

    def event(self) -> Event:
        """Return what one answer costs."""
        return Gaussian(sigma=self.sigma)

    def consumed(self, facts: Facts) -> int:
        """Return the public number of units that the mean divides by."""
        return self.batch or facts.units
