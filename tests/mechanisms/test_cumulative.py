"""Compiled draws are NumPy's draws: the same integers from the same words, whatever is asked for."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from core.mechanisms import self_test
from core.mechanisms.cumulative import UNDECIDED, CumulativeTable
from core.mechanisms.gaussian import CHUNK, DiscreteGaussian
from core.mechanisms.generator import Generator, SimulationGenerator
from core.native.signatures import DECIDE, SETTLE
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler

pytestmark = needs_compiler

SIGMAS = (0.5, 1.0, 77.7, 1023.9, 1024.1, 5e6, 1e9, 2.0**40, 2.0**50)
SIZES = (0, 1, 2, 3, 5, 54, 1023, 1024, 1025, 20_000, CHUNK + 7)


def law_with(library: ctypes.CDLL | None, sigma: float) -> DiscreteGaussian:
    """Return a law that draws by a library, by NumPy without one."""
    law = DiscreteGaussian(sigma)
    law.sums.use(DECIDE.of(library), SETTLE.of(library))
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


FLAWS = {
    "a bit": ("<< 48 | *words++ >> 16", "<< 48 | *words++ >> 17"),
    "a cell": ("if (reached >= UNDECIDED)", "if (reached > UNDECIDED + 3)"),
    "a sum": ("sum = offset;", "sum = offset + (i == 9999);"),
    "an order": ("multiplier = multipliers[term]", "multiplier = multipliers[terms - 1 - term]"),
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
    undecided = [one for one in leading if table.guide[one] >= UNDECIDED]
    packed = np.array(leading, dtype=np.uint16).view(np.uint64).tolist()
    words = [word % 2**48 << 16 if one == word >> 48 else 7 << 60 for one in undecided]
    found = [law.draw(Scripted([*packed, *words, low + offset]), 4).tolist() for law in laws]
    assert found[0] == found[1]
    plain = laws[0].draw(Scripted([*packed, *([0] * len(words))]), 4)
    moved = (np.array(found[0]) - plain)[place % 4] // laws[0].multipliers[place // 4]
    assert moved == (1 if offset >= 0 else 0)


@pytest.mark.parametrize(
    ("file", "genuine", "planted"),
    [
        ("noise.c", "<< 48 | *words++ >> 16", "<< 48 | *words++ >> 18"),
        ("noise.c", "+ half)", "+ half / 2)"),
        ("parts.c", "rounded > size ?", "rounded > size + 0.25 ?"),
        ("parts.c", "+ start[i];", "- start[i];"),
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
