"""Compiled passes over long vectors give torch's very bits, and refuse what it refuses."""

from fractions import Fraction
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from core.data.limits import LARGEST_SUM
from core.native.signatures import SQUARES, TRUNCATE
from core.queries.sums.network.parts import moved, write_truncated
from core.queries.sums.network.terms import OuterTerms, RowTerms, begin, exact_squares
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler

pytestmark = needs_compiler

SIZES = (1, 7, 1023, 1024, 1025, 5000)
STEP = 2.0**-30


def floats(size: int, scale: float, seed: int = 1) -> Tensor:
    """Return floats of both signs over many binades up to a scale, with zeros, denormals, halves and wholes."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(size, generator=generator) * torch.exp2(-30 * torch.rand(size, generator=generator)) * scale
    some = torch.tensor([0.0, -0.0, 1e-42, -1e-42, 0.5 * STEP, -0.5 * STEP, STEP, -STEP, 1.5 * STEP, -2.5 * STEP])
    made[: len(some)] = some[:size]
    return made


def sums(part: Tensor, *, adding: bool, compiled: bool, folder: Path | None = None) -> Tensor:
    """Return what becomes of a total with one part."""
    library = compiled_kernels() if folder is None else built(folder)
    total = torch.arange(len(part)) * 2**40 - 2**50
    write_truncated(total, part.clone(), STEP, adding=adding, kernel=TRUNCATE.of(library) if compiled else None)
    return total


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 2.0**20, 2.0**21, 2.0**22, 2.0**29])
def test_parts_become_the_same_integers(scale: float, adding: bool) -> None:
    """Below 2^51 steps, where whole numbers are read off doubles, and above."""
    for size in SIZES:
        part = floats(size, scale)
        one, other = (sums(part, adding=adding, compiled=compiled) for compiled in (True, False))
        assert torch.equal(one, other)
        exact = [int(x / STEP) + (i * 2**40 - 2**50 if adding else 0) for i, x in enumerate(part.tolist())]
        assert one.tolist() == exact


def test_whole_numbers_around_the_largest_narrow_one_are_exact() -> None:
    near = torch.tensor([2.0**51, 2.0**51 - 2**27, 2.0**50, 2.0**24 + 2, 2.0**23 + 1, 2.0**23 - 0.5]) * STEP
    part = torch.cat([near, -near])
    for some in (part, part[1:6]):
        assert sums(some, adding=False, compiled=True).tolist() == [int(x / STEP) for x in some.tolist()]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("wrong", [nan, inf, -inf, LARGEST_SUM * STEP, -LARGEST_SUM * STEP, 3e38])
@pytest.mark.parametrize("place", [0, 1500, 2999])
def test_what_is_no_number_or_too_large_is_refused_wherever_it_stands(wrong: float, place: int, compiled: bool) -> None:
    part = torch.zeros(3000)
    part[place] = wrong
    with pytest.raises(AssertionError, match="finite and within"):
        sums(part, adding=True, compiled=compiled)
    largest = torch.nextafter(torch.tensor(LARGEST_SUM * STEP), torch.tensor(0.0))
    part[place] = largest
    assert sums(part, adding=False, compiled=compiled)[place] == int(largest / STEP)


@pytest.mark.parametrize("size", SIZES)
def test_changes_are_added_to_a_start_by_the_same_roundings(size: int) -> None:
    start, change = floats(size, 1.0), floats(size, 3.0, 2).double() * (1 + 2.0**-30)
    one, other = moved(start, change), moved(start, change.float())
    assert one.dtype == other.dtype == torch.float32
    assert torch.equal(one.view(torch.int32), other.view(torch.int32))
    assert torch.equal(one, torch.from_numpy(change.numpy().astype(np.float32) + start.numpy()))


def test_a_planted_flaw_is_seen(tmp_path: Path) -> None:
    source = copied(tmp_path) / "integers.h"
    genuine = source.read_text()
    source.write_text(genuine.replace("high * 0x1p20f)", "high * 0x1p20f + 1)"))
    assert source.read_text() != genuine
    built(tmp_path)
    part = floats(5000, 1.0)
    assert not torch.equal(
        sums(part, adding=True, compiled=True, folder=tmp_path), sums(part, adding=True, compiled=False)
    )


@pytest.mark.parametrize("width", [1, 15, 16, 17, 1000])
def test_squares_of_rows_are_those_of_exact_arithmetic(width: int) -> None:
    """Up to roundings of double precision; a row that is not finite is not, and its neighbours are."""
    rows = floats(7 * width, 2.0**30).view(7, width)
    rows[2], rows[4, -1], rows[5, 0] = 1e-42, nan, inf
    one, other = (exact_squares(rows, kernel) for kernel in (SQUARES.of(compiled_kernels()), None))
    assert one.isfinite().tolist() == other.isfinite().tolist() == [True, True, True, True, False, False, True]
    exact = [float(sum(Fraction(x) ** 2 for x in row)) for row in rows[[0, 1, 2, 3, 6]].tolist()]
    assert one[[0, 1, 2, 3, 6]].tolist() == pytest.approx(exact, rel=1e-12, abs=0.0)


def test_a_part_that_begins_writes_over_whatever_stood_there() -> None:
    """Matrices by their products, all else by zeros to which it is added."""
    generator = torch.Generator().manual_seed(3)
    inputs, slopes = torch.randn(6, 5, generator=generator), torch.randn(6, 4, generator=generator)
    rows, kept = torch.randn(6, 3, generator=generator), torch.tensor([True, True, False, True, True, True])
    weights, some = torch.where(kept, torch.rand(6, generator=generator), 0.0), slice(1, 5)
    every = [RowTerms(2, rows), OuterTerms(29, inputs, slopes, bias=False), OuterTerms(5, inputs, slopes, bias=True)]
    one, other = torch.full((51,), nan), torch.zeros(51)
    begin(every, one, weights[some], kept[some], some)
    for terms in every:
        terms.add(other, weights[some], kept[some], some)
    assert one[:2].tolist() == one[49:].tolist() == [0.0, 0.0]
    assert torch.allclose(one, other, rtol=1e-6, atol=0.0)


def test_other_precisions_and_strides_are_left_to_torch() -> None:
    start = torch.ones(6, 4).mT
    assert not start.is_contiguous()
    assert torch.equal(moved(start, torch.ones(4, 6, dtype=torch.float64)), torch.full((4, 6), 2.0))
    assert moved(start.double(), start.double()).dtype == torch.float64
    total = torch.zeros(3, dtype=torch.int64)
    write_truncated(total, torch.tensor([1.5, -2.5, 0.0], dtype=torch.float64), 0.5, adding=False)
    assert total.tolist() == [3, -5, 0]


def test_what_is_shared_until_somebody_writes_stays_shared() -> None:
    """A copy of all parameters in each step is what sharing saves; and a slice begins where it does."""
    for theta in (floats(5000, 3.0), floats(5000, 3.0).double()):
        held = theta._lazy_clone()
        start = floats(400, 1.0, 2)
        made = moved(start, theta[300:700])
        assert torch._C._is_cow_tensor(held)
        assert torch._C._is_cow_tensor(theta)
        assert torch.equal(made, held[300:700].float() + start)


def test_derivatives_are_taken_through_torch() -> None:
    start, change = torch.ones(5), torch.arange(5, dtype=torch.float64)
    for slope in (torch.func.grad, torch.func.jacrev):
        assert torch.equal(slope(lambda at: moved(start, at).square().sum())(change), 2 * (change + 1))
    change.requires_grad_()
    moved(start, change).sum().backward()
    assert torch.equal(change.grad, torch.ones(5, dtype=torch.float64))
