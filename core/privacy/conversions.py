"""Conversions from one currency of privacy to another. The caller that reports a figure rounds it to its safe side.

* zCDP and Renyi to (epsilon, delta): Canonne, Kamath and Steinke (2020), proposition 12 and corollary 13. A mechanism
  of Renyi price r at order a is (epsilon, delta)-DP for

      epsilon = r + log(1 - 1/a) - log(delta a)/(a - 1).

* mu-GDP and (epsilon, delta): Dong, Roth and Su (2022), corollary 1; Balle and Wang (2018), theorem 8. Exact.
* A mu-GDP mechanism is (mu^2/2)-zCDP. The converse is false: randomised response with epsilon = 1 is .462-zCDP
  and not mu-GDP for any mu below 1.232, so nothing here turns a rho that is not a Gaussian's into a mu.

All costs are in nats.
"""

from decimal import Decimal, localcontext
from math import exp, expm1, inf, log, log1p, nextafter, sqrt
from typing import Final

from scipy.special import log_ndtr, ndtr, ndtri

_DIGITS: Final = 60


def rho_of_mu(mu: float) -> float:
    """Return the zCDP price of a mu-GDP mechanism, mu^2/2."""
    return mu * mu / 2


def mu_of_rho(rho: float) -> float:
    """Return the mu of Gaussian mechanisms that together cost rho in zCDP, sqrt(2 rho). Of nothing else."""
    return sqrt(2 * rho)


def textbook_epsilon(rho: float, delta: float) -> float:
    """Return rho + 2 sqrt(rho log(1/delta)), Bun and Steinke's (2016) conversion; looser than `cks_epsilon`."""
    return rho + 2 * sqrt(-rho * log(delta))


def renyi_epsilon(nats: float, order: float, delta: float) -> float:
    """Return the epsilon at `delta` of a mechanism that costs `nats` at a Renyi order above 1."""
    return max(0.0, nats + log1p(-1 / order) - log(delta * order) / (order - 1))


def renyi_budget(epsilon: Decimal, delta: Decimal, order: int) -> Decimal:
    """Return B, the nats at `order` that may be spent and still be (epsilon, delta)-DP: `renyi_epsilon` inverted.

    It is computed to 60 digits and may be negative: then the order is of no use.
    """
    with localcontext(prec=_DIGITS):
        return epsilon - (1 - 1 / Decimal(order)).ln() + (delta * order).ln() / (order - 1)


def cks_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon at `delta` of a rho-zCDP mechanism, by the best real order.

    The best order a solves rho (a - 1)^2 = log(1/(delta a)). The result is valid at every order, also where Newton's
    steps end early.
    """
    if rho == 0:
        return 0.0
    order = 1 + sqrt(-log(delta) / rho)
    for _ in range(64):
        slope = 2 * rho * (order - 1) + 1 / order
        step = (rho * (order - 1) ** 2 + log(delta * order)) / slope
        # A step must not reach order 1, where the conversion divides by zero.
        order = max(order - step, 1 + (order - 1) / 4)
        if abs(step) <= 1e-12 * (order - 1):
            break
    return renyi_epsilon(rho * order, order, delta)


def gdp_delta(epsilon: float, mu: float) -> float:
    """Return the exact delta(epsilon) of a mu-GDP mechanism; both arguments at least 0.

    delta = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2), by logarithms so that neither a large
    epsilon nor a tiny delta overflows or cancels.
    """
    return exp(_log_gdp_delta(epsilon, mu))


def _log_gdp_delta(epsilon: float, mu: float) -> float:
    """Return log delta(epsilon), minus infinity for mu = 0."""
    if mu == 0:
        return -inf
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    # Rounding may put the second above the first, which would give a delta below zero.
    ratio = -expm1(min(second - first, 0.0))
    return first + log(ratio) if ratio > 0 else -inf


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at least 0 with delta(epsilon) at most `delta`, for a mu-GDP mechanism.

    Newton's steps on log delta(epsilon), which is concave (a convolution of log-concave functions), from above the
    root: they stay above it, which is the safe side.
    """
    target = log(delta)
    if _log_gdp_delta(0.0, mu) <= target:
        return 0.0
    epsilon = textbook_epsilon(rho_of_mu(mu), delta)
    for _ in range(100):
        value = _log_gdp_delta(epsilon, mu)
        slope = exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)) - value)
        step = (target - value) / slope
        if step <= 1e-15 * epsilon:
            break
        epsilon -= step
    widen = nextafter(epsilon, inf) * (1 + 1e-15) - epsilon
    while _log_gdp_delta(epsilon, mu) > target:  # rounding may leave a tiny root far below: double, not step by step
        epsilon, widen = epsilon + widen, 2 * widen
    return epsilon


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with delta(epsilon; mu) at most `delta`, from below, for delta in (0, 1)."""
    target, margin = log(delta), -log(delta)
    # Inverts `textbook_epsilon`, which is looser, so it starts below; a plain difference of roots would cancel.
    low = sqrt(2.0) * epsilon / (sqrt(margin + epsilon) + sqrt(margin))
    high = max(2 * low, 1e-12)
    while _log_gdp_delta(epsilon, high) <= target:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):  # no float lies between them
            break
        low, high = (middle, high) if _log_gdp_delta(epsilon, middle) <= target else (low, middle)
    return low


def group_mu(mu: float, size: int) -> float:
    """Return the mu that holds for groups of `size` units, size * mu (Dong, Roth and Su 2022, theorem 2.14)."""
    return size * mu


def group_rho(rho: float, size: int) -> float:
    """Return the rho that holds for groups of `size` units, size^2 rho (Bun and Steinke 2016, proposition 1.9)."""
    return size * size * rho


def group_epsilon(epsilon: float, delta: float) -> tuple[float, float]:
    """Return the (epsilon, delta) that holds for groups of two units: (2 epsilon, (1 + e^epsilon) delta).

    A delta of 1 or more promises nothing and is returned as 1.
    """
    return 2 * epsilon, min(1.0, delta * (1 + exp(min(epsilon, 700.0))))  # exp overflows from 710 on


def gdp_advantage(mu: float) -> float:
    """Return the most by which an attacker's true positive rate can pass the false one, 2 Phi(mu/2) - 1."""
    return float(2 * ndtr(mu / 2) - 1)


def gdp_power(mu: float, false_positives: float) -> float:
    """Return the most true positives at a rate of false ones: 1 - Phi(Phi^-1(1 - rate) - mu)."""
    return float(ndtr(mu + ndtri(false_positives)))


def dp_advantage(epsilon: float, delta: float) -> float:
    """Return `gdp_advantage` for what is known only to be (epsilon, delta)-DP (Kairouz, Oh and Viswanath 2015)."""
    shrink = exp(-epsilon)
    return (1 - shrink + 2 * delta * shrink) / (1 + shrink)


def dp_power(epsilon: float, delta: float, false_positives: float) -> float:
    """Return `gdp_power` for what is known only to be (epsilon, delta)-DP (Wasserman and Zhou 2010)."""
    raised = exp(min(epsilon, 700.0)) * false_positives + delta
    return min(1.0, raised, 1 - exp(-epsilon) * (1 - delta - false_positives))
