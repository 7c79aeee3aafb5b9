"""The outcome of a sweep, beside the estimate of its best run."""

from typing import Any, Literal

from pydantic import Field

from core.privacy.facts import Frozen

Way = Literal["selection", "composition"]
"""The number of runs is drawn and one is paid for, and more for the choice; or each candidate is run once and paid."""


class SweepOutcome(Frozen):
    """The candidate that a sweep released, its noised score, and the way in which all of them were paid."""

    candidate: int | None = Field(description="place of the released candidate, from 0; null: no run was drawn")
    candidates: int = Field(description="number of candidates")
    optimizer: dict[str, Any] | None = Field(description="its method, nothing open")
    ridge: float | None = Field(description="its ridge")
    score: float | None = Field(description="noised mean error, of which the least was chosen: too small on average")
    score_scale: float = Field(description="standard deviation of the noise on a score")
    way: Way
