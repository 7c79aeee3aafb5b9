"""Networks get questions and answers in single precision, all else in double: the same integers, rounded once more."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from torch import Tensor

from core.mechanisms import telling
from core.mechanisms.generator import SimulationGenerator
from core.mechanisms.sampling import rate_parts
from core.methods.clipped.clipped_sgd.fit import iterate
from core.methods.clipped.clipped_sgd.spec import ClippedSgdPlan
from core.methods.clipped.rules import Adam, Average, MovingMean, NoMean, Rule, Sgd, TailMean
from core.native.signatures import TELL, TELL_OPEN
from core.oracle import Answer, noise
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle
from core.oracle.simulation import Simulation
from core.queries.gradients import Gradient, GradientDifference, GradientNorm
from core.queries.sums.peer_group import Alone
from core.training.notes import Noted
from tests.support import networks
from tests.support.compiled import compiled_kernels, needs_compiler
from tests.support.problems import facts, problem, repeatable_generator

UNITS = 96
NETWORK = networks.NETWORKS["perceptron"]
QUESTION = Gradient(sigma=2.0, clip=0.5)


def real_oracle() -> FullOracle:
    """Return an oracle over a network's records whose noise repeats."""
    held = networks.problem(NETWORK, UNITS)
    return FullOracle(held, networks.facts(UNITS, held.dimension), UnlimitedFilter(), repeatable_generator())


def point(dimension: int, seed: int = 1) -> Tensor:
    """Return a point that single precision holds."""
    return 0.1 * torch.randn(dimension, generator=torch.Generator().manual_seed(seed))


@needs_compiler
@pytest.mark.parametrize("part_rows", [8, 96, 256])
@pytest.mark.parametrize("question", [QUESTION, GradientDifference(sigma=2.0, clip=0.5, cap=0.2)])
@pytest.mark.parametrize("name", ["perceptron", "pools"])
def test_a_sum_whose_last_part_is_floats_tells_what_one_of_integers_does(
    name: str, question: Gradient | GradientDifference, part_rows: int
) -> None:
    """In one pass, or two compiled ones, or by NumPy, by the same coins: the last bit is the same."""
    told = list[Tensor]()
    ways = {
        "tell_open": partial(telling.tell_open, kernel=TELL_OPEN.of(compiled_kernels())),
        "tell_in_place": partial(telling.tell_in_place, kernel=TELL.of(compiled_kernels())),
        "tell_noised": partial(telling.tell_noised, kernel=None),
    }
    for way in ways:
        held = networks.problem(networks.NETWORKS[name], UNITS)
        known = networks.facts(UNITS, held.dimension, part_rows=part_rows)
        oracle = FullOracle(held, known, UnlimitedFilter(), repeatable_generator())
        ends = [point(held.dimension, seed) for seed in (1, 2)][: 1 + (question.places == "pair")]
        with (
            patch.object(noise, "TELLS_OPEN", way == "tell_open"),
            patch.object(noise, "TELLS_IN_PLACE", way == "tell_in_place"),
            patch.multiple(noise, **{name: Mock(side_effect=one) for name, one in ways.items()}),
        ):
            told.append(oracle.ask(question, *ends).value)
            assert {name: vars(noise)[name].call_count for name in ways} == {name: name == way for name in ways}
    assert told[0].numpy().tobytes() == told[1].numpy().tobytes() == told[2].numpy().tobytes()
    assert told[0].any()


@pytest.mark.parametrize("question", [QUESTION, GradientDifference(sigma=2.0, clip=0.5, cap=0.2)])
def test_an_answer_has_the_precision_of_its_point_and_the_same_integers(
    question: Gradient | GradientDifference,
) -> None:
    told = []
    for precision in (torch.float64, torch.float32):
        oracle = real_oracle()
        ends = [point(oracle.facts.dimension, seed).to(precision) for seed in (1, 2)]
        answer = oracle.ask(question, *ends[: 1 + (question.places == "pair")])
        assert answer.value.dtype == precision
        told.append(answer)
    assert torch.equal(told[0].value.float(), told[1].value)
    assert told[0].scale == told[1].scale


def test_a_norm_is_told_in_double_precision() -> None:
    oracle = real_oracle()
    answer = oracle.ask(GradientNorm(sigma=2.0, clip=0.5), point(oracle.facts.dimension))
    assert answer.value.dtype == torch.float64


def test_only_networks_are_asked_in_single_precision() -> None:
    linear = FullOracle(problem(UNITS, 3), facts(UNITS, 3), UnlimitedFilter(), repeatable_generator())
    assert (real_oracle().precision, linear.precision) == (torch.float32, torch.float64)
    with pytest.raises(AssertionError, match="parameters are float64"):
        linear.ask(Gradient(sigma=2.0), torch.zeros(3))
    oracle = real_oracle()
    ends = point(oracle.facts.dimension), point(oracle.facts.dimension).double()
    with pytest.raises(AssertionError, match="one precision"):
        oracle.ask(GradientDifference(sigma=2.0, clip=0.5, cap=0.2), *ends)


