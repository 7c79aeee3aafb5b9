"""Words for jobs and models that several pages write: names, kinds, costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from farthing.schemas.figures import moment, per_cent, short_date
from farthing.schemas.jobs import JobView

KINDS: Mapping[str, str] = {
    "logistic": "logistic regression",
    "linear": "linear regression",
    "poisson": "Poisson regression",
    "multinomial": "multinomial regression",
    "network": "network",
    "description": "description",
    "phase_retrieval": "phase retrieval",
}
EVENTS: Mapping[str, str] = {
    "queued": "waits for a worker",
    "running": "claimed by a worker",
    "cancelling": "was asked to stop",
    "succeeded": "its release is made",
    "failed": "ended without a release",
    "cancelled": "ended before its release",
    "expired": "waited too long in the queue",
}


@dataclass(frozen=True)
class JobCosts:
    """The cost of a job, as shares of its scope's budget."""

    spent: str
    price: str
    still: str
    """Of the price, what is not paid yet."""
    held: str
    """Beside the price, for lost chunks."""
    whole: str
    """Everything that was reserved."""
    returned: str | None


_DRAWS: Mapping[str, str] = {
    "gaussian": "a Gaussian answer",
    "composed": "several answers",
    "repeated": "several answers",
    "sampled": "a Gaussian answer about a random sample",
    "disjoint": "answers about batches without a record in common",
    "none": "nothing: an earlier chunk has paid",
}


def draws(kind: str) -> str:
    """Return what a chunk of a plan draws."""
    return _DRAWS.get(kind, "answers")


def is_settled(job: JobView) -> bool:
    """Say whether nothing about a job changes any more: it has ended, and its release waits for no approval."""
    return job.finished_at is not None and job.approval != "pending"


def job_name(job: JobView) -> str:
    """Return a job's own name, or its kind, target and day."""
    named = job.labels.get("name")
    if named:
        return named
    day = short_date(moment(job.created_at), datetime.now(UTC))
    return f"{what(job.model)}, {day}"


def what(model: Mapping[str, Any]) -> str:
    """Return what is fitted: its kind, and its target where it has one."""
    kind = KINDS.get(str(model.get("kind")), str(model.get("kind")))
    target = model.get("target")
    return f"{kind} of {target}" if target else kind


def costs(job: JobView) -> JobCosts | None:
    """Return what a job costs; None of a federated one, whose sites have one each."""
    if job.cost is None:
        return None
    price, spent = Decimal(job.cost.reserved.budget_share), Decimal(job.cost.spent.budget_share)
    held = Decimal(job.cost.retry_allowance.budget_share)
    still = max(price - spent, Decimal(0)) if job.finished_at is None else Decimal(0)
    returned = None if job.cost.returned is None else job.cost.returned.budget_share
    return JobCosts(
        spent=format(spent, "f"),
        price=format(price, "f"),
        still=format(still, "f"),
        held=format(held, "f"),
        whole=format(price + held, "f"),
        returned=returned,
    )


def event_words(kind: str, data: Mapping[str, Any]) -> str:
    """Return what a line of a job's history says."""
    if kind == "progress":
        return f"{data.get('step')} steps are done"
    if kind == "failed" and data.get("code"):
        return f"ended without a release: {data['code']}"
    return EVENTS.get(kind, "")


def spent_words(job: JobView) -> str:
    """Return a job's cost so far as a list shows it."""
    found = costs(job)
    return "" if found is None else per_cent(found.spent)
