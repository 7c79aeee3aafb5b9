"""Declared columns: types, bounds and categories by the owner's word, never computed from the records.

A column says which values its cells may take. No content of a cell makes an upload fail. Numbers and dates outside
their bounds are clamped, and unknown categories take `other`. Any other unreadable cell, or one of the `missing` codes,
is missing; a missing value takes `fill` where one is declared.
"""

import re
from collections.abc import Sequence
from datetime import date
from math import isfinite, prod
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core.privacy.facts import Frozen

MAX_COLUMNS = 2_000
MAX_MAGNITUDE = 1e100
"""Bounds stay where squares, products and their inverses are still float64 numbers."""
MAX_INTEGER = 2**53
"""Whole numbers up to here are exact in float64."""
MAX_ARRAY_NUMBERS = 2**20
"""In the arrays of one record."""
MAX_TOKEN = 2**31 - 1
ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)"
"""A date, perhaps with a time of day, which is not looked at."""
_LEAST_RELATIVE_WIDTH = 1e-9
_MAX_ARRAY_MAGNITUDE = 1e30
_LEAST_ARRAY_WIDTH = 1e-30
_LEAST_RELATIVE_ARRAY_WIDTH = 1e-4
"""Arrays are float32: within these, (value - centre)/scale neither overflows nor loses all its digits."""
_MAX_BYTE = 255


def _plain_text(text: str) -> str:
    if text != text.strip():
        raise ValueError("remove the blanks at the ends; cells are compared without them")
    if any(letter < " " or letter == "\x7f" for letter in text):
        raise ValueError("control characters are not allowed")
    return text


def _in_range(value: float) -> float:
    if abs(value) > MAX_MAGNITUDE:
        raise ValueError(f"must lie between -{MAX_MAGNITUDE:g} and {MAX_MAGNITUDE:g}")
    return value


def _iso_date(value: object) -> object:
    """Let ISO texts and dates through; pydantic alone would also read numbers as seconds."""
    if type(value) is date:  # a datetime would pass isinstance
        return value
    if not isinstance(value, str):
        raise ValueError("must be a date such as 2006-12-31")  # noqa: TRY004 - pydantic reads ValueError
    try:
        return date.fromisoformat(value if re.match(ISO_DATE, value) else "")
    except ValueError:
        raise ValueError("must be a date such as 2006-12-31") from None


def _codes(value: object) -> object:
    """Let the JSON numbers among the missing codes stand for their texts."""
    if not isinstance(value, list | tuple):
        return value
    return tuple(f"{code:.17g}" if _is_number(code) else code for code in value)  # 17 digits tell all floats apart


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain_text)]
Level = Annotated[str, Field(max_length=1000), AfterValidator(_plain_text)]
Code = Annotated[str, Field(max_length=200), AfterValidator(_plain_text)]
Codes = Annotated[
    tuple[Code, ...],
    BeforeValidator(_codes),
    Field(max_length=100, description="texts or numbers that mean `not known`; an empty cell always does"),
]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False), AfterValidator(_in_range)]
Whole = Annotated[int, Field(strict=True, ge=-MAX_INTEGER, le=MAX_INTEGER)]
Day = Annotated[date, BeforeValidator(_iso_date)]

_CENTRE = "a public guess of the middle of this column; features are centred there, for tighter intervals"
_STORED_CENTRE = AliasChoices("centre", "typical")
"""Rows that 0.1.0 stored say `typical`; requests that do are refused (`core.data.datasets`)."""
_DEVIATION = "a public guess of this column's standard deviation (of dates, in days): for predictions, never for a fit"
Deviation = Annotated[
    Finite | None,
    Field(description=_DEVIATION, exclude_if=lambda given: given is None),  # as columns were before there was any
]
_FILL = "value that stands for a missing one; without it such a row is excluded"


