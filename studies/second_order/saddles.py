"""Runs on populations whose saddles are known, their certificates held against the truth.

Plain private stochastic gradients at the same noise, step size and number of records stand beside them; they give no
certificate.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from core.inference.error_bound import SecondOrder
from core.inference.estimate import Estimate
from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgd, GaussPsgdPlan
from core.oracle.simulation import Simulation
from core.privacy.conversions import gdp_mu
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient
from core.queries.sampling import StreamSampling
from studies.second_order.populations import EggCarton, PrincipalComponent, SaddlePopulation

EPSILON, DELTA = 1.0, 1e-5
COMPONENT_SPECTRUM = (1.0, 0.5, *[0.05] * 18)
FAR = 1e3


@dataclass(frozen=True)
class Seen:
    """The result of one run, and the truth about its point."""

    found: SecondOrder
    gradient: float
    """Length of the mean gradient there."""
    curvature: float
    """Least eigenvalue of the mean Hessian there."""
    records: int
    """Read until it ended."""


def mu_of(epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """Return 1/z: the exact mu of one Gaussian answer at epsilon and delta."""
    return gdp_mu(epsilon, delta)


def facts_of(law: SaddlePopulation) -> Facts:
    """Return what is public about a law's records, under replace_one."""
    told = law.smoothness()
    return Facts(
        units=law.units,
        dimension=law.dimension,
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=told.lipschitz,
        smoothness=told.smoothness,
    )


def component(units: int, gap: float = 0.5) -> PrincipalComponent:
    """Return 7.C's law; `gap` is its second eigenvalue."""
    return PrincipalComponent((1.0, gap, *COMPONENT_SPECTRUM[2:]), units, radius=1.1)


def quadratic(dimension: int, curvature: float) -> Callable[[Tensor], Tensor]:
    """Return the gradient of (-c x1^2 + x2^2 + ...)/2, c the curvature of its saddle at 0."""
    bends = torch.ones(dimension, dtype=torch.float64)
    bends[0] = -curvature
    return bends.mul


def component_settings(law: PrincipalComponent, **changed: object) -> GaussPsgdPlan:
    """Return 7.C's figures."""
    told = law.smoothness()
    figures: dict[str, object] = {
        "mode": "given",
        "mu": mu_of(),
        "batch": 100_000,
        "difference_batch": 2000,
        "restart_drift": 3e-4,
        "error_radius": 0.007,
        "escape_distance": 0.03,
        "round_steps": 120,
        "rounds": 6,
        "step_size": 0.5 / told.smoothness,
        "smoothness": told.smoothness,
        "hessian_smoothness": told.hessian_smoothness,
        "radius": FAR,
        "start": tuple(law.stationary(1).tolist()),
    }
    return GaussPsgd.model_validate(figures | changed).with_rounds(facts_of(law), mu_of())


def carton_settings(law: EggCarton, start: Tensor, **changed: object) -> GaussPsgdPlan:
    """Return 7.D's figures: planned as strict, from what is known of the law's spread."""
    told = law.smoothness()
    figures: dict[str, object] = {
        "mu": mu_of(),
        "batch": 100_000,
        "difference_batch": 1000,
        "smoothness": told.smoothness,
        "hessian_smoothness": told.hessian_smoothness,
        "spread": (law.dimension * (law.tau**2 + law.sigma**2)) ** 0.5,
        "difference_spread": law.tau,
        "step_size": 0.5 / told.smoothness,
        "rounds": 8,
        "radius": FAR,
        "start": tuple(start.tolist()),
    }
    return GaussPsgd.model_validate(figures | changed).with_rounds(facts_of(law), mu_of())


def run(law: SaddlePopulation, settings: GaussPsgdPlan, seed: int) -> Seen:
    """Run once on fresh records."""
    facts = facts_of(law)
    oracle = Simulation(law, facts, SimulationGenerator(seed), sampling=settings.sampling(facts))
    return judged(law, settings, gauss_psgd.iterate(settings, oracle)[0])


def judged(law: SaddlePopulation, settings: GaussPsgdPlan, estimate: Estimate) -> Seen:
    """Return what a run claims of the point it returned, and what is true of it."""
    assert estimate.error_bound is not None, "there are rounds"
    found = estimate.error_bound.second_order
    assert found is not None, "it is told"
    theta = estimate.theta.reshape(-1)
    assert settings.batch is not None, "planned"
    assert settings.difference_batch is not None, "planned"
    return Seen(
        found,
        gradient=float(torch.linalg.vector_norm(law.mean_gradient(theta))),
        curvature=float(law.least_curvature(theta)),
        records=found.restarts * settings.batch + found.differences * settings.difference_batch,
    )


def plain(law: SaddlePopulation, start: Tensor, batch: int, step_size: float, seed: int) -> list[Tensor]:
    """Return the iterates of private stochastic gradients, one pass, at the same noise for a record."""
    facts = facts_of(law)
    question = Gradient(sigma=1 / mu_of(), batch=batch)
    oracle = Simulation(law, facts, SimulationGenerator(seed), sampling=StreamSampling(batches=(batch,)))
    path = [start]
    while oracle.affords(question):
        path.append(path[-1] - step_size * oracle.ask(question, path[-1]).value.reshape(-1))
    return path


def exact_descent(law: SaddlePopulation, start: Tensor, steps: int) -> Tensor:
    """Return where steps along the exact mean gradient lead: nowhere from a saddle."""
    theta, size = start, 0.5 / law.smoothness().smoothness
    for _ in range(steps):
        theta = theta - size * law.mean_gradient(theta)
    return theta
