"""Mistakes that the paper's own text and code invite: each is planted here and seen to fail by the test that guards it.

Those that are planted beside their guard are not repeated. They are 2B for B, one for the square root of two, matrices
averaged with their transpose, e^mu for e^epsilon, too small a budget for many steps, and a forgotten scale in Newton's
Hessian.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import sqrt
from unittest.mock import patch
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.inference.sandwich import correction
from core.losses.bases import AbstractRobust
from core.losses.categorical_torch import LogisticRecords
from core.losses.records import per_record
from core.losses.registry import Loss
from core.losses.robust_torch import HuberRecords
from core.losses.weights import Mallows, Weights
from core.mechanisms.generator import SimulationGenerator
from core.methods import fits as optimizers
from core.methods import lifecycle
from core.methods.base import Spec
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.methods.m_estimation.noisy_newton import fit as noisy_newton
from core.methods.m_estimation.noisy_newton.options import LineSearch
from core.methods.m_estimation.noisy_newton.rules import Searched
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton, NoisyNewtonPlan
from core.methods.registry import AnySpec
from core.oracle import Answer, Oracle, Release, Status, noise
from core.oracle.simulation import Simulation
from core.privacy.facts import Facts
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums import blocks
from studies.inference.coverage import JOINT
from studies.inference.designs import D1
from studies.inference.rates import JOINT_STEP
from studies.inference.stability import FIGURE_10
from studies.inference.studies import HUBER_OF_ONE, descent, newton, study
from tests.inference import test_sandwich
from tests.laws import test_losses, test_optimizers, test_weights
from tests.oracle import test_full
from tests.papers.inference import test_inference_paper, test_unit_table
from tests.support import studies
from tests.support.losses import ALL, WEIGHED, WEIGHTS, told
from tests.support.problems import LOGISTIC
from tests.support.studies import SCALE

Guard = Callable[[], object]
SCALED = [loss for loss in ALL if isinstance(loss, AbstractRobust)]
DESCENT, STOPPING_DESCENT, NEWTON, *_ = test_optimizers.EXAMPLES
autograd = test_losses.TestAgainstAutograd()
law = test_optimizers.TestEveryOptimizer()


def derivatives(loss: Loss, _: Weights) -> None:
    """Guard what no question asks about: Hessians of losses that are not convex."""
    test_losses.test_every_derivative_is_that_of_the_one_above(loss)


def seen(guard: Guard) -> None:
    """Fail unless the guard, which passes without the planted mistake, fails."""
    with pytest.raises(AssertionError):
        guard()


class TestLosses:
    def test_swapped_probabilities_in_the_logistic_loss(self) -> None:
        def swapped(_: LogisticRecords, margin: Tensor, target: Tensor) -> Tensor:
            return -target * torch.log(1 - torch.sigmoid(margin)) + (1 - target) * torch.log(torch.sigmoid(margin))

        with patch.object(LogisticRecords, "value", swapped):
            seen(partial(autograd.test_value, LOGISTIC))

    def test_the_gradient_of_the_swapped_loss(self) -> None:
        def swapped(_: LogisticRecords, margin: Tensor, target: Tensor) -> Tensor:
            chance = torch.sigmoid(margin)
            return target * chance + (1 - target) * (1 - chance)

        with patch.object(LogisticRecords, "score", swapped):
            seen(partial(autograd.test_gradient, LOGISTIC, WEIGHTS))

    @pytest.mark.parametrize("loss", SCALED, ids=told)
    def test_the_hessian_without_its_scale_and_the_gradient_with_one(self, loss: AbstractRobust) -> None:
        code = type(per_record(loss))
        for name, guard, power in (
            ("curvature", autograd.test_hessian if loss.weak_convexity == 0 else derivatives, 1),
            ("score", autograd.test_gradient, -1),
            ("score", autograd.test_outer_product_of_the_score, -1),
        ):
            genuine = getattr(code, name)

            def scaled(
                self: HuberRecords, margin: Tensor, target: Tensor, genuine: object = genuine, power: int = power
            ) -> Tensor:
                return genuine(self, margin, target) * self.scale**power  # type: ignore[operator, no-any-return] # a method

            with patch.object(code, name, scaled):
                seen(partial(guard, loss, WEIGHTS))

    @pytest.mark.parametrize("loss", WEIGHED, ids=told)
    def test_linear_weights_for_squared_ones(self, loss: object) -> None:
        def linear_weights(norms: Tensor, weights: Mallows) -> Tensor:
            return (weights.bound / norms).clamp(max=1.0)

        with patch.object(blocks, "record_weights", linear_weights):
            seen(partial(autograd.test_gradient, loss, WEIGHTS))  # the oracle clips Hessians to their bound in any case
        with patch.object(test_weights, "record_weights", linear_weights):
            seen(partial(test_weights.check_mallows, 1e3, 1.0))

    def test_a_curvature_bound_for_linear_weights(self) -> None:
        with patch.object(test_weights, "curvature_bound", lambda *_: 2.0):
            seen(test_weights.TestWeights().test_linear_mallows_weights_bound_no_curvature)


def multiplied(
    method: type[Spec], name: str, factor: Callable[[AnySpec], float]
) -> Callable[[AnySpec], tuple[Question, ...]]:
    """Return a method's questions with noise that many times as large."""
    genuine = getattr(method, name)

    def questions(self: AnySpec) -> tuple[Question, ...]:
        return tuple(one.model_copy(update={"sigma": one.sigma * factor(self)}) for one in genuine(self))

    return questions


