"""Laws that every loss obeys; a new one joins by one line in `LOSSES`."""

from math import isclose, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.catalogue.losses import Huber, Logistic, Loss, Mallows, curvature_bound, gradient_bound
from core.catalogue.questions import Curvature, Gradient
from core.problems.linear import LinearProblem
from core.problems.losses import per_record, record_weights
from tests.support.problems import LOSSES, facts, rows

T = sqrt(2)
WEIGHTS = Mallows(bound=T)
ALL = [*LOSSES, Huber(scale=2.5, c=0.9)]
every_loss = pytest.mark.parametrize("loss", ALL, ids=lambda loss: f"{loss.kind}-{getattr(loss, 'scale', '')}")


def test_closed_forms_of_the_constants() -> None:
    huber = Huber(scale=1.0)
    assert isclose(huber.kappa, 0.7101645, abs_tol=1e-7)
    assert isclose(gradient_bound(huber, WEIGHTS), 1.9021172, abs_tol=1e-7)
    assert isclose(2 * gradient_bound(huber, WEIGHTS), 3.8042345, abs_tol=1e-7)
    assert isclose(curvature_bound(Huber(scale=2.0), WEIGHTS), 1.0, abs_tol=1e-12)
    assert isclose(gradient_bound(Logistic(), WEIGHTS), T, abs_tol=1e-12)
    assert isclose(curvature_bound(Logistic(), WEIGHTS), 0.5, abs_tol=1e-12)


def weighted_loss(loss: Loss, theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of weighted losses, written with elementary functions only: an independent formula."""
    margin = x @ theta
    weight = torch.minimum(torch.ones(()), T**2 / (x**2).sum(-1))
    if isinstance(loss, Logistic):
        each = torch.log(1 + torch.exp(margin)) - y * margin
    else:
        residual = (y - margin) / loss.scale
        inside = residual.abs() <= loss.c
        each = loss.scale * torch.where(inside, residual**2 / 2, loss.c * residual.abs() - loss.c**2 / 2)
    return (each * weight).sum()


@every_loss
class TestAgainstAutograd:
    def test_gradient(self, loss: Loss) -> None:
        x, y, present = rows(300, 4, loss, seed=3)
        theta = torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64, requires_grad=True)
        (expected,) = torch.autograd.grad(weighted_loss(loss, theta, x, y), theta)
        problem = LinearProblem(x.clone(), y, present, loss, WEIGHTS)
        found = problem.bounded_sum(Gradient(sigma=1), facts(300, 4, loss), theta.detach())
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)

    def test_hessian(self, loss: Loss) -> None:
        x, y, present = rows(300, 4, loss, seed=4)
        theta = torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64)
        expected = torch.autograd.functional.hessian(lambda point: weighted_loss(loss, point, x, y), theta)
        problem = LinearProblem(x.clone(), y, present, loss, WEIGHTS)
        found = problem.bounded_sum(Curvature(of="hessian", sigma=1), facts(300, 4, loss), theta)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
        assert torch.equal(found, found.mT)

    def test_outer_product_of_the_score(self, loss: Loss) -> None:
        x, y, present = rows(40, 3, loss, seed=5)
        theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
        each = [torch.autograd.grad(weighted_loss(loss, theta, x[[i]], y[[i]]), theta)[0] for i in range(40)]
        expected = sum(torch.outer(gradient, gradient) for gradient in each)
        problem = LinearProblem(x.clone(), y, present, loss, WEIGHTS)
        found = problem.bounded_sum(Curvature(of="score", sigma=1), facts(40, 3, loss), theta.detach())
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)

    def test_value(self, loss: Loss) -> None:
        x, y, _ = rows(50, 3, loss, seed=6)
        theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
        found = (per_record(loss).value(x @ theta, y) * record_weights(x.norm(dim=-1), WEIGHTS)).sum()
        torch.testing.assert_close(found, weighted_loss(loss, theta, x, y), rtol=1e-10, atol=1e-12)


@every_loss
@given(
    margin=st.floats(-1e300, 1e300),
    label=st.booleans(),
    level=st.floats(-1e300, 1e300),
)
@settings(max_examples=200, deadline=None)
def test_derivatives_stay_within_their_public_bounds(loss: Loss, margin: float, label: bool, level: float) -> None:
    target = torch.tensor([float(label) if isinstance(loss, Logistic) else level], dtype=torch.float64)
    at = torch.tensor([margin], dtype=torch.float64)
    code = per_record(loss)
    slope = 1.0 if isinstance(loss, Logistic) else loss.c
    bend = 0.25 if isinstance(loss, Logistic) else 1 / loss.scale
    assert abs(code.score(at, target).item()) <= slope
    assert 0 <= code.curvature(at, target).item() <= bend * (1 + 1e-15)  # the lattice charges for roundings


@given(exponent=st.floats(-300, 120), t=st.floats(1e-3, 1e3))
@settings(max_examples=300, deadline=None)
def test_mallows_weights_bound_every_norm(exponent: float, t: float) -> None:
    norm = torch.tensor([10.0**exponent], dtype=torch.float64)
    weight = record_weights(norm, Mallows(bound=t))
    assert 0 <= weight.item() <= 1
    assert (weight * norm).item() <= t * (1 + 1e-12)
    assert (weight * norm).item() * norm.item() <= t**2 * (1 + 1e-12)
    if norm.item() <= t:
        assert weight.item() == 1.0


def test_linear_mallows_weights_would_bound_no_curvature() -> None:
    """W1 = min(1, t/|x|) in place of W2: the check above sees it (mutation of the validation plan)."""
    norm = torch.tensor([1e6], dtype=torch.float64)
    linear = (T / norm).clamp(max=1.0)
    assert (linear * norm).item() <= T * (1 + 1e-12)
    assert (linear * norm * norm).item() > 1000 * T**2


def test_an_open_scale_is_refused() -> None:
    with pytest.raises(AssertionError, match="scale"):
        per_record(Huber())
