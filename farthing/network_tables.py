"""Tables of networks, and of weights to start from, on the command line."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from farthing import federated
from farthing.console import plain_table
from farthing.results import Layer, Summary
from farthing.schemas.models import WeightsView


def summary(found: Summary) -> RenderableType:
    """Show a network's layers, what was trained of it, and what that promises."""
    title = f"{found.optimizer}, n = {found.n:,} declared, model {found.model}"
    lines = [(_named(one), " x ".join(map(str, one.output)), f"{one.parameters:,}") for one in found.layers]
    table = plain_table(title, lines, left=("layer",), right=("output", "parameters"))
    trained = f"trained: {found.trained}, {found.trained_parameters or 0:,} numbers, from {found.start}"
    said = "\n".join([trained, federated.promises(found), *found.notes])
    return Group(table, "", Text(said))


def _named(one: Layer) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in one.settings.items())
    return f"{one.place} {one.kind}" + (f" ({settings})" if settings else "")


def pretrained(found: Sequence[WeightsView]) -> RenderableType:
    """Show weights, one a line."""
    rows = [(one.id, one.name, str(len(one.tensors)), f"{one.parameters:,}") for one in found]
    return plain_table("", rows, left=("id", "name"), right=("tensors", "parameters"))
