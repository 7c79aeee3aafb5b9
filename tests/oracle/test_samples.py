"""Oracles that read some of the records: sampling laws, lists of rows, public orders, and planted bugs they must catch.

Statistical thresholds: |z| > 4.5, a false alarm in 150,000 per test; generators are forced, so a run repeats.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from core.base.errors import AdjacencyMismatch
from core.losses.weights import Mallows
from core.mechanisms import sampling
from core.mechanisms.generator import SystemGenerator
from core.oracle import samples
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle, ReadSelection
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle, StreamOracle
from core.privacy.events import Disjoint, Gaussian, Repeated, Sampled
from core.privacy.facts import Adjacency
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.sums.linear import LinearProblem
from tests.oracle.test_full import Journal
from tests.support.problems import LOGISTIC, facts, problem, repeatable_generator, rows
from tests.support.situations import SITUATIONS, Situation, named

GRADIENT = Gradient(sigma=2.0)
BATCH = Gradient(sigma=2.0, batch=10)
ZERO = torch.zeros(3, dtype=torch.float64)
Drawing = Callable[[SystemGenerator, int, int], NDArray[np.bool_]]
genuine = sampling.poisson_mask


@contextmanager
def drawing(planted: Drawing) -> Iterator[None]:
    """Plant another way to draw samples, as masks even where lists are asked for."""

    def listed(generator: SystemGenerator, parts: int, units: int, length: int) -> NDArray[np.bool_]:
        del length
        return planted(generator, parts, units)

    with patch.multiple(sampling, poisson_mask=planted, poisson_list=listed):
        yield


def shuffled(generator: SystemGenerator, parts: int, units: int) -> NDArray[np.bool_]:
    """Planted bug: batches of a fixed size, priced as Poisson."""
    mask = np.zeros(units, dtype=np.bool_)
    mask[sampling.permutation(generator, units)[: units * parts >> 64]] = True
    return mask


def too_many(generator: SystemGenerator, parts: int, units: int) -> NDArray[np.bool_]:
    """Planted bug: a twentieth more than is priced."""
    return genuine(generator, parts + parts // 20, units)


def everything(_generator: SystemGenerator, _parts: int, units: int) -> NDArray[np.bool_]:
    """Planted bug: q = 1 priced as less; and a sample that passes its length."""
    return np.ones(units, dtype=np.bool_)


def masks_of(journal: Journal) -> Tensor:
    """Return which records each answer was about, whether a list or a mask said so."""
    masks = torch.zeros(len(journal.selections), journal.units)
    for mask, (read, included) in zip(masks, journal.selections, strict=True):
        assert included is not None
        mask[included if read is None else read[included]] = 1
    return masks.double()


def check_poisson_rate(parts: int, *, by_rows: bool = True) -> None:
    """Fail unless each record is in at the priced rate, independently of others and of earlier samples."""
    journal = Journal(units=2000)
    oracle = PoissonOracle(journal, facts(2000, 3), journal, repeatable_generator(), parts, by_rows=by_rows)
    for _ in range(200):
        oracle.ask(GRADIENT, ZERO)
    masks = masks_of(journal)
    rate = parts / 2**64
    draws = masks.numel()
    assert abs(masks.sum().item() - draws * rate) < 4.5 * sqrt(draws * rate * (1 - rate)), "the rate is as priced"
    each = masks.sum(0).sub(200 * rate).square().sum().item() / (200 * rate * (1 - rate))
    assert abs(each - 2000) < 4.5 * sqrt(2 * 2000), "every record's rate is"
    spread = (masks.sum(1) - 2000 * rate).square().sum().item() / (2000 * rate * (1 - rate))
    assert abs(spread - 200) < 4.5 * sqrt(2 * 200), "sizes vary as a binomial's"
    again = ((masks[1:] - rate) * (masks[:-1] - rate)).sum().item() / (rate * (1 - rate))
    assert abs(again) < 4.5 * sqrt(199 * 2000), "samples are drawn afresh"


class TestPoisson:
    @pytest.mark.parametrize("by_rows", [True, False])
    def test_rate(self, *, by_rows: bool) -> None:
        check_poisson_rate(sampling.rate_parts(0.1), by_rows=by_rows)

    @pytest.mark.parametrize(
        ("planted", "seen"),
        [(everything, "rate"), (too_many, "rate"), (shuffled, "sizes")],
        ids=["everything", "too_many", "shuffled"],
    )
    def test_other_samples_than_were_priced_are_caught(self, planted: Drawing, seen: str) -> None:
        with drawing(planted), pytest.raises(AssertionError, match=seen):
            check_poisson_rate(sampling.rate_parts(0.1))

    def test_one_sample_used_twice_is_caught(self) -> None:
        fixed = genuine(repeatable_generator(), 2**61, 2000)
        with drawing(lambda *_: fixed), pytest.raises(AssertionError):
            check_poisson_rate(2**61)

    def test_divides_by_the_expected_size_and_pays_for_what_it_draws(self) -> None:
        journal = Journal(units=400)
        oracle = PoissonOracle(journal, facts(400, 3), journal, SystemGenerator(), 2**62)
        answer = oracle.ask(GRADIENT, ZERO)
        assert answer.scale == pytest.approx(2.0 * sqrt(2) / 100, rel=2e-3)
        assert journal.totals == [Sampled(numerator=2**62, sigma=2.0)]

    def test_is_refused_where_records_may_change(self) -> None:
        public = facts(30, 3, adjacency=Adjacency.REPLACE_ONE)
        with pytest.raises(AdjacencyMismatch, match="zero_out"):
            PoissonOracle(problem(30, 3), public, UnlimitedFilter(), SystemGenerator(), 2**62)

    def test_empty_samples_take_a_noised_step(self) -> None:
        oracle = PoissonOracle(problem(30, 3), facts(30, 3), UnlimitedFilter(), SystemGenerator(), 1)
        assert oracle.ask(GRADIENT, ZERO).value.isfinite().all()


def spread_of_a_constant(asks: int = 100) -> float:
    """Return the variance of a constant gradient's mean over samples, over |v|^2 (1 - q)/(n q); noise is negligible."""
    units, rate = 1000, 0.125
    x = torch.tensor([[1.0, 0.5, -0.25]], dtype=torch.float64).repeat(units, 1)
    present = torch.ones(units, dtype=torch.bool)
    records = LinearProblem(x, torch.ones(units, dtype=torch.float64), present, LOGISTIC, Mallows(bound=2.0))
    public = facts(units, 3, weights=Mallows(bound=2.0))
    each = records.bounded_sum(GRADIENT, public, ZERO) / units
    oracle = PoissonOracle(records, public, UnlimitedFilter(), repeatable_generator(), sampling.rate_parts(rate))
    told = torch.stack([oracle.ask(Gradient(sigma=2.0**-8), ZERO).value for _ in range(asks)])
    assert abs((told.mean(0) / each - 1).abs().max()) < 4.5 * sqrt((1 - rate) / (units * rate * asks)) + 1e-3
    return float((told - each).square().sum(1).mean() / (each.square().sum() * (1 - rate) / (units * rate)))


