"""The layers as functions of tensors, noting what each trained one was given and made.

Every operation maps record i of its inputs to record i of its output, and no other record's number enters it. The
parameters need no gradient: a backward pass stops at what the layers made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, assert_never

import torch
from torch import Tensor
from torch.nn import functional

from core.models.network.layers import (
    Activation,
    Attention,
    Conv2d,
    Embedding,
    Flatten,
    GroupNorm,
    Layer,
    LayerNorm,
    Linear,
    MeanOver,
    Pool2d,
    Reshape,
    Residual,
)
from core.models.network.trained import DOWN, UP
from core.queries.sums.network.grams import GramTerms, grams_cost_less
from core.queries.sums.network.images import channels_last, windows
from core.queries.sums.network.kernels import attention, max_pool2d, mean_pool2d
from core.queries.sums.network.terms import LayerTerms, OuterTerms, RowTerms, TokenTerms

_ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "elu": functional.elu,
    "softplus": functional.softplus,
}
MET_NUMBERS: Final = 2**19
"""Of what records meet a matrix with, so many are made at a time: windows overlap, and hold each pixel many times."""

GPU_MET_NUMBERS: Final = 2**26
"""The same on a GPU: 256 MB."""

_SMALL: Final = 1e-5
"""Added to variances, as everywhere."""


@dataclass(frozen=True)
class Site:
    """One place where trained parameters met records: its output, and the terms that its slopes give."""

    made: Tensor
    terms: Callable[[Tensor], list[LayerTerms]]


class Given(NamedTuple):
    """Records that a pass begins with: they hold no infinity and no NaN, and nobody writes to them."""

    records: Tensor
    squares: Tensor
    """Of each one's norm, float64, shape (m,); see `exact_squares`."""


