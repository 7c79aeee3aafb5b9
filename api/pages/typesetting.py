"""Documents as PDF with tags for screen readers. Typst sets them from one template; a document is data, not markup."""

from pathlib import Path
from typing import Final

import typst
from fastapi import Response

from farthing.schemas.documents import Document

MEDIA_TYPE: Final = "application/pdf"
_TEMPLATE: Final = Path(__file__).parent / "templates" / "document.typ"


def pdf_of(document: Document, origin: str) -> bytes:
    """Return a document as PDF.

    Args:
        document: set as it is; no text of it is markup.
        origin: stands at the foot of each page, such as the address of the service.
    """
    inputs = {"document": document.model_dump_json(), "origin": origin}
    made = typst.compile(_TEMPLATE, format="pdf", sys_inputs=inputs)
    # Typst returns a list where a document is compiled to several files.
    if not isinstance(made, bytes):
        raise TypeError("one PDF was asked for")
    return made


def pdf_answer(document: Document, origin: str, name: str) -> Response:
    """Return a document as a PDF that the browser saves under a name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(pdf_of(document, origin), media_type=MEDIA_TYPE, headers=headers)
