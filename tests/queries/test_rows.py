"""Compiled sums of rows: floats of one order, bit for bit, whatever the records say; sums that torch makes too."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.losses.losses import Clip, Loss, Squared, Weights
from core.mechanisms.lattice import Grid
from core.oracle.noise import grid_for
from core.privacy.facts import Facts
from core.queries.gradients import Gradient, GradientNorm
from core.queries.sums import rows
from core.queries.sums.linear import LinearProblem
from core.queries.sums.passes import GradientSums
from core.queries.sums.rows import Block, Outer, kernels_of
from core.queries.sums.single import LARGEST, PART_ROWS, SingleRecords
from core.queries.sums.terms import Records
from tests.queries.test_single import hostile
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler
from tests.support.problems import LOGISTIC, WEIGHTS, facts

pytestmark = needs_compiler

Array = NDArray[np.float64]

WIDTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 23, 24, 27, 31, 54, 65)
GRADIENT = Gradient(sigma=1.0, clip=0.7)
THETA = torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)


def in_order(x: NDArray, theta: NDArray, lanes: int) -> NDArray:
    """Return margins, added up as the kernels say: two wide numbers, their lanes in pairs, and the rest one by one."""
    width, one, two = x.shape[1], np.zeros((len(x), lanes), x.dtype), np.zeros((len(x), lanes), x.dtype)
    done = 0
    while done + 2 * lanes <= width:
        one += x[:, done : done + lanes] * theta[done : done + lanes]
        two += x[:, done + lanes : done + 2 * lanes] * theta[done + lanes : done + 2 * lanes]
        done += 2 * lanes
    if done + lanes <= width:
        one += x[:, done : done + lanes] * theta[done : done + lanes]
        done += lanes
    one += two
    while one.shape[1] > 1:
        one = one[:, ::2] + one[:, 1::2]
    total = one[:, 0]
    for left in range(done, width):
        total = total + x[:, left] * theta[left]
    return total


def summed_in_order(x: NDArray, numbers: NDArray) -> NDArray:
    """Return the sum of rows times numbers, four at a time, two and two."""
    total, whole = np.zeros(x.shape[1], x.dtype), len(x) - len(x) % 4
    terms = x * numbers[:, None]
    for first in range(0, whole, 4):
        a, b, c, d = terms[first : first + 4]
        total += (a + b) + (c + d)
    for one in terms[whole:]:
        total += one
    return total


def numbered(score: Array, margin: Array, weights: Array, highest: Array) -> Array:
    """Return numbers as the text has them."""
    numbers = score * weights
    numbers = np.where(np.isfinite(numbers) & np.isfinite(margin), numbers, 0.0)
    return np.clip(numbers, -highest, highest)


def strange(units: int, width: int, far: float) -> tuple[Array, Array, Array, Array, NDArray[np.bool_]]:
    """Return rows, theta, scores, weights and a mask; some scores are no numbers, and some margins overflow."""
    draws = np.random.default_rng([units, width])
    x = draws.standard_normal((units, width)) * np.exp2(draws.integers(-60, 20, (units, 1)))
    theta, score = draws.standard_normal(width), 3.0 * draws.standard_normal(units)
    x[1::11] *= 2.0**16
    theta[0] = far
    score[2::5] *= 1e16
    score[::7], score[3::13], score[5::17] = np.nan, np.inf, -np.inf
    weights = draws.random(units) * (draws.random(units) < 0.8)
    return x, theta, score, weights, draws.random(units) < 0.7


def doubles_agree(found: ctypes.CDLL, units: int, width: int) -> bool:
    """Say whether margins and sums in double precision are those of the text, bit for bit."""
    kernels = kernels_of(found)
    assert kernels is not None
    x, theta, score, weights, left = strange(units, width, 1e304)
    size = max(4, units // 3 // 4 * 4)
    norms = torch.from_numpy(np.linalg.norm(x, axis=1))
    highest = (norms.reciprocal() * 0.7).contiguous()
    records = Records(torch.from_numpy(x), torch.arange(units).double(), torch.from_numpy(weights), norms)
    seen: list[Array] = []

    def given(margin: Tensor, target: Tensor) -> Tensor:
        first = int(target[0])
        seen.append(margin.numpy().copy())
        return torch.from_numpy(score[first : first + len(margin)].copy())

    block, step = Block(kernels, records, highest), 2.0**-30
    parts = GradientSums(block, given, torch.from_numpy(theta), step, None, torch.from_numpy(left), size)
    with np.errstate(all="ignore"):
        margin = in_order(x, theta, 4)
        numbers = numbered(np.where(left, score, 0.0), margin, weights, highest.numpy())
        steps = summed_in_order(x, numbers) / step
    for _ in range(2):  # as if there were two parts of the same records
        parts.add(0, units)
    twice = np.concatenate([margin, margin])
    right = np.array_equal(np.concatenate(seen), twice, equal_nan=True)
    return right and np.array_equal(parts.total.numpy(), 2 * np.rint(steps))


def products_agree(found: ctypes.CDLL, units: int, width: int) -> bool:
    """Say whether outer products are added up one row after the other, bit for bit, in two calls as in one."""
    kernels = kernels_of(found)
    assert kernels is not None
    x, _, numbers, _, _ = strange(units, width, 1.0)
    numbers = np.where(np.isfinite(numbers), numbers, 0.0)
    expected, made = np.zeros((width, width)), Outer(kernels, width)
    for row, number in zip(x, numbers, strict=True):
        expected += (number * row)[:, None] * row
    cut = units // 2
    for some in (slice(0, cut), slice(cut, units)):
        made.add(torch.from_numpy(x[some]), torch.from_numpy(numbers[some]))
    return np.array_equal(np.triu(made.sums[:width, :width].numpy()), np.triu(expected))


@pytest.mark.parametrize("width", WIDTHS)
def test_outer_products_are_added_one_row_after_the_other(width: int) -> None:
    assert all(products_agree(compiled_kernels(), units, width) for units in (1, 2, 31, 32, 33, 150))


@pytest.mark.parametrize("width", WIDTHS)
def test_doubles_are_added_in_the_order_of_the_text(width: int) -> None:
    assert all(doubles_agree(compiled_kernels(), units, width) for units in (1, 2, 3, 4, 7, 150))


def singles_agree(found: ctypes.CDLL, units: int, width: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say the same of single precision, for a list that has records twice."""
    monkeypatch.setattr(rows, "KERNELS", kernels_of(found))
    x, theta, score, weights, left = strange(units, width, 1e34)
    norms = np.linalg.norm(x, axis=1)
    given_records = (torch.from_numpy(one) for one in (x, np.ones(units), weights, norms))
    single = SingleRecords(Records(*given_records))
    table = single._table[:units]
    features = table.view(np.float32)[:, :width]
    listed = np.random.default_rng(units).integers(0, units, units + 5)
    score, left = np.resize(score, listed.size), np.resize(left, listed.size)
    first, step, seen = -(-width // 2), 2.0**-20, []

    def given(margin: Tensor, target: Tensor) -> Tensor:
        seen.append(margin.numpy().copy())
        seen.append(target.numpy().copy())
        return torch.from_numpy(score.copy())

    with np.errstate(all="ignore"):
        read, beside = (
            np.where(left[:, None], features[listed], np.float32(0)),
            np.where(left[:, None], table[listed, first:], 0),
        )
        margin = in_order(read, theta.astype(np.float32), 8).astype(np.float64)
        highest = np.minimum(0.7 * beside[:, 2], LARGEST)
        numbers = numbered(score, margin, beside[:, 1], highest).astype(np.float32)
    total = np.zeros(width, dtype=np.int64)
    for start in range(0, listed.size, PART_ROWS):
        part = slice(start, start + PART_ROWS)
        total += (summed_in_order(read[part], numbers[part]) * np.float32(1 / step)).astype(np.int64)
    told = single.gradient(given, torch.from_numpy(theta), 0.7, step, torch.from_numpy(listed), torch.from_numpy(left))
    right = np.array_equal(seen[0], margin, equal_nan=True) and np.array_equal(seen[1], beside[:, 0])
    return right and np.array_equal(told.numpy(), total)


@pytest.mark.parametrize("width", WIDTHS)
def test_singles_are_added_in_the_order_of_the_text(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(singles_agree(compiled_kernels(), units, width, monkeypatch) for units in (1, 3, 31, 32, 33, 170))


FLAWS = {
    "no lower limit": ("value > -highest ? value : -highest", "value"),
    "zero by multiplication": ("bits &= -(uint64_t)(counts & is_finite(value));", "bits *= counts;"),
    "a margin that overflows": ("weights[i], is_finite(margin[i]), LEAST_NUMBER)", "weights[i], 1, LEAST_NUMBER)"),
    "truncated": ("(int64_t)(value < 0 ? -size : size)", "(int64_t)value"),
    "a part that goes on": ("    memset(sums, 0, (size_t)count * sizeof *sums);\n", ""),
    "the same rows once more": ("CHOOSE(margins)(x + rows * width, following,", "CHOOSE(margins)(x, following,"),
    "a row of four": ("margin[2] = (r_one[0] + r_one[1])", "margin[2] = (q_one[0] + r_one[1])"),
}  # fmt: skip
OUTER_FLAWS = {
    "squares without numbers": ("= numbers[start + i] * x[j];", "= x[j];"),
    "a row twice": ("times + j, some, stride, 2, at);", "times + j, SOME, stride, 2, at);"),
    "a column beside": ("second = vectors > 1 ? *(const wide *)(x + LANES) : first", "second = first"),
}  # fmt: skip
SINGLE_FLAWS = {
    "parts of 31 records": ("#define PART 32", "#define PART 31"),
    "who is left out": ("? -(uint32_t)((included)[i] != 0) :", "? ~(uint32_t)0 :"),
    "a margin of what is left out": ("float *)record, KEPT(included, i), theta", "float *)record, ~0u, theta"),
    "a target of what is left out": ("bits_of(record + first, KEPT(included, i))", "record[first]"),
    "no largest number": ("highest < largest ? highest : largest", "highest"),
    "a row behind": ("(table + (rows ? rows[start + i] :", "(table + (rows ? rows[start] :"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", [*FLAWS, *OUTER_FLAWS, *SINGLE_FLAWS])
def test_a_planted_flaw_is_seen(flaw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the comparison with the text; all floats are compared, so nothing is left to chance."""
    source = copied(tmp_path) / "rows.c"
    genuine, planted = {**FLAWS, **OUTER_FLAWS, **SINGLE_FLAWS}[flaw]
    assert source.read_text().count(genuine) == 1
    source.write_text(source.read_text().replace(genuine, planted))
    found = built(tmp_path, "-O0")
    try:
        if flaw in SINGLE_FLAWS:
            agree = singles_agree(found, 170, 23, monkeypatch)
        else:
            agree = (doubles_agree if flaw in FLAWS else products_agree)(found, 150, 23)
    except AssertionError as told:
        agree = "public bound" not in str(told)
    assert not agree


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("loss", [LOGISTIC, Squared()], ids=lambda one: one.kind)
def test_both_err_by_no_more_than_is_charged(loss: Loss, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On rows of every size, some of them none, at points where margins overflow: with masks, lists and norms."""
    weights: Weights = WEIGHTS if loss == LOGISTIC else Clip(bound=2.0)
    public, grid = charged(loss, weights, precision)
    listed, left = torch.arange(0, 333, 2).flip(0), torch.arange(333) % 3 > 0
    for theta in (
        THETA,
        torch.full((3,), 1e200, dtype=torch.float64),
        torch.tensor([torch.nan, 1.0, 0.0], dtype=torch.float64),
    ):
        for read, included in ((None, None), (None, left), (listed, None), (listed, left[: len(listed)])):
            sums = []
            for kernels in (kernels_of(compiled_kernels()), None):
                monkeypatch.setattr(rows, "KERNELS", kernels)
                records = LinearProblem(*hostile(loss), loss, weights)
                told = records.integer_sum(GRADIENT, public, theta, grid.part_step, rows=read, included=included)
                again = records.integer_sum(GRADIENT, public, theta, grid.part_step, rows=read, included=included)
                assert torch.equal(told, again), "a sum is made anew"
                sums.append(told)
                if precision == "double":
                    norm = GradientNorm(sigma=1.0, clip=0.7)
                    assert torch.equal(
                        told, records.integer_sum(norm, public, theta, grid.part_step, rows=read, included=included)
                    )
            assert (sums[0] - sums[1]).double().norm() * grid.part_step <= 2 * grid.error
            assert sums[0].any() == sums[1].any()


def charged(loss: Loss, weights: Weights, precision: str) -> tuple[Facts, Grid]:
    """Return facts that ask for a precision, and the grid that is charged by them."""
    public = facts(333, 3, loss, weights=weights)
    if precision == "single":
        public = public.model_copy(update={"part_rows": PART_ROWS})
    return public, grid_for(GRADIENT, public, 333)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_other_records_bits_are_the_same_for_neighbours(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is zeroed, or is no number at all, moves the sum by its own term and by no other float's bits."""
    monkeypatch.setattr(rows, "KERNELS", kernels_of(compiled_kernels()))
    public, grid = charged(LOGISTIC, WEIGHTS, precision)
    margins = []
    for change in (None, 0.0, torch.nan, 1e300):
        x, y, present = hostile(LOGISTIC)
        if change is not None:
            x[200] = change
        records = LinearProblem(x, y, present, LOGISTIC, WEIGHTS)
        genuine, seen = records.loss.score, []

        class Watched:
            def score(self, margin: Tensor, target: Tensor) -> Tensor:
                seen.append(margin.clone())  # noqa: B023 - used in this turn alone
                return genuine(margin, target)  # noqa: B023 - as above

        records.loss = Watched()  # type: ignore[assignment] # it has what is called
        records.integer_sum(GRADIENT, public, THETA, grid.part_step)
        margins.append(torch.cat([seen[0][:200], seen[0][201:]]))
    assert all(torch.equal(margins[0], one) for one in margins[1:])


def test_lists_and_masks_of_another_length_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "KERNELS", kernels_of(compiled_kernels()))
    for precision in ("double", "single"):
        public, grid = charged(LOGISTIC, WEIGHTS, precision)
        records = LinearProblem(*hostile(LOGISTIC), LOGISTIC, WEIGHTS)
        for wrong in (-1, 333, 2**62):
            with pytest.raises(AssertionError, match="names records"):
                records.integer_sum(GRADIENT, public, THETA, grid.part_step, rows=torch.tensor([3, wrong]))
        with pytest.raises(AssertionError, match="mask"):
            records.integer_sum(GRADIENT, public, THETA, grid.part_step, included=torch.ones(2, dtype=torch.bool))
        spread = torch.stack((THETA, THETA), 1)[:, 0]
        assert not spread.is_contiguous()
        sums = [records.integer_sum(GRADIENT, public, one, grid.part_step) for one in (THETA, spread)]
        assert torch.equal(*sums)


def test_past_their_public_bound_no_integer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "KERNELS", kernels_of(compiled_kernels()))
    for precision, step in (("double", 2.0**-62), ("single", 2.0**-100)):
        public, _ = charged(LOGISTIC, WEIGHTS, precision)
        records = LinearProblem(*hostile(LOGISTIC), LOGISTIC, WEIGHTS)
        with pytest.raises(AssertionError, match="public bound"):
            records.integer_sum(GRADIENT, public, THETA, step)
