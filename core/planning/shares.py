"""Division of a job's mu^2 without given numbers: equally, or for the narrowest predicted intervals.

The paper takes equal shares, which starve the two matrices of the sandwich when there are many steps: with K gradients
each answer is worth mu/sqrt(K + 2). Its best split is an open question there. Here the planner compares predicted
widths, public arithmetic, and takes the division with the least mean logarithm.
"""

from collections.abc import Callable
from itertools import product
from math import exp, log
from typing import Final

from core.inference.settings import Shares
from core.methods.registry import AnySpec
from core.privacy.facts import Facts

MATRICES: Final = 2
FIRST_STRIDE, LAST_STRIDE = log(2.0), log(1.2)
LEAST_SHARE: Final = 1e-3


def equal_shares(optimizer: AnySpec, facts: Facts, mu: float) -> tuple[AnySpec, Shares]:
    """Return settings and shares with which every answer is worth the same, mu/sqrt(answers).

    Args:
        optimizer: as asked for; its numbers of steps are filled for the whole of mu.
        facts: public.
        mu: the job's.
    """
    planned = optimizer.plan(facts, mu)
    answers = len(planned.schedule(facts))
    each = 1 / (answers + MATRICES)
    return optimizer.equally(planned), Shares(estimate=1 - MATRICES * each, curvature=each, score=each)


def best_shares(predicted: Callable[[Shares], float], first: Shares) -> tuple[float, Shares]:
    """Return the least predicted figure and the division of mu^2 that has it, by a pattern search around `first`.

    Args:
        predicted: the value to minimise, such as the mean logarithm of the widths.
        first: where the search begins; the result is never predicted to be worse.
    """
    place = (log(first.curvature / first.estimate), log(first.score / first.estimate))
    best, stride = predicted(first), FIRST_STRIDE
    # A prediction takes long: no place is tried twice.
    seen = {place}
    while stride > LAST_STRIDE:
        around = [(place[0] + stride * one, place[1] + stride * other) for one, other in product((-1, 0, 1), repeat=2)]
        found = [(predicted(_shares(*spot)), spot) for spot in around if spot not in seen and _allowed(_shares(*spot))]
        seen.update(around)
        least = min(found, default=(best, place))
        if least[0] < best:
            best, place = least
        else:
            stride /= 2
    return best, _shares(*place)


def _shares(curvature: float, score: float) -> Shares:
    """Return shares from the logarithms of both matrices' shares relative to the estimate's."""
    total = 1 + exp(curvature) + exp(score)
    parts = exp(curvature) / total, exp(score) / total
    return Shares(estimate=1 - sum(parts), curvature=parts[0], score=parts[1])


def _allowed(shares: Shares) -> bool:
    return min(shares.estimate, shares.curvature, shares.score) >= LEAST_SHARE
