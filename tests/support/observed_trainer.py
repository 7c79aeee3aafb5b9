"""`workers.trainer`, with a file that says what is about to be read: it adds lines and, if asked, delays, nothing else.

OBSERVED names the file. SLOW delays each reading, in seconds. NAIVE plants the bug that the kill tests must see: the
ledger is paid after the reading.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from core.oracle import door
from core.privacy.events import EVENT
from core.problems.linear import LinearProblem
from core.training import attempt
from core.training.till import LedgerTill
from workers import trainer

JOB = "OBSERVED_JOB"


def observe() -> None:
    """Wrap the sum of records, and note whose job this is."""
    plain_run = attempt.run

    def run(database: Any, settings: Any, claim: Any, *arguments: Any) -> None:
        os.environ[JOB] = claim.job_id
        plain_run(database, settings, claim, *arguments)

    attempt.run = run
    observe_sums(rank=0)
    if "NAIVE" in os.environ:
        pay_late()


def observe_sums(rank: int) -> None:
    """Wrap the sum of records: each process of a job says which it is."""
    plain_sum = LinearProblem.integer_sum
    path = Path(os.environ["OBSERVED"])
    delay_seconds = float(os.environ.get("SLOW", "0"))

    def integer_sum(self: LinearProblem, question: Any, *arguments: Any, **options: Any) -> Any:
        line = {"job": os.environ[JOB], "rank": rank, "event": EVENT.dump_python(question.event(), mode="json")}
        with path.open("a") as file:  # one write, so that lines of several trainers do not mix
            file.write(json.dumps(line) + "\n")
        time.sleep(delay_seconds)
        return plain_sum(self, question, *arguments, **options)

    LinearProblem.integer_sum = integer_sum  # type: ignore[method-assign]


def pay_late() -> None:
    """Plant a bug: a chunk is paid when the next one is."""
    plain_spend = LedgerTill.spend
    owed: list[tuple[Any, ...]] = []

    def spend(self: LedgerTill, *arguments: Any) -> None:
        if owed:
            plain_spend(self, *owed.pop())
        owed.append(arguments)

    LedgerTill.spend = spend  # type: ignore[method-assign]


if __name__ == "__main__":
    assert door.FullDoor is not None, "imported before it is wrapped"
    observe()
    trainer.main(rank="tests.support.observed_rank")
