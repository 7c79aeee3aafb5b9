"""Federated jobs as the command line shows their sites."""

from collections.abc import Sequence

from rich.console import RenderableType

from farthing.console import of_100, per_cent, plain_table, site_name
from farthing.schemas.estimates import SiteEstimate
from farthing.schemas.jobs import CostFigures, JobView


def sites(job: JobView) -> RenderableType:
    """Show the sites of a federated job, one a line; a dash where this key may not see."""
    found = (job.federation.sites if job.federation else None) or []
    rows = [
        (
            str(one.place),
            one.dataset or "-",
            one.scope or "-",
            site_name(one.site),
            one.job or "-",
            one.state if one.error is None else f"{one.state} ({one.error.code})",
            _share(one.cost.reserved if one.cost else None),
            _share(one.cost.spent if one.cost else None),
            (one.cost.reserved.epsilon_alone if one.cost else None) or "-",
            (one.cost.delta if one.cost else None) or "-",
        )
        for one in found
    ]
    title = f"sites of {job.id}"
    left = ("place", "dataset", "scope", "site", "job", "state")
    return plain_table(title, rows, left=left, right=("reserved", "spent", "epsilon", "delta"))


def spent(job: JobView) -> str:
    """Return what a job has spent: of a federated one the least and the most of its sites that this key may see."""
    seen = (job.federation.sites if job.federation else None) or []
    told = [one.cost.spent.budget_share for one in seen if one.cost]
    if not told:
        return _share(job.cost.spent if job.cost else None)
    # Shares are texts, which would sort by letters.
    least, most = min(told, key=float), max(told, key=float)
    return per_cent(most) if least == most else f"{of_100(least)} to {per_cent(most)}"


def prices(found: Sequence[SiteEstimate]) -> RenderableType:
    """Show what a federated job would cost each site."""
    rows = [
        (
            one.dataset,
            "yes" if one.fits else "no",
            str(one.rows),
            _share(one.cost),
            one.cost.epsilon_alone,
            one.cost.mu or "-",
            str(one.jobs_that_still_fit),
        )
        for one in found
    ]
    right = ("rows", "of its budget", "epsilon, alone", "mu", "still fit")
    return plain_table("price of each site", rows, left=("dataset", "fits"), right=right)


def _share(cost: CostFigures | None) -> str:
    return "-" if cost is None else per_cent(cost.budget_share)
