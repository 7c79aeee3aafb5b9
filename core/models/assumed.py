"""An analyst's assumptions about unread records: for predictions and plans, never for a fit."""

from typing import Annotated

from pydantic import Field

from core.data.column_fields import Name
from core.privacy.facts import Frozen

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Frequency = Annotated[float, Field(gt=0, lt=1)]


class Assumed(Frozen):
    """Beside what was declared; in declared units."""

    means: dict[Name, _Number] = Field(
        default_factory=dict, max_length=500, description="of numbers with a deviation; others: `centre` or the middle"
    )
    deviations: dict[Name, _Positive] = Field(
        default_factory=dict, max_length=500, description="standard deviations of numbers; others spread over the range"
    )
    frequencies: dict[Name, tuple[_Frequency, ...]] = Field(
        default_factory=dict,
        max_length=500,
        description="of a category's values, of a multinomial target's too, in their declared order; sum to 1",
    )
    explained: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="largest R^2 of a column by the others; upper ends of widths hold as far as that; null: .75",
    )
    residual_scale: _Positive | None = Field(default=None, description="of a linear model's errors")
    dispersion: _Positive | None = Field(
        default=None,
        description="variance of counts over their mean, among records with equal features: 1 by Poisson's law",
    )
    base_rate: _Positive | None = Field(
        default=None, description="the share of the second value of a logistic model's target; a mean count"
    )
