"""Declared columns: types, bounds and categories by the owner's word, never computed from the records."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.privacy.facts import Frozen

Name = Annotated[str, Field(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Ordered(Frozen):
    name: Name
    missing: tuple[str, ...] = Field(default=(), max_length=100, description="texts or numbers that mean `not known`")
    typical: Finite | None = Field(
        default=None,
        description="a public guess of the middle of this column; features are centred there, for tighter intervals",
    )
    fill: Finite | None = Field(
        default=None, description="value that stands for a missing one; without it such a row becomes a null record"
    )


class NumberColumn(_Ordered):
    """A number; values outside [lower, upper] are clamped."""

    type: Literal["number"] = "number"
    lower: Finite
    upper: Finite

    @model_validator(mode="after")
    def _ordered(self) -> "NumberColumn":
        if not self.lower < self.upper:
            raise ValueError("upper must be greater than lower")
        return self


class IntegerColumn(_Ordered):
    """A whole number; values outside [lower, upper] are clamped."""

    type: Literal["integer"] = "integer"
    lower: int
    upper: int

    @model_validator(mode="after")
    def _ordered(self) -> "IntegerColumn":
        if not self.lower < self.upper:
            raise ValueError("upper must be greater than lower")
        return self


class DateColumn(Frozen):
    """A date (ISO 8601); enters a model as days since `lower`."""

    type: Literal["date"] = "date"
    name: Name
    lower: date
    upper: date
    missing: tuple[str, ...] = Field(default=(), max_length=100)
    typical: date | None = None
    fill: date | None = None

    @model_validator(mode="after")
    def _ordered(self) -> "DateColumn":
        if not self.lower < self.upper:
            raise ValueError("upper must be later than lower")
        return self


class CategoryColumn(Frozen):
    """One of the declared values; unknown ones take `other`, or make the row a null record where none is declared."""

    type: Literal["category"] = "category"
    name: Name
    values: tuple[str, ...] = Field(min_length=2, max_length=1000)
    other: str | None = None
    missing: tuple[str, ...] = Field(default=(), max_length=100)

    @model_validator(mode="after")
    def _consistent(self) -> "CategoryColumn":
        if len(set(self.values)) != len(self.values):
            raise ValueError("values must differ from one another")
        if self.other is not None and self.other not in self.values:
            raise ValueError("other must be one of the values")
        return self


class BinaryColumn(Frozen):
    """One of two values; the second one is 1."""

    type: Literal["binary"] = "binary"
    name: Name
    values: tuple[str, str]
    missing: tuple[str, ...] = Field(default=(), max_length=100)

    @model_validator(mode="after")
    def _differ(self) -> "BinaryColumn":
        if self.values[0] == self.values[1]:
            raise ValueError("the two values must differ")
        return self


Column = Annotated[
    NumberColumn | IntegerColumn | DateColumn | CategoryColumn | BinaryColumn, Field(discriminator="type")
]


class UserColumn(Frozen):
    """User-level units: the column that names the user, and how many records of one user are kept."""

    user_column: Name
    max_records: Annotated[int, Field(ge=1)]


Unit = Literal["record"] | UserColumn
