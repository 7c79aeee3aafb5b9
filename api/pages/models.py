"""Models: coefficients with flags in words, a forest plot, ratios, the methods paragraph and downloads."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from api.deps import Caller, Db
from api.pages import charts, words
from api.pages.rendering import render
from api.pages.routes import PageRoute, page
from api.routes import models as api
from core.base.errors import Invalid
from core.inference.forest import Effect
from core.inference.pages import plot_levels
from core.service import jobs, models, naming, readings, trained
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.figures import MINUS, number, statistic

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
Level = Annotated[float | None, Query(gt=0.5, lt=1)]
LEVELS: Final = (0.9, 0.95, 0.99)
_SMALLEST_P: Final = 1e-4


@dataclass(frozen=True)
class Row:
    """A coefficient as the table writes it."""

    name: str
    step: str
    estimate: str
    std_error: str
    z: str
    p: str
    interval: str
    flags: tuple[str, ...]
    notes: tuple[str, ...]
    ratio: str
    ratio_interval: str


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
    summary = whole.summary
    facts = head(db, caller, model_id, None) | {
        "summary": summary,
        "job_flags": whole.job_flags,
        "rows": [],
        "text": whole.text,
        "level_words": level_words,
    }
    if "coefficients" in summary:
        facts |= _coefficients(whole, scale)
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
        "costs": words.costs(job),
        "what": words.what,
        "tab": tab,
        "tabs": (
            ("Coefficients" if has_coefficients else "Summary", base, True),
            ("Contrasts and tests", f"{base}/questions", has_coefficients),
            ("Predictions", f"{base}/predictions", kind != "description"),
            ("Comparison", f"{base}/compare", has_coefficients),
            ("Certificate", f"{base}/certificate", True),
        ),
    }


def _coefficients(whole: readings.Whole, scale: str | None) -> dict[str, Any]:
    """Return the table of coefficients, and its plot."""
    level = whole.summary["level"]
    beside = {one["name"]: one for one in whole.ratios}
    rows = [
        _row(line, effect, beside.get(line["name"]), whole.ratio)
        for line, effect in zip(whole.summary["coefficients"], whole.effects, strict=True)
    ]
    outer, inner = sorted(plot_levels([level]), reverse=True)
    return {
        "rows": rows,
        "forest": charts.forest(whole.effects),
        "level": level,
        "levels": sorted({*LEVELS, level}),
        "outer": outer,
        "inner": inner,
        "scale": scale if whole.ratio else None,
        "ratio": f"{whole.ratio.replace('_', ' ').capitalize()}s" if whole.ratio else "",
        "flagged": sum(bool(one.flags) for one in whole.effects),
        "noted": sum(bool(one.notes) for one in whole.effects),
    }


def _row(line: dict[str, Any], effect: Effect, ratio: dict[str, Any] | None, kind: str) -> Row:
    return Row(
        name=line["name"],
        step="" if effect.step is None else number(f"{effect.step:.10g}"),
        estimate=statistic(line["estimate"]),
        std_error=statistic(line["std_error"]),
        z="" if line["z"] is None else f"{line['z']:.2f}".replace("-", MINUS),
        p=p_words(line["p_value"]),
        interval=interval_words(line["interval"]),
        flags=effect.flags,
        notes=effect.notes,
        ratio=statistic(ratio[kind]) if ratio else "",
        ratio_interval=interval_words(ratio["interval"]) if ratio else "",
    )


def interval_words(ends: list[float] | None) -> str:
    """Write the ends of an interval; empty where there is none."""
    return "" if ends is None else f"[{statistic(ends[0])}, {statistic(ends[1])}]"


def p_words(value: float | None) -> str:
    """Write a p value with four digits; empty where there is none."""
    if value is None:
        return ""
    return f"< {_SMALLEST_P:.4f}".replace("0.", ".") if value < _SMALLEST_P else f"{value:.4f}".removeprefix("0")


def level_words(level: float) -> str:
    """Write the level of an interval in per cent."""
    return f"{100 * level:g}\N{NO-BREAK SPACE}%"


@page(router, "/models/{model_id}/summary.txt", api=api.get_summary)
def download_text(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send the summary as text."""
    return as_file(PlainTextResponse(readings.summary_text(db, caller, model_id, [])), f"{model_id}.txt")


@page(router, "/models/{model_id}/summary.html", api=api.get_summary)
def download_page(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send the summary as one HTML file that loads nothing."""
    text = readings.summary_page(db, caller, model_id, [])
    return as_file(Response(text, media_type="text/html"), f"{model_id}.html")


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
