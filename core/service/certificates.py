"""Certificates: a job's draws, price and promise, with their entries in the ledger, signed.

Nothing is signed of a ledger that does not verify now. A writer into the database could otherwise have the installation
sign any text. Its chain is followed from its last mark on, and must have the entry that the witness recorded. The
entries that a certificate names are hashed again, however old. The scope, its budget, the job's schedule and payments,
and the dataset that a certificate shows are compared with that.

The payload follows from the job's rows and its scope's entries alone. Nothing in it depends on a record but through
what was paid for: the parameters' digest is one of noised answers, as the parameters are. Everybody who may see a job
may have its certificate. Two of one job have the same payload, byte for byte, until the ledger has a new entry about it
(a correction, a reconciliation) or its release is judged. When it was signed, and by which key, stands in the header.
"""

from hashlib import sha256
from typing import Any, Final

from sqlalchemy.orm import Session

from core.base.canonical import canonical
from core.base.errors import Conflict
from core.db import reads as queries
from core.db.model_reads import OPEN
from core.db.tables import TERMINAL_STATES, Account, Dataset, Job, Model, Scope
from core.inference.exports import export_of
from core.jobs import federations
from core.ledger.accounts import terms_of
from core.ledger.schedules import runs_of
from core.ledger.signing import installation, load_signing_keys
from core.ledger.statements import Statement, before, scopes_of, statement_of, told_of_gap
from core.ledger.witness.trusting import Trusted
from core.privacy.amounts import write_figure
from core.privacy.facts import Adjacency
from core.service import guarantees
from core.service import jobs as cases
from core.service.context import Caller, Context
from core.service.scopes import find as find_scope
from core.service.signing import Ledgers, entries_at, signed
from core.service.views import rfc3339

CERTIFICATE: Final = "farthing-certificate"
HEAD: Final = "farthing-head"
VERSION: Final = 1
METHOD: Final = ("model", "models", "optimizer", "privacy", "inference")
"""A job's settings in a certificate. Labels and resources are the caller's own affair, and datasets of the other sites
of a federated job are not for all to see."""


def certificate(context: Context, caller: Caller, job_id: str) -> str:
    """Return the certificate of a job that has ended, whatever became of it: a JWS in compact form.

    Raises:
        NotFound: the job does not exist for the caller.
        Conflict: it has not ended yet.
        LedgerBehindError: a ledger that paid for it has too many entries that nobody has verified.
        ScopeFrozen: a ledger that paid for it does not verify, and is frozen now.
        NotReady: there is no key to sign with.
    """
    if not cases.has_ended(context, caller, job_id):
        raise Conflict("The job has not ended: its cost is not settled, and its certificate comes with the settling.")

    def told(session: Session, issuer: str, ledgers: Ledgers) -> dict[str, Any]:
        job = cases.find(session, caller, job_id)
        return payload(session, issuer, job, context.settings.visible_grid_seconds, ledgers)

    return signed(context, CERTIFICATE, caller, lambda session: scopes_of(session, job_id), told, job_id=job_id)


def signed_head(context: Context, caller: Caller, scope_id: str) -> str:
    """Return where a scope's chain stands, signed: a JWS in compact form.

    Raises:
        NotFound: it does not exist for the caller.
        LedgerBehindError: it has too many entries that nobody has verified; that goes on beside requests.
        ScopeFrozen: its ledger does not verify, and is frozen now.
        NotReady: there is no key to sign with.
    """

    def told(session: Session, issuer: str, _: Ledgers) -> dict[str, Any]:
        scope = find_scope(session, caller, scope_id)
        head = {"object": "head", "version": VERSION, "issuer": issuer, "scope": scope.id}
        return head | {"seq": scope.seq, "hash": scope.head}

    return signed(context, HEAD, caller, lambda session: [find_scope(session, caller, scope_id).id], told)


def published(context: Context) -> dict[str, Any]:
    """Return the public keys that certificates and heads are checked with.

    Raises:
        NotReady: there are none.
    """
    return load_signing_keys(context.settings).published(installation(context.database))


def payload(session: Session, issuer: str, job: Job, grid_seconds: float, ledgers: Ledgers) -> dict[str, Any]:
    """Return what the certificate of a job that has ended says, JSON-ready."""
    told = {
        "object": "certificate",
        "version": VERSION,
        "issuer": issuer,
        "job": {
            "id": job.id,
            "state": job.state,
            "error": job.error_code,
            "created_at": rfc3339(job.created_at),
            "started_at": rfc3339(job.started_at),
            # An exact end would publish how long the work on the records took.
            "finished_at": rfc3339(None if job.finished_at is None else queries.on_grid(job.finished_at, grid_seconds)),
        },
        "method": {name: job.spec[name] for name in METHOD if job.spec.get(name) is not None},
        "result": _result(queries.models_of(session, [job.id]).get(job.id)),
    }
    if job.is_federated:
        return told | _of_clients(session, issuer, job, grid_seconds, ledgers)
    return told | _of_scope(session, job, ledgers[job.scope_id])


