"""Avella-Medina, Bradshaw and Loh (2023): rates, noise floors and the price of privacy (S3 to S6, S18 and S19).

Data and noise seeds are fixed, so a verdict repeats. Slopes of medians over 60 to 200 data sets have standard errors of
.02 to .03, so a band of .1 is left with a probability below 1e-3 at other seeds. S18's shares are binomial with a mean
of .999 or more, and 2 % of 500 is passed with less than 1e-8.
"""

from math import log

import numpy as np
import pytest
import torch
from torch import Tensor

from core.losses.categorical import Logistic
from core.losses.robust import OstrovskiiBach
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_newton.options import GradientStartPlan
from core.queries.gradients import Curvature
from studies.inference.designs import D1, D2, D3
from studies.inference.rates import arrived, many_data_sets
from studies.inference.studies import KNOWN, Study, descent, log_gradients, newton, path, study

WARM = {"steps": 38, "warm_start": GradientStartPlan(steps=30, step_size=1.0)}
EXACT = newton(8, 1.0, 1.0, floor=1e-9).model_copy(update=WARM)
"""Steps without noise to the minimiser: pure Newton steps converge from where thirty gradient steps lead."""


def data_sets(units: int, replicates: int, seed: int = 41) -> Study:
    return study(D1.linear(SimulationGenerator(seed), replicates, units), KNOWN)


def minimisers(made: Study) -> Tensor:
    return iterate(EXACT, made.oracle(0, noiseless=True))[0].theta


def distances(made: Study, answers: Tensor, steps: int, mu: float) -> Tensor:
    theta = iterate(descent(steps, 1.0, mu), made.oracle(7))[0].theta
    return torch.linalg.vector_norm(theta - answers, dim=-1)


