"""Health, readiness, version and the OpenAPI document, without a key; figures for those who run it, with one."""

import json
import platform

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from api.batcher import Batcher
from api.body import StrictRoute
from api.cost import META, PUBLIC, WATCHERS, Cost, Work, costs
from api.deps import Caller, Db
from api.errors import problems
from api.metrics import Metrics
from core.base.errors import Forbidden, NotReady, Unauthenticated
from core.service import health as service

router = APIRouter(tags=["meta"], route_class=StrictRoute)


class Alive(BaseModel):
    """That this process answers."""

    status: str


class Ready(BaseModel):
    """The parts that requests need, and the state of each."""

    status: str
    """ready, or degraded while only the broker is away."""
    database: str
    broker: str
    storage: str
    ledger: str
    signing: str


class Version(BaseModel):
    """Versions of the service, of Python and of the database's schema."""

    version: str
    python: str
    database_revision: str | None
    api: str


@router.get("/healthz")
@costs(META)
async def is_alive() -> Alive:
    """Tell that this process answers."""
    return Alive(status="ok")


@router.get("/readyz", responses=problems(NotReady))
@costs(META)
async def is_ready(request: Request) -> Ready:
    """Tell whether requests can be served: database, storage, and the ledger's head against its witness.

    A broker that is away makes the answer `degraded`, with status 200: jobs start later, and nothing fails.
    """
    asked: Batcher[None, Ready] = request.app.state.ready  # however many ask, it is looked into once at a time
    return await asked.ask(None)


@router.get("/version")
@costs(META)
def show_version(request: Request, db: Db) -> Version:
    """Show what runs here."""
    return Version(
        version=request.app.version,
        python=platform.python_version(),
        database_revision=service.revision(db),
        api="v1",
    )


@router.get("/openapi.json", responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}})
@costs(PUBLIC)
def show_openapi(request: Request) -> Response:
    """Show the OpenAPI document of this service."""
    state = request.app.state
    # The document is the same for everybody, so it is made and written once.
    if state.openapi is None:
        state.openapi = json.dumps(request.app.openapi()).encode()
    return Response(state.openapi, media_type="application/json")


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems(Unauthenticated, Forbidden),
    },
)
@costs(Cost(WATCHERS, Work.HEAVY))
def show_metrics(request: Request, caller: Caller, db: Db) -> Response:
    """Show figures in the Prometheus text format, to a key of an auditor or an admin."""
    del caller
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.render(*service.measure(db, metrics.agreed)), media_type=CONTENT_TYPE_LATEST)
