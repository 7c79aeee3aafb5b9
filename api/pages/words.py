"""Words for jobs and models that several pages write: names, kinds, costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any

from core.privacy.conversions import dp_advantage, dp_power, gdp_advantage, gdp_mu, gdp_power
from core.service.job_views import JobView
from farthing.schemas.figures import moment, per_cent, short_date

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
    """All that was reserved."""
    returned: str | None


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


@dataclass(frozen=True)
class Attack:
    """The most that an attacker can do, of 100."""

    right: str
    """Guesses that are right."""
    found: str
    """People who are there and are found, where 1 in 100 absent ones may be wrongly accused."""


def attack(epsilon: float, delta: float) -> dict[str, Attack]:
    """Return what (epsilon, delta) lets an attacker do: while every answer is Gaussian, and whatever is run."""
    mu = gdp_mu(epsilon, delta)
    return {
        "gaussian": Attack(_up(50 + 50 * gdp_advantage(mu)), _up(100 * gdp_power(mu, 0.01))),
        "any": Attack(_up(50 + 50 * dp_advantage(epsilon, delta)), _up(100 * dp_power(epsilon, delta, 0.01))),
    }


def _up(value: float) -> str:
    """Write a figure of at most 100 with three digits, rounded up."""
    digits = "0.1" if value >= 10 else "0.01"  # noqa: PLR2004 - three digits of it
    return format(min(Decimal(value).quantize(Decimal(digits), ROUND_CEILING), Decimal(100)), "f")


def right_of_100(epsilon: float, delta: float, mu: float | None) -> str:
    """Return how often of 100 a guess about one person is right at most, from mu where every answer is Gaussian."""
    return _up(50 + 50 * (dp_advantage(epsilon, delta) if mu is None else gdp_advantage(mu)))
