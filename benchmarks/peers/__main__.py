"""Steps, side by side: `python -m benchmarks.peers [logistic|cnn|mlp|transformer] [--batch 256] [--rounds 3]`.

First all methods take twenty steps without noise, the peers in double precision, ours as ever and with a millionth of a
clip, and must end with parameters within 1e-6 of their medians. Then each is timed in fresh processes, in turn, on one
processor, in process CPU time: on the same pre-sliced batches, and with each side's own sampling. Their environments
are made by pip.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.bounds import print_bounds
from benchmarks.peers.environments import PACKAGES, python_of
from benchmarks.peers.tasks import Task, task_named

OPACUS = ("hooks", "functorch", "ew", "ghost")
FIXED = ("sgd", *OPACUS, "vmap", "compiled", "jax", "farthing")
SAMPLED = ("sgd", *OPACUS, "jax", "farthing")
"""Plain SGD reads shuffled batches there; torch.func has no sampler."""
STEPS = {"logistic": {"fixed": 100, "poisson": 20}}
"""In each of the windows whose least and median are told; 4 for networks."""
AGREE = 1e-6
LIMIT_SECONDS = 600


def run(task: Task, folder: Path, method: str, mode: str) -> dict[str, float] | str:
    """Run one method in a fresh process; return what it measured, or why there is nothing."""
    peer = {"jax": "jax", "farthing": ""}.get(method, "torch")
    module = {"jax": "with_jax", "farthing": "with_farthing"}.get(method, "with_torch")
    try:
        python = str(python_of(peer)) if peer else sys.executable
    except subprocess.CalledProcessError as error:
        return f"{PACKAGES[peer][0]} was not installed: {error.stderr.strip().splitlines()[-1]}"
    steps = str(STEPS.get(task.name, {}).get(mode, 4))
    command = [python, "-m", f"benchmarks.peers.{module}", task.name, str(task.batch), str(folder), method, mode, steps]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip - the command, then how it runs
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1]}"
    found: dict[str, float] = json.loads(done.stdout) if done.stdout.strip() else {}
    return found


@contextmanager
def records(task: Task) -> Iterator[Path]:
    """Write what all methods are given."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.peers.with_farthing", task.name, str(task.batch), name]
        subprocess.run([*command, "farthing", "write", "0"], check=True)
        yield Path(name)


def compare_ends(task: Task, folder: Path) -> float:
    """Print how far each method's parameters are from the first's after twenty steps; return the farthest."""
    ends: dict[str, NDArray[np.float64]] = {}
    for method in FIXED:
        found = run(task, folder, method, "equal")
        if isinstance(found, str):
            print(f"  {method}: {found}")
        elif method != "sgd":
            ends[method] = np.load(folder / f"end-{method}.npy").astype(np.float64)
    start = np.load(folder / "start.npy")
    middle = np.median(np.stack(list(ends.values())), axis=0)
    away = {method: float(np.abs(end - middle).max()) for method, end in ends.items()}
    print(
        f"after 20 steps without noise parameters have moved by {np.abs(middle - start).max():.3f}; apart, relatively:"
    )
    print("  " + ", ".join(f"{method} {distance:.1e}" for method, distance in away.items()))
    return max(away.values())


def time_all(task: Task, folder: Path, mode: str, methods: tuple[str, ...], rounds: int) -> dict[str, dict[str, float]]:
    """Measure all methods in turn, round after round; return the least and the median of each."""
    seen: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    for _ in range(rounds):
        for method in methods:
            found = run(task, folder, method, mode)
            if isinstance(found, str):
                print(f"  {method}: {found}")
            else:
                seen[method].append(found)
    return {
        method: {
            "least": min(one["least"] for one in every),
            "median": median(one["median"] for one in every),
            "peak": max(one["peak"] for one in every),
        }
        for method, every in seen.items()
        if every
    }


def print_table(found: dict[str, dict[str, float]], title: str) -> None:
    """Print milliseconds a step, and what they are of plain SGD's and of the fastest Opacus mode's."""
    best = min(found[method]["least"] for method in OPACUS if method in found)
    print(f"\n{title}\n{'':<12}{'ms':>9}{'median':>9}{'x SGD':>8}{'Opacus x':>10}{'extra MB':>10}")
    for method, one in found.items():
        of_sgd = f"{one['least'] / found['sgd']['least']:>8.2f}" if "sgd" in found else f"{'':>8}"
        times = f"{one['least']:>9.3f}{one['median']:>9.3f}"
        print(f"{method:<12}{times}{of_sgd}{best / one['least']:>10.2f}{one['peak'] / 2**20:>10.0f}")


def main() -> int:
    """Print the tables; status 1 where the methods do not agree or a goal is missed."""
    reader = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    reader.add_argument("task", nargs="?", default="logistic", choices=("logistic", "cnn", "mlp", "transformer"))
    reader.add_argument("--batch", type=int)
    reader.add_argument("--rounds", type=int, default=3)
    given: Any = reader.parse_args()
    task = task_named(given.task, given.batch)
    with records(task) as folder:
        shape = " x ".join(map(str, task.shape))
        print(f"{task.name}: {task.units} records of {shape}, B = {task.batch}, C = {task.clip}, sigma = {task.sigma}")
        apart = compare_ends(task, folder)
        fixed = time_all(task, folder, "fixed", FIXED, given.rounds)
        print_table(fixed, "fixed batches; `Opacus x`: how often a step fits into the fastest Opacus mode's")
        sampled = time_all(task, folder, "poisson", SAMPLED, given.rounds)
        print_table(sampled, "each side's own sampling, Poisson but for SGD's shuffled batches")
        print_bounds(task, np.load(folder / "start.npy").size)
    missed = goals_missed(task, fixed, sampled)
    if apart > AGREE:
        missed.append(f"methods are {apart:.1e} apart")
    print(f"\n{'missed: ' + '; '.join(missed) if missed else 'all goals met'}")
    return len(missed) > 0


def goals_missed(task: Task, fixed: dict[str, dict[str, float]], sampled: dict[str, dict[str, float]]) -> list[str]:
    """Return what a table falls short of."""
    ours, best = fixed["farthing"], min(fixed[method]["least"] for method in OPACUS if method in fixed)
    peaks = min(fixed[method]["peak"] for method in OPACUS if method in fixed)
    if task.name == "logistic":
        theirs = min(sampled[method]["least"] for method in OPACUS if method in sampled)
        drawn = theirs / sampled["farthing"]["least"]
        goals = {"5 x Opacus": best / ours["least"] >= 5, "15 x Opacus with sampling": drawn >= 15}
    else:
        goals = {"1.3 x Opacus": best / ours["least"] >= 1.3, "its least memory": ours["peak"] <= peaks}
        if task.batch == 256:
            goals["1.5 x SGD"] = ours["least"] <= 1.5 * fixed["sgd"]["least"]
    return [goal for goal, met in goals.items() if not met]


if __name__ == "__main__":
    sys.exit(main())
