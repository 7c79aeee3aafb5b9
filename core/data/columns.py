"""Declared columns: types, bounds and categories by the owner's word, never computed from the records.

A column says which values its cells may take. No content of a cell makes an upload fail. Numbers and dates outside
their bounds are clamped, and unknown categories take `other`. Any other unreadable cell, or one of the `missing` codes,
is missing; a missing value takes `fill` where one is declared.
"""

from collections.abc import Sequence
from datetime import date
from functools import cached_property
from math import prod
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core.data.column_fields import (
    CENTRE,
    FILL,
    STORED_CENTRE,
    Aliases,
    Codes,
    Day,
    Deviation,
    Finite,
    FoldCase,
    Level,
    Name,
    Whole,
    above,
    aliased,
    declared,
    differ,
    folded,
    stated,
    undeclared,
    within,
    within_range,
)
from core.data.dates import DateForms
from core.privacy.facts import Frozen

MAX_COLUMNS = 2_000
MAX_ARRAY_NUMBERS = 2**20
"""In the arrays of one record."""
MAX_TOKEN = 2**31 - 1
_MAX_ARRAY_MAGNITUDE = 1e30
_LEAST_ARRAY_WIDTH = 1e-30
_LEAST_RELATIVE_ARRAY_WIDTH = 1e-4
"""Arrays are float32: within these, (value - centre)/scale neither overflows nor loses all its digits."""
_MAX_BYTE = 255


class NumberColumn(Frozen):
    """A number; values outside [lower, upper] are clamped."""

    type: Literal["number"] = "number"
    name: Name
    lower: Finite
    upper: Finite
    missing: Codes = ()
    centre: Finite | None = Field(default=None, validation_alias=STORED_CENTRE, description=CENTRE)
    fill: Finite | None = Field(default=None, description=FILL)
    deviation: Deviation = None

    _stated = field_validator("lower", "upper", mode="before")(stated)
    _above = field_validator("upper")(above)
    _within = field_validator("centre", "fill")(within)
    _within_range = field_validator("deviation")(within_range)


class IntegerColumn(Frozen):
    """A whole number; values outside [lower, upper] are clamped, others are rounded to the nearest."""

    type: Literal["integer"] = "integer"
    name: Name
    lower: Whole
    upper: Whole
    missing: Codes = ()
    centre: Finite | None = Field(default=None, validation_alias=STORED_CENTRE, description=CENTRE)
    fill: Whole | None = Field(default=None, description=FILL)
    deviation: Deviation = None

    _stated = field_validator("lower", "upper", mode="before")(stated)
    _above = field_validator("upper")(above)
    _within = field_validator("centre", "fill")(within)
    _within_range = field_validator("deviation")(within_range)


class DateColumn(Frozen):
    """A date, ISO 8601 or of a declared form; enters a model as days since `lower`; clamped to [lower, upper]."""

    type: Literal["date"] = "date"
    name: Name
    lower: Day
    upper: Day
    missing: Codes = ()
    centre: Day | None = Field(default=None, validation_alias=STORED_CENTRE, description=CENTRE)
    fill: Day | None = Field(default=None, description=FILL)
    deviation: Deviation = None
    formats: DateForms = ()

    _stated = field_validator("lower", "upper", mode="before")(stated)
    _above = field_validator("upper")(above)
    _within = field_validator("centre", "fill")(within)
    _within_range = field_validator("deviation")(within_range)


class CategoryColumn(Frozen):
    """One of the declared values; unknown ones take `other`, or are missing where none is declared."""

    type: Literal["category"] = "category"
    name: Name
    values: tuple[Level, ...] = Field(min_length=2, max_length=1000)
    other: str | None = None
    missing: Codes = ()
    fill: str | None = Field(default=None, description=FILL)
    fold_case: FoldCase = False
    aliases: Aliases = Field(default_factory=dict)

    _stated = field_validator("values", mode="before")(stated)
    _differ = field_validator("values")(differ)
    _declared = field_validator("other", "fill")(declared)
    _undeclared = field_validator("missing")(undeclared)
    _folded = field_validator("fold_case")(folded)
    _aliased = field_validator("aliases")(aliased)

    @cached_property
    def places(self) -> dict[str, int]:
        """The place among the declared values of each text that stands for one, by its key (`key_of`)."""
        return _places(self)