def steps_of(settings: AnySpec) -> int:
    assert settings.steps is not None
    return settings.steps


class TestBudgets:
    @pytest.mark.parametrize(
        ("settings", "factor"),
        [
            pytest.param(DESCENT, lambda one: 1 / sqrt(steps_of(one)), id="sqrt(K) dropped"),
            pytest.param(DESCENT, lambda one: sqrt(steps_of(one) / (steps_of(one) + 2)), id="K for K + 2"),
        ],
    )
    def test_too_small_a_budget(self, settings: AnySpec, factor: Callable[[AnySpec], float]) -> None:
        method = type(settings)
        with ExitStack() as planted:
            for name in ("gradients", "curvatures") if method is NoisyNewtonPlan else ("questions",):
                planted.enter_context(patch.object(method, name, multiplied(method, name, factor)))
            seen(partial(law.test_is_worth_its_mu, settings))

    @pytest.mark.parametrize("less", [sqrt(2), sqrt(2 * steps_of(NEWTON))], ids=["sqrt(2K) to sqrt(K)", "dropped"])
    def test_less_noise_on_newtons_answers_than_was_paid_for(self, less: float) -> None:
        genuine = Simulation.ask

        def cheating(self: Simulation, question: Question, theta: Tensor) -> Answer:
            return genuine(self, question.model_copy(update={"sigma": question.sigma / less}), theta)

        with patch.object(Simulation, "ask", cheating):
            seen(partial(law.test_draws_at_most_its_price, NEWTON))

    @pytest.mark.parametrize("method", [NoisyGradientDescent, NoisyNewton])
    def test_k_for_k_plus_two_in_the_correction(self, method: type[Spec]) -> None:
        """Everything is paid in K + 2 equal shares, and the correction believes in K."""
        genuine = test_unit_table.iterate

        def believing(settings: AnySpec, oracle: Oracle) -> tuple[Estimate, Status]:
            estimate, status = genuine(settings, oracle)
            answers = steps_of(settings) * len(settings.questions())
            return replace(estimate, scale=estimate.scale * sqrt(answers / (answers + 2))), status

        with patch.object(test_unit_table, "iterate", believing):
            seen(partial(test_unit_table.test_the_correction_knows_the_noise_of_every_share, method, 6, 1000))

    @pytest.mark.parametrize("settings", [DESCENT, NEWTON], ids=lambda one: one.kind)
    def test_one_more_gradient_at_the_last_iterate(self, settings: AnySpec) -> None:
        def greedy(settings: AnySpec, oracle: Oracle) -> Release[Estimate]:
            estimate, status = optimizers.iterate(settings, oracle)
            oracle.ask(settings.questions()[0], estimate.theta)
            return oracle.release(estimate, status)

        with patch.object(test_optimizers, "fit", greedy):
            seen(partial(law.test_draws_at_most_its_price, settings))

    def test_an_early_stop_that_changes_the_reported_scale(self) -> None:
        genuine = test_optimizers.fit

        def cheaper(settings: AnySpec, oracle: Oracle) -> Release[Estimate]:
            release = genuine(settings, oracle)
            taken = release.value.steps / steps_of(settings)
            return replace(release, value=replace(release.value, scale=release.value.scale * sqrt(taken)))

        with patch.object(test_optimizers, "fit", cheaper):
            seen(test_optimizers.test_an_early_stop_never_changes_the_noise)

    def test_noise_for_the_steps_really_taken(self) -> None:
        """The noise of each answer is what would do if this step were the last."""
        genuine = Simulation.ask
        asked: WeakKeyDictionary[Simulation, int] = WeakKeyDictionary()  # by itself: others come to have its id

        def growing(self: Simulation, question: Question, theta: Tensor) -> Answer:
            asked[self] = asked.get(self, 0) + 1
            less = sqrt(min(1.0, asked[self] / steps_of(STOPPING_DESCENT)))
            return genuine(self, question.model_copy(update={"sigma": question.sigma * less}), theta)

        with patch.object(Simulation, "ask", growing):
            seen(test_optimizers.test_an_early_stop_never_changes_the_noise)
            asked.clear()
            seen(partial(law.test_draws_at_most_its_price, DESCENT))


