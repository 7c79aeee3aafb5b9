"""Linear combinations of coefficients and tests of them (Wald): two-sided, one-sided, of equivalence, and joint.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5; equivalence by two one-sided tests (Schuirmann, 1987). All in
declared units, all post-processing of one release.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from sys import float_info
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc, chdtri, ndtr, ndtri

from core.base.errors import FieldError, Invalid
from core.inference.released import REPEATED_FROM, Array, Released, declared
from core.inference.results import asked, bands, caveats, need_covariance, need_sound, std_errors

Alternative = Literal["two_sided", "greater", "less"]
SMALLEST_WEIGHT = 1e-100
"""Times a standard error of the smallest units allowed it is still a float."""


def contrast(
    released: Released,
    weights: Mapping[str, float],
    levels: Sequence[float] = (),
    *,
    value: float = 0.0,
    alternative: Alternative = "two_sided",
    margin: float | None = None,
    scheffe: bool = False,
) -> dict[str, Any]:
    """Return a linear combination of coefficients with its standard error, interval, z and p value.

    Args:
        released: a model's row.
        weights: a number for each coefficient named, in declared units; the others count 0.
        levels: of the interval; none: the job's own.
        value: value that it is tested against.
        alternative: `greater` and `less` ask whether it lies on that side of `value`.
        margin: also test whether it lies within so much of `value`, by two one-sided tests.
        scheffe: the interval holds together with those of all other combinations at once.

    Raises:
        Invalid: an unknown name, weights that are all 0, or no intervals were asked for.
    """
    need_covariance(released)
    row = restriction(released, weights, "/weights")
    need_sound(released, np.flatnonzero(row).tolist(), "/weights")
    estimate = float(row @ np.asarray(declared(released).estimate))
    scaled, size, correlation = _scaled(released, row[None])
    # Rounding may make a variance of zero negative.
    error = float(size[0]) * sqrt(max(float(scaled[0] @ correlation @ scaled[0]), 0.0))
    z = (estimate - value) / error if error > 0 else None
    reaches = [
        (level, sqrt(chdtri(len(row), 1 - level)) if scheffe else float(ndtri((1 + level) / 2)))
        for level in asked(released, levels)
    ]
    return {
        "weights": dict(weights),
        "estimate": estimate,
        "std_error": error,
        "value": value,
        "alternative": alternative,
        "z": z,
        "p_value": None if z is None else p_value(z, alternative),
        "method": "scheffe" if scheffe else "pointwise",
        **bands(estimate, error, reaches),
        "equivalence": None if margin is None else _equivalence(estimate - value, error, margin),
        **caveats(released),
    }


def p_value(z: float, alternative: Alternative = "two_sided") -> float:
    """Return how likely a standard normal is to lie as far out as z, on the side or sides asked for."""
    if alternative == "two_sided":
        return float(2 * ndtr(-abs(z)))
    return float(ndtr(-z if alternative == "greater" else z))


def _equivalence(distance: float, error: float, margin: float) -> dict[str, float]:
    """Return the p value of `not within the margin`: the larger one of both one-sided tests."""
    above, below = p_value((distance + margin) / error, "greater"), p_value((distance - margin) / error, "less")
    return {"margin": margin, "p_value": max(above, below)}


def wald_test(
    released: Released, hypotheses: Sequence[Mapping[str, float]], values: Sequence[float] | None = None
) -> dict[str, Any]:
    """Test linear hypotheses jointly: each a combination of coefficients, equal to its value (0 by default).

    A hypothesis that follows from others adds nothing and is left out. Everything is reckoned on the scale of standard
    errors, so units do not matter.

    Returns:
        The chi-squared statistic, its degrees of freedom (the rank of the hypotheses) and the p value.

    Raises:
        Invalid: an unknown name, a hypothesis without coefficients or against others, no hypothesis, values of
            another length, or no intervals were asked for.
    """
    need_covariance(released)
    if not hypotheses:
        raise Invalid("There is nothing to test.", FieldError("/hypotheses", "give at least one hypothesis"))
    values = [0.0] * len(hypotheses) if values is None else values
    if len(values) != len(hypotheses):
        raise Invalid(
            "Give one value for each hypothesis.", FieldError("/values", f"must have {len(hypotheses)} numbers")
        )
    rows = np.array([restriction(released, one, f"/hypotheses/{index}") for index, one in enumerate(hypotheses)])
    need_sound(released, np.flatnonzero(rows.any(0)).tolist(), "/hypotheses")
    scaled, sizes, correlation = _scaled(released, rows)
    distance = (rows @ np.asarray(declared(released).estimate) - np.asarray(values)) / sizes
    kept = _independent(scaled, np.asarray(values) / sizes)
    statistic = quadratic(distance[kept], scaled[kept] @ correlation @ scaled[kept].T, "/hypotheses")
    return {
        "statistic": statistic,
        "degrees_of_freedom": len(kept),
        "p_value": float(chdtrc(len(kept), statistic)),
        "redundant": [index for index in range(len(rows)) if index not in kept],
        **caveats(released),
    }


def _scaled(released: Released, rows: Array) -> tuple[Array, Array, Array]:
    """Return rows on the scale of standard errors and of length 1, their sizes, and the correlation, shape (p, p).

    Row by row, size times row gives the combination of errors; columns may have units of any magnitude.
    """
    errors = np.array(std_errors(released), dtype=float)
    weighted = rows * errors
    largest = np.abs(weighted).max(1, keepdims=True)
    # Divided by the largest first: squares of tiny or huge numbers leave the floats.
    lengths = np.linalg.norm(weighted / largest, axis=1, keepdims=True)
    correlation = np.asarray(declared(released).covariance) / errors / errors[:, None]
    return weighted / largest / lengths, (largest * lengths)[:, 0], correlation


def quadratic(distance: Array, covariance: Array, pointer: str) -> float:
    """Return distance' covariance^-1 distance, shapes (k,) and (k, k).

    Raises:
        Invalid: the covariance is singular.
    """
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise Invalid(
            "The released covariance says nothing about some of these together.",
            FieldError(pointer, "name fewer coefficients at once"),
        ) from None
    return squared_length(np.linalg.solve(factor, distance))


def squared_length(vector: Array) -> float:
    """Return |vector|^2, the largest float where it would be more."""
    largest = float(np.abs(vector).max())
    return min(largest * largest * float(np.sum((vector / largest) ** 2)), float_info.max) if largest else 0.0


def restriction(released: Released, weights: Mapping[str, float], pointer: str) -> Array:
    """Return a row of weights in the order of the coefficients, shape (p,).

    Raises:
        Invalid: an unknown name, a weight that floats lose, or weights that are all 0.
    """
    row = np.zeros(len(released.names))
    for name, weight in weights.items():
        if 0 < abs(weight) < SMALLEST_WEIGHT:
            raise Invalid(
                f"The weight of {name!r} is next to nothing.",
                FieldError(f"{pointer}/{escape(name)}", f"must be 0, or at least {SMALLEST_WEIGHT:g} in size"),
            )
        row[place(released, name, f"{pointer}/{escape(name)}")] = weight
    if not row.any():
        raise Invalid(
            "This combines no coefficients.", FieldError(pointer, "give at least one coefficient a weight but 0")
        )
    return row


def place(released: Released, name: str, pointer: str) -> int:
    """Return a coefficient's place.

    Raises:
        Invalid: there is no such coefficient.
    """
    if name not in released.names:
        raise Invalid(
            f"There is no coefficient {name!r}.", FieldError(pointer, f"must be one of {', '.join(released.names)}")
        )
    return released.names.index(name)


def escape(name: str) -> str:
    """Return a name as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _independent(rows: Array, values: Array) -> list[int]:
    """Return the places of rows, of length 1, that do not follow from those before them.

    Raises:
        Invalid: a row follows from others, its value does not.
    """
    kept: list[int] = []
    for index, row in enumerate(rows):
        mix = np.linalg.lstsq(rows[kept].T, row, rcond=None)[0] if kept else np.zeros(0)
        if np.linalg.norm(row - mix @ rows[kept]) > REPEATED_FROM:
            kept.append(index)
        elif abs(values[index] - mix @ values[kept]) > REPEATED_FROM * (1 + np.abs(values).max()):
            raise Invalid(
                f"Hypothesis {index} contradicts those before it: the same combination cannot have two values.",
                FieldError(f"/hypotheses/{index}", "leave it out, or give it the value that follows from the others"),
            )
    return kept
