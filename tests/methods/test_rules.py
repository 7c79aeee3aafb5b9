"""Step rules, warm starts and the line search: their answers without noise, their prices, and their replicates."""

from collections import Counter
from math import log1p, sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.optimize import root
from torch import Tensor

from core.base.errors import Invalid
from core.losses.registry import Loss
from core.losses.robust import Huber, LogCosh, SmoothedHuber
from core.losses.weights import Mallows
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import fit, iterate
from core.methods.m_estimation.noisy_newton import rules as newton_rules
from core.methods.m_estimation.noisy_newton.options import GradientStartPlan, LineSearch, NewtonOptions, RidgeStartPlan
from core.methods.m_estimation.noisy_newton.rules import LocalAnswers, local, near
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton, NoisyNewtonPlan
from core.oracle import Answer
from core.oracle.filters import ORDERS, CountingFilter
from core.oracle.simulation import Simulation
from core.privacy.events import compose
from core.privacy.facts import Facts
from core.privacy.renyi import cost_nano
from core.queries.gradients import Question, Secant
from core.queries.sums.linear import LinearProblem
from tests.laws.test_optimizers import newton
from tests.support.problems import WEIGHTS, facts, rows

UNITS, DIMENSION = 1500, 3
SMOOTH = LogCosh(scale=0.7)
STEEP = SmoothedHuber(scale=0.7)
CUBED = Mallows(bound=sqrt(2), power=3)
SEARCH = LineSearch(evaluations=12, share=0.3)


def public(loss: Loss = SMOOTH, weights: Mallows = WEIGHTS, ridge: float = 0.0) -> Facts:
    known = {
        "concordance": None if loss.concordance is None else 5 * loss.concordance,  # no row is longer than 5
        "third_derivative": loss.lipschitz if isinstance(loss, SmoothedHuber) else None,
        "ridge": ridge,
    }
    return facts(UNITS, DIMENSION, loss, weights=weights).model_copy(update=known)


def simulation(
    loss: Loss = SMOOTH, weights: Mallows = WEIGHTS, ridge: float = 0.0, *, seed: int = 1, **more: object
) -> Simulation:
    data = LinearProblem(*rows(UNITS, DIMENSION, loss), loss, weights)
    return Simulation(data, public(loss, weights, ridge), SimulationGenerator(seed), **more)  # type: ignore[arg-type]  # a test's keywords


def minimum(loss: Loss, weights: Mallows, ridge: float) -> np.ndarray:
    """Return the zero of the penalised gradient by an independent solver."""
    features, target, _ = (part.numpy() for part in rows(UNITS, DIMENSION, loss))
    weighted = np.minimum(1.0, np.linalg.norm(features, axis=1) ** -weights.power * weights.bound**weights.power)

    def psi(r: np.ndarray) -> np.ndarray:
        if isinstance(loss, LogCosh):
            return loss.c * np.tanh(r / loss.c)
        assert isinstance(loss, SmoothedHuber)
        over = np.clip((np.abs(r) - loss.c) / loss.h, 0, 1)
        return np.where(over > 0, np.sign(r) * (loss.c + loss.h * (over - over**3 + over**4 / 2)), r)

    def slope(theta: np.ndarray) -> np.ndarray:
        return -features.T @ (weighted * psi((target - features @ theta) / loss.scale)) / UNITS + ridge * theta

    found = root(slope, np.linspace(-1, 1, DIMENSION), tol=1e-12)
    return np.asarray(found.x)


LONG = {"steps": 60, "eigenvalue_floor": 1e-5}


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize(
    ("options", "loss", "weights"),
    [
        ({"step_rule": "adaptive"}, SMOOTH, WEIGHTS),
        ({"step_rule": "switching", "damping": 0.3, "damped_steps": 40}, SMOOTH, WEIGHTS),
        ({"step_rule": "switching", "damping": 0.3, "damped_steps": 40, "lipschitz_share": 0.1}, STEEP, CUBED),
        ({"warm_start": RidgeStartPlan(ridge=0.3, damping=0.2, steps=40)}, SMOOTH, WEIGHTS),
        ({"warm_start": RidgeStartPlan(ridge=0.3, damping=0.2, steps=40)}, STEEP, WEIGHTS),
        ({"warm_start": GradientStartPlan(steps=20, step_size=0.3, share=0.2), "hessians": 40}, SMOOTH, WEIGHTS),
        ({"line_search": SEARCH}, SMOOTH, WEIGHTS),
    ],
    ids=["adaptive", "switching", "lipschitz", "ridge", "ridge without concordance", "gradient", "line search"],
)
def test_every_way_in_reaches_the_minimiser_of_an_independent_solver(
    options: dict[str, object], loss: Loss, weights: Mallows, ridge: float
) -> None:
    """U10."""
    found = fit(newton(**(LONG | options)), simulation(loss, weights, ridge, noiseless=True)).value.theta
    assert np.allclose(found.numpy(), minimum(loss, weights, ridge), atol=1e-6)


