"""The kind of a column, found from its name and its first cells; of the cells nothing else is kept.

A few cells of another kind decide nothing: a kind is that of nine in ten cells.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from core.data.column_fields import Name
from core.data.columns import NumberColumn
from core.data.reading import FileReading
from core.records.decoding.cells import days_of_texts, floats_of, is_text
from core.records.decoding.otherwise import given_in, matching
from core.records.decoding.sniffing import forms_of_dates
from core.records.decoding.validation import Doubt

_MOST: Final = 0.9
_MOST_VALUES: Final = 100
_LONGEST_VALUE: Final = 100
_CODES: Final = 0.05
"""Share of whole numbers with a zero before: they are codes, such as those of towns."""
_IDENTIFYING: Final = re.compile(
    "ids?|[ug]uid|key|names?|surname|forename|(first|last|user)name|(vor|nach)name|e?mail|phone|tel|telephone|mobile|fax|"
    "address|adresse|street|strasse|ssn|iban|mrn|passport|url|ip|login"
)
_FREE: Final = re.compile("notes?|comments?|remarks?|text|description|bemerkung|notiz|kommentar")
_ANY: Final = NumberColumn(name="any", lower=0, upper=1)


@dataclass(frozen=True)
class Proposal:
    """A column of a draft, or the reason to leave it out."""

    declared: dict[str, Any] | None
    reason: str = ""
    doubts: tuple[Doubt, ...] = ()


def kind_of(name: str, cells: pa.Array, reading: FileReading, pointer: str) -> Proposal:
    """Return the kind of a column, with null where a person must decide.

    Args:
        name: of the column.
        cells: its first ones.
        reading: of texts.
        pointer: of the column in the declaration.
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        return Proposal(None, "its name cannot be declared: rename it")
    words = [word.lower() for word in re.findall(r"[A-Z]?[^\W\dA-Z_]+|[A-Z]+", name)]
    if any(map(_IDENTIFYING.fullmatch, words)):
        return Proposal(None, "its name is that of an identifier")
    if any(map(_FREE.fullmatch, words)):
        return Proposal(None, "its name is that of free text")
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if is_text(cells.type):
        return _of_texts(name, cells.cast(pa.string()), reading, pointer)
    return _of_type(name, cells)


def _of_type(name: str, cells: pa.Array) -> Proposal:
    types, kind = pa.types, cells.type
    if types.is_boolean(kind):
        return Proposal({"name": name, "type": "binary", "values": ["false", "true"]})
    if types.is_integer(kind):
        return _whole(name, floats_of(cells))
    if types.is_floating(kind) or types.is_decimal(kind):
        return Proposal(_ordered(name, "number"))
    if types.is_date(kind) or types.is_timestamp(kind):
        return Proposal(_ordered(name, "date"))
    sizes: list[int | None] = []
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        sizes.append(kind.list_size if types.is_fixed_size_list(kind) else None)
        kind = kind.value_type
    if sizes and (types.is_integer(kind) or types.is_floating(kind)):
        shape = None if None in sizes else sizes
        return Proposal({"name": name, "type": "array", "shape": shape, "lower": None, "upper": None})
    return Proposal(None, f"no column holds cells of the type {cells.type}"[:200])


def _of_texts(name: str, cells: pa.Array, reading: FileReading, pointer: str) -> Proposal:
    given = given_in(_ANY, cells)
    if not len(given):
        return Proposal(None, "its first cells are empty")
    least = _MOST * len(given)
    values = floats_of(given, reading)
    values = values[~np.isnan(values)]
    if len(values) >= least and matching(given, "^0[0-9]+$") <= _CODES * len(given):
        if np.count_nonzero(values == np.rint(values)) < _MOST * len(values):
            return Proposal(_ordered(name, "number"))
        return _whole(name, values)
    forms, doubts = forms_of_dates(given, f"{pointer}/formats")
    if np.count_nonzero(~np.isnan(days_of_texts(given, forms))) >= least:
        return Proposal(_ordered(name, "date") | ({"formats": list(forms)} if forms else {}), doubts=tuple(doubts))
    different = len(pc.unique(given))
    longest = pc.max(pc.utf8_length(given)).as_py()
    most = max(2, min(_MOST_VALUES, len(given) // 2))
    if different > most or longest > _LONGEST_VALUE:
        return Proposal(None, "most of its texts differ: it is free text, or an identifier")
    return Proposal({"name": name, "type": "category", "values": None})


def _whole(name: str, values: "np.ndarray[Any, Any]") -> Proposal:
    values = values[~np.isnan(values)]
    if len(values) > 2 and np.all(np.diff(values) == 1):  # noqa: PLR2004 - two may follow each other by chance
        return Proposal(None, "it counts rows")
    return Proposal(_ordered(name, "integer"))


def _ordered(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "lower": None, "upper": None}


def texts_in(cells: pa.Array) -> list[str]:
    """Return the different texts of a column's cells that are not empty."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    return [str(text) for text in pc.unique(given_in(_ANY, cells.cast(pa.string()))).to_pylist()]
