"""A cluster that is hurt while many clients submit, and what its database and its trainers' readings say afterwards.

    found = run_chaos(home, Plan(jobs=100))
    assert found.unpaid == found.double_runs == found.overspent == 0

The verdicts of `audit` come from two sources that know nothing of each other. One is the rows of the database. The
other is a file to which each trainer writes its name and the records that it is about to read.
"""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import psutil
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.base.errors import LedgerBusy
from core.db.tables import Account, Attempt, Entry, Job, JobEvent, Model, Scope
from core.ledger import allowance, ledger
from core.ledger.accounts import balance_of
from core.privacy.budget import admits
from core.privacy.events import compose
from core.privacy.renyi import cost_nano
from core.service.broker import NOTIFY, make_app
from tests.support.cluster import Cluster, cluster
from tests.support.embedded import LINEAR, LOGISTIC, TERMINAL, readings

BODIES: Final[tuple[dict[str, Any], ...]] = (
    {"model": LOGISTIC, "privacy": {"mu": "0.1"}},
    {"model": LINEAR, "optimizer": {"kind": "noisy_gd"}, "privacy": {"mu": "0.1"}},
)
GREEDY: Final[dict[str, Any]] = {"model": LOGISTIC, "privacy": {"budget_share": "0.15"}}
"""A job for a dataset that only a few of them fit into, each with its allowance."""
LOOK_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 120.0
"""Seconds for which a submitter tries to get an answer."""


@dataclass(frozen=True)
class Plan:
    """The jobs to submit, and the disturbances of the cluster meanwhile.

    Attributes:
        jobs: accepted jobs.
        submitters: clients at a time.
        workers: Celery workers, each with one trainer.
        kill_seconds: between two kills of a worker with all its processes; another is started at once, and the next
            kill waits until that one supervises. None: see next.
        kills: a worker is killed once so large a part of the jobs has ended.
        flushes: Redis forgets all once so large a part of the jobs has ended.
        restarts: PostgreSQL restarts once so large a part of the jobs has ended.
        extra_notifications: notifications for each job, beside the service's own.
        limit_seconds: after which jobs that have not ended count as never ending.
        observed: options of the observed trainers.
    """

    jobs: int
    submitters: int = 8
    workers: int = 2
    kill_seconds: float | None = 20.0
    kills: Sequence[float] = ()
    flushes: Sequence[float] = (0.15, 0.6)
    restarts: Sequence[float] = (0.35,)
    extra_notifications: int = 2
    limit_seconds: float = 3600.0
    observed: dict[str, str] = field(default_factory=lambda: {"SLOW": "0.02"})


@dataclass
class Found:
    """The disturbances that were made, and their results; the last five must be 0."""

    states: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    """Why jobs failed."""
    seconds: float = 0.0
    kills: int = 0
    attempts_lost: int = 0
    repeats_paid: int = 0
    flushes: int = 0
    restarts: int = 0
    duplicate_notifications: int = 0
    duplicate_requests: int = 0
    refused: int = 0
    looks: int = 0
    """Times that all balances were looked at during the run."""
    unended: int = 0
    unpaid: int = 0
    """Jobs of which more was read than was paid."""
    double_runs: int = 0
    overspent: int = 0
    """Accounts seen beyond their cap or below zero, during the run or after it."""
    unbalanced: int = 0
    """Scopes that do not verify, or whose spent is not the sum of what their jobs were charged."""

    @property
    def succeeded(self) -> float:
        """The part of the jobs that succeeded."""
        return self.states["succeeded"] / max(self.states.total(), 1)


def run_chaos(home: Path, plan: Plan) -> Found:
    """Run a cluster, submit, hurt it, wait for every job to end, and look at all that is left."""
    with cluster(
        home, workers=plan.workers, observed=plan.observed, lease_seconds=12.0, beat_seconds=1.0, sweep_seconds=3.0
    ) as running:
        found = Found()
        clients = Clients(running, plan, found)
        began = time.monotonic()
        with ThreadPoolExecutor(plan.submitters) as pool:
            sent = [pool.submit(clients.submit_one, number) for number in range(plan.jobs)]
            Harm(running, plan, found).until_all_ended(sent)
        found.seconds = time.monotonic() - began
        jobs = [future.result() for future in sent]
        assert len(set(jobs)) == plan.jobs, "each key made a job of its own"
        audit(running, found)
        assert found.states.total() == plan.jobs, "no request made a second job"
        return found


