"""Small networks, records and starts for tests; every draw has a fixed seed."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

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
    Shape,
)
from core.models.network.model import Adapters, Lora, Loss, Train
from core.models.network.trained import start_parameters
from core.privacy.facts import Adjacency, Facts
from core.queries.sums.network.losses import losses_of
from core.queries.sums.network.modules import ForwardPass
from core.queries.sums.network.problem import NetworkProblem

Network = tuple[tuple[Layer, ...], Shape, Loss, Train]

_BLOCK = (
    Residual(layers=(LayerNorm(), Attention(heads=2, causal=True))),
    Residual(layers=(LayerNorm(), Linear(units=7), Activation(of="gelu"), Linear(units=6, bias=False))),
)
_TEXT = (Embedding(tokens=5, width=6, positions=True), *_BLOCK, MeanOver(), Linear(units=3))
_IMAGE = (Reshape(shape=(2, 5, 6)), Conv2d(channels=4, kernel=3, stride=2, padding=1), Activation(of="tanh"))

NETWORKS: dict[str, Network] = {
    "linear": ((Linear(units=3),), (5,), "cross_entropy", "all"),
    "perceptron": ((Linear(units=7, bias=False), Activation(), Linear(units=1)), (5,), "squared", "all"),
    "convolution": ((*_IMAGE, Flatten(), Linear(units=3)), (60,), "cross_entropy", "all"),
    "pools": (
        (
            Conv2d(channels=3, kernel=2, bias=False),
            Activation(of="elu"),
            Pool2d(kernel=2, stride=1),
            Conv2d(channels=2, kernel=3, padding=2),
            Pool2d(of="mean", kernel=2, padding=1),
            Activation(of="silu"),
            Flatten(),
            Linear(units=1),
        ),
        (2, 7, 6),
        "squared",
        "all",
    ),
    "norms": (
        (
            *_IMAGE,
            GroupNorm(groups=2),
            Residual(layers=(Conv2d(channels=4, kernel=3, padding=1), GroupNorm(groups=1, affine=False))),
            Activation(of="sigmoid"),
            MeanOver(),
            LayerNorm(),
            Linear(units=4),
        ),
        (60,),
        "cross_entropy",
        "all",
    ),
    "sequence": (
        (Linear(units=4), Activation(of="softplus"), MeanOver(), Linear(units=2)),
        (5, 3),
        "cross_entropy",
        "all",
    ),
    "tokens": ((Embedding(tokens=4, width=3), MeanOver(), Linear(units=2)), (9,), "cross_entropy", "all"),
    "transformer": (_TEXT, (8,), "cross_entropy", "all"),
    "attention": ((Attention(heads=3), Flatten(), Linear(units=1)), (4, 6), "squared", "all"),
    "last layer": (_TEXT, (8,), "cross_entropy", "last"),
    "adapters": (_TEXT, (8,), "cross_entropy", Lora(lora=Adapters(rank=2))),
    "one adapter": (
        (Linear(units=6), Activation(), Linear(units=5), Activation(of="tanh"), Linear(units=3)),
        (4,),
        "cross_entropy",
        Lora(lora=Adapters(rank=1, layers=("2",))),
    ),
}
"""Every kind of layer, with odd shapes, paddings and strides, by name."""


def records(network: Network, units: int, seed: int = 0, precision: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Return features, targets and presence of synthetic records."""
    layers, given, loss, _ = network
    generator = torch.Generator().manual_seed(seed)
    first = layers[0]
    numbers = torch.Size(given).numel()
    if isinstance(first, Embedding):
        features = torch.randint(0, first.tokens, (units, numbers), generator=generator)
    else:
        features = torch.randn(units, numbers, generator=generator, dtype=torch.float64).to(precision)
    if loss == "squared":
        target = torch.randn(units, generator=generator, dtype=torch.float64)
    else:
        (classes,) = _outputs(layers, given)
        target = torch.randint(0, classes, (units,), generator=generator).double()
    return features, target, torch.ones(units, dtype=torch.bool)


def start(network: Network, seed: int = 1, precision: torch.dtype = torch.float32) -> Tensor:
    """Return a start of all parameters, those that begin at a constant moved a little too."""
    layers, given, _, train = network
    generator = torch.Generator().manual_seed(seed)
    found = []
    for one in start_parameters(layers, given, train):
        draws = torch.randn(one.size, generator=generator, dtype=torch.float64)
        found.append(one.start + draws * (one.spread or 0.3))
    return torch.cat(found).to(precision)


def problem(
    network: Network,
    units: int,
    precision: torch.dtype = torch.float32,
    micro: int = 8,
    held: tuple[Tensor, ...] | None = None,
) -> NetworkProblem:
    """Return the network's records behind a problem."""
    layers, given, loss, train = network
    held = records(network, units, precision=precision) if held is None else held
    features, target, present = (one.clone() for one in held)
    initial = start(network, precision=precision)
    return NetworkProblem(features, target, present, layers, loss, given, initial, train=train, micro=micro)


def facts(
    units: int, dimension: int, clip: float = 1.0, part_rows: int = 8, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> Facts:
    """Return what is public about such records."""
    return Facts(units=units, dimension=dimension, adjacency=adjacency, gradient_bound=clip, part_rows=part_rows)


def gradients(problem: NetworkProblem, theta: Tensor) -> Tensor:
    """Return every record's gradient by torch's own vmap of grad, shape (n, p)."""

    def loss(theta: Tensor, record: Tensor, target: Tensor) -> Tensor:
        outputs = ForwardPass(problem._weights(theta), {}).run(problem._layers, record.view(1, *problem._given))
        return losses_of(problem._loss, outputs, target.view(1))[0]

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    with sdpa_kernel(SDPBackend.MATH):  # the other one has no rule for vmap
        found: Tensor = each(theta, problem._records.features, problem._records.target)
        return found


def clipped_sum(rows: Tensor, clip: float) -> Tensor:
    """Return the sum of rows clipped to a norm."""
    norms = torch.linalg.vector_norm(rows.double(), dim=-1, keepdim=True)
    found: Tensor = (rows * (clip / norms).clamp(max=1.0)).sum(0)
    return found


def _outputs(layers: tuple[Layer, ...], given: Shape) -> Shape:
    for layer in layers:
        given = layer.output(given)
    return given
