"""What an ended child means, for every outcome and order."""

import subprocess
import sys

import pytest

from core.catalogue.jobs import Resources
from core.store.claims import Claim
from workers.outcome import Outcome, describe
from workers.run import Run
from workers.slots import Slot
from workers.verdict import Verdict, verdict


def a_run(**known: object) -> Run:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    claim = Claim("job_1", 1, "epoch", 1)
    run = Run(claim, Resources(), Slot(0), child, started_at=0.0, limit_seconds=1.0, beaten_at=0.0)
    for name, value in known.items():
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
    ],
)
def test_every_end_has_one_meaning(status: int, known: dict[str, object], decided: Verdict) -> None:
    assert verdict(a_run(**known), status) is decided


def test_statuses_have_words() -> None:
    assert describe(Outcome.OUT_OF_MEMORY) == "out-of-memory"
    assert describe(-9) == "signal-9"
    assert describe(3) == "status-3"
