"""The accuracy of Opacus' own MNIST example on the digits that examples train on: `python -m benchmarks.peers.digits`.

Its three published settings (Yousefpour et al., 2021, and the example's page) reach .9463, .9678 and .9709 on 60,000
images. On 8,000 they are carried over in two ways, three seeds each:

* `rate`: the same sampling rate, noise multiplier and number of steps, so the same epsilon, and a batch of 32;
* `batch`: the same batch of 240 and number of epochs, and as much noise as Opacus' accountant asks for that epsilon.

Clip and learning rate are as published. `examples.images mnist` and `mnist-scattering` are ours on the same split.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from benchmarks.peers.environments import python_of
from examples.datasets import mnist

SETTINGS: Final = {"1.2": ("15", ".25", "1.5", "1.3"), "3": ("60", ".15", "1", "1.1"), "7": ("45", ".25", "1.5", ".7")}
"""Epochs, learning rate, clip and noise multiplier."""
BATCHES: Final = {"rate": "32", "batch": "240"}
ROOT: Final = Path(__file__).parents[2]


def run(way: str, epsilon: str, file: Path, seed: int) -> dict[str, float]:
    """Return what one run of the example found."""
    *figures, noise = SETTINGS[epsilon]
    asked = [BATCHES[way], *figures, noise if way == "rate" else f"epsilon={epsilon}", str(seed)]
    command = [str(python_of("torch")), "-m", "benchmarks.peers.digits_with_opacus", str(file), *asked]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=alone, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print a line a run and one a setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=BATCHES)
    parser.add_argument("--epsilon", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    images = mnist()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "digits.npz"
        np.savez(
            file,
            images=images.train_images,
            labels=images.train_labels,
            tests=images.test_images,
            answers=images.test_labels,
        )
        for epsilon in asked.epsilon:
            shares = []
            for seed in range(asked.seeds):
                found = run(asked.way, epsilon, file, seed)
                shares.append(found["share"])
                print(f"  {found}", flush=True)
            spread = f"{min(shares):.4f} to {max(shares):.4f}"
            print(f"{asked.way}, epsilon {epsilon}: mean {np.mean(shares):.4f}, {spread}", flush=True)


if __name__ == "__main__":
    main()