def of_the_realised_size(self: PoissonOracle, question: Question) -> ReadSelection:
    """Planted bug: a mean over the sample's own size."""
    found = genuine_selection(self, question)
    assert found.included is not None
    return ReadSelection(found.terms, float(found.included.sum()), found.rows, found.included)


genuine_selection = PoissonOracle._select


class TestSpread:
    """Of 800 answers the variance's own deviation is a twentieth, of which 4.5 are allowed."""

    def test_a_constant_gradients_mean_varies_as_the_size_does(self) -> None:
        assert abs(spread_of_a_constant(800) - 1) < 4.5 * sqrt(2 / 800)

    def test_the_realised_size_as_denominator_is_caught(self) -> None:
        with patch.object(PoissonOracle, "_select", of_the_realised_size):
            assert spread_of_a_constant() < 0.01

    def test_fixed_batches_are_caught(self) -> None:
        with drawing(shuffled):
            assert spread_of_a_constant() < 0.01


class TestLists:
    """A sample as a list of rows, of a public length, is the sample."""

    PARTS = sampling.rate_parts(0.05)

    @pytest.mark.parametrize("situation", SITUATIONS, ids=named)
    def test_sum_to_what_a_masked_full_pass_does(self, situation: Situation) -> None:
        """Each errs by what the grid charges at most, so they differ by twice that."""
        records, public = situation.problem(situation.rows(800)), situation.facts(800)
        theta, other = situation.point(1), situation.point(2)
        length = sampling.padded_length(self.PARTS, 800)
        generator = repeatable_generator()
        generator.bits(1)  # of a sample where no answer is zero
        found = sampling.poisson_list(generator, self.PARTS, 800, length)
        assert isinstance(found, sampling.ListedSample)
        mask = np.zeros(800, dtype=np.bool_)
        mask[found.rows[found.included]] = True
        listed = {"rows": torch.from_numpy(found.rows), "included": torch.from_numpy(found.included)}
        padded = False
        for question in situation.questions:
            grid = grid_for(question, public, 800)
            second = other if question.places == "pair" else None
            by_list, by_mask = (
                records.integer_sum(question, public, theta, grid.part_step, other=second, **selected)
                for selected in (listed, {"included": torch.from_numpy(mask)})
            )
            assert by_mask.count_nonzero() > 0
            assert (by_list - by_mask).double().norm() <= 2 * grid.error / grid.part_step
            every = records.integer_sum(question, public, theta, grid.part_step, other=second, rows=listed["rows"])
            padded |= not torch.equal(by_mask, every)
        assert padded, "padding counts where nothing leaves it out"

    def test_have_one_shape_whatever_the_sample(self) -> None:
        journal = Journal(units=3000)
        oracle = PoissonOracle(journal, facts(3000, 3), journal, repeatable_generator(), self.PARTS)
        for _ in range(100):
            oracle.ask(GRADIENT, ZERO)
        length = sampling.padded_length(self.PARTS, 3000)
        assert 150 < length < 300
        assert {(read.shape, left.shape) for read, left in journal.selections} == {((length,), (length,))}
        assert len({int(left.sum()) for _, left in journal.selections}) > 10

    def test_give_way_to_masks_where_they_are_not_far_shorter(self) -> None:
        for rate, by_rows in ((0.5, False), (0.2, True), (1.0, False)):
            journal = Journal(units=3000)
            parts = sampling.rate_parts(rate)
            PoissonOracle(journal, facts(3000, 3), journal, repeatable_generator(), parts).ask(GRADIENT, ZERO)
            assert (journal.selections[0][0] is not None) is by_rows

    def test_a_sample_that_passes_its_length_is_summed_whole(self) -> None:
        records, public = problem(800, 3), facts(800, 3)
        quiet = Gradient(sigma=2.0**-8)
        whole = FullOracle(records, public, UnlimitedFilter(), repeatable_generator()).ask(quiet, ZERO)
        journal = Journal(units=800)
        with drawing(everything):
            told = PoissonOracle(journal, public, journal, repeatable_generator(), self.PARTS).ask(quiet, ZERO)
        assert journal.selections[0][0] is None
        assert torch.allclose(told.value * 0.05, whole.value, atol=6 * (whole.scale + told.scale * 0.05))

    def test_neighbours_have_one_list_and_sums_that_differ_by_what_is_charged(self) -> None:
        public, theta = facts(800, 3), torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64)
        grid = grid_for(GRADIENT, public, 800)
        x, y, present = rows(800, 3)
        moved = []
        for unit in range(0, 800, 40):
            sums, lists = [], []
            for valid in (present, present.index_fill(0, torch.tensor(unit), value=False)):
                journal = Journal(units=800)
                journal.records = LinearProblem(x.clone(), y.clone(), valid, LOGISTIC, Mallows(bound=2**0.5))
                oracle = PoissonOracle(journal, public, journal, repeatable_generator(), self.PARTS)
                selected = oracle._select(GRADIENT)
                sums.append(oracle._sum(oracle.bind(GRADIENT), theta, None, selected))
                lists.append(selected)
            assert torch.equal(lists[0].rows, lists[1].rows)
            assert torch.equal(lists[0].included, lists[1].included)
            moved.append((sums[0] - sums[1]).double().norm().item() / 2**grid.part_bits)
            assert (moved[-1] > 0) is (unit in lists[0].rows[lists[0].included].tolist())
        assert 0 < max(moved) <= grid.sensitivity


