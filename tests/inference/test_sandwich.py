"""The printed and stationary corrections against their formulas, and noise on both matrices."""

from math import sqrt

import numpy as np
import pytest
import torch

from core.inference.estimate import Estimate
from core.inference.sandwich import correction, infer, pooled, remembered, spread
from core.inference.settings import PlannedInference
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.fit import _stationary_scale
from core.oracle import Answer
from core.oracle.simulation import Simulation
from core.privacy.facts import UnknownScale
from tests.laws.test_optimizers import newton
from tests.support.problems import facts, problem

SLOPE = 0.37
ORTHOGONAL = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
VALUES = np.array([0.2, 0.5, 1.3])
HESSIAN = torch.from_numpy(ORTHOGONAL * VALUES @ ORTHOGONAL.T)


def estimate(family: str, step: float, steps: int, **more: object) -> Estimate:
    theta = torch.ones(3, dtype=torch.float64)
    start = torch.zeros(3, dtype=torch.float64)
    left = torch.tensor(data=False)
    return Estimate(theta, start, family, left, scale=SLOPE, step=step, steps=steps, **more)  # type: ignore[arg-type]  # a test's keywords


def test_gradient_descent_formulas() -> None:
    one = estimate("gradient", 0.4, 25)
    assert torch.allclose(correction("printed", one, HESSIAN), 2 * (0.4 * SLOPE) ** 2 * torch.eye(3).double())
    walked = torch.zeros(3, 3, dtype=torch.float64)  # the recursion itself
    factor = torch.eye(3).double() - 0.4 * HESSIAN
    for _ in range(25):
        walked = factor @ walked @ factor.mT + (0.4 * SLOPE) ** 2 * torch.eye(3).double()
    assert torch.allclose(correction("stationary", one, HESSIAN), walked, rtol=1e-10)
    assert not correction("plain", one, HESSIAN).any()
    more_steps = correction("stationary", estimate("gradient", 0.4, 27), HESSIAN)
    assert not torch.allclose(more_steps, walked, rtol=1e-10), "K + 2 in place of K is another matrix"


@pytest.mark.parametrize("damping", [0.5, 1.0])
def test_newton_formulas(damping: float) -> None:
    last = 2 * HESSIAN
    one = estimate("newton", damping, 40, hessian=last)
    inverse = torch.linalg.inv(HESSIAN)
    expected = SLOPE**2 * damping / (2 - damping) * inverse @ inverse
    assert torch.allclose(correction("stationary", one, HESSIAN), expected)
    assert torch.allclose(correction("printed", one, HESSIAN), (damping * SLOPE) ** 2 / 4 * inverse @ inverse)


def test_what_is_remembered_is_the_squared_bias_and_vanishes_with_steps() -> None:
    slow = estimate("gradient", 0.4, 3)
    start = remembered(slow, torch.eye(3).double() * 0.25, 0.01, "stationary").diagonal()
    left = 0.9**3
    assert torch.allclose(start, torch.full((3,), (left / (1 - left)) ** 2, dtype=torch.float64))
    assert remembered(estimate("gradient", 0.4, 900), HESSIAN, 0.01, "stationary").abs().max() < 1e-12
    assert not remembered(slow, HESSIAN, 0.01, "printed").any()


def test_a_shift_moves_coefficients_together() -> None:
    slow = estimate("gradient", 0.4, 3)
    shift = torch.ones(1, 3, dtype=torch.float64) / 3**0.5
    curvature = torch.eye(3).double() * 0.25
    alone = remembered(slow, curvature, 0.01, "stationary")
    together = remembered(slow, curvature, 0.01, "stationary", shift) - alone
    moved = (shift @ (slow.theta - slow.start)).item()
    left = 0.9**3
    expected = (moved * left / (1 - left)) ** 2 * torch.ones(3, 3, dtype=torch.float64) / 3
    assert torch.allclose(together, expected)