def worth(questions: list[Question]) -> float:
    return sum(question.sigma**-2 for question in questions)


@pytest.mark.parametrize("steps", [1, 7])
def test_each_scheme_is_worth_what_it_says(steps: int) -> None:
    """U5: 2K equal shares; a line search, a Lipschitz estimate and gradient steps in front off the top."""
    known = public(STEEP, CUBED)
    plain = newton(steps)
    for question in (*plain.gradients(), *plain.curvatures()):
        assert 1 / question.sigma == pytest.approx(1 / sqrt(2 * steps), rel=1e-12)
    rich = newton(
        steps=steps + 4,
        hessians=steps,
        last_gradient_share=1 / steps,
        line_search=SEARCH,
        lipschitz_share=0.1,
        warm_start=GradientStartPlan(steps=4, step_size=1.0, share=0.2),
    )
    comparisons = rich.comparisons(1.0)
    assert [one.sigma for one in comparisons] == [pytest.approx(sqrt(12 / 0.3), rel=1e-12)] * 12
    assert worth(list(rich.gradients()[:4])) == pytest.approx(0.2, rel=1e-12)
    assert worth(list(rich.lipschitz_questions(1.0))) == pytest.approx(0.1, rel=1e-12)
    assert worth([*rich.gradients()[4:], *rich.curvatures()]) == pytest.approx(0.4, rel=1e-12)
    assert sum(event.sigma**-2 for event in rich.schedule(known)) == pytest.approx(1.0, rel=1e-12)  # type: ignore[union-attr]  # Gaussian


