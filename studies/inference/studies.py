"""Many repetitions at once: records in replicates behind simulated oracles, the optimizers and intervals that jobs run.

Memory stays bounded: repetitions are done in blocks of replicates, each with its own seed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from typing import TypeVar

import torch
from scipy.stats import norm
from torch import Tensor

from core.inference.estimate import Estimate, Sandwich, by_replicate
from core.inference.sandwich import correction, infer
from core.inference.settings import PlannedInference, Shares
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.losses.weights import Mallows, Weights, cubic_bound, curvature_bound, gradient_bound
from core.losses.weights import gradient_diameter as diameter
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan
from core.methods.registry import AnyPlan
from core.oracle import Answer, Release, Status
from core.oracle.simulation import Simulation
from core.privacy.facts import Adjacency, Facts, UnknownScale
from core.queries.gradients import Gradient, Question
from core.queries.sums import SyntheticProblem
from core.queries.sums.joint import JointProblem
from core.queries.sums.linear import LinearProblem
from studies.inference.designs import Records

BLOCK_NUMBERS = 2**24
"""Most numbers in the features of one block of replicates: 128 MB."""
FAR = 1e6
"""A radius that no sensible iterate leaves."""
LEVEL = 0.95
KNOWN = Huber(scale=2.0)
HUBER_OF_ONE = Huber(scale=1.0)
MALLOWS = Mallows(bound=sqrt(2))
SCALE_FLOOR = 0.05

T = TypeVar("T")
Draw = Callable[[SimulationGenerator, int], Records]
"""From a generator and a number of replicates to records."""


@dataclass(frozen=True)
class Study:
    """Synthetic records, a loss with its weights, and what is public about them."""

    problem: SyntheticProblem
    facts: Facts

    def oracle(self, seed: int, *, noiseless: bool = False, replicates: int | None = None) -> Simulation:
        """Return a simulated oracle; `replicates` repeats the noise about one set of records."""
        return Simulation(
            self.problem, self.facts, SimulationGenerator(seed), noiseless=noiseless, replicates=replicates
        )

    def gradient_norms(self, theta: Tensor) -> Tensor:
        """Return the norms of exact mean gradients, for plots that no job could draw, shape (R,)."""
        exact = self.problem.bounded_sum(Gradient(sigma=1.0), self.facts, theta) / self.facts.units
        norms: Tensor = torch.linalg.vector_norm(exact, dim=-1)
        return norms


def study(
    records: Records,
    loss: Loss,
    weights: Weights = MALLOWS,
    *,
    concordance: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> Study:
    """Put a loss on records, under replace_one; an unknown scale starts at 1 and stays above SCALE_FLOOR.

    Args:
        records: with replicates or without.
        loss: nothing open.
        weights: nothing open.
        concordance: a constant of self-concordance for adaptive steps.
        bounds: of |x| and |y|, where a method needs them.
    """
    features, target = records
    scale = None
    if isinstance(loss, Huber) and loss.joint:
        scale = UnknownScale(start=1.0, floor=SCALE_FLOOR, curvature=loss.scale_curvature)
    facts = Facts(
        units=features.shape[-2],
        dimension=features.shape[-1] + (scale is not None),
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=gradient_bound(loss, weights),
        gradient_diameter=diameter(loss, weights),
        curvature_bound=curvature_bound(loss, weights) if bounds is None else bounds[0] ** 2,
        cubic_bound=cubic_bound(weights),
        concordance=concordance,
        target_bound=None if bounds is None else bounds[1],
        scale=scale,
    )
    rows = features.contiguous(), target, torch.ones(target.shape, dtype=torch.bool)
    if isinstance(loss, Huber) and loss.joint:
        assert isinstance(weights, Mallows), "a scale is estimated with Mallows weights"
        return Study(JointProblem(*rows, loss, weights), facts)
    return Study(LinearProblem(*rows, loss, weights), facts)


def blocks(repetitions: int, numbers_per_replicate: int, seed: int) -> Iterator[tuple[int, SimulationGenerator]]:
    """Yield sizes of blocks that make up the repetitions, each with a generator of its own."""
    most = max(1, BLOCK_NUMBERS // numbers_per_replicate)
    for number, done in enumerate(range(0, repetitions, most)):
        yield min(most, repetitions - done), SimulationGenerator(1000 * seed + number)


def descent(
    steps: int, step_size: float, mu: float, start: tuple[float, ...] | None = None
) -> NoisyGradientDescentPlan:
    """Return the paper's gradient descent, `mu` for all its steps."""
    return NoisyGradientDescentPlan(steps=steps, step_size=step_size, mu=mu, radius=FAR, start=start or "zeros")


