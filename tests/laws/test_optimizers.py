"""Laws that every optimizer obeys; a new one joins by one line in EXAMPLES."""

from collections import Counter
from math import nan, sqrt

import numpy as np
import pytest
import torch
from scipy.optimize import root
from scipy.special import expit
from torch import Tensor

from core.catalogue.jobs import Inference
from core.catalogue.method import AbstractSettings
from core.catalogue.methods import METHODS, SETTINGS, AnySettings
from core.catalogue.noisy_gd import NoisyGradientDescent
from core.catalogue.noisy_newton import NoisyNewton
from core.catalogue.questions import Question
from core.errors import Diverged
from core.mechanisms.generator import SimulationGenerator
from core.optimizers import fit, fit_and_infer, iterate
from core.oracle import Answer, Release, Status
from core.oracle.door import FullDoor
from core.oracle.meters import ORDERS, CountingMeter
from core.oracle.simulation import Simulation
from core.privacy.events import compose
from core.privacy.facts import Adjacency
from core.privacy.renyi import cost_nano
from core.problems.linear import LinearProblem
from tests.support.problems import LOGISTIC, WEIGHT_BOUND, facts, problem, repeatable_generator, rows

EXAMPLES: tuple[AnySettings, ...] = (
    NoisyGradientDescent(steps=40, step_size=2.0, mu=1.0, radius=100.0),
    NoisyGradientDescent(steps=40, step_size=2.0, mu=1.0, radius=100.0, stop="private"),
    NoisyNewton(
        steps=8,
        last_gradient_share=0.125,
        damping=1.0,
        mu=1.0,
        curvature_share=0.5,
        eigenvalue_floor=0.02,
        radius=100.0,
    ),
    NoisyNewton(
        steps=8,
        last_gradient_share=0.7,
        damping=0.5,
        mu=1.0,
        curvature_share=0.3,
        eigenvalue_floor=0.02,
        radius=100.0,
        stop="private",
    ),
    NoisyNewton(
        steps=8,
        last_gradient_share=0.125,
        damping=1.0,
        mu=1.0,
        curvature_share=0.5,
        eigenvalue_floor=0.02,
        radius=100.0,
        matrix_noise="printed",
    ),
)
UNITS, DIMENSION = 2000, 4


class Listening:
    """An oracle that notes what it is asked, and may stop answering: a trainer that dies."""

    def __init__(self, oracle: Simulation, die_after: int | None = None) -> None:
        self._oracle, self._die_after = oracle, die_after
        self.facts, self.coins = oracle.facts, oracle.coins
        self.questions: list[Question] = []
        self.kept: list[int] = []

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        if self._die_after == len(self.questions):
            raise KeyboardInterrupt
        self.questions.append(question)
        return self._oracle.ask(question, theta, other)

    def affords(self, question: Question) -> bool:
        return self._oracle.affords(question)

    def block(self, name: str) -> Simulation:
        return self._oracle.block(name)

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._oracle.resume(initial)

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        self.kept.append(step)
        self._oracle.keep(state, step)

    def release(self, value: object, status: Status) -> Release[object]:
        return self._oracle.release(value, status)


def oracle(seed: int = 1, *, noiseless: bool = False, data: LinearProblem | None = None, **more: object) -> Simulation:
    data = data or problem(UNITS, DIMENSION)
    return Simulation(data, facts(UNITS, DIMENSION), SimulationGenerator(seed), noiseless=noiseless, **more)


