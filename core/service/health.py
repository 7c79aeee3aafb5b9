"""Whether this service can serve."""

from sqlalchemy.exc import SQLAlchemyError

from core.errors import NotReady
from core.service import witnessing
from core.service.context import Context
from core.store import datasets, queries
from core.store.claims import frozen_reason
from core.store.master_key import check_master_keys, prepare_master_key
from core.store.storage import open_storage


def start(context: Context) -> None:
    """Make sure at start-up that records can be stored and read.

    Raises:
        NotReady: there is no master key, or another one than records are under.
    """
    with context.database.read() as session:
        wrapped = datasets.wrapped_keys(session)
    prepare_master_key(context.settings, wrapped.values())


def check(context: Context) -> dict[str, str]:
    """Return that database, storage and ledger are fit for requests.

    Raises:
        NotReady: one of them is not; the text says which, and what an operator does about it.
    """
    try:
        migrated = context.database.ready()
    except SQLAlchemyError as error:
        raise NotReady("The database does not answer.", retry_after_seconds=2) from error
    if not migrated:
        raise NotReady("The database has other tables than this code: run the migrations.", retry_after_seconds=5)
    open_storage(context.settings).check()
    with context.database.read() as session:
        frozen = frozen_reason(session)
        wrapped = datasets.wrapped_keys(session)
    check_master_keys(context.settings, wrapped.values())
    if frozen is not None:
        raise NotReady(f"The ledger is frozen: {frozen} Run `farthing reconcile`.")
    if problems := witnessing.compare(context):
        raise NotReady(f"The ledger is behind its witness: {problems[0]} Run `farthing reconcile`.")
    return {"status": "ready", "database": "ok", "storage": "ok", "ledger": "ok"}


def revision(context: Context) -> str | None:
    """Return the revision of the database's tables."""
    return context.database.revision()


def count_jobs(context: Context) -> dict[str, int]:
    """Return the number of jobs in each state."""
    with context.database.read() as session:
        return queries.count_states(session)
