"""Prior work as reconstructed: when it disturbs an estimate, what it keeps, and that coins are no privacy.

Seeds and keys are fixed, so a run repeats.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.mechanisms.generator import SimulationGenerator
from core.methods.lifecycle import tensors_of
from core.methods.second_order.perturbed_spider import fit as perturbed_spider
from core.methods.second_order.perturbed_spider.spec import PerturbedSpiderPlan
from core.oracle import Answer, Oracle
from core.oracle.filters import CountingFilter
from core.oracle.samples import StreamOracle
from core.oracle.simulation import SeededRandomness
from core.privacy.events import Gaussian
from core.queries.gradients import Question
from tests.support.problems import problem, repeatable_generator
from tests.support.second_order import CountedRecords, Deaf, Scripted, State, facts_of, failed, planted

FACTS = facts_of(1000, 2)
LONG, SHORT = [4.0, 0.0], [3.0, 0.0]


def settings(**options: Any) -> PerturbedSpiderPlan:
    """Return steps of 0.1 g, disturbed at lengths of at most 3 and no sooner than after 3 further steps."""
    usual: dict[str, Any] = {
        "mu": 1.0,
        "smoothness": 1.0,
        "batch": 10,
        "difference_batch": 2,
        "restart_drift": 0.5,
        "step_size": 0.1,
        "error_radius": 1.0,
        "extra_noise": 0.5,
        "frozen_steps": 3,
        "steps": 100,
        "radius": 1000.0,
        "sites": 1,
        "start": "zeros",
    }
    return PerturbedSpiderPlan.model_validate(usual | options)


class PublicRandomness:
    """Draws that are always one, and counted."""

    def __init__(self) -> None:
        self.drawn = 0

    def normal(self, size: int) -> Tensor:
        self.drawn += 1
        return torch.ones(size, dtype=torch.float64)

    def integer(self, below: int) -> int:
        raise AssertionError(below)


class ScriptedEstimator(Scripted):
    """Scripted estimates that note where they were disturbed."""

    def __init__(self, slopes: list[list[float]]) -> None:
        super().__init__(slopes)
        self.disturbed: list[tuple[int, list[float]]] = []

    def disturb(self, extra: Tensor) -> None:
        self.disturbed.append((len(self.points), extra.tolist()))


def walked(
    slopes: list[list[float]], module: Any = perturbed_spider, **options: Any
) -> tuple[dict[str, Any], ScriptedEstimator, PublicRandomness]:
    script, randomness, asked = ScriptedEstimator(slopes), PublicRandomness(), settings(**options)
    begin = module.beginning(asked, torch.zeros(2, dtype=torch.float64))
    state = module.walk(asked, FACTS, randomness, script, begin, lambda _: None)
    found = {"outcome": module.OUTCOMES[int(state.ended)], "iterates": module.kept_iterates(state)}
    return {**tensors_of(state), **found}, script, randomness


def check_trigger(module: Any) -> None:
    """After an estimate of exactly three radii the next one is fresh and disturbed; after a longer one it is not."""
    state, script, _ = walked([LONG, SHORT, LONG], module)
    assert script.disturbed == [(3, [0.5, 0.5])], "the estimate after the short one"
    assert script.rounds == [("fresh", 2)], "which is a fresh gradient's"
    assert state["theta"].tolist() == pytest.approx([-0.4 - 0.3 - 0.45, -0.05]), "and the step is along their sum"
    assert (state["outcome"], int(state["disturbed"])) == ("data_exhausted", 1)


def check_first(module: Any) -> None:
    """The first estimate is of no earlier one, so nothing disturbs it."""
    _, script, randomness = walked([SHORT], module)
    assert (script.disturbed, randomness.drawn) == ([], 0)


def check_wait(module: Any) -> None:
    """However short estimates are, three more pass before another is disturbed."""
    _, script, _ = walked([SHORT] * 11, module)
    assert [at for at, _ in script.disturbed] == [2, 6, 10]


def check_sum(module: Any) -> None:
    """The estimate with its disturbance is compared with three radii."""
    _, script, _ = walked([SHORT] * 3, module, frozen_steps=0)
    assert [at for at, _ in script.disturbed] == [2], "3.5 and .5 are longer than 3"


def check_cap(module: Any) -> None:
    state, script, _ = walked([LONG] * 9, module, steps=4)
    assert (state["outcome"], len(script.points)) == ("steps", 4)


CHECKS = (check_trigger, check_first, check_wait, check_sum, check_cap)
BUGS = {
    "exactly three radii are long": ("dim=-1) <= 3 *", "dim=-1) < 3 *"),
    "the first one may be disturbed": ("int(state.step) == 0 or int", "int"),
    "nothing waits": ("or int(state.frozen) > 0", "or False"),
    "the disturbance makes no step": ("return slope + extra, ", "return slope, "),
    "later estimates forget it": ("    estimator.disturb(extra)\n", ""),
    "no fresh gradient is asked": ('estimator.begin_round("fresh", estimator.snapshot())', "pass"),
    "there is no cap": ("int(state.step) >= plan.steps", "int(state.step) >= 10**9"),
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_walk(check: Any) -> None:
    check(perturbed_spider)


@pytest.mark.parametrize("bug", BUGS)
def test_every_shortcut_is_seen(bug: str) -> None:
    assert failed(CHECKS, planted(perturbed_spider, *BUGS[bug]), IndexError, AttributeError)


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("steps", [1, 2, 5, 16, 31])
def test_kept_iterates_are_evenly_spaced_and_end_with_the_last(kept: int, steps: int) -> None:
    state, script, _ = walked([LONG] * steps, steps=steps, keep_iterates=kept)
    found = state["iterates"]
    assert found is not None
    path = [*script.points[1:], state["theta"].tolist()]
    places = [path.index(one) + 1 for one in found.tolist()]
    stride = int(state["stride"]) if kept > 1 else steps
    assert places == [*range(stride, steps, stride), steps], "multiples of the stride, and the last"
    assert min(steps, -(-kept // 2)) <= len(places) <= kept
    assert walked([LONG])[0]["iterates"] is None, "unless they are asked for, none are"


SMALL: dict[str, Any] = {
    "batch": 60,
    "difference_batch": 20,
    "restart_drift": 0.05,
    "error_radius": 0.12,
    "extra_noise": 0.2,
    "step_size": 0.5,
}


def real_oracle(units: int, records: Any = None, payments: CountingFilter | None = None) -> StreamOracle:
    """Return a real oracle with a repeatable key."""
    return StreamOracle(
        problem(units, 3) if records is None else records,
        facts_of(units, 3),
        payments or CountingFilter(Gaussian(sigma=1.0)),
        repeatable_generator(),
        np.arange(units),
    )


class Through:
    """An oracle that writes down its answers, with seeded coins, and may stop on request as a worker that dies."""

    def __init__(self, own: Oracle, randomness: Any, die_after: int = 10**9, kept: State | None = None) -> None:
        self._own, self.randomness, self._die_after = own, randomness, die_after
        self.facts, self.kept = own.facts, kept
        self.told: list[tuple[Question, Answer]] = []

    def affords(self, question: Question, then: Question | None = None) -> bool:
        return self._own.affords(question, then)

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        if len(self.told) == self._die_after:
            raise KeyboardInterrupt
        answer = self._own.ask(question, theta, other)
        self.told.append((question, answer))
        return answer

    def resume(self, initial: State) -> State:
        return initial if self.kept is None else self.kept

    def keep(self, state: State, step: int) -> None:
        del step
        self.kept = state


def whole(oracle: Any, **options: Any) -> Estimate:
    return perturbed_spider.iterate(settings(**SMALL, keep_iterates=20, **options), oracle)[0]


def randomness(seed: int = 1) -> SeededRandomness:
    return SeededRandomness(SimulationGenerator(seed))


def test_every_record_is_read_once_and_a_run_costs_one_answer() -> None:
    records, payments = CountedRecords(2000), CountingFilter(Gaussian(sigma=1.0))
    oracle = Through(real_oracle(2000, records, payments), randomness())
    estimate = whole(oracle)
    assert oracle.kept is not None
    assert int(oracle.kept["disturbed"]) > 1, "the run is one that disturbs"
    assert int(oracle.kept["differences"]) > 5, "and asks for changes"
    assert int(records.counts.max()) == 1
    assert int(records.counts.sum()) > 1900
    assert set(payments.totals) == {Gaussian(sigma=1.0)}
    assert estimate.error_bound is not None
    assert (estimate.error_bound.value, estimate.error_bound.variant) == (None, "our reconstruction from prose")


def test_a_transcript_and_the_coins_are_all_that_a_run_is_made_of() -> None:
    first = Through(real_oracle(2000), randomness())
    estimate = whole(first)
    deaf: Any = Deaf(facts_of(2000, 3), first.told)
    deaf.randomness = randomness()
    again = whole(deaf)
    assert torch.equal(estimate.theta, again.theta)
    assert estimate.iterates is not None
    assert again.iterates is not None
    assert torch.equal(estimate.iterates, again.iterates)
    deaf = Deaf(facts_of(2000, 3), first.told)
    deaf.randomness = randomness(2)
    with pytest.raises(AssertionError, match="the same question"):
        whole(deaf)


def test_an_attempt_that_goes_on_has_the_disturbance_of_the_one_before_it() -> None:
    """The worker is lost just after an estimate was disturbed; its successor has other coins, and the old noise."""
    through = Through(real_oracle(2000), randomness())
    whole(through)
    dies = next(number for number in range(2, 40) if _disturbances(number) > _disturbances(number - 1))
    lost = Through(real_oracle(2000), randomness(), die_after=dies)
    with pytest.raises(KeyboardInterrupt):
        whole(lost)
    assert lost.kept is not None
    assert int(lost.kept["frozen"]) == 3, "the last thing that was kept is a disturbed estimate"
    deaf: Any = Through(Deaf(facts_of(2000, 3), through.told[dies:]), randomness(99), kept=lost.kept)  # type: ignore[arg-type] # all it needs
    estimate = whole(deaf, steps=int(lost.kept["step"]) + 2)
    expected = whole(Through(real_oracle(2000), randomness()), steps=int(lost.kept["step"]) + 2)
    assert torch.equal(estimate.theta, expected.theta)


def _disturbances(answers: int) -> int:
    """Count the disturbances of a run that is lost after so many answers."""
    lost = Through(real_oracle(2000), randomness(), die_after=answers)
    with pytest.raises(KeyboardInterrupt):
        whole(lost)
    return 0 if lost.kept is None else int(lost.kept["disturbed"])
