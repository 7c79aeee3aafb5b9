"""Events: draws from private records, as values that are frozen, stored and never redefined.

An event's meaning never changes once it has been written to a ledger; a new mechanism gets a new class. All noise
multipliers are relative to the TRUE sensitivity of the question, under the adjacency of the scope that pays. Events
therefore carry no units and mean the same under both adjacencies.

Each class names the coupling of its proof: the way in which the proof pairs two neighbours' runs.
`tests/privacy/test_couplings.py` tests each coupling once.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, TypeAdapter, model_validator

from core.privacy.facts import Frozen

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NeighbouringRuns(NamedTuple):
    """Two neighbours' runs, set beside one another; x is the unit in which their records differ."""

    equal: str
    """The coins and other values that are equal in both."""
    branches: str
    """The branches of the two runs that are equal, or the distance between them."""


class Coupling(Enum):
    """The couplings of all proofs; a closed set. Stored events do not carry them: each class names its own."""

    SHIFT = NeighbouringRuns(
        equal="the question, the point, which units are read, and every coin but the noise",
        branches="the integer sums are at most the sensitivity apart: noise z there is noise z moved by that here",
    )
    SLOT = NeighbouringRuns(
        equal="the question, the point, everybody else's sampling coins, and the order of the slots",
        branches="x absent: the same slots. x sampled: one slot holds x, or zeros where x is null; the latter equals "
        "the branch where x is absent and padding has that slot, with the same probability. With x in place of zeros "
        "in one slot the sums are at most the sensitivity apart",
    )
    LIKELIHOODS = NeighbouringRuns(
        equal="the question, the points, and every coin but the choice's",
        branches="no score moves by more than its sensitivity: the logarithms of all choices' probabilities move by "
        "numbers whose range is epsilon",
    )
    THRESHOLD = NeighbouringRuns(
        equal="the question, the points, and the noise on all scores before the one that is answered",
        branches="the threshold's noise moved by at most one sensitivity of a score, and the answer's by at most two, "
        "give the same answer: a bijection of integers",
    )
    COVER = NeighbouringRuns(
        equal="everything that is equal under each event drawn in its name",
        branches="a plan, which no oracle draws: Gaussian answers of at most its rho in all, each under its coupling",
    )
    TRANSCRIPT = NeighbouringRuns(
        equal="all earlier answers, so the question and the point too: functions of answers and public randomness",
        branches="the next answer, under its own event's coupling and with fresh coins",
    )
    BATCHES = NeighbouringRuns(
        equal="the order of reading, which no record decides, and every coin",
        branches="x is in one batch at most: all others hold the same records, and their answers are equal; the one "
        "with x is under its own event's coupling",
    )
    BEST = NeighbouringRuns(
        equal="the number of runs that are drawn, their slots, and the settings of each",
        branches="each run is under its own event's coupling, with coins of its own; of the runs that were drawn, one "
        "of the least score is released, whichever slot it had",
    )


class Gaussian(Frozen):
    """One Gaussian answer: noise standard deviation `sigma` times the sensitivity. It is (1/sigma)-GDP."""

    coupling: ClassVar[Coupling] = Coupling.SHIFT

    kind: Literal["gaussian"] = "gaussian"
    sigma: Positive


class Sampled(Frozen):
    """A Gaussian answer about a Poisson sample: each unit is in with probability `numerator / 2**64`."""

    coupling: ClassVar[Coupling] = Coupling.SLOT

    kind: Literal["sampled"] = "sampled"
    numerator: Annotated[int, Field(ge=0, le=2**64)]
    sigma: Positive


class Zcdp(Frozen):
    """A draw of which only rho-zero-concentrated differential privacy is known."""

    coupling: ClassVar[Coupling] = Coupling.COVER

    kind: Literal["zcdp"] = "zcdp"
    rho: Positive


class Pure(Frozen):
    """A draw of which only epsilon-differential privacy is known."""

    coupling: ClassVar[Coupling] = Coupling.THRESHOLD

    kind: Literal["pure"] = "pure"
    epsilon: Positive


class BoundedRange(Frozen):
    """An exponential mechanism of bounded range `epsilon`."""

    coupling: ClassVar[Coupling] = Coupling.LIKELIHOODS

    kind: Literal["bounded_range"] = "bounded_range"
    epsilon: Positive


class Repeated(Frozen):
    """The same event, `times` times over, each chosen after seeing the earlier answers."""

    coupling: ClassVar[Coupling] = Coupling.TRANSCRIPT

    kind: Literal["repeated"] = "repeated"
    event: "Event"
    times: Annotated[int, Field(ge=1)]


class Composed(Frozen):
    """All of these, adaptively; an empty tuple is no event at all."""

    coupling: ClassVar[Coupling] = Coupling.TRANSCRIPT

    kind: Literal["composed"] = "composed"
    events: tuple["Event", ...] = ()


class Disjoint(Frozen):
    """Each of these reads units that no other of them reads: parallel composition, the most expensive one counts."""

    coupling: ClassVar[Coupling] = Coupling.BATCHES

    kind: Literal["disjoint"] = "disjoint"
    events: tuple["Event", ...] = ()


class Selected(Frozen):
    """The best of several runs of one price, whose number is drawn at random: see `core.privacy.selection`.

    The runs are in groups; `means` are their m_l, `slots` their M_l. The release is one run's, with the number of its
    group, or that none was drawn. The number of runs stays secret.
    """

    coupling: ClassVar[Coupling] = Coupling.BEST

    kind: Literal["selected"] = "selected"
    event: "Event"
    means: Annotated[tuple[Positive, ...], Field(min_length=1)]
    slots: Annotated[tuple[Annotated[int, Field(ge=1, le=2**16)], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.means) != len(self.slots):
            raise ValueError("each group has a mean and a number of slots")
        return self


Event = Annotated[
    Gaussian | Sampled | Zcdp | Pure | BoundedRange | Repeated | Composed | Disjoint | Selected,
    Field(discriminator="kind"),
]

# Their fields name a union that did not exist when they were defined.
for _recursive in (Repeated, Composed, Disjoint, Selected):
    _recursive.model_rebuild()

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Parser and writer of stored events. The union is closed, so that stored data can name no other class."""

NOTHING = Composed()
"""No event."""


def compose(drawn: Mapping[Event, int]) -> Event:
    """Return one event for a counted set of adaptive draws; both prices and charges come from it."""
    counted = [(event, times) for event, times in drawn.items() if times]
    parts = tuple(event if times == 1 else Repeated(event=event, times=times) for event, times in counted)
    return parts[0] if len(parts) == 1 else Composed(events=parts)
