"""The operator's page: workers, places, what waits, and what the service stands on."""

from typing import Any

from fastapi import APIRouter, Request, Response

from api.deps import Caller, Db
from api.pages.rendering import as_page, fragment, render
from api.pages.routes import PageRoute, page
from api.routes import workers as api
from core.base.errors import NotReady
from core.base.version import code_version
from core.service import health, workers
from core.service.context import Caller as Principal
from core.service.context import Context

router = APIRouter(route_class=PageRoute)


@page(router, "/service", api=api.list_workers)
def show_service(request: Request, caller: Caller, db: Db) -> Response:
    """Show how the service is."""
    return render(request, "service.html", _facts(db, caller) | {"version": code_version()}, at="service")


@page(router, "/service/live", api=api.list_workers)
def show_live(request: Request, caller: Caller, db: Db) -> Response:
    """Return the part of the page that changes."""
    return as_page(fragment(request, "service_live.html", _facts(db, caller)))


def _facts(context: Context, caller: Principal) -> dict[str, Any]:
    seen = workers.page(context, caller)
    parts: dict[str, str] = {}
    trouble = ""
    try:
        parts = {part: state for part, state in health.check(context).items() if part != "status"}
    except NotReady as refusal:
        trouble = refusal.detail
    alive = [one for one in seen if one.alive]
    jobs = health.measure(context, {})[0].jobs
    return {
        "workers": seen,
        "serving": len(alive),
        "slots": sum(one.slots for one in alive),
        "running": jobs.get("running", 0),
        "queued": jobs.get("queued", 0),
        "parts": parts,
        "trouble": trouble,
    }
