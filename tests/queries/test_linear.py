"""Laws of linear problems alone; `test_blocks` tests the laws that they share with the others."""

from functools import partial
from math import inf

import numpy as np
import pytest
import torch
from torch import Tensor

from core.losses.registry import Loss
from core.losses.robust import SmoothedHuber
from core.losses.squares import Squared
from core.losses.weights import Clip, Mallows, Weights
from core.oracle.noise import grid_for
from core.privacy.facts import Facts
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums import rows as compiled
from core.queries.sums import short
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.linear import LinearProblem
from tests.support.problems import LOGISTIC, LOSSES, WEIGHTS, facts, problem, rows

THETA = torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)
OTHER = torch.tensor([0.1, 0.2, -0.9], dtype=torch.float64)
QUESTIONS = [Gradient(sigma=1.0), Secant(sigma=1.0), *(Curvature(of=of, sigma=1.0) for of in ("hessian", "score"))]


def asked(records: LinearProblem, question: Question, bounds: Facts, theta: Tensor = THETA) -> Tensor:
    return records.bounded_sum(question, bounds, theta, other=OTHER if question.places == "pair" else None)


def test_a_label_outside_zero_and_one_is_null() -> None:
    x, y, present = rows(3, 3)
    y[:] = torch.tensor([0.5, 7.0, -1.0])
    records = LinearProblem(x, y, present, LOGISTIC, WEIGHTS)
    assert not any(asked(records, question, facts(3, 3)).any() for question in QUESTIONS)


def test_no_second_copy_of_the_features() -> None:
    x, y, present = rows(100, 3)
    records = LinearProblem(x, y, present, LOGISTIC, WEIGHTS)
    assert records._records.features.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_a_row_of_zeros_adds_nothing_whatever_its_target(question: Question) -> None:
    """The square of a score of 1e308 is infinite, and infinity times zero is not a number."""
    x = torch.zeros(2, 3, dtype=torch.float64)
    y = torch.tensor([1e308, -1e308], dtype=torch.float64)
    records = LinearProblem(x, y, torch.ones(2, dtype=torch.bool), Squared(), Clip(bound=1.0))
    bounds = facts(2, 3, Squared(), weights=Clip(bound=1.0)).model_copy(update={"curvature_bound": 3.0})
    assert torch.equal(asked(records, question, bounds), torch.zeros(question.shape(3), dtype=torch.float64))


def test_the_squared_losses_hessians_are_clipped_to_the_declared_columns_bound() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 100.0, 0.0]], dtype=torch.float64)
    records = LinearProblem(x, torch.zeros(2).double(), torch.ones(2, dtype=torch.bool), Squared(), Clip(bound=1.0))
    bounds = facts(2, 3, Squared(), weights=Clip(bound=1.0)).model_copy(update={"curvature_bound": 3.0})
    found = asked(records, Curvature(of="hessian", sigma=1.0), bounds)
    torch.testing.assert_close(found, torch.diag(torch.tensor([1.0, 3.0, 0.0], dtype=torch.float64)))


