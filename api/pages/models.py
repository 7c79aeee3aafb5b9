"""Models: coefficients with flags in words, a forest plot, ratios, the methods paragraph and downloads."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from api.deps import Caller, Db
from api.pages import standalone, words
from api.pages.coefficients import coefficients_of
from api.pages.rendering import render
from api.pages.routes import PageRoute, page
from api.pages.typesetting import pdf_answer
from api.routes import models as api
from core.base.errors import Invalid
from core.inference.coefficient_document import sweep_words
from core.inference.released import MOCK
from core.service import jobs, models, naming, readings, trained
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.figures import level_words

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
Level = Annotated[float | None, Query(gt=0.5, lt=1)]
LEVELS: Final = (0.9, 0.95, 0.99)


@page(router, "/models/{model_id}", api=api.get_summary)
def show_model(
    model_id: ModelId,
    request: Request,
    caller: Caller,
    db: Db,
    level: Level = None,
    scale: Literal["ratio"] | None = None,
) -> Response:
    """Show a released model; reading it costs nothing."""
    whole = readings.whole(db, caller, model_id, [level] if level else [])
    table = coefficients_of(whole)
    facts = head(db, caller, model_id, None) | {
        "summary": whole.summary,
        "document": whole.document,
        "job_flags": whole.job_flags,
        "swept": sweep_words(whole.summary),
        "coefficients": table,
        "level": whole.summary.get("level"),
        "levels": sorted({*LEVELS, whole.summary["level"]}) if table else [],
        "level_words": level_words,
        "scale": scale if whole.ratio else None,
        "ratio": f"{whole.ratio.replace('_', ' ').capitalize()}s" if whole.ratio else "",
    }
    return render(request, "model.html", facts, at="models")


def head(context: Context, caller: Principal, model_id: str, tab: str | None) -> dict[str, Any]:
    """Return what stands at the top of each page of a model."""
    model = models.get(context, caller, model_id)
    job = jobs.get(context, caller, model.job)
    kind, base = str(job.model["kind"]), f"/models/{model.id}"
    has_coefficients = kind not in {"network", "description"}
    return {
        "title": words.job_name(job),
        "may_retract": trained.may_retract(context, caller, model_id),
        "model": model,
        "job": job,
        "names": naming.names(context, caller, [job.dataset, job.owner]),
        "costs": None if job.mock else words.costs(job),
        "mock_words": MOCK,
        "what": words.what,
        "tab": tab,
        "tabs": (
            ("Coefficients" if has_coefficients else "Summary", base, True),
            ("Contrasts and tests", f"{base}/questions", has_coefficients),
            ("Predictions", f"{base}/predictions", kind != "description"),
            ("Comparison", f"{base}/compare", has_coefficients),
            ("Certificate", f"{base}/certificate", not job.mock),
        ),
    }


@page(router, "/models/{model_id}/summary.txt", api=api.get_summary)
def download_text(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send the summary as text."""
    return as_file(PlainTextResponse(readings.summary_text(db, caller, model_id, [])), f"{model_id}.txt")


@page(router, "/models/{model_id}/summary.html", api=api.get_summary)
def download_page(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send the summary as one HTML file that loads nothing."""
    text = standalone.summary_page(readings.whole(db, caller, model_id, []))
    return as_file(Response(text, media_type="text/html"), f"{model_id}.html")


@page(router, "/models/{model_id}/summary.pdf", api=api.get_summary)
def download_pdf(model_id: ModelId, request: Request, caller: Caller, db: Db) -> Response:
    """Send the summary as PDF."""
    return pdf_answer(readings.whole(db, caller, model_id, []).document, request.url.netloc, f"{model_id}.pdf")


@page(router, "/models/{model_id}/model.json", api=api.export_model)
def download_model(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send everything that predictions need."""
    try:
        content = models.export_json(db, caller, model_id)
    except Invalid:
        content = models.get(db, caller, model_id).model_dump(mode="json")
    return as_file(JSONResponse(content), f"{model_id}.json")


def as_file(answer: Response, name: str) -> Response:
    """Return an answer that the browser saves under a name."""
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