def newton(
    steps: int, damping: float, mu: float, floor: float = 0.025, start: tuple[float, ...] | None = None
) -> NoisyNewtonPlan:
    """Return the paper's Newton method: a Hessian at every step, used at that step alone; halves of mu^2 each."""
    return NoisyNewtonPlan(
        steps=steps,
        hessians=steps,
        memory=0.0,
        growth=1.0,
        averaged=1,
        damping=damping,
        mu=mu,
        curvature_share=0.5,
        last_gradient_share=1 / steps,
        eigenvalue_floor=floor,
        radius=FAR,
        start=start or "zeros",
    )


def answers_of(settings: AnyPlan) -> int:
    """Return how many questions a run asks."""
    assert settings.steps is not None, "filled above"
    return settings.steps * (2 if isinstance(settings, NoisyNewtonPlan) else 1)


def sharing(
    settings: AnyPlan, mu: float, units: int, *, floor: float = 5e-4, parts: tuple[float, float] | None = None
) -> tuple[AnyPlan, PlannedInference]:
    """Divide mu equally among all answers of the estimate and the two matrices, as the paper's experiments do.

    Args:
        settings: the method's.
        mu: for the whole.
        units: n.
        floor: on M; that on Q is min(1/n, 1e-4), as in the reference simulations.
        parts: of mu^2, for M and Q, in place of equal ones.
    """
    curvature, score = parts or (1 / (answers_of(settings) + 2),) * 2
    inference = PlannedInference(
        shares=Shares(estimate=1 - curvature - score, curvature=curvature, score=score),
        curvature_sigma=1 / (mu * sqrt(curvature)),
        score_sigma=1 / (mu * sqrt(score)),
        curvature_floor=floor,
        score_floor=min(1 / units, 1e-4),
        plausible_radius=3.0,
    )
    return settings.model_copy(update={"mu": mu * sqrt(1 - curvature - score)}), inference


@dataclass(frozen=True)
class Intervals:
    """Results of R repetitions for p coefficients: distances from the truth and covariances by kind of correction."""

    errors: Tensor
    """Estimates less the truth, shape (R, p)."""
    covariances: dict[str, Tensor]
    """Shape (R, p, p); `plain`, `printed` and `stationary`."""
    score_floored: float
    """Share of repetitions in which an eigenvalue of the scores' matrix was floored."""

    def half(self, kind: str) -> Tensor:
        """Return half widths of intervals at LEVEL, shape (R, p)."""
        deviations: Tensor = self.covariances[kind].diagonal(dim1=-2, dim2=-1).sqrt()
        return deviations * float(norm.ppf((1 + LEVEL) / 2))

    def coverage(self, kind: str) -> Tensor:
        """Return the share of intervals that hold the truth, shape (p,)."""
        return (self.errors.abs() <= self.half(kind)).double().mean(0)

    def width(self, kind: str) -> Tensor:
        """Return median widths, shape (p,)."""
        return 2 * self.half(kind).median(0).values


