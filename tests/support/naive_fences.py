"""`workers.app` with a planted bug: nobody asks whose job it is.

No fence, state or lease is looked at, beats revive, and a supervisor that was stopped past its lease does not end its
trainers. Trainers do the same under UNFENCED, see `observed_trainer`.
"""

from math import inf

from sqlalchemy.orm import Session

from core.db import clock
from core.db.tables import Job
from core.jobs import jobs
from core.ledger import ledger
from core.ledger.claims import Claim, lock_job
from workers import supervisor


def hold(session: Session, claim: Claim, *_: object) -> tuple[Job, float]:
    """Let whoever asks hold a job."""
    return lock_job(session, claim.job_id), clock.read(session)


def forget_fences() -> None:
    """Take every claim for one that holds, from now on."""
    jobs.hold = hold  # type: ignore[attr-defined, assignment] # as it is imported there
    ledger.hold = hold  # type: ignore[attr-defined, assignment] # as above


if __name__ == "__main__":
    from workers.app import main

    forget_fences()
    supervisor.LEASE_PART = inf  # type: ignore[misc] # the bug
    main(trainer="tests.support.observed_trainer")
