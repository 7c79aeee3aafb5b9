"""Laws of every problem that sums by blocks: errors, clipping, excluded rows, replicates, rows that never meet."""

from fractions import Fraction
from math import inf, nan, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from core.mechanisms import lattice
from core.oracle.noise import grid_for
from core.privacy.facts import Facts
from core.queries.gradients import Curvature, Gradient, Question, Secant
from core.queries.sums import blocks, passes, rows
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.terms import AnswerLayout, Factors, Point, SumsByKind
from tests.support.situations import ASKED, SITUATIONS, Situation, ask, named

each = pytest.mark.parametrize(("situation", "question"), ASKED, ids=named)
every = pytest.mark.parametrize("situation", SITUATIONS, ids=named)
ROWS = 51
"""The number of norms, each four powers of ten above the last."""


def points(situation: Situation, question: Question) -> Point:
    """Return where to ask."""
    return Point(situation.point(1), situation.point(2) if question.places == "pair" else None)


def integers(
    records: BlockProblem, question: Question, public: Facts, at: Point, step: float, **selection: Tensor
) -> Tensor:
    return records.integer_sum(question, public, at.theta, step, other=at.other, **selection)


def exact_sum(records: BlockProblem, question: Question, public: Facts, at: Point) -> np.ndarray:
    """The sum of the very floats of each record in rational arithmetic, arranged as the answer is."""
    factors = records._factors(question, public, records._records, at)
    x = np.array([[Fraction(value) for value in row] for row in records._records.features.tolist()], dtype=object)
    width, layout = x.shape[1], records._layout(question)
    kinds = [np.ones((len(x), 1), dtype=object), x, (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)]
    flat = [
        Fraction(0) + entry
        for numbers, entries in zip(factors, kinds, strict=True)
        if numbers is not None
        for one in numbers.tolist()
        for entry in np.array([Fraction(value) for value in one], dtype=object) @ entries
    ]
    places = records._arrange(question, SumsByKind(torch.arange(len(flat)), layout, width))
    return np.array(flat, dtype=object)[places.numpy()]


def size_of(gaps: np.ndarray) -> float:
    """Return the norm of what is released."""
    upper = gaps if gaps.ndim == 1 else gaps[np.triu_indices(len(gaps))]
    return sqrt(float(sum(gap * gap for gap in upper)))


def fractions(values: Tensor) -> np.ndarray:
    return np.array([Fraction(value) for value in values.flatten().tolist()], dtype=object).reshape(values.shape)


