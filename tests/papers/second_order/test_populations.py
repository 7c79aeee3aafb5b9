"""Laws with known saddles: their gradients, constants and Hessians, each against another way to have it.

Means of 200,000 records are compared within 5 standard errors, at fixed seeds.
"""

import pytest
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.queries.gradients import Gradient, GradientDifference
from studies.second_order.curvature import hessian_product
from studies.second_order.populations import EggCarton, PrincipalComponent, SaddlePopulation
from tests.support.problems import facts

LAWS: dict[str, SaddlePopulation] = {
    "principal component": PrincipalComponent((1.0, 0.5, 0.2, 0.05), 1000, radius=1.1),
    "egg carton": EggCarton(4, 1000, tau=0.5, sigma=0.3),
}


def points(count: int, seed: int = 3) -> Tensor:
    """Points inside both regions."""
    drawn = SimulationGenerator(seed).normal(count, 4)
    return drawn / torch.linalg.vector_norm(drawn, dim=-1, keepdim=True) * torch.linspace(0.1, 1.1, count)[:, None]


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
class TestLaws:
    def test_gradients_average_to_the_mean_gradient(self, law: SaddlePopulation) -> None:
        theta = points(3)[2]
        found = law.gradients(theta.expand(1, 4), 200_000, SimulationGenerator(1))[0]
        error = (found.mean(0) - law.mean_gradient(theta)).abs()
        assert (error <= 5 * found.std(0) / 200_000**0.5 + 1e-12).all()

    def test_the_mean_gradient_is_that_of_the_expected_loss(self, law: SaddlePopulation) -> None:
        theta = points(2)[1]
        product = hessian_product(law.excess, theta)
        hessian = torch.stack([product(axis) for axis in torch.eye(4, dtype=torch.float64)])
        place = theta.clone().requires_grad_()
        law.excess(place).backward()
        assert place.grad is not None
        assert torch.allclose(place.grad, law.mean_gradient(theta), atol=1e-12)
        assert torch.allclose(hessian, law.mean_hessian(theta), atol=1e-12)

    def test_constants_hold_and_are_nearly_reached(self, law: SaddlePopulation) -> None:
        """A tenth less, planted, would be seen for all but rho, which no random pair reaches."""
        told = law.smoothness()
        many = points(60)
        near = many + 1e-5 * SimulationGenerator(8).normal(60, 4)
        slopes, bends = [], []
        for before, after in zip(many, near, strict=True):
            one, other = law.gradient_pairs(before[None], after[None], 512, SimulationGenerator(5))
            slopes.append(float(torch.linalg.vector_norm(one, dim=-1).max()))
            apart = torch.linalg.vector_norm(after - before)
            bends.append(float((torch.linalg.vector_norm(other - one, dim=-1) / apart).max()))
        assert max(slopes) <= told.lipschitz
        assert max(bends) <= told.smoothness
        hessians = law.mean_hessian(near) - law.mean_hessian(many)
        turned = torch.linalg.matrix_norm(hessians, ord=2) / torch.linalg.vector_norm(near - many, dim=-1)
        assert float(turned.max()) <= told.hessian_smoothness

    def test_pairs_are_about_the_same_records(self, law: SaddlePopulation) -> None:
        theta = points(2)[1].expand(1, 4)
        one, other = law.gradient_pairs(theta, theta, 100, SimulationGenerator(2))
        assert torch.equal(one, other)

    def test_streams_answer_about_them(self, law: SaddlePopulation) -> None:
        question = Gradient(sigma=1.0, batch=1000, clip=10.0)
        public = facts(law.units, law.dimension)
        assert question.bound(public) > law.smoothness().lipschitz, "nothing is cut"
        theta = points(2)[1]
        answer = law.batch_sum(question, public, theta, SimulationGenerator(4)) / 1000
        assert torch.allclose(answer[0], law.mean_gradient(theta), atol=0.2)
        change = GradientDifference(sigma=1.0, batch=1000, clip=10.0, cap=1e-3)
        moved = law.batch_sum(change, public, theta, SimulationGenerator(4), other=theta + 1.0)
        assert float(torch.linalg.vector_norm(moved)) <= 1000 * 1e-3 * (1 + 1e-12)


class TestStationaryPoints:
    def test_of_the_principal_component(self) -> None:
        law = LAWS["principal component"]
        assert isinstance(law, PrincipalComponent)
        for number, curvature in enumerate((0.5, -0.5, -0.8, -0.95)):
            point = law.stationary(number)
            assert torch.allclose(law.mean_gradient(point), torch.zeros(4, dtype=torch.float64), atol=1e-15)
            assert float(law.least_curvature(point)) == pytest.approx(curvature, abs=1e-12)
        assert float(law.excess(law.stationary(0))) == pytest.approx(0, abs=1e-15)
        origin = torch.zeros(4, dtype=torch.float64)
        assert float(law.least_curvature(origin)) == -1.0

    def test_of_the_egg_carton(self) -> None:
        law = LAWS["egg carton"]
        assert isinstance(law, EggCarton)
        for index in range(5):
            point = law.saddle(index)
            assert float(law.mean_gradient(point).abs().max()) < 1e-15
            assert float(law.least_curvature(point)) == (1.0 if index == 0 else -1.0)
            assert float(law.excess(point)) == pytest.approx(2 * index)


def test_constants_of_the_specified_instance() -> None:
    law = PrincipalComponent((1.0, 0.5, *[0.05] * 18), 1000, radius=1.1)
    told = law.smoothness()
    assert (told.lipschitz, told.smoothness, told.hessian_smoothness) == pytest.approx((3.971, 6.03, 6.6), abs=1e-9)
