"""The least eigenvalue of a symmetric integer matrix, computed in floats, with a proven bound on its error.

A private choice by an eigenvalue has a sensitivity, which must hold for the computed number. The routine that computes
it is not trusted: its result m is checked from above and from below by operations with known errors. A result that
fails a check stops the job. With u = 2^-53, d the dimension, N a public cap on the spectral norm, and t = 8 (d + 4)^2 u
N:

* above. For any v, the least eigenvalue is at most v'Sv/v'v. In floats the quotient errs by at most (sqrt(d) gamma_2d +
  gamma_{d+2}) N (1 + 2^-20) < t/2. (Higham 2002, section 3.1; | |S| |_2 <= |S|_F <= sqrt(d) N.) A computed quotient of
  at most m + t/2 thus shows that it is at most m + t.
* below. Cholesky's factorisation of S - (m - t) I in floats runs to its end. Then that matrix has no eigenvalue below
  -gamma_{d+1}/(1 - gamma_{d+1}) times its trace (Higham 2002, theorem 10.3 and (10.5); Rump 2006), for blocks in any
  order. The trace is at most d (2 N + t), and rounding the diagonal moves an eigenvalue by u (2 N + t). Together that
  is less than t/2, so the eigenvalue is at least m - 3 t/2.

The result m thus errs by at most 3 t/2, and rounding it down to an integer by less than 1 more: `eigenvalue_error`.
Entries are integers below 2^53, so that they are floats exactly. A routine whose result is off by less than 5 (d + 4)^2
u N passes both, and LAPACK's is off by a few d u N.
"""

from math import ceil, floor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.base.errors import ensure
from core.mechanisms.lattice import UNIT_ROUNDOFF

LARGEST_ENTRY: Final = 2.0**53


def least_eigenvalue(matrix: NDArray[np.int64], cap: float) -> int:
    """Return the least eigenvalue, rounded down, within `eigenvalue_error` of it.

    Args:
        matrix: symmetric, shape (d, d).
        cap: N, public: no eigenvalue is larger in size.

    Raises:
        PrivacyInvariantError: the computed value could not be shown to be that close.
    """
    ensure(cap < LARGEST_ENTRY, "entries are floats exactly")
    ensure(int(np.abs(matrix).max()) <= cap, "no entry is above the cap on the norm")
    ensure(bool((matrix == matrix.T).all()), "the matrix is symmetric")
    exact = matrix.astype(np.float64)
    values, vectors = np.linalg.eigh(exact)
    least, vector, tolerance = float(values[0]), vectors[:, 0], _tolerance(len(matrix), cap)
    quotient = float(vector @ (exact @ vector)) / float(vector @ vector)
    ensure(quotient <= least + tolerance / 2, "no eigenvalue is below all quotients")
    shifted = exact - (least - tolerance) * np.eye(len(matrix))
    ensure(_has_root(shifted), "no eigenvalue is below the least one")
    return floor(least)


def eigenvalue_error(dimension: int, cap: float) -> int:
    """Return a bound on the difference of a least eigenvalue and the integer computed for it, as an integer."""
    return ceil(1.5 * _tolerance(dimension, cap) * (1 + 2.0**-20)) + 1


def _tolerance(dimension: int, cap: float) -> float:
    """Return t."""
    return 8 * (dimension + 4) ** 2 * UNIT_ROUNDOFF * cap


def _has_root(matrix: NDArray[np.float64]) -> bool:
    """Say whether Cholesky's factorisation runs to its end."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True
