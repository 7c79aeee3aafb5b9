"""Growth of the error of the gradient estimate: M1, along fixed paths, behind the oracles that jobs have.

Records are (f, y) with f made of signs over sqrt(p), y = 1/2 or -1/2. The loss is (f.x - y)^2/2 wherever paths go: a
gradient is at most 1/2 + |x| long and changes by at most the distance. The spread of a record's gradient at 0 is 1/2,
that of a change |D| sqrt((1 - 1/p)/p).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from statistics import linear_regression

import torch
from torch import Tensor

from core.losses.robust import Huber
from core.losses.weights import Mallows
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.mechanisms.sampling import public_order
from core.methods.second_order.ada_spider import AdaSpider, no_estimate
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.oracle.filters import UnlimitedFilter
from core.oracle.samples import StreamOracle
from core.privacy.conversions import gdp_mu
from core.privacy.facts import Adjacency, Facts
from core.queries.sums.linear import LinearProblem
from studies.inference.results import Result, Row
from studies.second_order.levels import level_settings

CLIP, SMOOTH, UNITS, MOVES = 2.0, 1.0, 8192, 8
"""G, M, n, and changes on a path."""
PULL, QUADRATIC = 0.5, 1.0
"""Of every record at 0; and up to which residual Huber's loss is r^2/2: none here is as large."""


