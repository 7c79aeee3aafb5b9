"""Kills a process at one line after another of our code, from claim to finish, and counts what broke.

Run as `python -m tests.support.killed_lines URL FOLDER KILLS [naive]`: each of KILLS children, on a job of its own,
claims, pays and "reads" (writes a line to a file), chunk by chunk, and finishes. SIGKILL meets it just before one of
the lines of `core` that this runs, spread evenly over all of them; then another does what is left. Prints a JSON
object: lines from claim to finish, kills, and how many of them broke each promise. With `naive`, chunks are read before
they are paid.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

from sqlalchemy import update

from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.db.tables import Account, Job
from core.jobs import jobs
from core.jobs.sweep import CONTACT, sweep
from core.ledger import ledger
from core.ledger.claims import put_secret
from core.ledger.witness.comparing import compare, guard
from core.ledger.witness.witness import Witness
from core.training.ledger_writer import FencedLedgerWriter
from tests.support.chaos import is_wrong
from tests.support.store import make_place, submit

KEPT: Final = tuple(
    f"{Path(jobs.__file__).parents[1] / room}/" for room in ("access", "db", "jobs", "ledger", "records")
)
"""Folders of the code that writes what is kept, whose lines are counted."""
LEASE: Final = 600.0
CHUNKS: Final = 4
PROMISES: Final = ("unpaid", "overspent", "unbalanced", "unwitnessed", "unended")


class Work:
    """An attempt at the next job, as a supervisor and its trainer make it, without the arithmetic."""

    def __init__(self, url: str, folder: Path, *, naive: bool) -> None:
        self.url, self.folder, self.naive = url, folder, naive
        self.settings = ServiceSettings(home=folder, database_url=url, lease_seconds=LEASE)
        self.witness = Witness(self.settings.witness_path)

    def attempt(self, readings: Path) -> None:
        """Claim, pay and read each chunk, and finish."""
        database = Database(self.url)
        claim = database.transaction(jobs.claim, "w", LEASE)
        if claim is not None:
            self.witness.keep(database, claim.job_id)
            database.transaction(jobs.mark_opened, claim)
            writer = FencedLedgerWriter(database, claim, self.settings)
            with database.read() as session:
                kept = ledger.last_kept(session, claim.job_id)
            for chunk in range(0 if kept is None else kept.chunk, CHUNKS):
                if self.naive:
                    read(readings, chunk)
                writer.pay(chunk, b"state", chunk)
                if not self.naive:
                    read(readings, chunk)
            database.transaction(jobs.finish, claim, {}, "not-needed")
        database.dispose()

    def count_lines(self, readings: Path) -> int:
        """Run an attempt to its end; return how many lines of ours it ran."""
        count = 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal count
            if not frame.f_code.co_filename.startswith(KEPT):
                return None
            count += event == "line"
            return trace

        sys.settrace(trace)
        self.attempt(readings)
        sys.settrace(None)
        return count

    def die_at(self, line: int, readings: Path) -> None:
        """Run an attempt in a child that is killed before its so-manyth line."""
        child = os.fork()
        if child == 0:
            left = line

            def trace(frame: FrameType, event: str, _: Any) -> Any:
                nonlocal left
                if not frame.f_code.co_filename.startswith(KEPT):
                    return None
                left -= event == "line"
                if left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return trace

            sys.settrace(trace)
            self.attempt(readings)
            os._exit(0)
        os.waitpid(child, 0)


def read(readings: Path, chunk: int) -> None:
    """Read a chunk: it leaves a line that no kill takes back."""
    with readings.open("a") as file:
        file.write(f"{chunk}\n")


def faults(work: Work, scope_id: str, readings: Path) -> Counter[str]:
    """Return which promises do not hold for a scope now."""
    database = Database(work.url)
    with database.read() as session:
        drawn = len(readings.read_text().splitlines()) if readings.exists() else 0
        found = Counter(
            unpaid=drawn > sum(ledger.executed(session, scope_id).values()),
            overspent=is_wrong(session.get_one(Account, scope_id)),
            unbalanced=not ledger.verify(session, scope_id).ok,
        )
    found["unwitnessed"] = bool(compare(database, work.witness))
    database.dispose()
    return found


def bring_to_its_end(work: Work, job_id: str, readings: Path) -> bool:
    """Do what a sweeper and another worker would; say whether the job succeeded, with nothing left reserved."""
    database = Database(work.url)
    with database.write() as session:
        session.execute(update(Job).where(Job.id == job_id, Job.state == "running").values(lease_until=1.0))
        put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")
        sweep(session, LEASE, 3, 1e9)
    work.attempt(readings)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        rest = ledger.balance(session, job.scope_id).reserved
    database.dispose()
    return job.state == "succeeded" and not any(rest)


def make_job(work: Work) -> tuple[str, str]:
    """Queue a job in a scope of its own; return both ids."""
    database = Database(work.url)
    place = make_place(database)
    with database.write() as session:
        job_id = submit(session, place, retry_allowance=1).id
    work.witness.keep(database)
    database.dispose()
    return job_id, place.scope_id


def main(url: str, folder: Path, kills: int, *, naive: bool) -> dict[str, int]:
    """Kill so often, and return what was counted."""
    work = Work(url, folder, naive=naive)
    database = Database(url)
    assert guard(database, work.witness) == []
    database.dispose()
    make_job(work)
    lines = work.count_lines(folder / "whole.txt")
    broken: Counter[str] = Counter()
    for number in range(kills):
        job_id, scope_id = make_job(work)
        readings = folder / f"{job_id}.txt"
        work.die_at(1 + number * lines // kills, readings)
        found = faults(work, scope_id, readings)
        found["unended"] = not bring_to_its_end(work, job_id, readings)
        broken += found | faults(work, scope_id, readings)
    return {"lines": lines, "kills": kills, **{name: broken[name] for name in PROMISES}}


if __name__ == "__main__":
    counted = main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), naive="naive" in sys.argv[4:])
    sys.stdout.write(json.dumps(counted))
