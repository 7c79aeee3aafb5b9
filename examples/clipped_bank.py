"""The bank data by clipped descent, beside noisy gradient descent at one price: `python -m examples.clipped_bank`.

Uploads the bank data, asks what each method promises, and trains all at mu 0.25 (Poisson samples, which have no mu, at
the same rho 0.03125). Prints what each cost, how it read the records, what it claims of its own result, and how well
that result predicts. The certificate is what the theory gives at this size, vacuous or not.

The last column is the mean log loss over this very file, which is public here: nothing of the kind would leave the
service.
"""

from decimal import Decimal
from typing import Any, Final

from examples.bank_demo import service
from examples.kl_bank import FEATURES, compare
from farthing import Client
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobView

MODEL: Final[dict[str, Any]] = {"kind": "logistic", "target": "y", "features": FEATURES, "weights": {"kind": "clip"}}
WIDE: Final[dict[str, Any]] = {**MODEL, "weights": {"kind": "clip", "bound": 100.0}}
DECLARED: Final[dict[str, Any]] = {"smoothness": 1.75, "distance": 4.0, "moment": {"order": 2.0, "size": 2.65}}
"""An encoded row is at most sqrt(7) long: the loss bends by 7/4 at most, gradients are that long; R is a guess."""
RHO: Final = {"rho": "0.03125"}
MU: Final = {"mu": "0.25"}
SAMPLES: Final[dict[str, Any]] = {"kind": "clipped_sgd", "batch": 2000, "steps": 400}
ADAM: Final[dict[str, Any]] = {
    **SAMPLES,
    "rule": {"kind": "adam"},
    "learning_rate_schedule": "cosine",
    "average": {"kind": "none"},
}
METHODS: Final[dict[str, dict[str, Any]]] = {
    "noisy gradient descent": {"model": MODEL, "optimizer": {"kind": "noisy_gd"}, "privacy": MU},
    "clipped, samples": {"model": MODEL, "optimizer": SAMPLES, "privacy": RHO},
    "clipped, samples, Adam": {"model": MODEL, "optimizer": ADAM, "privacy": RHO},
    "clipped, one pass": {"model": MODEL, "optimizer": {"kind": "one_pass_clipped_sgd"}, "privacy": MU},
    "the same, certified": {"model": WIDE, "optimizer": {"kind": "one_pass_clipped_sgd", **DECLARED}, "privacy": MU},
}


def row(name: str, quoted: EstimateView, job: JobView, release: dict[str, Any], loss: float) -> str:
    """Return a line of the table."""
    plan = quoted.plan
    sampling = plan.get("sampling") or {"kind": "full"}
    read = {"full": "all", "poisson": f"q = {sampling.get('rate', 0):.3f}", "stream": f"{sampling.get('batch')} each"}
    claim = release.get("error_bound") or {"value": None}
    claims = "nothing"
    if claim["value"] is not None:
        assert quoted.bound is not None, "a claim has a bound"
        vacuous = ", vacuous" if quoted.bound.vacuous else ""
        claims = f"excess risk <= {claim['value']:.3g}{vacuous}"
    assert job.cost is not None, "it reads one dataset"
    cost = f"{Decimal(job.cost.spent.budget_share) * 100:>8f}{job.cost.spent.epsilon_alone:>8}"
    sigma, clip = plan["sigma"]["gradient"], plan.get("clip") or plan["model"]["weights"]["bound"]
    steps = f"{release['steps']:>7}{read[sampling['kind']]:>14}{sigma:>8.3g}{clip:>7.3g}"
    return f"{name:<24}{cost}{steps}  {claims:<30}{loss:>9.4f}\n"


def run(client: Client) -> None:
    """Ask, train and print."""
    heads = ("% spent", "epsilon", "steps", "a step reads", "sigma", "clip")
    head = "".join(f"{name:>{width}}" for name, width in zip(heads, (8, 8, 7, 14, 8, 7), strict=True))
    compare(client, "8", METHODS, f"{'':<24}{head}  {'claims':<30}{'log loss':>9}\n", row)


def main() -> None:
    """Run the service, and leave nothing of it behind."""
    with service("clipped") as client:
        run(client)


if __name__ == "__main__":
    main()
