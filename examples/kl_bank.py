"""The bank data by the methods under the KL condition, beside noisy gradient descent: `python -m examples.kl_bank`.

Uploads the bank data, asks what each method promises, and trains all at one price, rho 0.03 each. Prints what was
reserved, what was spent, what was given back, what each claims of its own result, and how well each result predicts.

A ridge makes the loss strongly convex, so the methods know their condition from it. The last column is the mean log
loss over this very file, which is public here: nothing of the kind would leave the service.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from examples import bank
from examples.bank_demo import service
from farthing import Client
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobView

FEATURES: Final = ["age", "duration", "campaign", "housing", "loan", "contact"]
RIDGE: Final[dict[str, Any]] = {"kind": "logistic", "target": "y", "features": FEATURES, "ridge": 0.02}
OPTIMIZERS: Final[dict[str, dict[str, Any]]] = {
    "noisy gradient descent": {"kind": "noisy_gd"},
    "KL-Spider, calibrated": {"kind": "kl_spider", "variant": "calibrated"},
    "adaptive": {"kind": "adaptive_gd"},
    "adaptive, step cap": {"kind": "adaptive_gd", "step_cap": 60},
}
METHODS: Final[dict[str, dict[str, Any]]] = {
    name: {"model": RIDGE, "optimizer": optimizer, "privacy": {"rho": "0.03"}} for name, optimizer in OPTIMIZERS.items()
}


def log_loss(coefficients: Mapping[str, float], rows: list[dict[str, str]]) -> float:
    """Return the mean log loss of a logistic model over rows as they are in the file, numbers cut to their bounds."""
    declared = {column["name"]: column for column in bank.COLUMNS}
    margin = np.full(len(rows), coefficients["intercept"])
    for name, value in coefficients.items():
        column, _, level = name.partition("[")
        if column == "intercept":
            continue
        told = [row[column] for row in rows]
        known = declared[column]
        if known["type"] == "integer":
            margin += value * np.clip(np.array(told, dtype=float), known["lower"], known["upper"])
        else:
            margin += value * (np.array(told) == (level.rstrip("]") or known["values"][1]))
    sign = np.where(np.array([row["y"] for row in rows]) == "yes", 1, -1)
    return float(np.logaddexp(0, -sign * margin).mean())


def row(name: str, quoted: EstimateView, job: JobView, release: dict[str, Any], loss: float) -> str:
    """Return a line of the table."""
    assert job.cost is not None, "it reads one dataset"
    reserved, spent = (float(part.rho or "nan") for part in (job.cost.reserved, job.cost.spent))
    assert quoted.bound is not None, "every method has one"
    bound = "-" if quoted.excess is None or quoted.bound.value is None else f"{quoted.bound.value:.3g}"
    claim = release.get("error_bound") or {"ended_by": "-", "quantity": "nothing", "value": None}
    value = "" if claim["value"] is None else f" <= {claim['value']:.3g}"
    said = f"{claim['quantity']}{value}".replace("_", " ")
    figures = f"{reserved:>9.4f}{spent:>9.4f}{reserved - spent:>9.4f}{bound:>10}{release['steps']:>7}"
    return f"{name:<24}{figures}  {claim['ended_by']:<15}{said:<26}{loss:>9.4f}\n"


def compare(
    client: Client, epsilon: str, methods: Mapping[str, dict[str, Any]], head: str, row: Callable[..., str]
) -> None:
    """Upload the bank data, ask what each method promises, train by it, and print a line of it below the head."""
    rows = list(csv.DictReader(io.StringIO(bank.records().decode())))
    dataset = client.upload(io.BytesIO(bank.records()), bank.metadata(epsilon=epsilon))
    sys.stdout.write(head)
    for name, method in methods.items():
        asked = {**method, "dataset": dataset.id, "inference": {"intervals": False}}
        quoted = client.estimate(asked)
        done = client.wait(client.submit(asked).id)
        assert done.released is not None, "no approval is asked for here"
        released = client.model(done.released)
        estimates = {one.name: one.estimate or 0.0 for one in released.table().coefficients}
        release = json.loads(released.export())["released"]
        sys.stdout.write(row(name, quoted, done, release, log_loss(estimates, rows)))
        sys.stdout.flush()


def run(client: Client) -> None:
    """Ask, train and print."""
    heads = ("reserved", "spent", "returned", "promised", "steps")
    head = "".join(f"{name:>{width}}" for name, width in zip(heads, (9, 9, 9, 10, 7), strict=True))
    compare(client, "3", METHODS, f"{'rho':<24}{head}  {'ended by':<15}{'claims':<26}{'log loss':>9}\n", row)


def main() -> None:
    """Run the service, and leave nothing of it behind."""
    with service("kl") as client:
        run(client)


if __name__ == "__main__":
    main()
