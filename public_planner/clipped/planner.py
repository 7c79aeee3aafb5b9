"""Plans of clipped descent: batch, steps, clip and step size with the least bound, and what one is left to wish for.

`plan(request)` compares every pair of a batch and a number of steps at the noise its privacy takes, every moment that
was declared, and searches the clip of each. With `find` it solves for what was left out first: the smallest number of
records, the smallest epsilon, or the largest sigma with which the bound is at most the target. It is arithmetic on the
request alone: nothing is read, and the same request has the same answer.

Source: theorems and corollaries of Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint), as the modules
that are called cite them. The search, and the refined certificates that it prefers, are ours.
"""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from math import inf, sqrt
from typing import Final

from core.base.errors import FieldError, Invalid
from core.privacy.amounts import format_figure
from public_planner.clipped.geometry import Found, LossGeometry, Moment
from public_planner.clipped.plans import ClippedPlan, describe
from public_planner.clipped.request import EPSILONS, MOST_UNITS, Cell, ClippedPlanRequest
from public_planner.clipped.schemes import epsilon_spent, grid_below, multiplier

CLOSE: Final = 1.005
"""Searches for what was left out end within this factor."""
LEAST_MULTIPLIER, MOST_MULTIPLIER = 2.0**-4, 2.0**20
LARGEST_SIGMA: Final = 1e6
"""In slopes."""


def plan(request: ClippedPlanRequest) -> ClippedPlan:
    """Return the plan with the least bound.

    Raises:
        Invalid: no plan can be made; a field is named.
        AdjacencyMismatch: no price is known of this scheme under this relation.
        NotOfferedYet: the output has no certificate.
        ValueError, ArithmeticError: figures are too extreme for floats.
    """
    request.refuse()
    geometry = LossGeometry.of(request)
    filled = _filled(request, geometry)
    assert filled.units is not None, "given or found"
    best = _best(_runs(filled, geometry, filled.units))
    if best is None:
        raise _unplannable(filled)
    without = None
    if filled.epsilon is not None:
        cells = ((cell, 0.0) for cell in filled.cells(filled.units))
        without = _best(_searched(geometry, cells, _moments(filled)))
    return describe(request, filled, geometry, best, without)


def _filled(request: ClippedPlanRequest, geometry: LossGeometry) -> ClippedPlanRequest:
    """Return the request with what it looks for filled in."""
    match request.find:
        case None:
            return request
        case "units":
            return request.model_copy(update={"units": _least_units(request, geometry)})
        case "epsilon":
            return request.model_copy(update={"epsilon": _least_epsilon(request, geometry)})
        case "sigma":
            size = _largest_sigma(request, geometry)
            moment = request.moments[0].model_copy(update={"size": size})
            return request.model_copy(update={"moments": [moment]})


def _moments(request: ClippedPlanRequest) -> list[Moment]:
    return [Moment(moment.order, moment.size or 0.0) for moment in request.moments]


def _noised(request: ClippedPlanRequest, units: int) -> Iterator[tuple[Cell, float]]:
    """Yield every cell with its multiplier; without those that no noise makes private."""
    for cell in request.cells(units):
        if request.epsilon is None:
            yield cell, 0.0
            continue
        assert request.delta is not None, "refused before"
        noise = multiplier(
            request.scheme,
            request.relation,
            fraction=cell.fraction,
            times=cell.steps,
            epsilon=float(request.epsilon),
            delta=float(request.delta),
        )
        if noise is not None:
            yield cell, noise


def _searched(geometry: LossGeometry, cells: Iterable[tuple[Cell, float]], moments: list[Moment]) -> Iterator[Found]:
    """Yield the best run of each cell with each moment."""
    for cell, noise in cells:
        for moment in moments:
            yield geometry.best(cell, moment, noise)


def _runs(request: ClippedPlanRequest, geometry: LossGeometry, units: int) -> Iterator[Found]:
    return _searched(geometry, _noised(request, units), _moments(request))


def _best(runs: Iterable[Found]) -> Found | None:
    """Return the run with the least bound, the first one of equals; None: nothing is said of any."""
    best = min(runs, key=lambda found: found.bound, default=None)
    return None if best is None or best.bound == inf else best