@pytest.mark.skipif("FARTHING_TEST_DEVICE" in os.environ, reason="only a CPU sums linear models in single precision")
class TestSinglePrecision:
    """Gradients of linear predictors; a journal stands for problems of any kind, so its sums are in double."""

    PARTS = sampling.rate_parts(0.05)

    def oracles(self, valid: Tensor | None = None) -> tuple[PoissonOracle, StreamOracle]:
        x, y, present = rows(800, 3)
        records = LinearProblem(x, y, present if valid is None else valid, LOGISTIC, Mallows(bound=2**0.5))
        public = facts(800, 3)
        poisson = PoissonOracle(records, public, UnlimitedFilter(), repeatable_generator(), self.PARTS)
        return poisson, StreamOracle(
            records, public, UnlimitedFilter(), repeatable_generator(), np.arange(800)[::-1].copy()
        )

    @pytest.mark.parametrize("place", [0, 1], ids=["sample", "stream"])
    def test_neighbours_differ_by_what_is_charged(self, place: int) -> None:
        theta = torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64)
        question = GRADIENT if place == 0 else Gradient(sigma=2.0, batch=200)
        moved = []
        for unit in range(0, 800, 40):
            sums = []
            present = torch.ones(800, dtype=torch.bool)
            for valid in (present, present.index_fill(0, torch.tensor(unit), value=False)):
                oracle = self.oracles(valid)[place]
                grid = grid_for(question, oracle._summing(question), 800)
                sums.append(oracle._sum(oracle.bind(question), theta, None, oracle._select(question)))
            moved.append((sums[0] - sums[1]).double().norm().item() / 2**grid.part_bits)
        assert oracle._summing(question).part_rows is not None
        assert 0 < max(moved) <= grid.sensitivity
        assert 0 in moved, "not everybody is in"

    def test_answers_say_the_noise_that_is_charged(self) -> None:
        for oracle, question in zip(self.oracles(), (GRADIENT, BATCH), strict=True):
            by_part = grid_for(question, oracle._summing(question), 800)
            assert by_part.sensitivity > grid_for(question, oracle.facts, 800).sensitivity
            divisor = 40 if question is GRADIENT else 10
            charged = grid_for(question, oracle._summing(question), 800 if question is GRADIENT else 10)
            assert oracle.ask(question, ZERO).scale == pytest.approx(
                2.0 * charged.sensitivity * charged.step / divisor, rel=1e-9
            )

    def test_a_sample_that_passes_its_length_is_summed_whole(self) -> None:
        quiet = Gradient(sigma=2.0**-8)
        whole = FullOracle(problem(800, 3), facts(800, 3), UnlimitedFilter(), repeatable_generator()).ask(quiet, ZERO)
        with drawing(everything):
            told = self.oracles()[0].ask(quiet, ZERO)
        assert torch.allclose(told.value * 0.05, whole.value, atol=6 * (whole.scale + told.scale * 0.05))

    def test_other_questions_and_tiny_clips_are_summed_in_double(self) -> None:
        for oracle in self.oracles():
            assert oracle.facts.part_rows is None
            for question in (Curvature(of="hessian", sigma=1.0), Gradient(sigma=1.0, clip=2.0**-31)):
                assert oracle._summing(question) is oracle.facts

    def test_samples_are_drawn_some_at_a_time_and_each_is_used_once(self) -> None:
        oracle = self.oracles()[0]
        seen = [oracle._select(GRADIENT) for _ in range(40)]
        assert len({one.rows.numpy().tobytes() for one in seen if one.rows is not None}) == 40


