"""Names for identifiers: pages write names where the caller's key may read them, and ids elsewhere."""

from collections.abc import Iterable

from sqlalchemy import select

from core.db import reads as queries
from core.db.service_tables import Invitation
from core.db.tables import Dataset, Job, Principal
from core.service import mock_jobs
from core.service.context import Caller, Context
from core.service.scopes import viewer


def names(context: Context, caller: Caller, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of datasets, principals and jobs by their ids.

    An id of anything else is left out, and so is one whose name the API would not show to the caller.
    """
    wanted = {one for one in ids if one}
    seen = viewer(caller)
    found: dict[str, str] = {}
    with context.database.read() as session:
        if datasets := _those(wanted, "ds_"):
            rows = session.execute(
                select(Dataset.id, Dataset.name).where(queries.sees_dataset(seen), Dataset.id.in_(datasets))
            )
            found |= {row.id: row.name for row in rows}
        if people := _those(wanted, "pr_"):
            shown = select(Principal.id, Principal.name).where(Principal.id.in_(people), queries.sees_principal(seen))
            found |= {row.id: row.name for row in session.execute(shown)}
        if jobs := _those(wanted, "job_"):
            rows = session.execute(select(Job.id, Job.labels).where(queries.sees_job(seen), Job.id.in_(jobs)))
            found |= {row.id: row.labels["name"] for row in rows if row.labels.get("name")}
        drawn = mock_jobs.seen(session, [(seen, one) for one in wanted])
        found |= {job.id: job.labels["name"] for job in drawn.values() if job.labels.get("name")}
    return found


def acquaintances(context: Context, caller: Caller) -> list[tuple[str, str]]:
    """Return the ids of those whom an owner knows, each with a name, in the order of the names.

    These are people with access to the owner's data, by the name that the API shows of them. Those who came by the
    owner's invitation alone go by its note. Nobody else is listed, since owners list no principals.
    """
    with context.database.read() as session:
        let_in = select(Principal.id, Principal.name).where(
            queries.sees_principal(viewer(caller)), Principal.id != caller.id
        )
        invited = select(Invitation.principal_id, Invitation.note).where(
            Invitation.made_by == caller.id, Invitation.principal_id.is_not(None), Invitation.note != ""
        )
        known = {person: note for person, note in session.execute(invited) if person is not None}
        known |= {row.id: row.name for row in session.execute(let_in)}
    return sorted(known.items(), key=lambda one: (one[1].casefold(), one[0]))


def _those(ids: Iterable[str], prefix: str) -> list[str]:
    return [one for one in ids if one.startswith(prefix)]
