"""Models of the bank data, and the figures that people read from them: `python -m examples.bank_models`.

Trains a linear and a logistic regression by the default method, and the latter with clipped gradients. Then reads them:
tables, an ellipse, tests of two coefficients, and the clipped model beside the default one. The page
docs/guides/analyst/read-a-model.md explains the output.
"""

import io
import sys
from typing import Any, Final

from examples import bank
from examples.bank_demo import service
from farthing import Client, Model

FEATURES: Final = ["age", "duration", "campaign", "housing", "loan", "contact"]
JOBS: Final[dict[str, dict[str, Any]]] = {
    "linear": {
        "model": {
            "kind": "linear",
            "target": "duration",
            "features": ["age", "campaign", "housing", "loan", "contact"],
        },
    },
    "logistic": {"model": {"kind": "logistic", "target": "y", "features": FEATURES}},
    "clipped": {
        "model": {"kind": "logistic", "target": "y", "features": FEATURES, "weights": {"kind": "clip", "bound": 1.0}},
        "optimizer": {"kind": "noisy_gd"},
        "inference": {"intervals": False},
    },
}


def train(client: Client) -> dict[str, Model]:
    """Upload the bank data and train the three models, each with mu 0.25."""
    dataset = client.upload(io.BytesIO(bank.records()), bank.metadata())
    queued = {
        name: client.submit(job | {"dataset": dataset.id, "privacy": {"mu": "0.25"}}) for name, job in JOBS.items()
    }
    found = {}
    for name, job in queued.items():
        model = client.wait(job.id).released
        assert model is not None, "no approval is asked for here"
        found[name] = client.model(model)
    return found


def read(models: dict[str, Model]) -> None:
    """Print what is read from them."""
    linear, logistic, clipped = models["linear"], models["logistic"], models["clipped"]
    sys.stdout.write(f"{linear.summary()}\n{logistic.summary()}\n")
    region = logistic.ellipsoid(["housing", "loan"], [0.8, 0.95], point={"housing": -0.5, "loan": -0.5})
    assert region.point is not None, "one was given"
    for one in region.regions:
        halves = ", ".join(f"{half:.3g}" for half in one.half_axes)
        sys.stdout.write(f"housing and loan, {100 * one.level:g} %: half axes {halves}; inside: {one.inside}\n")
    sys.stdout.write(f"both at -0.5: p {region.point['p_value']:.3g}\n")
    for hypothesis in ("housing = loan", "housing = 0, loan = 0"):
        test = logistic.wald_test(hypothesis)
        sys.stdout.write(f"{hypothesis}: chi2({test.degrees_of_freedom}) {test.statistic:.4g}, p {test.p_value:.3g}\n")
    sys.stdout.write(f"\n{logistic.compare_text(clipped)}")


def main() -> None:
    """Run the service, and leave nothing of it behind."""
    with service("models") as client:
        read(train(client))


if __name__ == "__main__":
    main()
