"""Sensitivities of Hessians of any loss, of their products, and of the scores made of them: never passed, reached."""

from math import inf, nan, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import Tensor

from core.losses.phase import SmoothPhase
from core.losses.robust import Cauchy
from core.losses.weights import Clip, Mallows
from core.oracle.full import ReadSelection
from core.oracle.noise import grid_for
from core.oracle.stationarity import SCORE_STEPS, decided, scales_of, score_of
from core.privacy.events import BoundedRange, Gaussian, Pure
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Question, Scored, gradient_of, summed
from core.queries.hessians import FirstStationary, Hessian, HessianProduct, LikelyStationary
from tests.laws.test_questions import Search, every_adjacency
from tests.support.problems import repeatable_generator
from tests.support.situations import SITUATIONS, Situation, named

Rows = tuple[Tensor, Tensor, Tensor]
BENT = 0.7
HESSIAN, PRODUCT = Hessian(sigma=1.0, clip=BENT), HessianProduct(sigma=1.0, clip=BENT)
LIKELY = LikelyStationary(sigma=2.0, curvature_clip=BENT, alpha=0.1, gamma=0.05)
FIRST = FirstStationary(sigma=2.0, curvature_clip=BENT, alpha=0.1, gamma=0.05, slack=1.0)
PHASE = Situation("phase", SmoothPhase(cap=3.0), Clip(bound=0.8))
BOTH_SIGNS = [PHASE, Situation("cauchy", Cauchy(scale=0.7), Mallows(bound=sqrt(2)))]


def known(situation: Situation, units: int, adjacency: Adjacency) -> Facts:
    return situation.facts(units, adjacency).model_copy(update={"hessian_rank": 1})


class BentSearch(Search):
    """The same search; the facts know the rank."""

    def __init__(self, situation: Situation, question: Question, adjacency: Adjacency) -> None:
        super().__init__(situation, question, adjacency)
        self.public = known(situation, 1, adjacency)


@pytest.mark.parametrize("question", [HESSIAN, PRODUCT], ids=lambda question: question.kind)
@every_adjacency
def test_sensitivity_is_never_passed_and_almost_reached(question: Question, adjacency: Adjacency) -> None:
    claimed = question.sensitivity(known(PHASE, 1, adjacency))
    found = BentSearch(PHASE, question, adjacency).worst()
    assert 0.99 * claimed <= found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("situation", [*SITUATIONS[:2], *SITUATIONS[6:9], BOTH_SIGNS[1]], ids=named)
@every_adjacency
def test_no_loss_of_one_margin_passes_it(situation: Situation, adjacency: Adjacency) -> None:
    for question in (HESSIAN, PRODUCT):
        claimed = question.sensitivity(known(situation, 1, adjacency))
        assert BentSearch(situation, question, adjacency).worst() <= claimed * (1 + 1e-9)


def test_one_bound_in_place_of_two_and_that_of_definite_matrices_would_be_seen() -> None:
    """Planted bugs: a unit that is only zeroed, and the sqrt(2) that holds where no eigenvalue is negative."""
    found = BentSearch(PHASE, HESSIAN, Adjacency.REPLACE_ONE).worst()
    assert found > 1.9 * BENT
    assert found > 1.3 * sqrt(2) * BENT


def test_sensitivities_in_closed_form() -> None:
    for adjacency, times in ((Adjacency.ZERO_OUT, 1), (Adjacency.REPLACE_ONE, 2)):
        full = PHASE.facts(1000, adjacency).model_copy(update={"dimension": 20})
        assert HESSIAN.sensitivity(full) == pytest.approx(times * BENT * sqrt(20) / 1000)
        assert HESSIAN.sensitivity(full.model_copy(update={"hessian_rank": 1})) == pytest.approx(times * BENT / 1000)
        assert HESSIAN.stretch(full) == PRODUCT.sensitivity(full) == pytest.approx(times * BENT / 1000)


def test_a_full_rank_matrix_reaches_the_bound_without_a_known_rank() -> None:
    """M I and -M I: 2 M sqrt(d) apart, all of it on the diagonal; a search over records of rank one cannot see it."""
    apart = BENT * torch.eye(9) - -BENT * torch.eye(9)
    assert float(apart.norm()) == pytest.approx(2 * BENT * 3)
    facts = PHASE.facts(1, Adjacency.REPLACE_ONE).model_copy(update={"dimension": 9})
    assert HESSIAN.sensitivity(facts) == pytest.approx(2 * BENT * 3)


@pytest.mark.parametrize("value", [nan, inf, -1e308, 5e-324])
def test_no_point_makes_a_sum_pass_its_bound(value: float) -> None:
    """Others may choose the points: at any, each record counts by its bound at most, or as zero."""
    for situation in (*SITUATIONS[:2], *BOTH_SIGNS):
        public, records = known(situation, 30, Adjacency.ZERO_OUT), situation.problem(situation.rows(30, seed=2))
        far = torch.full((situation.dimension,), value, dtype=torch.float64)
        for question, at, other in (
            (HESSIAN, far, None),
            (PRODUCT, far, situation.point()),
            (PRODUCT, situation.point(), far),
        ):
            grid = grid_for(question, public, 30)
            total = records.integer_sum(question, public, at, grid.part_step, other=other).double()
            assert float(total.norm()) * grid.part_step <= sqrt(2) * 30 * question.bound(public) * 1.002


