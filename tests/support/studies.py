"""Statistical studies of the paper's designs with the code that jobs run: synthetic records, in replicates."""

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from core.inference.estimate import Sandwich
from core.inference.sandwich import Correction, correction, infer
from core.inference.settings import PlannedInference, Shares
from core.losses.robust import Huber
from core.losses.weights import Mallows, curvature_bound, gradient_bound
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import fit, iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.registry import AnyPlan
from core.oracle.simulation import Simulation
from core.privacy.facts import Adjacency, Facts
from core.queries.sums.linear import LinearProblem

SCALE = 2.0
WEIGHT = sqrt(2)
WEIGHTS = Mallows(bound=WEIGHT)
LOSS = Huber(scale=SCALE)
D1 = 4 * np.eye(3)
D2 = np.array([[1, 0.5, 0], [0.5, 2, 0], [0, 0, 2]])
TRUTH = np.ones(4)


def known_scale_facts(units: int) -> Facts:
    return Facts(
        units=units,
        dimension=4,
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=gradient_bound(LOSS, WEIGHTS),
        curvature_bound=curvature_bound(LOSS, WEIGHTS),
    )


def known_scale_problem(covariance: np.ndarray, units: int, replicates: int | None, seed: int) -> LinearProblem:
    draws = np.random.default_rng(seed)
    shape = (units,) if replicates is None else (replicates, units)
    slopes = draws.multivariate_normal(np.zeros(3), covariance, size=shape)
    features = np.concatenate([np.ones((*shape, 1)), slopes], axis=-1)
    target = features @ TRUTH + SCALE * draws.standard_normal(shape)
    present = torch.ones(shape, dtype=torch.bool)
    return LinearProblem(torch.from_numpy(features), torch.from_numpy(target), present, LOSS, WEIGHTS)


def simulation(
    problem: LinearProblem, seed: int, replicates: int | None = None, *, noiseless: bool = False
) -> Simulation:
    facts = known_scale_facts(problem.units)
    return Simulation(problem, facts, SimulationGenerator(seed), noiseless=noiseless, replicates=replicates)


def minimiser(problem: LinearProblem) -> Tensor:
    """The non-private estimate, by many exact gradient steps and no noise."""
    settings = NoisyGradientDescentPlan(steps=3000, step_size=1.0, mu=1.0, radius=1e6)
    return fit(settings, simulation(problem, 0, noiseless=True)).value.theta


@dataclass(frozen=True)
class Coverage:
    """Shares of replicates whose 95 % interval holds the truth, and median widths, each of shape (p,)."""

    stationary: np.ndarray
    printed: np.ndarray
    plain: np.ndarray
    widths: np.ndarray


def equal_shares(answers: int) -> tuple[float, PlannedInference]:
    """mu_est for `answers` optimizer answers beside M and Q, all worth the same out of mu = 1."""
    each = 1 / (answers + 2)
    shares = Shares(estimate=1 - 2 * each, curvature=each, score=each)
    inference = PlannedInference(
        shares=shares,
        curvature_sigma=each**-0.5,
        score_sigma=each**-0.5,
        curvature_floor=1e-3 / SCALE,
        score_floor=1e-4,
        plausible_radius=3.0,
    )
    return sqrt(1 - 2 * each), inference


def coverage(
    problem: LinearProblem, settings: AnyPlan, inference: PlannedInference, seed: int, *, pooled: bool = True
) -> Coverage:
    """Return what the intervals cover; `pooled` false: with the last Hessian alone, as in the paper."""
    oracle = simulation(problem, seed)
    estimate, _ = iterate(settings, oracle)
    if not pooled:
        estimate = replace(estimate, late_sum=None, late_count=0)
    sandwich = infer(inference, estimate, oracle)
    error = (estimate.theta - torch.from_numpy(TRUTH)).abs().numpy()

    def shares(kind: Correction) -> np.ndarray:
        found: np.ndarray = (error <= _half(sandwich, kind)).mean(0)
        return found

    def _half(sandwich: Sandwich, kind: Correction) -> np.ndarray:
        covariance = sandwich.plain + correction(kind, estimate, sandwich.curvature)
        reach: np.ndarray = norm.ppf(0.975) * covariance.diagonal(dim1=-2, dim2=-1).sqrt().numpy()
        return reach

    return Coverage(
        shares("stationary"), shares("printed"), shares("plain"), np.median(2 * _half(sandwich, "stationary"), 0)
    )
