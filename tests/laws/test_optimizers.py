"""Laws that every optimizer obeys; a new one joins by one line in EXAMPLES."""

from collections import Counter
from math import nan, sqrt

import numpy as np
import pytest
import torch
from scipy.optimize import root
from scipy.special import expit
from torch import Tensor

from core.base.errors import AdjacencyMismatch, Diverged
from core.inference.settings import Inference
from core.mechanisms.generator import SimulationGenerator
from core.methods.base import Spec
from core.methods.clipped.clipped_sgd.spec import ClippedSgd, ClippedSgdPlan
from core.methods.clipped.one_pass.spec import OnePassClippedSgd, OnePassClippedSgdPlan
from core.methods.clipped.rules import Adam, MovingMean, NoMean, Sgd, TailMean
from core.methods.fits import fit, fit_and_infer, iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent, NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.options import GradientStart, LineSearch, NewtonOptions, RidgeStart
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.registry import METHODS, PLANS, AnySpec
from core.oracle import Answer, Release, Status
from core.oracle.filters import ORDERS, CountingFilter
from core.oracle.full import FullOracle, RecordsOracle
from core.oracle.samples import PoissonOracle, StreamOracle
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian, Sampled, compose
from core.privacy.facts import Adjacency, Facts
from core.privacy.renyi import cost_nano
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.sampling import PoissonSampling, StreamSampling
from core.queries.sums.linear import LinearProblem
from tests.support.problems import LOGISTIC, WEIGHT_BOUND, WEIGHTS, facts, problem, repeatable_generator, rows

Iterating = NoisyGradientDescent | NoisyNewton | ClippedSgd | OnePassClippedSgd


def clipped(**options: object) -> ClippedSgdPlan:
    """Return clipped descent on samples of all records, with options."""
    usual = {"steps": 40, "batch": 2000, "sigma": sqrt(40), "clip": 2**0.5, "step_size": 2.0, "radius": 100.0}
    return ClippedSgdPlan.model_validate(usual | {"average": NoMean()} | options)


def newton(**options: object) -> NoisyNewton:
    """Return the paper's method with options."""
    usual = {
        "steps": 8,
        "hessians": 8,
        "last_gradient_share": 0.125,
        "damping": 1.0,
        "mu": 1.0,
        "curvature_share": 0.5,
        "eigenvalue_floor": 0.02,
        "radius": 100.0,
        "memory": 0.0,
        "growth": 1.0,
        "averaged": 1,
    }
    return NoisyNewton.model_validate(usual | options)


SPECS_BY_KIND = {method.model_fields["kind"].default: method for method in METHODS}
EXAMPLES: tuple[Iterating, ...] = (
    NoisyGradientDescentPlan(steps=40, step_size=2.0, mu=1.0, radius=100.0),
    NoisyGradientDescentPlan(steps=40, step_size=2.0, mu=1.0, radius=100.0, stop="private"),
    NoisyNewton(
        steps=8,
        last_gradient_share=0.125,
        damping=1.0,
        mu=1.0,
        curvature_share=0.5,
        eigenvalue_floor=0.02,
        radius=100.0,
        memory=0.0,
        hessians=8,
        growth=1.0,
        averaged=1,
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
        memory=0.0,
        hessians=8,
        growth=1.0,
        averaged=1,
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
        memory=0.0,
        hessians=8,
        growth=1.0,
        averaged=1,
    ),
    newton(step_rule="adaptive"),
    newton(step_rule="switching", damping=0.5, damped_steps=4),
    newton(warm_start=RidgeStart(ridge=0.2, damping=0.4, steps=4), last_gradient_share=0.3),
    newton(warm_start=GradientStart(steps=5, step_size=2.0, share=0.2), steps=13),
    newton(line_search=LineSearch(evaluations=1, share=0.1)),
    NoisyNewton(
        steps=14,
        hessians=5,
        memory=0.7,
        growth=2.0,
        averaged=4,
        last_gradient_share=0.8,
        damping=1.0,
        mu=1.0,
        curvature_share=0.5,
        eigenvalue_floor=0.02,
        radius=100.0,
    ),
    clipped(),
    clipped(batch=200, rule=Sgd(momentum=0.5), average=TailMean(steps=20)),
    clipped(
        batch=1000,
        rule=Adam(),
        step_size=0.1,
        average=MovingMean(decay=0.8),
        learning_rate_schedule="cosine",
        warm_up=5,
    ),
    OnePassClippedSgdPlan(
        steps=40, batch=50, mu=1.0, clip=2**0.5, step_size=1.0, returns="average", radius=100.0, beta=0.1
    ),
)
UNITS, DIMENSION = 2000, 4
DECLARED = {"smoothness", "distance", "start_gap", "moment"}
"""Fields that only an analyst can fill."""