@dataclass(frozen=True)
class ScalingPoint:
    """One place in the plane of a slope; its path goes to and fro between 0 and a point."""

    dimension: int = 10
    batch: int = 64
    difference_batch: int = 2
    drift: float = 0.0
    """kappa: the path's squared moves add up to this, or just below; none: one fresh gradient."""
    multiplier: float = 1e-6
    """z."""

    def settings(self) -> GaussPsgdPlan:
        """Return the estimator's settings."""
        return level_settings(
            mu=1 / self.multiplier,
            batch=self.batch,
            difference_batch=self.difference_batch,
            restart_drift=self.drift or 1.0,
            smoothness=SMOOTH,
            step_size=0.1,
            error_radius=1.0,
            escape_distance=1.0,
            round_steps=1,
            rounds=1,
        )

    def path(self) -> list[Tensor]:
        """Return the points that are asked about."""
        here, there = torch.zeros(2, self.dimension, dtype=torch.float64)
        there[0] = sqrt(self.drift / MOVES) * (1 - 1e-9)
        return [here, there] * (MOVES // 2) + [here] if self.drift else [here]

    def expected(self) -> float:
        """Return S + p r_tot^2."""
        sampled = PULL**2 * (1 - self.batch / UNITS) / self.batch
        sampled += self.drift * (1 - 1 / self.dimension) / self.dimension / self.difference_batch
        fresh = 2 * CLIP / self.batch
        change = 2 * SMOOTH / self.difference_batch
        return sampled + self.dimension * self.multiplier**2 * (fresh**2 + self.drift * change**2)


def squared_error(point: ScalingPoint, runs: int, generator: SystemGenerator) -> float:
    """Return the mean squared error of the estimate at the end of a path, over runs behind oracles of their own.

    Args:
        point: the question, and the amount of noise.
        runs: each with the same records in another order.
        generator: of the oracles' noise.
    """
    problem = _records(point.dimension)
    known = Facts(
        units=UNITS, dimension=point.dimension, adjacency=Adjacency.REPLACE_ONE, gradient_bound=CLIP, smoothness=SMOOTH
    )
    settings, path = point.settings(), point.path()
    truth = problem.bounded_sum(settings.fresh(), known, path[-1]) / UNITS
    total = 0.0
    for run in range(runs):
        oracle = StreamOracle(problem, known, UnlimitedFilter(), generator, public_order(f"scaling {run}", UNITS))
        estimator = AdaSpider(settings, oracle, no_estimate(path[0]))
        for at in path:
            found = estimator.query(at)
        assert found is not None, "there are units for a path"
        total += float((found - truth).square().sum())
    return total / runs


LOUD, SILENT = 30.0, 1e-6
BATCHES = (32, 64, 128, 256)
EPSILONS, DELTAS = (0.25, 0.5, 1.0, 2.0), (1e-5, 1e-9)
_WIDE = ScalingPoint(batch=4096)


def private_points(delta: float) -> list[ScalingPoint]:
    """Return points whose noise is that of several epsilons."""
    return [ScalingPoint(batch=16, multiplier=1 / gdp_mu(epsilon, delta)) for epsilon in EPSILONS]


@dataclass(frozen=True)
class ScalingSlope:
    """The varied points, their abscissa, and the exponent by which the mean squared error should grow with it."""

    points: Sequence[ScalingPoint]
    along: Callable[[ScalingPoint], float]
    exponent: float


SLOPES = {
    "b1, sampling": ScalingSlope([ScalingPoint(batch=size) for size in BATCHES], lambda at: at.batch, -1),
    "b1, noise": ScalingSlope([ScalingPoint(batch=size, multiplier=LOUD) for size in BATCHES], lambda at: at.batch, -2),
    "b2, sampling": ScalingSlope(
        [replace(_WIDE, drift=1.0, difference_batch=size) for size in (1, 2, 4, 8)], lambda at: at.difference_batch, -1
    ),
    "b2, noise": ScalingSlope(
        [replace(_WIDE, drift=1.0, difference_batch=size, multiplier=LOUD) for size in (1, 2, 4, 8)],
        lambda at: at.difference_batch,
        -2,
    ),
    "1/z, noise": ScalingSlope(
        [ScalingPoint(multiplier=z) for z in (8.0, 16.0, 32.0, 64.0)], lambda at: 1 / at.multiplier, -2
    ),
    "p, noise": ScalingSlope(
        [ScalingPoint(dimension=p, multiplier=LOUD) for p in (5, 10, 20, 40)], lambda at: at.dimension, 1
    ),
    "kappa, sampling": ScalingSlope([replace(_WIDE, drift=k) for k in (0.25, 0.5, 1.0, 2.0)], lambda at: at.drift, 1),
    "kappa, noise": ScalingSlope(
        [replace(_WIDE, drift=k, multiplier=LOUD) for k in (0.25, 0.5, 1.0, 2.0)], lambda at: at.drift, 1
    ),
}
"""By what is varied and what the error is made of there."""


def fitted(slope: ScalingSlope, runs: int, generator: SystemGenerator) -> tuple[float, float]:
    """Return the log-log slope of the measured errors, and how far the worst is from what is expected, relatively."""
    errors = [squared_error(point, runs, generator) for point in slope.points]
    worst = max(abs(error / point.expected() - 1) for error, point in zip(errors, slope.points, strict=True))
    return exponent([slope.along(point) for point in slope.points], errors), worst


def exponent(along: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of a line through logarithms, by least squares."""
    return linear_regression([log(at) for at in along], [log(value) for value in values]).slope


def scaling(*, full: bool) -> Result:
    """M1: slopes of the mean squared error."""
    runs, generator, rows = 120 if full else 30, SystemGenerator(), []
    for name, slope in SLOPES.items():
        found, worst = fitted(slope, runs, generator)
        rows.append(Row(f"slope in {name}", slope.exponent, found, 0.1))
        rows.append(Row(f"along {name}: most that any error is off S + p r_tot^2, relatively", 0.0, worst, 0.3))
    for delta in DELTAS:
        points = private_points(delta)
        found = exponent(EPSILONS, [squared_error(point, runs, generator) for point in points])
        rows.append(Row(f"slope in epsilon at delta {delta:g}, by the exact multiplier", -2, found))
        told = exponent(EPSILONS, [point.multiplier**2 for point in points])
        rows.append(Row(f"slope in epsilon at delta {delta:g}, beside that of z^2", told, found, 0.1))
    return Result(
        "M1",
        "Growth of the estimate's error",
        f"Mean squared error at the end of fixed paths, {runs} runs each, through the oracles that jobs have; S of "
        "sampling, r_tot of noise.",
        tuple(rows),
        "In epsilon the exact multiplier falls a little slower than 1/epsilon, the more so the larger delta: -1.83 at "
        "1e-5 where the classical formula has -2. The noise of oracles has no seeds: digits change from run to run.",
    )


def _records(dimension: int) -> LinearProblem:
    """Return records of signs."""
    draws = SimulationGenerator(11)
    features = draws.uniform(UNITS, dimension).sub_(0.5).sign_().div_(sqrt(dimension))
    target = draws.uniform(UNITS).sub_(0.5).sign_().mul_(PULL)
    there = torch.ones(UNITS, dtype=torch.bool)
    return LinearProblem(features, target, there, Huber(scale=QUADRATIC), Mallows(bound=CLIP))
