"""The input of every method: shapes, batches and parameters, as arrays in a folder that any environment can read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PARTS = ("features", "target", "start")


@dataclass(frozen=True)
class Task:
    """One problem; `batch` divides `units`, since Opacus divides by the units over the number of batches."""

    name: str
    units: int
    batch: int
    shape: tuple[int, ...]
    classes: int
    """2 with one number a record, for logistic regression; else as many numbers as classes."""
    clip: float = 1.0
    sigma: float = 1.0
    step_size: float = 0.1

    @property
    def batches(self) -> int:
        """The number of batches that the records make."""
        return self.units // self.batch


def task_named(name: str, batch: int | None) -> Task:
    """Return a task with its usual batch or another."""
    match name:
        case "logistic":
            return Task(name, 102_400, batch or 1024, (54,), 2)
        case "cnn":
            return Task(name, 8192, batch or 256, (1, 28, 28), 10)
        case "mlp":
            return Task(name, 4096, batch or 256, (3, 32, 32), 10)
        case "transformer":
            return Task(name, 8192, batch or 256, (32,), 2)
    raise SystemExit(f"no such task: {name}; there are logistic, cnn, mlp and transformer")


def write(folder: Path, task: Task, start: "np.ndarray[Any, Any]") -> None:
    """Write synthetic records, float32 or tokens below 256, and the parameters all methods start from."""
    draws = np.random.default_rng(1)
    features: np.ndarray[Any, Any]
    if task.name == "transformer":
        features = draws.integers(0, 256, (task.units, *task.shape))
    else:
        features = draws.standard_normal((task.units, *task.shape), dtype=np.float32)
    # A little to learn, so that parameters move: the class follows from the first numbers, mostly.
    leaning = features.reshape(task.units, -1)[:, :4].astype(np.float64) @ (1.0, -1.0, 1.0, -1.0)
    target = (leaning > draws.standard_normal(task.units)).astype(np.int64)
    parts: list[np.ndarray[Any, Any]] = [features, target, start.astype(np.float32)]
    for name, array in zip(PARTS, parts, strict=True):
        np.save(folder / f"{name}.npy", array)


def read(folder: Path) -> "tuple[np.ndarray[Any, Any], ...]":
    """Return features, target and start."""
    return tuple(np.load(folder / f"{name}.npy") for name in PARTS)