class BinaryColumn(Frozen):
    """One of two values; the second one is 1. Anything else is missing."""

    type: Literal["binary"] = "binary"
    name: Name
    values: tuple[Level, Level]
    missing: Codes = ()
    fill: str | None = Field(default=None, description=FILL)
    fold_case: FoldCase = False
    aliases: Aliases = Field(default_factory=dict)

    _stated = field_validator("values", mode="before")(stated)
    _differ = field_validator("values")(differ)
    _declared = field_validator("fill")(declared)
    _undeclared = field_validator("missing")(undeclared)
    _folded = field_validator("fold_case")(folded)
    _aliased = field_validator("aliases")(aliased)

    @cached_property
    def places(self) -> dict[str, int]:
        """The place among the declared values of each text that stands for one, by its key (`key_of`)."""
        return _places(self)


class ArrayColumn(Frozen):
    """An array of numbers a record, all of one shape: an image, a sequence, a list of tokens.

    Numbers outside [lower, upper] are clamped; tokens, which are whole, are rounded as well. An array is missing if it
    has another shape, an entry that is no finite number, or one of the `missing` numbers. Such a row is excluded from
    models that use the column.
    """

    type: Literal["array"] = "array"
    name: Name
    shape: tuple[Annotated[int, Field(strict=True, ge=1)], ...] = Field(
        min_length=1, max_length=3, description="of one record, such as [1, 28, 28] for channels, height and width"
    )
    of: Literal["number", "token"] = Field(
        default="number", description="tokens are places in a vocabulary: whole, and never scaled"
    )
    lower: Finite
    upper: Finite
    missing: tuple[Finite, ...] = Field(
        default=(), max_length=100, description="numbers that mean `not known`: an array that holds one is missing"
    )
    centre: Finite | None = Field(default=None, validation_alias=STORED_CENTRE, description=CENTRE)

    _stated = field_validator("shape", "lower", "upper", mode="before")(stated)
    _above = field_validator("upper")(above)
    _within = field_validator("centre")(within)

    @field_validator("shape")
    @classmethod
    def _not_too_large(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if prod(shape) > MAX_ARRAY_NUMBERS:
            raise ValueError(f"an array holds {MAX_ARRAY_NUMBERS} numbers at most; send smaller ones")
        return shape

    @field_validator("lower", "upper")
    @classmethod
    def _is_kept(cls, bound: float, info: ValidationInfo) -> float:
        """Refuse bounds that the numbers kept of an array cannot have."""
        if info.data.get("of") == "token":
            if not bound.is_integer() or not 0 <= bound <= MAX_TOKEN:
                raise ValueError(f"tokens are whole numbers from 0 to {MAX_TOKEN}")
        elif abs(bound) > _MAX_ARRAY_MAGNITUDE:
            raise ValueError(f"must lie between -{_MAX_ARRAY_MAGNITUDE:g} and {_MAX_ARRAY_MAGNITUDE:g} in an array")
        lower = info.data.get("lower")
        if info.field_name == "upper" and lower is not None:
            least = max(_LEAST_ARRAY_WIDTH, _LEAST_RELATIVE_ARRAY_WIDTH * max(abs(lower), abs(bound)))
            if info.data.get("of") != "token" and bound - lower < least:
                raise ValueError("upper is too near to lower for single precision: use other units, or another origin")
        return bound

    @property
    def numbers(self) -> int:
        """Number of numbers in one record."""
        return prod(self.shape)

    @property
    def fits_bytes(self) -> bool:
        """Whether every whole number within the bounds fits into a byte, and the bounds are whole."""
        whole = self.lower.is_integer() and self.upper.is_integer()
        return self.of == "number" and whole and self.lower >= 0 and self.upper <= _MAX_BYTE


Ordered = NumberColumn | IntegerColumn | DateColumn
Coded = CategoryColumn | BinaryColumn
Scalar = Annotated[
    NumberColumn | IntegerColumn | DateColumn | CategoryColumn | BinaryColumn, Field(discriminator="type")
]
"""A column of one value a record."""
Column = Annotated[
    NumberColumn | IntegerColumn | DateColumn | CategoryColumn | BinaryColumn | ArrayColumn,
    Field(discriminator="type"),
]


class UserColumn(Frozen):
    """User-level units: the column that names the user, and how many records of one user are kept."""

    user_column: Name
    max_records: Annotated[int, Field(strict=True, ge=1)]


Unit = Literal["record"] | UserColumn


def differently_named(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns; refuse two of one name.

    Raises:
        PydanticCustomError: two columns have the same name; `place` in its context is the second one's.
    """
    places: dict[str, int] = {}
    for place, column in enumerate(columns):
        if column.name in places:
            raise PydanticCustomError(
                "duplicate_name",
                "column {first} is named `{name}` too; names must differ",
                {"first": places[column.name], "name": column.name, "place": place},
            )
        places[column.name] = place
    return columns


def small_enough(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns; refuse arrays that are too large together.

    Raises:
        ValueError: a record's arrays have more than `MAX_ARRAY_NUMBERS` numbers.
    """
    if sum(column.numbers for column in columns if isinstance(column, ArrayColumn)) > MAX_ARRAY_NUMBERS:
        raise ValueError(f"the arrays of a record hold {MAX_ARRAY_NUMBERS} numbers at most; declare fewer")
    return columns


Columns = Annotated[
    tuple[Column, ...],
    Field(min_length=1, max_length=MAX_COLUMNS),
    AfterValidator(differently_named),
    AfterValidator(small_enough),
]


def number_of(column: Ordered, value: float | date) -> float:
    """Return a declared value in the units that enter a model: itself, or days since `lower` for a date."""
    if isinstance(column, DateColumn):
        assert isinstance(value, date)
        return float((value - column.lower).days)
    assert not isinstance(value, date)
    return float(value)


def bounds_of(column: Ordered | ArrayColumn) -> tuple[float, float]:
    """Return the declared bounds in the units that enter a model."""
    if isinstance(column, ArrayColumn):
        return column.lower, column.upper
    return number_of(column, column.lower), number_of(column, column.upper)


def centre_of(column: Ordered | ArrayColumn) -> float:
    """Return the declared centre, or the middle of the bounds, in the units that enter a model."""
    if column.centre is not None:
        return column.centre if isinstance(column, ArrayColumn) else number_of(column, column.centre)
    lower, upper = bounds_of(column)
    return lower / 2 + upper / 2


def numbers_in(column: Column) -> int:
    """Return how many numbers a record has in a column."""
    return column.numbers if isinstance(column, ArrayColumn) else 1


def plain(column: Column) -> Column:
    """Return a column without what predictions of widths alone are made of."""
    if not isinstance(column, Ordered) or column.deviation is None:
        return column
    return column.model_copy(update={"deviation": None})


def key_of(column: Coded, text: str) -> str:
    """Return the text by which a cell is compared with values, aliases and missing codes."""
    return text.casefold() if column.fold_case else text


def _places(column: "CategoryColumn | BinaryColumn") -> dict[str, int]:
    """Return the place among the declared values of each text that stands for one, by its key."""
    exact = {value: place for place, value in enumerate(column.values)}
    means = exact | {text: exact[value] for value, texts in column.aliases.items() for text in texts}
    return {key_of(column, text): place for text, place in means.items()}


def with_formats(columns: Sequence[Column], formats: Sequence[tuple[str, ...]]) -> tuple[Column, ...]:
    """Return columns, those of dates with these forms where there are any; a form has checks of its own before."""
    return tuple(
        column.model_copy(update={"formats": forms}) if forms else column
        for column, forms in zip(columns, formats, strict=True)
    )


def find(columns: Sequence[Column], name: str) -> Column | None:
    """Return the column of that name, if it is declared."""
    return next((column for column in columns if column.name == name), None)
