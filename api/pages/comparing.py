"""Two released models side by side: estimates, bounds on their difference, and what may be said of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response

from api.deps import Caller, Db
from api.pages import words
from api.pages.models import head
from api.pages.rendering import render
from api.pages.routes import PageRoute, page, see_other
from api.routes import models as api
from core.db.model_reads import ModelFilter
from core.service import jobs, models, readings, trained
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.figures import interval_words, level_words, number, p_words, statistic
from farthing.schemas.jobs import JobView

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
TAB: Final = "Comparison"
MOST: Final = 100


@dataclass(frozen=True)
class Line:
    """A coefficient of both models, as the table writes it."""

    name: str
    first: str
    first_interval: str
    second: str
    second_interval: str
    difference: str
    bound: str
    p: str
    apart: bool
    """True where the intervals do not meet."""
    ratio: str


@page(router, "/models/{model_id}/compare", api=api.get_model)
def choose_other(
    model_id: ModelId, request: Request, caller: Caller, db: Db, other: Annotated[str, Query(max_length=60)] = ""
) -> Response:
    """Show the models that this one may be compared with."""
    if other:
        return see_other(f"/models/{model_id}/compare/{models.get(db, caller, other).id}")
    facts = head(db, caller, model_id, TAB)
    facts |= {"others": _others(db, caller, model_id, facts["job"].model), "shown": None}
    return render(request, "compare.html", facts, at="models")


@page(router, "/models/{model_id}/compare/{other_id}", api=api.compare_models)
def show_comparison(model_id: ModelId, other_id: ModelId, request: Request, caller: Caller, db: Db) -> Response:
    """Show two models of one target side by side."""
    shown = readings.compare(db, caller, model_id, other_id, None)
    other = jobs.get(db, caller, models.get(db, caller, other_id).job)
    facts = head(db, caller, model_id, TAB)
    facts |= {
        "others": _others(db, caller, model_id, facts["job"].model),
        "shown": shown,
        "other": other_id,
        "second": words.job_name(other),
        "second_method": other.method.title,
        "lines": [_line(one) for one in shown["coefficients"]],
        "level": level_words(shown["level"]),
        "joint": _joint(shown["joint"]),
        "number": number,
    }
    return render(request, "compare.html", facts, at="models")


def _others(context: Context, caller: Principal, model_id: str, own: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return other models of the kind and target of `own` among the newest ones: ids and names."""
    newest = trained.page(context, caller, ModelFilter(), None, MOST)
    alike = [one for one in newest if one.kind == own["kind"] and one.id != model_id]
    found = zip(alike, jobs.get_all(context, [(caller, one.job) for one in alike]), strict=True)
    return [
        (one.id, words.job_name(job))
        for one, job in found
        if isinstance(job, JobView) and job.result is not None and job.model.get("target") == own.get("target")
    ]


def _line(one: dict[str, Any]) -> Line:
    first, second = one["first"] or {}, one["second"] or {}
    return Line(
        name=one["name"],
        first=statistic(first.get("estimate")),
        first_interval=interval_words(first.get("interval")),
        second=statistic(second.get("estimate")),
        second_interval=interval_words(second.get("interval")),
        difference=statistic(one["difference"]),
        bound=statistic(one["std_error_bound"]),
        p=p_words(one["p_value_bound"]),
        # None is no answer: an interval is missing.
        apart=one["intervals_overlap"] is False,
        ratio=statistic(one["width_ratio"]),
    )


def _joint(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return (
        f"That no coefficient differs: chi-squared at least {statistic(found['statistic_bound'])} on "
        f"{found['degrees_of_freedom']} degrees of freedom, p at most {p_words(found['p_value_bound'])}."
    )
