"""HTML files that need nothing else: no script, no font, no picture from anywhere. Every text is escaped."""

from api.pages.coefficients import Coefficients, coefficients_of
from api.pages.rendering import template
from core.service.readings import Whole
from farthing.schemas.documents import Document, DocumentView


def report_page(document: DocumentView) -> str:
    """Return a privacy report as one HTML file."""
    return _file(document, lead=document.lead)


def summary_page(whole: Whole) -> str:
    """Return the summary of a model as one HTML file; coefficients have their plot beside them."""
    return _file(whole.document, whole=whole, coefficients=coefficients_of(whole))


def _file(
    document: Document, *, lead: str = "", whole: Whole | None = None, coefficients: Coefficients | None = None
) -> str:
    """Return a document as one HTML file; of a model, `whole` is what stands at its head."""
    facts = {"document": document, "lead": lead, "whole": whole, "coefficients": coefficients}
    return template("standalone.html").render(facts)
