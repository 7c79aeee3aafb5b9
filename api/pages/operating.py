"""The operator's page: workers and what they hold, what waits, what failed, and what the service stands on."""

from typing import Any

from fastapi import APIRouter, Request, Response

from api.deps import Caller, Db
from api.pages.rendering import as_page, fragment, render
from api.pages.routes import PageRoute, page
from api.routes import service as api
from core.service import jobs
from core.service.context import Caller as Principal
from core.service.context import Context

router = APIRouter(route_class=PageRoute)


@page(router, "/service", api=api.get_service)
def show_service(request: Request, caller: Caller, db: Db) -> Response:
    """Show how the service is."""
    return render(request, "service.html", _facts(request, db, caller), at="service")


@page(router, "/service/live", api=api.get_service)
def show_live(request: Request, caller: Caller, db: Db) -> Response:
    """Return the part of the page that changes."""
    return as_page(fragment(request, "service_live.html", _facts(request, db, caller)))


def _facts(request: Request, context: Context, caller: Principal) -> dict[str, Any]:
    view = api.get_service(request, caller, context)
    alive = [one for one in view.workers if one.alive]
    ids = [one.job for one in view.waiting] + [one.job for one in view.leases] + [one.last_job for one in view.failures]
    return {
        "service": view,
        "serving": len(alive),
        "slots": sum(one.slots for one in alive),
        "held": {one.name: [lease for lease in view.leases if lease.worker == one.name] for one in view.workers},
        "mine": jobs.visible(context, caller, ids),
        "gigabytes": f"{view.free_disk_bytes / 1e9:,.1f}",
    }
