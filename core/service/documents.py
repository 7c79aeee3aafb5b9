"""Privacy reports for people: promise, unit, bounds, composition and trust, in the terms of NIST SP 800-226.

A page, a PDF and JSON show one document, so their figures are equal. The figures are those of the job's and the
budget's own answers. Source of the terms: NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees
(2025), whose order is kept: parameters and unit first, then algorithms and trust, then what lies outside.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from core.base.errors import Conflict, NotFound
from core.db.reads import JobFilter
from core.inference.released import MOCK
from core.privacy.amounts import format_figure
from core.privacy.attacks import attack
from core.privacy.conversions import gdp_epsilon, group_mu
from core.service import datasets, jobs, naming
from core.service.context import Caller, Context
from core.service.views import DatasetView
from farthing.schemas.budgets import BudgetView
from farthing.schemas.documents import DocumentView, FactView, ReportTableView, SectionView
from farthing.schemas.figures import long_time, moment, number, per_cent
from farthing.schemas.jobs import JobView

MOST_JOBS: Final = 100
GROUPS: Final = (2, 5, 10)
NEIGHBOURS: Final = {
    "zero_out": "zero_out: one unit's record is replaced by one that contributes nothing",
    "replace_one": "replace_one: one unit's record changes into any other",
}
TRUST: Final = (
    "Central. People who run the service, its workers and the machine can read the records, and are trusted not to. "
    "Everybody else sees noised answers alone. Records are encrypted at rest, each dataset under a key of its own."
)
MECHANISM: Final = (
    "Each answer is a sum of contributions that are cut to a declared bound and turned into integers; the noise is an "
    "integer from a cryptographic generator that takes no seed. No float decides a budget, and a reading is paid for "
    "before it happens."
)
FOR_GOOD: Final = (
    "Everything that ever leaves the service about these records is (epsilon, delta)-differentially private, over all "
    "jobs and analysts, chosen adaptively. Both were fixed when the budget was made, and never change."
)
COMPOSITION: Final = (
    "All jobs on these people draw on one budget, whoever sends them. A ledger counts each reading at fixed Renyi "
    "orders before it happens, and refuses a job that could pass the cap. Per cent add up; epsilons do not."
)
ALONE: Final[Mapping[str, str]] = {
    "guarantee": "These figures hold for all that this job drew, alone. They are a guarantee: its plan was fixed "
    "beforehand.",
    "informational": "These figures are informational: answers decided how much was drawn. The budget's are the "
    "guarantee.",
}
NOT_PROMISED: Final = (
    "Protection from whoever runs the machine.",
    "Side channels beyond the listed ones: cache timing, power, and an attacker on the same machine.",
    "One joint figure for people who are in the data of two budgets: each keeps its own promise.",
    "Secrecy of facts about groups. A finding about many can be learned, and then holds for people who took no part.",
    "Safety of declarations that were taken from the records: a bound read from them is a leak that no noise repairs.",
    "The owner's own files: backups, exports and the uploaded original.",
)


def of_job(context: Context, caller: Caller, job_id: str) -> DocumentView:
    """Return the report of a job: its draws and their promise.

    Raises:
        NotFound: it does not exist for the caller.
    """
    told = jobs.report(context, caller, job_id)
    job = JobView.model_validate(told["job"])
    names = naming.names(context, caller, [job.dataset, job.owner, job.id])
    parts = told.get("sites") or [told]
    return DocumentView(
        title=f"{'Mock: p' if job.mock else 'P'}rivacy report of {names.get(job.id, 'a job')}",
        lead=MOCK if job.mock else parts[0]["privacy"]["attack"]["sentence"] if len(parts) == 1 else _APART,
        facts=_facts(
            ("Job", job.id),
            ("State", job.state),
            ("Data", names.get(job.dataset or "", job.dataset or "several sites")),
            ("Method", f"{job.method.title} ({job.method.source})"),
            ("Ended", long_time(moment(job.finished_at)) if job.finished_at else "not yet"),
        ),
        sections=[section for part in parts for section in _of_part(context, caller, part)]
        + ([] if job.mock else [_trust(), _outside(), _check_job(job.id, parts)]),
    )


_APART: Final = "Several budgets pay for this job. Each promises for itself; there is no joint figure."


def _of_part(context: Context, caller: Caller, told: dict[str, Any]) -> list[SectionView]:
    """Return the sections on what one budget promises of a job."""
    job, privacy, unit = JobView.model_validate(told["job"]), told["privacy"], told["unit"]
    promise = privacy["promise"]
    other = [f"{figures['epsilon']} under {name}" for name, figures in privacy["implies"].items()]
    guarantee = SectionView(
        title="Parameters",
        text=[ALONE[privacy["label"]]],
        facts=_facts(
            ("Epsilon", f"{promise['epsilon']} at delta {promise['delta']}"),
            ("Gaussian mu", promise["mu"] or "none: some answers were not Gaussian"),
            ("Zero-concentrated rho", promise["rho"] or "none"),
            ("By", privacy["method"]),
            ("Neighbours", NEIGHBOURS[privacy["adjacency"]]),
            ("The same, otherwise", ", ".join(f"epsilon {one}" for one in other)),
        ),
        points=[],
        table=None,
    )
    mu = None if promise["mu"] is None else float(promise["mu"])
    return [
        guarantee,
        _unit(unit, told["units"], _groups(promise["epsilon"], mu, promise["delta"])),
        *_of_data(context, caller, job),
    ]


def _unit(unit: str, units: int | None, groups: ReportTableView | None) -> SectionView:
    """Return the section on who is protected."""
    several = "The promise is made to each record alone: a person with several is protected as a group, more weakly."
    return SectionView(
        title="Unit of privacy",
        text=[several if unit == "record" else "The promise is made to all records of one person together."],
        facts=_facts(
            ("Unit", f"one {unit}"),
            ("Units", "not known yet" if units is None else f"{number(units)}, which is public"),
        ),
        points=[],
        table=groups,
    )


def _groups(epsilon: str, mu: float | None, delta: str) -> ReportTableView | None:
    """Return what the promise is to groups of units; None where no Gaussian figure tells."""
    if mu is None:
        return None
    rows = [[number(size), format_figure(gdp_epsilon(group_mu(mu, size), float(delta)), "up")] for size in GROUPS]
    return ReportTableView(
        title=f"The promise to a group, at delta {delta}",
        columns=["Units of one person", "Epsilon of that person"],
        rows=[["1", epsilon], *rows],
        figures=1,
    )


def _of_data(context: Context, caller: Caller, job: JobView) -> list[SectionView]:
    """Return the sections on bounds and composition, as far as the caller may see the dataset."""
    if job.dataset is None:
        return []
    try:
        dataset = datasets.get(context, caller, job.dataset)
        budget = datasets.budget(context, caller, job.dataset) if dataset.scope else None
    except NotFound:
        return []
    used = {job.model.get("target"), *(job.model.get("features") or [])}
    found = [
        _bounds(dataset, [one.name for one in dataset.columns if not job.model.get("features") or one.name in used])
    ]
    if budget is None or job.cost is None or job.mock:
        return found
    facts = _facts(
        ("Spent by this job", per_cent(job.cost.spent.budget_share)),
        ("Spent by all jobs", per_cent(budget.budget_share.spent)),
        ("Left", per_cent(budget.budget_share.remaining)),
    )
    return [*found, _composition(budget, facts, None)]


def of_dataset(context: Context, caller: Caller, dataset_id: str) -> DocumentView:
    """Return the report of a dataset's budget: the lasting promise, and the spending.

    Raises:
        NotFound: it does not exist for the caller.
        Conflict: it has no budget before it has records.
    """
    dataset = datasets.get(context, caller, dataset_id)
    if dataset.scope is None:
        raise Conflict("This dataset has no budget before it has records.")
    budget = datasets.budget(context, caller, dataset_id)
    seen = jobs.page(context, caller, JobFilter(dataset=dataset_id), None, MOST_JOBS)
    names = naming.names(context, caller, [dataset.owner, *(one.owner for one in seen)])
    epsilon, delta = float(budget.epsilon.total), float(budget.delta)
    worst = attack(epsilon, delta)
    lead = (
        "Somebody who knows all other records and guesses whether one unit's data were used is right at most "
        f"{worst['any'].right} times in 100 (a coin: 50), whatever is released, for good."
    )
    return DocumentView(
        title=f"Privacy report of {dataset.name}",
        lead=lead,
        facts=_facts(
            ("Dataset", dataset.id),
            ("Budget", dataset.scope),
            ("Owner", names.get(dataset.owner, dataset.owner)),
            ("Declared", long_time(moment(dataset.created_at))),
        ),
        sections=[
            _cap(budget, worst["gaussian"].right),
            _unit("record" if dataset.unit == "record" else "user", dataset.rows, None),
            _bounds(dataset, [one.name for one in dataset.columns]),
            _composition(budget, _spent(budget), _where(seen, names)),
            _trust(),
            _outside(),
            _check_budget(budget),
        ],
    )


def _cap(budget: BudgetView, gaussian: str) -> SectionView:
    return SectionView(
        title="Parameters",
        text=[
            FOR_GOOD,
            f"While every answer is Gaussian, the attacker above is right at most {gaussian} times in 100.",
        ],
        facts=_facts(
            ("Epsilon", f"{budget.epsilon.total} at delta {budget.delta}"),
            ("Neighbours", NEIGHBOURS[budget.adjacency]),
        ),
        points=[],
        table=None,
    )


def _spent(budget: BudgetView) -> list[FactView]:
    share = budget.budget_share
    return _facts(
        ("Spent", f"{per_cent(share.spent)}, which is epsilon {budget.epsilon.spent} ({budget.label})"),
        ("Reserved by jobs that have not ended", per_cent(share.reserved)),
        ("Left", per_cent(share.remaining)),
        ("One more job, at most", f"epsilon {budget.epsilon.remaining}"),
    )


def _composition(budget: BudgetView, facts: list[FactView], table: ReportTableView | None) -> SectionView:
    return SectionView(
        title="Composition",
        text=[COMPOSITION],
        facts=_facts(("The budget", f"epsilon {budget.epsilon.total} at delta {budget.delta}")) + facts,
        points=[],
        table=table,
    )


def _where(seen: Sequence[JobView], names: dict[str, str]) -> ReportTableView | None:
    """Return the newest jobs with what they cost."""
    if not seen:
        return None
    rows = [
        [
            one.labels.get("name") or one.id,
            names.get(one.owner, one.owner),
            one.method.title,
            long_time(moment(one.created_at)),
            "" if one.cost is None else per_cent(one.cost.spent.budget_share),
        ]
        for one in seen
    ]
    return ReportTableView(
        title=f"The newest jobs that you may see, at most {MOST_JOBS}",
        columns=["Job", "By", "Method", "Submitted", "Spent"],
        rows=rows,
        figures=1,
    )


def _bounds(dataset: DatasetView, names: Sequence[str]) -> SectionView:
    """Return the section on what was declared before the records were read."""
    columns = {one["name"]: one for one in dataset.model_dump(mode="json")["columns"]}
    rows = [[name, columns[name]["type"], _range(columns[name])] for name in names if name in columns]
    return SectionView(
        title="Bounds",
        text=["Values are cut to what the owner declared before anything was read; none of it comes from the records."],
        facts=[],
        points=[],
        table=ReportTableView(title="Columns", columns=["Column", "Type", "May hold"], rows=rows, figures=0),
    )


_SHOWN: Final = 8


def _range(column: dict[str, Any]) -> str:
    values = column.get("values")
    if values:
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        return ", ".join(map(str, values[:_SHOWN])) + more
    ends = [number(Decimal(str(end))) if isinstance(end, int | float) else end for end in _ends(column)]
    return f"{ends[0]} to {ends[1]}"


def _ends(column: dict[str, Any]) -> tuple[Any, Any]:
    return column["lower"], column["upper"]


def _trust() -> SectionView:
    return SectionView(title="Model of trust, and mechanism", text=[TRUST, MECHANISM], facts=[], points=[], table=None)


def _outside() -> SectionView:
    return SectionView(title="Not promised", text=[], facts=[], points=list(NOT_PROMISED), table=None)


def _check_job(job_id: str, parts: Sequence[dict[str, Any]]) -> SectionView:
    heads = [part["ledger"] for part in parts if part.get("ledger")]
    facts = [(f"Ledger, {number(one['entries'])} entries", one["head"]) for one in heads]
    text = (
        f"The certificate of {job_id} says the same, signed. The command “farthing certificate check” needs no service."
    )
    return SectionView(title="Check this yourself", text=[text], facts=_facts(*facts), points=[], table=None)


def _check_budget(budget: BudgetView) -> SectionView:
    gaps = [f"Entries may be missing: {one.model_dump(mode='json')}" for one in budget.unwitnessed]
    text = "“farthing verify” recomputes the ledger: its chain, its prices and its cap. Keep the head elsewhere."
    facts = _facts(("Entries", number(budget.entries)), ("Head", budget.head))
    return SectionView(title="Check this yourself", text=[text], facts=facts, points=gaps, table=None)


def _facts(*pairs: tuple[str, str]) -> list[FactView]:
    return [FactView(name=name, value=value) for name, value in pairs if value]
