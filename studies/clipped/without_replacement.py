"""Prices of Gaussian answers about uniform batches of fixed size, drawn anew for each answer, under replace_one.

No oracle draws such batches; the study of clips from public records (V13) takes their noise, as its reference did. It
is arithmetic in floats with a margin, not exact.

Source: Wang, Balle and Kasiviswanathan (2019), theorem 27, at integer orders. Its even differences are the moments
E[(p(x)/q(x) - 1)^l] of two normal densities a sensitivity apart, which are integrated here: differences of powers
would cancel to noise where the multiplier is large. Renyi prices become epsilon by the improved conversion.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from core.privacy.conversions import renyi_epsilon

LEAST_SIGMA: Final = 0.05
"""Below it no order that is tried here would promise much."""
_MARGIN: Final = 1 + 1e-9
_STEP: Final = 0.5  # of the trapezoidal rule, in standard deviations: exact to 1e-16 for such analytic integrands
_SURE: Final = 30.0  # from where log(e^y - 1) is y
_FINENESS: Final = 512
"""Multipliers are powers of 2^(1/512), 0.14 % apart: prices are then worked out once for many."""


def multiplier(fraction: float, times: int, epsilon: float, delta: float) -> float | None:
    """Return the smallest noise on a sum of clipped gradients over the clip, rounded up; None: none that is tried.

    Args:
        fraction: of the units in a batch, in (0, 1].
        times: the answers.
        epsilon: positive.
        delta: in (0, 1).
    """
    low, high = -4 * _FINENESS, 20 * _FINENESS

    def enough(index: int) -> bool:
        return fixed_batch_epsilon(fraction, 2.0 ** (index / _FINENESS), times, delta) <= epsilon

    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return float(2 * 2.0 ** (low / _FINENESS))  # a sum changes by twice the clip


def fixed_batch_epsilon(fraction: float, sigma: float, times: int, delta: float) -> float:
    """Return an epsilon at `delta` of so many answers, each about a batch of its own.

    Args:
        fraction: of the units in a batch, in (0, 1].
        sigma: noise multiplier relative to the TRUE sensitivity, under replace_one twice the clip for a sum: half of
            what it is relative to the clip.
        times: the answers.
        delta: of the promise.
    """
    orders, prices = renyi_prices(fraction, max(sigma, LEAST_SIGMA))
    if sigma < LEAST_SIGMA:
        return float("inf")
    return min(
        renyi_epsilon(times * price * _MARGIN, int(order), delta) for order, price in zip(orders, prices, strict=True)
    )


@lru_cache(maxsize=4096)
def renyi_prices(fraction: float, sigma: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return integer orders and the price of one answer at each, in nats; see `fixed_batch_epsilon`."""
    orders = np.array(_orders(sigma))
    if fraction == 1:
        return tuple(orders.tolist()), tuple((orders / (2 * sigma**2)).tolist())
    drawn = np.arange(2, orders[-1] + 1)
    log_choose = (
        gammaln(orders[:, None] + 1.0) - gammaln(drawn + 1.0) - gammaln(np.maximum(orders[:, None] - drawn, 0) + 1.0)
    )
    terms = np.where(drawn <= orders[:, None], log_choose + drawn * np.log(fraction) + _log_factors(sigma), -np.inf)
    moments = np.logaddexp(0.0, logsumexp(terms, axis=1))
    return tuple(orders.tolist()), tuple((moments / (orders - 1)).tolist())


def _orders(sigma: float) -> tuple[int, ...]:
    """Return the orders worth trying: loud answers are dear at high ones."""
    fine = tuple(range(2, 33))
    if sigma < 0.5:  # noqa: PLR2004 - see above
        return fine
    return (*fine, 36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256)


@lru_cache(maxsize=4096)
def _log_factors(sigma: float) -> NDArray[np.float64]:
    """Return the logarithm of what multiplies C(order, j) fraction^j, for j = 2, 3, ... to the largest order."""
    most = _orders(sigma)[-1]
    even = np.arange(2, most + 3, 2)
    places = np.arange(-np.sqrt(most) - 10, most / sigma + np.sqrt(most) + 10, _STEP) + _STEP / 3
    ratio = places / sigma - 1 / (2 * sigma**2)
    with np.errstate(divide="ignore"):  # where the densities are equal to the last bit, nothing is added
        excess = np.where(ratio > _SURE, ratio, np.log(np.abs(np.expm1(np.minimum(ratio, _SURE)))))
    density = -(places**2) / 2 + np.log(_STEP) - np.log(2 * np.pi) / 2
    differences = logsumexp(even[:, None] * excess + density, axis=1)
    drawn = np.arange(2, most + 1)
    below, above = differences[drawn // 2 - 1], differences[(drawn + 1) // 2 - 1]
    plain = np.log(2) + drawn * (drawn - 1) / (2 * sigma**2)
    found: NDArray[np.float64] = np.minimum(np.log(4) + (below + above) / 2, plain)
    return found
