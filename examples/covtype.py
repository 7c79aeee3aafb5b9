"""Covertype by clipped descent at epsilon .1, 1 and 8: `python -m examples.covtype`.

Four fifths of the 581,012 records are uploaded, class 2 against the rest; each privacy target is three jobs, since
noise and samples are drawn afresh in each. What is printed is how often the released coefficients name the class of the
fifth that never went to the service, which is public here.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from examples.bank_demo import service
from examples.datasets import Table, covertype
from farthing import Client

EPSILONS: Final = ("0.1", "1", "8")
RUNS: Final = 3
TEST_EVERY: Final = 5
MODEL: Final[dict[str, Any]] = {"kind": "logistic", "target": "lodgepole", "weights": {"kind": "clip"}}
OPTIMIZER: Final[dict[str, Any]] = {
    "kind": "clipped_sgd",
    "batch": 4096,
    "steps": 500,
    "clip": 1.0,
    "step_size": 2.0,
    "rule": {"kind": "sgd", "momentum": 0.9},
    "average": {"kind": "tail", "steps": 250},
    "radius": 1000.0,
}


def accuracy(coefficients: Mapping[str, float], table: Table, rows: NDArray[np.bool_]) -> float:
    """Return the share of rows whose class the coefficients name; they are in declared units."""
    score = np.full(int(rows.sum()), coefficients["intercept"])
    for name, values in table.values.items():
        found = [at for one, at in coefficients.items() if one == name or one.startswith(f"{name}[")]
        if name != "lodgepole":
            score += found[0] * values[rows]
    return float(((score > 0) == table.values["lodgepole"][rows]).mean())


def run(client: Client) -> None:
    """Upload, train and print."""
    table = covertype()
    test = np.arange(len(table.values["lodgepole"])) % TEST_EVERY == 0
    owned = {
        "name": "covertype",
        "unit": "record",
        "adjacency": "zero_out",
        "budget": {"epsilon": "100", "delta": "1e-6"},
        "columns": table.columns,
    }
    dataset = client.upload({name: values[~test] for name, values in table.values.items()}, owned)
    sys.stdout.write(f"{'epsilon':>8}{'sigma':>8}{'least':>9}{'median':>9}{'most':>9}\n")
    for epsilon in EPSILONS:
        asked = {
            "dataset": dataset.id,
            "model": MODEL,
            "optimizer": OPTIMIZER,
            "privacy": {"epsilon": epsilon},
            "inference": {"intervals": False},
        }
        sigma = client.estimate(asked).plan["sigma"]["gradient"]
        found = []
        for _ in range(RUNS):
            done = client.wait(client.submit(asked).id)
            assert done.model is not None, "no approval is asked for here"
            estimates = client.model(done.model).table().coefficients
            found.append(accuracy({one.name: one.estimate or 0.0 for one in estimates}, table, test))
        least, middle, most = sorted(found)
        sys.stdout.write(f"{epsilon:>8}{sigma:>8.3g}{least:>9.4f}{middle:>9.4f}{most:>9.4f}\n")
        sys.stdout.flush()


def main() -> None:
    """Run the service, and leave nothing of it behind."""
    with service("covtype") as client:
        run(client)


if __name__ == "__main__":
    main()
