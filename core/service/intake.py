"""Where jobs come in: submissions that wait together are admitted one by one, and stored in one transaction.

To store one job takes a dozen statements and two syncs of a disk, the database's and the witness's; to store sixteen
takes as many. The serving thread hands over all that wait. Locks are taken once for all of them. Then each is decided
alone, in order of arrival, against the budget that those before it have left. Answers, refusals and the ledger are as
if the jobs had come one at a time.

`store` decides and stores; `confirm` enters what was stored in the witness, before any answer leaves. They are two
steps so that the next jobs can be stored meanwhile; `api.routes.jobs` calls one after the other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from core.access import audit, rights
from core.base.errors import FieldError, Forbidden, Invalid, LedgerBusy, Refusal
from core.db import clock, idempotency
from core.db import reads as queries
from core.db.idempotency import KeyedRequest, RequestKey
from core.db.reads import Viewer
from core.db.tables import SEVERAL, Dataset, Job
from core.jobs import jobs as rows
from core.jobs import queue, subjects
from core.ledger import ledger
from core.ledger.ledger import LockedAccounts
from core.planning.job import JobSpec
from core.service import federations, presenters, witnessing, workers
from core.service.context import Caller, Context
from core.service.federations import FederatedPlan
from core.service.quotes import PLANS, EstimatedJob, quote
from core.service.scopes import viewer
from core.service.visibility import no_dataset, refuse_unready

ACCEPTED = 202
_ASK_OWNER = "its owner gives access to it, with a cap (PUT /v1/datasets/{id}/access/{principal})."
_APART_SECONDS = 1e-6
"""Between the times of two jobs that are stored together, so that the queue keeps their order."""


@dataclass(frozen=True)
class Submission:
    """A job that somebody asks for, planned and priced."""

    caller: Caller
    plan: EstimatedJob | FederatedPlan
    name: RequestKey
    digest: str
    """Of the request's canonical text."""
    line: audit.Line | None = None
    """Its line in the audit log if it is accepted, stored with the job; None where other code writes the line."""
    clone_of: str | None = None
    """The job that it repeats."""

    @property
    def spec(self) -> JobSpec:
        """The job, as the planner filled it."""
        return self.plan.planned.spec


@dataclass(frozen=True)
class StoredAnswer:
    """A stored answer to a create request: the view as JSON, and whether it was given before."""

    body: dict[str, Any]
    replayed: bool
    made: "Made | None" = None
    """The new state, valid once confirmed; None where there is nothing new."""


@dataclass(frozen=True)
class Made:
    """A job just stored: its entry in the chain of each scope that pays, and the device that it waits for."""

    entries: Mapping[str, int]
    device: str


def known(caller: Caller, spec: JobSpec, key: str, route: str) -> Submission | None:
    """Return a submission of a job that was planned before; reads nothing. None where it must be planned.

    Raises:
        Forbidden: the key's role submits no jobs.
    """
    caller.require("owner", "analyst", "admin")
    digest = idempotency.hash_body(spec.model_dump(mode="json"))
    plan = PLANS.find(spec, digest)
    return None if plan is None else Submission(caller, plan, RequestKey(caller.id, route, key), digest)


def planned(context: Context, caller: Caller, spec: JobSpec, key: str, route: str) -> Submission | StoredAnswer:
    """Plan a job, and return its submission, or the answer that was given to this very request before.

    Raises:
        Forbidden: the key's role submits no jobs.
        NotFound, Conflict, Invalid, NotOfferedYet: as for an estimate.
        IdempotencyKeyReused, IdempotencyKeyInFlight: the key belongs to another request.
        GpuUnavailable: only a GPU would do, and none is at work.
    """
    found = known(caller, spec, key, route)
    if found is not None:
        return found
    name, digest = RequestKey(caller.id, route, key), idempotency.hash_body(spec.model_dump(mode="json"))
    with context.database.read() as session:
        stored = idempotency.find(session, *name, digest)
        if stored is not None:
            return StoredAnswer(stored.body, replayed=True)
        if spec.federation is None:
            quoted: EstimatedJob | FederatedPlan = PLANS.keep(quote(session, context, caller, spec), digest)
        else:
            quoted = federations.quote(session, context, caller, spec)
        workers.require_gpu(session, context, quoted.planned.spec.resources.served_by)
    return Submission(caller, quoted, name, digest)


