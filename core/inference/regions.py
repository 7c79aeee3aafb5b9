"""Where several coefficients may be together: ellipsoids, and intervals that hold at once.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5: all theta with (theta_K - theta)' V^-1 (theta_K - theta) at
most the chi-squared quantile, V the covariance with its correction; for some coefficients the sub-block of V. Intervals
that hold together: Scheffe's are the shadows of that ellipsoid, Bonferroni's and Sidak's count the comparisons (Sidak's
inequality holds for normal estimates however they are correlated). Declared units; post-processing of one release.
"""

from collections.abc import Mapping, Sequence
from math import cos, exp, lgamma, log, pi, sin, sqrt
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc, chdtri, ndtri

from core.base.errors import FieldError, Invalid
from core.inference.hypotheses import escape, place, squared_length
from core.inference.released import REPEATED_FROM, Array, Released, declared
from core.inference.results import (
    LARGEST_EXPONENT,
    asked,
    bands,
    caveats,
    flags_beside,
    need_covariance,
    need_sound,
    pointwise,
    std_errors,
)

Joint = Literal["pointwise", "bonferroni", "sidak", "scheffe"]
CORNERS = 73
"""Of an ellipse's outline, the first one again at the end: one every five degrees."""
MOST_COEFFICIENTS = 500
"""In one ellipsoid; its axes alone are so many numbers squared."""


def reach(method: Joint, level: float, comparisons: int) -> float:
    """Return how many standard errors each of so many intervals reaches to each side."""
    match method:
        case "pointwise":
            return pointwise(level)
        case "bonferroni":
            return float(-ndtri((1 - level) / (2 * comparisons)))
        case "sidak":
            return pointwise(level ** (1 / comparisons))
        case "scheffe":
            return sqrt(float(chdtri(comparisons, 1 - level)))


