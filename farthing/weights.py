"""Commands about public weights that networks start from."""

from pathlib import Path
from typing import Annotated

import typer

from farthing import tables
from farthing.client import Client
from farthing.console import DEFAULT_URL, WRONG_INPUT, Json, Secret, Url, answer, app, complain

pretrained = typer.Typer(no_args_is_help=True, help="Public weights that networks start from.", rich_markup_mode=None)
app.add_typer(pretrained, name="pretrained")
WeightsId = Annotated[str, typer.Argument(help="wts_...")]


@pretrained.command()
def upload(
    file: Annotated[Path, typer.Argument(help="a safetensors file, tensors named by their layer's place, 0.weight")],
    name: Annotated[str | None, typer.Option(help="for people; default: the file's name")] = None,
    *,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    secret: Secret = "",
) -> None:
    """Upload weights that no private record had a part in. Prints their id."""
    if not file.is_file():
        complain(f"weights {file}: there is no such file")
        raise typer.Exit(WRONG_INPUT)
    with Client(url, secret) as client:
        found = client.pretrained.upload(file, name)
    answer(found, found.id, as_json=as_json)


@pretrained.command("list")
def show(*, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """List your weights, newest first."""
    with Client(url, secret) as client:
        found = list(client.pretrained.list())
    answer(found, tables.pretrained(found), as_json=as_json)


@pretrained.command()
def delete(weights: WeightsId, *, as_json: Json = False, url: Url = DEFAULT_URL, secret: Secret = "") -> None:
    """Forget weights; models trained from them stay."""
    with Client(url, secret) as client:
        client.pretrained.delete(weights)
    answer({"weights": weights, "state": "deleted"}, f"{weights}: deleted", as_json=as_json)
