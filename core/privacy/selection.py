r"""The price of the best of several runs, where their number is drawn at random and kept secret.

There are L groups of runs. In group l the number of runs K_l is drawn from the Poisson law of mean m_l, given that it
is at most M_l. All runs of a group have one law Q_l; each is a mechanism of its own with fresh coins, and its release
holds its score. The run with the least score is released, with the number of its group, and nothing else; where no run
was drawn, that is released. With m = m_1 + ... + m_L, the cost at an order a >= 2 is

    log(p + m exp((a - 1) (e(a) + m d) + a s)) / (a - 1),

where e(a) is the cost of one run, d = min over some integers b of the delta at which cost e(b) is worth log(a/(a - 1)),

    p = 1 / (E_1(m_1) ... E_L(m_L)),            E_l(t) = sum of t^k/k! over k <= M_l,
    s = m_1 r_1 + ... + m_L r_L,                r_l = the last term of sum_{k < M_l} m_l^k/k!, as a part of that sum.

Source: Papernot and Steinke (2022), theorem 6, whose number of runs has no limit, and is one group that always yields
a release or one without a price of its own. The limit, the groups and the release of nothing are proved here.

Proof. Let neighbours have the laws Q_l and Q'_l. Order all releases by score and then by group; equal ones of a group
are exchangeable. Let q_l be the probability under Q_l of a run that is not before y, and u_l = 1 - q_l. Given that
y came from group l, all others must not be before it, so the density of (l, y) is Q_l(y) H_l(q), with

    H_l(q) = f_l'(q_l) prod_{j != l} f_j(q_j),  f_j(q) = E[q^K_j] = E_j(m_j q) / E_j(m_j).

The derivative of log f_j is m_j (1 - g) with g the last term's part of E_j(m_j q); that of log f_j' is likewise with
the sum over k < M_j. Such a part grows with q, and with fewer terms it is larger, so both derivatives lie in
[m_j (1 - r_j), m_j]. A run before y is an event, so its probabilities satisfy u'_j <= a/(a - 1) u_j + d (Canonne,
Kamath and Steinke 2020, proposition 12). Therefore

    a log H_l(q) - (a - 1) log H_l(q')
      <= log H_l(1) - a sum_j m_j (1 - r_j) u_j + (a - 1) sum_j m_j u'_j
      <= log H_l(1) + a s + (a - 1) m d,        and log H_l(1) <= log m_l.

The sum over l and y of (Q_l H_l(q))^a (Q'_l H_l(q'))^(1 - a) is hence at most m exp((a - 1)(e(a) + m d) + a s). Nothing
drawn has probability p under both, and adds p.                                                                    QED
"""

from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal, localcontext
from functools import lru_cache
from math import log, log1p
from typing import Final

CONVERTED: Final = (*range(2, 17), *(eighths * 2**doublings for doublings in range(1, 9) for eighths in range(9, 17)))
"""The integers b at which a run's cost is converted, 2 to 4096."""
MOST_SLOTS: Final = 2**16
"""Largest number of runs in a group."""

_PER_NAT: Final = 30
_DIGITS: Final = 60
_MOST_DIGITS: Final = 960
_NEAR: Final = 1e-6
"""Conversions whose logarithms differ by less are compared in decimals."""


def best_price(price: Callable[[int], int], means: Sequence[float], slots: Sequence[int], order: int) -> int:
    """Return the cost of the best of several runs at an integer order, in units of 1e-30 nats, rounded up.

    Args:
        price: cost of one run at an order, in those units.
        means: m_l of each group, above 0.
        slots: M_l of each group, at least 1.
        order: at least 2.
    """
    own = price(order)
    converted = _nearest(price, order)
    digits = _DIGITS
    while True:
        low, high = _enclosed(own, converted, tuple(means), tuple(slots), order, digits)
        # The release of nothing can lift a price above a whole number by less than any digits show.
        if low == high or digits >= _MOST_DIGITS:
            return high
        digits *= 2


