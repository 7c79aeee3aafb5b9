"""Answers made of noised sums, compiled and by NumPy, with their last part in integers already or not yet."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from core.data.limits import LARGEST_SUM
from core.mechanisms.gaussian import CHUNK
from core.mechanisms.generator import SimulationGenerator
from core.mechanisms.lattice import Grid, vector_grid
from core.mechanisms.telling import tell_in_place, tell_noised, tell_open
from core.native.library import address
from core.native.signatures import TELL, TELL_OPEN
from core.privacy.facts import Adjacency
from core.queries.sums.network.parts import OpenSum
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler

pytestmark = needs_compiler

SIZES = (1, 2, 1023, 1024, 1025, 3000)
GRID = vector_grid(1.0, 2**20, 9, Adjacency.ZERO_OUT)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("bits", [1, 20])
@pytest.mark.parametrize("wide", [2**20, 2**50, 2**51 - 1, 2**51, 2**51 + 1, 2**61])
def test_both_make_the_same_floats_of_sums_of_all_sizes(bits: int, wide: int, precision: type[np.floating]) -> None:
    """Around the size to which doubles are made many at a time; twice, where the sum stood too."""
    grid = replace(vector_grid(1.0, 2**20, 9, Adjacency.ZERO_OUT), part_bits=bits)
    words = SimulationGenerator(bits).bits(4 * CHUNK).view(np.int64)
    totals, noise = words[: CHUNK + 300] >> 3, words[-CHUNK - 300 :] % (2 * wide + 1) - wide
    totals[:CHUNK] >>= 22
    noise[:2], totals[:2] = (wide, -wide), 0
    pieces = [(0, noise[:CHUNK]), (CHUNK, noise[CHUNK:])]
    told = [np.empty(len(totals), dtype=precision) for _ in range(2)]
    for kernel, into in zip((TELL.of(compiled_kernels()), None), told, strict=True):
        tell_noised(totals, pieces, grid, 1 / 3, into, kernel)
    exact = [
        (((sums + 2 ** (bits - 1)) >> bits) + one) for sums, one in zip(totals.tolist(), noise.tolist(), strict=True)
    ]
    expected = (np.array(exact).astype(np.float64) * (1 / 3)).astype(precision)
    assert told[0].tobytes() == told[1].tobytes() == expected.tobytes()
    place = totals.copy()
    single = precision == np.float32
    tell_in_place(address(place), place.size, pieces, grid, 1 / 3, single=single, kernel=TELL.of(compiled_kernels()))
    assert place.view(precision)[: len(place)].tobytes() == told[0].tobytes()
    for kernel in (TELL.of(compiled_kernels()), None):
        place = totals.copy()
        answers = place.view(precision)[: len(place)]
        tell_noised(place, pieces, grid, 1 / 3, answers, kernel)
        assert answers.tobytes() == told[0].tobytes()


@pytest.mark.parametrize("sizes", [[5, 4], [5, 6], [10, 1]])
def test_a_sum_is_told_with_as_much_noise_as_it_is_long(sizes: list[int]) -> None:
    grid, totals = vector_grid(1.0, 2**20, 9, Adjacency.ZERO_OUT), np.zeros(10, dtype=np.int64)
    pieces = [(0, np.zeros(sizes[0], dtype=np.int64)), (sizes[0], np.zeros(sizes[1], dtype=np.int64))]
    with pytest.raises(AssertionError, match="noise"):
        tell_noised(totals, pieces, grid, 1.0, np.empty(10))
    with pytest.raises(AssertionError, match="noise"):
        tell_noised(totals, pieces, grid, 1.0, np.empty(10), None)
    with pytest.raises(AssertionError, match="noise"):
        tell_in_place(address(totals), 10, pieces, grid, 1.0, single=False, kernel=TELL.of(compiled_kernels()))


def parts(size: int, scale: float, grid: Grid, seed: int = 1) -> NDArray[np.float32]:
    """Return floats of both signs over many binades up to a scale, ties of both grids and what lies beside them."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(size, generator=generator) * torch.exp2(-40 * torch.rand(size, generator=generator)) * scale
    some = torch.tensor([0.0, -0.0, 1e-42, -1e-42, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5])
    near = torch.cat([some, some * (1 + 2.0**-22), some * (1 - 2.0**-22)])
    wanted = torch.cat([near * grid.step, near * grid.part_step])
    made[: len(wanted)] = wanted[:size]
    return made.numpy()


def noises(size: int, wide: int) -> NDArray[np.int64]:
    """Return integers within a width, and both of its ends."""
    noise = SimulationGenerator(7).bits(size).view(np.int64) % (2 * wide + 1) - wide
    noise[: 2 * (size > 1)] = (wide, -wide)[: 2 * (size > 1)]
    return noise


