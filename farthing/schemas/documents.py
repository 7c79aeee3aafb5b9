"""Documents for people: the content that a page, a file of HTML, a PDF and a text show alike."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Paid


class FactView(View):
    """A name and what it is."""

    name: Paid[str]
    """In words."""
    value: Paid[str]
    """As it is written."""


class ReportTableView(View):
    """A table; the first cell of a row says what the row is about."""

    title: Paid[str]
    """Subject of the table."""
    columns: Paid[list[str]]
    """Heads."""
    rows: Paid[list[list[str]]]
    """Cells, as many a row as there are columns."""
    figures: Paid[int]
    """Columns at its end that hold numbers."""


class SectionView(View):
    """A part of a document."""

    title: Paid[str]
    """Its heading."""
    text: Paid[list[str]]
    """Paragraphs."""
    facts: list[FactView]
    """Names and values, after the text."""
    points: Paid[list[str]]
    """A list, after the facts."""
    table: ReportTableView | None
    """After the points; null: none."""


class Document(View):
    """A text about one thing: facts at its head, and parts below them."""

    title: Paid[str]
    """Its subject."""
    facts: list[FactView]
    """Facts about its subject, by name."""
    sections: list[SectionView]
    """Its parts."""


class DocumentView(Document):
    """A privacy report, in the order and the terms of NIST SP 800-226."""

    object: Literal["privacy-report"] = "privacy-report"
    lead: Paid[str]
    """The promise, in one sentence."""