class TestLineSearch:
    FAR = (4.0, -2.0, 4.0)

    def settings(self, **search: object) -> NoisyNewtonPlan:
        rule = SEARCH.model_copy(update=search)
        return newton(line_search=rule, start=self.FAR, steps=12, mu=3.0)

    def asked(self, settings: NoisyNewtonPlan, **more: object) -> tuple[list[Question], Tensor]:
        oracle = simulation(Huber(scale=0.7), **more)
        genuine, questions = oracle.ask, []

        def ask(question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
            questions.append(question)
            return genuine(question, theta, other)

        oracle.ask = ask  # type: ignore[method-assign]  # listens only
        estimate, _ = iterate(settings, oracle)
        return questions, estimate.theta

    def test_shortens_steps_where_pure_ones_diverge_and_then_asks_no_more(self) -> None:
        questions, theta = self.asked(self.settings(), noiseless=True)
        kinds = [question.kind for question in questions]
        assert 1 < kinds.count("secant") < SEARCH.evaluations
        assert "secant" not in kinds[-12:], "a step of size 1 was accepted"
        assert torch.linalg.vector_norm(theta - torch.linspace(-1, 1, 3, dtype=torch.float64)) < 0.2

    def test_no_more_is_compared_than_was_budgeted_and_steps_stay_short(self) -> None:
        questions, _ = self.asked(self.settings(evaluations=2), noiseless=True)
        assert sum(isinstance(question, Secant) for question in questions) == 2

    def test_the_comparison_that_accepts_is_paid_too(self) -> None:
        settings = self.settings(evaluations=3)
        price = compose(Counter(settings.schedule(public())))
        drawn = fit(settings, simulation(Huber(scale=0.7), payments=CountingFilter(price))).event
        assert all(a <= b for a, b in zip(cost_nano(drawn, ORDERS), cost_nano(price, ORDERS), strict=True))

        def uncounted(self: NewtonOptions, mu: float) -> tuple[Secant, ...]:
            assert self.line_search is not None
            return (Secant(sigma=sqrt(self.line_search.evaluations / self.line_search.share) / mu),)

        with patch.object(NewtonOptions, "comparisons", uncounted):  # planted: one comparison is free of charge
            less = compose(Counter(settings.schedule(public())))
        with pytest.raises(AssertionError, match="never exceeds its price"):
            fit(settings, simulation(Huber(scale=0.7), payments=CountingFilter(less)))

    def test_replicates_search_each_by_themselves(self) -> None:
        one, _ = iterate(self.settings(), simulation(Huber(scale=0.7), noiseless=True))
        many, _ = iterate(self.settings(), simulation(Huber(scale=0.7), noiseless=True, replicates=3))
        assert torch.allclose(many.theta, one.theta.expand(3, -1), atol=1e-9)

    def test_a_run_killed_between_comparisons_goes_on_identically(self) -> None:
        whole = CountingFilter()
        expected = fit(self.settings(), simulation(Huber(scale=0.7), noiseless=True, payments=whole)).value.theta
        for died in range(1, 12):
            payments = CountingFilter()
            state = self.state_after(died)
            payments.log.keep(state, died)
            again = fit(self.settings(), simulation(Huber(scale=0.7), noiseless=True, payments=payments)).value.theta
            assert torch.equal(again, expected)

    def state_after(self, step: int) -> dict[str, Tensor]:
        oracle = simulation(Huber(scale=0.7), noiseless=True)
        states: dict[int, dict[str, Tensor]] = {}
        oracle.keep = lambda state, at: states.update({at: dict(state)})  # type: ignore[method-assign]  # listens only
        iterate(self.settings(), oracle)
        return states[step]


def test_adaptive_steps_are_of_the_length_that_noised_answers_tell() -> None:
    known = public()
    gradient, matrix = torch.tensor([0.3, 0.0, 0.4]).double(), 2 * torch.eye(3).double()
    model = local(known, LocalAnswers(torch.zeros(3).double(), gradient, matrix, 1e-3))
    size = newton_rules._ruled(newton(step_rule="adaptive"), known, model, torch.tensor(1.0))
    assert known.concordance is not None
    reach = known.concordance * 0.25
    assert float(size) == pytest.approx(log1p(reach) / reach)
    still = local(known, LocalAnswers(torch.zeros(3).double(), 0 * gradient, matrix, 1e-3))
    assert float(newton_rules._ruled(newton(step_rule="adaptive"), known, still, torch.tensor(1.0))) == 1.0


def test_the_test_of_theorem_4_is_in_noised_values() -> None:
    known = public()
    assert known.concordance is not None
    limit = 1 / (16 * known.concordance)
    matrix = torch.diag(torch.tensor([4.0, 1.0, 1.0]).double())
    nothing = torch.tensor(float("nan"))
    for length, passes in ((0.99 * limit, True), (1.01 * limit, False)):
        gradient = torch.tensor([0.0, length, 0.0]).double()
        model = local(known, LocalAnswers(torch.zeros(3).double(), gradient, matrix, 1e-3))
        assert bool(near(known, model, nothing)) == passes


def test_replicates_switch_each_by_itself() -> None:
    settings = newton(step_rule="switching", damping=0.3, damped_steps=5, mu=4.0)
    found, _ = iterate(settings, simulation(replicates=50, seed=4))
    assert found.step.shape in {(), (50,)}  # type: ignore[union-attr]  # a tensor
    assert bool((torch.as_tensor(found.step) == 1).all()), "all are pure at the end"


def test_replicates_stop_each_by_itself() -> None:
    settings = newton(30, damping=0.3, stop="private", mu=8.0)
    found, _ = iterate(settings, simulation(replicates=200, seed=4))
    assert isinstance(found.steps, Tensor)
    assert 0 < int((found.steps < 30).sum()) < 200
    single = fit(settings.model_copy(update={"stop": "budgeted"}), simulation(replicates=200, seed=4)).value
    going = found.steps == 30
    assert torch.equal(found.theta[going], single.theta[going])


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"step_rule": "adaptive"}, "/optimizer/step_rule"),
        ({"step_rule": "switching"}, "/optimizer/step_rule"),
        ({"lipschitz_share": 0.1}, "/optimizer/lipschitz_share"),
        ({"step_rule": "switching", "lipschitz_share": 0.1}, "/optimizer/lipschitz_share"),
        ({"warm_start": {"kind": "ridge", "steps": 8}, "steps": 8, "memory": 0.0}, "/optimizer/warm_start/steps"),
        ({"warm_start": {"kind": "gradient", "steps": 8}, "steps": 8}, "/optimizer/warm_start/steps"),
    ],
)
def test_rules_without_their_constants_or_an_end_are_refused(options: dict[str, object], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        NoisyNewton.model_validate(options).plan(public(Huber(scale=0.7)), 1.0)
    assert refused.value.fields[0].pointer == pointer


def test_a_stored_plan_with_options_is_read_back() -> None:
    planned = NoisyNewton.model_validate({"warm_start": {"kind": "ridge"}}).plan(public(), 1.0)
    assert isinstance(planned.warm_start, RidgeStartPlan)
    assert None not in planned.warm_start.model_dump().values()
    assert NoisyNewtonPlan.model_validate_json(planned.model_dump_json()) == planned