def public(adjacency: Adjacency = Adjacency.ZERO_OUT) -> Facts:
    """Return the facts of logistic regression on rows whose norm is known to be at most 6."""
    return facts(UNITS, DIMENSION, adjacency=adjacency).model_copy(update={"concordance": 6.0})


class Listening:
    """An oracle that notes what it is asked, and may stop answering: a trainer that dies."""

    def __init__(self, oracle: Simulation, die_after: int | None = None) -> None:
        self._oracle, self._die_after = oracle, die_after
        self.facts, self.randomness, self.precision = oracle.facts, oracle.randomness, oracle.precision
        self.questions: list[Question] = []
        self.kept: list[int] = []

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        if self._die_after == len(self.questions):
            raise KeyboardInterrupt
        self.questions.append(question)
        return self._oracle.ask(question, theta, other)

    def affords(self, question: Question, then: Question | None = None) -> bool:
        return self._oracle.affords(question, then)

    def block(self, name: str) -> Simulation:
        return self._oracle.block(name)

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._oracle.resume(initial)

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        self.kept.append(step)
        self._oracle.keep(state, step)

    def release(self, value: object, status: Status) -> Release[object]:
        return self._oracle.release(value, status)

    @classmethod
    def transcript(cls, settings: Iterating) -> list[Question]:
        """Return all that a method asks."""
        listening = cls(oracle(settings))
        iterate(settings, listening)
        return listening.questions


def oracle(
    settings: Iterating, seed: int = 1, *, noiseless: bool = False, data: LinearProblem | None = None, **more: object
) -> Simulation:
    """Return synthetic records, read as a method reads them."""
    data, sampling = data or problem(UNITS, DIMENSION), settings.sampling(public())
    return Simulation(data, public(), SimulationGenerator(seed), noiseless=noiseless, sampling=sampling, **more)


def real_oracle(settings: Iterating) -> RecordsOracle:
    """Return a real oracle over the same records, with a repeatable key."""
    data, payments, generator = problem(UNITS, DIMENSION), CountingFilter(), repeatable_generator()
    match settings.sampling(public()):
        case PoissonSampling(parts=parts):
            return PoissonOracle(data, public(), payments, generator, parts)
        case StreamSampling():
            return StreamOracle(data, public(), payments, generator, np.arange(UNITS))
    return FullOracle(data, public(), payments, generator)


def budgeted(settings: Iterating) -> AnySpec:
    """Return settings that take all of their steps."""
    stops = isinstance(settings, NoisyGradientDescent | NoisyNewton)
    return settings.model_copy(update={"stop": "budgeted"}) if stops else settings


def quiet(settings: Iterating) -> AnySpec:
    """Return settings that read all records in every step, with next to no noise."""
    if isinstance(settings, ClippedSgd):
        return settings.model_copy(update={"sigma": 1e-6, "batch": UNITS})
    return budgeted(settings).model_copy(update={"mu": 1e6})


class Silencing:
    """A planted bug: the oracle is asked one question, the `number`th of a kind, with hardly any noise."""

    def __init__(self, real: Simulation, kind: str, number: int) -> None:
        self._oracle, self._kind, self._left = real, kind, number
        self.facts, self.randomness, self.precision = real.facts, real.randomness, real.precision
        self.resume, self.keep, self.release, self.affords = real.resume, real.keep, real.release, real.affords

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        self._left -= question.kind == self._kind
        if question.kind == self._kind and self._left == 0:
            question = question.model_copy(update={"sigma": 1e-6 * question.sigma})
        return self._oracle.ask(question, theta, other)


def longer(settings: Iterating, more: int) -> AnySpec:
    """Return settings that take more steps than these, each asked with the noise of these."""
    assert settings.steps is not None
    steps = settings.steps + more
    if isinstance(settings, ClippedSgd):
        return settings.model_copy(update={"steps": steps})
    if isinstance(settings, NoisyGradientDescent):
        assert settings.mu is not None
        return settings.model_copy(update={"steps": steps, "mu": settings.mu * sqrt(steps / settings.steps)})

    class Longer(NoisyNewton):
        def gradients(self) -> tuple[Gradient, ...]:
            return settings.gradients() + settings.gradients()[-1:] * more

        def curvatures(self) -> tuple[Curvature, ...]:
            asked = settings.curvatures()
            return asked + asked[-1:] * (more if settings.late_steps == 0 else 0)

    hessians = settings.newton_steps + (more if settings.late_steps == 0 else 0)
    return Longer(**(settings.model_dump() | {"steps": steps, "hessians": hessians}))