def _least_units(request: ClippedPlanRequest, geometry: LossGeometry) -> int:
    """Return about the least n whose plan meets the target."""

    def good(units: float) -> bool:
        return _meets(request, _runs(request, geometry, round(units)))

    return round(_edge(good, float(MOST_UNITS), 1.0, "units", f"up to {MOST_UNITS}"))


def _largest_sigma(request: ClippedPlanRequest, geometry: LossGeometry) -> float:
    """Return about the largest sigma whose plan meets the target."""
    assert request.units is not None, "only one thing is to be found"
    cells = list(_noised(request, request.units))
    order = request.moments[0].order

    def good(size: float) -> bool:
        return _meets(request, _searched(geometry, cells, [Moment(order, size)]))

    if good(LARGEST_SIGMA * geometry.scale.slope):
        return LARGEST_SIGMA * geometry.scale.slope
    least = geometry.scale.slope / 1e12
    return _edge(good, least, LARGEST_SIGMA * geometry.scale.slope, "sigma", "above zero")


def _least_epsilon(request: ClippedPlanRequest, geometry: LossGeometry) -> Decimal:
    """Return about the least epsilon whose plan meets the target.

    For each cell the largest multiplier is found first, for bounds are quicker to work out than prices; then one price
    of it tells the epsilon.
    """
    assert request.units is not None, "only one thing is to be found"
    assert request.delta is not None, "refused before"
    moments, least = _moments(request), inf
    for cell in request.cells(request.units):

        def good(noise: float, cell: Cell = cell) -> bool:
            return _meets(request, _searched(geometry, [(cell, noise)], moments))

        if not good(LEAST_MULTIPLIER):
            continue
        largest = MOST_MULTIPLIER
        if not good(largest):
            largest = grid_below(_last_good(good, LEAST_MULTIPLIER, largest), request.relation)
        spent = epsilon_spent(
            request.scheme,
            request.relation,
            multiplier=largest,
            fraction=cell.fraction,
            times=cell.steps,
            delta=float(request.delta),
        )
        least = min(least, spent)
    lowest, highest = EPSILONS
    if least > highest:
        raise _unreachable("epsilon", f"up to {highest}")
    return max(Decimal(format_figure(least, "up", digits=6)), lowest)


def _meets(request: ClippedPlanRequest, runs: Iterable[Found]) -> bool:
    """Return whether some run's bound is at most the target."""
    assert request.target is not None, "comes with what is to be found"
    return any(found.bound <= request.target for found in runs)


def _edge(good: Callable[[float], bool], first: float, last: float, name: str, reach: str) -> float:
    """Return about the last good figure on the way from a good one to one that is not.

    Raises:
        Invalid: the first is not good.
    """
    if not good(first):
        raise _unreachable(name, reach)
    return first if first == last else _last_good(good, first, last)


def _last_good(good: Callable[[float], bool], first: float, last: float) -> float:
    """Return a good figure within CLOSE of one that is not, by halving the logarithm from a good one to another."""
    while max(first / last, last / first) > CLOSE:
        middle = sqrt(first * last)
        first, last = (middle, last) if good(middle) else (first, middle)
    return first


def _unreachable(name: str, reach: str) -> Invalid:
    """Return the refusal of a target that nothing reaches."""
    return Invalid(
        f"No {name} {reach} brings the bound down to the target.",
        FieldError("/target", "raise it, or relax another figure: more steps, another certificate, less dimension"),
    )


def _unplannable(request: ClippedPlanRequest) -> Invalid:
    """Return the refusal of a request whose every choice is empty."""
    if request.clips is not None:
        return Invalid(
            "Nothing is certified with any of these clips.",
            FieldError("/clips", "give one of at least four times sqrt(smoothness start_gap), or leave them out"),
        )
    name = "batches" if request.batches is not None else "batch_fractions"
    return Invalid(
        "No batch here has a record, or a noise that makes it private.",
        FieldError(f"/{name}", "give larger ones, or fewer steps"),
    )
