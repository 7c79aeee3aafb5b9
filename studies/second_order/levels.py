"""An oracle that knows a mean gradient and adds noise of a stated size: the optimizers' own code, without records.

A method's rounds depend on the mean gradient and on the noise alone, so studies of thousands of runs are made here, one
level above records. Fresh gradients have noise N(0, fresh^2) on each coordinate, changes one of N(0, (change |D|)^2)
over a distance |D|.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.ada_spider import AdaSpider, no_estimate
from core.methods.second_order.gauss_psgd.fit import OUTCOMES, SearchWalk, beginning, walk
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.oracle import Answer, PublicRandomness, Release, Status
from core.oracle.simulation import SeededRandomness
from core.privacy.events import NOTHING
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Question

T = TypeVar("T")
Slope = Callable[[Tensor], Tensor]
"""The mean gradient at a point, both of shape (p,)."""
DRAWN_AT_ONCE = 128


@dataclass(frozen=True)
class Noise:
    """Standard deviations on each coordinate."""

    fresh: float
    change: float = 0.0
    """Over the distance."""


class Level:
    """Answers questions about a mean gradient with Gaussian noise; everything is affordable.

    Args:
        slope: the mean gradient.
        noise: of the answers.
        facts: public.
        generators: seeded, the noise of an equal part of the coordinates each; one, as a rule.
    """

    def __init__(self, slope: Slope, noise: Noise, facts: Facts, *generators: SimulationGenerator) -> None:
        self.facts = facts
        self.randomness: PublicRandomness = SeededRandomness(generators[0])
        self.precision = torch.float64
        self._slope, self._noise = slope, noise
        self._draws = self._drawn(generators)

    def _drawn(self, generators: Sequence[SimulationGenerator]) -> Iterator[Tensor]:
        part = self.facts.dimension // len(generators)
        while True:
            yield from torch.cat([one.normal(DRAWN_AT_ONCE, part) for one in generators], -1)

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say yes: there are no records to run out of."""
        del question, then
        return True

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Return the mean gradient at theta, or by how much it changes from there to `other`, with noise."""
        del question
        if other is None:
            return Answer(torch.add(self._slope(theta), next(self._draws), alpha=self._noise.fresh), self._noise.fresh)
        size = self._noise.change * float(torch.linalg.vector_norm(other - theta))
        exact = self._slope(other) - self._slope(theta)
        return Answer(torch.add(exact, next(self._draws), alpha=size) if size > 0 else exact, size)

    def block(self, name: str) -> "Level":
        """Refuse: there are no records."""
        raise AssertionError(f"a level has no block {name!r}")

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what it was given: nothing is ever lost."""
        return initial

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Forget the state."""

    def release(self, value: T, status: Status) -> Release[T]:
        """Return the value; no record was read."""
        return Release(value=value, status=status, event=NOTHING)


@dataclass(frozen=True)
class Phase:
    """The end of the first phase of rounds."""

    escaped: bool
    rounds: int
    """Until it escaped, or all of them."""
    steps: int
    """In all, with those that led to the phase."""


class _OverError(Exception):
    """The first phase has escaped."""


def level_facts(dimension: int, clip: float = 1.0) -> Facts:
    """Return public facts for a level, which has as many units as anybody asks for."""
    return Facts(units=10**9, dimension=dimension, adjacency=Adjacency.REPLACE_ONE, gradient_bound=clip)


def level_settings(**figures: object) -> GaussPsgdPlan:
    """Return settings with every figure given; of those that a level does not look at, any."""
    usual: dict[str, object] = {
        "mode": "given",
        "preset": "strict",
        "mu": 1.0,
        "smoothness": 1.0,
        "hessian_smoothness": 1.0,
        "batch": 2,
        "difference_batch": 1,
        "steps": 20_000,
        "radius": 1e6,
        "sites": 1,
    }
    return GaussPsgdPlan.model_validate(usual | {"start": "zeros"} | figures)


def first_phase(settings: GaussPsgdPlan, slope: Slope, noise: Noise, start: Tensor, seed: int) -> Phase:
    """Run Gauss-PSGD over Ada-DP-SPIDER from a start until its first phase is over.

    Args:
        settings: filled.
        slope: the mean gradient.
        noise: of answers about it.
        start: shape (p,).
        seed: of the noise.
    """

    def look(state: SearchWalk) -> None:
        if int(state.escapes) > 0:
            raise _OverError

    state = _walked(settings, slope, noise, start, [seed], look)
    escaped = int(state.escapes) > 0
    assert escaped or OUTCOMES[int(state.ended)] == "certified", "the first phase begins before the cap"
    return Phase(escaped=escaped, rounds=int(state.rounds), steps=int(state.step))


def paths(
    settings: GaussPsgdPlan, slope: Slope, noise: Noise, start: Tensor, seeds: Sequence[int], each: int = 1
) -> Tensor:
    """Return where the first rounds of many seeds go if nothing ends them, shape (Gamma, rounds, p).

    They are the steps of `first_phase`, until one is farther away than the distance it escapes by. The same controller
    and estimator make them at once, as one round of one point whose parts are the seeds' points. No coordinate of a
    step depends on another one's. Checks that look at all of them are kept from deciding anything: the first gradient
    is short, no distance is an escape, and the drift is never or always enough to start again.

    Args:
        settings: filled; a phase has to begin at the start, and every question or none after a round's first is fresh.
        slope: the mean gradient at points of shape (..., p).
        noise: of answers about it.
        start: shape (p,).
        seeds: of the noise.
        each: rounds that draw from one seed, which is faster; of one round a seed, they are those of `first_phase`.
    """
    assert settings.round_steps is not None, "every figure is given"
    steps, shape = settings.round_steps, (each * len(seeds), len(start))
    endless = settings.model_copy(
        update={"escape_distance": 1e9, "error_radius": 1e9, "steps": 1 + steps, "round_steps": 1 + steps}
    )
    seen: list[Tensor] = []

    def look(state: SearchWalk) -> None:
        if int(state.taken) > 0:
            seen.append(state.theta.view(shape))

    def stacked(theta: Tensor) -> Tensor:
        return slope(theta.view(shape)).flatten()

    last = _walked(endless, stacked, noise, start.repeat(shape[0]), seeds, look)
    assert OUTCOMES[int(last.ended)] == "step_cap", "the round is under way at the cap"
    return torch.stack(seen)


def _walked(
    settings: GaussPsgdPlan,
    slope: Slope,
    noise: Noise,
    start: Tensor,
    seeds: Sequence[int],
    look: Callable[[SearchWalk], None],
) -> SearchWalk:
    """Return the state at the end, or when `look` is over."""
    facts, last = level_facts(len(start)), beginning(start)
    level = Level(slope, noise, facts, *map(SimulationGenerator, seeds))

    def keep(state: SearchWalk) -> None:
        nonlocal last
        last = state
        look(state)

    with suppress(_OverError):
        return walk(settings, facts, AdaSpider(settings, level, no_estimate(start)), beginning(start), keep)
    return last
