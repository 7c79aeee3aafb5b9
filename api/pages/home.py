"""Home: everything that waits for the person who is signed in, and the datasets."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from api.deps import Caller, Db
from api.pages.charts import is_low
from api.pages.rendering import render
from api.pages.routes import PageRoute, page
from api.routes import datasets as api
from core.service import datasets as service
from core.service import overview
from core.service.views import DatasetView
from farthing.schemas.figures import left_per_cent

router = APIRouter(route_class=PageRoute)
MOST_DATASETS = 100


@dataclass(frozen=True)
class Waits:
    """Something to look at."""

    kind: str
    icon: str
    title: str
    text: str
    path: str
    deed: str


@page(router, "/", api=api.list_datasets)
def show_home(request: Request, caller: Caller, db: Db) -> Response:
    """Show what waits, and the datasets."""
    seen = service.page(db, caller, None, MOST_DATASETS)
    shown = overview.of(db, caller)
    return render(request, "home.html", {"waits": _waits(shown)} | _list(seen, shown), at="home")


@page(router, "/datasets", api=api.list_datasets)
def show_datasets(request: Request, caller: Caller, db: Db) -> Response:
    """Show the datasets."""
    seen = service.page(db, caller, None, MOST_DATASETS)
    return render(request, "datasets.html", _list(seen, overview.of(db, caller)), at="datasets")


def _list(seen: list[DatasetView], shown: overview.Overview) -> dict[str, object]:
    budgets = {one.dataset: one.shares for one in shown.budgets}
    return {"datasets": seen, "budgets": budgets, "list_title": "Datasets"}


def _waits(shown: overview.Overview) -> list[Waits]:
    """Return releases that wait for a yes, and budgets that are low."""
    count = shown.pending
    pending = Waits(
        "warn",
        "approve",
        "One release waits for your yes" if count == 1 else f"{count} releases wait for your yes",
        "Each is paid already; a no gives nothing back.",
        "/approvals",
        "Review it" if count == 1 else "Review them",
    )
    return [pending] * bool(count) + [
        Waits(
            "bad",
            "warn",
            f"{one.name} has {left_per_cent(one.shares.remaining)} of its budget left",
            "A budget never grows: records of new people are a new scope.",
            f"/datasets/{one.dataset}/budget",
            "See what is left",
        )
        for one in shown.budgets
        if is_low(one.shares.remaining)
    ]
