"""Quotes: jobs planned and priced from public facts alone, beside the accounts that would pay for them."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from core.base.errors import FieldError, Invalid, Refusal
from core.data.columns import Column
from core.data.datasets import Declaration
from core.db import reads as queries
from core.db.tables import Dataset, Scope
from core.ledger.accounts import Balance, balance_of, untouched
from core.ledger.allowance import promised
from core.ledger.ledger import balance
from core.ledger.schedules import Schedule
from core.models.kinds import NetworkModel
from core.planning.diagnose import figures_at_fault
from core.planning.federating import refuse_absent
from core.planning.forecast import Asker
from core.planning.job import JobSpec
from core.planning.memory import refuse_small_memory
from core.planning.planner import PlannedJob, composed
from core.privacy.amounts import write_figure
from core.privacy.facts import Adjacency
from core.privacy.renyi import cost_nano
from core.service import about, weights
from core.service.budgets import NO_COST, allowance_figures, cost_figures
from core.service.context import Caller, Context
from core.service.declarations import refuse_many_columns
from core.service.visibility import find_dataset, refuse_unready
from farthing.schemas.jobs import JobCost

COLUMNS: TypeAdapter[list[Column]] = TypeAdapter(list[Column])
"""Reads the columns that a dataset declared."""


@dataclass(frozen=True)
class EstimatedJob:
    """A planned job and the dataset it reads; nothing of it ever changes but what its account holds."""

    planned: PlannedJob
    dataset_id: str
    scope_id: str
    account: Balance
    """Of the scope, when the plan was made; its terms are fixed."""
    site: str
    """That keeps the records."""

    @cached_property
    def schedule(self) -> Schedule:
        """Its draws, chunk by chunk, and the allowance beside, with their costs."""
        planned = self.planned
        draws = planned.draws
        return Schedule(planned.schedule, planned.spec.retry_allowance, draws=draws.most, whole_runs=draws.runs)

    @cached_property
    def cost(self) -> JobCost:
        """Its cost, before any of it is spent."""
        return unspent(self.planned, self.account)

    @cached_property
    def stored_spec(self) -> dict[str, Any]:
        """The filled settings, JSON-ready."""
        return self.planned.spec.model_dump(mode="json")

    @property
    def parts(self) -> tuple["EstimatedJob", ...]:
        """The plans that are paid for: itself."""
        return (self,)

    @property
    def steps(self) -> int:
        """The public number of steps."""
        steps = self.planned.spec.optimizer.steps
        assert steps is not None, "a planned job leaves nothing open"
        return steps


def unspent(planned: PlannedJob, account: Balance) -> JobCost:
    """Return the cost of a planned job in an account, before any of it is spent."""
    schedule, times = planned.schedule, planned.spec.retry_allowance
    return JobCost(
        reserved=cost_figures(composed(schedule), account, at_head=False),
        retry_allowance=allowance_figures(schedule, times, account, at_head=False),
        spent=NO_COST,
        returned=None,
        delta=write_figure(account.terms.delta),
    )


@dataclass(frozen=True)
class Appraisal:
    """A planned job beside the accounts that would pay for it, at one head."""

    asker: Asker
    planned: PlannedJob
    account: Balance
    """Of the scope; of data that are only declared, with nothing spent."""
    grant: Balance | None
    head: str | None
    """None: no ledger has data that are only declared."""

    @property
    def accounts(self) -> list[Balance]:
        """The accounts that would pay, the scope's first."""
        return [self.account] if self.grant is None else [self.account, self.grant]


class Plans:
    """Plans of jobs that were asked for before, so that the same job is planned once.

    A plan follows from the request and from public facts that never change: a ready dataset's columns and size, its
    scope's adjacency and terms. The right to submit it, and its fit, are checked each time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str | None, str], EstimatedJob] = OrderedDict()
        self._lock = Lock()

    def find(self, spec: JobSpec, digest: str) -> EstimatedJob | None:
        """Return the plan of a job; None where there is none, or where it depends on what is there now.

        GPUs, weights to start from and models to be about do so too; plans of several sites are not kept.

        Args:
            spec: the request.
            digest: of its canonical text.
        """
        named = spec.federation or spec.models or getattr(spec.model, "pretrained", None) is not None
        if named or spec.resources.served_by == "cuda":
            return None
        with self._lock:
            return self._kept.get((spec.dataset, digest))

    def keep(self, quoted: EstimatedJob, digest: str) -> EstimatedJob:
        """Remember a quote's plan; return it."""
        with self._lock:
            self._kept[quoted.dataset_id, digest] = quoted
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return quoted


PLANS: Final = Plans(1024)


class Asked(NamedTuple):
    """A job, and all that its plan follows from, as it stands now."""

    asker: Asker
    account: Balance
    found: tuple[tuple[Dataset, Scope], ...]
    """The dataset that it reads with its scope; empty where the data are only declared."""


