"""The oracles over private records: payment before reading, sampling laws, noise laws, and what they refuse.

Statistical thresholds: |z| > 4.5, a false alarm in 150,000 per test; generators are forced, so a run repeats.
"""

from dataclasses import replace
from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from core.base.errors import StaleAttempt
from core.mechanisms import sampling
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.mechanisms.lattice import Grid
from core.oracle import EVERYTHING, Answer, Oracle, Part, Status, noise
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.samples import PoissonOracle, StreamOracle
from core.privacy.events import Composed, Disjoint, Event, Gaussian, Repeated
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, Question, Secant
from tests.support.problems import facts, problem, repeatable_generator
from tests.support.situations import SITUATIONS, Situation, named

GRADIENT = Gradient(sigma=2.0)
ZERO = torch.zeros(3, dtype=torch.float64)
ADJACENCIES = list(Adjacency)


class Journal(CountingFilter):
    """A privacy filter and records that write into one list what happens when."""

    def __init__(self, units: int = 30, dimension: int = 3, *, stale: bool = False) -> None:
        super().__init__(log=self)
        self.entries: list[str] = []
        self.told: list[Answer] = []
        self.noted: list[Answer] = []
        self.points: list[tuple[list[float], list[float]]] = []
        self.selections: list[tuple[Tensor | None, Tensor | None]] = []
        self.records = problem(units, dimension)
        self.units, self.dimension, self.replicates = units, dimension, None
        self.stale = stale
        self.state: dict[str, Tensor] | None = None

    def _at(self, question: Question, theta: Tensor, other: Tensor | None) -> None:
        if question.places == "pair":
            assert other is not None
            self.points.append((theta.tolist(), other.tolist()))

    def recall(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer | None:
        del question, theta, other
        return self.told.pop(0) if self.told else None

    def note(self, question: Question, theta: Tensor, answer: Answer, other: Tensor | None = None) -> None:
        self._at(question, theta, other)
        self.noted.append(answer)

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        del step
        self.state = state

    def resume(self) -> dict[str, Tensor] | None:
        return self.state

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        if self.stale:
            raise StaleAttempt("the lease was lost")
        super().pay(event, part, length)
        self.entries.append("paid")
        return False

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        self.entries.append("read")
        self._at(question, theta, other)
        self.selections.append((rows, included))
        return self.records.integer_sum(question, facts, theta, step, other=other, rows=rows, included=included)


def oracles(journal: Journal) -> list[tuple[FullOracle | PoissonOracle | StreamOracle, Question]]:
    public = facts(journal.units, journal.dimension)
    return [
        (FullOracle(journal, public, journal, SystemGenerator()), GRADIENT),
        (PoissonOracle(journal, public, journal, SystemGenerator(), 2**62), GRADIENT),
        (StreamOracle(journal, public, journal, SystemGenerator(), np.arange(30)), Gradient(sigma=2.0, batch=5)),
    ]


@pytest.mark.parametrize("kind", [0, 1, 2])
class TestEveryOracle:
    def test_pays_before_it_reads(self, kind: int) -> None:
        journal = Journal()
        oracle, question = oracles(journal)[kind]
        for step in range(3):
            oracle.ask(question, ZERO + step)
        assert journal.entries == ["paid", "read"] * 3
        grown = question.batch or 1
        assert journal.positions == [grown, 2 * grown, 3 * grown]

    def test_reads_nothing_for_a_stale_attempt(self, kind: int) -> None:
        journal = Journal(stale=True)
        oracle, question = oracles(journal)[kind]
        with pytest.raises(StaleAttempt):
            oracle.ask(question, ZERO)
        assert journal.entries == []
        assert oracle.release(None, Status.STOPPED).event == Composed()

    def test_tells_again_what_an_earlier_attempt_was_told_and_reads_nothing(self, kind: int) -> None:
        journal = Journal()
        oracle, question = oracles(journal)[kind]
        known = Answer(ZERO + 1, 0.5)
        journal.told = [known]
        assert oracle.ask(question, ZERO) is known
        assert journal.entries == []
        fresh = oracle.ask(question, ZERO)
        assert journal.entries == ["paid", "read"]
        assert journal.noted == [fresh]
        assert oracle.release(None, Status.FINISHED).event == journal.totals[-1]

    def test_answers_points_of_the_right_shape_and_number(self, kind: int) -> None:
        journal = Journal()
        oracle, question = oracles(journal)[kind]
        for theta in (ZERO.expand(2, 3), ZERO[:2], ZERO.float()):
            with pytest.raises(AssertionError, match=r"replicates|parameters"):
                oracle.ask(question, theta)
        with pytest.raises(AssertionError, match="all but pairs"):
            oracle.ask(question, ZERO, ZERO)
        slope = Secant(sigma=2.0, batch=question.batch)
        for other in (None, ZERO[:2], ZERO.float()):
            with pytest.raises(AssertionError, match=r"two points|both points|parameters"):
                oracle.ask(slope, ZERO, other)
        assert journal.entries == []

    def test_slopes_are_paid_read_noised_and_told_again(self, kind: int) -> None:
        journal = Journal()
        oracle, question = oracles(journal)[kind]
        slope = Secant(sigma=2.0, batch=question.batch)
        answer = oracle.ask(slope, ZERO, ZERO + 1)
        assert journal.entries == ["paid", "read"]
        assert (answer.value.shape, answer.scale > 0) == ((1,), True)
        assert journal.points == [(ZERO.tolist(), (ZERO + 1).tolist())] * 2, "read and noted where it was asked"
        assert journal.noted == [answer]
        journal.told = [answer]
        assert oracle.ask(slope, ZERO, ZERO + 1) is answer
        assert journal.entries == ["paid", "read"]

    def test_is_closed_by_a_release(self, kind: int) -> None:
        journal = Journal()
        oracle, question = oracles(journal)[kind]
        oracle.ask(question, ZERO)
        released = oracle.release(ZERO, Status.FINISHED)
        assert released.event == journal.totals[-1]
        with pytest.raises(AssertionError, match="closed"):
            oracle.ask(question, ZERO)
        with pytest.raises(AssertionError, match="closed"):
            oracle.release(ZERO, Status.FINISHED)
        assert journal.entries == ["paid", "read"]

    def test_takes_no_generator_but_the_systems(self, kind: int) -> None:
        with (
            patch(f"{__name__}.SystemGenerator", lambda: SimulationGenerator(1)),
            pytest.raises(TypeError, match="SystemGenerator"),
        ):
            oracles(Journal())[kind]

    def test_keeps_and_resumes_through_the_meter(self, kind: int) -> None:
        journal = Journal()
        first = oracles(journal)[kind][0]
        initial = {"theta": ZERO}
        assert first.resume(initial) is initial
        first.keep({"theta": ZERO + 1}, 4)
        assert torch.equal(oracles(journal)[kind][0].resume(initial)["theta"], ZERO + 1)

    def test_asks_the_meter_what_it_affords(self, kind: int) -> None:
        journal = Journal()
        oracle, question = oracles(journal)[kind]
        limited = CountingFilter(priced=oracle._event(question))
        oracle._payments = limited
        assert oracle.affords(question)
        oracle.ask(question, ZERO)
        assert oracle.affords(question) is (kind == 2)  # a stream's next batch costs nothing more

    def test_has_coins(self, kind: int) -> None:
        oracle, _ = oracles(Journal())[kind]
        assert oracle.randomness.normal(5).shape == (5,)
        assert not torch.equal(oracle.randomness.normal(5), oracle.randomness.normal(5))
        assert {oracle.randomness.integer(3) for _ in range(200)} == {0, 1, 2}


def test_facts_must_fit_the_records() -> None:
    for wrong in (facts(31, 3), facts(30, 4)):
        with pytest.raises(AssertionError, match="facts"):
            FullOracle(problem(30, 3), wrong, UnlimitedFilter(), SystemGenerator())


def test_price_of_a_full_oracle_composes() -> None:
    journal = Journal()
    oracle: Oracle = FullOracle(journal, facts(30, 3), journal, SystemGenerator())
    for question in (GRADIENT, Curvature(of="score", sigma=3.0), GRADIENT):
        oracle.ask(question, ZERO)
    expected = Composed(events=(Repeated(event=Gaussian(sigma=2.0), times=2), Gaussian(sigma=3.0)))
    assert oracle.release(None, Status.FINISHED).event == expected
    assert journal.totals == [
        Gaussian(sigma=2.0),
        Composed(events=(Gaussian(sigma=2.0), Gaussian(sigma=3.0))),
        expected,
    ]


class TestBlocks:
    def blocks(self) -> dict[str, Tensor]:
        return {"holdout": torch.arange(30) >= 25, "other": torch.arange(30) < 5}

    def test_read_disjoint_records_and_cost_the_dearer_one(self) -> None:
        journal = Journal()
        oracle = FullOracle(journal, facts(30, 3), journal, SystemGenerator(), self.blocks())
        holdout = oracle.block("holdout")
        assert (oracle.facts.units, holdout.facts.units, oracle.block("other").facts.units) == (20, 5, 5)
        oracle.ask(GRADIENT, ZERO)
        oracle.ask(GRADIENT, ZERO + 1)
        answer = holdout.ask(Gradient(sigma=5.0), ZERO)
        assert answer.scale == pytest.approx(5.0 * sqrt(2) / 5, rel=2e-3)
        masks = [included for _, included in journal.selections]
        assert not (masks[0] & masks[2]).any()
        assert torch.equal(masks[2], self.blocks()["holdout"])
        both = Disjoint(events=(Repeated(event=Gaussian(sigma=2.0), times=2), Gaussian(sigma=5.0)))
        assert oracle.release(None, Status.FINISHED).event == both
        with pytest.raises(AssertionError, match="closed"):
            holdout.ask(GRADIENT, ZERO)

    def test_are_masks_named_up_front(self) -> None:
        oracle = FullOracle(problem(30, 3), facts(30, 3), UnlimitedFilter(), SystemGenerator(), self.blocks())
        with pytest.raises(AssertionError, match="named"):
            oracle.block("unknown")
        overlapping = self.blocks() | {"again": torch.arange(30) == 3}
        with pytest.raises(AssertionError, match="share"):
            FullOracle(problem(30, 3), facts(30, 3), UnlimitedFilter(), SystemGenerator(), overlapping)

    def test_of_a_poisson_and_a_stream_oracle_stay_inside(self) -> None:
        journal = Journal()
        poisson = PoissonOracle(journal, facts(30, 3), journal, SystemGenerator(), 2**63, self.blocks())
        for _ in range(50):
            poisson.block("holdout").ask(GRADIENT, ZERO)
        seen = torch.stack([included for _, included in journal.selections if included is not None]).any(0)
        assert torch.equal(seen, self.blocks()["holdout"])
        journal = Journal()
        order = sampling.public_order("job", 30)
        stream = StreamOracle(journal, facts(30, 3), journal, SystemGenerator(), order, blocks=self.blocks())
        stream.block("other").ask(Gradient(sigma=1.0, batch=5), ZERO)
        assert sorted(journal.selections[-1][0].tolist()) == [0, 1, 2, 3, 4]
        assert not stream.block("other").affords(Gradient(sigma=1.0, batch=5))
        assert stream.affords(Gradient(sigma=1.0, batch=5))


def noise_of(
    situation: Situation, question: Question, adjacency: Adjacency, units: int, draws: int | None = None
) -> tuple[np.ndarray, float]:
    """Return (noisy - exact) of many answers, of the question's shape each, and their priced scale.

    2e5 coordinates of vectors for one kind of problem, 4e4 for others and on diagonals; 5,000 slopes.
    """
    public = situation.facts(units, adjacency)
    records = situation.problem(situation.rows(units))
    oracle = FullOracle(records, public, UnlimitedFilter(), repeatable_generator())
    theta = situation.point(1)
    other = situation.point(2) if question.places == "pair" else None
    exact = records.bounded_sum(question, public, theta, other=other) / units
    if draws is None:  # a matrix draws 25 numbers off its diagonal for each one on it
        draws = 200_000 if situation is LOGISTIC and exact.ndim == 1 else 40_000
    asks = 5_000 if question.places == "pair" else draws // situation.dimension
    claimed = question.sigma * question.sensitivity(public)
    assert claimed <= oracle.ask(question, theta, other).scale <= 1.002 * claimed, "the scale is what the price says"
    errors = [oracle.ask(question, theta, other).value - exact for _ in range(asks)]
    return torch.stack(errors).numpy(), claimed


def check_noise(
    situation: Situation, question: Question, adjacency: Adjacency, units: int, draws: int | None = None
) -> None:
    """Fail unless the noise has the law it was priced with: false alarm 1 in 150,000 each, the generator forced."""
    errors, claimed = noise_of(situation, question, adjacency, units, draws)
    if errors.ndim == 3:
        assert (errors == errors.transpose(0, 2, 1)).all(), "the noise is symmetric"
        size = errors.shape[-1]
        rows, columns = np.triu_indices(size, 1)
        parts = {"diagonal": errors[:, range(size), range(size)], "off the diagonal": errors[:200, rows, columns]}
    else:
        parts = {"coordinates": errors}
    for part, values in parts.items():
        allowed = max(0.01, 0.002 + 4.5 / sqrt(2 * values.size))
        assert abs(values.std() / claimed - 1) < allowed, f"the deviation on the {part} is as priced"
        assert abs(values.mean()) < 4.5 * claimed / sqrt(values.size), f"the {part} are centred"
        lagged = (values[1:] * values[:-1]).sum() / claimed**2
        assert abs(lagged) < 4.5 * 1.01 * sqrt(values[1:].size), "every answer has noise of its own"


LOGISTIC, JOINT, FOUR_CLASSES = (
    replace(SITUATIONS[index], features=features) for index, features in ((0, 50), (2, 49), (4, 17))
)
LAWS = [
    (LOGISTIC, Gradient(sigma=0.7), Adjacency.ZERO_OUT, 100),
    (LOGISTIC, Gradient(sigma=sqrt(60) / 2, clip=0.3), Adjacency.REPLACE_ONE, 10),
    (LOGISTIC, Curvature(of="hessian", sigma=4.0), Adjacency.REPLACE_ONE, 100),
    (LOGISTIC, Curvature(of="score", sigma=1.5), Adjacency.ZERO_OUT, 10),
    (LOGISTIC, Secant(sigma=3.0), Adjacency.REPLACE_ONE, 10),
    (JOINT, Gradient(sigma=2.0), Adjacency.REPLACE_ONE, 10),
    (JOINT, Curvature(of="hessian", sigma=2.0), Adjacency.REPLACE_ONE, 10),
    (JOINT, Curvature(of="score", sigma=2.0), Adjacency.ZERO_OUT, 10),
    (JOINT, Secant(sigma=0.5), Adjacency.ZERO_OUT, 10),
    (FOUR_CLASSES, Gradient(sigma=2.0), Adjacency.REPLACE_ONE, 10),
    (FOUR_CLASSES, Curvature(of="hessian", sigma=2.0), Adjacency.REPLACE_ONE, 10),
]


@pytest.mark.parametrize(("situation", "question", "adjacency", "units"), LAWS, ids=named)
def test_noise_law(situation: Situation, question: Question, adjacency: Adjacency, units: int) -> None:
    check_noise(situation, question, adjacency, units)


class TestPlantedNoise:
    """Wrong noise that the law above must catch."""

    def test_a_fifth_too_small(self) -> None:
        def smaller(generator: SystemGenerator, parameter: float, size: int) -> np.ndarray:
            return genuine(generator, 0.8 * parameter, size)

        genuine = noise.noise_vector
        with patch.object(noise, "noise_vector", smaller), pytest.raises(AssertionError, match="deviation"):
            check_noise(*LAWS[0])

    def test_the_same_each_step(self) -> None:
        def repeated(_generator: SystemGenerator, parameter: float, size: int) -> np.ndarray:
            return genuine(repeatable_generator(), parameter, size)

        genuine = noise.noise_vector
        with patch.object(noise, "noise_vector", repeated), pytest.raises(AssertionError):
            check_noise(*LAWS[0])

    def test_a_diameter_of_the_coefficients_alone(self) -> None:
        """Planted: the scale's entry left out of how far apart gradients lie."""
        situation, question, adjacency, units = LAWS[5]
        genuine = noise.vector_grid

        def nearer(clip: float, terms: int, p: int, between: Adjacency, diameter: float) -> Grid:
            return genuine(clip, terms, p, between, 0.97 * diameter)

        with patch.object(noise, "vector_grid", nearer), pytest.raises(AssertionError, match="scale"):
            check_noise(situation, question, adjacency, units)

    def test_averaged_symmetrisation(self) -> None:
        def averaged(generator: SystemGenerator, parameter: float, dimension: int) -> np.ndarray:
            full = noise.noise_vector(generator, parameter, dimension**2).reshape(dimension, dimension)
            return (full + full.T) // 2

        with patch.object(noise, "noise_symmetric", averaged), pytest.raises(AssertionError, match="off"):
            check_noise(*LAWS[2])

    def test_matrix_factor_one_and_half_the_bound(self) -> None:
        """Planted: under replace_one, sqrt(2) -> 1 for matrices and 2 B -> B for vectors."""
        for name, index in (("matrix_grid", 2), ("vector_grid", 1), ("vector_grid", 4), ("matrix_grid", 6)):
            genuine = getattr(noise, name)

            def cheaper(
                clip: float, units: int, p: int, _: Adjacency, *diameter: float, grid: object = genuine
            ) -> object:
                return grid(clip, units, p, Adjacency.ZERO_OUT, *diameter)

            with patch.object(noise, name, cheaper), pytest.raises(AssertionError, match="scale"):
                check_noise(*LAWS[index])
