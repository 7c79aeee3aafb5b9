"""Notification of supervisors: a job waits, so look at the database now and not at the next poll.

The database is the truth. A notification that gets lost costs seconds, for supervisors poll and sweepers notify again;
one that arrives twice costs nothing, for the second claim finds nothing. A notification never delays and never fails
the request that sends it.
"""

from typing import Protocol

from core.base.settings import ServiceSettings


class Notifier(Protocol):
    """Notifies after the transaction that queued a job has committed."""

    def notify(self, job_id: str, device: str) -> None:
        """Notify the queues of a device (``auto``, ``cpu`` or ``cuda``) that a job waits. Returns at once."""


class SilentNotifier:
    """For a service without a broker: its supervisors look often enough."""

    def notify(self, job_id: str, device: str) -> None:
        """Do nothing."""


def make_notifier(settings: ServiceSettings) -> Notifier:
    """Return the notifier of a service: silent unless a broker is set."""
    if settings.broker_url is None:
        return SilentNotifier()
    from core.service.broker import SOCKET_SECONDS, BrokerNotifier, make_app  # noqa: PLC0415 - a service without a broker needs no Celery

    return BrokerNotifier(make_app(settings.broker_url, socket_timeout=SOCKET_SECONDS))