def answers(settings: Iterating, steps: int) -> int:
    """Count what the first `steps` steps ask; the one comparison of a line search is made at the first."""
    if not isinstance(settings, NoisyNewton):
        return steps
    hessians = max(0, min(steps - settings.warm_steps, settings.newton_steps))
    return steps + hessians + (settings.line_search is not None)


def named(settings: Iterating) -> str:
    options = (one for one in NewtonOptions.model_fields if getattr(settings, one, "fixed") not in (None, "fixed"))
    rule = [settings.rule.kind] if isinstance(settings, ClippedSgd) else []
    return "-".join([settings.kind, getattr(settings, "stop", "budgeted"), *rule, *sorted(options)])


@pytest.mark.parametrize("settings", EXAMPLES, ids=named)
class TestEveryOptimizer:
    def test_survives_the_wire(self, settings: Iterating) -> None:
        assert PLANS.validate_json(settings.model_dump_json()) == settings

    def test_draws_at_most_its_price(self, settings: Iterating) -> None:
        price = compose(Counter(settings.schedule(public())))
        drawn = fit(settings, oracle(settings, payments=CountingFilter(price))).event
        costs, most = cost_nano(drawn, ORDERS), cost_nano(price, ORDERS)
        assert all(one <= other for one, other in zip(costs, most, strict=True))
        if budgeted(settings) == settings:
            assert costs == most
            assert drawn == price or isinstance(settings, OnePassClippedSgd), "chunks for nothing are none"

    def test_one_answer_without_its_noise_is_seen_in_what_was_drawn(self, settings: Iterating) -> None:
        """Planted: the first or the last question of each kind is asked with a millionth of its noise."""
        price = compose(Counter(settings.schedule(public())))
        whole = budgeted(settings)
        asked = Counter(question.kind for question in Listening.transcript(whole))
        assert set(asked) == {question.kind for question in settings.questions()}
        for kind, times in asked.items():
            for number in (1, times):
                with pytest.raises(AssertionError, match="never exceeds its price"):
                    fit(whole, Silencing(oracle(settings, payments=CountingFilter(price)), kind, number))

    def test_is_worth_its_mu(self, settings: Iterating) -> None:
        """Samples have no mu; at the rate of one they cost what Gaussian answers do."""
        events = Counter(settings.schedule(public()))
        squares = sum(
            times * event.sigma**-2 for event, times in events.items() if isinstance(event, Gaussian | Sampled)
        )
        printed = isinstance(settings, NoisyNewton) and settings.matrix_noise == "printed"
        expected = sqrt(0.75) if printed else 1.0
        assert sqrt(squares) == pytest.approx(expected, rel=1e-12)

    def test_neighbours_see_equal_questions(self, settings: Iterating) -> None:
        features, target, present = rows(UNITS, DIMENSION)
        transcripts = []
        for row in (None, torch.zeros(DIMENSION), torch.full((DIMENSION,), 1e6), torch.full((DIMENSION,), nan)):
            changed = features.clone()
            if row is not None:
                changed[7] = row
            listening = Listening(oracle(settings, data=LinearProblem(changed, target, present, LOGISTIC, WEIGHTS)))
            iterate(budgeted(settings), listening)
            transcripts.append(listening.questions)
        assert all(questions == transcripts[0] for questions in transcripts)

    def test_a_replicate_equals_a_single_run_of_the_real_oracle(self, settings: Iterating) -> None:
        """The same code serves jobs: with a tiny noise both end at the same point."""
        settings = quiet(settings)
        real = fit(settings, real_oracle(settings)).value.theta
        replicates = fit(settings, oracle(settings, replicates=3)).value.theta
        assert replicates.shape == (3, DIMENSION)
        assert torch.allclose(replicates, real.expand(3, -1), atol=1e-4)

    def test_a_second_attempt_goes_on_from_the_last_kept_step(self, settings: Iterating) -> None:
        settings, payments = budgeted(settings), CountingFilter()
        dying = Listening(oracle(settings, seed=1, payments=payments), die_after=answers(settings, 3))
        with pytest.raises(KeyboardInterrupt):
            iterate(settings, dying)
        assert dying.kept == [1, 2, 3]
        state = {name: value.clone() for name, value in payments.log.resume().items()}
        second = CountingFilter()
        second.log.keep(state, 3)
        going_on = Listening(oracle(settings, seed=2, payments=second))
        estimate, _ = iterate(settings, going_on)
        assert settings.steps is not None
        assert len(going_on.questions) == answers(settings, settings.steps) - answers(settings, 3)
        assert going_on.kept[0] == 4
        assert estimate.steps == settings.steps

    def test_an_iterate_that_leaves_the_radius_is_a_failure(self, settings: Iterating) -> None:
        with pytest.raises(Diverged):
            fit(settings.model_copy(update={"radius": 1e-6}), oracle(settings, seed=1))

    def test_planned_settings_stay_as_they_are(self, settings: Iterating) -> None:
        for adjacency in settings.card().adjacency:
            known = public(adjacency)
            assert settings.plan(known, 1.0) == settings
            bare = SPECS_BY_KIND[settings.kind]().plan(known, 0.7)
            assert bare.plan(known, 5.0) == bare
            left = {name for name, value in bare.model_dump().items() if value is None}
            assert left <= DECLARED | NewtonOptions.model_fields.keys(), (
                "what nobody declared stays open, all else is planned"
            )

    def test_is_refused_under_every_other_adjacency(self, settings: Iterating) -> None:
        for adjacency in set(Adjacency) - set(settings.card().adjacency):
            with pytest.raises(AdjacencyMismatch):
                SPECS_BY_KIND[settings.kind]().plan(public(adjacency), 1.0)


