"""The meaning of an ended child, for every outcome and order."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from core.ledger.claims import Claim
from core.planning.job import Resources
from workers.attempt_result import AttemptResult, attempt_result, endings
from workers.outcome import Outcome, describe
from workers.run import Child, Run
from workers.slots import Slot

CLAIM = Claim("job_1", 1, "epoch", 1)


def a_run(statuses: Sequence[int], known: Mapping[str, object], meeting: Path | None = None) -> Run:
    """Return a run whose children have ended so; `known` is about the run or, as `ordered`, about all its children."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    claims = [CLAIM] if meeting is None else [Claim(f"job_{place}", 1, "epoch", 1) for place in range(len(statuses))]
    ordered, peer_lost = (bool(known.get(name)) for name in ("ordered", "peer_lost"))
    children = [
        Child(claim, process, orders=-1, status=status, ordered=ordered, peer_lost=peer_lost)
        for claim, status in zip(claims, statuses, strict=True)
    ]
    run = Run(CLAIM, Resources(), Slot(0), children, started_at=0.0, limit_seconds=1.0, beaten_at=0.0, meeting=meeting)
    for name, value in known.items():
        if name not in {"ordered", "peer_lost"}:
            setattr(run, name, value)
    return run


@pytest.mark.parametrize(
    ("status", "known", "decided"),
    [
        (Outcome.PUBLISHED, {}, AttemptResult.DONE),
        (Outcome.PUBLISHED, {"cancel": True}, AttemptResult.DONE),
        (-9, {"lost": True}, AttemptResult.LOST),
        (Outcome.FROZEN, {}, AttemptResult.LOST),
        (-9, {"cancel": True, "ordered": True}, AttemptResult.CANCELLED),
        (Outcome.DRAINED, {"cancel": True}, AttemptResult.CANCELLED),
        (Outcome.STALE, {}, AttemptResult.CANCELLED),
        (-9, {"over_limit": True}, AttemptResult.LIMIT_EXCEEDED),
        (Outcome.OUT_OF_MEMORY, {}, AttemptResult.LIMIT_EXCEEDED),
        (Outcome.DRAINED, {}, AttemptResult.STOPPED),
        (-9, {"ordered": True}, AttemptResult.STOPPED),
        (Outcome.DIVERGED, {}, AttemptResult.DIVERGED),
        (Outcome.NO_GPU, {"resources": Resources(device="cuda")}, AttemptResult.GPU_UNAVAILABLE),
        (Outcome.NO_GPU, {}, AttemptResult.STOPPED),  # another slot may serve it
        (-9, {}, AttemptResult.TRAINER_FAILED),  # an OOM kill looks like this
        (-11, {}, AttemptResult.TRAINER_FAILED),
        (Outcome.FAILED_OPENING, {}, AttemptResult.TRAINER_FAILED),
        (Outcome.FAILED_TRAINING, {}, AttemptResult.TRAINER_FAILED),
        (Outcome.FAILED_PUBLISHING, {}, AttemptResult.TRAINER_FAILED),
        (Outcome.ORPHANED, {}, AttemptResult.TRAINER_FAILED),
        (1, {}, AttemptResult.TRAINER_FAILED),
        (Outcome.PEER_LOST, {}, AttemptResult.PEER_LOST),
    ],
)
def test_every_end_has_one_meaning(status: int, known: dict[str, object], decided: AttemptResult) -> None:
    run = a_run([status], known)
    assert attempt_result(run, run.children[0]) is decided
    assert endings(run) == [(CLAIM, decided)]


DONE, KILLED, GONE, STOPPED = Outcome.PUBLISHED, -9, Outcome.PEER_LOST, Outcome.DRAINED


@pytest.mark.parametrize(
    ("statuses", "known", "lost", "whole"),
    [
        ((DONE, DONE, DONE), {}, {}, AttemptResult.DONE),
        ((KILLED, GONE, STOPPED), {}, {0: AttemptResult.TRAINER_FAILED}, AttemptResult.STOPPED),
        ((DONE, KILLED, DONE), {}, {1: AttemptResult.TRAINER_FAILED}, AttemptResult.STOPPED),
        ((Outcome.OUT_OF_MEMORY, GONE, GONE), {}, {0: AttemptResult.LIMIT_EXCEEDED}, AttemptResult.STOPPED),
        (
            (KILLED, -11, GONE),
            {},
            {0: AttemptResult.TRAINER_FAILED, 1: AttemptResult.TRAINER_FAILED},
            AttemptResult.STOPPED,
        ),
        ((STOPPED, STOPPED, GONE), {}, {}, AttemptResult.STOPPED),
        ((GONE, GONE, GONE), {}, {}, AttemptResult.LOST),  # nobody is to blame: the attempt counts as a lost one
        ((Outcome.STALE, GONE, GONE), {}, {}, AttemptResult.STOPPED),  # somebody cancelled one client
        ((Outcome.DIVERGED, Outcome.DIVERGED, GONE), {}, {}, AttemptResult.DIVERGED),
        ((Outcome.DIVERGED, KILLED, GONE), {}, {1: AttemptResult.TRAINER_FAILED}, AttemptResult.DIVERGED),
        ((STOPPED, KILLED, STOPPED), {"cancel": True}, {}, AttemptResult.CANCELLED),
        ((KILLED, KILLED, DONE), {"over_limit": True}, {}, AttemptResult.LIMIT_EXCEEDED),
        ((KILLED, KILLED, KILLED), {"lost": True}, {}, AttemptResult.LOST),
        ((Outcome.FROZEN, KILLED, GONE), {}, {}, AttemptResult.LOST),
        ((KILLED, KILLED, KILLED), {"ordered": True}, {}, AttemptResult.STOPPED),
        ((KILLED, GONE, GONE), {"peer_lost": True}, {}, AttemptResult.LOST),  # it was starved, and nobody knows of what
    ],
)
def test_every_end_of_clients_has_one_meaning(
    statuses: tuple[int, ...],
    known: dict[str, object],
    lost: dict[int, AttemptResult],
    whole: AttemptResult,
    tmp_path: Path,
) -> None:
    """Clients that died by themselves are lost; then one verdict for the federated job, which stands for the rest."""
    run = a_run(statuses, known, tmp_path)
    clients = [(run.children[place].claim, decided) for place, decided in lost.items()]
    assert endings(run) == [*clients, (CLAIM, whole)]


def test_statuses_have_words() -> None:
    assert describe(Outcome.OUT_OF_MEMORY) == "out-of-memory"
    assert describe(-9) == "signal-9"
    assert describe(3) == "status-3"
