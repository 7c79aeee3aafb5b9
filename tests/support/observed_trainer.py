"""`workers.trainer`, with a file that says what is about to be read: it adds lines and, if asked, delays, nothing else.

OBSERVED names the file. SLOW delays each reading, in seconds. A file `halt` beside it, such as `paid 3` or `told 3`,
stops the first attempt at a job. Once chunk 3 is paid, or once an answer out of it is given, the attempt writes a file
`halted` and stands still. A file `starve` names a job that runs out of memory at its next reading. NAIVE and FREE plant
the bugs that the kill tests must see: the ledger is paid after the reading, and a chunk that was lost is read again for
its first payment. UNFENCED has it pay and publish whoever holds its job by now, and HASTY has it fail where a payment
fails once. A file `liar` names a client that claims to have kept more means than there are, and a state without
anything in it. TWICE has a client say everything twice, STALE say the first thing again after everything, and LISTEN
writes down what it reads and says (see `listened`). WRITES names a file for what the trainer writes to.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from core.db.database import Database
from core.ledger import ledger
from core.oracle import full
from core.oracle.federation import TOLD
from core.privacy.events import EVENT
from core.queries.sums.linear import LinearProblem
from core.queries.sums.peer_group import DistributedPeerGroup
from core.training import attempt, federated, mock
from core.training.answer_log import AttemptLog
from core.training.ledger_filter import LedgerFilter
from core.training.ledger_writer import FencedLedgerWriter
from core.training.notes import Notes
from tests.support.listened import listen
from tests.support.naive_fences import forget_fences
from workers import trainer

JOB = "OBSERVED_JOB"
MORE_THAN_THERE_IS = 2**46
"""Bytes."""
BEYOND = 5
"""Means."""


def observe() -> None:
    """Wrap the sum of records, and note whose job this is."""
    for module in (attempt, federated, mock):
        module.run = observed(module.run)  # type: ignore[attr-defined] # each has one
    observe_sums(rank=0)
    lie_where_told()
    if "LISTEN" in os.environ:
        listen(JOB)
    if "NAIVE" in os.environ:
        pay_late()
    if "FREE" in os.environ:
        pay_once()
    if "UNFENCED" in os.environ:
        forget_fences()
    if "HASTY" in os.environ:
        Database._rest = give_up  # type: ignore[method-assign, assignment] # the bug
    if {"TWICE", "STALE"} & set(os.environ):
        say_again(first="STALE" in os.environ)
    if "WRITES" in os.environ:
        watch_writes(os.open(os.environ["WRITES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT))


def observed(plain: Callable[..., None]) -> Callable[..., None]:
    """Return what carries out an attempt, and says first whose it is."""

    def run(database: Any, settings: Any, claim: Any, *arguments: Any) -> None:
        os.environ[JOB] = claim.job_id
        if claim.attempt == 1:
            halt_where_told()
        plain(database, settings, claim, *arguments)

    return run


def watch_writes(log: int) -> None:
    """Write down each file or folder that Python opens for writing, makes or renames, from now on."""

    def hook(event: str, told: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = told
            if isinstance(path, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in {"os.mkdir", "os.rename", "os.link", "os.symlink"}:
            return
        os.write(log, f"{os.fsdecode(told[0])}\n".encode())

    sys.addaudithook(hook)


def observe_sums(rank: int) -> None:
    """Wrap the sum of records: each process of a job says which it is."""
    plain_sum = LinearProblem.integer_sum
    path = Path(os.environ["OBSERVED"])
    hungry = path.with_name("starve")
    delay_seconds = float(os.environ.get("SLOW", "0"))

    def integer_sum(self: LinearProblem, question: Any, *arguments: Any, **options: Any) -> Any:
        event = EVENT.dump_python(question.event(), mode="json")
        line = {"job": os.environ[JOB], "rank": rank, "by": os.getpid(), "event": event}
        with path.open("a") as file:  # one write, so that lines of several trainers do not mix
            file.write(json.dumps(line) + "\n")
        time.sleep(delay_seconds)
        if hungry.exists() and hungry.read_text() == os.environ[JOB]:
            assert bytearray(MORE_THAN_THERE_IS)
        return plain_sum(self, question, *arguments, **options)

    LinearProblem.integer_sum = integer_sum  # type: ignore[method-assign]


def lie_where_told() -> None:
    """Have the site that the file names, if there is one, claim an answer that nobody received."""
    place, plain = Path(os.environ["OBSERVED"]).with_name("liar"), federated.furthest

    def furthest(rounds: Any, kept: bytes | None, most: int) -> tuple[bytes | None, int]:
        if place.exists() and place.read_text() == os.environ[JOB]:
            kept = Notes({TOLD: torch.tensor(federated.told_in(kept) + BEYOND)}).pack()
        return plain(rounds, kept, most)

    federated.furthest = furthest  # type: ignore[assignment] # its rounds are anybody's


def halt_where_told() -> None:
    """Stand still for ever at the moment that the file names, if there is one."""
    place = Path(os.environ["OBSERVED"]).with_name("halt")
    if not place.exists():
        return
    moment, wanted = place.read_text().split()
    plain_spend, plain_note = FencedLedgerWriter.pay, AttemptLog.note
    paid: list[int] = []

    def halt(now: str) -> None:
        if now == moment and paid[-1] >= int(wanted):  # a batch may take several chunks at once
            place.with_name("halted").touch()
            time.sleep(3600)

    def spend(self: FencedLedgerWriter, chunk: int, *arguments: Any) -> None:
        plain_spend(self, chunk, *arguments)
        paid.append(chunk)
        halt("paid")

    def note(self: AttemptLog, *arguments: Any) -> None:
        plain_note(self, *arguments)
        halt("told")

    FencedLedgerWriter.pay = spend  # type: ignore[method-assign, assignment] # watched, or a bug
    AttemptLog.note = note  # type: ignore[method-assign, assignment] # watched


def pay_once() -> None:
    """Plant a bug: a later attempt reads without paying all that an earlier one has paid for."""
    plain = LedgerFilter.__init__

    def make(self: LedgerFilter, *arguments: Any, **options: Any) -> None:
        plain(self, *arguments, **options)
        self._paid += options["kept"] is not None
        self._worth = self._worth_of(self._paid)

    LedgerFilter.__init__ = make  # type: ignore[method-assign]
    ledger._due = lambda session, job: job.chunks_spent  # noqa: ARG005 - as called


def say_again(*, first: bool) -> None:
    """Send every message to other clients a second time, later than the first; or the first of all, ever again."""
    plain, said = DistributedPeerGroup.send, list[bytes]()

    def send(self: DistributedPeerGroup, message: bytes) -> None:
        said.append(message)
        plain(self, message)
        plain(self, said[0] if first else message)

    DistributedPeerGroup.send = send  # type: ignore[method-assign]


def give_up(_: Database, error: Exception, *__: object) -> None:
    """Do not try again: one failure is final."""
    raise error


def pay_late() -> None:
    """Plant a bug: a chunk is paid when the next one is."""
    plain_spend = FencedLedgerWriter.pay
    owed: list[tuple[Any, ...]] = []

    def spend(self: FencedLedgerWriter, *arguments: Any) -> None:
        if owed:
            plain_spend(self, *owed.pop())
        owed.append(arguments)

    FencedLedgerWriter.pay = spend  # type: ignore[method-assign, assignment] # watched, or a bug


if __name__ == "__main__":
    assert full.FullOracle is not None, "imported before it is wrapped"
    observe()
    trainer.main(rank="tests.support.observed_rank")
