"""Interactions, an exposure and sampling weights: `python -m examples.terms`.

Makes a synthetic register of clinic patients, of whom smokers were sampled four times as often, and counts their visits
over the years each was followed. Trains a Poisson model with the years as exposure, the inverse sampling rates as
weights and an interaction, by the default method; prints its estimate, table, a test and predictions.
docs/guides/analyst/interactions-and-weights.md explains what is printed.
"""

import csv
import io
import sys
from typing import Any, Final

import numpy as np

from examples.bank_demo import service
from farthing import Client

UNITS: Final = 40_000
SMOKERS: Final = 0.5
"""Of the sample; of the population a fifth."""
COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "age", "type": "number", "lower": 18, "upper": 100, "centre": 50, "deviation": 12},
    {"name": "smoker", "type": "binary", "values": ["no", "yes"]},
    {"name": "years", "type": "number", "lower": 0.5, "upper": 10, "centre": 3},
    {"name": "weight", "type": "number", "lower": 0, "upper": 4, "centre": 2.2, "deviation": 1.5},
    {"name": "visits", "type": "integer", "lower": 0, "upper": 60, "centre": 1.5},
]
MODEL: Final = {
    "kind": "poisson",
    "target": "visits",
    "exposure": "years",
    "sampling_weights": "weight",
    "interactions": [["age", "smoker"]],
}
ROWS: Final = [{"age": 60, "smoker": one, "years": years} for one in ("no", "yes") for years in (1, 5)]


def records() -> bytes:
    """Return the register: log rate -1.2 + .01 (age - 50) + .3 smoker + .015 (age - 50) smoker for each year."""
    draws = np.random.default_rng(2026)  # noqa: TID251 - synthetic people, of whom nobody is to be hidden
    smoker = draws.random(UNITS) < SMOKERS
    age, years = draws.normal(50, 12, UNITS).clip(18, 100), draws.uniform(0.5, 6, UNITS)
    rate = np.exp(-1.2 + 0.01 * (age - 50) + 0.3 * smoker + 0.015 * (age - 50) * smoker)
    visits = draws.poisson(rate * years).clip(0, 60)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column["name"] for column in COLUMNS])
    for row in zip(age, smoker, years, visits, strict=True):
        writer.writerow([f"{row[0]:.1f}", "yes" if row[1] else "no", f"{row[2]:.2f}", 1 if row[1] else 4, row[3]])
    return text.getvalue().encode()


def show(client: Client) -> None:
    """Upload the register, train the model, and print what is read from it."""
    declared = {
        "name": "a register",
        "columns": COLUMNS,
        "unit": "record",
        "adjacency": "zero_out",
        "budget": {"epsilon": "6", "delta": "1e-6"},
    }
    dataset = client.upload(io.BytesIO(records()), declared)
    job = {"dataset": dataset.id, "model": MODEL, "privacy": {"mu": "1"}}
    estimate = client.estimate(job)
    assert estimate.prediction is not None, "widths are predicted of such a model"
    for note in estimate.notes:
        sys.stdout.write(f"{note}\n")
    for one in estimate.prediction.coefficients:
        assert one.width is not None, "the declared centre says about how many visits there are"
        sys.stdout.write(f"{one.name}: {one.width:.3g} wide, {one.nonprivate_width:.3g} without privacy\n")
    model = client.train(job)
    sys.stdout.write(f"\n{model.summary()}\n")
    test = model.wald_test("age:smoker = 0")
    sys.stdout.write(f"age:smoker = 0: chi2({test.degrees_of_freedom}) {test.statistic:.4g}, p {test.p_value:.3g}\n")
    slope = model.contrast({"age": 1, "age:smoker": 1})
    sys.stdout.write(f"a smoker's slope of age: {slope.estimate:.4f}, 95 % {slope.interval}\n")
    for row, told in zip(ROWS, model.predict(ROWS, level=0.95), strict=True):
        sys.stdout.write(f"{row}: {told['mean']:.3f}, 95 % {told['interval']}\n")


def main() -> None:
    """Run the service, and leave nothing of it behind."""
    with service("terms") as client:
        show(client)


if __name__ == "__main__":
    main()