def exact(of: str) -> Callable[[Simulation, Question, Tensor], Answer]:
    """Return an oracle's `ask` that forgets the noise on one kind of matrix and says nothing."""
    genuine = Simulation.ask

    def ask(self: Simulation, question: Question, theta: Tensor) -> Answer:
        answer = genuine(self, question, theta)
        if not (isinstance(question, Curvature) and question.of == of):
            return answer
        tiny = question.model_copy(update={"sigma": 1e-9})
        return Answer(genuine(self, tiny, theta).value, answer.scale)

    return ask


class TestMatrices:
    @pytest.mark.parametrize("of", ["hessian", "score"], ids=["M", "Q"])
    def test_a_matrix_of_the_sandwich_without_noise(self, of: str) -> None:
        with patch.object(Simulation, "ask", exact(of)):
            seen(test_sandwich.test_both_matrices_are_noised_by_their_questions)

    @pytest.mark.parametrize("name", ["noise_vector", "noise_symmetric"], ids=["gradients", "matrices"])
    def test_a_oracle_that_adds_no_noise(self, name: str) -> None:
        def nothing(_generator: object, _parameter: float, size: int) -> np.ndarray:
            return np.zeros(size if name == "noise_vector" else (size, size), dtype=np.int64)

        with patch.object(noise, name, nothing):
            seen(partial(test_full.check_noise, *test_full.LAWS[0 if name == "noise_vector" else 2]))

    def test_hessians_asked_for_with_less_noise_than_was_paid_for(self) -> None:
        genuine = Simulation.ask

        def cheating(self: Simulation, question: Question, theta: Tensor) -> Answer:
            less = 1.0 if isinstance(question, Gradient) else 1e-3
            return genuine(self, question.model_copy(update={"sigma": question.sigma * less}), theta)

        with patch.object(Simulation, "ask", cheating):
            seen(partial(law.test_draws_at_most_its_price, NEWTON))

    def test_no_floor_under_newtons_hessians(self) -> None:
        def bare(mu: float, steps: int, damping: float) -> NoisyNewtonPlan:
            return genuine(mu, steps, damping).model_copy(update={"eigenvalue_floor": 1e-12})

        genuine = test_inference_paper.newton
        with patch.object(test_inference_paper, "newton", bare):
            seen(partial(test_inference_paper.TestCoverage().test_newton, 1.0, 1000, 17))

    @pytest.mark.parametrize("name", ["curvature_floor", "score_floor"], ids=["M", "Q"])
    def test_no_floor_under_a_matrix_of_the_sandwich(self, name: str) -> None:
        genuine = test_unit_table.infer

        def bare(inference: object, estimate: Estimate, oracle: Oracle) -> object:
            return genuine(inference.model_copy(update={name: -1e9}), estimate, oracle)  # type: ignore[attr-defined] # Inference

        with patch.object(test_unit_table, "infer", bare):
            seen(test_unit_table.test_matrices_drowned_in_noise_are_floored)


