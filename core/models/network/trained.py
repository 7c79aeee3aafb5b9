"""The trained part of a network: the flat vector theta, the change of these parameters from their public start."""

from collections.abc import Iterator
from math import sqrt

from core.base.errors import FieldError, Invalid
from core.models.network.layers import Attention, Layer, Linear, Parameter, Residual, Shape, parameters_of
from core.models.network.model import Lora, NetworkModel, Train

DOWN = "down"
"""The adapter's matrix of shape (rank, inputs); it starts at random."""
UP = "up"
"""The adapter's matrix of shape (units, rank); it starts at zero, so that an adapted network starts as it was."""


def trained_parameters(layers: tuple[Layer, ...], given: Shape, train: Train) -> tuple[Parameter, ...]:
    """Return what theta is the change of, in order: theta has all their numbers, each tensor in C order.

    Adapters stand where their layers do, named `2.weight.down` and `2.weight.up`; those of the last layer come last.
    An adapted matrix acts as W + up down.
    """
    whole = parameters_of(layers, given)
    if train == "all":
        return whole
    last = last_place(layers, given)
    final = tuple(one for one in whole if place_of(one.name) == last)
    return final if train == "last" else (*adapters(layers, given, train), *final)


def start_parameters(layers: tuple[Layer, ...], given: Shape, train: Train) -> tuple[Parameter, ...]:
    """Return what a start is drawn or read for, in order: all parameters, then the adapters."""
    whole = parameters_of(layers, given)
    return (*whole, *adapters(layers, given, train)) if isinstance(train, Lora) else whole


def adapters(layers: tuple[Layer, ...], given: Shape, train: Lora) -> tuple[Parameter, ...]:
    """Return the low-rank matrices of the adapted layers."""
    last, chosen = last_place(layers, given), train.lora.layers
    found: list[Parameter] = []
    for place, layer, shape in placed(layers, given):
        adapted = place != last if chosen is None else place in chosen
        # The last layer is trained whole in any case.
        if not adapted or place == last or not isinstance(layer, Linear | Attention):
            continue
        for one in layer.parameters(shape):
            if one.name.endswith("weight"):
                units, inputs = one.shape
                down = (train.lora.rank, inputs)
                found.append(Parameter(name=f"{place}.{one.name}.{DOWN}", shape=down, spread=1 / sqrt(3 * inputs)))
                found.append(Parameter(name=f"{place}.{one.name}.{UP}", shape=(units, train.lora.rank)))
    return tuple(found)


def trained_count(model: NetworkModel, given: Shape) -> int:
    """Return how many numbers theta has.

    Raises:
        Invalid: a layer is to be adapted that cannot be, or that is trained whole.
    """
    if isinstance(model.train, Lora) and model.train.lora.layers is not None:
        kinds = {place: layer for place, layer, _ in placed(model.layers, given)}
        last = last_place(model.layers, given)
        for number, place in enumerate(model.train.lora.layers):
            if not isinstance(kinds.get(place), Linear | Attention) or place == last:
                detail = f"{place} is no linear or attention layer before the last one with parameters"
                raise Invalid("There is nothing to adapt.", FieldError(f"/model/train/lora/layers/{number}", detail))
    return sum(one.size for one in trained_parameters(model.layers, given, model.train))


def last_place(layers: tuple[Layer, ...], given: Shape) -> str:
    """Return the place of the last layer that has parameters, such as `4`, or `2.1` inside a residual."""
    # There is a last one: `check_layers` has refused networks without parameters.
    *_, last = (place for place, layer, shape in placed(layers, given) if layer.parameters(shape))
    return last


def place_of(name: str) -> str:
    """Return the place of the layer that a parameter belongs to: `2.1` of `2.1.query_key_value.weight`."""
    # No part of a parameter's own name is a number.
    return ".".join(part for part in name.split(".") if part.isdigit())


def placed(layers: tuple[Layer, ...], given: Shape, under: str = "") -> Iterator[tuple[str, Layer, Shape]]:
    """Yield layers in order, residuals opened, each with its place and the shape that it is given."""
    for number, layer in enumerate(layers):
        if isinstance(layer, Residual):
            yield from placed(layer.layers, given, f"{under}{number}.")
        else:
            yield f"{under}{number}", layer, given
        given = layer.output(given)
