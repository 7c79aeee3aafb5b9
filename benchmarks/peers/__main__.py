"""Steps, side by side: `python -m benchmarks.peers [logistic|cnn|mlp|transformer] [--batch 256] [--rounds 3]`.

First all methods take twenty steps without noise, the peers in double precision, ours as ever and with a millionth of a
clip, and must end with parameters within 1e-6 of their medians. Then each is timed in fresh processes, in turn, on one
processor, in process CPU time: on the same pre-sliced batches, and with each side's own sampling. Their environments
are made by pip. `--parts` and `--methods` choose some of it. A method that fails, or does not end, is a row that says
why; the others are measured all the same. Status 1 tells that a goal was missed, or could not be judged.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
PARTS = ("equal", "fixed", "poisson")
STEPS = {"logistic": {"fixed": 100, "poisson": 20}}
"""In each of the windows whose least and median are given; 4 for networks."""
AGREE = 1e-6
LIMIT_SECONDS = 1800
"""For one method in one mode; jax-privacy's convolutions in double precision take minutes on a busy machine."""

Figures = dict[str, float]
"""The least and the median milliseconds a step, and the extra bytes at the peak."""


@dataclass
class Table:
    """The measurements of a mode, method by method, and the reason why there are none of the others."""

    measured: dict[str, Figures] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def best(self, what: str) -> float | None:
        """Return the least of a figure over Opacus' modes; None where none has been measured."""
        return min((self.measured[one][what] for one in OPACUS if one in self.measured), default=None)


def run(task: Task, folder: Path, method: str, mode: str) -> Figures | str:
    """Run one method in a fresh process; return what it measured, or why there is nothing."""
    peer = {"jax": "jax", "farthing": ""}.get(method, "torch")
    module = {"jax": "with_jax", "farthing": "with_farthing"}.get(method, "with_torch")
    try:
        python = str(python_of(peer)) if peer else sys.executable
    except subprocess.CalledProcessError as error:
        return f"{PACKAGES[peer][0]} was not installed: {last_line(error.stderr)}"
    steps = str(STEPS.get(task.name, {}).get(mode, 4))
    command = [python, "-m", f"benchmarks.peers.{module}", task.name, str(task.batch), str(folder), method, mode, steps]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {LIMIT_SECONDS} s"
    if done.returncode:
        return f"failed with status {done.returncode}: {last_line(done.stderr)}"
    return read_figures(done.stdout, mode)


def read_figures(printed: str, mode: str) -> Figures | str:
    """Return the figures that a method printed last; none are due where it only wrote its parameters."""
    if mode == "equal":
        return {}
    try:
        found: Figures = json.loads(last_line(printed))
    except ValueError:
        return f"printed no figures: {last_line(printed)}"
    return found


def last_line(text: str | None) -> str:
    """Return the last line of what a process printed, for why it failed."""
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


@contextmanager
def records(task: Task) -> Iterator[Path]:
    """Write what all methods are given."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.peers.with_farthing", task.name, str(task.batch), name]
        subprocess.run([*command, "farthing", "write", "0"], check=True)
        yield Path(name)


def compare_ends(task: Task, folder: Path, methods: Sequence[str]) -> dict[str, float]:
    """Print how far each method's parameters are from their medians after twenty steps; return that."""
    ends: dict[str, NDArray[np.float64]] = {}
    for method in methods:
        if method == "sgd":  # clips nothing
            continue
        found = run(task, folder, method, "equal")
        if isinstance(found, str):
            print(f"  {method}: {found}", flush=True)
        else:
            ends[method] = np.load(folder / f"end-{method}.npy").astype(np.float64)
    apart, moved = distances(ends, np.load(folder / "start.npy"))
    print(f"after 20 steps without noise parameters have moved by {moved:.3f}; apart:")
    print("  " + ", ".join(f"{method} {distance:.1e}" for method, distance in apart.items()))
    return apart


def distances(ends: Mapping[str, NDArray[np.float64]], start: NDArray[np.float64]) -> tuple[dict[str, float], float]:
    """Return the farthest that any parameter of each method is from the methods' median, and how far that has moved."""
    if not ends:
        return {}, 0.0
    middle = np.median(np.stack(list(ends.values())), axis=0)
    apart = {method: float(np.abs(end - middle).max()) for method, end in ends.items()}
    return apart, float(np.abs(middle - start).max())


def time_all(task: Task, folder: Path, mode: str, methods: Sequence[str], rounds: int) -> Table:
    """Measure all methods in turn, round after round; the least and the median of each, and the highest peak."""
    seen: dict[str, list[Figures]] = {method: [] for method in methods}
    table = Table()
    for _ in range(rounds):
        for method in methods:
            found = run(task, folder, method, mode)
            if isinstance(found, str):
                table.failed[method] = found
            else:
                seen[method].append(found)
    for method, every in seen.items():
        if every:
            table.measured[method] = {
                "least": min(one["least"] for one in every),
                "median": median(one["median"] for one in every),
                "peak": max(one["peak"] for one in every),
            }
    return table