class Clients:
    """Clients that want each their job, whatever becomes of the service."""

    def __init__(self, running: Cluster, plan: Plan, found: Found) -> None:
        self._running, self._plan, self._found = running, plan, found
        self._roomy = [running.upload() for _ in range(1 + plan.jobs // 60)]
        self._narrow = running.upload(budget={"epsilon": "1", "delta": "1e-6"})
        self._counts = threading.Lock()

    def submit_one(self, number: int) -> str:
        """Have one job accepted, ask again with its key, and notify for it too often; return its id."""
        job = self._ask(self._narrow, GREEDY) if number % 10 == 0 else None
        if job is None:
            job = self._ask(self._roomy[number % len(self._roomy)], BODIES[number % len(BODIES)])
        assert job is not None, "there is room"
        app = make_app(self._running.redis.url, socket_timeout=5.0)
        for _ in range(self._plan.extra_notifications):
            app.send_task(NOTIFY, args=[job], queue="cpu", ignore_result=True)
        app.close()
        return job

    def _ask(self, dataset: str, body: dict[str, Any]) -> str | None:
        """Return the job that was made, None where the budget does not hold it."""
        key = uuid4().hex
        first = self._insist(dataset, key, body)
        if first.status_code != 202:
            assert first.json()["code"] in ("privacy-budget-exhausted", "privacy-budget-reserved"), first.text
            with self._counts:
                self._found.refused += 1
            return None
        again = self._insist(dataset, key, body)
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"]), again.text
        with self._counts:
            self._found.duplicate_requests += 1
        return str(first.json()["id"])

    def _insist(self, dataset: str, key: str, body: dict[str, Any]) -> httpx.Response:
        """Ask until there is an answer that is about the budget."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with suppress(httpx.TransportError):
                answer = self._running.try_submit(dataset, key, **body)
                passing = answer.status_code >= 500 or answer.json().get("code") == "idempotency-key-in-flight"
                if not passing:
                    return answer
            assert time.monotonic() < deadline, "no answer came"
            time.sleep(0.2)


class Harm:
    """Does to a cluster what a plan says, and looks at every balance meanwhile."""

    def __init__(self, running: Cluster, plan: Plan, found: Found) -> None:
        self._running, self._plan, self._found = running, plan, found
        self._database = running.database()
        self._flushes, self._restarts, self._kills = list(plan.flushes), list(plan.restarts), list(plan.kills)
        self._turns = itertools.count()
        self._killed_at = time.monotonic()
        self._wrong: set[str] = set()

    def until_all_ended(self, sent: Sequence["Future[str]"]) -> None:
        """Go on until every submitter is served and every job has ended, or the plan's time is up."""
        deadline = time.monotonic() + self._plan.limit_seconds
        ended = 0
        while time.monotonic() < deadline:
            with suppress(DBAPIError, LedgerBusy), self._database.read() as session:
                ended = self._look(session)
            if all(future.done() for future in sent) and ended >= self._plan.jobs:
                break
            self._hurt(ended / self._plan.jobs)
            time.sleep(LOOK_SECONDS)
        self._found.overspent += len(self._wrong)
        self._database.dispose()

    def _look(self, session: Session) -> int:
        """Check all balances, and return how many jobs have ended."""
        self._wrong.update(account.id for account in session.execute(select(Account)).scalars() if is_wrong(account))
        self._found.looks += 1
        statement = select(func.count()).select_from(Job).where(Job.finished_at.is_not(None))
        return int(session.execute(statement).scalar_one())

    def _hurt(self, part: float) -> None:
        """Do what is due when a part of the jobs has ended."""
        if self._flushes and part >= self._flushes[0]:
            del self._flushes[0]
            self._running.flush_redis()
            self._found.flushes += 1
        if self._restarts and part >= self._restarts[0]:
            del self._restarts[0]
            self._running.restart_postgres(away_seconds=0.5)
            self._found.restarts += 1
        seconds = self._plan.kill_seconds
        late = seconds is not None and time.monotonic() >= self._killed_at + seconds and self._is_whole()
        if late or (self._kills and part >= self._kills[0]):
            del self._kills[:1]
            self._killed_at = time.monotonic()
            kill_whole(self._running, next(self._turns))
            self._running.start_worker()
            self._found.kills += 1

    def _is_whole(self) -> bool:
        """Say whether the newest worker, which replaced the last victim, has come to life."""
        return '"claiming"' in self._running.log(f"worker-{len(self._running.workers) - 1}")


def kill_whole(running: Cluster, turn: int) -> None:
    """SIGKILL the oldest worker but `turn`, which are gone, and then all its processes, as a power cut would."""
    children = running.trainers(turn)
    running.kill_worker(turn)
    for process in children:
        with suppress(psutil.Error):
            process.kill()


def is_wrong(account: Account) -> bool:
    """Say whether a balance is below zero, or beyond its cap at every order."""
    held = balance_of(account)
    zero = (0,) * len(held.terms.orders)
    return min(*held.spent, *held.reserved) < 0 or not admits(held.terms, held.spent, held.reserved, zero)


def audit(running: Cluster, found: Found) -> None:
    """Fill in all figures that a cluster at rest gives."""
    read = readings(running.home)
    database = running.database()
    with database.read() as session:
        jobs = list(session.execute(select(Job)).scalars())
        found.states = Counter(job.state for job in jobs)
        found.codes = Counter(job.error_code for job in jobs if job.error_code is not None)
        found.unended = sum(job.state not in TERMINAL for job in jobs)
        attempts = list(session.execute(select(Attempt).order_by(Attempt.job_id, Attempt.number)).scalars())
        found.attempts_lost = sum(attempt.outcome == "worker-lost" for attempt in attempts)
        bodies = session.execute(select(Entry.body).where(Entry.kind == "spend")).scalars()
        found.repeats_paid = sum(json.loads(body)["again"] for body in bodies)
        for job in jobs:
            orders = balance_of(session.get_one(Account, job.scope_id)).terms.orders
            drawn = cost_nano(compose(read.get(job.id, Counter())), orders)
            found.unpaid += any(one > most for one, most in zip(drawn, paid(job), strict=False))
        found.double_runs = len(run_twice(running.home, session, jobs, attempts))
        found.overspent += sum(is_wrong(account) for account in session.execute(select(Account)).scalars())
        scopes = session.execute(select(Scope.id)).scalars()
        found.unbalanced = sum(not is_balanced(session, scope_id, jobs) for scope_id in scopes)
    database.dispose()
    found.duplicate_notifications = sum(count - 1 for count in heard(running.home).values())


def paid(job: Job) -> list[int]:
    """Return what a job's scope was charged for it, repeats included."""
    return allowance.charged(job, job.scope_id)


def is_balanced(session: Session, scope_id: str, jobs: Iterable[Job]) -> bool:
    """Say whether a scope verifies, is at rest, and spent the sum of its jobs, which is worth all executed events."""
    account = balance_of(session.get_one(Account, scope_id))
    mine = [paid(job) for job in jobs if job.scope_id == scope_id]
    total = [sum(column) for column in zip([0] * len(account.spent), *mine, strict=False)]
    worth = cost_nano(compose(ledger.executed(session, scope_id)), account.terms.orders)
    covered = all(one <= most for one, most in zip(worth, account.spent, strict=True))
    at_rest = not any(account.reserved)
    return ledger.verify(session, scope_id).ok and at_rest and total == list(account.spent) and covered


def run_twice(home: Path, session: Session, jobs: Iterable[Job], attempts: Iterable[Attempt]) -> set[str]:
    """Return the jobs that two attempts held at a time, that two processes read in turn, or that have two models."""
    twice = set()
    for job_id, of_job in itertools.groupby(attempts, lambda attempt: attempt.job_id):
        for one, other in itertools.pairwise(of_job):
            if one.ended_at is None or other.started_at < one.ended_at:
                twice.add(job_id)
    for job_id, readers in read_by(home).items():
        turns = [reader for reader, _ in itertools.groupby(readers)]
        if len(turns) > len(set(turns)):
            twice.add(job_id)
    statement = select(JobEvent.job_id, JobEvent.kind).where(JobEvent.kind.in_(["queued", "running"]))
    history = session.execute(statement.order_by(JobEvent.job_id, JobEvent.seq)).all()
    for (job_id, before), (same_id, after) in itertools.pairwise((row[0], row[1]) for row in history):
        if job_id == same_id and before == after == "running":
            twice.add(job_id)
    models = session.execute(select(Model.job_id, func.count()).group_by(Model.job_id)).all()
    return twice | {job_id for job_id, count in models if count > 1 and job_id in {job.id for job in jobs}}


def read_by(home: Path) -> dict[str, list[int]]:
    """Return which process made each reading of a job, in order."""
    found: dict[str, list[int]] = {}
    for line in _lines(home / "observed.jsonl"):
        found.setdefault(line["job"], []).append(line["by"])
    return found


def heard(home: Path) -> Counter[str]:
    """Return how often the workers were notified of each job."""
    return Counter(line["job"] for line in _lines(home / "heard.jsonl"))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
