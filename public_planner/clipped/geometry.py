"""A problem that clipped descent is planned for: which theorem it has, from which clip on, what it says of a run."""

from dataclasses import dataclass
from functools import cached_property, partial
from math import inf, sqrt
from typing import Final, NamedTuple

from core.methods.clipped.one_pass.guarantee import Guarantee, Run
from core.methods.clipped.one_pass.refined import refined_convex, refined_nonconvex
from core.methods.clipped.one_pass.search import lowest
from core.methods.clipped.one_pass.theory import paper_convex, paper_nonconvex
from public_planner.clipped.order_level import Scale, order_terms
from public_planner.clipped.request import Cell, Certificate, ClippedPlanRequest

LONGEST: Final = 1e6
"""Clips are searched up to so many times the slope."""


class Moment(NamedTuple):
    """alpha and sigma."""

    order: float
    size: float


class Found(NamedTuple):
    """A run and what is said of it; comparisons go by the bound."""

    bound: float
    run: Run
    cell: Cell
    multiplier: float
    """z, of the noise on a sum of clipped gradients over the clip."""


@dataclass(frozen=True)
class LossGeometry:
    """What a request says of its problem, its records and its privacy apart."""

    convex: bool
    smoothness: float
    size: float
    dimension: int
    beta: float
    certificate: Certificate
    clips: tuple[float, ...] | None

    @classmethod
    def of(cls, request: ClippedPlanRequest) -> "LossGeometry":
        """Return a request's."""
        return cls(
            convex=request.convex,
            smoothness=request.smoothness,
            size=request.size,
            dimension=request.dimension,
            beta=request.beta,
            certificate=request.certificate,
            clips=None if request.clips is None else tuple(sorted(set(request.clips))),
        )

    @cached_property
    def scale(self) -> Scale:
        """Its sizes."""
        return (Scale.convex if self.convex else Scale.nonconvex)(self.smoothness, self.size)

    @property
    def trivial(self) -> float:
        """What the start satisfies: L R^2/2 of the excess risk, 2 L Delta of the squared gradient."""
        return self.scale.start / 2 if self.convex else 2 * self.scale.start

    @property
    def floor(self) -> float:
        """The clip below which nothing is certified, or worth asking in orders."""
        if self.certificate == "order":
            return 4 / 3 * self.scale.slope
        return (2 * sqrt(2) if self.convex and self.certificate == "refined" else 4) * self.scale.slope

    def guarantee(self, run: Run) -> Guarantee | None:
        """Return what the asked certificate says; None: nothing, or none was asked."""
        if self.certificate == "order":
            return None
        if self.convex:
            return (refined_convex if self.certificate == "refined" else paper_convex)(self.smoothness, self.size, run)
        theorem = refined_nonconvex if self.certificate == "refined" else paper_nonconvex
        return theorem(self.smoothness, self.size, run)

    def bound(self, run: Run) -> float:
        """Return the certified bound, or the one in orders; infinity where nothing is said."""
        if self.certificate == "order":
            return order_terms(self.scale, run).bound
        found = self.guarantee(run)
        return inf if found is None else found.bound

    def run(self, cell: Cell, moment: Moment, multiplier: float, clip: float) -> Run:
        """Return a run with noise in proportion to its clip."""
        return Run(
            alpha=moment.order,
            sigma=moment.size,
            clip=clip,
            steps=cell.steps,
            beta=self.beta,
            dimension=self.dimension,
            noise=multiplier * clip / cell.batch,
            batch=cell.batch,
        )

    def _bound_with(self, cell: Cell, moment: Moment, multiplier: float, clip: float) -> float:
        return self.bound(self.run(cell, moment, multiplier, clip))

    def best(self, cell: Cell, moment: Moment, multiplier: float) -> Found:
        """Return the run with the best clip: of the given ones, or searched from `floor` upwards."""
        bound_at = partial(self._bound_with, cell, moment, multiplier)
        if self.clips is None:
            clip = lowest(bound_at, self.floor, LONGEST * self.scale.slope)
        else:
            clip = min(self.clips, key=bound_at)
        run = self.run(cell, moment, multiplier, clip)
        return Found(self.bound(run), run, cell, multiplier)
