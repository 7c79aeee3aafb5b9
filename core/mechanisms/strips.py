"""Discrete Gaussians by strips: a cell of K integers by its table, and a place in the cell by uniform bits.

The law gives x the probability rho(x) / Z, rho(x) = exp(-x^2 / (2 sigma^2)). Let K = 2^k, s = sigma / K, and
a_i = rho(K i) = exp(-i^2 / (2 s^2)) for i = 0, ..., J, with J >= 14 s. Integers of size below K J lie in the cells
[K i, K (i + 1)) and [-K (i + 1), -K i), i < J, where a_{i+1} <= rho(x) <= a_i.

Draw. One of 2 J + 1 events occurs: each cell, with mass a_{i+1}, or the *test*, with mass 2 (1 - a_J), which is the sum
of all a_i - a_{i+1} over both sides. A cell's x is uniform in it. The test draws a cell with mass a_i - a_{i+1}, a
uniform x in it, and a uniform V in [0, 1), and takes x if V (a_i - a_{i+1}) < rho(x) - a_{i+1}; else all begins anew.
In one attempt x has mass a_{i+1} / K from its cell's event and (rho(x) - a_{i+1}) / K from the test, so rho(x) / K in
all. Given that the attempt ends, the law is the discrete Gaussian on -K J..K J - 1, for any K. It is rejection from a
staircase above the density, as in the ziggurat of Marsaglia and Tsang (2000) and its discrete form by Buchmann,
Cabarcas, Goepfert, Huelsing and Weiden (2013). Most of the staircase is accepted without evaluating the density. About
K / (sigma sqrt(2 pi)) of the attempts begin anew, one in 160 at most where s >= 64.

With K = 1 and the masses rho(x) themselves there is no test: that is the table of a narrow law.

Distance of one draw from the ideal law, in total variation:

* tail: with Z >= sigma sqrt(2 pi) (Poisson summation) the mass beyond 14 sigma is at most 2 (1 - Phi(14)) < exp(-98);
  the integer K J, which has a place on one side alone, has less;
* masses: the tables' are within 2^-200 of the true ones, and each table rounds its cumulative probabilities down to
  multiples of 2^-128 (`CumulativeTable.rounded`). One attempt's outcome is thus off by e, the two tables' roundings
  together, in total variation. Given that it ends, which has a probability P above 1/2, it is off by 2 e / P at most.
  That is e / P, and e / P once more, since either law is divided by a probability of its own. That is below 4 e.

Which x is taken. The condition V (a_i - a_{i+1}) < rho(x) - a_{i+1} is V < expm1(d) / expm1(D). With f = (K (i + 1) -
|x|) / K, in [0, 1], d = f (2 (i + 1) - f) / (2 s^2) and D = (2 i + 1) / (2 s^2), both at most .23 where s >= 64. The
series of expm1 is cut after 14 terms, all of them positive, and evaluated in double precision: it errs by less than
2^-46 relatively, with all that comes before it. V is compared by its first 53 bits with a margin of 2^-40. A nearer
case is decided by all its 64 bits, and more, in decimal numbers (once in 2^38 tests). No float thus decides a
comparison that its error could change.
"""

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import ceil, exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.mechanisms.cumulative import GUIDE_BITS, PROBABILITY_BITS, WORD_BITS, CumulativeTable, Words

TAIL: Final = 14
"""A table ends at this many parameters."""

WORKING_BITS: Final = 256
TERMS: Final = 14
"""Of the series of expm1."""

MARGIN: Final = 2.0**-40
_DIGITS: Final = 90
_FRACTION: Final = 2.0**-53
_INVERSES: Final = [1.0 / n for n in range(TERMS, 1, -1)]


def weights(parameter: float, last: int) -> list[int]:
    """Return exp(-x^2 / (2 s^2)) for x = 0..last in fixed point, each within 2^-200.

    From q = exp(-1/(2 s^2)): the weight grows by q^(2x+1), which grows by q^2. Every product loses less than
    2^-255, and the losses of x <= 14 * 1024 steps add up to less than x^2 2^-254 < 2^-226.
    """
    context = Context(prec=120)
    exponent = context.divide(Decimal(-1), context.multiply(Decimal(2), context.power(Decimal(parameter), 2)))
    ratio = int(context.multiply(context.exp(exponent), Decimal(1 << WORKING_BITS)))
    squared = (ratio * ratio) >> WORKING_BITS
    found = [1 << WORKING_BITS]
    for _ in range(last):
        found.append((found[-1] * ratio) >> WORKING_BITS)
        ratio = (ratio * squared) >> WORKING_BITS
    return found