def store(context: Context, submissions: Sequence[Submission]) -> list[StoredAnswer | Exception]:
    """Queue jobs and reserve the most that each may cost; return an answer or a refusal to each, in order.

    Refusals: Forbidden and NotFound for missing access, Conflict and Invalid for the dataset and the models. The
    ledger's are BudgetExhausted, BudgetReserved and ScopeFrozen. IdempotencyKeyReused and IdempotencyKeyInFlight mean a
    key of another request, RateLimited too many jobs that have not ended. Where this raises, the submissions that have
    not been stored may be put to it again; those that have, are answered as before.

    Raises:
        LedgerFrozen, LedgerBusy, DatabaseAway: nobody's fault among them.
    """
    answers: dict[int, StoredAnswer | Exception] = {}
    while len(answers) < len(submissions):
        waiting = [place for place in range(len(submissions)) if place not in answers]
        first = {submissions[place].name: place for place in reversed(waiting)}  # of rivals, the first to come
        turn = sorted(first.values())  # rivals with one key wait for each other, here as everywhere
        try:
            decided = _decide(context, [submissions[place] for place in turn])
        except Exception as error:
            if not answers:
                raise
            decided = [error] * len(turn)  # what was stored before must not lose its answer
        answers |= zip(turn, decided, strict=True)
    return [answers[place] for place in range(len(submissions))]


def _decide(context: Context, submissions: Sequence[Submission]) -> list[StoredAnswer | Exception]:
    """Decide submissions with different keys; where a lock is not to be had, those apart that share none with it."""
    try:
        return context.database.transaction(_store, context, submissions)
    except LedgerBusy:
        sharing = [
            (frozenset(part.scope_id for part in submission.plan.parts), submission.caller.id)
            for submission in submissions
        ]
        if len(set(sharing)) == 1:  # apart they would wait for the same locks
            raise
    answers: dict[int, StoredAnswer | Exception] = {}
    for each in dict.fromkeys(sharing):
        places = [place for place, one in enumerate(sharing) if one == each]
        try:
            decided = context.database.transaction(_store, context, [submissions[place] for place in places])
        except Exception as error:  # noqa: BLE001 - whatever it is: others were stored, and must not lose their answers
            decided = [error] * len(places)
        answers |= zip(places, decided, strict=True)
    return [answers[place] for place in range(len(submissions))]


def confirm(context: Context, answers: Sequence[StoredAnswer]) -> list[StoredAnswer | Exception]:
    """Have the witness know of all jobs just stored, then notify for them; where it cannot, refuse their answers."""
    made = [answer.made for answer in answers if answer.made is not None]
    if not made:
        return list(answers)
    entries: dict[str, int] = {}
    for one in made:
        # Jobs may share a scope: the witness must have the last of their entries.
        entries |= {scope_id: max(entry, entries.get(scope_id, 0)) for scope_id, entry in one.entries.items()}
    try:
        witnessing.keep(context, entries=entries)
    except Refusal as refusal:
        # The jobs stay stored: the same request with its key gets their answers later.
        return [answer if answer.made is None else refusal for answer in answers]
    for answer in answers:
        if answer.made is not None:
            context.notifier.notify(answer.body["id"], answer.made.device)
    return list(answers)


@dataclass(frozen=True)
class _Draft:
    """A job that is stored nowhere yet, and the answer that it gets if it is admitted."""

    submission: Submission
    job: Job
    payers: tuple[Job, ...]
    """By place the clients of a federated job; of any other itself."""
    body: dict[str, Any]

    @property
    def rows(self) -> tuple[Job, ...]:
        """Its stored form."""
        return self.payers if self.job in self.payers else (self.job, *self.payers)

    @property
    def line(self) -> audit.Line | None:
        """The request's line in the audit log, now with the job's id, which the request lacked."""
        line = self.submission.line
        return None if line is None else replace(line, target=f"jobs/{self.job.id}")


def _store(session: Session, context: Context, submissions: Sequence[Submission]) -> list[StoredAnswer | Exception]:
    """Decide each submission, and store what was decided."""
    at = clock.read(session)
    drafts = [_draft(submission, at + place * _APART_SECONDS) for place, submission in enumerate(submissions)]
    claims = [KeyedRequest(draft.submission.name, draft.submission.digest, ACCEPTED, draft.body) for draft in drafts]
    new = idempotency.claim_all(session, claims, at)
    counter = _Counter.open(session, context, [draft for draft in drafts if draft.submission.name in new])
    answers: list[StoredAnswer | Exception] = []
    made: list[_Draft] = []
    for draft in drafts:
        try:
            if draft.submission.name in new:
                answers.append(StoredAnswer(draft.body, replayed=False, made=counter.admit(draft)))
                made.append(draft)
            else:
                answers.append(_stored(session, draft.submission))
        except Refusal as refusal:
            answers.append(refusal)
    # A refusal holds for now alone: the same key may ask again later.
    idempotency.release_all(session, sorted(new - {draft.submission.name for draft in made}))
    rows.enqueue(session, [row for draft in made for row in draft.rows])
    audit.append(session, [line for draft in made if (line := draft.line) is not None], at)
    return answers