class TestStream:
    def oracle(self, journal: Journal, skipped: int = 0) -> StreamOracle:
        order = sampling.public_order("job_1", journal.units)
        public = facts(journal.units, 3)
        return StreamOracle(journal, public, journal, SystemGenerator(), order, skipped=skipped)

    def test_reads_each_record_once_by_place(self) -> None:
        journal = Journal(units=105)
        oracle = self.oracle(journal)
        for _ in range(10):
            assert oracle.affords(BATCH)
            oracle.ask(BATCH, ZERO)
        read = [index for batch, _ in journal.selections for index in batch.tolist()]
        assert read == sampling.public_order("job_1", 105)[:100].tolist()
        assert not oracle.affords(BATCH)
        with pytest.raises(AssertionError, match="run out"):
            oracle.ask(BATCH, ZERO)
        assert journal.totals == [Gaussian(sigma=2.0)] * 10

    def test_reads_none_of_the_batches_that_are_skipped(self) -> None:
        journal = Journal(units=105)
        oracle = self.oracle(journal, skipped=80)
        while oracle.affords(BATCH):
            oracle.ask(BATCH, ZERO)
        read = [index for batch, _ in journal.selections for index in batch.tolist()]
        assert read == sampling.public_order("job_1", 105)[80:100].tolist()
        assert not self.oracle(journal, skipped=100).affords(BATCH)

    def test_costs_its_dearest_question(self) -> None:
        journal = Journal(units=100)
        oracle = self.oracle(journal)
        for sigma in (2.0, 2.0, 3.0, 2.0):
            oracle.ask(Gradient(sigma=sigma, batch=10), ZERO)
        assert journal.totals[1] == Gradient(sigma=2.0).event()
        assert journal.totals[3] == Disjoint(events=(Gaussian(sigma=2.0), Gaussian(sigma=3.0)))

    @pytest.mark.parametrize("adjacency", list(Adjacency))
    def test_divides_by_the_batch_under_both_adjacencies(self, adjacency: Adjacency) -> None:
        public = facts(100, 3, adjacency=adjacency)
        oracle = StreamOracle(problem(100, 3), public, UnlimitedFilter(), SystemGenerator(), np.arange(100))
        assert oracle.ask(BATCH, ZERO).scale == pytest.approx(2.0 * BATCH.sensitivity(public), rel=2e-3)
        moved = sqrt(2) / 10 if adjacency is Adjacency.ZERO_OUT else public.gradient_diameter or 2 * sqrt(2)
        assert BATCH.sensitivity(public) == pytest.approx(moved if moved < 1 else moved / 10)

    def test_batches_may_differ_in_size_and_are_of_a_stream(self) -> None:
        journal = Journal(units=105)
        oracle, sizes = self.oracle(journal), (10, 3, 50, 1, 30)
        for size in sizes:
            oracle.ask(Gradient(sigma=2.0, batch=size), ZERO)
        read = [index for batch, _ in journal.selections for index in batch.tolist()]
        assert read == sampling.public_order("job_1", 105)[:94].tolist()
        assert [batch.numel() for batch, _ in journal.selections] == list(sizes)
        assert journal.positions == [10, 13, 63, 64, 94]
        assert journal.totals == [Gaussian(sigma=2.0)] * 5
        assert oracle.affords(Gradient(sigma=2.0, batch=11))
        assert not oracle.affords(Gradient(sigma=2.0, batch=12)), "the last units are never a smaller batch"
        with pytest.raises(AssertionError, match="a batch each"):
            self.oracle(journal).ask(GRADIENT, ZERO)
        with pytest.raises(AssertionError, match="streams"):
            FullOracle(journal, facts(105, 3), journal, SystemGenerator()).ask(Gradient(sigma=1.0, batch=3), ZERO)

    @pytest.mark.parametrize("skipped", [0, 30, 205, 410])
    def test_passes_compose_and_no_batch_is_of_two(self, skipped: int) -> None:
        journal = Journal(units=105)
        orders = np.stack([sampling.public_order(name, 105) for name in ("a", "b", "c", "d")])
        oracle = StreamOracle(journal, facts(105, 3), journal, SystemGenerator(), orders, skipped=skipped)
        generator, question = np.random.default_rng(5), Gradient(sigma=2.0, batch=40)
        while oracle.affords(question):
            oracle.ask(question, ZERO)
            question = Gradient(sigma=2.0, batch=int(generator.integers(1, 41)))
        counts = np.zeros((4, 105), dtype=int)
        for position, (batch, _) in zip(journal.positions, journal.selections, strict=True):
            end = skipped + position
            number = (end - 1) // 105
            assert batch.tolist() == orders[number][end - 105 * number - batch.numel() : end - 105 * number].tolist()
            counts[number, batch.numpy()] += 1
        assert counts.max(initial=0) <= 1
        touched = int((counts.sum(1) > 0).sum())
        assert touched == {0: 4, 30: 4, 205: 2, 410: 0}[skipped], "less than a batch is left of the second pass"
        last = [Repeated(event=Gaussian(sigma=2.0), times=touched)] if touched else []
        assert journal.totals[-1:] == last


class TestPublicOrder:
    def test_is_what_a_name_says(self) -> None:
        order = sampling.public_order("job_0001", 1000)
        assert sorted(order.tolist()) == list(range(1000))
        assert np.array_equal(order, sampling.public_order("job_0001", 1000))
        assert not np.array_equal(order, sampling.public_order("job_0002", 1000))
        assert sampling.public_order("job_0001", 8).tolist() == [6, 1, 5, 4, 7, 2, 0, 3], "in every release"

    def test_has_no_favourites(self) -> None:
        """Chi-square over 2,000 names, false alarm 1e-4; the names are fixed."""
        firsts = np.bincount([sampling.public_order(f"job_{name}", 5)[0] for name in range(2000)], minlength=5)
        assert stats.chisquare(firsts).pvalue > 1e-4


def test_oracles_to_samples_say_why_they_refuse() -> None:
    assert "stream" in samples.POISSON_MISMATCH