@each
def test_error_stays_within_what_the_lattice_charges(
    situation: Situation, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one block and in many."""
    public, at = situation.facts(300), points(situation, question)
    exact = exact_sum(situation.problem(situation.rows(300, 2)), question, public, at)
    for block in (64, blocks.BLOCK_NUMBERS):
        monkeypatch.setattr(blocks, "BLOCK_NUMBERS", block)
        records = situation.problem(situation.rows(300, 2))
        found = records.bounded_sum(question, public, at.theta, other=at.other)
        assert size_of(fractions(found) - exact) <= grid_for(question, public, 300).error


@each
def test_the_integers_err_by_what_the_lattice_charges(
    situation: Situation, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By compiled kernels and by torch."""
    monkeypatch.setattr(blocks, "PART_UNITS", 64)
    monkeypatch.setattr(passes, "PART_UNITS", 64)
    monkeypatch.setattr(lattice, "PART_UNITS", 64)
    monkeypatch.setattr(lattice, "parts_in", lambda units: -(-units // 64))
    records, public, at = situation.problem(situation.rows(300, 2)), situation.facts(300), points(situation, question)
    grid, exact = grid_for(question, public, 300), exact_sum(records, question, public, at)
    for kernels in (rows.KERNELS, None):
        monkeypatch.setattr(rows, "KERNELS", kernels)
        records = situation.problem(situation.rows(300, 2))
        found = fractions(integers(records, question, public, at, grid.part_step)) * Fraction(grid.part_step)
        assert 0 < size_of(found - exact) <= grid.error


@each
def test_float32_sums_would_be_seen(situation: Situation, question: Question) -> None:
    """Planted bug: numbers in single precision pass the charged error."""
    records, public, at = situation.problem(situation.rows(300, 2)), situation.facts(300), points(situation, question)
    exact = exact_sum(records, question, public, at)
    genuine = records._factors

    def single(*arguments: object) -> Factors:
        return Factors(*(None if one is None else one.float().double() for one in genuine(*arguments)))

    records._factors = single  # type: ignore[method-assign]
    found = records.bounded_sum(question, public, at.theta, other=at.other)
    assert size_of(fractions(found) - exact) > 100 * grid_for(question, public, 300).error


@every
def test_a_part_past_its_public_bound_is_a_broken_promise(
    situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, public = situation.problem(situation.rows(50)), situation.facts(50)
    question = Gradient(sigma=1.0)
    genuine = records._factors

    def spoilt(*arguments: object) -> Factors:
        found = genuine(*arguments)
        assert found.linear is not None
        return found._replace(linear=found.linear * inf)

    monkeypatch.setattr(records, "_factors", spoilt)
    # A linear gradient's own ways have tests of their own.
    monkeypatch.setattr(rows, "KERNELS", None)
    monkeypatch.setattr(records, "_is_short", False, raising=False)
    with pytest.raises(AssertionError, match="public bound"):
        records.integer_sum(question, public, situation.point(), grid_for(question, public, 50).part_step)


@each
def test_every_row_is_clipped(situation: Situation, question: Question) -> None:
    """Norms from 1e-100 to 1e100, tiny clips included; computed norms stay within a few roundings of the bound."""
    draws = torch.Generator().manual_seed(5)
    x, y, present = situation.rows(ROWS)
    sizes = (10.0 ** torch.linspace(-100, 100, ROWS, dtype=torch.float64)).unsqueeze(-1)
    x = torch.randn(x.shape, generator=draws, dtype=torch.float64) * sizes
    public = situation.facts(ROWS)
    tight = {"gradient_bound": 0.01, "curvature_bound": 0.001 if public.curvature_bound else None}
    at, whole = points(situation, question), situation.problem((x, y, present))
    for bounds in (public, public.model_copy(update=tight)):
        if bounds is not public and bounds.gradient_diameter is not None:
            bounds = bounds.model_copy(update={"gradient_diameter": None})  # noqa: PLW2901 - 2 C then
        step = grid_for(question, bounds, 1).part_step
        for row in range(ROWS):
            total = integers(whole, question, bounds, at, step, rows=torch.tensor([row])).double() * step
            assert total.norm() <= question.bound(bounds) * (1 + 1e-9)


@every
def test_clips_that_are_not_made_would_be_seen(situation: Situation) -> None:
    """Planted bug: a clip below the loss's own bound is ignored."""
    public, x, theta = situation.facts(200), situation.rows(200), situation.point(1)
    bound = 0.05
    records = situation.problem(x)
    bare, clipped = (Gradient(sigma=1.0), Gradient(sigma=1.0, clip=bound))
    largest = [
        max(
            float(records.integer_sum(question, public, theta, 2.0**-40, rows=torch.tensor([row])).double().norm())
            for row in range(200)
        )
        * 2.0**-40
        for question in (bare, clipped)
    ]
    assert largest[0] > 2 * bound
    assert largest[1] <= bound * (1 + 1e-9)


@each
def test_what_cannot_count_is_exactly_zero(situation: Situation, question: Question) -> None:
    x, y, present = situation.rows(12)
    public, at = situation.facts(12), points(situation, question)
    step = grid_for(question, public, 12).part_step
    clean = situation.problem((x, y, present))
    expected = integers(clean, question, public, at, step, included=torch.arange(12) >= 7)
    x[0, 1], x[1, 0], x[2, 0], x[3] = nan, inf, -inf, 1e200
    y[4], y[5] = nan, inf
    present[6] = False
    spoilt = situation.problem((x, y, present))
    assert torch.equal(integers(spoilt, question, public, at, step), expected)
    alone = [integers(spoilt, question, public, at, step, rows=torch.tensor([row])) for row in range(7)]
    assert not any(total.any() for total in alone)


@each
def test_any_point_gives_a_bounded_sum(situation: Situation, question: Question) -> None:
    records, public = situation.problem(situation.rows(50)), situation.facts(50)
    wild = (nan, inf, -inf, 1e308, -1e308, 0.0, 5e-324)
    thetas = [torch.full((situation.dimension,), value, dtype=torch.float64) for value in wild]
    for one, other in [pair for at in thetas for pair in ((at, situation.point()), (situation.point(), at), (at, at))]:
        total = ask(records, question, public, one, other)
        assert total.isfinite().all()
        assert total.norm() <= 50 * question.bound(public) * (1 + 1e-9)
        step = grid_for(question, public, 50).part_step
        at = Point(one, other if question.places == "pair" else None)
        assert integers(records, question, public, at, step).shape == question.shape(situation.dimension)


@each
def test_a_row_touches_no_other(situation: Situation, question: Question) -> None:
    """Each other row's numbers are the same, bit for bit, for any content of row 17."""
    public, at = situation.facts(60), points(situation, question)
    kept = [index for index in range(60) if index != 17]

    def others(change: float) -> list[Tensor]:
        x, y, present = situation.rows(60)
        x[17] = change
        records = situation.problem((x, y, present))
        factors = records._factors(question, public, records._records, at)
        return [one[..., kept] for one in factors if one is not None]

    expected = others(0.1)
    for change in (0.0, 1e9, nan):
        assert all(torch.equal(one, two) for one, two in zip(others(change), expected, strict=True))


@each
def test_a_mask_counts_what_the_rows_count(situation: Situation, question: Question) -> None:
    records, public, at = situation.problem(situation.rows(300)), situation.facts(300), points(situation, question)
    mask = torch.arange(300) % 3 == 0
    step = grid_for(question, public, 300).part_step
    masked = integers(records, question, public, at, step, included=mask).double() * step
    chosen = integers(records, question, public, at, step, rows=mask.nonzero().squeeze(1)).double() * step
    torch.testing.assert_close(masked, chosen, rtol=1e-10, atol=1e-10)


@each
def test_replicates_equal_single_problems(
    situation: Situation, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 700)
    several = [situation.rows(100, seed) for seed in range(5)]
    thetas, others = (torch.stack([situation.point(first + seed) for seed in range(5)]) for first in (1, 9))
    public = situation.facts(100)
    replicates = situation.problem(tuple(torch.stack(parts) for parts in zip(*several, strict=True)))
    assert (replicates.replicates, replicates.units) == (5, 100)
    singles = [situation.problem(parts) for parts in several]
    for together, alone in ((replicates, singles), (singles[0], [singles[0]] * 5)):
        expected = [
            ask(one, question, public, theta, other) for one, theta, other in zip(alone, thetas, others, strict=True)
        ]
        found = ask(together, question, public, thetas, others)
        assert found.shape == (5, *question.shape(situation.dimension))
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-11, atol=1e-11)


@each
def test_curvatures_are_symmetric_and_semidefinite(situation: Situation, question: Question) -> None:
    """Every record's own matrix, far points included; the tolerance is that of the eigenvalues' computation."""
    if not isinstance(question, Curvature):
        return
    public = situation.facts(40)
    records = situation.problem(situation.rows(40))
    for seed, factor in ((1, 1.0), (2, 30.0)):
        theta = situation.point(seed) * factor
        step = grid_for(question, public, 1).part_step
        for row in range(40):
            term = integers(records, question, public, Point(theta), step, rows=torch.tensor([row]))
            assert torch.equal(term, term.mT)
            smallest = torch.linalg.eigvalsh(term.double() * step)[0]
            assert smallest >= -2 * step * situation.dimension


def test_questions_about_two_points_are_asked_of_two() -> None:
    situation = SITUATIONS[0]
    records, public, theta = situation.problem(situation.rows(5)), situation.facts(5), situation.point()
    with pytest.raises(AssertionError, match="two points"):
        records.bounded_sum(Secant(sigma=1.0), public, theta)
    with pytest.raises(AssertionError, match="all else at one"):
        records.bounded_sum(Gradient(sigma=1.0), public, theta, other=theta)


def test_a_diameter_that_is_not_proved_is_refused() -> None:
    """Facts that promise less than the loss keeps would make the noise too small."""
    for situation in (SITUATIONS[1], SITUATIONS[2]):
        records, public = situation.problem(situation.rows(5)), situation.facts(5)
        less = public.model_copy(update={"gradient_diameter": 1.5 * public.gradient_bound})
        with pytest.raises(AssertionError, match=r"no diameter|as far apart"):
            records.bounded_sum(Gradient(sigma=1.0), less, situation.point())


def test_sums_share_memory_with_what_they_show() -> None:
    flat = torch.zeros(2 + 3 * 4 + 2 * 16)
    sums = SumsByKind(flat, AnswerLayout(plain=2, linear=3, outer=2), 4)
    kinds = (sums.plain, sums.linear, sums.outer)
    for one in kinds:
        one.add_(1)
    assert [one.numel() for one in kinds] == [2, 12, 32]
    assert bool((flat == 1).all())
