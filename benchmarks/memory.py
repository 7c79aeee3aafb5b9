"""Peak memory of encoding records and ten noisy gradient steps and a curvature: `python -m benchmarks.memory`.

Synthetic records of 581,012 x 54 float64 are written batch by batch into one preallocated array, as the reader of
stored datasets does it, in a fresh process. The target: at most 1.5 times the encoded data plus 100 MB above an idle
trainer, that is the same process with everything imported and a tiny job done.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.gradient import WEIGHTS, facts_for
from core.losses.categorical import Logistic
from core.mechanisms.generator import SystemGenerator
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.queries.gradients import Curvature, Gradient
from core.queries.sums.linear import LinearProblem

UNITS, DIMENSION, STEPS, BATCH = 581_012, 54, 10, 8192
TARGET_FACTOR, TARGET_EXTRA_BYTES = 1.5, 100 * 2**20


def peak_bytes() -> int:
    """Return the highest resident size of this process so far (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def job(units: int, dimension: int) -> int:
    """Encode and train; return the encoded bytes."""
    draws = np.random.default_rng(1)
    features, target = np.empty((units, dimension)), np.empty(units)
    for start in range(0, units, BATCH):
        part = features[start : start + BATCH]
        part[:] = draws.standard_normal(part.shape)
        target[start : start + BATCH] = draws.integers(0, 2, len(part))
    present = np.ones(units, dtype=np.bool_)
    loss = Logistic()
    problem = LinearProblem(
        torch.from_numpy(features), torch.from_numpy(target), torch.from_numpy(present), loss, WEIGHTS
    )
    oracle = FullOracle(problem, facts_for(loss, units, dimension), UnlimitedFilter(), SystemGenerator())
    theta = torch.zeros(dimension, dtype=torch.float64)
    for _ in range(STEPS):
        theta = theta - 0.1 * oracle.ask(Gradient(sigma=30.0), theta).value
    oracle.ask(Curvature(of="hessian", sigma=30.0), theta)
    return features.nbytes + target.nbytes + present.nbytes


def measure(units: int, dimension: int, before: str = "") -> dict[str, int]:
    """Run a job in a fresh process; return its encoded bytes and its peak above an idle trainer.

    Args:
        units: records.
        dimension: features.
        before: statements to run first, for planted bugs.
    """
    program = f"{before}\nfrom benchmarks.memory import main\nmain()"
    command = [sys.executable, "-c", program, str(units), str(dimension)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def allowed_bytes(encoded: int) -> int:
    """Return the target for a job's peak above an idle trainer."""
    return int(TARGET_FACTOR * encoded) + TARGET_EXTRA_BYTES


def main() -> None:
    """Print the table, or, given a size, measure this very process."""
    if len(sys.argv) > 1:
        job(1000, int(sys.argv[2]))
        idle = peak_bytes()
        encoded = job(int(sys.argv[1]), int(sys.argv[2]))
        print(json.dumps({"encoded": encoded, "above_idle": peak_bytes() - idle, "idle": idle}))
        return
    seen = measure(UNITS, DIMENSION)
    million = 2**20
    print(f"{UNITS} x {DIMENSION} float64, {STEPS} steps and a curvature")
    print(f"encoded {seen['encoded'] / million:.0f} MB, idle trainer {seen['idle'] / million:.0f} MB")
    print(
        f"peak above idle {seen['above_idle'] / million:.0f} MB, {seen['above_idle'] / seen['encoded']:.2f} x encoded"
    )
    print(f"target {allowed_bytes(seen['encoded']) / million:.0f} MB")
    if seen["above_idle"] > allowed_bytes(seen["encoded"]):
        raise SystemExit("the target is missed")


if __name__ == "__main__":
    main()
