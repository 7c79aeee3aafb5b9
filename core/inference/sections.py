"""Parts of a summary's document; every text in them is on one line, in the order in which it is read."""

from collections.abc import Sequence

from core.inference.rendering import Head, plain
from farthing.schemas.documents import Document, FactView, ReportTableView, SectionView


def document(title: str, facts: Head, tables: Sequence[SectionView], foot: Sequence[str], methods: str) -> Document:
    """Return the document of a summary: facts, tables, what is said below them, and a paper's paragraph."""
    said = SectionView(
        title="Privacy, flags and notes", text=[], facts=[], points=[plain(one) for one in foot], table=None
    )
    paragraph = SectionView(title="For a methods section", text=[plain(methods)], facts=[], points=[], table=None)
    return Document(
        title=plain(title),
        facts=[FactView(name=name, value=plain(value)) for name, value in facts],
        sections=[*tables, said, paragraph],
    )


def table(title: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> SectionView:
    """Return a part that is one table.

    Args:
        title: its heading.
        caption: heading above the table.
        columns: heads; all but the first are of figures.
        rows: as many cells each; the first one says what the row is about.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    shown = ReportTableView(title=plain(caption), columns=list(columns), rows=cells, figures=len(columns) - 1)
    return SectionView(title=plain(title), text=[], facts=[], points=[], table=shown)
