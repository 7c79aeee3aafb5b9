"""Laws of the methods under the KL condition: their questions may depend on answers, so the laws are their own.

Each is planned for logistic regression with declared constants. The other laws of the other optimizers presume that
every step asks the same.
"""

from collections import Counter
from contextlib import suppress
from math import nan

import pytest
import torch
from torch import Tensor

from core.base.errors import Diverged
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import fit, iterate
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.condition import KlCondition
from core.methods.kl.proximal_point.spec import ProximalPoint
from core.methods.kl.spider.spec import KlSpider
from core.methods.registry import PLANS
from core.oracle import Answer
from core.oracle.filters import ORDERS, CountingFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.privacy.events import compose
from core.privacy.facts import Adjacency, Facts
from core.privacy.renyi import cost_nano
from core.queries.gradients import Question
from core.queries.sums.linear import LinearProblem
from tests.support.problems import LOGISTIC, WEIGHTS, facts, problem, repeatable_generator, rows

UNITS, DIMENSION, MU = 2000, 3, 12.0
Method = KlSpider | ProximalPoint | AdaptiveGradientDescent


def public(adjacency: Adjacency = Adjacency.ZERO_OUT) -> Facts:
    return facts(UNITS, DIMENSION, adjacency=adjacency).model_copy(
        update={"smoothness": 0.5, "weak_convexity": 0.0, "start_gap": 0.7}
    )


def spider(kappa: float) -> KlSpider:
    return KlSpider(condition=KlCondition(gamma=2.0, kappa=kappa), variant="calibrated")


ASKED: tuple[Method, ...] = (
    spider(2.0),
    spider(1.5),
    ProximalPoint(
        condition=KlCondition(gamma=2.0, kappa=2.0), round_schedule="practical", inner_steps="practical", max_inner=10
    ),
    AdaptiveGradientDescent(step_cap=20),
    AdaptiveGradientDescent(step_cap=20, select="least_norm"),
    AdaptiveGradientDescent(step_cap=20, select="exponential"),
)
METHODS = [one.plan(public(), MU) for one in ASKED]


def named(settings: Method) -> str:
    return "-".join(
        [settings.kind, getattr(settings, "select", ""), f"{settings.condition and settings.condition.kappa}"]
    )


class Listening:
    """An oracle that notes what it is asked and answers, or answers from another's notes; and may stop answering."""

    def __init__(self, real: Simulation, *, told: list[Answer] | None = None, die_after: int | None = None) -> None:
        self._real, self._told, self._die_after = real, told, die_after
        self.facts, self.randomness, self.keep, self.resume, self.affords = (
            real.facts,
            real.randomness,
            real.keep,
            real.resume,
            real.affords,
        )
        self.questions: list[Question] = []
        self.answers: list[Answer] = []

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        if self._die_after == len(self.questions):
            raise KeyboardInterrupt
        answer = self._real.ask(question, theta, other)
        if self._told is not None:
            answer = self._told[len(self.questions)]
        self.questions.append(question)
        self.answers.append(answer)
        return answer


def simulated(settings: Method, seed: int = 1, *, data: LinearProblem | None = None) -> Simulation:
    """Return synthetic records whose privacy filter covers the price of the settings and no more."""
    price = compose(Counter(settings.schedule(public())))
    records = data or problem(UNITS, DIMENSION)
    return Simulation(records, public(), SimulationGenerator(seed), payments=CountingFilter(price))


@pytest.mark.parametrize("settings", METHODS, ids=named)
class TestEveryMethod:
    def test_survives_the_wire(self, settings: Method) -> None:
        assert PLANS.validate_json(settings.model_dump_json()) == settings

    def test_planned_settings_stay_as_they_are(self, settings: Method) -> None:
        assert settings.plan(public(), MU) == settings

    def test_draws_at_most_its_price(self, settings: Method) -> None:
        price = compose(Counter(settings.schedule(public())))
        drawn = fit(settings, simulated(settings)).event
        assert all(one <= most for one, most in zip(cost_nano(drawn, ORDERS), cost_nano(price, ORDERS), strict=True))

    def test_asks_what_it_said_it_may_ask(self, settings: Method) -> None:
        listening = Listening(simulated(settings))
        iterate(settings, listening)
        asked = {question.kind for question in settings.questions()}
        assert {question.kind for question in listening.questions} <= asked
        for kind in asked & {question.kind for question in listening.questions}:
            least = min(question.sigma for question in settings.questions() if question.kind == kind)
            assert min(one.sigma for one in listening.questions if one.kind == kind) >= least * (1 - 1e-12)

    def test_neighbours_who_are_told_the_same_ask_the_same(self, settings: Method) -> None:
        """Every branch is a function of answers: replayed on other records, the same answers lead the same way."""
        features, target, present = rows(UNITS, DIMENSION)
        first = Listening(simulated(settings))
        ended = iterate(settings, first)[0].theta
        for row in (torch.full((DIMENSION,), 1e6), torch.full((DIMENSION,), nan)):
            changed = features.clone()
            changed[7] = row
            data = LinearProblem(changed, target, present, LOGISTIC, WEIGHTS)
            replayed = Listening(simulated(settings, data=data), told=first.answers)
            assert torch.equal(iterate(settings, replayed)[0].theta, ended)
            assert replayed.questions == first.questions

    def test_a_second_attempt_goes_on_and_asks_nothing_twice(self, settings: Method) -> None:
        whole = Listening(simulated(settings))
        ended = iterate(settings, whole)[0].theta
        payments = CountingFilter()
        real = Simulation(problem(UNITS, DIMENSION), public(), SimulationGenerator(1), payments=payments)
        with pytest.raises(KeyboardInterrupt):
            iterate(settings, Listening(real, told=whole.answers, die_after=3))
        second = CountingFilter(compose(Counter(settings.schedule(public()))))
        second.log.keep({name: value.clone() for name, value in payments.log.resume().items()}, 3)
        again = Simulation(problem(UNITS, DIMENSION), public(), SimulationGenerator(2), payments=second)
        on = Listening(again, told=whole.answers[3:], die_after=len(whole.answers) - 3)
        if isinstance(
            settings, AdaptiveGradientDescent
        ):  # a fresh privacy filter affords what the first three answers took
            with suppress(KeyboardInterrupt):
                iterate(settings, on)
        else:
            assert torch.equal(iterate(settings, on)[0].theta, ended)
        assert on.questions == whole.questions[3:]

    def test_a_real_oracle_leads_where_a_simulated_one_does(self, settings: Method) -> None:
        price = compose(Counter(settings.schedule(public())))
        real = FullOracle(problem(UNITS, DIMENSION), public(), CountingFilter(price), repeatable_generator())
        theta = fit(settings, real).value.theta
        simulations = torch.stack([fit(settings, simulated(settings, seed)).value.theta for seed in range(3)])
        spread = (simulations - simulations.mean(0)).norm(dim=1).max() + 1e-3
        assert float((theta - simulations.mean(0)).norm()) < 10 * float(spread)


@pytest.mark.parametrize(
    "settings", [one for one in METHODS if not isinstance(one, ProximalPoint)], ids=named
)  # whose iterates are projected
def test_an_iterate_that_leaves_the_radius_is_a_failure(settings: Method) -> None:
    with pytest.raises(Diverged):
        fit(settings.model_copy(update={"radius": 1e-6}), simulated(settings))
