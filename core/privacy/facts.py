"""Public facts about a set of private records: all that a price, a plan or a sensitivity may depend on."""

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

PART_UNITS: Final = 2**13
"""Sums are made of parts: floats add up at most this many consecutive units, and from there on integers do.

Where a part begins and ends depends on a unit's number alone, so parts that processes share out among them add up to
the same integers as those of one process.
"""


def parts_in(units: int) -> int:
    """Return the number of parts in a sum over so many units."""
    return -(-units // PART_UNITS)


class Frozen(BaseModel):
    """A public value: immutable, compared by content, closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Adjacency(StrEnum):
    """When two sets of records are neighbours. Fixed per scope; n is public under both."""

    ZERO_OUT = "zero_out"
    """One unit is replaced by one that contributes nothing."""

    REPLACE_ONE = "replace_one"
    """One unit changes into any other."""


class Facts(Frozen):
    """What is public about the records behind a door.

    The bounds are promises about each unit's contribution, kept by the door (it clips to them):

    * ``gradient_bound`` (B): l2 norm of a unit's gradient of the loss;
    * ``curvature_bound`` (Bbar): squared l2 norm of the factor a of a unit's Hessian a a^T; None where the loss has
      no such bound, and then curvature questions are refused.

    The outer product of a unit's score has the factor norm squared B**2.
    """

    units: int = Field(gt=0, description="n, the number of units, null records included")
    dimension: int = Field(gt=0, description="p, the number of parameters")
    adjacency: Adjacency
    gradient_bound: float = Field(gt=0)
    curvature_bound: float | None = Field(default=None, gt=0)
