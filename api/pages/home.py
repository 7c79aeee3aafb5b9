"""Home: everything that waits for the person who is signed in, the datasets, and the latest jobs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from fastapi import APIRouter, Request, Response

from api.deps import After, Caller, Db
from api.pages import words
from api.pages.charts import is_low
from api.pages.rendering import render
from api.pages.routes import PageRoute, page
from api.pages.sorting import Sort, sorting
from api.routes import datasets as api
from core.db.reads import JobFilter
from core.db.sorting import DATASET_COLUMNS
from core.service import datasets as service
from core.service import drafts, jobs, naming, overview, unreadable
from core.service.context import Caller as Principal
from core.service.context import Context
from core.service.views import DatasetView
from farthing.schemas.figures import left_per_cent, moment, number, per_cent, short_date
from farthing.schemas.jobs import JobView

router = APIRouter(route_class=PageRoute)
MOST_DATASETS: Final = 100
LATEST: Final = 10
LOOKED_AT: Final = 20
"""Datasets whose reports on cells are opened, and jobs that are looked at."""
RECENT: Final = timedelta(days=7)


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
    """Show what waits, the datasets, and the latest jobs."""
    seen = service.page(db, caller, None, MOST_DATASETS)
    shown = overview.of(db, caller)
    latest = jobs.page(db, caller, JobFilter(), None, LOOKED_AT)
    names = naming.names(db, caller, [one.dataset for one in latest] + [one.owner for one in latest])
    unread = unreadable.of(db, caller, LOOKED_AT) if caller.role == "owner" else []
    facts = {
        "waits": [
            *_first(caller, seen),
            *_owed(shown),
            *(_draft(one) for one in seen if one.state == "draft"),
            *map(_unread, unread),
            *_going_on(caller, latest, names, _now()),
        ],
        "jobs": latest[:LATEST],
        "names": names,
        "job_name": words.job_name,
        "spent_words": words.spent_words,
        "sorting": None,
        "first": None,
        "following": None,
    }
    return render(request, "home.html", facts | _list(db, caller, seen, shown), at="home")


@page(router, "/datasets", api=api.list_datasets)
def show_datasets(request: Request, caller: Caller, db: Db, sort: Sort = "", after: After = None) -> Response:
    """Show the datasets, newest first unless sorted otherwise."""
    order = sorting("/datasets", {}, sort, DATASET_COLUMNS)
    found = service.page(db, caller, after, MOST_DATASETS + 1, order.order)
    seen = found[:MOST_DATASETS]
    facts = {
        "sorting": order,
        "first": order.after() if after else None,
        "following": order.after(seen[-1].id) if len(found) > MOST_DATASETS else None,
    }
    return render(request, "datasets.html", facts | _list(db, caller, seen, overview.of(db, caller)), at="datasets")


def _now() -> datetime:
    return datetime.now(UTC)


def _list(context: Context, caller: Principal, seen: list[DatasetView], shown: overview.Overview) -> dict[str, object]:
    return {
        "datasets": seen,
        "budgets": {one.dataset: one.shares for one in shown.budgets},
        "owners": naming.names(context, caller, [one.owner for one in seen]) if caller.role != "owner" else {},
        "list_title": "Datasets",
    }


def _first(caller: Principal, seen: list[DatasetView]) -> list[Waits]:
    """Return what somebody does first, while there is no dataset."""
    if seen:
        return []
    if caller.role == "admin":
        text = "Each makes an own key by a link. The owner then adds a dataset, and the analyst asks it."
        return [Waits("", "people", "Invite a data owner and an analyst", text, "/invitations", "Invite them")]
    if caller.role == "owner" and caller.key_seen_by_others:
        text = "Somebody else made your key and has seen it. Until you replace it, uploads are refused."
        return [Waits("warn", "lock", "Replace your key before your first upload", text, "/you", "Replace the key")]
    return []


def _owed(shown: overview.Overview) -> list[Waits]:
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


def _draft(one: DatasetView) -> Waits:
    until = short_date(moment(one.created_at) + timedelta(seconds=drafts.KEPT_SECONDS), _now())
    text = f"Only you see it. Look at how its cells were read, and seal it; else it is erased on {until}."
    return Waits("", "file", f"{one.name} is a draft", text, f"/datasets/{one.id}/draft", "Open the draft")


def _unread(one: unreadable.Unreadable) -> Waits:
    return Waits(
        "warn",
        "eye",
        f"{one.name}: {number(one.cells)} cells of {one.column} cannot be read",
        f"{per_cent(f'{one.part:.3f}')} of its cells. Such a column was probably exported otherwise than declared. "
        "Only you see this.",
        f"/datasets/{one.dataset}/validation",
        "Open the report",
    )


def _going_on(caller: Principal, latest: list[JobView], names: dict[str, str], now: datetime) -> list[Waits]:
    """Return the jobs to look at: one's own that go on or wait, and those that failed in the last days."""
    if caller.role not in {"owner", "analyst"}:
        return []
    return [found for one in latest if (found := _job(one, names, is_own=one.owner == caller.id, now=now)) is not None]


def _job(job: JobView, names: dict[str, str], *, is_own: bool, now: datetime) -> Waits | None:
    """Return why a job is to be looked at; None: it is not."""
    title, path = words.job_name(job), f"/jobs/{job.id}"
    by = "" if is_own or job.owner not in names else f" by {names[job.owner]}"
    if job.finished_at is None and is_own:
        step, steps = job.progress.step, job.progress.steps
        text = f"Step {step} of {steps}." if job.state == "running" else (job.waits_for or "It waits for a worker.")
        return Waits("", "now", f"{title}: {job.state}", text, path, "Watch")
    if job.state == "failed" and job.finished_at is not None and now - moment(job.finished_at) < RECENT:
        cost = words.spent_words(job)
        text = f"{job.failed_for or ''} {f'It cost {cost} of the budget.' if cost else ''}".strip()
        return Waits("bad", "bad", f"{title}{by} failed", text, path, "Open the job")
    if job.approval == "pending" and is_own and job.result is None:
        return Waits("warn", "eye", f"{title} waits for approval", _LOOKS, path, "Open the job")
    return None


_LOOKS: Final = "It succeeded. The owner of the data looks at each release before you see it."
