"""Commands that look on: the activity on a dataset, and the history of its budget."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from farthing.client import Client
from farthing.console import DEFAULT_URL, Json, Secret, Url, answer, app, figure, number, of_100, plain_table
from farthing.custody import DatasetId, ScopeId
from farthing.schemas.activity import ActivityView
from farthing.schemas.history import PointView
from farthing.schemas.offers import OffersView
from farthing.schemas.service import ServiceView

Most = Annotated[int, typer.Option("--most", min=1, help="lines at most")]


@app.command()
def activity(
    dataset_id: DatasetId, *, most: Most = 100, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """List what was done with a dataset and by whom. Newest first; for its owner, auditors and admins."""
    with Client(url, secret) as client:
        # The client fetches pages as they are drawn, so this ends the requests as well.
        found = list(islice(client.activity(dataset_id), most))
    answer(found, activity_table(found), as_json=as_json)


def activity_table(found: Sequence[ActivityView]) -> RenderableType:
    """Show requests, one a line."""
    rows = [
        (
            one.created_at,
            one.name or figure(one.principal),
            figure(one.role),
            one.action,
            one.code or one.outcome,
            figure(one.job),
            figure(one.model),
        )
        for one in found
    ]
    return plain_table("", rows, left=("at", "who", "role", "action", "outcome", "job", "model"))


@app.command()
def offers(dataset_id: DatasetId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List typical jobs on a dataset, and how many fit. No record is read."""
    with Client(url, secret) as client:
        found = client.offers(dataset_id)
    answer(found, offers_table(found), as_json=as_json)


def offers_table(found: OffersView) -> RenderableType:
    """Show typical jobs, one a line, with widths in multiples of those without privacy."""
    rows = [
        (
            one.name,
            one.method,
            one.epsilon,
            str(one.fits),
            of_100(one.budget_share),
            of_100(one.reserved_share),
            number(one.width_ratio, 3),
        )
        for one in found.offers
    ]
    right = ("epsilon", "fit", "costs %", "reserves %", "width ratio")
    return plain_table("", rows, left=("job", "method"), right=right)


@app.command()
def history(scope_id: ScopeId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List how a budget was used. One line for each job that ended, with what was left after it, oldest first."""
    with Client(url, secret) as client:
        found = list(client.history(scope_id))
    answer(found, history_table(found), as_json=as_json)


def history_table(found: Sequence[PointView]) -> RenderableType:
    """Show the points of a budget, one a line."""
    rows = [
        (
            one.at,
            one.job,
            one.name or one.principal,
            figure(one.method),
            one.kind,
            *map(of_100, (one.held, one.charged, one.spent, one.reserved, one.remaining)),
        )
        for one in found
    ]
    right = ("held %", "charged %", "spent %", "reserved %", "left %")
    return plain_table("", rows, left=("at", "job", "who", "method", "end"), right=right)


@app.command()
def service(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Show how the service is. It shows parts, waiting jobs, workers and failures; for admins and auditors."""
    with Client(url, secret) as client:
        found = client.service()
    answer(found, service_tables(found), as_json=as_json)


def service_tables(found: ServiceView) -> RenderableType:
    """Show the state of the service, a table each for its parts, queue, jobs, workers and failures."""
    parts = [(one.name, one.state) for one in found.parts]
    queues = [(one.device, figure(one.oldest_since), str(one.waiting)) for one in found.queues]
    waiting = [
        (one.job, figure(one.name), one.principal_name, one.device, one.since, one.waits_for or "-")
        for one in found.waiting
    ]
    leases = [
        (one.job, figure(one.name), one.principal_name, figure(one.worker), f"{one.step} of {one.steps}")
        for one in found.leases
    ]
    workers = [
        (one.name, ",".join(one.queues), "yes" if one.alive else "no", one.seen_at, f"{one.busy} of {one.slots}")
        for one in found.workers
    ]
    failures = [(one.code, one.last_at, one.last_job, str(one.times)) for one in found.failures]
    return Group(
        plain_table(
            f"Farthing {found.versions.version}: {found.trouble or found.status}", parts, left=("part", "state")
        ),
        plain_table("queue", queues, left=("device", "oldest since"), right=("waiting",)),
        plain_table("waiting", waiting, left=("job", "name", "who", "device", "since", "waits for")),
        plain_table("running", leases, left=("job", "name", "who", "worker"), right=("steps",)),
        plain_table("workers", workers, left=("worker", "queues", "alive", "last seen"), right=("busy",)),
        plain_table("failures of the last day", failures, left=("code", "last", "job"), right=("times",)),
    )