def pieces_of(noise: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Cut noise at places that are no block's."""
    for start in range(0, noise.size, 1500):
        yield start, noise[start : start + 1500]


def told_of(
    part: NDArray[np.float32],
    total: NDArray[np.int64] | None,
    noise: NDArray[np.int64],
    grid: Grid,
    folder: Path | None = None,
) -> NDArray[np.float32]:
    """Return what a sum that is still open tells, compiled."""
    told = part.copy()
    library = compiled_kernels() if folder is None else built(folder)
    tell_open(told, total, pieces_of(noise), grid, 1 / 3, TELL_OPEN.of(library))
    return told


def expected(
    part: NDArray[np.float32], total: NDArray[np.int64] | None, noise: NDArray[np.int64], grid: Grid
) -> NDArray[np.float32]:
    """Return what it tells when it was closed first, without kernels."""
    before = None if total is None else torch.from_numpy(total.copy())
    integers = OpenSum(before, torch.from_numpy(part.copy()), grid.part_step).closed().numpy()
    told = np.empty(part.size, dtype=np.float32)
    tell_noised(integers, pieces_of(noise), grid, 1 / 3, told, None)
    return told


@pytest.mark.parametrize("scale", [1e-12, 1.0, 2.0**9, 2.0**10, 2.0**20])
@pytest.mark.parametrize("bits", [1, 7, 20])
@pytest.mark.parametrize("wide", [0, 2**20, 2**50 - 1, 2**50, 2**51, 2**61])
def test_an_open_sum_tells_what_it_would_if_it_were_closed(wide: int, bits: int, scale: float) -> None:
    """To the bit, around the sizes to which doubles hold all that is on the way, with other parts and without."""
    grid = replace(GRID, part_bits=bits)
    for size in SIZES:
        part, noise = parts(size, scale, grid), noises(size, wide)
        for total in (None, SimulationGenerator(9).bits(size).view(np.int64) >> 4):
            told = told_of(part, total, noise, grid)
            assert told.tobytes() == expected(part, total, noise, grid).tobytes()


def test_its_integers_are_those_of_exact_arithmetic() -> None:
    """Truncated toward zero on the finer grid, then rounded with ties up, then noised."""
    part, noise = parts(200, 1.0, GRID), noises(200, 1000)
    told = told_of(part, None, noise, GRID)
    finer = [int(number / GRID.part_step) for number in part.tolist()]
    exact = [
        ((one + 2 ** (GRID.part_bits - 1)) >> GRID.part_bits) + more
        for one, more in zip(finer, noise.tolist(), strict=True)
    ]
    assert told.tolist() == [float(np.float32(one * (1 / 3))) for one in exact]


@pytest.mark.parametrize("wrong", [nan, inf, -inf, LARGEST_SUM * GRID.part_step, -LARGEST_SUM * GRID.part_step])
@pytest.mark.parametrize("place", [0, 1499, 1500, 2999])
def test_a_part_that_is_no_number_or_too_large_is_not_told(wrong: float, place: int) -> None:
    part = np.zeros(3000, dtype=np.float32)
    part[place] = wrong
    with pytest.raises(AssertionError, match="finite and within"):
        told_of(part, None, noises(3000, 5), GRID)
    part[place] = np.nextafter(np.float32(LARGEST_SUM * GRID.part_step), np.float32(0))
    assert told_of(part, None, noises(3000, 5), GRID).tobytes() == expected(part, None, noises(3000, 5), GRID).tobytes()


@pytest.mark.parametrize("sizes", [[5, 4], [5, 6], [10, 1]])
def test_an_open_sum_is_told_with_as_much_noise_as_it_is_long(sizes: list[int]) -> None:
    pieces = [(0, np.zeros(sizes[0], dtype=np.int64)), (sizes[0], np.zeros(sizes[1], dtype=np.int64))]
    with pytest.raises(AssertionError, match="noise"):
        tell_open(np.zeros(10, dtype=np.float32), None, pieces, GRID, 1.0, TELL_OPEN.of(compiled_kernels()))


def test_a_planted_flaw_is_seen(tmp_path: Path) -> None:
    source = copied(tmp_path) / "tell.c"
    genuine = source.read_text()
    source.write_text(genuine.replace("* coarse + 0.5", "* coarse + 0.49999"))
    assert source.read_text() != genuine
    part, noise = parts(3000, 1.0, GRID), noises(3000, 2**20)
    assert told_of(part, None, noise, GRID, tmp_path).tobytes() != expected(part, None, noise, GRID).tobytes()