def lines_of(table: Table, title: str) -> list[str]:
    """Return a table's lines: milliseconds a step, and what they are of plain SGD's and the fastest Opacus mode's."""
    best, plain = table.best("least"), table.measured.get("sgd")
    lines = ["", title, f"{'':<12}{'ms':>9}{'median':>9}{'x SGD':>8}{'Opacus x':>10}{'extra MB':>10}"]
    for method, one in table.measured.items():
        of_sgd = "-" if plain is None else f"{one['least'] / plain['least']:.2f}"
        of_best = "-" if best is None else f"{best / one['least']:.2f}"
        times = f"{one['least']:>9.3f}{one['median']:>9.3f}"
        lines.append(f"{method:<12}{times}{of_sgd:>8}{of_best:>10}{one['peak'] / 2**20:>10.0f}")
    return [*lines, *(f"{method:<12}{why}" for method, why in table.failed.items())]


def goals_missed(
    task: Task, fixed: Table | None, sampled: Table | None, apart: Mapping[str, float] | None
) -> list[str]:
    """Return what was fallen short of, and what could not be judged; None was not asked for."""
    missed = []
    if apart is not None:
        missed += [f"{method} is {far:.1e} from the others" for method, far in apart.items() if not far <= AGREE]
        missed += [] if len(apart) > 1 and "farthing" in apart else ["ends of methods were not compared"]
    if fixed is not None:
        missed += _missed_on_fixed(task, fixed)
    if sampled is not None and task.name == "logistic":
        ours, best = sampled.measured.get("farthing"), sampled.best("least")
        if ours is None or best is None:
            missed.append("15 x Opacus with sampling: not measured")
        elif best < 15 * ours["least"]:
            missed.append("15 x Opacus with sampling")
    return missed


def _missed_on_fixed(task: Task, table: Table) -> list[str]:
    """Return the goals of steps on fixed batches that are missed."""
    ours, best, peak, plain = (
        table.measured.get("farthing"),
        table.best("least"),
        table.best("peak"),
        table.measured.get("sgd"),
    )
    times = 5 if task.name == "logistic" else 1.3
    if ours is None or best is None or peak is None:
        return [f"{times} x Opacus on fixed batches: not measured"]
    missed = [f"{times} x Opacus"] if best < times * ours["least"] else []
    if task.name != "logistic":
        missed += ["its least memory"] if ours["peak"] > peak else []
        if task.batch == 256:
            judged = plain is not None and ours["least"] <= 1.5 * plain["least"]
            missed += [] if judged else ["1.5 x SGD" if plain else "1.5 x SGD: not measured"]
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 where the methods do not agree, a goal is missed or nothing says whether it is."""
    given = _read(arguments)
    task = task_named(given.task, given.batch)
    apart: dict[str, float] | None = None
    fixed: Table | None = None
    sampled: Table | None = None
    with records(task) as folder:
        shape = " x ".join(map(str, task.shape))
        print(f"{task.name}: {task.units} records of {shape}, B = {task.batch}, C = {task.clip}, sigma = {task.sigma}")
        if "equal" in given.parts:
            apart = compare_ends(task, folder, [one for one in FIXED if one in given.methods])
        if "fixed" in given.parts:
            fixed = time_all(task, folder, "fixed", [one for one in FIXED if one in given.methods], given.rounds)
            title = "fixed batches; `Opacus x`: how often a step fits into the fastest Opacus mode's"
            print("\n".join(lines_of(fixed, title)), flush=True)
        if "poisson" in given.parts:
            sampled = time_all(task, folder, "poisson", [one for one in SAMPLED if one in given.methods], given.rounds)
            title = "each side's own sampling, Poisson but for SGD's shuffled batches"
            print("\n".join(lines_of(sampled, title)), flush=True)
        if fixed is not None or sampled is not None:
            print_bounds(task, np.load(folder / "start.npy").size)
    return told(goals_missed(task, fixed, sampled, apart))


def told(missed: Sequence[str]) -> int:
    """Print what is missed and return the status that says so."""
    print(f"\n{'missed: ' + '; '.join(missed) if missed else 'all goals met'}")
    return int(bool(missed))


def _read(arguments: Sequence[str] | None) -> Any:  # noqa: ANN401 - argparse's own
    """Read the command line."""
    reader = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    reader.add_argument("task", nargs="?", default="logistic", choices=("logistic", "cnn", "mlp", "transformer"))
    reader.add_argument("--batch", type=int)
    reader.add_argument("--rounds", type=int, default=3)
    reader.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="all, unless some are named")
    reader.add_argument("--methods", nargs="+", default=FIXED, choices=FIXED, help="all, unless some are named")
    return reader.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
