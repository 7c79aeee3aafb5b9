"""Health, readiness, version and metrics, at the root and without a key."""

import platform
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.deps import Db
from api.errors import problems
from api.metrics import Metrics
from core.errors import NotReady
from core.service import health as service

router = APIRouter(tags=["meta"])


@router.get("/healthz")
def is_alive() -> dict[str, str]:
    """Tell that this process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=problems(NotReady))
def is_ready(db: Db) -> dict[str, str]:
    """Tell whether requests can be served: database, storage, and the ledger's head against its witness.

    A broker that is away makes the answer `degraded`, with status 200: jobs start later, and nothing fails.
    """
    return service.check(db)


@router.get("/version")
def show_version(request: Request, db: Db) -> dict[str, Any]:
    """Show what runs here."""
    return {
        "version": request.app.version,
        "python": platform.python_version(),
        "database_revision": service.revision(db),
        "api": "v1",
    }


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def show_metrics(request: Request, db: Db) -> Response:
    """Show figures in the Prometheus text format."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.render(*service.measure(db, metrics.agreed)), media_type=CONTENT_TYPE_LATEST)
