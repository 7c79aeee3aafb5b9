"""Takes four submissions and is killed before their commit: `... URL HOME PRINCIPAL DATASET [halfway]`.

With `halfway`, the planted bug: the rows written so far are committed first.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from sqlalchemy.orm import Session

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Job
from core.jobs import jobs as rows
from core.planning.job import JobSpec
from core.service import intake, jobs
from core.service.context import Caller, Context
from core.service.intake import Submission
from tests.support import entry
from tests.support.api import job


def main(url: str, home: str, principal: str, dataset: str, how: str = "") -> None:
    """Submit until killed."""
    context = Context(ServiceSettings(home=Path(home), database_url=url), Database(url))
    caller = Caller(principal, "owner", "owner", "key_1")
    plain = rows.enqueue

    def enqueue(session: Session, made: Sequence[Job]) -> NoReturn:
        plain(session, made)
        if how == "halfway":
            session.commit()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it was killed")

    rows.enqueue = enqueue  # type: ignore[assignment] # it kills instead
    spec = JobSpec.model_validate(job(dataset, mu="0.01"))
    wanted = [intake.planned(context, caller, spec, uuid4().hex, jobs.ROUTE) for _ in range(4)]
    entry.take(context, [one for one in wanted if isinstance(one, Submission)])


if __name__ == "__main__":
    main(*sys.argv[1:])
