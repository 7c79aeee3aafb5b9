"""What a plan of clipped descent has to say about itself: what it takes for granted, and what it does not promise."""

from collections.abc import Iterator
from typing import Final

from core.methods.clipped.one_pass.guarantee import Guarantee
from core.methods.clipped.one_pass.theory import says_something_from
from public_planner.clipped.advice import WELL_BELOW, PublicTail
from public_planner.clipped.geometry import Found, LossGeometry
from public_planner.clipped.request import ClippedPlanRequest

NEAR_TAIL: Final = 0.1 + 1e-12
_RARE: Final = 1e-3


def warnings_of(
    request: ClippedPlanRequest,
    geometry: LossGeometry,
    best: Found,
    found: Guarantee | None,
    tail: PublicTail | None = None,
) -> tuple[str, ...]:
    """Return what the reader of a plan must be told; `tail` is that of the public records, if there are any."""
    warnings = [*_of_certificate(request, geometry, best, found), *_of_tail(request, best, tail)]
    if request.tail_index is not None and request.tail_index - best.run.alpha <= NEAR_TAIL:
        warnings.append(
            "the moment's order is within 0.1 of the tail index, where moments are very large: for a Pareto tail of "
            "1.55, E|x|^1.5 is 29 times the scale's; compare smaller orders"
        )
    if best.run.clip < geometry.floor * (1 - 1e-12):
        warnings.append(WELL_BELOW)
    if request.scheme == "fixed_batch":
        warnings.append("no method here draws such batches: the plan is shown, and none runs it")
    if request.scheme == "poisson" and request.epsilon is not None and best.cell.fraction < _RARE:
        warnings.append(
            "Renyi prices are poor at so small a sampling rate; a job's own report also has the one by privacy loss"
            " distributions"
        )
    return tuple(warnings)


def _of_tail(request: ClippedPlanRequest, best: Found, tail: PublicTail | None) -> Iterator[str]:
    """Yield what public records say of their own tail."""
    if tail is None or request.proxy is None:
        return
    about = f"{tail.index:.2g} ({tail.least:.2g} to {tail.most:.2g}, by the {tail.largest} longest)"
    if tail.heavy:
        yield (
            f"the public gradients' tail index is about {about}: at 2 or below their variance is infinite, and the few"
            f" longest of {len(request.proxy.gradients)} decide what a clip is estimated to cost. At 1.6, 5000 public"
            " records chose a clip within 1.5 times the least error in 82 to 92 draws of 100, 50,000 in 95 to 98"
        )
    if best.run.alpha > tail.index - NEAR_TAIL:
        yield (
            f"a moment of order {best.run.alpha:g} was declared, and the public gradients' tail index is about {about}:"
            " compare smaller orders"
        )


def _of_certificate(
    request: ClippedPlanRequest, geometry: LossGeometry, best: Found, found: Guarantee | None
) -> Iterator[str]:
    """Yield what is to be said of the certificate."""
    if found is None:
        yield "orders of magnitude, all constants one: nothing is certified, and the step size is a heuristic"
        return
    if request.scheme == "poisson":
        yield (
            "Poisson batches are outside the proof, whose batches have a fixed size: nothing is certified, and `bound`"
            " is what fixed batches would have"
        )
    if found.vacuous:
        yield (
            "the certificate is empty: the untrained start satisfies as much. The step size is safe and of no use;"
            " practical_step_size is a heuristic"
        )
    if request.certificate == "paper":
        yield "the theorem is about the best iterate, and to know it takes the records: what is released is not it"
        if best.run.batch > 1:
            yield "extension (b): the paper is about one sample in each step; larger batches are ours"
        if best.run.clip <= says_something_from(convex=geometry.convex, slope=geometry.scale.slope):
            yield "at such a clip the theorem says nothing, whatever the other figures are"
    elif request.returned == ("random_iterate" if geometry.convex else "average"):
        yield (
            "the certificate is of the average; a uniformly drawn iterate has it in the mean, and 1/p times as much but"
            " for a probability p"
            if geometry.convex
            else "without convexity nothing is certified of the average of iterates; release one drawn uniformly"
        )
    if found.active_cap == "jump":
        yield "the jump cap limits the step size: sigma is negligible; nothing need be raised, lower the clip"


def assumptions_of(request: ClippedPlanRequest) -> tuple[str, ...]:
    """Return what a plan takes for granted; nobody has checked any of it."""
    where = "on the ball of radius 2 R round a minimiser" if request.convex else "on all of space"
    drawn = {
        "one_pass": "records are independent draws of a population, and it is the population's loss that is bounded",
        "poisson": "steps sample the records anew, and it is the records' mean loss that is bounded",
        "fixed_batch": "steps sample the records anew, and it is the records' mean loss that is bounded",
    }[request.scheme]
    start = (
        "the start is at most `distance` from a minimiser"
        if request.convex
        else "the start's loss is at most `start_gap` above the least one"
    )
    return (
        f"the mean loss is {'convex and ' if request.convex else ''}L-smooth {where}",
        "the central moment of a record's gradient is as declared, wherever the iterates go",
        start,
        drawn,
        "each record's whole gradient is clipped before anything is summed, and each step has fresh noise",
        "there is no projection, and no momentum",
        "every figure of the request is public, or was paid for",
    )
