"""Layers make what torch's own modules make of the same parameters."""

import subprocess
import sys

import torch
from torch import Tensor, nn

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
    Shape,
    parameters_of,
)
from core.models.network.model import Adapters, Lora
from core.models.network.trained import start_parameters
from core.queries.sums.network.kernels import (
    attention,
    largest_of_windows,
    max_pool2d,
    mean_of_windows,
    mean_pool2d,
    repeatable,
    spelled_attention,
)
from core.queries.sums.network.losses import losses_of
from core.queries.sums.network.modules import ForwardPass
from tests.support.embedded import ROOT
from tests.support.networks import NETWORKS, problem, start


def _made(layers: tuple[Layer, ...], given: Shape, flat: Tensor, records: Tensor) -> Tensor:
    known = parameters_of(layers, given)
    pieces = flat.split([one.size for one in known])
    weights = {one.name: at.view(one.shape) for one, at in zip(known, pieces, strict=True)}
    return ForwardPass(weights, {}).run(layers, records)


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in module.parameters()])


def _draws(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def test_images() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.GroupNorm(4, 8),
        nn.ReLU(),
        nn.MaxPool2d(2, 1, padding=1),
        nn.Conv2d(8, 4, 2, bias=False),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(24),
        nn.Linear(24, 5),
        nn.GELU(),
    )
    layers = (
        Conv2d(channels=8, kernel=3, stride=2, padding=1),
        GroupNorm(groups=4),
        Activation(),
        Pool2d(kernel=2, stride=1, padding=1),
        Conv2d(channels=4, kernel=2, bias=False),
        Pool2d(of="mean", kernel=2),
        Flatten(),
        LayerNorm(),
        Linear(units=5),
        Activation(of="gelu"),
    )
    records = _draws(4, 3, 9, 11)
    assert torch.allclose(_made(layers, (3, 9, 11), _flat(module), records), module(records), atol=1e-5)


def test_one_channel() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    layers = (Conv2d(channels=4, kernel=3), Activation(of="tanh"), MeanOver(), Linear(units=2))
    records = _draws(5, 1, 7, 6)
    assert torch.allclose(_made(layers, (1, 7, 6), _flat(module), records), module(records), atol=1e-6)


def test_attention_is_torchs() -> None:
    torch.manual_seed(0)
    for causal in (False, True):
        module = nn.MultiheadAttention(6, 3, batch_first=True)
        nn.init.normal_(module.in_proj_bias)
        records = _draws(4, 5, 6)
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
        expected, _ = module(records, records, records, attn_mask=mask, need_weights=False)
        flat = torch.cat(
            [
                one.detach().flatten()
                for one in (module.in_proj_weight, module.in_proj_bias, module.out_proj.weight, module.out_proj.bias)
            ]
        )
        found = _made((Attention(heads=3, causal=causal),), (5, 6), flat, records)
        assert torch.allclose(found, expected, atol=1e-6)


def test_tokens_and_their_positions() -> None:
    flat, tokens = _draws(4 * 3 + 5 * 3), torch.tensor([[0, 3, 3, 1, 0]])
    expected = flat[:12].view(4, 3)[tokens] + flat[12:].view(5, 3)
    assert torch.equal(_made((Embedding(tokens=4, width=3, positions=True),), (5,), flat, tokens), expected)


def test_adapters_act_as_a_low_rank_change_of_their_matrix() -> None:
    layers, given, loss, train = NETWORKS["one adapter"]
    held = problem(NETWORKS["one adapter"], 4, torch.float64)
    weights = held._weights(torch.zeros(held.dimension, dtype=torch.float64))
    changed = weights | {"2.weight": weights["2.weight"] + weights["2.weight.up"] @ weights["2.weight.down"]}
    plain = {name: at for name, at in changed.items() if not name.endswith(("up", "down"))}
    x = held._records.features.view(-1, *given)
    assert torch.allclose(ForwardPass(weights, {}).run(layers, x), ForwardPass(plain, {}).run(layers, x))
    assert train == Lora(lora=Adapters(rank=1, layers=("2",)))
    assert loss == "cross_entropy"


def test_a_change_of_zero_is_the_start() -> None:
    for name in NETWORKS:
        held, initial = problem(NETWORKS[name], 2), start(NETWORKS[name])
        weights = held._weights(torch.zeros(held.dimension, dtype=torch.float64))
        layers, given, _, train = NETWORKS[name]
        flat = torch.cat([weights[one.name].flatten() for one in start_parameters(layers, given, train)])
        assert torch.equal(flat, initial)


def test_losses_are_torchs() -> None:
    outputs, classes, numbers = _draws(6, 3), torch.tensor([0.0, 2, 1, 1, 0, 2]), _draws(6)
    expected = nn.functional.cross_entropy(outputs, classes.long(), reduction="none")
    assert torch.allclose(losses_of("cross_entropy", outputs, classes), expected)
    squared = losses_of("squared", outputs[:, :1], numbers)
    assert torch.allclose(squared, nn.functional.mse_loss(outputs[:, 0], numbers, reduction="none") / 2)


def test_records_the_network_is_not_defined_for_count_as_null() -> None:
    held = problem(
        NETWORKS["tokens"],
        5,
        held=(
            torch.tensor([[0] * 9, [4] * 9, [-1] * 9, [1] * 9, [1] * 9]),
            torch.tensor([0.0, 0.0, 0.0, 2.0, 0.5]),
            torch.ones(5, dtype=torch.bool),
        ),
    )
    assert held._records.kept.tolist() == [True, False, False, False, False]


def test_what_gpus_compute_otherwise_is_the_same() -> None:
    images = _draws(2, 3, 7, 8)
    for kernel, stride, padding in ((2, 1, 0), (3, 2, 1), (2, 2, 1)):
        expected = max_pool2d(images, kernel, stride, padding)
        assert torch.equal(largest_of_windows(images, kernel, stride, padding), expected)
        assert max_pool2d(images.to("meta"), kernel, stride, padding).shape == expected.shape
        assert mean_pool2d(images.to("meta"), kernel, stride, padding).shape == expected.shape
        made = {}
        for pool in (mean_pool2d, mean_of_windows):
            for form in (torch.contiguous_format, torch.channels_last):
                given = images.double().contiguous(memory_format=form).requires_grad_()
                means = pool(given, kernel, stride, padding)
                (slope,) = torch.autograd.grad(means.sin().sum(), given)
                made[pool, form] = torch.cat((means.flatten(), slope.flatten()))
        first, *others = made.values()
        assert all(torch.allclose(first, one, rtol=0, atol=1e-14) for one in others)
    heads = _draws(3, 2, 2, 5, 4)
    for causal in (False, True):
        found = spelled_attention(heads[0], heads[1], heads[2], causal=causal)
        assert torch.allclose(found, attention(heads[0], heads[1], heads[2], causal=causal), atol=1e-6)
        elsewhere = heads.to("meta")
        assert attention(elsewhere[0], elsewhere[1], elsewhere[2], causal=causal).shape == found.shape


def test_a_trainer_refuses_such_kernels_without_pandas() -> None:
    """Trainers leave pandas out, which torch's compiler asks for; loading that takes seconds besides."""
    program = """
import sys
import torch
from core.data.arrow import leave_pandas_out
from core.queries.sums.network.kernels import repeatable

leave_pandas_out()
with repeatable(torch.device("cuda")):
    assert torch.are_deterministic_algorithms_enabled()
assert "torch._inductor" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


def test_kernels_without_a_fixed_order_are_refused_on_gpus_alone() -> None:
    with repeatable(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()
    with repeatable(torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