def _above(upper: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - numbers or dates
    """Refuse an upper bound that is not above the lower one, or too near to it to be distinguished."""
    lower = info.data.get("lower")
    if lower is None:  # the lower bound itself was refused
        return upper
    if not lower < upper:
        raise ValueError(f"upper must be greater than lower, which is {lower}")
    if isinstance(upper, float) and upper - lower < _LEAST_RELATIVE_WIDTH * max(abs(lower), abs(upper)):
        raise ValueError("upper is too near to lower: declare the column in other units, or from another origin")
    return upper


def _within(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - numbers or dates
    """Refuse a centre or fill value outside the bounds; wrong bounds have been named already."""
    lower, upper = info.data.get("lower"), info.data.get("upper")
    if value is not None and lower is not None and upper is not None and not lower <= value <= upper:
        raise ValueError(f"must lie within the declared bounds, {lower} to {upper}")
    return value


def _within_range(deviation: float | None, info: ValidationInfo) -> float | None:
    """Refuse a deviation that no values within the bounds have: half of them at either end have the largest."""
    lower, upper = info.data.get("lower"), info.data.get("upper")
    if deviation is None or lower is None or upper is None:
        return deviation
    width = (upper - lower).days if isinstance(lower, date) else upper - lower
    if not 0 < deviation <= width / 2:
        raise ValueError(f"must be above 0 and at most half of the declared range, {width / 2:g}")
    return deviation


class NumberColumn(Frozen):
    """A number; values outside [lower, upper] are clamped."""

    type: Literal["number"] = "number"
    name: Name
    lower: Finite
    upper: Finite
    missing: Codes = ()
    centre: Finite | None = Field(default=None, validation_alias=_STORED_CENTRE, description=_CENTRE)
    fill: Finite | None = Field(default=None, description=_FILL)
    deviation: Deviation = None

    _above = field_validator("upper")(_above)
    _within = field_validator("centre", "fill")(_within)
    _within_range = field_validator("deviation")(_within_range)


class IntegerColumn(Frozen):
    """A whole number; values outside [lower, upper] are clamped, others are rounded to the nearest."""

    type: Literal["integer"] = "integer"
    name: Name
    lower: Whole
    upper: Whole
    missing: Codes = ()
    centre: Finite | None = Field(default=None, validation_alias=_STORED_CENTRE, description=_CENTRE)
    fill: Whole | None = Field(default=None, description=_FILL)
    deviation: Deviation = None

    _above = field_validator("upper")(_above)
    _within = field_validator("centre", "fill")(_within)
    _within_range = field_validator("deviation")(_within_range)


class DateColumn(Frozen):
    """A date (ISO 8601); enters a model as days since `lower`; values outside [lower, upper] are clamped."""

    type: Literal["date"] = "date"
    name: Name
    lower: Day
    upper: Day
    missing: Codes = ()
    centre: Day | None = Field(default=None, validation_alias=_STORED_CENTRE, description=_CENTRE)
    fill: Day | None = Field(default=None, description=_FILL)
    deviation: Deviation = None

    _above = field_validator("upper")(_above)
    _within = field_validator("centre", "fill")(_within)
    _within_range = field_validator("deviation")(_within_range)


def _differ(values: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"values must differ from one another; `{value}` appears twice")
        seen.add(value)
    return values


def _declared(value: str | None, info: ValidationInfo) -> str | None:
    """Refuse a level that is not one of the values."""
    values = info.data.get("values")  # None: they were refused themselves
    if value is not None and values is not None and value not in values:
        raise ValueError("must be one of the declared values")
    return value


def _undeclared(codes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Refuse a missing code that is also a value."""
    for code in codes:
        if code in (info.data.get("values") or ()):
            raise ValueError(f"`{code}` is one of the declared values; it cannot mean `not known` as well")
    return codes


class CategoryColumn(Frozen):
    """One of the declared values; unknown ones take `other`, or are missing where none is declared."""

    type: Literal["category"] = "category"
    name: Name
    values: tuple[Level, ...] = Field(min_length=2, max_length=1000)
    other: str | None = None
    missing: Codes = ()
    fill: str | None = Field(default=None, description=_FILL)

    _differ = field_validator("values")(_differ)
    _declared = field_validator("other", "fill")(_declared)
    _undeclared = field_validator("missing")(_undeclared)


class BinaryColumn(Frozen):
    """One of two values; the second one is 1. Anything else is missing."""

    type: Literal["binary"] = "binary"
    name: Name
    values: tuple[Level, Level]
    missing: Codes = ()
    fill: str | None = Field(default=None, description=_FILL)

    _differ = field_validator("values")(_differ)
    _declared = field_validator("fill")(_declared)
    _undeclared = field_validator("missing")(_undeclared)


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
    centre: Finite | None = Field(default=None, validation_alias=_STORED_CENTRE, description=_CENTRE)

    _above = field_validator("upper")(_above)
    _within = field_validator("centre")(_within)

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
    """Return a column without what predictions alone are made of."""
    if not isinstance(column, Ordered) or column.deviation is None:
        return column
    return column.model_copy(update={"deviation": None})


def find(columns: Sequence[Column], name: str) -> Column | None:
    """Return the column of that name, if it is declared."""
    return next((column for column in columns if column.name == name), None)
