"""Noise with heavy tails of which everything is known: moments, tails, and where clipped descent settles in it.

A law has a tail index a: its moments of order below a are finite, all others are not. A theorem that asks for a moment
of order alpha therefore holds for alpha strictly below a only, and close below it the moment is finite and useless.

Fixed points. With gradients grad f(x) + xi, xi of mean zero, descent on gradients clipped at lam moves no more where
grad f(x) = u with E clip(u + xi, lam) = 0. Laws symmetric about zero have u = 0: they show nothing of what clipping
does. A law whose upper tail is the long one has u > 0, whatever f is, as long as f has such a slope.

Source: Pareto's and stable laws as in Samorodnitsky and Taqqu (1994); the fixed point's equation is ours.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, lgamma, log, pi, sqrt
from typing import Protocol

from scipy.integrate import quad

CLOSE = 0.1
"""An order so close below the tail index has a moment that is finite and says little."""
_HALVINGS = 200


class HeavyTail(Protocol):
    """A law of mean zero.

    Attributes:
        tail: a, the index; moments of order a and above are infinite.
        scale: s, a factor on all of it.
    """

    @property
    def tail(self) -> float:
        """Return a."""

    @property
    def scale(self) -> float:
        """Return s."""

    def moment(self, order: float) -> float:
        """Return E |xi|^order for an order above 0; infinite from the tail index on."""

    def fixed_point(self, clip: float) -> float:
        """Return u >= 0, the size of the mean gradient at which descent clipped at `clip` comes to rest."""


@dataclass(frozen=True)
class IsotropicPareto:
    """s V U^(-1/a), V uniform on the unit sphere of any dimension and U on (0, 1]: symmetric about zero."""

    tail: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

    def moment(self, order: float) -> float:
        """Return E |xi|^order = s^order a/(a - order)."""
        return inf if order >= self.tail else float(self.scale**order) * self.tail / (self.tail - order)

    def fixed_point(self, clip: float) -> float:  # noqa: ARG002 - the same at every clip
        """Return 0, by symmetry."""
        return 0.0


@dataclass(frozen=True)
class SymmetricStable:
    """One number, s times a standard symmetric stable law of index a in (1, 2): characteristic function exp(-|t|^a)."""

    tail: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check(self)
        assert self.tail < 2, "at index 2 the law is normal, and no tail is heavy"  # noqa: PLR2004 - as it says

    def moment(self, order: float) -> float:
        """Return E |xi|^order = (2 s)^order Gamma((1 + order)/2) Gamma(1 - order/a) / (sqrt(pi) Gamma(1 - order/2))."""
        if order >= self.tail:
            return inf
        logarithm = lgamma((1 + order) / 2) + lgamma(1 - order / self.tail) - lgamma(1 - order / 2)
        return float((2 * self.scale) ** order) * exp(logarithm) / sqrt(pi)

    def fixed_point(self, clip: float) -> float:  # noqa: ARG002 - the same at every clip
        """Return 0, by symmetry."""
        return 0.0


@dataclass(frozen=True)
class SkewedPareto:
    """One number, s (U^(-1/a) - a/(a - 1)) with U uniform on (0, 1]: of mean zero, its upper tail alone heavy.

    It is at least -s/(a - 1), and P(xi > x) = (x/s + m)^(-a) above that, m = a/(a - 1).
    """

    tail: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def mean(self) -> float:
        """m, of U^(-1/a)."""
        return self.tail / (self.tail - 1)

    def moment(self, order: float) -> float:
        """Return E |xi|^order.

        With y = U^(-1/a) = m/w the part above the mean is a m^(order - a) B(a - order, order + 1), B Euler's beta
        function. The part below it, with y = m v, is a m^(order - a) times the integral of (1 - v)^order v^(-a - 1)
        over v from 1/m to 1.
        """
        a, m = self.tail, self.mean
        if order >= a:
            return inf
        above = exp(lgamma(a - order) + lgamma(order + 1) - lgamma(a + 1))
        below = float(quad(lambda v: (1 - v) ** order * v ** (-a - 1), 1 / m, 1)[0])
        return float(self.scale**order * a * m ** (order - a)) * (above + below)

    def mean_clipped(self, shift: float, clip: float) -> float:
        """Return E clip(shift + xi, clip)."""
        low, high = self._ends(shift, clip)
        if high <= 1:
            return clip
        falls = float(low[0] ** (1 - self.tail) - high ** (1 - self.tail))
        return low[1] + self.scale * falls / (self.tail - 1)

    def fixed_point(self, clip: float) -> float:
        """Return u with E clip(u + xi, clip) = 0, by bisection.

        It is above `clip` where that is small. While the lower tail is not clipped
        u = s^a (clip - u + s m)^(1 - a)/(a - 1), which falls as clip^(1 - a).
        """
        low, high = 0.0, clip + self.scale / (self.tail - 1)  # where all is clipped from above
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.mean_clipped(middle, clip) < 0 else (low, middle)
        return (low + high) / 2

    def unclipped(self, shift: float, clip: float) -> float:
        """Return P(|shift + xi| <= clip)."""
        (low, _), high = self._ends(shift, clip)
        return float(low**-self.tail - max(high, 1.0) ** -self.tail)

    def variance_clipped(self, shift: float, clip: float) -> float:
        """Return the variance of clip(shift + xi, clip)."""
        mean = self.mean_clipped(shift, clip)
        return self._expected(lambda value: (min(max(value, -clip), clip) - mean) ** 2, shift, clip)

    def mean_factor(self, shift: float, clip: float) -> float:
        """Return E min(1, clip/|shift + xi|), what clipping leaves of a coordinate without noise."""
        return self._expected(lambda value: min(1.0, clip / abs(value)) if value else 1.0, shift, clip)

    def _ends(self, shift: float, clip: float) -> tuple[tuple[float, float], float]:
        """Return y where shift + xi passes -clip, with the value there, and y where it passes clip; y = U^(-1/a)."""
        first = shift - self.scale / (self.tail - 1)
        low = (1.0, first) if first >= -clip else ((-clip - shift) / self.scale + self.mean, -clip)
        return low, (clip - shift) / self.scale + self.mean

    def _expected(self, of: "_Function", shift: float, clip: float) -> float:
        """Return E of(shift + xi), by quadrature over U, cut where a tail is clipped."""
        (low, _), high = self._ends(shift, clip)
        cuts = [0.0, *sorted({max(high, 1.0) ** -self.tail, low**-self.tail, 1.0})]

        def at(u: float) -> float:
            return of(shift + self.scale * (u ** (-1 / self.tail) - self.mean))

        return float(sum(quad(at, one, other, limit=400)[0] for one, other in pairwise(cuts)))


class _Function(Protocol):
    def __call__(self, value: float) -> float:
        """Return a number."""


def root_moment(law: HeavyTail, order: float) -> float:
    """Return sigma = (E |xi|^order)^(1/order), what a theorem calls the noise; infinite from the tail index on."""
    moment = law.moment(order)
    return inf if moment == inf else exp(log(moment) / order)


def close_to_tail(order: float, tail: float) -> bool:
    """Say whether a moment of this order is infinite, or so close to it that it says little."""
    return order > tail - CLOSE


def _check(law: HeavyTail) -> None:
    assert law.tail > 1, "a law without a mean is nobody's unbiased gradient"
    assert law.scale > 0, "a scale is positive"
