"""A neural network as a model: layers as data, what is trained of them, and whether they fit columns and target.

Everything here is arithmetic on shapes. Refusals name the layer at fault by its JSON pointer, `/model/layers/3/units`,
inside residual blocks `/model/layers/2/layers/0`.
"""

from collections.abc import Iterator
from math import prod
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from core.base.errors import FieldError, Invalid
from core.base.patterns import Pattern, identifier
from core.data.column_fields import Name
from core.models.network.layers import Layer, Misfit, Residual, Shape, parameters_of
from core.privacy.facts import Frozen

MOST_PARAMETERS: Final = 5_000_000
MOST_LAYERS: Final = 256
DEEPEST: Final = 4
"""Residual blocks within one another."""
LARGEST_OUTPUT: Final = 2**22
"""Numbers that one layer may make of one record."""

WeightsId = Annotated[str, identifier("wts")]
Place = Annotated[
    str,
    Pattern(
        r"^[0-9]{1,3}(\.[0-9]{1,3}){0,4}$",
        "the place of a layer: its number from 0, inside a residual with points between",
        "2.1",
    ),
]
Loss = Literal["cross_entropy", "squared"]


class Adapters(Frozen):
    """Low-rank changes of weight matrices; everything else of the adapted layers stays as it is (Hu et al., 2022)."""

    rank: Annotated[int, Field(ge=1, le=64)]
    layers: Annotated[tuple[Place, ...], Field(min_length=1, max_length=MOST_LAYERS)] | None = Field(
        default=None,
        description="places of linear and attention layers, such as 0, or 2.1 inside a residual; null: all but the "
        "last layer that has parameters, which is trained whole in either case",
    )


class Lora(Frozen):
    """Train low-rank changes and the last layer."""

    lora: Adapters


Train = Literal["all", "last"] | Lora


class NetworkModel(Frozen):
    """A neural network of listed layers, trained from a public start: its weights, or those that it names.

    It reads one array column in its declared shape, or ordinary columns as one vector of encoded features, without an
    intercept. A category or binary target has one output a class; a number, integer or date has one.
    """

    kind: Literal["network"] = "network"
    target: Name
    features: tuple[Name, ...] | None = Field(default=None, min_length=1, description="default: all other columns")
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=64)]
    loss: Loss | None = Field(default=None, description="null: cross_entropy of classes, squared errors of numbers")
    pretrained: WeightsId | None = Field(
        default=None,
        description="public weights to start from; null: drawn from a public stream that the layers determine",
    )
    train: Train = Field(default="all", description="all parameters, those of the last layer, or low-rank changes")

    @model_validator(mode="after")
    def _bounded(self) -> "NetworkModel":
        # The field's max_length counts the outermost layers alone.
        if sum(1 for _ in _walk(self.layers)) > MOST_LAYERS:
            raise ValueError(f"a network has at most {MOST_LAYERS} layers, those of its residuals included")
        if _depth(self.layers) > DEEPEST:
            raise ValueError(f"residuals stand within one another {DEEPEST} deep at most")
        return self


class Traced(NamedTuple):
    """A layer where it stands."""

    place: tuple[int, ...]
    layer: Layer
    given: Shape
    made: Shape

    @property
    def pointer(self) -> str:
        """Its JSON pointer in a job."""
        return pointer_of(self.place)


def pointer_of(place: tuple[int, ...]) -> str:
    """Return the JSON pointer of the layer at a place: (2, 0) is `/model/layers/2/layers/0`."""
    return "/model" + "".join(f"/layers/{part}" for part in place)


def trace(layers: tuple[Layer, ...], given: Shape, under: tuple[int, ...] = ()) -> Iterator[Traced]:
    """Yield layers in order with the shapes they take and make, those inside a residual before it.

    Raises:
        Invalid: a layer cannot take what comes before it; its pointer is named.
    """
    for number, layer in enumerate(layers):
        place = (*under, number)
        if isinstance(layer, Residual):
            yield from trace(layer.layers, given, place)
        try:
            made = layer.output(given)
        except Misfit as misfit:
            raise _at(place, str(misfit.args[0])) from None
        if prod(made) > LARGEST_OUTPUT:
            raise _at(place, f"makes {prod(made):,} numbers of one record; at most {LARGEST_OUTPUT:,} are offered")
        yield Traced(place, layer, given, made)
        given = made


def parameter_count(layers: tuple[Layer, ...], given: Shape) -> int:
    """Return how many parameters layers have that fit."""
    return sum(one.size for one in parameters_of(layers, given))


def check_layers(model: NetworkModel, given: Shape, outputs: int) -> None:
    """Refuse layers that do not fit each other, records of that shape, or a target of so many outputs.

    Raises:
        Invalid: with the pointer of the layer at fault.
    """
    # Unpacking runs the whole trace, which refuses layers that do not fit.
    *_, last = trace(model.layers, given)
    if last.made != (outputs,):
        field = "/units" if last.layer.kind == "linear" and len(last.made) == 1 else ""
        noun = "one number" if outputs == 1 else f"one number for each of the target's {outputs} values"
        detail = f"must make {noun} of a record; it makes {' x '.join(map(str, last.made))}"
        raise Invalid(f"The last layer {detail}.", FieldError(last.pointer + field, detail))
    count = parameter_count(model.layers, given)
    if not count:
        raise Invalid(
            "The network has no parameters.", FieldError("/model/layers", "add a layer that has some, such as linear")
        )
    if count > MOST_PARAMETERS:
        widest = max(trace(model.layers, given), key=lambda one: sum(it.size for it in one.layer.parameters(one.given)))
        detail = f"{count:,} parameters are more than the {MOST_PARAMETERS:,} that are offered; this layer has the most"
        raise Invalid(f"The network has {detail}.", FieldError(widest.pointer, detail))


def _walk(layers: tuple[Layer, ...]) -> Iterator[Layer]:
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from _walk(layer.layers)


def _depth(layers: tuple[Layer, ...]) -> int:
    return max((1 + _depth(layer.layers) for layer in layers if isinstance(layer, Residual)), default=0)


def _at(place: tuple[int, ...], detail: str) -> Invalid:
    return Invalid(f"The layers do not fit: {detail}.", FieldError(pointer_of(place), detail))