def repeat(
    draw: Draw,
    truth: Tensor,
    method: tuple[AnyPlan, PlannedInference],
    repetitions: int,
    seed: int,
    loss: Loss = KNOWN,
    weights: Weights = MALLOWS,
    *,
    noiseless: bool = False,
    pooled: bool = False,
    block: bool = False,
) -> Intervals:
    """Fit and infer on fresh records in every replicate.

    Args:
        draw: records in replicates.
        truth: the coefficients, shape (p,).
        method: filled settings of optimizer and inference.
        repetitions: R.
        seed: of records and noise.
        loss: nothing open.
        weights: nothing open.
        noiseless: the non-private fit and intervals.
        pooled: whether Newton's Hessians enter the matrix M, as in jobs; the paper noises one more.
        block: with an unknown scale, matrices of the coefficients alone, which is right for symmetric errors and needs
            less noise; jobs ask for matrices of all parameters.
    """
    settings, inference = method
    features = len(truth)
    units = draw(SimulationGenerator(0), 1)[1].shape[-1]
    parts: list[tuple[Tensor, dict[str, Tensor], Tensor]] = []
    for replicates, generator in blocks(repetitions, units * features, seed):
        records = draw(generator, replicates)
        oracle = study(records, loss, weights).oracle(generator.seed + 500, noiseless=noiseless)
        estimate, _ = iterate(settings, oracle)
        unit = estimate.theta.new_ones(())
        if block:
            unit = estimate.theta[:, -1]
            estimate, oracle = in_units_of_the_scale(estimate, records, weights, generator.seed + 600)
        if not pooled:
            estimate = replace(estimate, late_sum=None, late_count=0.0)
        sandwich = infer(inference, estimate, oracle)
        theta = by_replicate(unit, 1) * estimate.theta[:, :features]
        kept = {
            name: by_replicate(unit, 2).square() * one[..., :features, :features]
            for name, one in covariances(sandwich, estimate).items()
        }
        parts.append((theta - truth, kept, sandwich.score_floored > 0))
    return Intervals(
        errors=torch.cat([errors for errors, _, _ in parts]),
        covariances={kind: torch.cat([kept[kind] for _, kept, _ in parts]) for kind in parts[0][1]},
        score_floored=float(torch.cat([floored for _, _, floored in parts]).double().mean()),
    )


def covariances(sandwich: Sandwich, estimate: Estimate) -> dict[str, Tensor]:
    """Return the covariance of each kind of correction."""
    printed = sandwich.plain + correction("printed", estimate, sandwich.curvature)
    return {"plain": sandwich.plain, "printed": printed, "stationary": sandwich.covariance}


def in_units_of_the_scale(
    estimate: Estimate, records: Records, weights: Weights, seed: int
) -> tuple[Estimate, Simulation]:
    """Take a released scale as known: return the coefficients over it, and an oracle over targets divided by it."""
    features, target = records
    scale = estimate.theta[:, -1]
    size = features.shape[-1]
    known = replace(
        estimate,
        theta=estimate.theta[:, :size] / scale.unsqueeze(-1),
        start=estimate.start[:size],
        step=estimate.step / scale,
    )
    return known, study((features, target / scale.unsqueeze(-1)), Huber(scale=1.0), weights).oracle(seed)


class WatchedOracle:
    """A oracle that notes where gradients were asked, the path of the iterates, and the states offered to be kept."""

    def __init__(self, oracle: Simulation) -> None:
        self._oracle = oracle
        self.facts, self.randomness, self.precision = oracle.facts, oracle.randomness, oracle.precision
        self.path: list[Tensor] = []
        self.states: list[dict[str, Tensor]] = []

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Answer, and note the point if it is a gradient's."""
        if isinstance(question, Gradient):
            self.path.append(theta)
        return self._oracle.ask(question, theta, other)

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say what the oracle says."""
        return self._oracle.affords(question, then)

    def block(self, name: str) -> Simulation:
        """Refuse, as the oracle does."""
        return self._oracle.block(name)

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the start."""
        return self._oracle.resume(initial)

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Offer a state, and note it."""
        self.states.append(state)
        self._oracle.keep(state, step)

    def release(self, value: T, status: Status) -> Release[T]:
        """Close the oracle."""
        return self._oracle.release(value, status)


def path(settings: AnyPlan, made: Study, seed: int, replicates: int = 1, *, noiseless: bool = False) -> Tensor:
    """Return every iterate, the start first, shape (K + 1, replicates, p)."""
    watched = WatchedOracle(
        made.oracle(seed, noiseless=noiseless, replicates=None if made.problem.replicates else replicates)
    )
    estimate, _ = iterate(settings, watched)
    return torch.stack([one.expand_as(estimate.theta) for one in [*watched.path, estimate.theta]])


def log_gradients(made: Study, iterates: Tensor) -> Tensor:
    """Return the natural log of the exact gradient's norm along paths, shape (K + 1, replicates)."""
    return torch.stack([made.gradient_norms(one.contiguous()).log() for one in iterates])
