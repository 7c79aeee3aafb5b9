"""Compiled sums of rows: floats of one order, bit for bit, whatever the records say; sums that torch makes too."""

import ctypes
import shutil
from ctypes.util import find_library
from functools import lru_cache
from math import inf
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.losses.registry import Loss
from core.losses.squares import Squared
from core.losses.weights import Clip, Weights
from core.mechanisms.lattice import Grid
from core.oracle.noise import grid_for
from core.privacy.facts import Facts
from core.queries.gradients import Gradient, GradientDifference, GradientNorm, Question
from core.queries.sums import rows
from core.queries.sums.linear import LinearProblem
from core.queries.sums.passes import BlockSums
from core.queries.sums.rows import Block, Differences, Moments, Outer, inverses, kernels_of
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
OTHER = torch.tensor([0.1, -1.2, 0.7], dtype=torch.float64)

_FMA = ctypes.CDLL(find_library("m")).fma
_FMA.argtypes, _FMA.restype = 3 * [ctypes.c_double], ctypes.c_double
_EACH = np.frompyfunc(_FMA, 3, 1)

OWN, SECOND, LAST = "its own", "without AVX-512", "without instructions for it"
PROCESSORS = {
    OWN: {},
    SECOND: {"#define HAS_SECOND (": "#define HAS_SECOND (0 && "},
    LAST: {
        "#define HAS_FIRST (": "#define HAS_FIRST (0 && ",
        "#define FUSES HAS_FIRST": "#define FUSES 1",
        "#define FUSES 0": "#define FUSES 1",
    },
}
"""Changes planted in the sources, so that they take other instructions than this processor's best."""


def fused(a: NDArray, b: NDArray, c: NDArray) -> Array:
    """Return a b + c in one rounding, as the C library makes it."""
    return _EACH(a, b, c).astype(np.float64)


@lru_cache(maxsize=len(PROCESSORS))
def kernels_on(processor: str) -> ctypes.CDLL:
    """Return a library of this checkout that takes some processor's instructions."""
    if processor == OWN:
        return compiled_kernels()
    folder = Path(mkdtemp(prefix="farthing-kernels-"))
    try:
        planted(copied(folder) / "rows.c", PROCESSORS[processor])
        return built(folder)
    finally:
        shutil.rmtree(folder)


def planted(source: Path, changes: dict[str, str]) -> None:
    text = source.read_text()
    for genuine, other in changes.items():
        assert text.count(genuine) == 1
        text = text.replace(genuine, other)
    source.write_text(text)


