"""Commands that look on: what was done with a dataset, and what became of its budget."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer
from rich.console import RenderableType

from farthing.client import Client
from farthing.console import DEFAULT_URL, Json, Secret, Url, app, figure, line, out, plain_table
from farthing.custody import DatasetId
from farthing.schemas.activity import ActivityView

Most = Annotated[int, typer.Option("--most", min=1, help="lines at most")]


@app.command()
def activity(
    dataset_id: DatasetId, *, most: Most = 100, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = ""
) -> None:
    """List what was done with a dataset and by whom, newest first. For its owner, auditors and admins."""
    with Client(url, secret) as client:
        found = list(islice(client.activity(dataset_id), most))
    if as_json:
        for one in found:
            line(one.model_dump_json())
    else:
        out.print(activity_table(found))


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
