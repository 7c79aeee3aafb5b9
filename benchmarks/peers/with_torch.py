"""Peers on PyTorch, in their own environment: plain SGD, every Opacus mode, and vmap(grad).

`python -m benchmarks.peers.with_torch TASK BATCH FOLDER METHOD fixed|poisson|equal STEPS`
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.clock import measure, pin

pin()

import numpy as np  # noqa: E402 - after the process is pinned
import torch  # noqa: E402 - as above
from opacus import PrivacyEngine  # noqa: E402 - as above
from torch import Tensor, nn  # noqa: E402 - as above
from torch.func import functional_call, grad, vmap  # noqa: E402 - as above
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402 - as above

from benchmarks.peers.tasks import Task, read, task_named  # noqa: E402 - as above

EQUAL_STEPS = 20


class Attend(nn.Module):
    """Self-attention of four heads out of two linear layers, which every Opacus mode knows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.heads = heads

    def forward(self, given: Tensor) -> Tensor:
        """Return the same shape, (records, positions, width)."""
        records, positions, width = given.shape
        split = self.query_key_value(given).view(records, positions, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        shares = torch.softmax(query @ key.mT * (width // self.heads) ** -0.5, -1)
        made: Tensor = self.output((shares @ value).transpose(1, 2).reshape(records, positions, width))
        return made


class Transformer(nn.Module):
    """One block on 32 tokens: attention and two linear layers, each behind a layer norm, then the mean."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Embedding(32, width)
        self.before_attention = nn.LayerNorm(width)
        self.attend = Attend(width, 4)
        self.before_hidden = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)
        self.last = nn.Linear(width, 2)

    def forward(self, given: Tensor) -> Tensor:
        """Return two scores a record."""
        places = torch.arange(given.shape[-1], device=given.device).expand(given.shape)
        made = self.token(given) + self.position(places)
        made = made + self.attend(self.before_attention(made))
        made = made + self.back(nn.functional.gelu(self.hidden(self.before_hidden(made))))
        scores: Tensor = self.last(made.mean(1))
        return scores


def network(task: Task) -> nn.Module:
    """Return the same layers, in the same order of parameters, as every side has."""
    match task.name:
        case "logistic":
            return nn.Sequential(nn.Linear(task.shape[0], 1, bias=False), nn.Flatten(0))
        case "cnn":
            return nn.Sequential(
                nn.Conv2d(1, 16, 8, 2, padding=3),
                nn.ReLU(),
                nn.MaxPool2d(2, 1),
                nn.Conv2d(16, 32, 4, 2),
                nn.ReLU(),
                nn.MaxPool2d(2, 1),
                nn.Flatten(),
                nn.Linear(512, 32),
                nn.ReLU(),
                nn.Linear(32, 10),
            )  # fmt: skip - a layer group a line
        case "mlp":
            return nn.Sequential(
                nn.Flatten(), nn.Linear(3072, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
            )
    return Transformer()


def load(module: nn.Module, start: "np.ndarray[Any, Any]") -> None:
    """Copy a flat vector into the parameters."""
    nn.utils.vector_to_parameters(torch.from_numpy(start), module.parameters())


def private_step(
    task: Task, data: TensorDataset, module: nn.Module, method: str, sigma: float, *, poisson: bool
) -> tuple[Callable[[Tensor, Tensor], None], DataLoader[tuple[Tensor, ...]]]:
    """Return one step of plain SGD or of an Opacus mode, and its loader."""
    criterion: Any = nn.BCEWithLogitsLoss() if task.name == "logistic" else nn.CrossEntropyLoss()
    optimizer: Any = torch.optim.SGD(module.parameters(), lr=task.step_size)
    loader: Any = DataLoader(data, batch_size=task.batch, shuffle=True)
    made: Any = module
    if method != "sgd":
        settings = {"noise_multiplier": sigma, "max_grad_norm": task.clip, "poisson_sampling": poisson}
        found = PrivacyEngine().make_private(
            module=module,
            optimizer=optimizer,
            criterion=criterion,
            data_loader=loader,
            grad_sample_mode=method,
            **settings,
        )  # fmt: skip - its own names, then ours
        made, optimizer, loader = found[0], found[1], found[-1]
        criterion = found[2] if method == "ghost" else criterion

    def step(features: Tensor, target: Tensor) -> None:
        optimizer.zero_grad()
        criterion(made(features), target).backward()
        optimizer.step()

    return step, loader


def vmapped_step(task: Task, module: nn.Module, sigma: float, *, compiled: bool) -> Callable[[Tensor, Tensor], None]:
    """Return one step of torch.func: vmap over grad, clipped and summed."""
    criterion: Any = nn.BCEWithLogitsLoss() if task.name == "logistic" else nn.CrossEntropyLoss()
    parameters = {name: one.detach() for name, one in module.named_parameters()}

    def loss(given: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        found: Tensor = criterion(functional_call(module, given, (one.unsqueeze(0),)), target.unsqueeze(0))
        return found

    def clipped(given: dict[str, Tensor], features: Tensor, target: Tensor) -> list[Tensor]:
        every = vmap(grad(loss), in_dims=(None, 0, 0))(given, features, target)
        flat = [one.flatten(1) for one in every.values()]
        norms = torch.stack([one.square().sum(1) for one in flat]).sum(0).sqrt()
        shrink = (task.clip / (norms + 1e-6)).clamp(max=1.0)
        return [torch.einsum("i,i...->...", shrink, one) for one in every.values()]

    run = torch.compile(clipped) if compiled else clipped

    def step(features: Tensor, target: Tensor) -> None:
        sums = run(parameters, features, target)
        for one, total in zip(parameters.values(), sums, strict=True):
            noisy = total + sigma * task.clip * torch.randn_like(total)
            one.sub_(noisy, alpha=task.step_size / task.batch)

    return step


def endless(loader: DataLoader[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def main() -> None:
    """Measure one method, or write its parameters after twenty steps without noise."""
    name, batch, place, method, mode, steps = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    task, folder = task_named(name, int(batch)), Path(place)
    features, target, start = map(torch.from_numpy, read(folder))
    target = target.float() if task.name == "logistic" else target
    module = network(task)
    load(module, start.numpy())
    if mode == "equal":  # in double precision, so that single precision does not decide
        module = module.double()
        features = features.double() if features.is_floating_point() else features
        target = target.double() if task.name == "logistic" else target
    data = TensorDataset(features, target)
    sigma = 0.0 if mode == "equal" else task.sigma
    loader: Any = None
    if method in ("vmap", "compiled"):
        step = vmapped_step(task, module, sigma, compiled=method == "compiled")
    else:
        step, loader = private_step(task, data, module, method, sigma, poisson=mode == "poisson")
    batches = list(zip(torch.split(features, task.batch), torch.split(target, task.batch), strict=True))
    if mode == "equal":
        for number in range(EQUAL_STEPS):
            step(*batches[number % len(batches)])
        np.save(folder / f"end-{method}.npy", nn.utils.parameters_to_vector(module.parameters()).detach().numpy())
        return
    around = endless(loader) if mode == "poisson" else endless(batches)  # type: ignore[arg-type] # a list loops as well
    measure(lambda: step(*next(around)), int(steps))


if __name__ == "__main__":
    main()
