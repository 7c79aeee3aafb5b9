"""An unknown residual scale: the minimiser without noise, floors, the step that a correction believes in.

Noise and data seeds are fixed; the band of the variance is 4.6 standard errors wide.
"""

from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.optimize import root

from core.inference.estimate import Estimate
from core.inference.sandwich import correction, infer
from core.inference.settings import PlannedInference
from core.losses.robust import Huber
from core.mechanisms.generator import SimulationGenerator
from core.methods import lifecycle
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_gd import fit as noisy_gd
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton, NoisyNewtonPlan
from core.oracle.simulation import Simulation
from core.privacy.facts import Facts, UnknownScale
from core.queries.sums.joint import JointProblem
from tests.support.problems import WEIGHTS, facts, rows

UNITS, FEATURES = 1500, 3
LOSS = Huber(joint=True, scale=2.0, scale_floor=0.1)
SCALED = NoisyGradientDescentPlan(steps=3000, step_size=0.26, mu=1.0, radius=100.0)
RIDGE = 0.05


def public(units: int = UNITS, ridge: float = 0.0, start: float = 2.0) -> Facts:
    scale = UnknownScale(start=start, floor=0.1, curvature=LOSS.scale_curvature)
    return facts(units, FEATURES + 1, LOSS).model_copy(update={"scale": scale, "ridge": ridge})


def simulation(known: Facts, *, noiseless: bool = False, replicates: int | None = None, seed: int = 1) -> Simulation:
    data = JointProblem(*rows(known.units, FEATURES, LOSS), LOSS, WEIGHTS)
    return Simulation(data, known, SimulationGenerator(seed), noiseless=noiseless, replicates=replicates)


@cache
def without_noise(settings: NoisyGradientDescentPlan | NoisyNewtonPlan, start: float, ridge: float) -> Estimate:
    """Return where it leads: the same run serves two tests."""
    return iterate(settings, simulation(public(ridge=ridge, start=start), noiseless=True))[0]


def answer(ridge: float) -> np.ndarray:
    """Return the zero of the penalised gradient by an independent solver."""
    features, target, _ = (part.numpy() for part in rows(UNITS, FEATURES, LOSS))
    weights = np.minimum(1.0, 2.0 / (features**2).sum(1))

    def slope(theta: np.ndarray) -> np.ndarray:
        cut = np.clip((target - features @ theta[:-1]) / theta[-1], -LOSS.c, LOSS.c)
        along = -features.T @ (weights * cut) / UNITS + ridge * theta[:-1]
        return np.append(along, (weights * (LOSS.kappa - cut**2)).mean() / 2)

    found = root(slope, np.array([*np.linspace(-1, 1, FEATURES), 0.7]), tol=1e-12)
    assert found.success
    return np.asarray(found.x)


NEWTON = NoisyNewtonPlan(
    steps=120, hessians=60, memory=0.5, growth=1.0, averaged=1, last_gradient_share=0.5, damping=1.0, mu=1.0,
    curvature_share=0.5, eigenvalue_floor=1e-4, radius=100.0, scale_step="own",
)  # fmt: skip

PAPERS = NEWTON.model_copy(
    update={
        "memory": 0.0,
        "hessians": 120,
        "last_gradient_share": 1 / 120,
        "damping": 0.3,
        "scale_step": "newton",
        "start": (-0.9, 0.1, 0.9, 0.75),  # it diverges from afar, as Figure 2(b) shows
    }
)


@pytest.mark.parametrize("ridge", [pytest.param(0.0, marks=pytest.mark.slow), RIDGE])
@pytest.mark.parametrize(
    ("settings", "start"),
    [
        (SCALED, 2.0),
        (SCALED.model_copy(update={"scaling": "plain", "step_size": 0.1}), 2.0),
        (NEWTON, 5.0),
        (NEWTON, 0.11),
        (NEWTON.model_copy(update={"memory": 0.0, "hessians": 120, "last_gradient_share": 1 / 120}), 2.0),
        (PAPERS, 2.0),
    ],
    ids=["scaled", "plain", "far too large", "far too small", "memoryless", "the paper's"],
)
def test_coefficients_and_scale_are_those_of_an_independent_solver(
    settings: NoisyGradientDescentPlan | NoisyNewtonPlan, start: float, ridge: float
) -> None:
    """U10."""
    with patch(
        "core.methods.m_estimation.noisy_newton.shapes.STEADY_PART", 1e9
    ):  # its floor is for noise, of which there is none
        found = without_noise(settings, start, ridge)
    assert np.allclose(found.theta.numpy(), answer(ridge), atol=1e-6)


def loud_descent() -> Estimate:
    settings = NoisyGradientDescentPlan(steps=30, step_size=0.5, mu=0.01, radius=100.0)
    return iterate(settings, simulation(public(), replicates=40))[0]


