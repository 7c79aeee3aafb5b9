"""The least eigenvalue by products alone, against dense matrices and saddles that are known."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from studies.second_order.curvature import hessian_product, least_by_power, least_eigenvalue
from studies.second_order.populations import EggCarton, PrincipalComponent


def symmetric(seed: int, size: int = 200) -> Tensor:
    drawn = SimulationGenerator(seed).normal(size, size)
    return (drawn + drawn.mT) / 2


def slope(loss: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    place = theta.clone().requires_grad_()
    loss(place).backward()
    assert place.grad is not None
    return place.grad


@pytest.mark.parametrize("seed", range(5))
def test_random_matrices(seed: int) -> None:
    matrix = symmetric(seed)
    exact = float(torch.linalg.eigvalsh(matrix)[0])
    assert least_eigenvalue(lambda vector: matrix @ vector, 200) == pytest.approx(exact, rel=1e-3)
    assert least_by_power(lambda vector: matrix @ vector, 200, precision=1e-7) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_few_dimensions(size: int) -> None:
    matrix = symmetric(7, size)
    exact = float(torch.linalg.eigvalsh(matrix)[0])
    assert least_eigenvalue(lambda vector: matrix @ vector, size) == pytest.approx(exact, abs=1e-9)


def test_saddles() -> None:
    component = PrincipalComponent((1.0, 0.5, *[0.05] * 18), 1, radius=1.1)
    carton = EggCarton(10, 1, tau=0.5, sigma=0.3)
    for law, point in (
        (component, component.stationary(1)),
        (component, component.stationary(0)),
        (component, component.stationary(1) + 0.1),
        (carton, carton.saddle(3) + 0.2),
    ):
        product, exact = hessian_product(law.excess, point), float(law.least_curvature(point))
        assert least_eigenvalue(product, law.dimension) == pytest.approx(exact, abs=1e-6)
        assert least_by_power(product, law.dimension, precision=1e-8) == pytest.approx(exact, abs=1e-6)


def test_a_network_that_starts_at_zero_sits_on_a_known_saddle() -> None:
    """K1: one hidden layer of tanh without biases, squared loss: gradient 0, least curvature -|E[y x]|."""
    draws = SimulationGenerator(12)
    x, hidden = draws.normal(400, 6), 5
    y = torch.tanh(x[:, 0] - x[:, 1])

    def loss(theta: Tensor) -> Tensor:
        inner, outer = theta[: 6 * hidden].view(hidden, 6), theta[6 * hidden :]
        return ((torch.tanh(x @ inner.mT) @ outer - y) ** 2).mean() / 2

    zero = torch.zeros(7 * hidden, dtype=torch.float64)
    assert float(slope(loss, zero).abs().max()) == 0
    exact = -float(torch.linalg.vector_norm((y[:, None] * x).mean(0)))
    product = hessian_product(loss, zero)
    assert least_eigenvalue(product, 7 * hidden) == pytest.approx(exact, rel=1e-6)
    assert least_by_power(product, 7 * hidden, precision=1e-9) == pytest.approx(exact, rel=1e-6), (
        "the largest is there on both sides"
    )


def test_balanced_classes_too() -> None:
    """K1: softmax cross-entropy over balanced classes: -sigma_max(E[(e_y - 1/K) x^T])."""
    draws = SimulationGenerator(13)
    labels = torch.arange(300) % 3
    x = draws.normal(300, 5) + torch.nn.functional.one_hot(labels, 5).double()

    def loss(theta: Tensor) -> Tensor:
        inner, outer = theta[:20].view(4, 5), theta[20:].view(3, 4)
        scores = torch.tanh(x @ inner.mT) @ outer.mT
        return torch.nn.functional.cross_entropy(scores, labels)

    zero = torch.zeros(32, dtype=torch.float64)
    target = torch.nn.functional.one_hot(labels, 3).double() - 1 / 3
    exact = -float(torch.linalg.matrix_norm((target.mT @ x) / 300, ord=2))
    assert float(slope(loss, zero).abs().max()) < 1e-15
    product = hessian_product(loss, zero)
    assert least_eigenvalue(product, 32) == pytest.approx(exact, rel=1e-6)
    assert least_by_power(product, 32, precision=1e-9) == pytest.approx(exact, rel=1e-6)


def test_no_convergence_is_told() -> None:
    with pytest.raises(ArithmeticError, match="no eigenvalue within"):
        least_by_power(lambda vector: torch.stack([vector[1], -vector[0]]), 2)  # a rotation has no eigenvalue
