"""Compiled lists of a sample are NumPy's: the same units from the same words."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from core.mechanisms import sampling
from core.mechanisms.generator import Generator, SimulationGenerator
from core.mechanisms.sampling import (
    RATE_UNIT,
    ListedSample,
    _groups,
    kernels_of,
    padded_length,
    poisson_list,
    rate_parts,
)
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler

pytestmark = needs_compiler

LAWS = [(0.01, 4003), (0.2, 1001), (2.0**-40, 800), (0.4, 64), (1.0, 27), (0.5, 1), (0.01, 102_400)]


def listed(generator: Generator, rate: float, units: int, length: int | None = None) -> tuple[ListedSample, int]:
    """Return a sample and the generator's next word: as many are used up by both."""
    parts = rate_parts(rate)
    found = poisson_list(generator, parts, units, length or padded_length(parts, units))
    return found, int(generator.bits(1)[0])


def same(
    one: tuple[ListedSample | NDArray[np.bool_], int], other: tuple[ListedSample | NDArray[np.bool_], int]
) -> bool:
    """Say whether two samples are the same list, or the same mask, of as many words."""
    pairs = zip(one[0], other[0], strict=True) if isinstance(one[0], ListedSample) else [(one[0], other[0])]
    return one[1] == other[1] and type(one[0]) is type(other[0]) and all(np.array_equal(*pair) for pair in pairs)


def agree(found: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, rate: float, units: int, length: int | None) -> bool:
    """Say whether twenty samples are the same by a library and by NumPy."""
    told = []
    for kernels in (kernels_of(found), None):
        monkeypatch.setattr(sampling, "KERNELS", kernels)
        told.append([listed(SimulationGenerator(seed), rate, units, length) for seed in range(20)])
    return all(same(*pair) for pair in zip(*told, strict=True))


@pytest.mark.parametrize(("rate", "units"), LAWS)
def test_both_implementations_list_the_same_units_from_the_same_words(
    rate: float, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agree(compiled_kernels(), monkeypatch, rate, units, None)


def test_samples_that_pass_their_length_are_the_same_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are those whose groups pass theirs, which happens with probability below 2^-84."""
    assert agree(compiled_kernels(), monkeypatch, 0.2, 1001, 150)
    monkeypatch.setattr(sampling, "padded_length", lambda parts, units: 9 + 0 * parts * units)
    assert agree(compiled_kernels(), monkeypatch, 0.2, 1001, 300)


FLAWS = {
    "a comparison": ("high[reached + half - 1] < word", "high[reached + half - 1] >> 45 < word >> 45"),
    "bits that are no units": ("((uint8_t)(0xff << spare) | (uint8_t)~last)", "0xff"),
    "padding that counts": ("(uint8_t)kept & ", ""),
    "the order of bits": ("byte >> (TOGETHER - 1 - bit) & 1", "byte >> bit & 1"),
    "the rarest groups": ("leading[i] >= least", "leading[i] > least"),
    "a place too few": ("uint64_t places = (uint64_t)last + 1;", "uint64_t places = (uint64_t)last;"),
    "rows without their flags": ("included[at] = counts;", "included[at] = included[at];"),
    "words twice": ("words[last - 1] * places;", "words[last / 2] * places;"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_planted_flaw_is_seen(flaw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the comparison with the reference; all units are compared, so nothing is left to chance."""
    source = copied(tmp_path) / "samples.c"
    genuine, planted = FLAWS[flaw]
    assert source.read_text().count(genuine) == 1
    source.write_text(source.read_text().replace(genuine, planted))
    found = built(tmp_path, "-O0")
    assert not all(agree(found, monkeypatch, rate, units, None) for rate, units in (*LAWS[:4], (0.001, 102_397)))


class Scripted(Generator):
    """Words that a test chose, and behind them one that stands for a place of any number of them."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array([*drawn, *[2**63 + 1] * (count - len(drawn))], dtype=np.uint64)


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_tie_is_left_to_numpy_with_the_same_words(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's word is the leading one of a cumulative numerator, whose last bits then decide."""
    parts = rate_parts(0.3)
    law = _groups(parts)
    value = law._exact[100]
    word, rest = value >> 448, (value % 2**448) + offset
    leading = int(word >> 48)
    assert law._guide[leading] < 0, "leading bits do not decide"
    rest_words = np.frombuffer(rest.to_bytes(56, "big"), dtype=np.uint64).tolist()
    told = []
    for kernels in (kernels_of(compiled_kernels()), None):
        monkeypatch.setattr(sampling, "KERNELS", kernels)
        generator = Scripted(leading, word % 2**48, *rest_words)
        told.append(poisson_list(generator, parts, 8, 8))
    assert isinstance(told[0], ListedSample)
    assert same((told[0], 0), (told[1], 0))
    inside = np.zeros(8, dtype=np.bool_)
    inside[told[0].rows[told[0].included]] = True
    assert int(np.packbits(inside)[0]) == 100 + (offset >= 0)
    assert parts < RATE_UNIT
