"""Lower bounds on the time of a step: bytes that move and arithmetic, at rates this machine has."""

import time
from collections.abc import Callable
from math import prod

import torch

from benchmarks.peers.tasks import Task

MEGA = 1e6
REPEATS = 7


def least_seconds(act: Callable[[], object], times: int = 1) -> float:
    """Return the least CPU seconds of something, of a few tries."""
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        for _ in range(times):
            act()
        found.append((time.process_time() - began) / times)
    return min(found)


def rates() -> tuple[float, float]:
    """Return bytes a second that one processor reads beyond its caches, and its float32 operations a second."""
    torch.set_num_threads(1)
    wide = torch.randn(2**23, dtype=torch.float64)  # 64 MB
    square = torch.randn(768, 768)
    read = wide.numel() * 8 / least_seconds(wide.sum)
    return read, 2 * 768**3 / least_seconds(lambda: square @ square)


def work_of(task: Task, parameters: int) -> tuple[float, float]:
    """Return bytes and float operations of our step on a batch: records read once, forward, backward and sum."""
    numbers = prod(task.shape)
    if task.name == "logistic":
        return task.batch * numbers * 8.0, task.batch * numbers * 4.0
    multiplied = {
        "cnn": 16 * 64 * 14 * 14 + 32 * 256 * 5 * 5 + 512 * 32 + 320,
        "mlp": parameters,
        "transformer": 32 * (4 * 64 * 64 + 2 * 32 * 64 + 2 * 64 * 128) + 128,
    }[task.name]
    # Forward, backward to each layer's input but the first's, and the weighted sum over records: three times two.
    return task.batch * numbers * 4.0 + 3 * parameters * 4.0, 6.0 * task.batch * multiplied


def print_bounds(task: Task, parameters: int) -> None:
    """Print both floors and which one binds."""
    read, made = rates()
    moved, done = work_of(task, parameters)
    by_bytes, by_work = 1e3 * moved / read, 1e3 * done / made
    print(f"\nfloor of a step: {moved / MEGA:.2f} MB at {read / 1e9:.1f} GB/s {by_bytes:.3f} ms;", end=" ")
    print(f"{done / MEGA:.1f} M operations at {made / 1e9:.0f} G/s {by_work:.3f} ms:", end=" ")
    print("bytes bind" if by_bytes > by_work else "arithmetic binds")
