"""Start, early stop and end of every optimizer, decided from public or noised values alone."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from core.base.errors import Diverged
from core.inference.eigen import inside
from core.inference.estimate import Estimate
from core.inference.parameters import above_floor
from core.oracle import Answer, Oracle, Status
from core.privacy.arithmetic import AnyStart

if TYPE_CHECKING:
    from core.privacy.facts import Facts

S = TypeVar("S", bound=NamedTuple)


def starting_point(start: AnyStart, oracle: Oracle) -> Tensor:
    """Return the start, float64, shape (p,); an unknown scale starts where the facts say.

    A random one is drawn anew at each call, so it is called for an initial state and nowhere else (see `resumed`).
    """
    facts = oracle.facts
    if isinstance(start, str):
        point = torch.zeros(facts.dimension, dtype=torch.float64)
        if start == "random":
            point = oracle.randomness.normal(facts.dimension)
            if facts.scale is not None:
                # The last entry is the scale: coefficients alone are drawn, at distance 1.
                point[-1] = 0.0
            point /= torch.linalg.vector_norm(point)
        if facts.scale is not None:
            point[-1] = facts.scale.start
        return point
    point = torch.tensor(start, dtype=torch.float64)
    assert point.shape == (facts.dimension,), "a start has one number for each parameter; the planner checks it"
    return point


def resumed(start: AnyStart | None, oracle: Oracle, initial: S) -> S:
    """Return the state to continue from: the one that an earlier attempt kept, or the initial one.

    Draws are not repeated after a loss. Their result is therefore kept before the first question, so that answers which
    a later attempt recalls belong to this start.

    Args:
        start: as the plan says.
        oracle: of the run.
        initial: a method's state before the first question: a named tuple of tensors, or of more such tuples.
    """
    given = tensors_of(initial)
    state = oracle.resume(given)
    # `resume` returns the very same object where no attempt kept a state.
    if start == "random" and state is given:
        oracle.keep(state, 0)
    return _with_tensors(initial, state)


def tensors_of(state: NamedTuple) -> dict[str, Tensor]:
    """Return the tensors of a state by name, those of named tuples within it beside its own; None is left out."""
    found: dict[str, Tensor] = {}
    for name, value in state._asdict().items():
        if isinstance(value, Tensor):
            found[name] = value
        elif value is not None:
            found |= tensors_of(value)
    return found


def _with_tensors(state: S, kept: Mapping[str, Tensor]) -> S:
    """Return a state of the same shape with other tensors."""
    return state._replace(
        **{
            name: _with_tensors(cast("NamedTuple", value), kept) if isinstance(value, tuple) else kept.get(name)
            for name, value in state._asdict().items()
        }
    )


def settled(slope: Answer, multiple: float) -> Tensor:
    """Say in which replicates a noised gradient is at most `multiple` times the noise on one of its coordinates.

    Free of charge: the answer has been paid for, and its noise is that of the budgeted steps.
    """
    still: Tensor = torch.linalg.vector_norm(slope.value, dim=-1) <= multiple * slope.scale
    return still


def arrived(facts: "Facts", moved: Tensor, radius: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the iterate within the public bounds, whether it had left the radius, and whether its scale was raised."""
    theta, left = inside(moved, radius)
    theta, raised = above_floor(facts, theta)
    return theta, left, raised


def ended(estimate: Estimate, status: Status) -> tuple[Estimate, Status]:
    """Return both; an iterate that has left the public radius is a failure, replicates only report theirs.

    Raises:
        Diverged: the last step of a single run left the radius.
    """
    if estimate.left.ndim == 0 and bool(estimate.left):
        raise Diverged("The iterates left the public radius: raise the privacy target, or take smaller steps.")
    return estimate, status
