"""HTML files that need nothing else: no script, no font, no picture from anywhere. Every text is escaped."""

from api.pages import coefficients
from api.pages.rendering import template
from core.service.readings import Whole
from farthing.schemas.documents import DocumentView


def report_page(document: DocumentView) -> str:
    """Return a privacy report as one HTML file."""
    return template("standalone.html").render(document=document, lead=document.lead, coefficients=None)


def summary_page(whole: Whole) -> str:
    """Return the summary of a model as one HTML file; coefficients have their plot beside them."""
    return template("standalone.html").render(document=whole.document, lead="", coefficients=coefficients.of(whole))
