"""What an ended child means, for every outcome and order."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from core.catalogue.jobs import Resources
from core.store.claims import Claim
from workers.outcome import Outcome, describe
from workers.run import Child, Run
from workers.slots import Slot
from workers.verdict import Verdict, endings, verdict

CLAIM = Claim("job_1", 1, "epoch", 1)


def a_run(statuses: Sequence[int], known: Mapping[str, object], meeting: Path | None = None) -> Run:
    """Return a run whose children have ended so; what is known of it or, as `ordered`, of all its children."""
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
        (Outcome.PUBLISHED, {}, Verdict.DONE),
        (Outcome.PUBLISHED, {"cancel": True}, Verdict.DONE),
        (-9, {"lost": True}, Verdict.LOST),
        (Outcome.FROZEN, {}, Verdict.LOST),
        (-9, {"cancel": True, "ordered": True}, Verdict.CANCELLED),
        (Outcome.DRAINED, {"cancel": True}, Verdict.CANCELLED),
        (Outcome.STALE, {}, Verdict.CANCELLED),
        (-9, {"over_limit": True}, Verdict.LIMIT_EXCEEDED),
        (Outcome.OUT_OF_MEMORY, {}, Verdict.LIMIT_EXCEEDED),
        (Outcome.DRAINED, {}, Verdict.STOPPED),
        (-9, {"ordered": True}, Verdict.STOPPED),
        (Outcome.DIVERGED, {}, Verdict.DIVERGED),
        (Outcome.NO_GPU, {"resources": Resources(device="cuda")}, Verdict.GPU_UNAVAILABLE),
        (Outcome.NO_GPU, {}, Verdict.STOPPED),  # another slot may serve it
        (-9, {}, Verdict.TRAINER_FAILED),  # an OOM kill looks like this
        (-11, {}, Verdict.TRAINER_FAILED),
        (Outcome.FAILED_OPENING, {}, Verdict.TRAINER_FAILED),
        (Outcome.FAILED_TRAINING, {}, Verdict.TRAINER_FAILED),
        (Outcome.FAILED_PUBLISHING, {}, Verdict.TRAINER_FAILED),
        (Outcome.ORPHANED, {}, Verdict.TRAINER_FAILED),
        (1, {}, Verdict.TRAINER_FAILED),
        (Outcome.PEER_LOST, {}, Verdict.PEER_LOST),
    ],
)
def test_every_end_has_one_meaning(status: int, known: dict[str, object], decided: Verdict) -> None:
    run = a_run([status], known)
    assert verdict(run, run.children[0]) is decided
    assert endings(run) == [(CLAIM, decided)]


DONE, KILLED, GONE, STOPPED = Outcome.PUBLISHED, -9, Outcome.PEER_LOST, Outcome.DRAINED


@pytest.mark.parametrize(
    ("statuses", "known", "lost", "whole"),
    [
        ((DONE, DONE, DONE), {}, {}, Verdict.DONE),
        ((KILLED, GONE, STOPPED), {}, {0: Verdict.TRAINER_FAILED}, Verdict.STOPPED),
        ((DONE, KILLED, DONE), {}, {1: Verdict.TRAINER_FAILED}, Verdict.STOPPED),
        ((Outcome.OUT_OF_MEMORY, GONE, GONE), {}, {0: Verdict.LIMIT_EXCEEDED}, Verdict.STOPPED),
        ((KILLED, -11, GONE), {}, {0: Verdict.TRAINER_FAILED, 1: Verdict.TRAINER_FAILED}, Verdict.STOPPED),
        ((STOPPED, STOPPED, GONE), {}, {}, Verdict.STOPPED),
        ((GONE, GONE, GONE), {}, {}, Verdict.LOST),  # nobody is to blame: the attempt counts as a lost one
        ((Outcome.STALE, GONE, GONE), {}, {}, Verdict.STOPPED),  # somebody cancelled one client
        ((Outcome.DIVERGED, Outcome.DIVERGED, GONE), {}, {}, Verdict.DIVERGED),
        ((Outcome.DIVERGED, KILLED, GONE), {}, {1: Verdict.TRAINER_FAILED}, Verdict.DIVERGED),
        ((STOPPED, KILLED, STOPPED), {"cancel": True}, {}, Verdict.CANCELLED),
        ((KILLED, KILLED, DONE), {"over_limit": True}, {}, Verdict.LIMIT_EXCEEDED),
        ((KILLED, KILLED, KILLED), {"lost": True}, {}, Verdict.LOST),
        ((Outcome.FROZEN, KILLED, GONE), {}, {}, Verdict.LOST),
        ((KILLED, KILLED, KILLED), {"ordered": True}, {}, Verdict.STOPPED),
        ((KILLED, GONE, GONE), {"peer_lost": True}, {}, Verdict.LOST),  # it was starved, and nobody knows of what
    ],
)
def test_every_end_of_clients_has_one_meaning(
    statuses: tuple[int, ...],
    known: dict[str, object],
    lost: dict[int, Verdict],
    whole: Verdict,
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
