"""What was drawn from private records, as values: frozen, stored, never redefined.

An event's meaning never changes once it has been written to a ledger; a new mechanism gets a new class. All noise
multipliers are relative to the TRUE sensitivity of what was asked, under the adjacency of the scope that pays, so
events carry no units and mean the same under both adjacencies.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from core.privacy.facts import Frozen

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Gaussian(Frozen):
    """One Gaussian answer: noise standard deviation `sigma` times the sensitivity. It is (1/sigma)-GDP."""

    kind: Literal["gaussian"] = "gaussian"
    sigma: Positive


class Sampled(Frozen):
    """A Gaussian answer about a Poisson sample: each unit is in with probability `numerator / 2**64`."""

    kind: Literal["sampled"] = "sampled"
    numerator: Annotated[int, Field(ge=0, le=2**64)]
    sigma: Positive


class Zcdp(Frozen):
    """Anything known only to be rho-zero-concentrated differentially private."""

    kind: Literal["zcdp"] = "zcdp"
    rho: Positive


class Pure(Frozen):
    """Anything known only to be epsilon-differentially private."""

    kind: Literal["pure"] = "pure"
    epsilon: Positive


class BoundedRange(Frozen):
    """An exponential mechanism of bounded range `epsilon`."""

    kind: Literal["bounded_range"] = "bounded_range"
    epsilon: Positive


class Repeated(Frozen):
    """The same event, `times` times over, each chosen after seeing the earlier answers."""

    kind: Literal["repeated"] = "repeated"
    event: "Event"
    times: Annotated[int, Field(ge=1)]


class Composed(Frozen):
    """All of these, adaptively; an empty tuple is no event at all."""

    kind: Literal["composed"] = "composed"
    events: tuple["Event", ...] = ()


class Disjoint(Frozen):
    """Each of these reads units that no other of them reads: parallel composition, the most expensive one counts."""

    kind: Literal["disjoint"] = "disjoint"
    events: tuple["Event", ...] = ()


Event = Annotated[
    Gaussian | Sampled | Zcdp | Pure | BoundedRange | Repeated | Composed | Disjoint, Field(discriminator="kind")
]

for _recursive in (Repeated, Composed, Disjoint):
    _recursive.model_rebuild()

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads and writes stored events; the union is closed, so stored data can name nothing else."""

NOTHING = Composed()
"""No event."""


def compose(drawn: Mapping[Event, int]) -> Event:
    """Return one event for a counted set of adaptive draws; prices and charges are both made here."""
    counted = [(event, times) for event, times in drawn.items() if times]
    parts = tuple(event if times == 1 else Repeated(event=event, times=times) for event, times in counted)
    return parts[0] if len(parts) == 1 else Composed(events=parts)
