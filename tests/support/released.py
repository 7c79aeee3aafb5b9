"""Released models of every kind, made of known numbers: people's readings of them are arithmetic on these."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.columns import BinaryColumn, CategoryColumn, IntegerColumn, NumberColumn
from core.inference.checks import Checks, ColumnLook, Learned
from core.inference.released import Flags, Released
from core.inference.results import summary
from core.inference.wording import methods_paragraph
from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.weights import Mallows
from core.methods.registry import method_of, source_of
from core.models.design import make_design
from core.models.kinds import LinearModel, LogisticModel, MultinomialModel, PoissonModel, RegressionModel
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian, compose
from core.privacy.facts import Adjacency
from core.privacy.reports import report

COLUMNS = (
    NumberColumn(name="age", lower=20, upper=80),
    CategoryColumn(name="job", values=("a", "b", "c")),
    BinaryColumn(name="y", values=("no", "yes")),
)
MORE = (
    *COLUMNS,
    IntegerColumn(name="visits", lower=0, upper=40),
    NumberColumn(name="spent", lower=-100, upper=300),
)
FEATURES = ("age", "y")
THETA = (0.3, -1.2, 0.5, 0.1)
UNTOUCHED = Flags(eigenvalues_floored=0, curvature_floored=0, score_floored=0, optimizer_floored=0, slow_directions=0)
FLOORED = Flags(eigenvalues_floored=1, curvature_floored=1, score_floored=0, optimizer_floored=0, slow_directions=0)


def spread(size: int, seed: int = 5) -> NDArray[np.float64]:
    """Return a covariance of some size, well away from singular."""
    root = np.random.default_rng(seed).standard_normal((size, size)) / 10
    return root @ root.T + 1e-3 * np.eye(size)


COVARIANCE = spread(4)


def rows_of(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))


def released(*, with_covariance: bool = True, **changed: Any) -> Released:
    """Return a logistic model, with fields changed."""
    fields: dict[str, Any] = {
        "kind": "logistic",
        "target": "y",
        "optimizer": "noisy_newton",
        "units": 1000,
        "steps": 8,
        "status": "finished",
        "level": 0.95,
        "correction": "stationary",
        "design": make_design(COLUMNS, LogisticModel(target="y")),
        "theta": THETA,
        "covariance": rows_of(COVARIANCE) if with_covariance else None,
        "flags": FLOORED,
        "privacy": report(
            compose(Counter({Gaussian(sigma=4.0): 4})), plan_orders(Decimal(3), Decimal("1e-6")), Adjacency.ZERO_OUT
        ),
        "loss": Logistic(),
        "weights": Mallows(bound=2.0),
    }
    return Released(**fields | changed)


def of_kind(kind: str, **changed: Any) -> Released:
    """Return a model of a kind, with an own covariance."""
    if kind == "logistic":
        return released(**{"flags": UNTOUCHED, **changed})
    kinds: dict[str, tuple[RegressionModel, dict[str, Any]]] = {
        "linear": (
            LinearModel(target="spent", features=FEATURES),
            {"loss": Huber(c=1.345, scale=20.0), "theta": (0.1, -0.4, 0.2)},
        ),
        "joint": (
            LinearModel(target="spent", features=FEATURES),
            {
                "kind": "linear",
                "loss": Huber(joint=True, scale=25.0, scale_floor=1.0),
                "theta": (0.1, -0.4, 0.2, 0.15),
            },
        ),
        "poisson": (
            PoissonModel(target="visits", features=FEATURES),
            {"loss": Poisson(cap=40.0), "theta": (0.7, -0.3, 0.2)},
        ),
        "multinomial": (
            MultinomialModel(target="job", features=FEATURES),
            {"loss": Multinomial(classes=3), "theta": (0.2, -0.4, 0.1, -0.5, 0.3, 0.25)},
        ),
    }
    model, fields = kinds[kind]
    told: dict[str, Any] = {"kind": kind, "target": model.target, "design": make_design(MORE, model)} | fields
    told["covariance"] = rows_of(spread(len(told["theta"])))
    return released(**{"flags": UNTOUCHED, **told, **changed})


def checked(kind: str, *, job: tuple[Any, ...] = (), flagged: dict[int, tuple[Any, ...]] | None = None) -> Released:
    """Return a model of a kind whose method checks itself: an encoding at random, and flags by place."""
    model = of_kind(kind)
    size = len(model.design.features)
    encoding = np.eye(size) + np.tril(np.random.default_rng(8).normal(0, 0.3, (size, size)))
    encoding[0] = np.eye(size)[0]
    learned = Learned(
        columns=(ColumnLook(centre=0.0, scale=1.0),) * size,
        encoding=rows_of(encoding),
        weight_bound=3.0,
        base_rate=None if kind in {"linear", "multinomial"} else 0.3,
        class_rates=(0.5, 0.3, 0.2) if kind == "multinomial" else None,
        residual_scale=0.2 if kind == "linear" else None,
        cap=40.0 if kind == "poisson" else None,
    )
    places = range(len(model.names))
    checks = Checks(
        job=job, coefficients=tuple((flagged or {}).get(place, ()) for place in places), learned=learned,
        gradient_excess=0.1, hessian_noise=0.1, unidentified=(0.0,) * len(places),
        unshown_covariance=model.covariance if job else None,
    )  # fmt: skip
    covariance = None if job else model.covariance
    return model.model_copy(update={"checks": checks, "covariance": covariance, "optimizer": "whitened_newton"})


KINDS = ("logistic", "linear", "joint", "poisson", "multinomial")


def shown_of(model: Released, levels: Sequence[float] = ()) -> dict[str, Any]:
    """Return a model's whole summary, as the service answers it."""
    return {
        "model": "mdl_1",
        "job": "job_1",
        **summary(model, levels),
        "method": source_of(model.optimizer).model_dump(),
        "methods": methods_paragraph(model, method_of(model.optimizer).cited),
    }