def test_clients_and_studies_stay_in_double_precision() -> None:
    """Differences between machines' roundings add up in single precision; see `core.oracle.points`."""
    own = real_oracle()
    payments = SiteFilter(UnlimitedFilter(), MessageRounds(Alone()))
    federation = FederatedOracle(own, payments, "fed_test")
    simulation = Simulation(networks.problem(NETWORK, UNITS), own.facts, SimulationGenerator(1))
    assert federation.precision == simulation.precision == torch.float64
    assert federation.ask(QUESTION, point(own.facts.dimension).double()).value.dtype == torch.float64


class Kept:
    """A network's oracle that keeps all states."""

    def __init__(self) -> None:
        held = networks.problem(NETWORK, UNITS)
        public = networks.facts(UNITS, held.dimension)
        self._oracle = PoissonOracle(held, public, UnlimitedFilter(), repeatable_generator(), rate_parts(1 / 4))
        self.facts, self.randomness, self.precision = (
            self._oracle.facts,
            self._oracle.randomness,
            self._oracle.precision,
        )
        self.resume, self.states = self._oracle.resume, list[dict[str, Tensor]]()

    def ask(self, question: Gradient, theta: Tensor, other: Tensor | None = None) -> Answer:
        return self._oracle.ask(question, theta, other)

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        assert step == len(self.states) + 1
        self.states.append({name: value.clone() for name, value in state.items()})


@pytest.mark.parametrize(
    ("rule", "average"),
    [
        (Sgd(), NoMean()),
        (Sgd(momentum=0.9), TailMean(steps=3)),
        (Adam(), MovingMean(decay=0.9)),
    ],
)
def test_whatever_clipped_sgd_keeps_of_a_network_is_in_single_precision(rule: Rule, average: Average) -> None:
    """And is that of double precision but for rounding, from the same integers."""
    settings = ClippedSgdPlan(
        steps=6, batch=24, sigma=1.0, clip=0.5, step_size=0.05, radius=1e6, rule=rule, average=average
    )
    runs = []
    for precision in (torch.float32, torch.float64):
        oracle = Kept()
        oracle.precision = precision
        with patch.object(noise, "noise_vector", _nothing):
            estimate, _ = iterate(settings, oracle)
        long = [value for state in oracle.states for value in state.values() if value.ndim]
        assert len(long) >= settings.steps
        assert {value.dtype for value in (estimate.theta, *long)} == {precision}
        runs.append(estimate.theta)
    torch.testing.assert_close(runs[0].double(), runs[1], rtol=1e-3, atol=1e-6 * float(runs[1].abs().max()) + 1e-7)
    assert runs[0].any()


def test_a_job_that_was_begun_in_double_precision_goes_on_in_it() -> None:
    """Its kept state is what an earlier release left; nothing of it is rounded."""
    settings = ClippedSgdPlan(
        steps=6, batch=24, sigma=1.0, clip=0.5, step_size=0.05, radius=1e6, rule=Sgd(momentum=0.9), average=NoMean()
    )
    whole = Kept()
    whole.precision = torch.float64
    with patch.object(noise, "noise_vector", _nothing):
        iterate(settings, whole)
        later = Kept()
        later.states, left = whole.states[:3], whole.states[2]
        later.resume = lambda initial: left if initial else initial  # type: ignore[method-assign]  # a stored state
        estimate, _ = iterate(settings, later)
    assert later.precision == torch.float32
    assert {value.dtype for state in later.states for value in state.values() if value.ndim} == {torch.float64}
    assert estimate.theta.dtype == torch.float64


def _nothing(generator: object, parameter: float, size: int) -> np.ndarray:
    del generator, parameter
    return np.zeros(size, dtype=np.int64)


def _pieces(generator: object, parameter: float, size: int) -> Iterator[tuple[int, np.ndarray]]:
    yield 0, _nothing(generator, parameter, size)


def test_a_long_vector_is_told_where_its_sum_stood() -> None:
    """Longer than what is drawn ahead, so piece by piece, in half the memory of the integers."""
    grid = grid_for(QUESTION, networks.facts(UNITS, 5000), UNITS)
    sums = torch.arange(-2500, 2500) * 2 ** (grid.part_bits + 3)
    with patch.object(noise, "noise_pieces", _pieces):
        told = [
            noise.noised_mean(
                sums.clone(),
                QUESTION,
                networks.facts(UNITS, 5000),
                UNITS,
                2.0,
                repeatable_generator(),
                torch.zeros(5000, dtype=precision),
            ).value
            for precision in (torch.float32, torch.float64)
        ]
    assert told[1].tolist() == [8 * number * grid.step / 2 for number in range(-2500, 2500)]
    assert torch.equal(told[0], told[1].float())


@pytest.mark.parametrize(
    ("precision", "apart", "is_same"),
    [
        (torch.float64, 1e-12, True),
        (torch.float64, 1e-6, False),
        (torch.float32, 1e-6, True),
        (torch.float32, 1e-2, False),
    ],
)
def test_another_machine_may_round_otherwise_as_far_as_its_precision_goes(
    precision: torch.dtype, apart: float, *, is_same: bool
) -> None:
    noted, theta = torch.ones(3, dtype=precision), torch.ones(3, dtype=precision) + apart
    told = Noted(QUESTION, noted, Answer(noted, 1.0))
    assert told.answers(QUESTION, theta) == is_same
    for one, other in pairwise((noted.double(), noted.float(), noted.double())):
        assert not Noted(QUESTION, one, Answer(one, 1.0)).answers(QUESTION, other), "nor another precision"
