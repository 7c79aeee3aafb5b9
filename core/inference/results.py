"""What a model row stores, and what people read from it: tables, intervals, tests, predictions, text for a paper.

Everything here is arithmetic on one released value, so it costs nothing and never meets a record. No torch: the API
renders these. Coefficients are stored in encoded units with their covariance and shown in declared units:
declared = A encoded + offset, covariance = A covariance A^T.
"""

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.stats import chi2, norm

from core.catalogue.design import Design
from core.errors import FieldError, Invalid
from core.privacy.facts import Frozen
from core.privacy.reports import Report

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]
Array = NDArray[np.float64]
Level = Annotated[float, Field(gt=0.5, lt=1)]


class Flags(Frozen):
    """What was done to noised matrices before they were inverted; wide intervals often start here."""

    eigenvalues_floored: int = Field(description="of both matrices of the covariance together")
    curvature_floored: int
    score_floored: int
    optimizer_floored: int = Field(description="of the last Newton step's Hessian")
    slow_directions: int = Field(
        description="directions in which the steps had not forgotten their start, going by the noised Hessian: the "
        "estimate still leans towards the start there, and intervals may be too short"
    )
    scale_floored: bool = False


class Released(Frozen):
    """All that leaves a job: one row of models, as JSON."""

    kind: Literal["logistic", "linear"]
    target: str
    optimizer: str
    units: int
    steps: int
    status: Literal["finished", "stopped"]
    level: Level
    correction: Literal["stationary", "plain", "printed"]
    design: Design
    theta: Vector
    """Encoded units, intercept first."""
    covariance: Matrix | None
    """Of theta, encoded units; None where the job asked for no intervals."""
    flags: Flags
    privacy: Report
    weight_bound: float
    huber: tuple[float, float] | None = None
    """c and the scale in the target's units; None for logistic regression."""

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients' names, `job[technician]` for a level."""
        return tuple(feature.name for feature in self.design.features)


class Declared(Frozen):
    """Coefficients and their covariance in the units of the declared columns."""

    names: tuple[str, ...]
    estimate: Vector
    covariance: Matrix | None


def declared(released: Released) -> Declared:
    """Return coefficients and covariance in declared units."""
    matrix, offset = released.design.to_declared()
    estimate = matrix @ np.asarray(released.theta) + offset
    covariance = None
    if released.covariance is not None:
        covariance = _rows(matrix @ np.asarray(released.covariance) @ matrix.T)
    return Declared(names=released.names, estimate=tuple(estimate.tolist()), covariance=covariance)


def summary(released: Released, level: float | None = None) -> dict[str, Any]:
    """Return the coefficient table, as statisticians print it, with its privacy.

    Args:
        released: a model's row.
        level: of the intervals; None: the job's own.
    """
    level = released.level if level is None else level
    return {
        "optimizer": released.optimizer,
        "kind": released.kind,
        "target": released.target,
        "n": released.units,
        "steps": released.steps,
        "status": released.status,
        "level": level,
        "correction": released.correction,
        "coefficients": _table(released, level),
        "flags": released.flags.model_dump(),
        "privacy": privacy_block(released.privacy),
        "methods": methods_paragraph(released),
    }


def privacy_block(report: Report) -> dict[str, Any]:
    """Return the promise under the scope's adjacency and what it implies under the other."""
    return {
        **report.promise.model_dump(),
        "adjacency": report.adjacency.value,
        "label": report.label,
        "implies": {relation.value: promise.model_dump() for relation, promise in report.implies.items()},
    }


def intervals(released: Released, level: float | None = None) -> list[dict[str, Any]]:
    """Return each coefficient's interval at `level`, in declared units.

    Raises:
        Invalid: the job asked for no intervals.
    """
    _need_covariance(released)
    level = released.level if level is None else level
    return [{"name": row["name"], "interval": row["interval"]} for row in _table(released, level)]


def odds_ratios(released: Released, level: float | None = None) -> list[dict[str, Any]]:
    """Return exp(coefficient) with its interval, for each coefficient but the intercept.

    Raises:
        Invalid: this is no logistic model.
    """
    if released.kind != "logistic":
        raise Invalid(
            "Odds ratios are for logistic models.", FieldError("/model", "ask for odds ratios of a logistic model")
        )
    rows = _table(released, released.level if level is None else level)
    return [
        {
            "name": row["name"],
            "odds_ratio": _exponential(row["estimate"]),
            "interval": None if row["interval"] is None else [_exponential(end) for end in row["interval"]],
        }
        for row, feature in zip(rows, released.design.features, strict=True)
        if feature.column is not None
    ]


def contrast(released: Released, weights: Mapping[str, float], level: float | None = None) -> dict[str, Any]:
    """Return a linear combination of coefficients with its standard error, z, p and interval.

    Args:
        released: a model's row.
        weights: a number for each coefficient named, in declared units; the others count 0.
        level: of the interval; None: the job's own.

    Raises:
        Invalid: an unknown name, or no intervals were asked for.
    """
    _need_covariance(released)
    row = _restriction(released, weights, "/weights")
    shown = declared(released)
    value = float(row @ np.asarray(shown.estimate))
    error = sqrt(max(float(row @ np.asarray(shown.covariance) @ row), 0.0))
    return {"weights": dict(weights), **_line(value, error, released.level if level is None else level)}


