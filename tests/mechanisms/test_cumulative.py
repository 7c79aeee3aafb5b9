"""Compiled draws are NumPy's draws: the same integers from the same words, whatever is asked for."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from core.mechanisms import self_test
from core.mechanisms.cumulative import UNDECIDED, CumulativeTable
from core.mechanisms.gaussian import CHUNK, DiscreteGaussian
from core.mechanisms.generator import Generator, SimulationGenerator
from core.native.library import address
from core.native.signatures import DRAW
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler

pytestmark = needs_compiler

SIGMAS = (0.5, 1.0, 77.7, 1023.9, 1024.1, 5e6, 1e9, 2.0**40, 2.0**50)
SIZES = (0, 1, 2, 3, 5, 54, 1023, 1024, 1025, 20_000, CHUNK + 7)


def law_with(library: ctypes.CDLL | None, sigma: float) -> DiscreteGaussian:
    """Return a law that draws by a library, by NumPy without one."""
    law = DiscreteGaussian(sigma)
    law.sums.use(DRAW.of(library))
    return law


def drawn(law: DiscreteGaussian, seed: int, size: int) -> tuple[NDArray[np.int64], int]:
    """Return draws, and the generator's next word: as many are used up by both."""
    generator = SimulationGenerator(seed)
    return law.draw(generator, size), int(generator.bits(1)[0])


def agree(library: ctypes.CDLL, sigma: float, sizes: tuple[int, ...]) -> bool:
    one, other = law_with(library, sigma), law_with(None, sigma)
    pairs = ((drawn(one, size, size), drawn(other, size, size)) for size in sizes)
    return all(a[1] == b[1] and np.array_equal(a[0], b[0]) for a, b in pairs)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_twins_draw_the_same_integers_from_the_same_words(sigma: float) -> None:
    assert agree(compiled_kernels(), sigma, SIZES)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("lacking", [0, 1])
def test_twins_agree_where_every_draw_is_undecided(sigma: float, lacking: int) -> None:
    """More of them than a block has room for; and whoever lacks a word says so."""
    law, count = DiscreteGaussian(sigma), 3000
    table, terms = law.table, len(law.multipliers)
    (cells,) = (table.guide >= UNDECIDED).nonzero()
    leading = np.resize(cells.astype(np.uint16), (terms, count))
    words = SimulationGenerator(terms).bits(terms * count)
    high = np.append(table.high, np.uint64(2**64 - 1))
    sums, multipliers = np.empty(count, dtype=np.int64), np.array(law.multipliers)
    draw = DRAW.of(compiled_kernels())
    assert draw
    places = [address(one) for one in (table.first, high, multipliers)]
    spare = words.size - lacking
    refused = draw(
        address(leading), count, terms, address(table.guide), address(words), spare, *places, 7, address(sums)
    )
    assert refused == lacking
    if not refused:
        reached = table.settled(SimulationGenerator(0), leading, words).astype(np.int64)
        assert np.array_equal(sums, 7 + multipliers @ reached)


