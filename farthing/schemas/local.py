"""Answers about files that stay on their owner's machine; no service sends them."""

from typing import Any, Literal

from farthing.schemas.base import View
from farthing.schemas.drafts import CellCounts, SniffedView
from farthing.schemas.problems import Wrong
from farthing.schemas.provenance import Declared, OwnerOnly


class RefusedView(View):
    """The refusal that an upload would get."""

    code: OwnerOnly[str]
    """Stable; programs branch on it."""
    detail: OwnerOnly[str]
    """For people."""
    errors: OwnerOnly[list[Wrong]]
    """The fields at fault."""


class MisspeltView(View):
    """A text that is nearly a declared value."""

    column: Declared[str]
    """The column's name."""
    text: OwnerOnly[str]
    """As the file has it."""
    cells: OwnerOnly[int]
    """That have it."""
    nearest: Declared[str]
    """The declared value."""


class ExtremesView(View):
    """Cells of single records, shown on request alone."""

    column: Declared[str]
    """The column's name."""
    least: OwnerOnly[str | None]
    """The least cell; null: of a column with values, or without cells."""
    most: OwnerOnly[str | None]
    """The greatest cell."""
    undeclared: OwnerOnly[list[str]]
    """The commonest texts that are no declared value."""


class CheckView(View):
    """The treatment that a file would get under a declaration."""

    object: Literal["check"] = "check"
    rows: OwnerOnly[int]
    """Records of the file."""
    incomplete_rows: OwnerOnly[int]
    """Records with a missing or unreadable cell."""
    many_excluded: OwnerOnly[bool]
    """Whether these are more than 5 % of the records."""
    columns: list[CellCounts]
    """Counts of each column's cells as they were read."""
    reading: Declared[dict[str, Any] | None]
    """The declared reading of a CSV file; null: it was sniffed, or the file is none."""
    sniffed: SniffedView | None
    """The reading that was found; null: one was declared."""
    misspelt: list[MisspeltView]
    """Texts that are nearly a declared value."""
    extremes: list[ExtremesView] | None
    """Cells of single records; null: nobody asked for them."""
    refused: RefusedView | None
    """The refusal of an upload; null: it would be sealed."""


class LeftOutView(View):
    """A column that a draft of a declaration leaves out."""

    column: Declared[str]
    """Its name."""
    reason: OwnerOnly[str]
    """In words."""


class DeclareView(View):
    """A draft of a declaration, with null where a person must decide."""

    object: Literal["declare"] = "declare"
    declaration: OwnerOnly[dict[str, Any]]
    """The metadata of an upload, as far as names and types say them."""
    left_out: list[LeftOutView]
    """Columns that it does not declare."""
    sniffed: SniffedView | None
    """The reading that was found of a CSV file."""
