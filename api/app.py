"""The HTTP application: routes, the envelope around every request, and what lives as long as the process."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from anyio import to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import errors, notices, provenance, upkeep
from api.audit_log import AuditLog
from api.authenticator import Authenticator
from api.batcher import Batcher
from api.deps import REQUIRED
from api.limits import Limits
from api.metrics import Metrics
from api.middleware import Envelope
from api.pages import approvals as approval_pages
from api.pages import assets as page_assets
from api.pages import (
    auditing,
    comparing,
    home,
    inviting,
    letting_in,
    model_list,
    noticing,
    operating,
    predicting,
    questions,
    reference,
    sign_in,
)
from api.pages import certificates as certificate_pages
from api.pages import datasets as dataset_pages
from api.pages import drafts as draft_pages
from api.pages import jobs as job_pages
from api.pages import methods as method_pages
from api.pages import models as model_pages
from api.pages import new_dataset as new_dataset_pages
from api.pages import new_job as new_job_pages
from api.pages import parts as part_pages
from api.pages import people as people_pages
from api.pages import removals as removal_pages
from api.pages import reports as report_pages
from api.pages.rendering import problem_page
from api.rate import Rate
from api.routes import access as access_routes
from api.routes import audit as audit_routes
from api.routes import (
    catalogue,
    certificates,
    datasets,
    drafts,
    emails,
    estimates,
    health,
    invitations,
    jobs,
    keys,
    mock_jobs,
    models,
    parts,
    pretrained,
    principals,
    removals,
    reports,
    scopes,
    service,
    sweeps,
    webhooks,
    workers,
)
from api.routes import predicting as file_predictions
from api.watch import Watcher
from core.base.errors import DatabaseAway, LedgerBusy, UnsupportedCoding
from core.base.settings import ServiceSettings
from core.base.version import code_version
from core.data.datasets import Metadata
from core.db.database import Database
from core.records.master_key import load_master_keys
from core.service import health as readiness
from core.service import intake, witnessing
from core.service import jobs as job_cases
from core.service.context import Context
from core.service.notifier import make_notifier
from farthing.schemas.problems import Problem

_THREADS = 64  # of sync endpoints; more than the connections of the pool would only wait there
PAGES: Final = (
    sign_in,
    home,
    new_dataset_pages,
    draft_pages,
    part_pages,
    removal_pages,
    dataset_pages,
    letting_in,
    new_job_pages,
    job_pages,
    method_pages,
    model_list,
    model_pages,
    questions,
    predicting,
    comparing,
    certificate_pages,
    report_pages,
    approval_pages,
    people_pages,
    noticing,
    inviting,
    auditing,
    operating,
    reference,
)
"""Modules of the console, each with a `router`."""
_NO_PRIVATE_TEXT = "A REST service that trains models privately. Figures of privacy are decimal strings."


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    # anyio keeps one limiter for each event loop, so the number cannot be set before the loop runs.
    to_thread.current_default_thread_limiter().total_tokens = _THREADS
    context: Context = app.state.context
    # A database that is not migrated yet must not stop the start: /readyz reports it.
    if await to_thread.run_sync(context.database.ready):
        await to_thread.run_sync(witnessing.start, context)
        await to_thread.run_sync(readiness.start, context)
    watcher: Watcher = app.state.watcher
    async with watcher.running(), upkeep.running(context), notices.running(context):
        yield
    await to_thread.run_sync(context.stop)


def create_app(settings: ServiceSettings | None = None) -> FastAPI:
    """Return the application; the database must have been migrated (`/readyz` says so otherwise).

    Args:
        settings: where things are; read from FARTHING_... when left out.

    Raises:
        NotReady: the database's file system or server could lose a commit, or several machines have no master key.
    """
    settings = settings or ServiceSettings()
    if settings.cluster:
        # Called for its error alone: several machines without a common master key must not start.
        load_master_keys(settings)
    settings.records_path.mkdir(parents=True, exist_ok=True)
    context = Context(settings, Database(settings.url), make_notifier(settings))
    app = FastAPI(
        title="Farthing",
        version=code_version(),
        description=_NO_PRIVATE_TEXT,
        lifespan=_lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirection's address would be made of what the client calls this host
        separate_input_output_schemas=False,
        responses=errors.UNREADABLE | errors.problems(UnsupportedCoding, LedgerBusy, DatabaseAway),
    )
    app.state.context = context
    app.state.metrics = Metrics()
    authenticator = Authenticator(context, Rate(settings.requests_per_minute, settings.broker_url))
    app.state.limits = Limits(context, authenticator)
    app.state.watcher = Watcher(context)
    app.state.audit_log = AuditLog(context)
    app.state.intake = Batcher(partial(intake.store, context), "intake")
    app.state.witness = Batcher(partial(intake.confirm, context), "witness")
    app.state.openapi = None
    app.state.ready = Batcher(lambda asked: [health.Ready(**readiness.check(context))] * len(asked), "ready")
    app.state.existing = Batcher(partial(job_cases.exist_all, context), "existing")
    app.state.jobs = Batcher(partial(job_cases.get_all, context), "jobs")
    data, work = (
        (datasets, access_routes, scopes, pretrained),
        (jobs, mock_jobs, sweeps, estimates, file_predictions, models, certificates),
    )
    others = (
        drafts,
        parts,
        removals,
        reports,
        health,
        catalogue,
        keys,
        principals,
        invitations,
        audit_routes,
        workers,
        service,
        webhooks,
        emails,
    )
    for module in (*work, *data, *others):
        app.include_router(module.router)
    for module in (page_assets, *PAGES):
        app.include_router(module.router)
    app.state.problem_page = problem_page
    errors.install(app)
    app.add_middleware(Envelope, metrics=app.state.metrics, audit_log=app.state.audit_log)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign] # FastAPI's documented way to extend the schema
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the problem schema that every refusal follows."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=None
        )
        components = document.setdefault("components", {}).setdefault("schemas", {})
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        components.update(schema.pop("$defs", {}))
        components["Problem"] = schema
        declared = Metadata.model_json_schema(ref_template="#/components/schemas/{model}")
        components.update(declared.pop("$defs", {}))
        components["Metadata"] = declared
        _suit_generators(components)
        for operations in document["paths"].values():
            for operation in operations.values():
                _mark_required(operation.get("parameters", ()))
                # FastAPI declares its own form of a 422, and no answer here has that form.
                refused = operation.get("responses", {}).pop("422", None)
                if refused is not None:
                    operation["responses"]["422"] = {
                        "description": refused["description"],
                        "content": {errors.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                    }
        for unused in ("HTTPValidationError", "ValidationError"):
            components.pop(unused, None)
        provenance.mark(document)
        app.openapi_schema = document
    return app.openapi_schema


def _suit_generators(schema: Any) -> None:  # noqa: ANN401 - any part of a JSON document
    """Say the same in words that generators of clients parse.

    They refuse a default that is no plain value, so that stands in the description. For a constant number they write
    invalid code, so the schema gives it as minimum and maximum instead.
    """
    if isinstance(schema, list):
        for item in schema:
            _suit_generators(item)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("default"), dict) and ("oneOf" in schema or "anyOf" in schema or "$ref" in schema):
        words = f"Default: {json.dumps(schema.pop('default'))}."
        schema["description"] = f"{schema['description']} {words}" if "description" in schema else words
    if schema.get("type") in ("integer", "number") and isinstance(schema.get("const"), int | float):
        schema["minimum"] = schema["maximum"] = schema.pop("const")
    for item in schema.values():
        _suit_generators(item)


def _mark_required(parameters: Iterable[dict[str, Any]]) -> None:
    """Mark the required headers as required: FastAPI takes them as optional, so that their absence has its own code."""
    for parameter in parameters:
        if parameter["schema"].pop(REQUIRED, False):
            parameter["required"] = True
            parameter["schema"] = {"type": "string", "title": parameter["schema"].get("title", parameter["name"])}
