"""The plan of a job as people see it: its chunks in order, and what each costs."""

from core.base.errors import Conflict
from core.ledger.schedules import runs_of
from core.privacy.events import EVENT, NOTHING
from core.service.budgets import cost_figures, empty_budget
from core.service.context import Caller, Context
from core.service.jobs import find
from farthing.schemas.job_plans import ChunkRun, JobPlanView


def get(context: Context, caller: Caller, job_id: str) -> JobPlanView:
    """Return what each chunk of a job draws and costs.

    Raises:
        NotFound: it does not exist for the caller.
        Conflict: it is federated, and its sites have a plan each.
    """
    with context.database.read() as session:
        job = find(session, caller, job_id)
        if not job.schedule:
            raise Conflict("A federated job has no plan of its own: ask for those of its sites' jobs.")
        account = empty_budget(session, job.scope_id)
        runs, last = [], 0
        for count, raw in runs_of(job.schedule):
            event = EVENT.validate_python(raw)
            cost = cost_figures(event, account, at_head=False)
            kind = "none" if event == NOTHING else event.kind
            figures = cost.model_dump(include={"budget_share", "epsilon_alone", "mu"})
            runs.append(ChunkRun(first=last + 1, last=last + count, kind=kind, **figures))
            last += count
        return JobPlanView(job=job.id, steps=job.steps, chunks=last, runs=runs)
