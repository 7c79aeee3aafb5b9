"""Neural networks as data: the layers that the service offers, and public weights to start from.

>>> from farthing import network
>>> from farthing.networks import activation, flatten, linear
>>> network("digit", [flatten(), linear(32), activation("relu"), linear(10)])["kind"]
'network'
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from farthing.schemas.models import WeightsView
from farthing.wire import Wire

Layer = Mapping[str, Any]
"""A layer as a job says it; `GET /v1/layers` lists all of them with the JSON Schema of their settings."""
MEDIA: Final = "application/octet-stream"


def network(
    target: str,
    layers: Sequence[Layer],
    *,
    features: Sequence[str] | None = None,
    train: str | Mapping[str, Any] = "all",
    pretrained: str | None = None,
    loss: str | None = None,
) -> dict[str, Any]:
    """Return a job's model: a network that is trained with `clipped_sgd`.

    Args:
        target: the column to predict. The last layer has one output a class, or one for a number.
        layers: in order; the first one takes a record in its array's shape, or as one vector of encoded features.
        features: one array column, or ordinary ones; None: all columns but the target.
        train: `all` parameters, those of the `last` layer, or low-rank changes, see `lora`.
        pretrained: weights to start from, `wts_...`; None: drawn from a public stream.
        loss: None: cross-entropy of classes, squared errors of numbers.
    """
    given = {"features": None if features is None else list(features), "pretrained": pretrained, "loss": loss}
    told = {name: value for name, value in given.items() if value is not None}
    return {"kind": "network", "target": target, "layers": [dict(one) for one in layers], "train": train, **told}


def lora(rank: int, layers: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what is trained as low-rank changes of linear and attention layers, the last layer trained whole.

    Args:
        rank: of each change.
        layers: places such as `0`, or `2.1` inside a residual; None: all but the last.
    """
    return {"lora": {"rank": rank, **({} if layers is None else {"layers": list(layers)})}}


def linear(units: int, *, bias: bool = True) -> Layer:
    """Return y = W x + b on the last axis."""
    return {"kind": "linear", "units": units, "bias": bias}


def conv2d(channels: int, kernel: int, *, stride: int = 1, padding: int = 0, bias: bool = True) -> Layer:
    """Return a convolution over (channels, height, width)."""
    sizes = {"channels": channels, "kernel": kernel, "stride": stride, "padding": padding}
    return {"kind": "conv2d", **sizes, "bias": bias}


def pool2d(kernel: int, of: str = "max", *, stride: int | None = None, padding: int = 0) -> Layer:
    """Return the `max` or `mean` of each window of an image."""
    return {"kind": "pool2d", "of": of, "kernel": kernel, "stride": stride, "padding": padding}


def mean_over() -> Layer:
    """Return the mean over all positions of an image or a sequence."""
    return {"kind": "mean_over"}


def flatten() -> Layer:
    """Return all numbers of a record in one vector."""
    return {"kind": "flatten"}


def reshape(*shape: int) -> Layer:
    """Return the same numbers in another shape."""
    return {"kind": "reshape", "shape": list(shape)}


def activation(of: str = "relu") -> Layer:
    """Return a function on every number: relu, tanh, sigmoid, gelu, silu, elu or softplus."""
    return {"kind": "activation", "of": of}


def group_norm(groups: int, *, affine: bool = True) -> Layer:
    """Return channels in groups, each brought to mean 0 and variance 1 within one record."""
    return {"kind": "group_norm", "groups": groups, "affine": affine}


def layer_norm(*, affine: bool = True) -> Layer:
    """Return the last axis brought to mean 0 and variance 1."""
    return {"kind": "layer_norm", "affine": affine}


def embedding(tokens: int, width: int, *, positions: bool = False) -> Layer:
    """Return a learned vector for each token, and with `positions` of each position."""
    return {"kind": "embedding", "tokens": tokens, "width": width, "positions": positions}


def attention(heads: int, *, causal: bool = False) -> Layer:
    """Return multi-head self-attention over (positions, features)."""
    return {"kind": "attention", "heads": heads, "causal": causal}


def residual(*layers: Layer) -> Layer:
    """Return x + the layers' output."""
    return {"kind": "residual", "layers": [dict(one) for one in layers]}


class Pretrained:
    """Public weights that networks may start from; `client.pretrained`.

    Methods raise `FarthingError` where the service refuses, and `Unreachable` where no answer comes.

    Args:
        wire: the client's connections.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def upload(self, file: str | Path | bytes, name: str | None = None) -> WeightsView:
        """Upload a safetensors file with tensors named by their layer's place, `0.weight`; the same bytes once.

        Only weights that no record of a private dataset had a part in: nothing is paid for them.
        """
        content = file if isinstance(file, bytes) else Path(file).read_bytes()
        label = name or ("weights" if isinstance(file, bytes) else Path(file).stem)
        headers = {"Content-Type": MEDIA}
        answer = self._wire.send(
            "POST", "/v1/pretrained", params={"name": label}, content=content, headers=headers, timeout=None
        )
        return WeightsView.model_validate(answer.json())

    def list(self) -> Iterator[WeightsView]:
        """Yield one's own weights, newest first."""
        return map(WeightsView.model_validate, self._wire.pages("/v1/pretrained"))

    def get(self, weights: str) -> WeightsView:
        """Return the tensors of some weights and their shapes."""
        return WeightsView.model_validate(self._wire.get(f"/v1/pretrained/{weights}"))

    def delete(self, weights: str) -> None:
        """Forget weights; models trained from them stay."""
        self._wire.send("DELETE", f"/v1/pretrained/{weights}")
