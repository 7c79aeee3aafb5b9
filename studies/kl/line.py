"""The proximal-point method on a line, where a step is a few numbers: many runs of many million steps side by side.

F(w) = |w - m|^p to the right of m and 4 |w - m|^p to the left, every unit's loss alike. A run takes 4 n^2 rho steps:
16 million at n = 2000, which behind a simulated oracle is half an hour. Here the recursion is followed alone, with the
plan's own rounds, weights, rates, balls and noise, the lattice's part of it included: equal in law to
`core.methods.kl.proximal_point.fit`, which tests hold it against. Both prox weights go side by side.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from core.mechanisms.generator import SimulationGenerator
from core.methods.kl.condition import KlCondition
from core.methods.kl.proximal_point.schedule import ProxWeight
from core.methods.kl.proximal_point.spec import ProximalPoint, ProximalPointPlan
from core.oracle.noise import scale_of
from core.privacy.conversions import mu_of_rho
from core.privacy.facts import Adjacency, Facts
from studies.kl.powers import PowerProblem

Floats = NDArray[np.float64]

BLOCK: Final = 4096
"""Steps whose noise is drawn at once."""
STEEPNESS: Final = 4.0
ROOTS: Final[dict[float, np.ufunc | None]] = {2.0: None, 3.0: np.sqrt, 4.0: np.cbrt}
"""|w|^(p - 1) by kappa: powers by name are ten times as fast."""
WEIGHTS: Final[tuple[ProxWeight, ProxWeight]] = ("scheduled", "paper")


@dataclass(frozen=True)
class Ends:
    """Where runs ended."""

    x: float
    """gamma L0 sqrt(T)/(n sqrt(rho)), T the number of rounds."""
    excess: dict[ProxWeight, Floats]
    """By prox weight, shape (runs,)."""

    def median(self, weight: ProxWeight) -> float:
        """Of the excesses."""
        return float(np.median(self.excess[weight]))


def facts_of(units: int, kappa: float) -> Facts:
    """Return the public facts of so many units on a line; without clips that bind."""
    exponent = kappa / (kappa - 1)
    return Facts(
        units=units,
        dimension=1,
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=STEEPNESS * exponent,
        weak_convexity=0.0,
        start_gap=1.0,
    )


def planned(units: int, kappa: float, weight: ProxWeight, rho: float = 1.0) -> ProximalPointPlan:
    """Return settings with the `practical` options, their noise spending all of the budget."""
    asked = ProximalPoint(
        condition=KlCondition(gamma=(kappa - 1) / kappa, kappa=kappa),
        prox_weight=weight,
        round_schedule="practical",
        inner_steps="practical",
        noise="exact",
        max_inner=10_000_000,
    )
    return asked.plan(facts_of(units, kappa), mu_of_rho(rho))


def follow(units: int, kappa: float, runs: int, seed: int, *, noise: float = 1.0) -> Ends:
    """Run both weights from distance 1 on the gentle side.

    Args:
        units: n.
        kappa: 2, 3 or 4; p = kappa/(kappa - 1).
        runs: of each weight, with independent noise.
        seed: of all noise.
        noise: multiplies it; 0 is a control.
    """
    facts, plans = facts_of(units, kappa), [planned(units, kappa, weight) for weight in WEIGHTS]
    first = plans[0]
    points, (question,) = first.solver_steps, first.questions()
    courses = [plan.arithmetic(facts).rounds for plan in plans]
    assert [len(course) for course in courses] == [first.rounds] * len(plans), "both weights have these rounds"
    assert all(plan.solver_steps == points for plan in plans), "and these steps"
    scale = noise * scale_of(question, facts, units, units)
    draws, centre = SimulationGenerator(seed), np.ones(len(WEIGHTS) * runs)
    for now in zip(*courses, strict=True):
        assert all(one.shrinkage == 1 for one in now), "there is no ridge"
        rates = [plan.rate(one.weight, 1) for plan, one in zip(plans, now, strict=True)]
        rate, radius = np.repeat(rates, runs), np.repeat([one.radius for one in now], runs)
        assert all(abs(one.pull * share - 2) < 1e-9 for one, share in zip(now, rates, strict=True)), "2 w/w"  # noqa: PLR2004 - rounding
        centre = centre + _round(centre, points, kappa, rate, radius, scale, draws)
    excess = PowerProblem(units, 1, kappa / (kappa - 1), steepness=STEEPNESS).excess(
        torch.from_numpy(centre - 1).unsqueeze(-1)
    )
    x = first.ground(facts).resolution(first.max_rho, first.rounds)
    return Ends(x, {weight: excess.numpy()[at * runs :][:runs] for at, weight in enumerate(WEIGHTS)})


def _round(
    centre: Floats, points: int, kappa: float, rate: Floats, radius: Floats, scale: float, draws: SimulationGenerator
) -> Floats:
    """Return how far from its centre, given as distances from m, a round's weighted mean is; shapes (replicates,).

    With rate/t for step t and the pull 2/rate, away <- P_radius((1 - 2/t) away - (rate/t) (slope + noise)).
    """
    power, replicates = 1 / (kappa - 1), centre.size
    steep, low, high = STEEPNESS, -radius, radius
    factor = rate * (power + 1)
    away, total = np.zeros(replicates), np.zeros(replicates)
    size, other, at = np.empty(replicates), np.empty(replicates), np.empty(replicates)
    root = ROOTS[kappa]
    for begun in range(1, points, BLOCK):
        steps = np.arange(begun, min(points, begun + BLOCK))
        kept = (1 - 2 / steps).tolist()
        gains = factor / steps[:, None]
        pushes = draws.normal(steps.size, replicates).numpy() * ((scale * rate) / steps[:, None])
        trace = np.empty((steps.size, replicates))
        for keep, gain, push, place in zip(kept, gains, pushes, trace, strict=True):
            np.add(centre, away, out=at)
            np.abs(at, out=size)
            np.minimum(size, 1.0, out=size)
            if root is not None:
                root(size, out=size)
            np.copysign(size, at, out=size)
            np.multiply(size, steep, out=other)
            np.minimum(size, other, out=size)
            np.multiply(size, gain, out=size)
            np.add(size, push, out=size)
            np.multiply(away, keep, out=place)
            np.subtract(place, size, out=place)
            np.minimum(place, high, out=place)
            np.maximum(place, low, out=place)
            away = place
        total += (steps + 1) @ trace
        away = trace[-1]
    return total * (2 / (points * (points + 1.0)))
