"""Tables of jobs on the command line: one of them, several, and the cost of one."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from farthing import federated
from farthing.console import of_100, plain_table, site_name
from farthing.schemas.job_plans import ChunkRun, JobPlanView
from farthing.schemas.jobs import JobCost, JobView
from farthing.schemas.models import TrainedModel


def jobs(found: Sequence[JobView]) -> RenderableType:
    """Show jobs, one a line; the sites of their records, and the reasons why they wait, where some job has any."""
    sites = any(map(_site, found))
    waits = any(one.waits_for for one in found)
    rows = [
        (
            one.id,
            _state(one),
            str(one.optimizer.get("kind", "-")),
            one.released or "-",
            *([_site(one) or "(service)"] if sites else []),
            *([one.waits_for or "-"] if waits else []),
            _steps(one),
            federated.spent(one),
        )
        for one in found
    ]
    left = ("id", "state", "optimizer", "model", *(["site"] if sites else []), *(["waits for"] if waits else []))
    return plain_table("", rows, left=left, right=("steps", "spent"))


def models(found: Sequence[TrainedModel]) -> RenderableType:
    """Show released models, one a line."""
    rows = [
        (
            one.id,
            one.name or "-",
            one.dataset_name or one.dataset or "several",
            one.kind,
            one.method,
            one.owner_name,
            one.approval,
            one.created_at,
        )
        for one in found
    ]
    return plain_table("", rows, left=("model", "name", "dataset", "kind", "method", "by", "approval", "released"))


def job(found: JobView) -> RenderableType:
    """Show one job as it stands; of a federated one its sites, as far as this key may see them."""
    rows = [
        ("state", _state(found)),
        ("rows", f"{found.mock_rows}, drawn from the declaration" if found.mock else ""),
        ("waits for", found.waits_for),
        ("failed for", found.failed_for),
        ("dataset", found.dataset),
        ("scope", found.scope),
        ("site", None if found.site is None else site_name(found.site)),
        ("site of", _place(found)),
        ("models", ", ".join(found.models)),
        ("fits", _fitted(found)),
        ("optimizer", str(found.optimizer.get("kind", "-"))),
        ("source", found.method.source),
        ("privacy", _told(found.privacy)),
        ("intervals", _intervals(found)),
        ("resources", _told(found.resources)),
        ("retry allowance", f"{found.retry_allowance} x its dearest chunk"),
        ("labels", _told(found.labels)),
        ("steps", _steps(found)),
        ("attempt", str(found.attempt)),
        ("model", found.released or (found.approval and f"approval: {found.approval}")),
        ("created", found.created_at),
        ("ended", found.finished_at),
    ]
    facts = plain_table(found.id, [(name, text) for name, text in rows if text])
    if found.federation is None or found.federation.sites is None:
        return (
            Group(facts)
            if found.cost is None
            else Group(facts, "", (price if found.mock else cost)(found.id, found.cost))
        )
    return Group(facts, "", federated.sites(found))


def plan(found: JobPlanView) -> RenderableType:
    """Show what a job's chunks draw and cost."""
    rows = [(_numbers(one), one.kind, f"{of_100(one.budget_share)} %", one.epsilon_alone) for one in found.runs]
    return plain_table("", rows, left=("chunks", "answer"), right=("each costs", "epsilon alone"))


def _numbers(one: ChunkRun) -> str:
    return str(one.first) if one.first == one.last else f"{one.first} to {one.last}"


def price(job: str, found: JobCost) -> RenderableType:
    """Show what a mock job would cost on the data."""
    share = of_100(found.reserved.budget_share)
    return Text(f"{job} is a mock job and spent nothing; on the data it would cost {share} % of the budget")


def cost(job: str, found: JobCost) -> RenderableType:
    """Show what a job spent, and that it gave the rest back where that was less than the worst case."""
    spent, most, returned = found.spent, found.reserved, found.returned
    figures = f"rho {_figure(spent.rho)}, mu {_figure(spent.mu)}"
    less = ""
    if returned is not None and float(returned.budget_share):
        less = f"; {of_100(most.budget_share)} % was reserved, and {of_100(returned.budget_share)} % was given back"
    return Text(f"{job} spent {of_100(spent.budget_share)} % of the budget ({figures}){less}")


def _state(found: JobView) -> str:
    state = found.state if found.error is None else f"{found.state} ({found.error.code})"
    return f"{state}, mock" if found.mock else state


def _steps(found: JobView) -> str:
    return f"{found.progress.step}/{found.progress.steps}"


def _site(found: JobView) -> str:
    """Return the sites that keep a job's records, as far as they may be seen; empty: the service's own alone."""
    parts = (found.federation.sites if found.federation else None) or ()
    sites = [found.site] if found.site is not None else [one.site for one in parts]
    return ", ".join(dict.fromkeys(map(site_name, sites))) if any(sites) else ""


def _place(found: JobView) -> str | None:
    """Return which federated job a job is of, and at which place."""
    membership = found.federation
    return None if membership is None or membership.place is None else f"{membership.job}, place {membership.place}"


def _fitted(found: JobView) -> str:
    """Return what kind of model a job fits, and to which column."""
    asked = found.model
    return f"{asked['kind']} for {asked['target']}" if asked.get("target") else str(asked["kind"])


def _intervals(found: JobView) -> str:
    """Return which intervals a job asks for."""
    asked = found.inference
    return f"at level {asked.get('level')}" if asked.get("intervals") else "none"


def _told(asked: Mapping[str, Any]) -> str:
    """Write what was asked in one line, without what was left open."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asked.items() if value is not None)


def _figure(value: str | None) -> str:
    return "-" if value is None else value