def _result(model: Model | None) -> dict[str, Any] | None:
    """Return what was released; nothing of it before those who are asked have approved."""
    if model is None:
        return None
    shown = model.approval in OPEN
    if not shown:
        return {"model": None, "digest": None, "export": None, "approval": model.approval}
    exported = export_of(model.release, model.id, model.job_id)
    digests = {"digest": _digest(exported["released"]), "export": _digest(exported)}
    return {"model": model.id, **digests, "approval": model.approval}


def _of_clients(session: Session, issuer: str, job: Job, grid_seconds: float, ledgers: Ledgers) -> dict[str, Any]:
    """Return the sites' part of a federated job's certificate: digests, since not everybody may see every site.

    No promise is made to several scopes together, so there is no figure of the whole.
    """
    clients = [
        {
            "place": client.place,
            "state": client.state,
            "certificate": _digest(payload(session, issuer, client, grid_seconds, ledgers)),
        }
        for client in queries.clients_of(session, [job.id])[job.id]
        if client.state in TERMINAL_STATES
    ]
    return {"quorum": federations.quorum_of(job), "clients": clients}


def _of_scope(session: Session, job: Job, ledger: Trusted) -> dict[str, Any]:
    """Return the members of a certificate about one scope: dataset, terms, payments, promise, software and ledger."""
    scope = session.get_one(Scope, job.scope_id)
    dataset = session.get_one(Dataset, job.dataset_id)
    terms = terms_of(session.get_one(Account, scope.id))
    said = statement_of(session, job)
    told = ledger.state.tally.uploads.get(dataset.id)
    upload = None if told is None else entries_at(session, scope.id, [told.seq])[0]
    federation = None if job.federation_id is None else {"job": job.federation_id, "place": job.place}
    return {
        "federation": federation,
        "dataset": {
            "id": dataset.id,
            # Without an entry of the upload nothing vouches for these columns of the row.
            "fingerprint": upload and dataset.fingerprint,
            "rows": upload and dataset.rows,
            "entry": upload and {"seq": upload.seq, "hash": upload.hash},
        },
        "scope": {
            "id": scope.id,
            "unit": scope.unit,
            "adjacency": scope.adjacency,
            "units": scope.units,
            "epsilon": write_figure(terms.epsilon),
            "delta": write_figure(terms.delta),
            "orders": list(terms.orders),
            "weights": [str(weight) for weight in terms.weights],
            "caps_nano": list(terms.caps_nano),
        },
        "events": {"reserved": runs_of(job.schedule), "charged": said.events},
        "nano_nats": said.amounts(len(terms.orders)),
        "promise": _promise(session, job),
        "software": _software(session, job),
        **_covered(said),
        "ledger": _ledger(session, ledger, said),
    }


def _covered(said: Statement) -> dict[str, Any]:
    """Return the digests that a job's entries name, and which members of the certificate no entry covers."""
    reserved, ended = said.bodies[0], next((body for body in said.bodies if body["kind"] == "settle"), None)
    release = None if ended is None else ended.get("release")
    old = ["method"] * ("spec" not in reserved) + ["result"] * (ended is not None and "release" not in ended)
    return {
        "entries": {"spec": reserved.get("spec"), "release": release},
        "uncovered": [*old, "job/created_at", "job/started_at", "job/finished_at", "software"],
    }


def _promise(session: Session, job: Job) -> dict[str, Any]:
    """Return epsilon and delta of all that was charged, under both adjacencies, and rho and mu where they are valid."""
    report = guarantees.guarantee_of(session, job)
    figures = {report.adjacency: report.promise, **report.implies}
    both = {relation.value: _figures(figures.get(relation)) for relation in Adjacency}
    return {"adjacency": report.adjacency.value, "label": report.label, "by": report.method, **both}


def _figures(promise: Any) -> dict[str, Any] | None:  # noqa: ANN401 - of reports, or none
    return None if promise is None else promise.model_dump(mode="json")


def _software(session: Session, job: Job) -> list[dict[str, Any]]:
    """Return what computed each attempt that opened the records; null where it was not written down."""
    opened = [attempt for attempt in queries.attempts(session, job.id) if attempt.opened_at is not None]
    return [{"attempt": attempt.number, "with": attempt.software} for attempt in opened]


def _ledger(session: Session, ledger: Trusted, said: Statement) -> dict[str, Any]:
    """Return where the scope's chain says all this, and what it says of times that it may have forgotten."""
    first, last = said.entries[0], said.entries[-1]
    return {
        "before": before(first),
        "first": {"seq": first.seq, "hash": first.hash},
        "last": {"seq": last.seq, "hash": last.hash},
        "reconciled": [
            told_of_gap(entry) for entry in entries_at(session, first.scope_id, ledger.state.tally.reconciled)
        ],
    }


def _digest(value: Any) -> str:  # noqa: ANN401 - any JSON
    return "sha256:" + sha256(canonical(value).encode("ascii")).hexdigest()