@dataclass
class ForwardPass:
    """One forward pass.

    Attributes:
        weights: all parameters by name, in the shapes of `parameters_of`, adapters among them.
        offsets: where in theta a trained parameter begins, by name.
        given: the records, where that is known of them.
        sites: filled on the way.
    """

    weights: Mapping[str, Tensor]
    offsets: Mapping[str, int]
    given: Given | None = None
    sites: list[Site] = field(default_factory=list)

    def run(self, layers: tuple[Layer, ...], records: Tensor, under: str = "") -> Tensor:
        """Return what layers make of records, shape (m, ...)."""
        for number, layer in enumerate(layers):
            records = self._apply(layer, records, f"{under}{number}.")
        return records

    def _apply(self, layer: Layer, x: Tensor, place: str) -> Tensor:  # noqa: C901, PLR0911 - one case a layer
        match layer:
            case Linear():
                return self._linear(x, f"{place}weight", f"{place}bias")
            case Conv2d():
                return self._conv2d(layer, x, place)
            case Pool2d():
                pool = max_pool2d if layer.of == "max" else mean_pool2d
                return pool(x, layer.kernel, layer.stride or layer.kernel, layer.padding)
            case MeanOver():
                return x.mean((-2, -1)) if x.ndim == 4 else x.mean(1)  # noqa: PLR2004 - images: records, channels, ...
            case Flatten():
                return x.flatten(1)
            case Reshape():
                return x.reshape(-1, *layer.shape)
            case Activation():
                return _ACTIVATIONS[layer.of](x)
            case GroupNorm():
                return self._affine(functional.group_norm(x, layer.groups, eps=_SMALL), place, layer.affine, 1)
            case LayerNorm():
                return self._affine(functional.layer_norm(x, x.shape[-1:], eps=_SMALL), place, layer.affine, -1)
            case Embedding():
                return self._embedding(layer, x, place)
            case Attention():
                return self._attention(layer, x, place)
            case Residual():
                return x + self.run(layer.layers, x, place)
        assert_never(layer)

    def _note(self, made: Tensor, terms: Callable[[Tensor], list[LayerTerms]]) -> Tensor:
        """Ask for the slopes of what a trained layer made."""
        if not made.requires_grad:
            made.requires_grad_()
        self.sites.append(Site(made, terms))
        return made

    def _linear(self, x: Tensor, weight: str, bias: str) -> Tensor:
        """Return W x + b on the last axis, with the weight's adapter if it has one."""
        made = functional.linear(x, self.weights[weight], self.weights.get(bias))
        if weight in self.offsets:
            # Only a layer that meets the very records has inputs whose norms are known.
            given = self.given.squares if self.given and x.data_ptr() == self.given.records.data_ptr() else None
            return self._note(
                made, lambda slopes: _linear_terms(self.offsets[weight], x, slopes, given, bias=bias in self.weights)
            )
        if (down := f"{weight}.{DOWN}") in self.weights:
            return made + self._linear(self._linear(x, down, ""), f"{weight}.{UP}", "")
        return made

    def _conv2d(self, layer: Conv2d, x: Tensor, place: str) -> Tensor:
        weight, bias = f"{place}weight", f"{place}bias"
        x, kernel = channels_last(x), self.weights[weight]
        made = functional.conv2d(x, kernel, self.weights.get(bias), layer.stride, layer.padding)
        if weight not in self.offsets:
            return made

        def terms(slopes: Tensor) -> list[LayerTerms]:
            slopes = slopes.permute(0, 2, 3, 1).flatten(1, 2)  # of weights with their channels last
            return _terms_at_places(
                self.offsets[weight], lambda some: windows(x[some], layer), slopes, kernel.numel(), bias=layer.bias
            )

        return self._note(made, terms)

    def _affine(self, x: Tensor, place: str, affine: bool, axis: int) -> Tensor:  # noqa: FBT001 - the layer's own field
        """Return x scaled and shifted along an axis."""
        if not affine:
            return x
        shape = [1] * x.ndim
        shape[axis] = -1
        weight, bias = self.weights[f"{place}weight"], self.weights[f"{place}bias"]
        made = x * weight.view(shape) + bias.view(shape)
        if f"{place}weight" not in self.offsets:
            return made
        others = [one for one in range(1, x.ndim) if one != axis % x.ndim]

        def terms(slopes: Tensor) -> list[LayerTerms]:
            both = [slopes * x, slopes]
            both = [one.sum(others) for one in both] if others else both
            return [RowTerms(self.offsets[f"{place}weight"], torch.cat(both, -1))]

        return self._note(made, terms)

    def _embedding(self, layer: Embedding, tokens: Tensor, place: str) -> Tensor:
        weight, position = f"{place}weight", f"{place}position"
        made = self.weights[weight][tokens]
        if weight not in self.offsets:
            return made + self.weights[position] if layer.positions else made
        made = self._note(made, lambda slopes: [TokenTerms(self.offsets[weight], layer.tokens, tokens, slopes)])
        if not layer.positions:
            return made
        made = made + self.weights[position]
        return self._note(made, lambda slopes: [RowTerms(self.offsets[position], slopes.flatten(1))])

    def _attention(self, layer: Attention, x: Tensor, place: str) -> Tensor:
        joint = self._linear(x, f"{place}query_key_value.weight", f"{place}query_key_value.bias")
        # Taken apart at once: the slopes of three selections would be three arrays of zeros, filled and added up.
        queries, keys, values = joint.view(*joint.shape[:2], 3, layer.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        met = attention(queries, keys, values, causal=layer.causal)
        return self._linear(met.transpose(1, 2).flatten(2), f"{place}output.weight", f"{place}output.bias")


def _linear_terms(offset: int, x: Tensor, slopes: Tensor, given: Tensor | None, *, bias: bool) -> list[LayerTerms]:
    """Return outer products of records that meet the matrix once, else the terms of those that meet it at places."""
    if x.ndim == 2:  # noqa: PLR2004 - records, features
        return [OuterTerms(offset, x, slopes, given, bias=bias)]
    x, slopes = x.flatten(1, -2), slopes.flatten(1, -2)
    return _terms_at_places(offset, lambda some: x[some], slopes, x.shape[-1] * slopes.shape[-1], bias=bias)


def _terms_at_places(
    offset: int, met: Callable[[slice], Tensor], slopes: Tensor, numbers: int, *, bias: bool
) -> list[LayerTerms]:
    """Return a matrix's terms of records that meet it at places, and its bias's rows.

    Args:
        offset: where the matrix begins in the flat vector.
        met: inputs of some records, shape (k, places, inputs).
        slopes: shape (m, places, units).
        numbers: of the matrix.
        bias: whether there is one.
    """
    (m, places, units), inputs = slopes.shape, numbers // slopes.shape[-1]
    if grams_cost_less(places, inputs, units):
        found: list[LayerTerms] = [GramTerms(offset, met(slice(None)), slopes)]
    else:
        met_numbers = MET_NUMBERS if slopes.is_cpu else GPU_MET_NUMBERS
        rows, size = slopes.new_empty(m, numbers), max(1, met_numbers // (places * inputs))
        for start in range(0, m, size):
            some = slice(start, start + size)
            torch.bmm(slopes[some].mT, met(some), out=rows[some].view(-1, units, inputs))
        found = [RowTerms(offset, rows)]
    return [*found, RowTerms(offset + numbers, slopes.sum(1))] if bias else found
