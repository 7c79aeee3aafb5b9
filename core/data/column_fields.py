"""Fields of declared columns: their types, and the checks that several kinds of columns share."""

import re
from datetime import date
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationInfo

from core.data.dates import ISO_DATE

MAX_MAGNITUDE = 1e100
"""Bounds stay where squares, products and their inverses are still float64 numbers."""
MAX_INTEGER = 2**53
"""Whole numbers up to here are exact in float64."""
MAX_ALIASES = 5_000
"""Of all values of a column."""
_LEAST_RELATIVE_WIDTH = 1e-9


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

CENTRE = "a public guess of the middle of this column; features are centred there, for tighter intervals"
STORED_CENTRE = AliasChoices("centre", "typical")
"""Rows that 0.1.0 stored say `typical`; requests that do are refused (`core.data.datasets`)."""
_DEVIATION = "a public guess of this column's standard deviation (of dates, in days): for predictions, never for a fit"
Deviation = Annotated[
    Finite | None,
    Field(description=_DEVIATION, exclude_if=lambda given: given is None),  # as columns were before there was any
]
FILL = "value that stands for a missing one; without it such a row is excluded"


def stated(given: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - whatever was sent
    """Refuse a blank, which drafts of a declaration have where a person must decide."""
    if given is None:
        named, field = info.data.get("name", "this column"), info.field_name
        if field == "values":
            raise ValueError(f"values of {named}: list those of the codebook, without looking at the data")
        if field == "shape":
            raise ValueError(f"shape of {named}: say the one that all records have, such as [28, 28]")
        raise ValueError(f"bounds of {named}: say what is possible, without looking at the data")
    return given


def above(upper: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - numbers or dates
    """Refuse an upper bound that is not above the lower one, or too near to it to be distinguished."""
    lower = info.data.get("lower")
    if lower is None:  # the lower bound itself was refused
        return upper
    if not lower < upper:
        raise ValueError(f"upper must be greater than lower, which is {lower}")
    if isinstance(upper, float) and upper - lower < _LEAST_RELATIVE_WIDTH * max(abs(lower), abs(upper)):
        raise ValueError("upper is too near to lower: declare the column in other units, or from another origin")
    return upper


def within(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - numbers or dates
    """Refuse a centre or fill value outside the bounds; wrong bounds have been named already."""
    lower, upper = info.data.get("lower"), info.data.get("upper")
    if value is not None and lower is not None and upper is not None and not lower <= value <= upper:
        raise ValueError(f"must lie within the declared bounds, {lower} to {upper}")
    return value


def within_range(deviation: float | None, info: ValidationInfo) -> float | None:
    """Refuse a deviation that no values within the bounds have: half of them at either end have the largest."""
    lower, upper = info.data.get("lower"), info.data.get("upper")
    if deviation is None or lower is None or upper is None:
        return deviation
    width = (upper - lower).days if isinstance(lower, date) else upper - lower
    if not 0 < deviation <= width / 2:
        raise ValueError(f"must be above 0 and at most half of the declared range, {width / 2:g}")
    return deviation


def differ(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a value that comes twice."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"values must differ from one another; `{value}` appears twice")
        seen.add(value)
    return values


def declared(value: str | None, info: ValidationInfo) -> str | None:
    """Refuse a level that is not one of the values."""
    values = info.data.get("values")  # None: they were refused themselves
    if value is not None and values is not None and value not in values:
        raise ValueError("must be one of the declared values")
    return value


def undeclared(codes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Refuse a missing code that is also a value."""
    for code in codes:
        if code in (info.data.get("values") or ()):
            raise ValueError(f"`{code}` is one of the declared values; it cannot mean `not known` as well")
    return codes


FoldCase = Annotated[
    bool,
    Field(strict=True, description="cells are compared without regard to case", exclude_if=lambda given: not given),
]
Aliases = Annotated[
    dict[str, Annotated[tuple[Level, ...], Field(min_length=1)]],
    Field(
        description="other texts that mean a declared value, by that value",
        exclude_if=lambda given: not given,  # as columns were before there were any
    ),
]


def folded(fold_case: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic calls it so
    """Refuse to ignore case where only case tells two values, or a value and a missing code, apart."""
    codes = info.data.get("missing") or ()
    seen: dict[str, str] = {}
    for text in (*(info.data.get("values") or ()), *codes) if fold_case else ():
        other = seen.setdefault(text.casefold(), text)
        if other != text and not {text, other} <= set(codes):
            raise ValueError(f"`{other}` and `{text}` are one text without regard to case")
    return fold_case


def aliased(aliases: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
    """Refuse an alias that means something already."""
    values, codes = info.data.get("values"), info.data.get("missing")
    if values is None or codes is None:  # they were refused themselves
        return aliases
    if sum(map(len, aliases.values())) > MAX_ALIASES:
        raise ValueError(f"a column has {MAX_ALIASES} aliases at most; mend the file, or declare `other`")
    key = str.casefold if info.data.get("fold_case") else str
    meanings = dict.fromkeys(map(key, ("", *codes)), "`not known`") | {key(value): f"`{value}`" for value in values}
    for value, texts in aliases.items():
        if value not in values:
            raise ValueError(f"`{value}` is not one of the declared values")
        for text in texts:
            meaning = f"`{value}`"
            if text in values or meanings.setdefault(key(text), meaning) != meaning:
                raise ValueError(f"`{text}` means {meanings[key(text)]} already; it cannot mean `{value}` as well")
    return aliases