class TestCorrections:
    """Each is seen by the formulas; the first, by coverage as well."""

    def test_the_scale_squared_dropped(self) -> None:
        def unscaled(kind: str, estimate: Estimate, curvature: Tensor) -> Tensor:
            hessian = None if estimate.hessian is None else estimate.hessian * SCALE
            return correction(kind, replace(estimate, hessian=hessian), curvature * SCALE)  # type: ignore[arg-type] # a kind

        with patch.object(studies, "correction", unscaled):
            seen(partial(test_inference_paper.TestCoverage().test_newton, 0.5, 1000, 17))

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param(lambda one: replace(one, step=1.0), id="the step dropped"),
            pytest.param(lambda one: replace(one, steps=one.steps + 2), id="K + 2 for K"),
        ],
    )
    def test_of_gradient_descent(self, wrong: Callable[[Estimate], Estimate]) -> None:
        def mistaken(kind: str, estimate: Estimate, curvature: Tensor) -> Tensor:
            return correction(kind, wrong(estimate), curvature)  # type: ignore[arg-type] # a kind

        with patch.object(test_sandwich, "correction", mistaken):
            seen(test_sandwich.test_gradient_descent_formulas)

    def test_twice_one_steps_variance_for_the_stationary_one(self) -> None:
        def rule_of_thumb(kind: str, estimate: Estimate, curvature: Tensor) -> Tensor:
            return correction("printed" if kind == "stationary" else kind, estimate, curvature)  # type: ignore[arg-type] # a kind

        with patch.object(test_sandwich, "correction", rule_of_thumb):
            seen(test_sandwich.test_gradient_descent_formulas)
            seen(partial(test_sandwich.test_newton_formulas, 0.5))


class TestSearchAndScale:
    """The payments of a line search, and the floor under an unknown scale."""

    RULE = LineSearch(evaluations=3, shrink=0.5, alpha=0.4, share=0.5)

    def comparisons_stay_within_their_number(self) -> None:
        """Five comparisons are needed to shorten the first step enough, and three may be asked."""
        made = study(FIGURE_10.linear(SimulationGenerator(21), 2000), HUBER_OF_ONE)
        settings = newton(8, 1.0, 2.0, floor=1e-9, start=(4.0, -2.0, 0.0, 4.0))
        settings = settings.model_copy(update={"line_search": self.RULE})
        asked = []
        oracle = made.oracle(2, noiseless=True, replicates=1)  # replicates report that they diverge, and go on
        genuine = oracle.ask

        def counting(question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
            asked.append(isinstance(question, Secant))
            return genuine(question, theta, other)

        with patch.object(Simulation, "ask", lambda _, *given: counting(*given)):
            optimizers.iterate(settings, oracle)
        assert sum(asked) == self.RULE.evaluations, "each comparison is one of those that were priced"

    def test_every_comparison_of_a_line_search_is_counted(self) -> None:
        self.comparisons_stay_within_their_number()

    def test_a_last_comparison_that_is_not_counted(self) -> None:
        genuine = noisy_newton.search

        def uncounted(*given: object) -> Searched:
            found: Searched = genuine(*given)  # type: ignore[arg-type] # whatever it takes
            before: Searched = given[-1]  # type: ignore[assignment] # where it stood
            return replace(found, evaluations=torch.maximum(found.evaluations - 1, before.evaluations))

        with patch.object(noisy_newton, "search", uncounted):
            seen(self.comparisons_stay_within_their_number)

    def scales_stay_above_their_floor(self) -> None:
        made = study(D1.linear(SimulationGenerator(5), 200, 100), JOINT)
        estimate, _ = optimizers.iterate(descent(30, JOINT_STEP, 0.3), made.oracle(6))
        assert made.facts.scale is not None
        assert estimate.theta[:, -1].min() >= made.facts.scale.floor

    def test_scales_stay_above_their_floor(self) -> None:
        self.scales_stay_above_their_floor()

    def test_no_floor_under_an_unknown_scale(self) -> None:
        def bare(_: Facts, theta: Tensor) -> tuple[Tensor, Tensor]:
            return theta, torch.zeros(theta.shape[:-1], dtype=torch.bool)

        with patch.object(lifecycle, "above_floor", bare):
            seen(self.scales_stay_above_their_floor)
