"""Where a bound of one positive figure is lowest."""

from collections.abc import Callable
from math import exp, log, sqrt
from typing import Final

GRID: Final = 40
GOLDEN: Final = (sqrt(5) - 1) / 2


def lowest(bound_at: Callable[[float], float], low: float, high: float) -> float:
    """Return where a bound is lowest: the best of a geometric grid, and from there by golden sections."""
    if high <= low:
        return high
    stride = log(high / low) / GRID
    # The end itself, for exp could round it past what the caller allows.
    points = [low * exp(stride * place) for place in range(GRID)] + [high]
    values = [bound_at(point) for point in points]
    best = min(range(GRID + 1), key=lambda place: values[place])
    left, right = log(points[max(best - 1, 0)]), log(points[min(best + 1, GRID)])
    # 0.618^30 leaves less than a millionth of the bracket.
    for _ in range(30):
        first, second = right - GOLDEN * (right - left), left + GOLDEN * (right - left)
        if bound_at(exp(first)) <= bound_at(exp(second)):
            right = second
        else:
            left = first
    found = min(max(exp((left + right) / 2), low), high)
    # Golden sections assume one valley; with several, or infinite bounds, the grid may be better.
    return found if bound_at(found) < values[best] else points[best]