FLAWS = {
    "a bit": ("<< 48 | word >> 16", "<< 48 | word >> 17"),
    "a cell": ("count + undecided[k]]] >= UNDECIDED", "count + undecided[k]]] > UNDECIDED + 3"),
    "a sum": ("sum = offset;", "sum = offset + (start + i == 9999);"),
    "a term": ("* (passed - reached)", "* (passed - reached + (term == terms - 1))"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_planted_flaw_is_seen(flaw: str, tmp_path: Path) -> None:
    """By the comparison of twins; all draws are compared, so nothing is left to chance."""
    source = copied(tmp_path) / "noise.c"
    genuine, planted = FLAWS[flaw]
    assert source.read_text().count(genuine) == 1
    source.write_text(source.read_text().replace(genuine, planted))
    assert not agree(built(tmp_path), 5e6, (20_000,))


class Scripted(Generator):
    """Words that a test chose, and zeros behind them."""

    def __init__(self, words: list[int]) -> None:
        self.words = words

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array(drawn + [0] * (count - len(drawn)), dtype=np.uint64)


@pytest.mark.parametrize("place", [0, 5, 11])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_tie_is_left_to_numpy_with_the_same_words(place: int, offset: int) -> None:
    """Four draws of three terms; the word of one of the twelve is a table value's, whose last bits then decide."""
    laws = [law_with(library, 5e6) for library in (compiled_kernels(), None)]
    table: CumulativeTable = laws[0].table
    at = table.last  # the value between the draws -1 and 0, far from the others
    word, low = int(table.high[at]), int(table.low[at])
    leading = [0x8123] * 12
    leading[place] = word >> 48
    by_sums = [leading[4 * term + one] for one in range(4) for term in range(3)]
    undecided = [one for one in by_sums if table.guide[one] >= UNDECIDED]
    packed = np.array(leading, dtype=np.uint16).view(np.uint64).tolist()
    words = [word % 2**48 << 16 if one == word >> 48 else 7 << 60 for one in undecided]
    spare = [0] * (laws[0].sums.spare(4) - len(words))
    found = [law.draw(Scripted([*packed, *words, *spare, low + offset]), 4).tolist() for law in laws]
    assert found[0] == found[1]
    plain = laws[0].draw(Scripted([*packed, *([0] * len(words))]), 4)
    moved = (np.array(found[0]) - plain)[place % 4] // laws[0].multipliers[place // 4]
    assert moved == (1 if offset >= 0 else 0)


def test_undecided_draws_for_which_no_word_is_left_take_further_ones() -> None:
    """Of twenty sums all sixty draws are undecided, which nobody will ever see: many more than words are spare."""
    laws = [law_with(library, 5e6) for library in (compiled_kernels(), None)]
    table, count = laws[0].table, 20
    cells = np.flatnonzero(table.guide >= UNDECIDED)[:: table.first.size // 60][:60].astype(np.uint16)
    packed, spare = cells.view(np.uint64).tolist(), laws[0].sums.spare(count)
    assert spare < 60
    words = SimulationGenerator(4).bits(60 + 1).tolist()
    scripts = [Scripted([*packed, *words]) for _ in laws]
    found = [law.draw(script, count).tolist() for law, script in zip(laws, scripts, strict=True)]
    assert found[0] == found[1]
    assert [script.words for script in scripts] == [words[60:]] * 2
    by_sums = cells.reshape(3, count).T.flatten().tolist()
    whole = [cell << 48 | word >> 16 for cell, word in zip(by_sums, words, strict=False)]
    reached = table.high.searchsorted(np.array(whole, dtype=np.uint64), side="right").reshape(count, 3) - table.last
    assert found[0] == (reached @ np.array(laws[0].multipliers)).tolist()


def test_words_are_hardly_ever_missing() -> None:
    """By the binomial law of undecided draws: less than once in 2^20 pieces, of any size and every law."""
    for sigma in SIGMAS:
        law = DiscreteGaussian(sigma)
        rate = law.table.first.size / 2**16
        for size in (1, 9, 100, 1000, CHUNK):
            draws = size * len(law.multipliers)
            assert binom.sf(law.sums.spare(size), draws, rate) < 2.0**-20


@pytest.mark.parametrize(
    ("file", "genuine", "planted"),
    [
        ("noise.c", "<< 48 | word >> 16", "<< 48 | word >> 18"),
        ("tell.c", "+ half + sign)", "+ half / 2 + sign)"),
        ("tell.c", "] = (double)(int64_t)noised[i]", "] = (double)noised[i]"),
        ("tell.c", "] = (float)((double)(int64_t)noised[i] * scale)", "] = (float)(int64_t)noised[i] * (float)scale"),
        ("tell.c", "coarse + 0.5", "coarse + 0.25"),
        ("tell.c", "trunc((double)", "floor((double)"),
        ("tell.c", "(uint64_t)sums[start + i]", "(uint64_t)sums[i]"),
        ("integers.h", "- (float)high * 0x1p20f", "- (float)high * 0x1p19f"),
        ("parts.c", "for (; j < width; j++)", "for (; j < width - 1; j++)"),
    ],
)
def test_a_worker_with_flawed_kernels_does_not_start(
    file: str, genuine: str, planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = copied(tmp_path) / file
    monkeypatch.setattr(self_test, "library", lambda: (compiled_kernels(), "compiled"))
    assert self_test.twins_agree()
    assert source.read_text().count(genuine) == 1
    source.write_text(source.read_text().replace(genuine, planted))
    flawed = built(tmp_path)
    monkeypatch.setattr(self_test, "library", lambda: (flawed, "compiled"))
    assert not self_test.twins_agree()
    monkeypatch.setattr(self_test, "distinct", lambda lines: len(lines) == 1)  # these are not what is planted
    monkeypatch.setattr(self_test, "FRESH", 0)
    with pytest.raises(AssertionError, match="other numbers than NumPy"):
        self_test.self_test()


def test_without_a_library_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "library", lambda: (None, "none"))
    assert self_test.twins_agree()
