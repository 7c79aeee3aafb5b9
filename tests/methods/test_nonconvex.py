"""Noisy gradient descent on losses that are not convex: it finds what made the records, from where it may start.

Rows are within the unit ball and noise is that of mu = 10 on 4,000 units. All seeds are fixed; allowed errors are three
times or more those found when the tests were written.
"""

import pytest
import torch
from torch import Tensor

from core.losses.categorical import Brier
from core.losses.phase import RobustPhase, SmoothPhase
from core.losses.records import per_record
from core.losses.registry import Loss
from core.losses.robust import Cauchy, GemanMcClure, Huber
from core.losses.squares import SineLink
from core.losses.weights import Clip, Mallows, Weights
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.models.loss_geometry import smoothness
from core.oracle.simulation import Simulation
from core.privacy.facts import Facts
from core.queries.sums.linear import LinearProblem
from tests.support.losses import public, told

UNITS, DIMENSION = 4_000, 4
TRUTH = torch.tensor([0.9, -0.6, 0.4, 0.7], dtype=torch.float64)
WHOLE = Mallows(bound=1.0)
"""Rows are within the unit ball, so all of them count in full."""


def records(seed: int = 3) -> Tensor:
    """Rows on the unit sphere."""
    drawn = torch.randn(UNITS, DIMENSION, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lengths: Tensor = drawn.norm(dim=-1, keepdim=True)
    return drawn.div_(lengths)


def targets(loss: Loss, x: Tensor, *, wrong: float = 0.0) -> Tensor:
    """Return the targets of the model at the truth, with a little noise, and a part of them turned and far off."""
    generator, margin = torch.Generator().manual_seed(4), x @ TRUTH
    if isinstance(loss, Brier):
        return (torch.rand(UNITS, generator=generator, dtype=torch.float64) < torch.sigmoid(3 * margin)).double()
    if isinstance(loss, SmoothPhase | RobustPhase):
        return margin**2
    if isinstance(loss, SineLink):
        return margin + loss.amplitude * torch.sin(margin)
    noisy = margin + 0.2 * torch.randn(UNITS, generator=generator, dtype=torch.float64)
    noisy[: int(wrong * UNITS)] *= -5
    return noisy


def known(loss: Loss, weights: Weights) -> Facts:
    return public(UNITS, DIMENSION, loss, weights).model_copy(update={"smoothness": smoothness(loss, weights, 1.0)})


def descend(loss: Loss, weights: Weights, y: Tensor, seed: int = 1, **asked: object) -> Tensor:
    x, facts = records(), known(loss, weights)
    problem = LinearProblem(x, y, torch.ones(UNITS, dtype=torch.bool), loss, weights)
    settings = NoisyGradientDescent.model_validate({"step_size": 1 / (facts.smoothness or 2.0), **asked}).plan(
        facts, 10.0
    )
    estimate, _ = iterate(settings, Simulation(problem, facts, SimulationGenerator(seed)))
    return estimate.theta


@pytest.mark.parametrize("loss", [GemanMcClure(scale=0.4), Cauchy(scale=0.2)], ids=told)
def test_redescending_losses_forget_wrong_targets_that_move_a_convex_one(loss: Loss) -> None:
    y = targets(loss, records(), wrong=0.1)
    found = descend(loss, WHOLE, y, steps=400, start=(0.0,) * DIMENSION)
    other = descend(Huber(scale=0.2), WHOLE, y, steps=400)
    assert (found - TRUTH).norm() < 0.1
    assert (other - TRUTH).norm() > 2 * (found - TRUTH).norm()


def test_squared_errors_of_probabilities_find_the_logistic_model() -> None:
    found = descend(Brier(), WHOLE, targets(Brier(), records()), steps=800)
    assert (found - 3 * TRUTH).norm() < 0.8


def test_a_sine_link_is_inverted_though_its_loss_bends_down_on_the_way() -> None:
    loss, x = SineLink(), records()
    y = targets(loss, x)
    start = torch.tensor([0.0, 3.0, 0.0, 0.0], dtype=torch.float64)
    found = descend(loss, Clip(bound=4.0), y, steps=800, start=tuple(start.tolist()))
    assert (found - TRUTH).norm() < 0.05
    bends = per_record(loss).curvature(x @ start, y)
    least = torch.linalg.eigvalsh(x.mT @ (bends.unsqueeze(-1) * x) / UNITS)[0]
    assert least < -0.2, "the loss is not convex where it starts"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("loss", "tolerance"), [(SmoothPhase(cap=2.5), 0.05), (RobustPhase(cap=2.5), 0.2)], ids=told)
def test_random_starts_find_the_root_of_a_square_up_to_its_sign(loss: Loss, tolerance: float, seed: int) -> None:
    step = {} if isinstance(loss, SmoothPhase) else {"step_size": 0.02}
    found = descend(loss, Clip(bound=2.0), targets(loss, records()), seed, steps=800, start="random", **step)
    assert min((found - sign * TRUTH).norm() for sign in (1, -1)) < tolerance