def test_clipped_gradients_keep_their_direction() -> None:
    x = torch.tensor([[3.0, 4.0, 0.0]], dtype=torch.float64)
    records = LinearProblem(x, torch.tensor([-50.0]).double(), torch.tensor([True]), Squared(), Clip(bound=2.0))
    bounds = facts(1, 3, Squared(), weights=Clip(bound=2.0))
    found = asked(records, Gradient(sigma=1.0), bounds, torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([1.2, 1.6, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("loss", [*LOSSES, SmoothedHuber(scale=0.7)], ids=lambda loss: loss.kind)
def test_a_slope_times_its_length_is_what_the_loss_rises_by(loss: Loss) -> None:
    """Halving the way and adding both rises gives the whole: slopes are those of one function."""
    records = LinearProblem(*rows(80, 3, loss), loss, Mallows(bound=1.1))
    bounds, middle = facts(80, 3, loss, weights=Mallows(bound=1.1)), (THETA + OTHER) / 2
    whole, first, second = (
        records.bounded_sum(Secant(sigma=1.0), bounds, one, other=other) * (other - one).norm()
        for one, other in ((THETA, OTHER), (THETA, middle), (middle, OTHER))
    )
    torch.testing.assert_close(first + second, whole, rtol=1e-10, atol=1e-10)


def test_slopes_of_losses_too_large_for_floats_are_zero() -> None:
    x, y, present = rows(2, 3, Squared())
    y[0] = 1e200
    records = LinearProblem(x, y, present, Squared(), Clip(bound=1.0))
    alone = LinearProblem(x[1:].clone(), y[1:].clone(), present[1:], Squared(), Clip(bound=1.0))
    bounds = facts(2, 3, Squared(), weights=Clip(bound=1.0))
    assert records.loss.value(torch.zeros(2).double(), y)[0].item() == inf
    assert torch.equal(asked(records, Secant(sigma=1.0), bounds), asked(alone, Secant(sigma=1.0), bounds))


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_order_and_blocks_change_nothing_beyond_the_error(question: Question, loss: Loss) -> None:
    x, y, present = rows(5000, 3, loss, seed=8)
    bounds, grid = facts(5000, 3, loss), grid_for(question, facts(5000, 3, loss), 5000)
    straight, again = (LinearProblem(x.clone(), y, present, loss, WEIGHTS) for _ in range(2))
    assert torch.equal(asked(straight, question, bounds), asked(again, question, bounds)), "the same bits"
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(1))
    mixed = LinearProblem(x[order].contiguous(), y[order], present, loss, WEIGHTS)
    assert (asked(mixed, question, bounds) - asked(straight, question, bounds)).norm() <= 3 * grid.error
    other = OTHER if question.places == "pair" else None
    whole = mixed.integer_sum(question, bounds, THETA, grid.part_step, other=other)
    by_rows = mixed.integer_sum(question, bounds, THETA, grid.part_step, other=other, rows=torch.arange(5000))
    assert torch.equal(by_rows, whole)


class TestShortGradients:
    """A gradient over one block has a way of its own: the integers are those of the walk over blocks.

    NumPy does it here; `test_rows` compares compiled code with it, up to the charged error.
    """

    @pytest.fixture(autouse=True)
    def by_numpy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiled, "KERNELS", None)

    @pytest.mark.parametrize("clipped", [{}, {"clip": 0.3}], ids=["the loss's bound", "clipped"])
    @pytest.mark.parametrize("weights", [Mallows(bound=2.0), Clip(bound=1.0)], ids=["mallows", "clip"])
    def test_are_the_integers_of_the_walk(self, weights: Weights, clipped: dict[str, float]) -> None:
        x, y, present = rows(700, 3)
        x[5], y[7], present[9] = torch.inf, torch.nan, False
        records = LinearProblem(x, y, present, LOGISTIC, weights)
        public, question = facts(700, 3, weights=Mallows(bound=2.0)), Gradient(sigma=1.0, **clipped)
        step = grid_for(question, public, 700).part_step
        some, left = torch.tensor([3, 5, 7, 9, 690, 12, 12]), torch.tensor([True] * 6 + [False])
        huge = torch.tensor([1e308, 1e308, -1e308], dtype=torch.float64)
        for theta in (THETA, 50 * THETA, huge):
            for rows_read, included in (
                (None, None),
                (None, x[:, 0] > 0),
                (some, None),
                (some, left),
                (some[:4], None),
            ):
                short, walked = (
                    way(question, public, theta, step, rows=rows_read, included=included)
                    for way in (records.integer_sum, partial(BlockProblem.integer_sum, records))
                )
                assert torch.equal(short, walked)

    def test_follow_the_clip_of_each_question(self) -> None:
        records, public = problem(200, 3), facts(200, 3)
        sums = []
        for clip in (0.5, 0.1, 0.5):
            question = Gradient(sigma=1.0, clip=clip)
            sums.append(records.integer_sum(question, public, THETA, 2.0**-40))
        assert torch.equal(sums[0], sums[2])
        assert sums[1].double().norm() < sums[0].double().norm()

    def test_read_no_record_that_is_none(self) -> None:
        records, public = problem(200, 3), facts(200, 3)
        for wrong in (-1, 200):
            with pytest.raises(AssertionError, match="names records"):
                records.integer_sum(Gradient(sigma=1.0), public, THETA, 2.0**-40, rows=torch.tensor([3, wrong]))

    def test_past_their_public_bound_are_a_broken_promise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        records, public = problem(200, 3), facts(200, 3)
        monkeypatch.setattr(short, "numbers_of", lambda _score, margin, *_: margin + inf)
        with np.errstate(all="ignore"), pytest.raises(AssertionError, match="public bound"):
            records.integer_sum(Gradient(sigma=1.0), public, THETA, 2.0**-40)
