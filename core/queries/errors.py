"""The question of how far predictions are from outcomes."""

from typing import Annotated, Literal

from pydantic import Field

from core.privacy.facts import Facts
from core.queries.bases import AbstractQuestion


class MeanError(AbstractQuestion):
    """The mean over records of an error between 0 and 1 of the predictions at theta, shape (1,).

    A number's error is its squared residual over the square of `width`, the declared width of the target's range, at
    most 1. Where the target is a category it is half the squared distance between its predicted probabilities and its
    indicators (Brier 1950, halved). A prediction that is not finite has error 1. A record counts as much as its
    sampling weight, and not at all where it is excluded; weights on its features play no part.

    Sensitivity. One unit's term lies between 0 and 1, so zeroing it, or changing it into another, moves the sum by at
    most 1. Attained by a certain prediction of the wrong category, and of the right one.
    """

    kind: Literal["mean_error"] = "mean_error"
    width: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="in encoded units; null: the target is a category"
    )

    def shape(self, dimension: int) -> tuple[int, ...]:  # noqa: ARG002 - a mean error is one number
        """Return (1,)."""
        return (1,)

    def bound(self, facts: Facts) -> float:
        """Return 1."""
        del facts  # an error is cut
        return 1.0

    def diameter(self, facts: Facts) -> float:
        """Return 1: no error is below zero."""
        return self.bound(facts)

    def sensitivity(self, facts: Facts) -> float:
        """Return 1/n under both adjacencies."""
        return self.bound(facts) / self.consumed(facts)