def intervals(
    released: Released, levels: Sequence[float] = (), method: Joint = "pointwise", names: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return intervals of coefficients in declared units.

    Args:
        released: a model's row.
        levels: none: the job's own.
        method: `pointwise` intervals hold one by one; the others hold all at once, with probability at least the level.
        names: the coefficients that are compared; None: all.

    Raises:
        Invalid: an unknown or repeated name, or the job asked for no intervals.
    """
    need_covariance(released)
    shown, errors, levels = declared(released), std_errors(released), asked(released, levels)
    places = range(len(shown.names)) if names is None else _places(released, names, "#query/coefficient")
    if names is not None:
        need_sound(released, places, "#query/coefficient")
    reaches = [(level, reach(method, level, len(places))) for level in levels]
    return {
        "level": levels[0],
        "levels": list(levels),
        "method": method,
        "comparisons": len(places),
        "standard_errors": reaches[0][1],
        "intervals": [
            {"name": shown.names[at], **bands(shown.estimate[at], errors[at] or 0.0, reaches)}
            if at not in released.withheld
            else {"name": shown.names[at], "interval": None, **flags_beside(released, at)}
            for at in places
        ],
        **caveats(released),
    }


def ellipsoid(
    released: Released, names: Sequence[str], levels: Sequence[float] = (), point: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return the region that holds some coefficients together, at each level.

    Args:
        released: a model's row.
        names: the coefficients, each once.
        levels: none: the job's own.
        point: a value for each of them, in declared units; its p value is that of the Wald test of these values.

    Returns:
        Centre and shape (the covariance of these coefficients), and axes, unit vectors, one a row, the longest first.
        Each level has the radius (in units of the shape), its square, half the axes' lengths, the volume and its
        logarithm, and whether the point is inside. For two coefficients it also has the outline as a closed polyline.

    Raises:
        Invalid: an unknown, repeated or missing name, or the job asked for no intervals.
    """
    need_covariance(released)
    places = _places(released, names)
    need_sound(released, places, "/coefficients")
    shown = declared(released)
    centre = np.asarray(shown.estimate)[places]
    shape = np.asarray(shown.covariance)[np.ix_(places, places)]
    errors = np.sqrt(np.diag(shape))
    factor = errors[:, None] * _factor(shape / errors / errors[:, None])
    axes, lengths, _ = np.linalg.svd(factor)  # of the factor, not the shape: small axes keep their digits
    statistic = None if point is None else _statistic(names, point, centre, factor)
    regions = [_region(level, centre, factor, lengths, statistic) for level in asked(released, levels)]
    return {
        "coefficients": list(names),
        "centre": centre.tolist(),
        "shape": shape.tolist(),
        "degrees_of_freedom": len(names),
        "axes": axes.T.tolist(),
        "regions": regions,
        "point": None
        if statistic is None or point is None
        else {"at": dict(point), "statistic": statistic, "p_value": float(chdtrc(len(names), statistic))},
        **caveats(released),
    }


def _region(level: float, centre: Array, factor: Array, lengths: Array, statistic: float | None) -> dict[str, Any]:
    """Return the part of an ellipsoid that depends on its level."""
    count = len(centre)
    limit = float(chdtri(count, 1 - level))
    radius = sqrt(limit)
    # By logarithms: the volume of many coefficients may be no float.
    size = count / 2 * log(pi) - lgamma(count / 2 + 1) + count * log(radius) + float(np.log(np.diag(factor)).sum())
    return {
        "level": level,
        "radius": radius,
        "radius_squared": limit,
        "half_axes": (radius * lengths).tolist(),
        "volume": exp(size) if size < LARGEST_EXPONENT else None,
        "log_volume": size,
        "inside": None if statistic is None else statistic <= limit,
        "outline": _outline(centre, radius * factor) if count == 2 else None,  # noqa: PLR2004 - a plane has two
    }


def _outline(centre: Array, factor: Array) -> list[list[float]]:
    """Return the image of a circle, a closed polyline of CORNERS points."""
    angles = [2 * pi * corner / (CORNERS - 1) for corner in range(CORNERS - 1)]
    found: list[list[float]] = [(centre + factor @ np.array([cos(at), sin(at)])).tolist() for at in angles]
    return [*found, found[0]]


def _statistic(names: Sequence[str], point: Mapping[str, float], centre: Array, factor: Array) -> float:
    """Return the squared distance of a point from the centre, in units of the shape."""
    wrong = [FieldError(f"/point/{escape(name)}", "is missing") for name in names if name not in point]
    wrong += [FieldError(f"/point/{escape(name)}", "is not in the region") for name in point if name not in names]
    if wrong:
        raise Invalid("A point has one value for each coefficient of the region.", *wrong)
    away = np.array([point[name] for name in names]) - centre
    scale = np.linalg.norm(factor, axis=1)
    # Rows of length 1: declared units may differ by any magnitude.
    return squared_length(np.linalg.solve(factor / scale[:, None], away / scale))


def _places(released: Released, names: Sequence[str], pointer: str = "/coefficients") -> list[int]:
    """Return the places of coefficients, each named once; the pointer says where they were named."""
    if not 1 <= len(names) <= MOST_COEFFICIENTS:
        detail = f"name at least one and at most {MOST_COEFFICIENTS}"
        raise Invalid("Name the coefficients to see together.", FieldError(pointer, detail))
    found = [place(released, name, f"{pointer}/{index}") for index, name in enumerate(names)]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise Invalid(
                f"The coefficient {name!r} is named twice.",
                FieldError(f"{pointer}/{index}", "name each coefficient once"),
            )
    return found


def _factor(correlation: Array) -> Array:
    """Return the lower triangular root of a correlation matrix.

    Raises:
        Invalid: it is singular.
    """
    try:
        factor = np.linalg.cholesky(correlation).astype(np.float64)
    except np.linalg.LinAlgError:
        factor = np.zeros(correlation.shape)
    if factor.diagonal().min() < REPEATED_FROM:
        raise Invalid(
            "The released covariance says nothing about some of these together.",
            FieldError("/coefficients", "name fewer coefficients at once"),
        )
    return factor
