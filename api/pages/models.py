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
from core.service import jobs, models, naming, readings
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.figures import MINUS, number, statistic

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
Level = Annotated[float | None, Query(gt=0.5, lt=1)]
LEVELS: Final = (0.9, 0.95, 0.99)
RATIOS: Final = {"logistic": "odds_ratio", "multinomial": "odds_ratio", "poisson": "rate_ratio"}
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
    summary = readings.summary(db, caller, model_id, [level] if level else [])
    model = models.get(db, caller, model_id)
    job = jobs.get(db, caller, model.job)
    facts: dict[str, Any] = {
        "title": words.job_name(job),
        "model": model,
        "job": job,
        "summary": summary,
        "names": naming.names(db, caller, [job.dataset, job.owner]),
        "costs": words.costs(job),
        "what": words.what,
        "job_flags": readings.job_flags(db, caller, model_id),
        "rows": [],
        "text": "",
    }
    if "coefficients" in summary:
        facts |= _coefficients(db, caller, model_id, summary, scale)
    else:
        facts["text"] = readings.summary_text(db, caller, model_id, [])
    return render(request, "model.html", facts, at="jobs")


def _coefficients(
    context: Context, caller: Principal, model_id: str, summary: dict[str, Any], scale: str | None
) -> dict[str, Any]:
    """Return the table of coefficients, and its plot."""
    level = summary["level"]
    effects = readings.effects(context, caller, model_id, [level])
    kind = RATIOS.get(summary["kind"])
    ratios = readings.ratios(context, caller, model_id, [level], kind)[f"{kind}s"] if kind else []
    beside = {one["name"]: one for one in ratios}
    rows = [
        _row(line, effect, beside.get(line["name"]), kind)
        for line, effect in zip(summary["coefficients"], effects, strict=True)
    ]
    outer, inner = sorted(plot_levels([level]), reverse=True)
    return {
        "rows": rows,
        "forest": charts.forest(effects),
        "level": level,
        "levels": sorted({*LEVELS, level}),
        "outer": outer,
        "inner": inner,
        "level_words": _level_words,
        "scale": scale if kind else None,
        "ratio": (kind or "").replace("_", " ").capitalize() + "s" if kind else "",
        "flagged": sum(bool(one.flags) for one in effects),
        "noted": sum(bool(one.notes) for one in effects),
    }


def _row(line: dict[str, Any], effect: Effect, ratio: dict[str, Any] | None, kind: str | None) -> Row:
    return Row(
        name=line["name"],
        step="" if effect.step is None else number(f"{effect.step:.10g}"),
        estimate=statistic(line["estimate"]),
        std_error=statistic(line["std_error"]),
        z="" if line["z"] is None else f"{line['z']:.2f}".replace("-", MINUS),
        p=_p_words(line["p_value"]),
        interval=_interval(line["interval"]),
        flags=effect.flags,
        notes=effect.notes,
        ratio=statistic(ratio[kind]) if ratio and kind else "",
        ratio_interval=_interval(ratio["interval"]) if ratio else "",
    )


def _interval(ends: list[float] | None) -> str:
    return "" if ends is None else f"[{statistic(ends[0])}, {statistic(ends[1])}]"


def _p_words(value: float | None) -> str:
    if value is None:
        return ""
    return f"< {_SMALLEST_P:.4f}".replace("0.", ".") if value < _SMALLEST_P else f"{value:.4f}".removeprefix("0")


def _level_words(level: float) -> str:
    return f"{100 * level:g}\N{NO-BREAK SPACE}%"


@page(router, "/models/{model_id}/summary.txt", api=api.get_summary)
def download_text(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send the summary as text."""
    return _file(PlainTextResponse(readings.summary_text(db, caller, model_id, [])), f"{model_id}.txt")


@page(router, "/models/{model_id}/summary.html", api=api.get_summary)
def download_page(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send the summary as one HTML file that loads nothing."""
    text = readings.summary_page(db, caller, model_id, [])
    return _file(Response(text, media_type="text/html"), f"{model_id}.html")


@page(router, "/models/{model_id}/model.json", api=api.export_model)
def download_model(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Send everything that predictions need."""
    try:
        content = models.export_json(db, caller, model_id)
    except Invalid:
        content = models.get(db, caller, model_id).model_dump(mode="json")
    return _file(JSONResponse(content), f"{model_id}.json")


def _file(answer: Response, name: str) -> Response:
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
