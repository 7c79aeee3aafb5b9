"""The layers a network may be made of: a closed list, as data, with shapes and parameters; never uploaded code.

Every layer maps one record to one record: its output depends on that record and the parameters alone. There is no batch
normalisation, whose output mixes records and which no clipping of gradients makes private. There is no dropout, whose
draws are not needed here. A layer says which shape it makes of which, and which parameters it has;
`core.queries.sums.network` says how it and its per-record gradients are computed.

A network's parameters are one flat vector: layer after layer as they stand, in each the parameters in the order of
`parameters`, each in C order.
"""

from abc import ABC, abstractmethod
from math import prod, sqrt
from typing import Annotated, Final, Literal

from pydantic import Field

from core.privacy.facts import Frozen

Shape = tuple[int, ...]
"""Of one record, without the batch: (features,), (positions, features) or (channels, height, width)."""

Width = Annotated[int, Field(ge=1, le=65_536)]
Size = Annotated[int, Field(ge=1, le=64)]
Padding = Annotated[int, Field(ge=0, le=32)]


class Misfit(ValueError):
    """A layer cannot take what the one before it gives; the text says why and what would fit."""


class Parameter(Frozen):
    """One tensor of parameters.

    `spread` is the standard deviation of its public start, before training; 0: it starts at `start`.
    """

    name: str
    shape: Shape
    spread: float = 0.0
    start: float = 0.0

    @property
    def size(self) -> int:
        """Number of numbers."""
        return prod(self.shape)


class AbstractLayer(Frozen, ABC):
    """Public facts of every layer."""

    @abstractmethod
    def output(self, given: Shape) -> Shape:
        """Return the shape it makes of a record's.

        Raises:
            Misfit: it cannot take that shape.
        """

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:  # noqa: ARG002 - most have none
        """Return its parameters for records of that shape, in order."""
        return ()


class Linear(AbstractLayer):
    """y = W x + b on the last axis; W of shape (units, inputs)."""

    kind: Literal["linear"] = "linear"
    units: Width
    bias: bool = True

    def output(self, given: Shape) -> Shape:
        """Return (..., units)."""
        if not given:
            raise Misfit("linear takes vectors: put flatten before it")
        return (*given[:-1], self.units)

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:
        """Return W and b."""
        # The deviation of a uniform law on +-1/sqrt(inputs), torch's own start.
        weight = Parameter(name="weight", shape=(self.units, given[-1]), spread=1 / sqrt(3 * given[-1]))
        return (weight, Parameter(name="bias", shape=(self.units,))) if self.bias else (weight,)


class Conv2d(AbstractLayer):
    """A convolution over (channels, height, width); weights of shape (channels, given channels, kernel, kernel)."""

    kind: Literal["conv2d"] = "conv2d"
    channels: Annotated[int, Field(ge=1, le=4096)]
    kernel: Size
    stride: Size = 1
    padding: Padding = 0
    bias: bool = True

    def output(self, given: Shape) -> Shape:
        """Return (channels, height', width')."""
        return (self.channels, *_windows(given, self.kernel, self.stride, self.padding, "conv2d"))

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:
        """Return the weights and the bias."""
        inputs = given[0] * self.kernel**2
        shape = (self.channels, given[0], self.kernel, self.kernel)
        weight = Parameter(name="weight", shape=shape, spread=1 / sqrt(3 * inputs))
        return (weight, Parameter(name="bias", shape=(self.channels,))) if self.bias else (weight,)


class Pool2d(AbstractLayer):
    """The largest or mean value of each window over (channels, height, width)."""

    kind: Literal["pool2d"] = "pool2d"
    of: Literal["max", "mean"] = "max"
    kernel: Size
    stride: Size | None = Field(default=None, description="null: the kernel's size")
    padding: Padding = 0

    def output(self, given: Shape) -> Shape:
        """Return (channels, height', width')."""
        # torch refuses more, and a window of padding alone has no value.
        if self.padding * 2 > self.kernel:
            raise Misfit("pool2d pads by half a kernel at most")
        return (given[0], *_windows(given, self.kernel, self.stride or self.kernel, self.padding, "pool2d"))


class MeanOver(AbstractLayer):
    """The mean over all positions: (channels, height, width) becomes (channels,), (positions, features) (features,)."""

    kind: Literal["mean_over"] = "mean_over"

    def output(self, given: Shape) -> Shape:
        """Return one vector."""
        if len(given) == 3:  # noqa: PLR2004 - channels, height, width
            return (given[0],)
        if len(given) == 2:  # noqa: PLR2004 - positions, features
            return (given[1],)
        raise Misfit("mean_over takes images or sequences")


class Flatten(AbstractLayer):
    """All numbers of a record in one vector, C order."""

    kind: Literal["flatten"] = "flatten"

    def output(self, given: Shape) -> Shape:
        """Return (numbers,)."""
        return (prod(given),)


class Reshape(AbstractLayer):
    """The same numbers in another shape, C order: (784,) as (1, 28, 28)."""

    kind: Literal["reshape"] = "reshape"
    shape: Annotated[tuple[Width, ...], Field(min_length=1, max_length=3)]

    def output(self, given: Shape) -> Shape:
        """Return the shape."""
        if prod(given) != prod(self.shape):
            raise Misfit(f"reshape makes {prod(self.shape)} numbers of {prod(given)}")
        return self.shape


class Activation(AbstractLayer):
    """One function on every number."""

    kind: Literal["activation"] = "activation"
    of: Literal["relu", "tanh", "sigmoid", "gelu", "silu", "elu", "softplus"] = "relu"

    def output(self, given: Shape) -> Shape:
        """Return the same shape."""
        return given


