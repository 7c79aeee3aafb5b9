"""The bell: tells a supervisor that a job waits, so that it need not wait for its next look at the database.

The database is the truth. A ring that gets lost costs seconds, for supervisors look by themselves and sweepers ring
again; a ring that is heard twice costs nothing, for the second claim finds nothing. So a ring never delays and never
fails whoever rings.
"""

from typing import Protocol

from core.settings import ServiceSettings


class Bell(Protocol):
    """Rung after the transaction that queued a job has committed."""

    def ring(self, job_id: str, device: str) -> None:
        """Tell the queues of a device (``auto``, ``cpu`` or ``cuda``) that a job waits. Returns at once."""


class SilentBell:
    """For a service without a broker: its supervisors look often enough."""

    def ring(self, job_id: str, device: str) -> None:
        """Do nothing."""


def make_bell(settings: ServiceSettings) -> Bell:
    """Return the bell of a service: silent unless a broker is set."""
    if settings.broker_url is None:
        return SilentBell()
    from core.service.broker import SOCKET_SECONDS, BrokerBell, make_app  # noqa: PLC0415 - a service without a broker needs no Celery

    return BrokerBell(make_app(settings.broker_url, socket_timeout=SOCKET_SECONDS))
