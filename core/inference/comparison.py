"""Two models of one target side by side: valid statements about their difference, and the limits of these.

Each estimate is theta_i = estimand_i + sampling error_i + privacy noise_i. Noise is fresh in every job, so the two
noises are independent. Sampling errors are not, where both saw the same people, and how they go together is not
released. The variance of a difference is not known, but bounded:

* one equation (model, loss, weights, columns) on the same records. Both share one sampling error, and the difference is
  noise alone, with a variance of at most V1 + V2. That gives the standard error, which is too large;
* no record in both: the variance is V1 + V2;
* the same people, otherwise: at most (s1 + s2)^2 whatever the correlation (Cauchy-Schwarz).

A z from such a bound is never too large, so its p value is an upper bound. Where one model has no covariance, as with
clipped gradients, there is no test: the difference is shown in units of the other's standard error, and may be bias.
"""

from math import sqrt
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc

from core.base.errors import FieldError, Invalid
from core.inference.error_bound import Records
from core.inference.hypotheses import p_value, quadratic
from core.inference.released import Released, declared
from core.inference.results import asked, caveats, line, privacy_block, shown_errors
from core.inference.wording import loss_words, weight_words

Relation = Literal["same_equation", "same_people", "different_people", "no_covariance"]
ASSUMES = {
    "same_equation": "Both solve one equation on the same records, so once converged they differ by privacy noise "
    "alone. The standard error is that of estimates with independent sampling errors as well, which is larger: p "
    "values are upper bounds.",
    "same_people": "The same people may be in both, so sampling errors go together in a way that is not released. The "
    "standard error is the sum of both, the most it can be: p values are upper bounds. Equations that differ may also "
    "estimate different values.",
    "different_people": "The models come from budgets of different people; if nobody is in both, errors are "
    "independent and p values are as usual.",
    "no_covariance": "At least one of the models has no covariance, so no test of the difference is justified. The "
    "difference is shown in units of the other one's standard error; it may be bias, which more records do not cure.",
}


def compare(first: Released, second: Released, records: Records, level: float | None = None) -> dict[str, Any]:
    """Return two models' coefficients side by side, in declared units.

    Args:
        first: a model's row.
        second: another one's.
        records: whether they come from one dataset, one budget, or budgets of different people.
        level: of the intervals; None: the first one's own.

    Returns:
        The relation and its assumptions; both models with their costs; and a joint test where V1 + V2 bounds the
        covariance. A line for each coefficient of either has both estimates, the difference and its bounds, whether the
        intervals overlap and the ratio of their widths (second over first).

    Raises:
        Invalid: targets or kinds differ.
    """
    if (first.kind, first.target) != (second.kind, second.target):
        raise Invalid(
            f"These are different models: {first.kind} of {first.target}, and {second.kind} of {second.target}.",
            FieldError("/other", "compare two models of one kind and one target"),
        )
    level = asked(first, ())[0] if level is None else level
    relation = _relation(first, second, records)
    sides = [_lines(one, level) for one in (first, second)]
    # In the first model's order; those that only the second has follow.
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    return {
        "target": first.target,
        "kind": first.kind,
        "level": level,
        "relation": relation,
        "assumes": ASSUMES[relation],
        "models": [_described(one) for one in (first, second)],
        "coefficients": [_compared(name, sides[0].get(name), sides[1].get(name), relation) for name in names],
        "joint": _joint(first, second, relation),
    }


def _relation(first: Released, second: Released, records: Records) -> Relation:
    if first.covariance is None or second.covariance is None:
        return "no_covariance"
    if records == "same_dataset" and first.equation == second.equation:
        return "same_equation"
    return "different_people" if records == "different_people" else "same_people"


def _described(one: Released) -> dict[str, Any]:
    """Return what stands at the head of a model's column."""
    return {
        "optimizer": one.optimizer,
        "loss": loss_words(one),
        "weights": weight_words(one),
        "ridge": one.ridge,
        "n": one.units,
        "steps": one.steps,
        "correction": one.correction if one.covariance is not None else None,
        "privacy": privacy_block(one.privacy),
        **caveats(one),
    }


def _lines(one: Released, level: float) -> dict[str, dict[str, Any]]:
    shown = declared(one)
    rows = zip(shown.names, shown.estimate, shown_errors(one), strict=True)
    return {name: line(estimate, error, (level,)) for name, estimate, error in rows}


def _compared(
    name: str, first: dict[str, Any] | None, second: dict[str, Any] | None, relation: Relation
) -> dict[str, Any]:
    """Return one coefficient of both, with their difference, second less first."""
    found: dict[str, Any] = {"name": name, "first": first, "second": second}
    if first is None or second is None:
        return found | dict.fromkeys(_MEASURES)
    difference, errors = second["estimate"] - first["estimate"], (first["std_error"], second["std_error"])
    bound = _bound(errors, relation)
    z = difference / bound if bound else None
    overlap = ratio = None
    if first["interval"] and second["interval"]:
        (low, high), (lower, upper) = first["interval"], second["interval"]
        overlap = bool(low <= upper and lower <= high)
        ratio = (upper - lower) / (high - low) if high > low else None
    known = next((error for error in errors if error), None)
    measures = (
        difference,
        bound,
        z,
        None if z is None else p_value(z),
        None if known is None else difference / known,
        overlap,
        ratio,
    )
    return found | dict(zip(_MEASURES, measures, strict=True))


_MEASURES = (
    "difference",
    "std_error_bound",
    "z_bound",
    "p_value_bound",
    "difference_in_std_errors",
    "intervals_overlap",
    "width_ratio",
)


def _bound(errors: tuple[float | None, float | None], relation: Relation) -> float | None:
    """Return the most that the standard error of a difference can be."""
    one, other = errors
    if one is None or other is None or relation == "no_covariance":
        return None
    return one + other if relation == "same_people" else sqrt(one**2 + other**2)


def _joint(first: Released, second: Released, relation: Relation) -> dict[str, Any] | None:
    """Return a test that no coefficient differs, where V1 + V2 is known to bound the covariance."""
    if relation not in ("same_equation", "different_people") or first.names != second.names:
        return None
    if first.withheld or second.withheld:
        return None
    one, other = declared(first), declared(second)
    total = np.asarray(one.covariance) + np.asarray(other.covariance)
    errors = np.sqrt(np.diag(total))
    away = (np.asarray(other.estimate) - np.asarray(one.estimate)) / errors
    # On the scale of standard errors: declared units may differ by any magnitude.
    statistic = quadratic(away, total / errors / errors[:, None], "/other")
    count = len(errors)
    return {
        "statistic_bound": statistic,
        "degrees_of_freedom": count,
        "p_value_bound": float(chdtrc(count, statistic)),
    }
