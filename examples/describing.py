"""A description of the bank data, printed: `python -m examples.describing`.

Prices a description, runs it, prints it, and then fits a logistic regression that takes its look at the columns from
it. docs/guides/analyst/describe-columns.md explains what is printed.
"""

import io
import sys
from typing import Any, Final

from rich.console import Console

from examples import bank
from examples.bank_demo import service
from farthing import Client, describing, estimate_tables

out = Console(width=110)
COLUMNS: Final = ["age", "duration", "campaign", "marital", "housing", "y"]
WHAT: Final[dict[str, Any]] = describing(
    columns=COLUMNS,
    statistics=["frequencies", "quantiles", "means", "correlations"],
    tables=[("marital", "y"), ("age", "y")],
    quantiles=[0.25, 0.5, 0.9],
    edges={"age": [30, 40, 50, 60]},
)


def run(client: Client) -> None:
    """Upload the bank data, and describe it."""
    dataset = client.upload(io.BytesIO(bank.records()), bank.metadata())
    asked = {"dataset": dataset.id, "model": WHAT, "privacy": {"mu": "0.1"}}
    out.print(estimate_tables.description_price(client.estimate(asked)))
    described = client.train(asked)
    sys.stdout.write(f"\n{described.summary()}\n")
    narrow = described.description(about="records").column("age").mean
    assert narrow is not None, "it was asked for"
    assert narrow.interval is not None, "it is not withheld"
    lower, upper = narrow.interval
    sys.stdout.write(f"mean age of these very records: {narrow.estimate:.4g} [{lower:.4g}, {upper:.4g}]\n")


def main() -> None:
    """Run the service, and leave nothing of it behind."""
    with service("describing") as client:
        run(client)


if __name__ == "__main__":
    main()
