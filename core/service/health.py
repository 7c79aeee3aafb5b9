"""Whether this service can serve, and figures for those who run it."""

from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from core.base.errors import NotReady
from core.db import clock
from core.ledger.claims import frozen_reason
from core.ledger.signing import load_signing_keys, prepare_signing_key
from core.operations import figures
from core.operations.figures import Figures
from core.records import datasets
from core.records.master_key import check_master_keys, prepare_master_key
from core.records.storage import open_storage
from core.service import witnessing
from core.service.context import Context

BROKER_AWAY: Final = "away: jobs wait until a supervisor looks into the database, seconds longer"
SILENT_LEASES: Final = 2
"""A supervisor that was not seen for so many leases is not counted."""


def start(context: Context) -> None:
    """Make sure at start-up that records can be stored and read, and on one machine that certificates can be signed.

    Raises:
        NotReady: there is no master key, or another one than records are under.
    """
    with context.database.read() as session:
        wrapped = datasets.wrapped_keys(session, context.settings.site)
        at = clock.read(session)
    prepare_master_key(context.settings, wrapped.values())
    prepare_signing_key(context.settings, at)


def check(context: Context) -> dict[str, str]:
    """Return that database, storage and ledger are fit for requests, and how the broker is.

    A broker that is away makes the service slower and not unready: the database is the truth, and supervisors look
    into it.

    Raises:
        NotReady: one of them is not; the text says which, and what an operator does about it.
    """
    try:
        migrated = context.database.ready()
    except SQLAlchemyError as error:
        raise NotReady("The database does not answer.", retry_after_seconds=2) from error
    if not migrated:
        detail = "The database has other tables than this code: run `python -m workers.upkeep prepare`."
        raise NotReady(detail, retry_after_seconds=5)
    context.write_probe.check(context)
    open_storage(context.settings).check()
    with context.database.read() as session:
        frozen = frozen_reason(session)
        wrapped = datasets.wrapped_keys(session, context.settings.site)
    check_master_keys(context.settings, wrapped.values())
    if frozen is not None:
        raise NotReady(f"The ledger is frozen: {frozen} Run `farthing reconcile`.")
    if problems := witnessing.compare(context):
        raise NotReady(f"The ledger is behind its witness: {problems[0]} Run `farthing reconcile`.")
    broker = _broker(context)
    status = "degraded" if broker == BROKER_AWAY else "ready"
    shown = {"database": "ok", "broker": broker, "storage": "ok", "ledger": "ok", "signing": _signing(context)}
    return {"status": status, **shown}


def _signing(context: Context) -> str:
    """Return whether certificates can be signed; jobs do without."""
    try:
        load_signing_keys(context.settings)
    except NotReady as missing:
        return missing.detail
    return "ok"


def _broker(context: Context) -> str:
    """Return how the broker is; without one, and while it is away, supervisors find work by looking for it."""
    url = context.settings.broker_url
    if url is None:
        return "none: supervisors look into the database"
    from core.service.broker import answers  # noqa: PLC0415 - a service without a broker needs no Celery

    return "ok" if answers(url) else BROKER_AWAY


def revision(context: Context) -> str | None:
    """Return the revision of the database's tables."""
    return context.database.revision()


def measure(context: Context, agreed: dict[str, int]) -> tuple[Figures, int | None]:
    """Return the figures for operators, and how many entries the witness does not know; None where it is away.

    Args:
        context: the service.
        agreed: the witness's heads as they were last seen, see `witnessing.lag`.
    """
    with context.database.read() as session:
        silent = SILENT_LEASES * context.settings.lease_seconds
        found = figures.read(session, silent, context.settings.visible_grid_seconds)
    try:
        return found, witnessing.lag(context, found.heads, agreed)
    except NotReady:
        return found, None
