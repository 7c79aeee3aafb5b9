"""Laws that every question obeys: the claimed sensitivity is never passed and almost reached"""

from math import sqrt

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from core.catalogue.losses import Loss
from core.catalogue.questions import Curvature, Gradient, Question
from core.oracle.noise import grid_for
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency, Facts
from core.problems.linear import LinearProblem
from tests.support.problems import LOSSES, WEIGHT_BOUND, WEIGHTS, facts

QUESTIONS = [
    Gradient(sigma=1.0),
    Gradient(sigma=1.0, clip=0.5),
    Curvature(of="hessian", sigma=1.0),
    Curvature(of="score", sigma=1.0),
]
each = pytest.mark.parametrize("question", QUESTIONS, ids=str)
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))


def upper(total: np.ndarray) -> np.ndarray:
    """What is released: a vector, or the entries on and above the diagonal."""
    return total if total.ndim == 1 else total[np.triu_indices(len(total))]


def term(question: Question, public: Facts, loss: Loss, x: np.ndarray, y: float, theta: np.ndarray) -> np.ndarray:
    problem = LinearProblem(
        torch.from_numpy(x[None].copy()),
        torch.tensor([y], dtype=torch.float64),
        torch.ones(1, dtype=torch.bool),
        loss,
        WEIGHTS,
    )
    return upper(problem.bounded_sum(question, public, torch.from_numpy(theta)).numpy())


def worst_distance(question: Question, loss: Loss, adjacency: Adjacency, dimension: int) -> float:
    """Search for the largest change of the SUM over rows, targets and theta: corners, random points, hill climbing."""
    public = facts(1, dimension, loss, adjacency)
    draws = np.random.default_rng(7)

    def distance(point: tuple[np.ndarray, float, np.ndarray, float, np.ndarray]) -> float:
        x, y, other, other_y, theta = point
        first = term(question, public, loss, x, y, theta)
        if adjacency is Adjacency.ZERO_OUT:
            return float(np.linalg.norm(first))
        return float(np.linalg.norm(first - term(question, public, loss, other, other_y, theta)))

    def target() -> float:
        return float(draws.integers(0, 2)) if loss.kind == "logistic" else float(draws.normal() * 10)

    starts = [
        (
            draws.normal(size=dimension) * 10 ** draws.uniform(-1, 4),
            target(),
            draws.normal(size=dimension) * 10 ** draws.uniform(-1, 4),
            target(),
            draws.normal(size=dimension) * 10 ** draws.uniform(-5, 1),
        )
        for _ in range(60)
    ]
    axes = np.eye(dimension)
    flat = np.full(dimension, 50.0)
    targets = ((0.0, 1.0), (1.0, 1.0), (-50.0, 50.0), (50.0, 50.0), (0.0, 0.0))
    starts += [
        (axes[0] * scale, y, other * scale, other_y, theta / scale)
        for scale in (WEIGHT_BOUND, 1e3)
        for other in (axes[-1], -axes[0], axes[0])
        for y, other_y in targets
        for theta in (np.zeros(dimension), axes[0] * 50, -axes[0] * 50, flat)
    ]
    # Almost opposite gradients of rows nearly orthogonal to a far theta: their margins have opposite signs.
    tilt = 1e-3 * axes[0]
    near, across = (WEIGHT_BOUND * (axes[-1] + sign * tilt) / (1 + 1e-6) ** 0.5 for sign in (1, -1))
    starts += [(near, y, across, other_y, axes[0] * 1e6) for y, other_y in targets]
    found = sorted(((distance(start), index) for index, start in enumerate(starts)), reverse=True)
    best, where = found[0]
    point = starts[where]
    for step in np.geomspace(1.0, 1e-3, 60):
        x, y, other, other_y, theta = point
        moved = (
            x * (1 + step * draws.normal(size=dimension)),
            y,
            other * (1 + step * draws.normal(size=dimension)),
            other_y,
            theta + step * draws.normal(size=dimension),
        )
        if (value := distance(moved)) > best:
            best, point = value, moved
    return best


@each
@every_loss
@every_adjacency
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_sensitivity_is_never_passed_and_almost_reached(
    question: Question, loss: Loss, adjacency: Adjacency, dimension: int
) -> None:
    public = facts(1, dimension, loss, adjacency)
    claimed = question.sensitivity(public)
    found = worst_distance(question, loss, adjacency, dimension)
    assert found <= claimed * (1 + 1e-9)
    if dimension > 1:  # one direction leaves a logistic score no room: its sign is that of theta
        assert found >= 0.95 * claimed


@every_loss
def test_matrix_factor_one_would_be_seen(loss: Loss) -> None:
    """Planted bug: pricing matrices under replace_one as if a unit could only be zeroed."""
    question = Curvature(of="score", sigma=1.0)
    wrong = question.sensitivity(facts(1, 3, loss, Adjacency.ZERO_OUT))
    assert worst_distance(question, loss, Adjacency.REPLACE_ONE, 3) > 1.3 * wrong


@every_loss
def test_one_bound_in_place_of_two_would_be_seen(loss: Loss) -> None:
    """Planted bug: 2B -> B."""
    question = Gradient(sigma=1.0)
    wrong = question.sensitivity(facts(1, 3, loss, Adjacency.ZERO_OUT))
    assert worst_distance(question, loss, Adjacency.REPLACE_ONE, 3) > 1.8 * wrong


@each
@every_adjacency
def test_the_lattice_charges_at_least_the_sensitivity_and_little_more(question: Question, adjacency: Adjacency) -> None:
    for units in (1, 1000, 1_000_000):
        public = facts(units, 4, adjacency=adjacency)
        grid = grid_for(question, public, units)
        charged = grid.sensitivity * grid.step / units
        exact = question.sensitivity(public)
        assert exact / (1 - 2**-10) <= charged <= exact * 1.002


def test_sensitivities_in_closed_form() -> None:
    zero, one = (facts(1000, 4, adjacency=adjacency) for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE))
    assert Gradient(sigma=1).sensitivity(zero) == pytest.approx(sqrt(2) / 1000)
    assert Gradient(sigma=1).sensitivity(one) == pytest.approx(2 * sqrt(2) / 1000)
    assert Gradient(sigma=1, batch=10).sensitivity(one) == pytest.approx(2 * sqrt(2) / 10)
    assert Gradient(sigma=1, clip=0.1).sensitivity(one) == pytest.approx(0.2 / 1000)
    assert Curvature(of="hessian", sigma=1).sensitivity(zero) == pytest.approx(0.5 / 1000)
    assert Curvature(of="hessian", sigma=1).sensitivity(one) == pytest.approx(sqrt(2) * 0.5 / 1000)
    assert Curvature(of="score", sigma=1).sensitivity(one) == pytest.approx(sqrt(2) * 2 / 1000)


@each
def test_questions_survive_the_wire_and_cost_one_gaussian(question: Question) -> None:
    assert TypeAdapter(Question).validate_json(question.model_dump_json()) == question
    assert question.event() == Gaussian(sigma=1.0)


def test_no_curvature_bound_no_curvature_question() -> None:
    public = facts(10, 2).model_copy(update={"curvature_bound": None})
    with pytest.raises(AssertionError, match="bounds no curvature"):
        Curvature(of="hessian", sigma=1).sensitivity(public)