@every_adjacency
def test_the_lattice_charges_at_least_the_sensitivity_and_little_more(adjacency: Adjacency) -> None:
    for question in (HESSIAN, PRODUCT):
        for units in (1, 1000, 1_000_000):
            public = known(PHASE, units, adjacency)
            grid = grid_for(question, public, units)
            exact = question.sensitivity(public)
            assert exact / (1 - 2**-10) <= grid.sensitivity * grid.step / units <= exact * 1.002
    for units in (1000, 1_000_000):
        public = known(PHASE, units, adjacency)
        scales = scales_of(LIKELY, public, units)
        assert HESSIAN.stretch(public) <= scales.moved * scales.bend.step / units <= HESSIAN.stretch(public) * 1.002


def test_questions_survive_the_wire_and_have_their_prices() -> None:
    for question in (HESSIAN, PRODUCT, LIKELY, FIRST):
        assert TypeAdapter(Question).validate_json(question.model_dump_json()) == question
    assert HESSIAN.event() == PRODUCT.event() == Gaussian(sigma=1.0)
    assert LIKELY.event() == BoundedRange(epsilon=1.0)
    assert FIRST.event() == Pure(epsilon=1.0)
    with pytest.raises(AssertionError, match="two sums"):
        summed(LIKELY)


def score(question: Scored, situation: Situation, rows: Rows, public: Facts, at: Tensor) -> int:
    """Return a point's integer score, by the route of a real oracle."""
    scales = scales_of(question, public, public.units)
    records = situation.problem(rows)
    sums = [
        records.integer_sum(one, public, at, grid.part_step).numpy()
        for one, grid in ((gradient_of(question), scales.slope), (question.hessian(), scales.bend))
    ]
    return score_of(question, public, at, (sums[0], sums[1]), ReadSelection(public.units, public.units))


class TestScores:
    """Integer scores of neighbours are at most 2^20 steps apart."""

    UNITS = 30

    def gap(self, situation: Situation, adjacency: Adjacency, seed: int, size: float, ridge: float) -> float:
        public = known(situation, self.UNITS, adjacency).model_copy(update={"ridge": ridge})
        rows = situation.rows(self.UNITS, seed)
        rows[0][0] *= size
        x, y, present = (tensor.clone() for tensor in rows)
        if adjacency is Adjacency.ZERO_OUT:
            present[0] = False
        else:
            draws = np.random.default_rng(seed)
            x[0] = torch.from_numpy(draws.standard_normal(situation.features)) * draws.choice([1.0, 1e3, np.inf])
            y[0] = abs(situation.target(draws))
        at = situation.point(seed)
        return abs(score(LIKELY, situation, rows, public, at) - score(LIKELY, situation, (x, y, present), public, at))

    @given(
        st.sampled_from(BOTH_SIGNS),
        st.sampled_from(list(Adjacency)),
        st.integers(0, 10**6),
        st.floats(0.01, 1e6),
        st.sampled_from([0.0, 0.1]),
    )
    def test_move_by_no_more_than_is_charged(
        self, situation: Situation, adjacency: Adjacency, seed: int, size: float, ridge: float
    ) -> None:
        assert self.gap(situation, adjacency, seed, size, ridge) <= SCORE_STEPS

    def moved(self, adjacency: Adjacency, rows: Rows, other: tuple[Tensor, float], at: Tensor) -> int:
        """Return the change of the score when the first row is zeroed, or made into another."""
        situation = Situation("phase", SmoothPhase(cap=1e9), Clip(bound=0.8))
        public, (x, y, present) = known(situation, self.UNITS, adjacency), (tensor.clone() for tensor in rows)
        if adjacency is Adjacency.ZERO_OUT:
            present[0] = False
        else:
            x[0], y[0] = other
        before = score(LIKELY, situation, rows, public, at)
        return abs(before - score(LIKELY, situation, (x, y, present), public, at))

    @every_adjacency
    def test_are_moved_by_almost_all_that_is_charged(self, adjacency: Adjacency) -> None:
        """Rows that all pull one way, or bend one way, and one of them comes to do the opposite, or nothing."""
        along, aside = (torch.tensor([0.0, first, second]).double() for first, second in ((0.0, 2.0), (1.0, 0.0)))
        rows = along.repeat(self.UNITS, 1), torch.full((self.UNITS,), 3.0).double(), torch.ones(self.UNITS).bool()
        pulled = self.moved(adjacency, rows, (along, 1e9), along)
        # At a point across all rows margins are zero: curvature -3, no slope. One row leans to it a little.
        bent = self.moved(adjacency, rows, (500 * along + 0.1 * aside, 0.0), aside)
        assert 0.99 * SCORE_STEPS <= min(pulled, bent) <= max(pulled, bent) <= SCORE_STEPS

    @pytest.mark.parametrize("figure", [1e9, 1e13, 1e300])
    @every_adjacency
    def test_no_figure_is_so_large_that_records_decide_whether_there_is_a_score(
        self, adjacency: Adjacency, figure: float
    ) -> None:
        """Of a score that no machine word holds there would be no answer, for some records and not for others."""
        rows = PHASE.rows(self.UNITS, seed=3)
        zeroed = (*rows[:2], torch.cat((torch.zeros(1).bool(), rows[2][1:])))
        far = FirstStationary(sigma=2.0, curvature_clip=BENT, alpha=figure, gamma=figure, slack=figure)
        for ridge, at in ((0.0, PHASE.point()), (figure, PHASE.point()), (1.0, PHASE.point() * figure)):
            public = known(PHASE, self.UNITS, adjacency).model_copy(update={"ridge": ridge})
            for asked in (far, LIKELY):
                found = [score(asked, PHASE, records, public, at) for records in (rows, zeroed)]
                assert abs(found[0] - found[1]) <= SCORE_STEPS
                told = torch.tensor(found, dtype=torch.int64).tolist()
                decided(repeatable_generator(), asked, told)
