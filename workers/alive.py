"""Whether this machine's supervisor was seen of late: `python -m workers.alive` ends with 0 or 1, for health checks."""

import platform
import sys

from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.jobs import workers

LEASES = 3
"""A supervisor that was not seen for so many leases counts as gone."""


def alive(settings: ServiceSettings, machine: str) -> bool:
    """Tell whether a supervisor on a machine was seen within a few leases, by the database's clock."""
    database = Database(settings.url)
    try:
        with database.read() as session:
            # The database's clock wrote the time, so another machine's clock is not compared with it.
            since = clock.read(session) - LEASES * settings.lease_seconds
            return workers.any_on(session, machine, since)
    finally:
        database.dispose()


if __name__ == "__main__":
    sys.exit(0 if alive(ServiceSettings(), platform.node()) else 1)
