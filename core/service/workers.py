"""The supervisors that serve, as far as they were seen."""

from sqlalchemy.orm import Session

from core.base.errors import FieldError, GpuUnavailable
from core.db import clock
from core.jobs import workers
from core.service.context import Caller, Context
from core.service.views import rfc3339
from farthing.schemas.service import WorkerView

LEASES = 3
"""A supervisor that was not seen for so many leases counts as gone."""
MOST = 1000


def page(context: Context, caller: Caller) -> list[WorkerView]:
    """Return the supervisors of the last day, the last seen first.

    Raises:
        Forbidden: the caller is neither an admin nor an auditor.
    """
    caller.require("admin", "auditor")
    with context.database.read() as session:
        at = clock.read(session)
        return [
            WorkerView(
                name=worker.name,
                queues=worker.queues.split(","),
                slots=worker.slots,
                gpus=worker.gpus,
                site=worker.site,
                version=worker.version,
                alive=at - worker.seen_at <= LEASES * context.settings.lease_seconds,
                started_at=rfc3339(worker.started_at),
                seen_at=rfc3339(worker.seen_at),
            )
            for worker in workers.known(session, MOST)
        ]


def require_gpu(session: Session, context: Context, device: str) -> None:
    """Refuse a job that only a GPU can serve while there is none.

    Raises:
        GpuUnavailable: no supervisor with a GPU was seen within a few leases.
    """
    if device == "cuda" and not workers.any_with_gpu(session, LEASES * context.settings.lease_seconds):
        raise GpuUnavailable(
            "No worker with a GPU is at work. Submit with device auto or cpu, or try again when one has started.",
            FieldError("/resources/device", "auto and cpu can be served"),
        )