def _draft(submission: Submission, at: float) -> _Draft:
    plan, name = submission.plan, submission.caller.name
    sites = {part.site for part in plan.parts}
    job = _row(submission, plan.parts[0], at, plan.stored_spec)
    job.site = SEVERAL if len(sites) > 1 else job.site
    if isinstance(plan, EstimatedJob):
        ledger.price(job, plan.schedule, {plan.scope_id: plan.account.terms})
        return _Draft(submission, job, (job,), presenters.queued_view(job, name, plan.cost).model_dump(mode="json"))
    rows.federate(job)
    clients = [_row(submission, part, at, part.stored_spec) for part in plan.parts]
    for place, (client, part) in enumerate(zip(clients, plan.parts, strict=True)):
        rows.federate(client, job, place)
        ledger.price(client, part.schedule, {part.scope_id: part.account.terms})
    paired = [(client, part.cost) for client, part in zip(clients, plan.parts, strict=True)]
    body = presenters.queued_federation(job, name, paired).model_dump(mode="json")
    return _Draft(submission, job, tuple(clients), body)


def _row(submission: Submission, part: EstimatedJob, at: float, spec: Mapping[str, Any]) -> Job:
    """Return the row of a job, or of a client, with a plan's dataset and scope."""
    asked = submission.spec
    return rows.draft(
        at=at,
        owner_id=submission.caller.id,
        dataset_id=part.dataset_id,
        scope_id=part.scope_id,
        grant_id=None,  # `accounts_of` fills it, under the scopes' locks
        spec=spec,
        optimizer=asked.optimizer.kind,
        steps=part.steps,
        labels=asked.labels,
        device=asked.resources.served_by,
        priority=asked.resources.priority,
        max_queue_seconds=asked.resources.max_queue_seconds,
        request_id=submission.caller.request_id,
        clone_of=submission.clone_of,
        site=part.site,
    )


def _stored(session: Session, submission: Submission) -> StoredAnswer:
    """Return the answer that a request with this key was given."""
    stored = idempotency.find(session, *submission.name, submission.digest)
    assert stored is not None, "a key that could not be claimed is there"
    return StoredAnswer(stored.body, replayed=True)


@dataclass(frozen=True)
class _Counter:
    """The facts that decide admission, under locks that last until the transaction ends."""

    datasets: Mapping[tuple[Viewer, str], Dataset]
    models: frozenset[str]
    allowed: Collection[rights.Pair]
    """Principals and datasets whose budget they may use."""
    live: Counter[str]
    accounts: LockedAccounts
    most_queued: int

    @classmethod
    def open(cls, session: Session, context: Context, drafts: Sequence[_Draft]) -> "_Counter":
        """Lock datasets, then models, then principals, then scopes and accounts: everybody in this order."""
        jobs = [job for draft in drafts for job in draft.payers]
        datasets = queries.hold_datasets(
            session, [(viewer(draft.submission.caller), job.dataset_id) for draft in drafts for job in draft.payers]
        )
        models = subjects.hold(session, (name for draft in drafts for name in draft.submission.spec.models))
        live = queue.lock_live(session, [job.owner_id for job in jobs])
        accounts = ledger.accounts_of(session, jobs)
        # After all locks: what was taken away since the datasets were found counts, also where that was waited for.
        allowed = rights.allowed(session, [(job.owner_id, job.dataset_id) for job in jobs])
        return cls(datasets, models, allowed, live, accounts, context.settings.max_queued_per_principal)

    def admit(self, draft: _Draft) -> Made:
        """Reserve for one job, for all of its clients or for none, or refuse it."""
        job = draft.job
        self._each(
            draft, lambda payer, _: self._check(draft.submission.caller, payer)
        )  # what exists for a caller first
        for place, name in enumerate(draft.submission.spec.models):
            if name not in self.models:  # taken away since the plan was made
                detail = f"{name} is kept no more"
                raise Invalid(f"The job cannot be about this model: {detail}.", FieldError(f"/models/{place}", detail))
        queue.admit(self.live[job.owner_id], self.most_queued)
        reservation = ledger.Reservation(self.accounts)
        self._each(draft, lambda payer, part: reservation.add(payer, part.schedule))
        # The next job of this transaction must count this one.
        self.live[job.owner_id] += 1
        return Made(reservation.make(), job.device)

    @staticmethod
    def _each(draft: _Draft, do: Callable[[Job, EstimatedJob], None]) -> None:
        """Do something for each site of a job; a refusal of one names its dataset."""
        for place, (payer, part) in enumerate(zip(draft.payers, draft.submission.plan.parts, strict=True)):
            try:
                do(payer, part)
            except Refusal as refusal:
                if not draft.job.is_federated:
                    raise
                raise federations.of_client(refusal, place, payer.dataset_id) from refusal

    def _check(self, caller: Caller, job: Job) -> None:
        """Refuse what a caller may not ask of a dataset: access may have gone since the plan was made."""
        dataset = self.datasets.get((viewer(caller), job.dataset_id))
        if dataset is None:
            raise no_dataset()
        if (job.owner_id, job.dataset_id) not in self.allowed:
            if not viewer(caller).sees_everything:
                raise no_dataset()
            raise Forbidden(f"Your role sees this dataset, and spends nothing of its budget: {_ASK_OWNER}")
        refuse_unready(dataset)
        if job.priority > 0 and job.owner_id != dataset.owner_id and caller.role != "admin":
            raise Forbidden("Only the owner of the data, or an admin, may ask for a priority above 0.")
