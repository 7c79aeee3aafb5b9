"""The reading of a text file: its separator, quotes, encoding and numerals.

A CSV file says none of this itself. Its owner declares it beside the columns; without a word it is UTF-8 with commas
and decimal points. Nothing is guessed: a file that plainly is otherwise is refused (`core.records.decoding.csv_files`).
"""

import re
from typing import Annotated, Final, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from core.privacy.facts import Frozen

Separator = Literal[",", ";", "\t", "|"]
Decimal = Literal[".", ","]
Thousands = Literal[".", ",", " ", "'"]
Encoding = Literal["utf-8", "utf-16", "latin-1", "iso-8859-15", "cp1250", "cp1251", "cp1252"]
ALSO: Final = {" ": " \u00a0\u202f", "'": "'\u2019"}
"""Marks of thousands that are written in several ways: blanks that break no line, and the typographic apostrophe."""
_END: Final = "([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"


class FileReading(Frozen):
    """The form of a CSV file, as its owner declares it."""

    separator: Separator = Field(default=",", description="between the cells of a row")
    decimal: Decimal = Field(default=".", description="between a number's whole part and its fraction")
    thousands: Thousands | None = Field(
        default=None,
        description="between groups of three digits; a blank also stands for blanks that break no line; null: none",
    )
    encoding: Encoding = Field(default="utf-8", description="of its text; a byte order mark may be there or not")
    quote: Literal['"', "'"] | None = Field(
        # A default in the OpenAPI document would be escaped, which generators of clients refuse.
        default_factory=lambda: '"',
        description="around cells that hold separators or line ends, without a word the double quote; null: none",
    )

    @field_validator("decimal")
    @classmethod
    def _not_separator(cls, decimal: str, info: ValidationInfo) -> str:
        if decimal == info.data.get("separator"):
            raise ValueError(
                f"`{decimal}` separates the cells already; save the file with another, such as `;`, and declare it"
            )
        return decimal

    @field_validator("thousands")
    @classmethod
    def _not_decimal(cls, thousands: str | None, info: ValidationInfo) -> str | None:
        if thousands is not None and thousands == info.data.get("decimal"):
            other = "," if thousands == "." else "."
            raise ValueError(f"`{thousands}` is the decimal mark already; declare reading.decimal, such as `{other}`")
        return thousands

    @field_validator("quote")
    @classmethod
    def _leaves_numbers_whole(cls, quote: str | None, info: ValidationInfo) -> str | None:
        thousands = info.data.get("thousands")
        if quote is not None and quote == thousands:
            raise ValueError(f"`{quote}` is between thousands already; declare another quote, or null")
        if quote is None and thousands is not None and thousands == info.data.get("separator"):
            raise ValueError(f"`{thousands}` is between thousands and between cells: without a quote none is readable")
        return quote

    @property
    def writes_points(self) -> bool:
        """Whether numbers are written as in JSON."""
        return self.decimal == "." and self.thousands is None


SNIFF: Final = "sniff"
"""In place of a reading: the file of a draft shall be looked at."""
Reading = Annotated[
    Annotated[FileReading, Tag("declared")] | Annotated[Literal["sniff"], Tag("sniffed")],
    # By the kind alone, so that a problem is named once.
    Discriminator(lambda given: "sniffed" if isinstance(given, str) else "declared"),
]
PLAIN: Final = FileReading()
"""The reading of a file whose owner declared none."""


def number_pattern(reading: FileReading) -> str:
    """Return the regular expression of a number as this reading writes it: groups of thousands have three digits."""
    mark, whole = re.escape(reading.decimal), "[0-9]+"
    if reading.thousands is not None:
        whole = f"([0-9]{{1,3}}([{marks_of(reading.thousands)}][0-9]{{3}})+|[0-9]+)"
    return f"^[+-]?({whole}({mark}[0-9]*)?|{mark}[0-9]+){_END}"


def marks_of(thousands: Thousands) -> str:
    """Return the letters that stand between thousands, to be put into a class of a regular expression."""
    return ALSO.get(thousands, thousands)