def wald_test(
    released: Released, hypotheses: Sequence[Mapping[str, float]], values: Sequence[float] | None = None
) -> dict[str, Any]:
    """Test linear hypotheses jointly: each a combination of coefficients, equal to its value (0 by default).

    Returns:
        The chi-squared statistic, its degrees of freedom (the rank of the hypotheses) and the p value.

    Raises:
        Invalid: an unknown name, no hypothesis, values of another length, or no intervals were asked for.
    """
    _need_covariance(released)
    if not hypotheses:
        raise Invalid("There is nothing to test.", FieldError("/hypotheses", "give at least one hypothesis"))
    values = [0.0] * len(hypotheses) if values is None else values
    if len(values) != len(hypotheses):
        raise Invalid(
            "Give one value for each hypothesis.", FieldError("/values", f"must have {len(hypotheses)} numbers")
        )
    rows = np.array([_restriction(released, one, f"/hypotheses/{index}") for index, one in enumerate(hypotheses)])
    shown = declared(released)
    distance = rows @ np.asarray(shown.estimate) - np.asarray(values)
    covariance = rows @ np.asarray(shown.covariance) @ rows.T
    rank = int(np.linalg.matrix_rank(covariance, hermitian=True))
    statistic = float(distance @ np.linalg.pinv(covariance, hermitian=True) @ distance)
    return {"statistic": statistic, "degrees_of_freedom": rank, "p_value": float(chi2.sf(statistic, rank))}


def predict(released: Released, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Predict rows given in the dataset's own columns: a probability, or a value in the target's units.

    Raises:
        Invalid: a row misses a column of the model or has a value that cannot be read; pointers start at /rows.
    """
    predictions = []
    for index, row in enumerate(rows):
        try:
            encoded = released.design.encode_row(dict(row))
        except Invalid as refusal:
            fields = [FieldError(f"/rows/{index}{field.pointer}", field.detail) for field in refusal.fields]
            raise Invalid(refusal.detail, *fields) from None
        margin = float(np.dot(encoded, released.theta))
        predictions.append(_prediction(released, margin))
    return predictions


def methods_paragraph(released: Released) -> str:
    """Return a paragraph for the methods section of a paper; every figure in it is public."""
    report = released.privacy
    other = "; ".join(f"({_promise(p)}) under {relation.value}" for relation, p in report.implies.items())
    model = (
        "logistic regression"
        if released.huber is None
        else f"Huber regression (c = {released.huber[0]:g}, known residual scale {released.huber[1]:g})"
    )
    inference = (
        "No intervals were released."
        if released.covariance is None
        else f"Intervals ({released.level:.0%}) use a private sandwich covariance; the variance added by the "
        f"optimizer's noise is included ({released.correction} correction), and {released.flags.eigenvalues_floored} "
        "eigenvalues of noised matrices were floored."
    )
    return (
        f"We fitted {model} of {released.target} on {len(released.theta)} parameters and {released.units:,} records "
        f"with Mallows weights (bound {released.weight_bound:.3g} on features scaled by their declared bounds), by "
        f"{released.optimizer.replace('_', ' ')} with {released.steps} steps and Gaussian noise on every answer "
        f"(Avella-Medina, Bradshaw and Loh, 2023). {inference} The release is differentially private with "
        f"{_promise(report.promise)} for neighbouring data sets under {report.adjacency.value}"
        f"{', which implies ' + other if other else ''}."
    )


def _promise(promise: Any) -> str:  # noqa: ANN401 - a Promise, whose fields may be null
    """Write a promise in the currencies that can state it."""
    parts = [f"(epsilon, delta) = ({promise.epsilon}, {promise.delta})"]
    if promise.mu is not None:
        parts.insert(0, f"mu = {promise.mu} (Gaussian differential privacy)")
    return ", that is ".join(parts)


def _table(released: Released, level: float) -> list[dict[str, Any]]:
    """Return one line a coefficient, in declared units."""
    shown = declared(released)
    variances = None if shown.covariance is None else [row[index] for index, row in enumerate(shown.covariance)]
    lines = []
    for index, (name, estimate) in enumerate(zip(shown.names, shown.estimate, strict=True)):
        error = None if variances is None else sqrt(max(variances[index], 0.0))
        lines.append({"name": name, **_line(estimate, error, level)})
    return lines


def _line(estimate: float, error: float | None, level: float) -> dict[str, Any]:
    """Return an estimate with its standard error, z, two-sided p and interval."""
    if error is None:
        return {"estimate": estimate, "std_error": None, "z": None, "p_value": None, "interval": None}
    half = float(norm.ppf((1 + level) / 2)) * error
    z = estimate / error if error > 0 else None
    return {
        "estimate": estimate,
        "std_error": error,
        "z": z,
        "p_value": None if z is None else float(2 * norm.sf(abs(z))),
        "interval": [estimate - half, estimate + half],
    }


def _need_covariance(released: Released) -> None:
    if released.covariance is None:
        raise Invalid(
            "This job asked for no intervals, so there is no covariance.",
            FieldError("/model", "submit a job with inference.intervals true"),
        )


def _restriction(released: Released, weights: Mapping[str, float], pointer: str) -> Array:
    """Return a row of weights in the order of the coefficients."""
    row = np.zeros(len(released.names))
    for name, weight in weights.items():
        if name not in released.names:
            raise Invalid(
                f"There is no coefficient {name!r}.",
                FieldError(f"{pointer}/{name}", f"must be one of {', '.join(released.names)}"),
            )
        row[released.names.index(name)] = weight
    return row


def _prediction(released: Released, margin: float) -> dict[str, float]:
    """Return the prediction for one margin, in the target's units."""
    if released.kind == "logistic":
        return {"probability": 1 / (1 + exp(-margin)) if margin >= 0 else exp(margin) / (1 + exp(margin))}
    coding = released.design.target
    return {"value": coding.centre + coding.scale * margin}


def _exponential(value: float) -> float | None:
    """Return exp(value), None where no float holds it."""
    return exp(value) if value < 700 else None  # noqa: PLR2004 - the largest float is about exp(709)


def _rows(matrix: Array) -> Matrix:
    return tuple(tuple(row) for row in matrix.tolist())