def fused_in_order(x: Array, theta: Array) -> Array:
    """Return margins in double precision as the kernels say: eight lanes, zeros behind the last number, then halves."""
    width = -(-x.shape[1] // 8) * 8
    x, theta = (np.pad(one, [*(one.ndim - 1) * [(0, 0)], (0, width - one.shape[-1])]) for one in (x, theta))
    lanes = np.zeros((len(x), 8))
    for first in range(0, width, 8):
        lanes = fused(x[:, first : first + 8], theta[first : first + 8], lanes)
    four = lanes[:, :4] + lanes[:, 4:]
    return (four[:, 0] + four[:, 1]) + (four[:, 2] + four[:, 3])


def fused_sum(x: Array, numbers: Array) -> Array:
    """Return the sum of rows times numbers, one row after the other."""
    total = np.zeros(x.shape[1])
    for row, number in zip(x, numbers, strict=True):
        total = fused(row, number, total)
    return total


def in_order(x: NDArray, theta: NDArray, lanes: int) -> NDArray:
    """Return margins in single precision, as the kernels say: two wide numbers, lanes in pairs, the rest one by one."""
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
    """Return the sum of rows times numbers in single precision, four at a time, two and two."""
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
    x[np.arange(units) % 3 > 0, 0] = 0.0  # beside what overflows, no other product of a row would be seen
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
    parts = BlockSums(block, given, torch.from_numpy(theta), step, None, torch.from_numpy(left), size)
    with np.errstate(all="ignore"):
        margin = fused_in_order(x, theta)
        numbers = numbered(np.where(left, score, 0.0), margin, weights, highest.numpy())
        steps = fused_sum(x, numbers) / step
    for _ in range(2):  # as if there were two parts of the same records
        parts.add(0, units)
    twice = np.concatenate([margin, margin])
    right = np.array_equal(np.concatenate(seen), twice, equal_nan=True)
    return right and np.array_equal(parts.total.numpy(), 2 * np.rint(steps))


def changes_agree(found: ctypes.CDLL, units: int, width: int, clip: float = 0.7) -> bool:
    """Say the same of changes of gradients between two points; at one of them margins overflow."""
    kernels = kernels_of(found)
    assert kernels is not None
    x, theta, score, weights, left = strange(units, width, 1e304)
    points = np.stack([theta, np.random.default_rng(7).standard_normal(width)])
    scores = np.stack([score, score[::-1]])
    x[6::23] = 0.0
    norms = torch.from_numpy(np.linalg.norm(x, axis=1))
    records = Records(
        torch.from_numpy(x), torch.arange(units).double(), torch.from_numpy(weights * (norms.numpy() > 0)), norms
    )
    seen: list[Array] = []

    def given(margin: Tensor, target: Tensor) -> Tensor:
        first = int(target[0])
        seen.append(margin.numpy().copy())
        return torch.from_numpy(scores[:, first : first + margin.shape[1]].copy())

    size, step, bound = max(4, units // 3 // 4 * 4), 2.0**-30, 0.4
    block = Differences(kernels, records, inverses(records), clip, bound)
    parts = BlockSums(block, given, torch.from_numpy(points), step, None, torch.from_numpy(left), size)
    with np.errstate(all="ignore"):
        margin = [fused_in_order(x, one) for one in points]
        inverse = np.where(norms.numpy() > 0, 1 / norms.numpy(), 0.0)
        at_both = [
            numbered(np.where(left, one, 0.0), at, records.weights.numpy(), inverse * min(clip, 1e300))
            for one, at in zip(scores, margin, strict=True)
        ]
        numbers = np.clip(at_both[1] - at_both[0], -inverse * bound, inverse * bound)
        steps = fused_sum(x, numbers) / step
    parts.add(0, units)
    right = np.array_equal(np.concatenate(seen, 1), np.stack(margin), equal_nan=True)
    return right and np.array_equal(parts.total.numpy(), np.rint(steps))


def moments_agree(found: ctypes.CDLL, units: int, width: int) -> bool:
    """Say the same of second moments, whose numbers are clipped by the square of a norm, and may be squared."""
    kernels = kernels_of(found)
    assert kernels is not None
    x, theta, score, weights, left = strange(units, width, 1e304)
    x *= np.exp2(-np.floor(np.log2(np.abs(x).max(1, keepdims=True))))  # clips and steps as terms are
    x[6::23] = 0.0
    norms = np.linalg.norm(x, axis=1)
    weights *= norms > 0
    records = Records(*(torch.from_numpy(one) for one in (x, np.arange(units, dtype=np.float64), weights, norms)))
    size, step, bound, right = max(4, units // 3 // 4 * 4), 2.0**-40, 0.4, True
    for squared in (0, 1):
        seen: list[Array] = []

        def given(margin: Tensor, target: Tensor) -> Tensor:
            first = int(target[0])
            seen.append(margin.numpy().copy())  # noqa: B023 - used in this turn alone
            return torch.from_numpy(score[first : first + len(margin)].copy())

        block = Moments(kernels, records, inverses(records), bound, squared)
        parts = BlockSums(block, given, torch.from_numpy(theta), step, None, torch.from_numpy(left), size)
        with np.errstate(all="ignore"):
            margin = fused_in_order(x, theta)
            inverse = np.where(norms > 0, 1 / norms, 0.0)
            numbers = numbered(np.where(left, score, 0.0), margin, weights, np.full(units, np.finfo(float).max))
            numbers = np.clip(
                numbers**2 if squared else numbers, -(inverse * bound * inverse), inverse * bound * inverse
            )
            expected = np.zeros((width, width))
            for row, number in zip(x, numbers, strict=True):
                expected = fused((number * row)[:, None], row, expected)
        for _ in range(2):  # as if there were two parts of the same records
            parts.add(0, units)
        right = right and np.array_equal(np.concatenate(seen), np.concatenate([margin, margin]), equal_nan=True)
        told = parts.total.numpy().reshape(width, width)
        right = right and np.array_equal(np.triu(told), np.triu(2 * np.rint(expected / step)))
    return right


def products_agree(found: ctypes.CDLL, units: int, width: int) -> bool:
    """Say whether outer products are added up one row after the other, bit for bit, in two calls as in one."""
    kernels = kernels_of(found)
    assert kernels is not None
    x, _, numbers, _, _ = strange(units, width, 1.0)
    numbers = np.where(np.isfinite(numbers), numbers, 0.0)
    expected, made = np.zeros((width, width)), Outer(kernels, width)
    for row, number in zip(x, numbers, strict=True):
        expected = fused((number * row)[:, None], row, expected)
    cut = units // 2
    for some in (slice(0, cut), slice(cut, units)):
        made.add(torch.from_numpy(x[some]), torch.from_numpy(numbers[some]))
    return np.array_equal(np.triu(made.sums[:width, :width].numpy()), np.triu(expected))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("width", WIDTHS)
def test_outer_products_are_added_one_row_after_the_other(width: int, processor: str) -> None:
    assert all(products_agree(kernels_on(processor), units, width) for units in (1, 31, 33, 70))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("width", [*WIDTHS, 130])
def test_doubles_are_added_in_the_order_of_the_text(width: int, processor: str) -> None:
    assert all(doubles_agree(kernels_on(processor), units, width) for units in (1, 2, 3, 4, 7, 150))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("width", WIDTHS)
def test_changes_are_added_in_the_order_of_the_text(width: int, processor: str) -> None:
    assert all(changes_agree(kernels_on(processor), units, width, clip) for units in (1, 5, 150) for clip in (0.7, inf))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("width", [2, 7, 8, 23, 54])
def test_moments_are_added_in_the_order_of_the_text(width: int, processor: str) -> None:
    assert all(moments_agree(kernels_on(processor), units, width) for units in (1, 5, 70))


def test_a_processor_that_does_not_multiply_and_add_at_once_has_no_kernels_for_rows(tmp_path: Path) -> None:
    planted(copied(tmp_path) / "rows.c", {"#define HAS_FIRST (": "#define HAS_FIRST (0 && "})
    assert kernels_of(built(tmp_path)) is None


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
    "the same rows once more": (
        "if (following)\n        CHOOSE(margins)(x + rows * width, following, width, 1,",
        "if (following)\n        CHOOSE(margins)(x, following, width, 1,",
    ),
    "a lane of four": ("high = sums[i][1] + sums[i][3]", "high = sums[i][1] + sums[i][2]"),
    "two roundings": ("__builtin_fma(a[1], b[1], c[1])", "a[1] * b[1] + c[1]"),
    "no last column": ("&last, (size_t)left", "&last, 0 * (size_t)left"),
}  # fmt: skip
CHANGE_FLAWS = {
    "no clip at the first point": ("score[i] = within(score[i], inverse[i] * clip);", ";"),
    "no clip at the second point": ("score[rows + i] = within(score[rows + i], inverse[i] * clip);", ";"),
    "a change that is not clipped": (
        "within(score[rows + i] - score[i], inverse[i] * bound)",
        "score[rows + i] - score[i]",
    ),
    "the first less the second": ("within(score[rows + i] - score[i],", "within(score[i] - score[rows + i],"),
    "a margin of the other point": (
        "NAME(numbers)(margin + rows, weights, NULL,",
        "NAME(numbers)(margin, weights, NULL,",
    ),
    "one point twice": ("theta + point * width, width, 4, margin", "theta, width, 4, margin"),
    "those left out": ("weights, NULL, included, rows, score + rows", "weights, NULL, NULL, rows, score + rows"),
    "one point behind": ("following, width, 2, theta, margin", "following, width, 1, theta, margin"),
}
MOMENT_FLAWS = {
    "a score that is not squared": ("score[i] *= score[i];", ";"),
    "one norm of two": ("inverse[i] * bound * inverse[i]", "inverse[i] * bound"),
    "moments of those left out": (
        "weights, NULL, included, rows, score);\n    if (squared)",
        "weights, NULL, NULL, rows, score);\n    if (squared)",
    ),
    "no margins behind": ("if (margin && following)", "if (0)"),
}
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


ALL_FLAWS = {**FLAWS, **CHANGE_FLAWS, **MOMENT_FLAWS, **OUTER_FLAWS, **SINGLE_FLAWS}


@pytest.mark.parametrize("flaw", ALL_FLAWS)
def test_a_planted_flaw_is_seen(flaw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the comparison with the text; all floats are compared, so nothing is left to chance."""
    source = copied(tmp_path) / "rows.c"
    changes = {genuine: other for genuine, other in PROCESSORS[LAST].items() if flaw not in SINGLE_FLAWS}
    planted(source, {**changes, ALL_FLAWS[flaw][0]: ALL_FLAWS[flaw][1]})
    found = built(tmp_path, "-O0")
    try:
        if flaw in SINGLE_FLAWS:
            agree = singles_agree(found, 170, 23, monkeypatch)
        else:
            kinds = (FLAWS, doubles_agree), (CHANGE_FLAWS, changes_agree), (MOMENT_FLAWS, moments_agree)
            agree = next((check for flaws, check in kinds if flaw in flaws), products_agree)(found, 150, 23)
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
    for theta in FAR_AND_NEAR:
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


FAR_AND_NEAR = (
    THETA,
    torch.full((3,), 1e200, dtype=torch.float64),
    torch.tensor([torch.nan, 1.0, 0.0], dtype=torch.float64),
)


@pytest.mark.parametrize("clip", [0.7, None])
@pytest.mark.parametrize("loss", [LOGISTIC, Squared()], ids=lambda one: one.kind)
def test_changes_err_by_no_more_than_is_charged(
    loss: Loss, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of changes of gradients, to and from points where margins overflow; one planted clip is seen."""
    weights: Weights = WEIGHTS if loss == LOGISTIC else Clip(bound=2.0)
    question = GradientDifference(sigma=1.0, cap=0.4, clip=clip)
    public, grid = charged(loss, weights, "double", question)
    listed, left = torch.arange(0, 333, 2).flip(0), torch.arange(333) % 3 > 0
    for theta, other in ((THETA, OTHER), *((far, OTHER) for far in FAR_AND_NEAR[1:]), (THETA, FAR_AND_NEAR[1])):
        for read, included in ((None, None), (None, left), (listed, None), (listed, left[: len(listed)])):
            sums = []
            for kernels in (kernels_of(compiled_kernels()), None):
                monkeypatch.setattr(rows, "KERNELS", kernels)
                records = LinearProblem(*hostile(loss), loss, weights)
                sums += [
                    records.integer_sum(one, public, theta, grid.part_step, other=other, rows=read, included=included)
                    for one in (question, question.model_copy(update={"cap": 0.02}), question)
                ]
            assert torch.equal(sums[0], sums[2]), "a sum is made anew, whatever was asked in between"
            assert sums[0].any()
            for ours, theirs in zip(sums[:3], sums[3:], strict=True):
                assert (ours - theirs).double().norm() * grid.part_step <= 2 * grid.error
            assert (sums[0] - sums[4]).double().norm() * grid.part_step > 2 * grid.error


def charged(loss: Loss, weights: Weights, precision: str, question: Question = GRADIENT) -> tuple[Facts, Grid]:
    """Return facts that ask for a precision, and the grid that is charged by them."""
    public = facts(333, 3, loss, weights=weights)
    if precision == "single":
        public = public.model_copy(update={"part_rows": PART_ROWS})
    return public, grid_for(question, public, 333)


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
