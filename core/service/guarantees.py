"""The promise of a job by its ledger; of a federated job, site by site, for viewers of that site.

No promise is made to several scopes together: each site's is its own ledger's, to the people of its own scope. A
federated model therefore has one promise for each site. A viewer who may not see a site reads only that it exists.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy.orm import Session

from core.db import reads as queries
from core.db.reads import Viewer
from core.db.tables import Account, Job, Scope
from core.inference.results import privacy_block
from core.ledger import ledger
from core.ledger.accounts import terms_of
from core.privacy.budget import Terms
from core.privacy.events import Event, compose
from core.privacy.facts import Adjacency
from core.privacy.reports import Report, report
from core.service.context import Caller, Context
from core.service.scopes import viewer


def guarantee_of(session: Session, job: Job) -> Report:
    """Return the figures of all that was charged for a job, or a client, under its scope's own terms.

    Less than all was decided by answers: no guarantee for this job alone. The rest of a stream's chunks may cost
    nothing.
    """
    charged = compose(ledger.executed_by(session, job))
    whole = ledger.is_whole(job.schedule, job.chunks_spent)
    scope = session.get_one(Scope, job.scope_id)
    terms = terms_of(session.get_one(Account, scope.id))
    return _figures(charged, terms, Adjacency(scope.adjacency), declared=whole)


@lru_cache(maxsize=512)
def _figures(charged: Event, terms: Terms, adjacency: Adjacency, *, declared: bool) -> Report:
    """Return figures once worked out: those of samples take half a second."""
    return report(charged, terms, adjacency, declared=declared)


def sees_client(session: Session, who: Viewer, client: Job) -> bool:
    """Say whether a viewer of a federated job may see a site: its submitter may, and the owner of the site's scope."""
    owners = {client.owner_id, session.get_one(Scope, client.scope_id).owner_id}
    return who.sees_everything or who.id in owners


def clients_guarantees(context: Context, caller: Caller, job: Job) -> list[dict[str, Any]]:
    """Return the promise of each site of a federated job by now, by place; nothing of hidden ones."""
    with context.database.read() as session:
        clients: Sequence[Job] = queries.clients_of(session, [job.id])[job.id]
        return [_shown(session, viewer(caller), client) for client in clients]


def _shown(session: Session, who: Viewer, client: Job) -> dict[str, Any]:
    told = {"place": client.place, "state": client.state}
    if not sees_client(session, who, client):
        return told | dict.fromkeys(("dataset", "scope", "job", "privacy"))
    asked = client.chunks_spent > 0
    privacy = privacy_block(guarantee_of(session, client)) if asked else None
    return told | {"dataset": client.dataset_id, "scope": client.scope_id, "job": client.id, "privacy": privacy}