@pytest.mark.parametrize("damping", [0.3, 0.5, 1.0])
@pytest.mark.parametrize(("share", "growth"), [(1 / 40, 1.0), (0.3, 1.0), (0.9, 1.0), (0.3, 1.2)])
def test_unequal_gradients_leave_the_variance_of_their_equal_equivalent(
    damping: float, share: float, growth: float
) -> None:
    settings = newton(40, damping=damping, last_gradient_share=share, growth=growth)
    sigmas = [gradient.sigma for gradient in settings.gradients()]
    variance = 0.0
    for sigma in sigmas:
        variance = (1 - damping) ** 2 * variance + (damping * sigma) ** 2
    equal = _stationary_scale(settings, sigmas[-1])
    assert equal**2 * damping / (2 - damping) == pytest.approx(variance, rel=1e-6)


def test_pooling_weighs_by_precision() -> None:
    late = estimate("newton", 1.0, 8, late_sum=4 * HESSIAN, late_count=4, curvature_scale=0.2)
    average = pooled(Answer(2 * HESSIAN, 0.1), late)
    assert torch.allclose(average, (100 * 2 + 25 * 4) / (100 + 4 * 25) * HESSIAN)


def test_both_matrices_are_noised_by_their_questions() -> None:
    """Mutations: M or Q without noise, or noise of another size."""
    units, replicates = 3000, 4000
    public, data = facts(units, 3), problem(units, 3)
    oracle = Simulation(data, public, SimulationGenerator(3), replicates=replicates)
    settings = NoisyGradientDescentPlan(steps=1, step_size=1e-9, mu=1.0, radius=10.0)
    inference = PlannedInference(
        curvature_sigma=3.0, score_sigma=5.0, curvature_floor=1e-9, score_floor=1e-9, plausible_radius=3.0
    )
    one, _ = iterate(settings, oracle)
    sandwich = infer(inference, one, oracle)
    for matrix, sigma, bound in (
        (sandwich.curvature, 3.0, public.curvature_bound),
        (sandwich.score, 5.0, public.gradient_bound**2),
    ):
        for row, column in ((0, 0), (0, 2), (1, 1)):
            ratio = matrix[:, row, column].std() / (sigma * bound / units)
            assert (
                abs(ratio - 1) < 4.5 / sqrt(2 * replicates) + 0.002
            )  # 4.5 standard errors and the lattice's thousandth


def test_each_replicate_has_the_correction_of_its_own_step() -> None:
    """Steps and numbers of steps may differ between replicates: each is corrected as it would be alone."""
    steps, taken = torch.tensor([0.4, 0.1]).double(), torch.tensor([25, 7])
    both = estimate("gradient", steps, taken)  # type: ignore[arg-type]  # by replicate
    hessians = torch.stack([HESSIAN, 2 * HESSIAN])
    for kind in ("stationary", "printed", "plain"):
        together = correction(kind, both, hessians)
        for replicate, (step, count) in enumerate(zip(steps.tolist(), taken.tolist(), strict=True)):
            assert torch.allclose(
                together[replicate], correction(kind, estimate("gradient", step, count), hessians[replicate])
            )


def test_the_released_code_takes_the_final_matrix_for_the_last_one() -> None:
    one = estimate("newton", 0.5, 40, hessian=2 * HESSIAN)
    inverse = torch.linalg.inv(HESSIAN)
    assert torch.allclose(correction("released", one, HESSIAN), (0.5 * SLOPE) ** 2 * inverse @ inverse)


def test_directions_of_features_are_told_for_every_margin_and_no_scale() -> None:
    shifts = torch.tensor([[0.0, 0.6, 0.8]]).double()
    scaled = facts(100, 4).model_copy(update={"scale": UnknownScale(start=1.0, floor=0.1)})
    assert torch.equal(spread(shifts, scaled), torch.tensor([[0.0, 0.6, 0.8, 0.0]]).double())
    assert torch.equal(spread(shifts, facts(100, 3)), shifts)
    twice = torch.tensor([[0.0, 0.6, 0.8, 0, 0, 0], [0, 0, 0, 0.0, 0.6, 0.8]]).double()
    assert torch.equal(spread(shifts, facts(100, 6)), twice)