def slots_for(mean: float, room: float) -> int:
    """Return the least number M of runs in a group for which its part of s is at most `room`."""
    slots, term, total = 1, 1.0, 1.0
    while mean * term / total > room:
        term *= mean / slots
        total += term
        slots += 1
        if term > 1e200:  # noqa: PLR2004 - far from overflow; the quotient stays
            term, total = term / 1e200, total / 1e200
    return slots


def run_law(mean: float, slots: int, bits: int) -> tuple[int, ...]:
    """Return P(K <= k) for k = 0, ..., M - 1 in units of 2^-bits, each rounded to the nearest."""
    with localcontext(Context(prec=_DIGITS + bits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        terms = _terms(Decimal(mean), slots)
        total, below, found = sum(terms), Decimal(0), []
        for term in terms[:-1]:
            below += term
            found.append(int((below / total * 2**bits).to_integral_value()))
    return tuple(found)


def _terms(mean: Decimal, slots: int) -> list[Decimal]:
    """Return mean^k/k! for k = 0, ..., M in the current context."""
    terms = [Decimal(1)]
    for count in range(1, slots + 1):
        terms.append(terms[-1] * mean / count)
    return terms


def _nearest(price: Callable[[int], int], order: int) -> tuple[tuple[int, int], ...]:
    """Return the integers b, with the cost there, whose conversion may be the least of all."""
    target, found = -log1p(-1 / order), []
    for b in CONVERTED:
        units = price(b)
        found.append(((b - 1) * (units / 10**_PER_NAT - target) - log(b) + (b - 1) * log1p(-1 / b), b, units))
    least = min(found)[0]
    return tuple((b, units) for value, b, units in found if value <= least + _NEAR * (1 + abs(least)))


@lru_cache(maxsize=1024)
def _group(mean: float, slots: int, digits: int) -> tuple[Decimal, Decimal]:
    """Return E_l(m_l), and m_l r_l."""
    with localcontext(Context(prec=digits + 20, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        *before, last = _terms(Decimal(mean), slots)
        shorter = sum(before, Decimal(0))
        return shorter + last, Decimal(mean) * before[-1] / shorter


def _enclosed(
    own: int,
    converted: Sequence[tuple[int, int]],
    means: tuple[float, ...],
    slots: tuple[int, ...],
    order: int,
    digits: int,
) -> tuple[int, int]:
    """Return both ends of an interval around the cost, rounded up to 1e-30 nats; some 20 digits cover all roundings."""
    with localcontext(Context(prec=digits + 40, Emax=MAX_EMAX, Emin=MIN_EMIN)) as wide:
        groups = [_group(mean, most, digits + 40) for mean, most in zip(means, slots, strict=True)]
        mean, nothing, late = sum(map(Decimal, means), Decimal(0)), Decimal(1), Decimal(0)
        for total, part in groups:
            nothing /= total
            late += part
        delta = min([Decimal(1), *(_delta(b, units, order) for b, units in converted)])
        exponent = (order - 1) * (Decimal(own).scaleb(-_PER_NAT) + mean * delta) + order * late
        price = (nothing + mean * exponent.exp()).ln().scaleb(_PER_NAT) / (order - 1)
        error = (abs(price) + Decimal(10) ** _PER_NAT) * Decimal(10) ** -digits
        wide.prec = digits + 80
        low, high = (int((price + sign * error).to_integral_value(ROUND_CEILING)) for sign in (-1, 1))
    return low, high


def _delta(b: int, units: int, order: int) -> Decimal:
    """Return the delta at which a cost at order b is worth log(a/(a - 1)), in the current context."""
    grown = ((b - 1) * Decimal(units).scaleb(-_PER_NAT)).exp()
    return grown * (Decimal(order - 1) / order) ** (b - 1) * (Decimal(b - 1) / b) ** (b - 1) / b