AGAIN = [one for one in EXAMPLES if not isinstance(one, OnePassClippedSgd)]
FIRST = {one.kind: one for one in reversed(AGAIN)}


class TestEveryOptimizerThatReadsRecordsAgain:
    """Not of one pass: it ends with the units, and is as far as they led."""

    @pytest.mark.parametrize("settings", AGAIN, ids=named)
    @pytest.mark.parametrize("more", [1, 2])
    def test_a_plan_that_draws_more_steps_than_it_prices_is_caught(self, settings: Iterating, more: int) -> None:
        """Planted: K + 1 or K + 2 steps at the price of K, each as noisy as was priced."""
        price = compose(Counter(settings.schedule(public())))
        with pytest.raises(AssertionError, match="never exceeds its price"):
            fit(longer(budgeted(settings), more), oracle(settings, payments=CountingFilter(price)))

    @pytest.mark.parametrize(
        "settings",
        [one if one is FIRST[one.kind] else pytest.param(one, marks=pytest.mark.slow) for one in AGAIN],
        ids=named,
    )
    def test_finds_the_answer_without_noise(self, settings: Iterating) -> None:
        """U10: the minimiser of an independent solver."""
        more = {"steps": 400, "eigenvalue_floor": 1e-6, "stop": "budgeted"}
        if isinstance(settings, ClippedSgd):
            more = {"steps": 800, "batch": UNITS, "learning_rate_schedule": "constant"}
        elif isinstance(settings, NoisyNewton):
            more["steps"] = 100
            more["hessians"] = 100 - settings.warm_steps if settings.late_steps == 0 else settings.newton_steps
        long = settings.model_copy(update=more)
        found = fit(long, oracle(long, noiseless=True)).value.theta
        features, target, _ = (part.numpy() for part in rows(UNITS, DIMENSION))
        weights = 1.0 / (features**2).sum(1)
        weights = (WEIGHT_BOUND**2 * weights).clip(max=1.0)

        def slope(theta: np.ndarray) -> np.ndarray:
            return features.T @ (weights * (expit(features @ theta) - target)) / UNITS

        answer = root(slope, np.zeros(DIMENSION), tol=1e-12).x
        assert torch.allclose(found, torch.from_numpy(answer), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_card(method: type[Spec]) -> None:
    card = method.card()
    assert card.kind == method.model_fields["kind"].default
    assert set(card.adjacency) == ({Adjacency.ZERO_OUT} if method is ClippedSgd else set(Adjacency))


def test_an_early_stop_never_changes_the_noise() -> None:
    """Mutation: noise scaled by the steps really taken would show in the scale of the answers."""
    settings = EXAMPLES[1].model_copy(update={"mu": 0.05})
    whole = fit(budgeted(settings), oracle(settings, seed=3)).value
    for seed in range(200):
        stopped = fit(settings, oracle(settings, seed=seed))
        if stopped.status is Status.STOPPED and stopped.value.steps:
            assert stopped.value.steps < whole.steps
            assert stopped.value.scale == whole.scale
            return
    raise AssertionError("no run stopped early: the test has no power")


def test_inference_is_asked_through_the_same_oracle() -> None:
    inference = Inference(curvature_sigma=4.0, score_sigma=5.0, curvature_floor=1e-3, score_floor=1e-4)
    settings = EXAMPLES[2]
    price = compose(Counter([*settings.schedule(public()), *(one.event() for one in inference.questions())]))
    release = fit_and_infer(settings, inference, oracle(settings, payments=CountingFilter(price)))
    assert release.event == price
    assert release.value.sandwich is not None
    without = fit_and_infer(settings, Inference(intervals=False), oracle(settings))
    assert without.value.sandwich is None