def test_no_scale_is_below_its_floor_and_raised_ones_are_counted() -> None:
    found = loud_descent()
    assert found.theta[:, -1].min() >= 0.1
    assert isinstance(found.scale_floored, torch.Tensor)
    assert found.scale_floored.max() > 0

    def unfloored(_: Facts, moved: torch.Tensor, radius: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        theta, left = lifecycle.inside(moved, radius)
        return theta, left, torch.zeros_like(left)

    with patch.object(noisy_gd, "arrived", unfloored):  # planted: no floor
        assert loud_descent().theta[:, -1].min() < 0.1


@pytest.mark.slow
def test_the_correction_knows_that_steps_are_multiplied_by_the_scale() -> None:
    """4000 noise draws about one data set, from its minimiser: the variance is that of steps of eta sigma, not eta."""
    minimum = tuple(answer(0.0).tolist())
    settings = NoisyGradientDescentPlan(steps=60, step_size=0.5, mu=1.0, radius=100.0, start=minimum)
    oracle = simulation(public(), replicates=4000, seed=3)
    found, _ = iterate(settings, oracle)
    inference = PlannedInference(
        curvature_sigma=1e-3, score_sigma=1e-3, curvature_floor=1e-6, score_floor=1e-9, plausible_radius=3.0
    )
    sandwich = infer(inference, found, oracle)
    expected = correction("stationary", found, sandwich.curvature).mean(0).diagonal()
    seen = found.theta.var(0)
    assert torch.allclose(seen / expected, torch.ones(4, dtype=torch.float64), atol=0.11)
    printed = correction("printed", found, sandwich.curvature).mean(0).diagonal()
    scale = minimum[-1]
    assert torch.allclose(
        printed, torch.full((4,), 2 * (0.5 * scale * float(found.scale)) ** 2, dtype=torch.float64), rtol=0.05
    )
    assert not torch.allclose(seen / (expected / scale**2), torch.ones(4, dtype=torch.float64), atol=0.3)


def test_the_sandwich_divides_by_the_scale_and_covers() -> None:
    """All parameters, the pooled plan: 300 replicates of noise; the exact covariance of the estimate beside it."""
    known = public()
    settings = NoisyNewton().plan(known, 3.0)
    oracle = simulation(known, replicates=300, seed=5)
    found, _ = iterate(settings, oracle)
    inference = PlannedInference(
        curvature_sigma=2.0, score_sigma=2.0, curvature_floor=1e-2, score_floor=1e-4, plausible_radius=3.0
    )
    sandwich = infer(inference, found, oracle)
    distance = found.theta - torch.from_numpy(answer(0.0))
    assert sandwich.covariance.shape == (300, 4, 4)
    private = (sandwich.covariance - sandwich.plain).diagonal(dim1=-2, dim2=-1)
    assert (
        (distance.abs() <= 2.5 * sandwich.covariance.diagonal(dim1=-2, dim2=-1).sqrt()).double().mean(0) > 0.95
    ).all()
    assert bool((private.median(0).values > 0).all())


@pytest.mark.parametrize("ridge", [0.0, RIDGE])
def test_the_sandwich_is_made_of_the_whole_hessian(ridge: float) -> None:
    """Without noise: sigma * Hessian as answered, over sigma, the ridge on coefficients alone, all (p + 1)^2 of it."""
    found = without_noise(SCALED, 2.0, ridge)
    oracle = simulation(public(ridge=ridge), noiseless=True)
    inference = PlannedInference(
        curvature_sigma=1.0, score_sigma=1.0, curvature_floor=1e-9, score_floor=1e-12, plausible_radius=3.0
    )
    sandwich = infer(inference, found, oracle, torch.eye(FEATURES, dtype=torch.float64)[1:])
    features, target, _ = rows(UNITS, FEATURES, LOSS)
    theta = found.theta
    residual = (target - features @ theta[:-1]) / theta[-1]
    weights = (2.0 / features.square().sum(1)).clamp(max=1.0)
    both = torch.cat([features, residual.unsqueeze(1)], 1)
    hessian = both.T @ (both * (weights * (residual.abs() < LOSS.c)).unsqueeze(1)) / UNITS / theta[-1]
    hessian = hessian + ridge * torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    assert torch.allclose(sandwich.curvature, hessian, atol=1e-8)
    cut = residual.clamp(-LOSS.c, LOSS.c)
    scores = torch.cat([-features * cut.unsqueeze(1), (LOSS.kappa - cut.square()).unsqueeze(1) / 2], 1)
    scores = scores * weights.unsqueeze(1)
    inverse = torch.linalg.inv(hessian)
    expected = inverse @ (scores.T @ scores / UNITS) @ inverse / UNITS
    assert torch.allclose(sandwich.plain, expected, rtol=1e-5, atol=1e-12)