class GroupNorm(AbstractLayer):
    """Channels in groups, each brought to mean 0 and variance 1 within one record, then scaled and shifted."""

    kind: Literal["group_norm"] = "group_norm"
    groups: Annotated[int, Field(ge=1, le=4096)]
    affine: bool = True

    def output(self, given: Shape) -> Shape:
        """Return the same shape."""
        if len(given) != 3 or given[0] % self.groups:  # noqa: PLR2004 - channels, height, width
            raise Misfit("group_norm takes images whose number of channels its groups divide")
        return given

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:
        """Return scale and shift of each channel."""
        return _affine(given[0]) if self.affine else ()


class LayerNorm(AbstractLayer):
    """The last axis brought to mean 0 and variance 1, then scaled and shifted."""

    kind: Literal["layer_norm"] = "layer_norm"
    affine: bool = True

    def output(self, given: Shape) -> Shape:
        """Return the same shape."""
        return given

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:
        """Return scale and shift of each feature."""
        return _affine(given[-1]) if self.affine else ()


class Embedding(AbstractLayer):
    """A learned vector for each token: (positions,) of whole numbers below `tokens` becomes (positions, width).

    With `positions` a learned vector of each position is added.
    """

    kind: Literal["embedding"] = "embedding"
    tokens: Annotated[int, Field(ge=2, le=1_000_000)]
    width: Width
    positions: bool = False

    def output(self, given: Shape) -> Shape:
        """Return (positions, width)."""
        if len(given) != 1:
            raise Misfit("embedding takes one row of tokens")
        return (given[0], self.width)

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:
        """Return the tokens' vectors, and the positions'."""
        tokens = Parameter(name="weight", shape=(self.tokens, self.width), spread=1 / sqrt(self.width))
        if not self.positions:
            return (tokens,)
        return tokens, Parameter(name="position", shape=(given[0], self.width), spread=1 / sqrt(self.width))


class Attention(AbstractLayer):
    """Multi-head scaled dot-product self-attention over (positions, features), its output projected.

    Parameters: `query_key_value`, shape (3 features, features), its bias, `output`, shape (features, features), and its
    bias.
    """

    kind: Literal["attention"] = "attention"
    heads: Annotated[int, Field(ge=1, le=64)]
    causal: bool = False

    def output(self, given: Shape) -> Shape:
        """Return the same shape."""
        if len(given) != 2 or given[1] % self.heads:  # noqa: PLR2004 - positions, features
            raise Misfit("attention takes sequences whose number of features its heads divide")
        return given

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:
        """Return both projections."""
        features = given[1]
        spread = 1 / sqrt(3 * features)
        return (
            Parameter(name="query_key_value.weight", shape=(3 * features, features), spread=spread),
            Parameter(name="query_key_value.bias", shape=(3 * features,)),
            Parameter(name="output.weight", shape=(features, features), spread=spread),
            Parameter(name="output.bias", shape=(features,)),
        )


class Residual(AbstractLayer):
    """x + the layers' output: they must keep the shape."""

    kind: Literal["residual"] = "residual"
    layers: Annotated[tuple["Layer", ...], Field(min_length=1, max_length=64)]

    def output(self, given: Shape) -> Shape:
        """Return the same shape."""
        if (made := output_of(self.layers, given)) != given:
            raise Misfit(f"residual adds what its layers make, {made}, to what it is given, {given}")
        return given

    def parameters(self, given: Shape) -> tuple[Parameter, ...]:
        """Return its layers' parameters, in order, named `0.weight` and so on."""
        return parameters_of(self.layers, given)


Layer = Annotated[
    Linear
    | Conv2d
    | Pool2d
    | MeanOver
    | Flatten
    | Reshape
    | Activation
    | GroupNorm
    | LayerNorm
    | Embedding
    | Attention
    | Residual,
    Field(discriminator="kind"),
]
# Its field names Layer, which is defined only after the class.
Residual.model_rebuild()
# Every layer is defined above, hence the direct subclasses are all of them.
LAYERS: Final[dict[str, type[AbstractLayer]]] = {
    layer.model_fields["kind"].default: layer for layer in AbstractLayer.__subclasses__()
}
"""Every layer there is, by its kind."""


def output_of(layers: tuple[Layer, ...], given: Shape) -> Shape:
    """Return the shape that layers make of a record's, one after the other.

    Raises:
        Misfit: one cannot take what comes before it; `.args[1]` is its place.
    """
    for place, layer in enumerate(layers):
        try:
            given = layer.output(given)
        except Misfit as misfit:
            raise Misfit(misfit.args[0], place) from None
    return given


def parameters_of(layers: tuple[Layer, ...], given: Shape) -> tuple[Parameter, ...]:
    """Return all parameters in the order of the flat vector, named by their layer's place, `2.weight`."""
    found: list[Parameter] = []
    for place, layer in enumerate(layers):
        found += (one.model_copy(update={"name": f"{place}.{one.name}"}) for one in layer.parameters(given))
        given = layer.output(given)
    return tuple(found)


def _affine(features: int) -> tuple[Parameter, ...]:
    """Return a scale that starts at 1 and a shift that starts at 0."""
    return Parameter(name="weight", shape=(features,), start=1.0), Parameter(name="bias", shape=(features,))


def _windows(given: Shape, kernel: int, stride: int, padding: int, name: str) -> tuple[int, int]:
    """Return how many windows fit into an image's height and width."""
    if len(given) != 3:  # noqa: PLR2004 - channels, height, width
        raise Misfit(f"{name} takes images, (channels, height, width): put reshape before it")
    # Rounded down as in torch: a window that does not fit whole is left out.
    height, width = ((size + 2 * padding - kernel) // stride + 1 for size in given[1:])
    if height < 1 or width < 1:
        raise Misfit(f"{name}: its kernel of {kernel} does not fit into {given[1]} x {given[2]}")
    return height, width
