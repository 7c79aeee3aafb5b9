"""Names for identifiers that a view has shown: pages write names, and ids on demand."""

from collections.abc import Iterable

from sqlalchemy import select

from core.db.tables import Dataset, Job, Principal
from core.service.context import Context


def names(context: Context, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of datasets, principals and jobs by their ids; an id of anything else is left out.

    Whoever may read an identifier may read the name of what it stands for: views of the API show both to the same
    callers. So the ids have to come from views that the caller has got.
    """
    wanted = {one for one in ids if one}
    found: dict[str, str] = {}
    with context.database.read() as session:
        for table, prefix in ((Dataset, "ds_"), (Principal, "pr_")):
            of_it = [one for one in wanted if one.startswith(prefix)]
            if of_it:
                rows = session.execute(select(table.id, table.name).where(table.id.in_(of_it)))
                found |= {row.id: row.name for row in rows}
        jobs = [one for one in wanted if one.startswith("job_")]
        if jobs:
            rows = session.execute(select(Job.id, Job.labels).where(Job.id.in_(jobs)))
            found |= {row.id: row.labels["name"] for row in rows if row.labels.get("name")}
    return found
