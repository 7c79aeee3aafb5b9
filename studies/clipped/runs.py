"""Clipped descent, as jobs run it, on fresh draws of a population in many replicates, with an eye on every iterate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.clipped.one_pass.spec import OnePassClippedSgdPlan
from core.methods.fits import iterate
from core.oracle.filters import LastState, UnlimitedFilter
from core.oracle.simulation import Simulation
from core.privacy.facts import Adjacency, Facts
from core.queries.sums.streams import FixedRecords, Population

UNCLIPPED = 1e6
"""A clip that no draw of these studies reaches."""
FAR = 1e15
"""A radius that no iterate of these studies leaves, unclipped ones included."""

See = Callable[[int, Tensor], None]
"""An observer of iterates: called with k and x^k, shape (R, d), for k from 0."""


class Watch(LastState):
    """An answer log that looks at the iterates which a method keeps: a simulation may do that, a job may not."""

    def __init__(self, see: See) -> None:
        super().__init__()
        self._see = see

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Look at x^step."""
        self._see(step, state["theta"])


@dataclass(frozen=True)
class Descent:
    """A run in many replicates."""

    clip: float
    step_size: float
    steps: int
    batch: int = 1
    noise: float = 0.0
    """Standard deviation on each coordinate of a mean gradient (sigma_omega)."""
    start: tuple[float, ...] | None = None
    """None: zero."""

    def settings(self) -> OnePassClippedSgdPlan:
        """Return the method's settings, nothing open."""
        return OnePassClippedSgdPlan(
            mu=self.clip / (self.batch * self.noise) if self.noise else 1.0,
            batch=self.batch,
            steps=self.steps,
            clip=self.clip,
            step_size=self.step_size,
            returns="average",
            start="zeros" if self.start is None else self.start,
            radius=FAR,
        )


def facts_of(problem: Population | FixedRecords, clip: float = UNCLIPPED) -> Facts:
    """Return the facts of a population that an oracle receives; neighbours differ by a zeroed unit."""
    return Facts(
        units=problem.units,
        dimension=problem.dimension,
        adjacency=Adjacency.ZERO_OUT,
        gradient_bound=clip,
        weak_convexity=0.0,
    )


def descend(descent: Descent, problem: Population, seed: int, see: See | None = None) -> Tensor:
    """Run `one_pass_clipped_sgd` and return the averages of x^0 to x^K, shape (R, d).

    Args:
        descent: the run's settings.
        problem: with as many units as the run reads, at least.
        seed: of records and noise.
        see: watches every iterate.
    """
    return run(descent.settings(), facts_of(problem), problem, seed, see, noiseless=descent.noise == 0)


def run(
    settings: OnePassClippedSgdPlan,
    facts: Facts,
    problem: Population,
    seed: int,
    see: See | None = None,
    *,
    noiseless: bool = False,
) -> Tensor:
    """Run filled settings and return what they release in each replicate, shape (R, d)."""
    shape = (problem.replicates, problem.dimension)
    if see is not None:
        see(0, torch.zeros(shape, dtype=torch.float64) + _start(settings, problem.dimension))
    oracle = Simulation(
        problem,
        facts,
        SimulationGenerator(seed),
        noiseless=noiseless,
        payments=None if see is None else UnlimitedFilter(Watch(see)),
        sampling=settings.sampling(facts),
    )
    estimate, _ = iterate(settings, oracle)
    assert not bool(estimate.left.any()), "no iterate leaves the radius"
    return estimate.theta.expand(shape)


def _start(settings: OnePassClippedSgdPlan, dimension: int) -> Tensor:
    if settings.start == "zeros":
        return torch.zeros(dimension, dtype=torch.float64)
    return torch.tensor(settings.start, dtype=torch.float64)


class Mean:
    """The mean over steps of something about each iterate, from a step on."""

    def __init__(self, of: Callable[[Tensor], Tensor], first: int = 0) -> None:
        self._of, self._first = of, first
        self._sum: Tensor | float = 0.0
        self._count = 0

    def __call__(self, step: int, theta: Tensor) -> None:
        """Take one more iterate in."""
        if step >= self._first:
            self._sum = self._of(theta) + self._sum
            self._count += 1

    @property
    def value(self) -> Tensor:
        """Of each replicate, shape (R, ...)."""
        assert isinstance(self._sum, Tensor), "something was seen"
        return self._sum / self._count


class Last:
    """The iterate seen last, and those at chosen steps."""

    def __init__(self, *steps: int) -> None:
        self.at: dict[int, Tensor] = {}
        self._steps = steps

    def __call__(self, step: int, theta: Tensor) -> None:
        """Remember this one."""
        self.value = theta
        if step in self._steps:
            self.at[step] = theta


def together(*watchers: See) -> See:
    """Return one watcher that shows what it sees to all of them."""

    def see(step: int, theta: Tensor) -> None:
        for one in watchers:
            one(step, theta)

    return see


@dataclass(frozen=True)
class Measured:
    """A mean over replicates."""

    mean: float
    error: float
    """Standard error."""


def measured(replicates: Tensor) -> Measured:
    """Return the mean over replicates and its standard error."""
    return Measured(float(replicates.mean()), float(replicates.std()) / len(replicates) ** 0.5)


def quantile(replicates: Tensor, level: float) -> float:
    """Return a quantile over replicates."""
    return float(np.quantile(replicates.numpy(), level))


def log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the least-squares slope of log y in log x."""
    return float(np.polyfit([log(one) for one in x], [log(one) for one in y], 1)[0])
