"""How every optimizer starts, stops early and ends; all of it decided from public or noised values."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.catalogue.planning_rules import Start
from core.errors import Diverged
from core.inference.estimate import Estimate
from core.oracle import Answer, Status

if TYPE_CHECKING:
    from core.privacy.facts import Facts


def starting_point(start: Start, facts: "Facts") -> Tensor:
    """Return the public start, float64, shape (features,)."""
    if start == "zeros":
        return torch.zeros(facts.dimension, dtype=torch.float64)
    point = torch.tensor(start, dtype=torch.float64)
    assert point.shape == (facts.dimension,), "a start has one number for each parameter; the planner checks it"
    return point


def settled(slope: Answer, multiple: float) -> bool:
    """Say whether a noised gradient is at most `multiple` times the noise on one of its coordinates.

    Free of charge: the answer has been paid for. A truth value, so it refuses to be asked of many lanes at once.
    """
    return bool(torch.linalg.vector_norm(slope.value, dim=-1) <= multiple * slope.scale)


def ended(estimate: Estimate, status: Status) -> tuple[Estimate, Status]:
    """Return both; an iterate that has left the public radius is a failure, lanes only report theirs.

    Raises:
        Diverged: the last step of a single run left the radius.
    """
    if estimate.left.ndim == 0 and bool(estimate.left):
        raise Diverged("The iterates left the public radius: raise the privacy target, or take smaller steps.")
    return estimate, status