def look_up(
    session: Session, context: Context, caller: Caller, spec: JobSpec, declaration: Declaration | None = None
) -> Asked:
    """Look up what a job asks for; raises as `quote` does, but for what only its plan tells."""
    refuse_absent(spec)
    resources = spec.resources
    most = context.settings.max_gpu_processes if resources.served_by == "cuda" else context.settings.max_processes
    if resources.processes > most:
        raise Invalid(
            f"A job may have {most} processes on such a device here.",
            FieldError("/resources/processes", f"ask for at most {most}"),
        )
    if declaration is not None:
        return _declared(context, spec, declaration)
    if spec.dataset is None:
        raise Invalid("A job needs a dataset.", FieldError("/dataset", "name a dataset, or several in a federation"))
    dataset = find_dataset(session, caller, spec.dataset)
    refuse_unready(dataset, FieldError("/dataset", "use another"))
    scope = session.get_one(Scope, dataset.scope_id)
    account = balance(session, scope.id)
    columns = COLUMNS.validate_python(dataset.columns)
    units = scope.units if dataset.rows is None else dataset.rows
    asker = Asker(spec, columns, units, Adjacency(scope.adjacency), account.terms)
    return Asked(asker, account, ((dataset, scope),))


def _declared(context: Context, spec: JobSpec, declaration: Declaration) -> Asked:
    """Return a job on data that are only declared; refuse a declaration that no upload here could have."""
    refuse_many_columns(context, declaration.columns, "/declaration/columns")
    most = context.settings.max_rows
    if declaration.rows > most:
        raise Invalid(f"A dataset has at most {most} rows.", FieldError("/declaration/rows", "declare fewer"))
    terms = declaration.terms()
    asker = Asker(spec, declaration.columns, declaration.rows, declaration.adjacency, terms)
    return Asked(asker, untouched(terms), ())


def quote(session: Session, context: Context, caller: Caller, spec: JobSpec) -> EstimatedJob:
    """Plan and price a job; reads the scope's present balance and no record.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Conflict: the dataset has no records yet, or none any more.
        Invalid: the job does not fit the dataset, asks for more processes than there may be, or for too little memory.
    """
    asked = look_up(session, context, caller, spec)
    ((dataset, scope),) = asked.found
    planned = _planned(session, context, caller, asked)
    return EstimatedJob(planned, dataset.id, scope.id, asked.account, dataset.site)


def on_drawn_rows(
    session: Session, context: Context, caller: Caller, spec: JobSpec, rows: int | None
) -> tuple[Asker, PlannedJob]:
    """Plan a job on rows drawn from a dataset's declaration, in place of its records.

    Args:
        session: a read-only snapshot.
        context: of the service.
        caller: the principal that asks.
        spec: that reads nothing beside one dataset.
        rows: to draw; None: as many as were declared, or the most that the settings let a job draw.

    Returns:
        The planned circumstances, with the number of rows and the public terms, and the plan.

    Raises:
        NotFound, Conflict, Invalid: as `quote`.
    """
    asked = look_up(session, context, caller, spec)
    most = context.settings.max_mock_rows
    if rows is not None and rows > most:
        raise Invalid(f"A mock job draws at most {most:,} rows here.", FieldError("/rows", f"ask for at most {most}"))
    drawn = replace(asked.asker, units=min(asked.asker.units, most) if rows is None else rows)
    return drawn, _planned(session, context, caller, asked._replace(asker=drawn, found=()))


def appraise(
    session: Session, context: Context, caller: Caller, spec: JobSpec, declaration: Declaration | None
) -> Appraisal:
    """Plan a job on a dataset, or on data that are only declared, and look up the accounts that would pay.

    Raises:
        NotFound, Conflict, Invalid: as `quote`, or the declaration is none that an upload could have.
    """
    asked = look_up(session, context, caller, spec, declaration)
    planned = _planned(session, context, caller, asked)
    grant = head = None
    for _, scope in asked.found:
        grant, head = queries.grant(session, scope.id, caller.id), scope.head
    return Appraisal(asked.asker, planned, asked.account, None if grant is None else balance_of(grant), head)


def _planned(session: Session, context: Context, caller: Caller, asked: Asked) -> PlannedJob:
    """Plan a job, and refuse one whose records, weights or models a trainer could not have."""
    planned = _plan(asked.asker)
    refuse_small_memory(planned, context.settings)
    datasets = [dataset for dataset, _ in asked.found]
    if isinstance(planned.spec.model, NetworkModel):
        # An upload to this service is kept at its own site.
        sites = {dataset.site for dataset in datasets} or {context.settings.site}
        weights.check(session, caller, planned.spec.model, planned.design, sites)
    about.check(session, context, caller, planned, datasets)
    return planned


def _plan(asker: Asker) -> PlannedJob:
    """Plan a job; a plan is arithmetic on the request, so extreme figures may leave what floats can hold.

    They overflow, divide by zero, are the logarithm of zero, or no valid figure in the plan.
    """

    def fails(changed: JobSpec) -> bool:
        try:
            replace(asker, spec=changed).plan()
        except (ValueError, ArithmeticError):
            return True
        except Refusal:
            return False
        return False

    try:
        return asker.plan()
    except (ValueError, ArithmeticError) as error:
        raise Invalid(
            "These settings lead to numbers that are too large or too small to compute with.",
            *figures_at_fault(asker.spec, fails),
        ) from error


def most_reserved(planned: PlannedJob, account: Balance) -> list[int]:
    """Return what a job would reserve at each order of an account: its price, and its allowance beside that."""
    orders = account.terms.orders
    price = cost_nano(planned.price, orders)
    beside = promised(planned.schedule, planned.spec.retry_allowance, account.terms)[: len(orders)]
    return [one + other for one, other in zip(price, beside, strict=True)]
