"""Draft of a file's declaration on its owner's machine, from names and types.

`farthing declare` starts it. Bounds and values are blank, for a person to say from the codebook; a declaration with a
blank is refused by name (`core.data.column_fields.stated`).
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from core.base.errors import FieldError, Invalid
from core.data.reading import PLAIN, FileReading
from core.records.decoding import formats
from core.records.decoding.checks import Caps, Counter
from core.records.decoding.decode import Limits
from core.records.decoding.formats import Format
from core.records.decoding.sniffing import sniff_undeclared
from core.records.decoding.sources import PlainFile
from core.records.decoding.validation import Doubt, Sniffed
from core.records.local.kinds import kind_of, texts_in
from core.records.local.program import run
from farthing.schemas.drafts import SniffedView
from farthing.schemas.local import DeclareView, LeftOutView

_MOST_VALUES: Final = 1_000


def declare(path: Path, *, values: bool, limits: Limits) -> DeclareView:
    """Draft a declaration of a file.

    Args:
        path: of the file.
        values: take the values of categories from the file.
        limits: of the file.

    Raises:
        Invalid, TooLarge: the file cannot be read.
    """
    source = PlainFile(path=path)
    kind = formats.sniff(source)
    caps = Caps(limits.rows, limits.columns, limits.cells)
    if kind is Format.NPZ:
        fix = "declare each array by its name: docs/reference/data-format.md has the fields"
        raise Invalid("An NPZ file has no draft.", FieldError("/file", fix))
    reading, doubts = sniff_undeclared(source, Counter(0, (), caps)) if kind is Format.CSV else (None, [])
    batches = formats.batches(source, kind, (), caps, reading, whole=True)
    first = next(batches)
    columns: list[dict[str, Any]] = []
    left_out: list[LeftOutView] = []
    for name, cells in zip(first.schema.names, first.columns, strict=True):
        found = kind_of(name, cells, reading or PLAIN, f"/columns/{len(columns)}")
        doubts += found.doubts
        if found.declared is None:
            left_out.append(LeftOutView(column=name, reason=found.reason))
        else:
            columns.append(found.declared)
    if values:
        _fill(columns, first, batches)
    declaration: dict[str, Any] = {
        "name": path.stem[:200].encode(errors="replace").decode(),
        "budget": None,
        "columns": columns,
    }
    if reading is not None:
        declaration["reading"] = reading.model_dump(mode="json")
    return DeclareView(declaration=declaration, left_out=left_out, sniffed=_sniffed(reading, doubts, columns))


def _sniffed(reading: FileReading | None, doubts: list[Doubt], columns: list[dict[str, Any]]) -> SniffedView | None:
    if reading is None:
        return None
    forms = tuple(tuple(column.get("formats", ())) for column in columns)
    found = Sniffed(reading=reading, formats=forms, doubts=tuple(doubts))
    return found.view([column["name"] for column in columns])


def _fill(columns: list[dict[str, Any]], first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
    """Take the values of categories from a file, in the order of their letters: their counts decide nothing."""
    found: dict[str, set[str]] = {column["name"]: set() for column in columns if column["type"] == "category"}
    for batch in chain([first], others):
        for name, texts in found.items():
            if len(texts) <= _MOST_VALUES:
                texts.update(texts_in(batch.column(name)))
    for column in columns:
        texts = found.get(column["name"], set())
        if 2 <= len(texts) <= _MOST_VALUES:  # noqa: PLR2004 - a category has two values or more
            column["values"] = sorted(texts)


def _look(request: Mapping[str, Any], limits: Limits) -> DeclareView:
    return declare(Path(request["path"]), values=request["values"], limits=limits)


if __name__ == "__main__":
    run(_look)
