"""What a plan of clipped descent is asked for: public figures of a problem, a privacy target, what may be varied."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from core.base.errors import AdjacencyMismatch, FieldError, Invalid, NotOfferedYet
from core.privacy.amounts import PositiveFigure
from core.privacy.facts import Frozen
from public_planner.clipped.advice import Proxy
from public_planner.clipped.schemes import RELATIONS, Relation, Scheme

LARGEST: Final = 1e30
SMALLEST: Final = 1e-30
MOST_UNITS: Final = 10**12
MOST_SEARCHES: Final = 96
"""Combinations of a batch, a number of steps and a moment, each with a search for the clip: a plan takes a second."""
MOST_SEARCHES_TO_FIND: Final = 32
"""Where something is looked for, and all of them are searched again and again."""
EPSILONS: Final = (Decimal("1e-3"), Decimal(100))
LEAST_DELTA: Final = Decimal("1e-15")
FRACTIONS: Final = (0.001, 0.005, 0.02)
STEPS: Final = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
PASS_FRACTIONS: Final = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)

Figure = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]
Certificate = Literal["refined", "paper", "order"]
Output = Literal["average", "random_iterate", "last"]
Hole = Literal["units", "epsilon", "sigma"]


class PlannedMoment(Frozen):
    """E |gradient of a record - mean gradient|^order is at most size^order, wherever the iterates may go."""

    order: Annotated[float, Field(gt=1, le=2)] = Field(description="alpha; below the gradients' tail index")
    size: Annotated[float, Field(ge=0, le=LARGEST)] | None = Field(
        default=None, description="sigma; null only where it is to be found"
    )


class Cell(NamedTuple):
    """One choice of batch and steps; `fraction` of the records is what a step is priced for."""

    batch: int
    steps: int
    fraction: float


class ClippedPlanRequest(Frozen):
    """A run of clipped descent to plan: every figure public, nothing read."""

    kind: Literal["clipped_sgd"] = "clipped_sgd"
    problem: Literal["convex", "nonconvex"]
    units: Annotated[int, Field(ge=1, le=MOST_UNITS)] | None = Field(
        default=None, description="n; null only where it is to be found"
    )
    dimension: Annotated[int, Field(ge=1, le=10**12)] = Field(description="d, of the parameters")
    smoothness: Figure = Field(description="L of the mean loss, over all parameters")
    distance: Figure | None = Field(default=None, description="R, from the start to a minimiser at most; convex")
    start_gap: Figure | None = Field(default=None, description="Delta, of the start above the least loss; nonconvex")
    moments: list[PlannedMoment] = Field(
        min_length=1, max_length=8, description="one or several, each of them true; the plan takes what is best"
    )
    tail_index: Annotated[float, Field(gt=1, le=LARGEST)] | None = Field(
        default=None, description="of the gradients, where known: moments of its order or more are infinite"
    )
    beta: Annotated[float, Field(ge=1e-15, lt=1)] = Field(default=0.05, description="probability that the bound fails")
    epsilon: PositiveFigure | None = Field(default=None, description="null: without privacy, unless it is to be found")
    delta: PositiveFigure | None = Field(default=None, description="needed with privacy")
    scheme: Scheme = Field(
        default="one_pass",
        description="one_pass: disjoint batches, each record once. poisson. fixed_batch: drawn anew, shown and not run",
    )
    adjacency: Relation | None = Field(default=None, description="null: the first of zero_out, replace_one that fits")
    batches: list[Annotated[int, Field(ge=1, le=MOST_UNITS)]] | None = Field(
        default=None, min_length=1, max_length=16, description="sizes to compare; null: parts of the units"
    )
    batch_fractions: list[Annotated[float, Field(ge=1e-9, le=1)]] | None = Field(
        default=None, min_length=1, max_length=16, description="the same in parts of the units, instead"
    )
    steps: list[Annotated[int, Field(ge=1, le=10**9)]] | None = Field(
        default=None, min_length=1, max_length=16, description="numbers of steps to compare; one_pass: n over the batch"
    )
    clips: list[Figure] | None = Field(
        default=None, min_length=1, max_length=64, description="to choose among; null: searched from the least useful"
    )
    certificate: Certificate = Field(
        default="refined",
        description="refined: ours, of the average. paper: its theorems, of the best iterate. order: no certificate",
    )
    output: Output | None = Field(default=None, description="null: the average where convex, else a random iterate")
    find: Hole | None = Field(default=None, description="what is left out and looked for, so that the target is met")
    target: Figure | None = Field(default=None, description="what the bound shall be at most; with `find`")
    proxy: Proxy | None = Field(default=None, description="public gradients at a public minimiser, for an estimate")

    @property
    def size(self) -> float:
        """R, or Delta."""
        found = self.distance if self.problem == "convex" else self.start_gap
        assert found is not None, "validated"
        return found

    @property
    def convex(self) -> bool:
        """Which theorem."""
        return self.problem == "convex"

    @property
    def relation(self) -> Relation:
        """The adjacency, or the scheme's first."""
        return self.adjacency or RELATIONS[self.scheme][0]

    @property
    def returned(self) -> Output:
        """What is released."""
        return self.output or ("average" if self.convex else "random_iterate")

    def refuse(self) -> None:
        """Refuse what no plan can be made of, naming the field.

        Raises:
            Invalid: figures contradict each other, are missing, or span too large a grid.
            AdjacencyMismatch: no price is known of this scheme under this relation.
            NotOfferedYet: the output has no certificate.
        """
        for pointer, detail in self._faults():
            raise Invalid(f"This plan cannot be made: {pointer[1:]} {detail}.", FieldError(pointer, detail))
        if self.relation not in RELATIONS[self.scheme]:
            known = " or ".join(RELATIONS[self.scheme])
            raise AdjacencyMismatch(
                f"No price is known of {self.scheme} batches under {self.relation}.",
                FieldError("/adjacency", f"use {known}, or another scheme"),
            )
        if self.returned == "last" and self.certificate != "order":
            raise NotOfferedYet(
                "No theorem here is about the last iterate.",
                FieldError("/output", "use average or random_iterate, or certificate order"),
            )

    def _faults(self) -> Iterator[tuple[str, str]]:
        """Yield pointers and what is wrong there."""
        wanted, other = ("distance", "start_gap") if self.convex else ("start_gap", "distance")
        if getattr(self, wanted) is None:
            yield f"/{wanted}", f"is what a {self.problem} problem needs"
        if getattr(self, other) is not None:
            yield f"/{other}", f"is nothing of a {self.problem} problem; leave it out"
        yield from self._wrong_holes()
        yield from self._wrong_privacy()
        for place, moment in enumerate(self.moments):
            if self.tail_index is not None and moment.order >= self.tail_index:
                yield f"/moments/{place}/order", "is the tail index or more, so the moment is infinite; lower it"
        if self.scheme == "one_pass" and self.steps is not None:
            yield "/steps", "follow from the batch when each record is read once; leave them out"
        if self.batches is not None and self.batch_fractions is not None:
            yield "/batch_fractions", "come instead of batches; give one of them"
        if self.batches is not None and self.units is not None and max(self.batches) > self.units:
            yield f"/batches/{self.batches.index(max(self.batches))}", f"is more than the {self.units} units"
        pairs = len(self.batches or self.batch_fractions or self._usual()) * (
            1 if self.scheme == "one_pass" else len(self.steps or STEPS)
        )
        most = MOST_SEARCHES if self.find is None else MOST_SEARCHES_TO_FIND
        if pairs * len(self.moments) > most:
            varied = "batches" if self.batches is not None else "batch_fractions"
            yield f"/{varied}", f"with steps and moments make more than {most} combinations; ask for fewer"
        if self.proxy is not None and self.epsilon is None:
            yield "/proxy", "is of use with privacy; give an epsilon"

    def _wrong_privacy(self) -> Iterator[tuple[str, str]]:
        """Yield privacy figures that no plan is made for."""
        low, high = EPSILONS
        if self.epsilon is not None and not low <= self.epsilon <= high:
            yield "/epsilon", f"is outside {low} to {high}"
        if self.delta is None and (self.epsilon is not None or self.find == "epsilon"):
            yield "/delta", "is needed with privacy"
        if self.delta is not None and not LEAST_DELTA <= self.delta < Decimal("0.5"):
            yield "/delta", f"is outside {LEAST_DELTA} to 0.5"

    def _wrong_holes(self) -> Iterator[tuple[str, str]]:
        """Yield what is missing, or given and to be found."""
        missing: dict[Hole, bool] = {
            "units": self.units is None,
            "epsilon": self.epsilon is None,
            "sigma": any(moment.size is None for moment in self.moments),
        }
        pointers: dict[Hole, str] = {"units": "/units", "epsilon": "/epsilon", "sigma": "/moments/0/size"}
        for hole, pointer in pointers.items():
            if hole == self.find and not missing[hole]:
                yield pointer, "is to be found; leave it out"
            if hole not in {self.find, "epsilon"} and missing[hole]:
                yield pointer, "is missing; give it, or name it in `find`"
        if self.find == "sigma" and len(self.moments) > 1:
            yield "/moments", "has several; the size of one can be found"
        if self.find == "units" and self.batches is not None:
            yield "/batches", "are sizes of known units; give batch_fractions"
        if (self.find is None) != (self.target is None):
            yield "/target", "comes with `find`, and `find` with it"

    def _usual(self) -> tuple[float, ...]:
        return PASS_FRACTIONS if self.scheme == "one_pass" else FRACTIONS

    def cells(self, units: int) -> tuple[Cell, ...]:
        """Return what to compare with so many records; parts of less than one record are left out.

        A part keeps its price and its number of steps whatever n is, so that more records never make a plan worse.
        """
        once = self.scheme == "one_pass"
        if self.batches is not None:
            sizes = [(batch, batch / units) for batch in sorted(set(self.batches)) if batch <= units]
            return tuple(
                Cell(batch, steps, part)
                for batch, part in sizes
                for steps in ((units // batch,) if once else sorted(set(self.steps or STEPS)))
            )
        found = []
        for part in sorted(set(self.batch_fractions or self._usual())):
            for steps in (max(1, int(1 / part + 1e-9)),) if once else sorted(set(self.steps or STEPS)):
                batch = units // steps if once else int(part * units + 1e-9)
                if batch >= 1:
                    found.append(Cell(batch, steps, max(part, batch / units)))
        return tuple(found)