def expm1(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp(d) - 1 for d in [0, 0.25], within 2^-47 relatively; the native one takes the same steps."""
    series = np.ones_like(d)
    for inverse in _INVERSES:
        series = 1.0 + (d * inverse) * series
    return d * series


class Strips:
    """A law of cells and places in them.

    Args:
        parameter: sigma, in [0.5, 2^50].
        fine: k; 0: a narrow law, whose table has each integer.

    Attributes:
        table: of the events: cells in ascending order, and the test behind them.
        tests: of the test's cells; None: there is no test.
        fine: k.
        below: number of cells below zero.
        ends: expm1(D) by cell.
    """

    __slots__ = ("below", "ends", "fine", "parameter", "table", "tests", "twice")

    def __init__(self, parameter: float, fine: int) -> None:
        self.parameter, self.fine = parameter, fine
        narrow = parameter / 2**fine  # exact
        self.below: int = ceil(TAIL * narrow)
        height = weights(narrow, self.below)
        self.tests: CumulativeTable | None = None
        self.ends: NDArray[np.float64] = np.empty(0)
        self.twice = 2 * narrow * narrow
        if fine == 0:
            self.table = CumulativeTable(height[:0:-1] + height)
            return
        steps = [one - other for one, other in pairwise(height)]
        self.table = CumulativeTable([*height[:0:-1], *height[1:], 2 * (height[0] - height[-1])])
        self.tests = CumulativeTable([*steps[::-1], *steps])
        side = expm1((2 * np.arange(self.below) + 1) / self.twice)
        self.ends = np.concatenate([side[::-1], side])

    @property
    def test(self) -> int:
        """The number of the event that is the test, or of none."""
        return 2 * self.below if self.tests else 2 * self.below + 1

    @property
    def tested(self) -> float:
        """About how probable the test is."""
        return 0.0 if self.tests is None else 1 - float(self.table.high[-1]) / 2.0**WORD_BITS

    def distance(self) -> float:
        """Return a bound on the distance of one draw from the ideal law; see this module's text."""
        tail = exp(-(TAIL**2) / 2)
        if self.tests is None:
            return tail + (2 * self.below + 1) * 2.0**-PROBABILITY_BITS
        return 2 * tail + 4 * (self.table.rounded + self.tests.rounded) + 2.0**-180

    def settled(self, leading: NDArray[np.uint16], places: NDArray[np.int64], more: Words) -> NDArray[np.int64]:
        """Return draws by the first bits of their events and their places in a cell, shape (count,).

        Words for more are taken in this order: one for each undecided event, then two for each test (its cell's and
        V's). Then each failed test takes one more word, whose first 16 bits are for a new event and whose last ones for
        a new place; and so on with those.

        Args:
            leading: shape (count,).
            places: below K, shape (count,).
            more: words.
        """
        events = self.table.events(leading, more)
        drawn = ((events - self.below) << self.fine) + places
        (tested,) = (events == self.test).nonzero()
        places = places[tested]
        while tested.size:
            assert self.tests is not None, "a narrow law has no test"
            cells, heights = more.take(2 * tested.size).reshape(-1, 2).T
            cell = self.tests.passed(cells, more)
            drawn[tested] = ((cell - self.below) << self.fine) + places
            failed = ~self._taken(cell, places, heights, more)
            tested, fresh = tested[failed], more.take(int(failed.sum()))
            events = self.table.events((fresh >> np.uint64(WORD_BITS - GUIDE_BITS)).astype(np.uint16), more)
            places = self.place(fresh)
            drawn[tested] = ((events - self.below) << self.fine) + places
            again = events == self.test
            tested, places = tested[again], places[again]
        return drawn

    def place(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return a place in a cell by the last k bits of words."""
        return (words & np.uint64(2**self.fine - 1)).astype(np.int64)

    def _left(self, cell: NDArray[np.int64], places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return i + 1, and K (i + 1) - |x|."""
        side = cell - self.below
        return np.where(side < 0, -side, side + 1), np.where(side < 0, places, 2**self.fine - places)

    def _taken(
        self, cell: NDArray[np.int64], places: NDArray[np.int64], heights: NDArray[np.uint64], more: Words
    ) -> NDArray[np.bool_]:
        """Say which tests end."""
        outer, left = self._left(cell, places)
        f = left * 2.0**-self.fine
        reached = expm1(f * (2.0 * outer - f) / self.twice)
        # 53 bits: a float holds them exactly.
        v, end = (heights >> np.uint64(11)) * _FRACTION, self.ends[cell]
        taken = (v + _FRACTION) * end * (1.0 + MARGIN) <= reached
        near = ~taken & (v * end * (1.0 - MARGIN) < reached)
        for position in near.nonzero()[0]:
            taken[position] = self._decided(int(outer[position]), int(left[position]), int(heights[position]), more)
        return taken

    def _decided(self, outer: int, left: int, height: int, more: Words) -> bool:
        """Say the same of one test, by as many bits as it takes."""
        if left in {0, 2**self.fine}:  # the only quotients that are rational: 0 and 1
            return left > 0
        with localcontext() as context:
            context.prec = _DIGITS
            f, twice = Decimal(left) / 2**self.fine, 2 * (Decimal(self.parameter) / 2**self.fine) ** 2
            reached, end = (one.exp() - 1 for one in (f * (2 * outer - f) / twice, Decimal(2 * outer - 1) / twice))
            ratio, error, bits = Fraction(reached / end), Fraction(1, 10 ** (_DIGITS - 10)), WORD_BITS
            while True:
                if Fraction(height + 1, 2**bits) <= ratio - error:
                    return True
                if Fraction(height, 2**bits) >= ratio + error:
                    return False
                height, bits = height << WORD_BITS | int(more.take(1)[0]), bits + WORD_BITS
