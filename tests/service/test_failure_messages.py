"""An estimate on a worker that may be lost and a failed job on its cause: the same words before and after."""

from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import update

from core.db import clock
from core.db.tables import FAILURE_CODES, Job
from core.jobs import jobs as rows
from core.jobs.sweep import CONTACT, sweep
from core.ledger import ledger
from core.ledger.claims import put_secret
from core.planning.job import JobSpec
from core.planning.planner import plan_job
from core.privacy.facts import Adjacency
from core.service import estimates, jobs
from core.service.context import Caller, Context
from core.service.estimates import EstimateSpec
from core.service.failure_messages import failed_for, if_lost
from farthing.schemas.jobs import JobView
from tests.service.test_flow import upload
from tests.support import entry
from tests.support.api import job
from tests.training.test_oracles import COLUMNS, FULL, ONE_STEP, POISSON, STREAM, TERMS, UNITS

SINGLE: dict[str, Any] = {"optimizer": ONE_STEP, "inference": {"intervals": False}}


def said(optimizer: dict[str, Any], times: int) -> str:
    """Return what an estimate says of a job with that retry allowance."""
    spec = {
        "dataset": "ds_1",
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": optimizer,
        "privacy": {"mu": "0.5"},
        "inference": {"intervals": False},
        "retry_allowance": times,
    }
    asked = JobSpec.model_validate(spec)
    return if_lost(plan_job(asked, columns=COLUMNS, units=UNITS, adjacency=Adjacency.ZERO_OUT, terms=TERMS))


@pytest.mark.parametrize(
    ("optimizer", "times", "words"),
    [
        (STREAM, 1, "skipped at no cost: fewer steps"),
        (STREAM, 0, "skipped at no cost: fewer steps"),
        (ONE_STEP, 1, "all of it is one chunk, which is paid and drawn again, once at most"),
        (ONE_STEP, 0, "ask for a retry_allowance of 1 or more, or for more steps"),
        (FULL, 2, "one of 5, is paid and drawn again, 2 times at most"),
        (FULL, 0, "the job fails, and what it has spent is spent; ask for a retry_allowance of 1 or more"),
        (POISSON, 0, "one of 6, is not paid again"),
        ({"kind": "noisy_gd", "steps": 1}, 0, "all of it is one chunk, which is not paid again"),
    ],
)
def test_an_estimate_says_what_a_lost_worker_does_to_a_job(optimizer: dict[str, Any], times: int, words: str) -> None:
    found = said(optimizer, times)
    assert words in found
    assert ("more steps" in found) is (optimizer is ONE_STEP and times == 0)


def lost(context: Context, caller: Caller, chunks: int, **changes: Any) -> JobView:
    """Submit a job, lose its worker after some payments, and return it as it is then."""
    spec = job(upload(context, caller)["id"], **changes)
    made = entry.submit(context, caller, JobSpec.model_validate(spec), uuid4().hex).body
    claim = context.database.transaction(rows.claim, "w", 60.0)
    assert claim is not None
    for chunk in range(chunks):
        context.database.transaction(ledger.pay, claim, chunk, None, 0)
    with context.database.write() as session:
        session.execute(update(Job).where(Job.id == claim.job_id).values(lease_until=1.0))
        put_secret(session, CONTACT, f"1.0 {clock.read(session)!r}")
        sweep(session, 60.0, 9, 1e9)
    return jobs.get(context, caller, made["id"])


def test_a_single_step_that_is_lost_goes_on_where_its_estimate_said_so(context: Context, someone: Any) -> None:
    owner = someone("owner")
    waiting = lost(context, owner, 1, **SINGLE)
    assert (waiting.state, waiting.error, waiting.failed_for) == ("queued", None, None)


def test_a_single_step_without_an_allowance_fails_and_says_what_would_have_helped(
    context: Context, someone: Any
) -> None:
    owner = someone("owner")
    asked = {**SINGLE, "retry_allowance": 0}
    spec = EstimateSpec.model_validate(job(upload(context, owner, shift=1)["id"], **asked))
    told = estimates.estimate(context, owner, spec)
    assert (told.chunks, told.cost is not None and told.cost.retry_allowance.budget_share) == (1, "0")
    assert "or for more steps" in str(told.if_lost)
    ended = lost(context, owner, 1, **asked)
    assert ended.error is not None
    assert (ended.state, ended.error.code) == ("failed", "worker-lost")
    assert "all of it, for it was one chunk" in str(ended.failed_for)
    assert "retry_allowance of 1 or more, or for more steps" in str(ended.failed_for)


def test_every_failure_has_words_of_its_own(context: Context, someone: Any) -> None:
    waiting = lost(context, someone("owner"), 1)
    with context.database.read() as session:
        row = session.get_one(Job, waiting.id)
        assert failed_for(row) is None
        found = set()
        for code in FAILURE_CODES:
            row.error_code = code
            found.add(failed_for(row))
        session.rollback()
    assert len(found) == len(FAILURE_CODES)
    assert None not in found
