"""Products of numbers less their learned centres: a public linear map of encoded rows, multiplied out.

A product (a - m_a)(b - m_b) is a b less m_b a, less m_a b, plus m_a m_b. With all lower terms in the model these are
features too, and the map loses nothing: `docs/decisions/0055-centre-products-where-the-model-has-all-lower-terms.md`.
"""

from itertools import combinations
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.privacy.facts import Ranges

Array = NDArray[np.float64]
MOST_CARRIED: Final = 0.5
"""Part of a coefficient's error that another column's coefficient makes."""
MOST_LOST: Final = 0.02
"""Part of a variance that rounding may take or add."""


def recentring(ranges: Ranges, centre: Array) -> Array:
    """Return the map from encoded rows to rows whose products are of numbers less their centres, shape (p, p).

    Args:
        ranges: of the features; indicators stay 0 and 1 in products.
        centre: of each feature, in encoded units, shape (p,); those of products are not looked at.
    """
    found = np.eye(len(ranges.kinds))
    features = {frozenset(own or (place,)): place for place, own in enumerate(ranges.factors)}
    features[frozenset()] = 0  # the intercept
    for place in ranges.places("product"):
        factors = ranges.factors[place]
        numbers = [one for one in factors if ranges.kinds[one] != "two"]
        for size in range(1, len(numbers) + 1):
            for moved in combinations(numbers, size):
                kept, times = frozenset(factors).difference(moved), prod(-float(centre[one]) for one in moved)
                at = features[kept]
                if len(kept) == 1 and ranges.kinds[at] == "two":  # its feature has two other numbers for 0 and 1
                    times /= ranges.upper[at] - ranges.lower[at]
                    found[place, 0] -= times * ranges.lower[at]
                found[place, at] += times
    return found


def to_origin(ranges: Ranges) -> Array:
    """Return the map from encoded rows to rows in which all numbers are less those of a record of zeros, shape (p, p).

    Coefficients of such rows are those of declared units but for their scale.
    """
    origin = np.array(ranges.origin)
    found = recentring(ranges, origin)
    mains = [place for place, own in enumerate(ranges.factors) if place and not own]
    found[mains, 0] -= origin[mains]
    return found


def at_centres(coefficients: Array, moved: Array | None) -> Array:
    """Return coefficients of rows in which products are centred anew, of encoded ones, shape (p,) or (p, k).

    Args:
        coefficients: or a map to them.
        moved: `recentring`; None: no product is centred anew.
    """
    if moved is None:
        return coefficients
    return np.asarray(np.linalg.solve(moved.T, coefficients), dtype=np.float64)


def at_origin(back: Array, ranges: Ranges, moved: Array | None = None) -> Array:
    """Return the map to encoded coefficients with the zeros of declared units, which are those that are shown.

    Where a column's declared range is wide, the middle of it may be far from all records, and so the encoded intercept.

    Args:
        back: from re-encoded to encoded coefficients, shape (p, p).
        ranges: of the features.
        moved: as for `at_centres`; then a slope depends on the zeros of the columns that its own is multiplied with.
    """
    if moved is None:
        return np.vstack((np.array(ranges.origin) @ back, back[1:])) if ranges.origin else back
    return np.asarray(np.linalg.solve(to_origin(ranges).T, back), dtype=np.float64)


def recentred(ranges: Ranges, moved: Array | None) -> Ranges:
    """Return ranges whose record of zeros is a row in which products are centred anew."""
    if moved is None:
        return ranges
    return ranges.model_copy(update={"origin": tuple((moved @ np.array(ranges.origin)).tolist())})


def rounded_off(back: Array, covariance: Array, ranges: Ranges, moved: Array | None) -> NDArray[np.bool_]:
    """Say of which shown coefficients double precision loses the variance on its way through encoded units, shape (p,).

    Where a product's columns all lie far from the middle of wide ranges, it is a small difference of large numbers.

    Args:
        back: from re-encoded to encoded coefficients, shape (p, k).
        covariance: of the re-encoded ones, shape (k, k).
        ranges: of the features.
        moved: as for `at_centres`.
    """
    if moved is None:
        return np.zeros(len(back), dtype=np.bool_)
    shown, matrix = at_origin(back, ranges, moved), np.abs(at_origin(np.eye(len(back)), ranges, moved))
    variance = np.einsum("ij,jk,ik->i", shown, covariance, shown)
    error = np.einsum("ij,jk,ik->i", matrix, np.abs(back @ covariance @ back.T), matrix) * np.finfo(np.float64).eps
    found: NDArray[np.bool_] = error > MOST_LOST * variance
    return found


def carried(
    mark: NDArray[np.bool_], back: Array, covariance: Array, ranges: Ranges, moved: Array | None
) -> NDArray[np.bool_]:
    """Return marks with a product's passed on to every shown coefficient of whose error it makes more than half.

    Args:
        mark: of each coefficient of rows in which products are centred anew, shape (p,).
        back: from re-encoded to encoded coefficients, shape (p, k).
        covariance: of the re-encoded ones, shape (k, k).
        ranges: of the features.
        moved: as for `at_centres`.
    """
    products = [place for place in ranges.places("product") if mark[place]]
    if moved is None or not products:
        return mark
    centred, shown = at_centres(back, moved), at_origin(back, ranges, moved)
    own, all_of_it = (np.sqrt(np.einsum("ij,jk,ik->i", one, covariance, one)) for one in (centred, shown))
    times = np.abs(at_origin(moved.T, ranges, moved))[:, products]
    found: NDArray[np.bool_] = mark | (times * own[products] > MOST_CARRIED * all_of_it[:, None]).any(1)
    return found
