"""HTML files that need nothing else: no script, no font, no picture from anywhere. Every text is escaped."""

from api.pages.rendering import template
from farthing.schemas.documents import DocumentView


def report_page(document: DocumentView) -> str:
    """Return a privacy report as one HTML file."""
    return template("standalone_report.html").render(document=document, title=document.title)