def slope(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


class TestRatesWithoutNoise:
    """S3."""

    def test_gradient_descent_contracts_by_the_smallest_curvature(self) -> None:
        made = study(D1.linear(SimulationGenerator(3), 1000), KNOWN)
        logs = log_gradients(made, path(descent(200, 1.0, 1.0), made, 1, noiseless=True))[:, 0]
        answer = iterate(EXACT, made.oracle(0, noiseless=True))[0].theta
        hessian = made.oracle(0, noiseless=True).ask(Curvature(of="hessian", sigma=1.0), answer).value
        contraction = log(1 - float(torch.linalg.eigvalsh(hessian)[0]))
        assert float(logs[180] - logs[120]) / 60 == pytest.approx(contraction, rel=0.02)

    def test_damped_newton_contracts_by_its_damping(self) -> None:
        made = study(D1.linear(SimulationGenerator(3), 1000), KNOWN)
        logs = log_gradients(made, path(newton(35, 0.25, 1.0), made, 1, noiseless=True))[:, 0]
        assert float(logs[34] - logs[20]) / 14 == pytest.approx(log(0.75), rel=0.02)

    @pytest.mark.parametrize("loss", ["ostrovskii_bach", "logistic"])
    def test_pure_newton_is_quadratic(self, loss: str) -> None:
        """Not Huber's loss: there it ends in finitely many steps."""
        generator = SimulationGenerator(5)
        if loss == "logistic":
            made, start = study(D3.logistic(generator, 1000), Logistic()), (0.0,) * 4
        else:
            made, start = study(D1.linear(generator, 1000), OstrovskiiBach(c=1.0, scale=2.0)), (0.6,) * 4
        logs = log_gradients(made, path(newton(8, 1.0, 1.0, floor=1e-9, start=start), made, 1, noiseless=True))[:, 0]
        last = int((logs > log(1e-12)).nonzero()[-1])
        order = float((logs[last] - logs[last - 1]) / (logs[last - 1] - logs[last - 2]))
        assert 1.8 < order < 2.2


class TestNoiseFloor:
    """S4: the distance to the non-private estimate goes as sqrt(K)/(mu n)."""

    def test_falls_as_one_over_n(self) -> None:
        sizes = [1000, 2000, 4000, 8000]
        seen = []
        for units in sizes:
            made = data_sets(units, 60)
            seen.append(float(distances(made, minimisers(made), 60, 1.0).median()))
        assert slope(sizes, seen) == pytest.approx(-1, abs=0.1), f"{seen}; -1/2 would be the noise of the data"

    def test_falls_as_one_over_mu(self) -> None:
        made = data_sets(2000, 60)
        answers, budgets = minimisers(made), [0.5, 1.0, 2.0]
        seen = [float(distances(made, answers, 60, mu).median()) for mu in budgets]
        assert slope(budgets, seen) == pytest.approx(-1, abs=0.1)

    def test_grows_as_the_square_root_of_the_steps(self) -> None:
        """And with sqrt(K) dropped, planted, it does not."""
        made = data_sets(2000, 60)
        answers, steps = minimisers(made), [60, 120, 240, 400]
        seen = [float(distances(made, answers, count, 1.0).median()) for count in steps]
        assert slope(steps, seen) == pytest.approx(0.5, abs=0.1)
        dropped = [float(distances(made, answers, count, count**0.5).median()) for count in (60, 240)]
        assert abs(slope([60, 240], dropped)) < 0.1

    def test_too_few_steps_are_as_bad_as_too_many(self) -> None:
        """S19."""
        made = data_sets(1000, 100)
        answers = minimisers(made)
        seen = [float(distances(made, answers, count, 1.0).median()) for count in (10, 30, 60, 200)]
        assert min(seen[1:3]) < 0.8 * min(seen[0], seen[3])


class TestStepsToTheFloor:
    """S5: Newton needs at most 8 steps, gradient descent 40 to 80, for 9 of 10 seeds: to where half of the last are.

    The paper's figure is of one data set of D1. From zero, exact pure Newton steps converge on one in twelve, on few of
    these for nine of ten seeds of the noise. The test thus uses one of those, which ten seeds had found and these fifty
    others confirm. It also uses any data set from where steps converge.
    """

    WORTH = 2 / 18**0.5 * (2 * 60) ** 0.5

    @staticmethod
    def steps(made: Study, settings: object, seed: int = 5) -> Tensor:
        logs = log_gradients(made, path(settings, made, seed))  # type: ignore[arg-type] # AnySpec
        return (logs < logs[-40:].mean(0)).double().argmax(0)

    def test_newton_as_in_the_figure(self) -> None:
        records, targets = D1.linear(SimulationGenerator(12), 400, 1000)
        one = study((records[127].expand(50, -1, -1), targets[127].expand(50, -1)), KNOWN)
        steps = newton(60, 1.0, self.WORTH)
        assert (self.steps(one, steps) <= 8).double().mean() >= 0.9
        exact = log_gradients(one, path(newton(8, 1.0, 1.0, floor=1e-9), one, 1, noiseless=True))
        assert exact[-1, 0] < -7, "and without noise it arrives"

    def test_newton_from_where_it_converges(self) -> None:
        for made, start in (
            (study(D2.linear(SimulationGenerator(6), 100, 1000), KNOWN), 0.0),
            (data_sets(1000, 100), 0.5),
        ):
            assert (self.steps(made, newton(60, 1.0, self.WORTH, start=(start,) * 4)) <= 8).double().mean() >= 0.9

    def test_gradient_descent(self) -> None:
        steps = self.steps(data_sets(1000, 100), descent(140, 0.499, 2 / 82**0.5 * 140**0.5))
        assert ((steps >= 40) & (steps <= 80)).double().mean() >= 0.9

    def test_pure_newton_from_zero_arrives_on_few_data_sets(self) -> None:
        _, share = arrived(many_data_sets(200), newton(12, 1.0, 1.0), noiseless=True)
        assert 0.02 < share < 0.15


def test_privacy_costs_less_than_sampling_as_records_grow() -> None:
    """S6."""
    ratios = []
    for units in (1000, 2000, 4000):
        made = data_sets(units, 200 if units < 4000 else 100)
        answers = minimisers(made)
        sampling = torch.linalg.vector_norm(answers - D1.parameters(), dim=-1)
        ratios.append(float((distances(made, answers, 60, 1.0) / sampling).median()))
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 0.7


def test_distances_are_those_the_theorem_allows() -> None:
    """S18: within 2.5 and beyond .25 stationary standard deviations, in 98 % of 500 noise draws."""
    made = study(D1.linear(SimulationGenerator(1), 1000), KNOWN)
    answer = iterate(EXACT, made.oracle(0, noiseless=True))[0].theta
    estimate, _ = iterate(descent(100, 1.0, 1.0, start=tuple(answer.tolist())), made.oracle(8, replicates=500))
    hessian = made.oracle(0, noiseless=True).ask(Curvature(of="hessian", sigma=1.0), answer).value
    values = torch.linalg.eigvalsh(hessian)
    deviation = float((float(estimate.scale) ** 2 / (1 - (1 - values) ** 2)).sum().sqrt())
    away = torch.linalg.vector_norm(estimate.theta - answer, dim=-1)
    assert (away <= 2.5 * deviation).double().mean() >= 0.98
    assert (away > 0.25 * deviation).double().mean() >= 0.98
