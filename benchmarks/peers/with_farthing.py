"""Farthing's own step through its real oracles: production noise and sampling, paid by the ledger's privacy filter.

`python -m benchmarks.peers.with_farthing TASK BATCH FOLDER METHOD fixed|poisson|equal|write STEPS`

On fixed batches the pre-sliced batches stand behind one oracle in turn, which reads all of the one that is there.
"""

import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.clock import measure, pin

pin()

import numpy as np  # noqa: E402 - after the process is pinned
import torch  # noqa: E402 - as above

from benchmarks.peers.tasks import Task, read, task_named, write  # noqa: E402 - as above
from core.losses.categorical import Logistic  # noqa: E402 - as above
from core.losses.weights import Clip  # noqa: E402 - as above
from core.mechanisms.generator import SystemGenerator  # noqa: E402 - as above
from core.mechanisms.public_start import draw_start  # noqa: E402 - as above
from core.mechanisms.sampling import rate_parts  # noqa: E402 - as above
from core.methods.buffers import BufferPool  # noqa: E402 - as above
from core.models.network.layers import (  # noqa: E402 - as above
    Activation,
    Attention,
    Conv2d,
    Embedding,
    Flatten,
    Layer,
    LayerNorm,
    Linear,
    MeanOver,
    Pool2d,
    Residual,
)
from core.oracle.full import FullOracle, RecordsOracle  # noqa: E402 - as above
from core.oracle.samples import PoissonOracle, sampled  # noqa: E402 - as above
from core.planning.networks import PART_ROWS  # noqa: E402 - as above
from core.privacy.events import Event, Repeated  # noqa: E402 - as above
from core.privacy.facts import Adjacency, Facts  # noqa: E402 - as above
from core.privacy.renyi import prefix_costs  # noqa: E402 - as above
from core.queries.gradients import Gradient  # noqa: E402 - as above
from core.queries.sums import Problem  # noqa: E402 - as above
from core.queries.sums.linear import LinearProblem  # noqa: E402 - as above
from core.queries.sums.network.problem import NetworkProblem  # noqa: E402 - as above
from core.training.device import prepare_for_network  # noqa: E402 - as above
from core.training.ledger_filter import LedgerFilter  # noqa: E402 - as above
from core.training.order import Payer  # noqa: E402 - as above

ORDERS = (2, 4, 9, 22)
CHUNKS, STEPS_A_CHUNK = 2000, 100
EQUAL_STEPS = 20
SILENT_SIGMA = 1e-6
"""Nearly no noise: none at all is not to be had. A millionth of a clip over the batch is far below what is compared."""


class DiscardingWriter:
    """Takes payments and keeps nothing: PostgreSQL's time for a hundred payments a job is `benchmarks.ledger`'s."""

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        """Take a payment."""

    def keep(self, state: bytes, step: int) -> None:
        """Keep nothing."""


def layers_of(task: Task) -> tuple[Layer, ...]:
    """Return the same network as every side has, its parameters in the same order."""
    match task.name:
        case "cnn":
            return (
                Conv2d(channels=16, kernel=8, stride=2, padding=3),
                Activation(),
                Pool2d(kernel=2, stride=1),
                Conv2d(channels=32, kernel=4, stride=2),
                Activation(),
                Pool2d(kernel=2, stride=1),
                Flatten(),
                Linear(units=32),
                Activation(),
                Linear(units=10),
            )
        case "mlp":
            return (Flatten(), Linear(units=256), Activation(), Linear(units=128), Activation(), Linear(units=10))
    return (
        Embedding(tokens=256, width=64, positions=True),
        Residual(layers=(LayerNorm(), Attention(heads=4))),
        Residual(layers=(LayerNorm(), Linear(units=128), Activation(of="gelu"), Linear(units=64))),
        MeanOver(),
        Linear(units=2),
    )


def start_of(task: Task) -> "np.ndarray[Any, Any]":
    """Return the parameters that all methods start from: zeros, or a network's public start."""
    if task.name == "logistic":
        return np.zeros(task.shape)
    return torch.cat([one.flatten() for one in draw_start(layers_of(task), task.shape, "all").values()]).numpy()


def problem_of(task: Task, features: torch.Tensor, target: torch.Tensor, start: torch.Tensor) -> Problem:
    """Put records behind a problem, as a trainer does."""
    present = torch.ones(len(target), dtype=torch.bool)
    if task.name == "logistic":
        return LinearProblem(features.double(), target.double(), present, Logistic(), Clip(bound=task.clip))
    flat = features.reshape(len(target), -1).clone()
    return NetworkProblem(flat, target.clone(), present, layers_of(task), "cross_entropy", task.shape, start)


def filter_for(event: Event) -> LedgerFilter:
    """Return the privacy filter with more chunks than the time is enough for, on a ledger writer that keeps nothing."""
    schedule = [Repeated(event=event, times=STEPS_A_CHUNK)] * CHUNKS
    return LedgerFilter(DiscardingWriter(), [Payer(ORDERS, tuple(prefix_costs(schedule, ORDERS)))], schedule)


def oracle_of(
    task: Task, folder: Path, question: Gradient, *, poisson: bool
) -> tuple[RecordsOracle, list[Problem], int]:
    """Return an oracle, what stands behind it in turn, and the number of parameters.

    To all records, which it samples, or to one batch after the other.
    """
    features, target, start = map(torch.from_numpy, read(folder))
    if task.name != "logistic":
        prepare_for_network(layers_of(task), task.shape, PART_ROWS, len(start))
    size = len(target) if poisson else task.batch
    slices = zip(torch.split(features, size), torch.split(target, size), strict=True)
    problems = [problem_of(task, some.clone(), aims, start) for some, aims in slices]
    facts = Facts(
        units=size,
        dimension=len(start),
        adjacency=Adjacency.ZERO_OUT,
        gradient_bound=task.clip,
        part_rows=None if task.name == "logistic" else PART_ROWS,
    )
    if not poisson:
        payments = filter_for(question.event())
        return FullOracle(problems[0], facts, payments, SystemGenerator()), problems, len(start)
    parts = rate_parts(task.batch / task.units)
    payments = filter_for(sampled(question, parts))
    return PoissonOracle(problems[0], facts, payments, SystemGenerator(), parts), problems, len(start)


def main() -> None:
    """Measure, or write the parameters after twenty steps nearly without noise."""
    name, batch, place, method, mode, steps = sys.argv[1:]
    torch.set_num_threads(1)
    task, folder = task_named(name, int(batch)), Path(place)
    if mode == "write":
        write(folder, task, start_of(task))
        return
    question = Gradient(sigma=SILENT_SIGMA if mode == "equal" else task.sigma, clip=task.clip)
    oracle, problems, dimension = oracle_of(task, folder, question, poisson=mode == "poisson")
    theta, number, buffers = torch.zeros(dimension, dtype=oracle.precision), 0, BufferPool()

    def step() -> None:
        nonlocal theta, number
        oracle._problem = problems[number % len(problems)]  # noqa: SLF001 - a scope's records do not change; these do
        told = oracle.ask(question, theta).value
        theta = torch.sub(theta, told, alpha=task.step_size, out=buffers.of("theta", told))  # as `clipped_sgd` does
        oracle.keep({"theta": theta}, number)
        number += 1

    if mode == "equal":
        for _ in range(EQUAL_STEPS):
            step()
        _, _, start = read(folder)
        np.save(folder / f"end-{method}.npy", start + theta.numpy())
        return
    measure(step, int(steps))


if __name__ == "__main__":
    main()