@pytest.mark.parametrize("settings", EXAMPLES, ids=lambda one: f"{one.kind}-{one.stop}")
class TestEveryOptimizer:
    def test_survives_the_wire(self, settings: AnySettings) -> None:
        assert SETTINGS.validate_json(settings.model_dump_json()) == settings

    def test_draws_at_most_its_price(self, settings: AnySettings) -> None:
        public = facts(UNITS, DIMENSION)
        price = compose(Counter(settings.schedule(public)))
        drawn = fit(settings, oracle(meter=CountingMeter(price))).event
        pairs = list(zip(cost_nano(drawn, ORDERS), cost_nano(price, ORDERS), strict=True))
        assert all(one <= most for one, most in pairs)
        if settings.stop == "budgeted":
            assert drawn == price

    def test_is_worth_its_mu(self, settings: AnySettings) -> None:
        squares = sum(event.sigma**-2 for event in settings.schedule(facts(UNITS, DIMENSION)))
        printed = isinstance(settings, NoisyNewton) and settings.matrix_noise == "printed"
        expected = sqrt(0.75) if printed else 1.0
        assert sqrt(squares) == pytest.approx(expected, rel=1e-12)

    def test_neighbours_see_equal_questions(self, settings: AnySettings) -> None:
        features, target, present = rows(UNITS, DIMENSION)
        transcripts = []
        for row in (None, torch.zeros(DIMENSION), torch.full((DIMENSION,), 1e6), torch.full((DIMENSION,), nan)):
            changed = features.clone()
            if row is not None:
                changed[7] = row
            listening = Listening(oracle(data=LinearProblem(changed, target, present, LOGISTIC, WEIGHT_BOUND)))
            if settings.stop == "private":
                settings = settings.model_copy(update={"stop": "budgeted"})
            iterate(settings, listening)
            transcripts.append(listening.questions)
        assert all(questions == transcripts[0] for questions in transcripts)

    def test_finds_the_answer_without_noise(self, settings: AnySettings) -> None:
        """U10: the minimiser of an independent solver."""
        long = settings.model_copy(update={"steps": 400, "eigenvalue_floor": 1e-6, "stop": "budgeted"})
        found = fit(long, oracle(noiseless=True)).value.theta
        features, target, _ = (part.numpy() for part in rows(UNITS, DIMENSION))
        weights = 1.0 / (features**2).sum(1)
        weights = (WEIGHT_BOUND**2 * weights).clip(max=1.0)

        def slope(theta: np.ndarray) -> np.ndarray:
            return features.T @ (weights * (expit(features @ theta) - target)) / UNITS

        answer = root(slope, np.zeros(DIMENSION), tol=1e-12).x
        assert torch.allclose(found, torch.from_numpy(answer), atol=1e-6)

    def test_a_lane_equals_a_single_run_of_the_real_door(self, settings: AnySettings) -> None:
        """The same code serves jobs: with a tiny noise both end at the same point."""
        quiet = settings.model_copy(update={"mu": 1e6, "stop": "budgeted"})
        public = facts(UNITS, DIMENSION)
        door = FullDoor(problem(UNITS, DIMENSION), public, CountingMeter(), repeatable_generator())
        real = fit(quiet, door).value.theta
        lanes = fit(quiet, oracle(lanes=3)).value.theta
        assert lanes.shape == (3, DIMENSION)
        assert torch.allclose(lanes, real.expand(3, -1), atol=1e-4)

    def test_a_second_attempt_goes_on_from_the_last_kept_step(self, settings: AnySettings) -> None:
        settings = settings.model_copy(update={"stop": "budgeted"})
        meter = CountingMeter()
        asked = len(settings.questions())
        dying = Listening(oracle(seed=1, meter=meter), die_after=3 * asked)
        with pytest.raises(KeyboardInterrupt):
            iterate(settings, dying)
        assert dying.kept == [1, 2, 3]
        state = {name: value.clone() for name, value in meter.resume().items()}
        second = CountingMeter()
        second.keep(state, 3)
        going_on = Listening(oracle(seed=2, meter=second))
        estimate, _ = iterate(settings, going_on)
        assert settings.steps is not None
        assert len(going_on.questions) == (settings.steps - 3) * asked
        assert going_on.kept[0] == 4
        assert estimate.steps == settings.steps

    def test_an_iterate_that_leaves_the_radius_is_a_failure(self, settings: AnySettings) -> None:
        with pytest.raises(Diverged):
            fit(settings.model_copy(update={"radius": 1e-6}), oracle(seed=1))

    def test_planned_settings_stay_as_they_are(self, settings: AnySettings) -> None:
        for adjacency in Adjacency:
            public = facts(UNITS, DIMENSION, adjacency=adjacency)
            assert settings.plan(public, 1.0) == settings
            bare = type(settings)().plan(public, 0.7)
            assert bare.plan(public, 5.0) == bare
            assert None not in bare.model_dump().values()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_card(method: type[AbstractSettings]) -> None:
    card = method.card()
    assert card.kind == method.model_fields["kind"].default
    assert set(card.adjacency) == set(Adjacency)


def test_an_early_stop_never_changes_the_noise() -> None:
    """Mutation: noise scaled by the steps really taken would show in the scale of the answers."""
    settings = EXAMPLES[1].model_copy(update={"mu": 0.05})
    budgeted = fit(settings.model_copy(update={"stop": "budgeted"}), oracle(seed=3)).value
    for seed in range(200):
        stopped = fit(settings, oracle(seed=seed))
        if stopped.status is Status.STOPPED and stopped.value.steps:
            assert stopped.value.steps < budgeted.steps
            assert stopped.value.scale == budgeted.scale
            return
    raise AssertionError("no run stopped early: the test has no power")


def test_inference_is_asked_through_the_same_door() -> None:
    inference = Inference(curvature_sigma=4.0, score_sigma=5.0, curvature_floor=1e-3, score_floor=1e-4)
    settings = EXAMPLES[2]
    price = compose(
        Counter([*settings.schedule(facts(UNITS, DIMENSION)), *(one.event() for one in inference.questions())])
    )
    release = fit_and_infer(settings, inference, oracle(meter=CountingMeter(price)))
    assert release.event == price
    assert release.value.sandwich is not None
    without = fit_and_infer(settings, Inference(intervals=False), oracle())
    assert without.value.sandwich is None
