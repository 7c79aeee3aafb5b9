"""Compiled draws are NumPy's draws: the same integers from the same words, whatever is asked for."""

import ctypes
from decimal import Decimal, localcontext
from math import log
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from core.mechanisms import self_test
from core.mechanisms.cumulative import UNDECIDED, Words
from core.mechanisms.gaussian import CHUNK, DiscreteGaussian
from core.mechanisms.generator import Generator, SimulationGenerator
from core.native.library import address
from core.native.signatures import DRAW
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler

pytestmark = needs_compiler

SIGMAS = (0.5, 1.0, 77.7, 1023.9, 1024.1, 5e6, 8.5e6, 1e9, 2.0**40, 2.0**50)
WIDE = (1024.1, 5e6, 2.0**50)
SIZES = (0, 1, 2, 3, 5, 54, 1023, 1024, 1025, 20_000, CHUNK + 7)


def law_with(library: ctypes.CDLL | None, sigma: float) -> DiscreteGaussian:
    """Return a law that draws by a library, by NumPy without one."""
    law = DiscreteGaussian(sigma)
    law.draws.use(DRAW.of(library))
    return law


def drawn(law: DiscreteGaussian, seed: int, size: int) -> tuple[NDArray[np.int64], int]:
    """Return draws, and the generator's next word: as many are used up by both."""
    generator = SimulationGenerator(seed)
    return law.draw(generator, size), int(generator.bits(1)[0])


def agree(library: ctypes.CDLL, sigma: float, sizes: tuple[int, ...]) -> bool:
    """Say whether a library draws what NumPy does."""
    one, other = law_with(library, sigma), law_with(None, sigma)
    pairs = ((drawn(one, size, size), drawn(other, size, size)) for size in sizes)
    return all(a[1] == b[1] and np.array_equal(a[0], b[0]) for a, b in pairs)


def by_kernel(
    law: DiscreteGaussian, first: NDArray[np.unsignedinteger], words: NDArray[np.uint64], library: ctypes.CDLL
) -> NDArray[np.int64] | None:
    """Return draws by their first bits and all further words; None where these are too few."""
    draw, found = DRAW.of(library), np.full(first.size, -1)
    assert draw
    listed = np.empty(first.size, dtype=np.uint32)
    at = [address(one) for one in (first, words, listed, found)]
    refused = draw(ctypes.addressof(law.draws._law), at[0], first.size, at[1], words.size, at[2], at[3])
    assert refused in {0, 1}
    return None if refused else found


def by_numpy(
    law: DiscreteGaussian, first: NDArray[np.unsignedinteger], words: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], int]:
    """Return the same by NumPy, and how many of the words that took; all of them where it took more."""
    more, bits = Words(words, SimulationGenerator(0)), first.astype(np.uint64)
    leading = (bits >> np.uint64(8 * first.itemsize - 16)).astype(np.uint16)
    return law.strips.settled(leading, law.strips.place(bits), more), words.size - more._ahead.size


@pytest.mark.parametrize("sigma", SIGMAS)
def test_both_implementations_draw_the_same_integers_from_the_same_words(sigma: float) -> None:
    assert agree(compiled_kernels(), sigma, SIZES)


def first_bits(law: DiscreteGaussian, kind: str, count: int) -> NDArray[np.unsignedinteger]:
    """Return first bits of draws whose events are all undecided, or all the test, or either."""
    guide = law.strips.table.guide
    kinds = {"undecided": guide >= UNDECIDED, "test": guide == law.strips.test}
    cells = np.flatnonzero(kinds["undecided"] | kinds["test"] if kind == "both" else kinds[kind])
    bits = np.iinfo(law.draws._width).bits
    places = SimulationGenerator(5).bits(count) & np.uint64(2**law.strips.fine - 1)
    leading = np.random.default_rng(6).choice(cells, count).astype(np.uint64)
    return (leading << np.uint64(bits - 16) | places).astype(law.draws._width)


@pytest.mark.parametrize(
    ("sigma", "kind"), [(sigma, "undecided") for sigma in SIGMAS] + [(s, k) for s in WIDE for k in ("test", "both")]
)
def test_both_agree_where_nothing_is_decided_at_once_and_whoever_lacks_a_word_says_so(sigma: float, kind: str) -> None:
    law, words = DiscreteGaussian(sigma), SimulationGenerator(4).bits(20_000)
    first = first_bits(law, kind, 3000)
    expected, used = by_numpy(law, first, words)
    assert first.size <= used < words.size
    found = by_kernel(law, first, words[:used], compiled_kernels())
    assert found is not None
    assert np.array_equal(found, expected)
    for lacking in (1, 2, used // 2, used - 1):
        assert by_kernel(law, first, words[: used - lacking], compiled_kernels()) is None


FLAWS = {
    "a bit": ("leading << 48 | word >> 16", "leading << 48 | word >> 17"),
    "a cell": ("event >= test, 0)", "event > test + 3, 0)"),
    "a place": ("place : ((int64_t)1 << law->fine) - place", "place : place"),
    "a height": ("v + FRACTION) * end * (1.0 + MARGIN) <= reached", "v + FRACTION) * end * (1.0 - 0x1p-8) <= reached"),
    "a term": ("n > 1; n--", "n > 3; n--"),
    "a side": ("below ? law->below - cell", "below ? law->below - cell + 1"),
    "a test": ("listed[failed++] = (uint32_t)i;", "drawn[i] = drawn_of(cell, drawn[i], law);"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_planted_flaw_is_seen(flaw: str, tmp_path: Path) -> None:
    """By the comparison with the reference; all draws are compared, so nothing is left to chance."""
    source = copied(tmp_path) / "noise.c"
    genuine, planted = FLAWS[flaw]
    assert source.read_text().count(genuine) == 1
    source.write_text(source.read_text().replace(genuine, planted))
    library, law = built(tmp_path), DiscreteGaussian(5e6)
    words, first = SimulationGenerator(4).bits(20_000), first_bits(law, "both", 3000)
    found = by_kernel(law, first, words, library)
    assert found is None or not np.array_equal(found, by_numpy(law, first, words)[0])


class Scripted(Generator):
    """Words that a test chose, and zeros behind them."""

    def __init__(self, words: list[int]) -> None:
        self.words = words

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array(drawn + [0] * (count - len(drawn)), dtype=np.uint64)


def scripted(law: DiscreteGaussian, first: list[int], words: list[int], behind: list[int]) -> list[int]:
    """Return draws by their first bits, by further words, and by what is drawn when all spare ones are used up."""
    count = len(first)
    packed = np.zeros(law.draws._packed(count), dtype=np.uint64)
    packed.view(law.draws._width)[:count] = first
    spare = law.draws.spare(count) - len(words)
    assert spare >= 0
    return law.draw(Scripted([*packed.tolist(), *words, *([0] * spare), *behind]), count).tolist()


@pytest.mark.parametrize("place", [0, 2, 3])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_tie_of_an_event_is_left_to_numpy_with_the_same_words(place: int, offset: int) -> None:
    """One of four draws is undecided, and its word is a table value's, whose last bits then decide."""
    laws = [law_with(library, 5e6) for library in (compiled_kernels(), None)]
    strips = laws[0].strips
    at = strips.below  # the value between the cell below zero and that above, far from the others
    word, low = int(strips.table.high[at - 1]), int(strips.table.low[at - 1])
    first = [0x8123 << 16] * 4
    first[place] = word >> 48 << 16 | 77
    # The kernel stops at the tie; NumPy goes on with the word behind it.
    found = [scripted(law, first, [word % 2**48 << 16, low + offset], []) for law in laws]
    assert found[0] == found[1]
    assert found[0][place] == ((0 if offset >= 0 else -1) << strips.fine) + 77


@pytest.mark.parametrize(("offset", "cell"), [(-1, 3), (0, 4)])
def test_a_tie_of_a_tests_cell_too(offset: int, cell: int) -> None:
    laws = [law_with(library, 5e6) for library in (compiled_kernels(), None)]
    strips = laws[0].strips
    assert strips.tests
    at = strips.below + 3  # the value between the cells 3 and 4
    word, low = int(strips.tests.high[at]), int(strips.tests.low[at])
    found = [scripted(law, [0xFFFF << 16 | 5], [word, 0, low + offset], []) for law in laws]
    assert found[0] == found[1] == [(cell << strips.fine) + 5]


@pytest.mark.parametrize("sigma", WIDE)
def test_a_test_is_decided_by_the_density_itself(sigma: float) -> None:
    """A 2^-36th of the quotient beside it, in cells and at places of all kinds, by both codes; at it by NumPy."""
    law, coins, compared = DiscreteGaussian(sigma), np.random.default_rng(8), 0
    strips, width = law.strips, 2**law.strips.fine
    values = [0, *strips.tests.high.tolist(), 2**64]
    bits = np.iinfo(law.draws._width).bits
    for cell in (strips.below - 1, strips.below, *coins.integers(0, 2 * strips.below, 30).tolist()):
        for place in (0, 1, width // 3, width - 1, int(coins.integers(0, width))):
            x = (cell - strips.below) * width + place
            height = quotient(sigma, width, x) * 2**64
            if values[cell + 1] - values[cell] < 3 or not 2**48 < height < 2**64 - 2**30:
                continue  # cells that nobody reaches by a word, and quotients that are rational or nearly so
            first = np.array([0xFFFF << (bits - 16) | place], dtype=law.draws._width)
            for at, behind, is_taken in (
                (height * Decimal(1 - 2.0**-36), None, True),
                (height * Decimal(1 + 2.0**-36), None, False),
                (height, 0, True),  # the bits behind the first 64 of V
                (height, 2**64 - 1, False),
            ):
                further = [] if behind is None else [behind]
                words = np.array([values[cell] + 1, int(at), *further, *[0x8123 << 48] * 9], dtype=np.uint64)
                found = by_kernel(law, first, words, compiled_kernels())
                assert (found is None) == (behind is not None)
                expected = by_numpy(law, first, words)[0]
                assert found is None or np.array_equal(found, expected)
                assert (expected[0] == x) == is_taken
                compared += 1
    assert compared > 100


@pytest.mark.parametrize(("side", "heights", "is_taken"), [(0, [2**64 - 1, 2**64 - 1], True), (-1, [0, 0], False)])
def test_a_place_where_a_cell_ends_is_taken_always_or_never(side: int, heights: list[int], is_taken: bool) -> None:
    """Its density is the larger end's, which every V is below; or the smaller end's, which none is below."""
    law = DiscreteGaussian(5e6)
    inside = int(law.strips.tests.high[law.strips.below + side - 1]) + 1
    words = np.array([inside, *heights, *[0x8123 << 48] * 9], dtype=np.uint64)
    assert (
        by_numpy(law, np.array([0xFFFF << 16], dtype=np.uint32), words)[0][0] == side << law.strips.fine
    ) == is_taken


def quotient(sigma: float, width: int, x: int) -> Decimal:
    """Return the share of a cell's test that takes x, from the definition, to 60 digits."""
    with localcontext() as context:
        context.prec = 100
        outer = (abs(x) + width - (x < 0)) // width * width  # where the cell ends that is farther from zero
        rho = [(-(Decimal(at) ** 2) / (2 * Decimal(sigma) ** 2)).exp() for at in (outer, x, outer - width)]
        return (rho[1] - rho[0]) / (rho[2] - rho[0])


def test_draws_for_which_no_word_is_left_take_further_ones() -> None:
    """All sixty are undecided or tested, which nobody will ever see: many more words than are spare."""
    laws = [law_with(library, 5e6) for library in (compiled_kernels(), None)]
    first = first_bits(laws[0], "both", 60)
    assert laws[0].draws.spare(60) < 60
    words = SimulationGenerator(4).bits(300)
    scripts = [Scripted([*first.view(np.uint64).tolist(), *words.tolist()]) for _ in laws]
    found = [law.draw(script, 60).tolist() for law, script in zip(laws, scripts, strict=True)]
    expected, used = by_numpy(laws[0], first, words)
    assert found[0] == found[1] == expected.tolist()
    assert [script.words for script in scripts] == [words[used:].tolist()] * 2


@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_word_is_hardly_ever_missing(sigma: float) -> None:
    """By the moments of how many a draw takes (Chernoff): less than once in 2^20 pieces of any size."""
    law = DiscreteGaussian(sigma)
    undecided, tested = law.strips.table.first.size / 2**16, law.strips.tested
    for size in (1, 9, 100, 1000, CHUNK):
        spare, least = law.draws.spare(size), 0.0
        for z in np.linspace(1.02, 6.0, 250):
            # An attempt takes a word if it is undecided, and two if it is tested; every second of those fails, and
            # takes a word for an attempt anew.
            own = 1 + undecided * (z - 1)
            share = tested * z * z / 2
            if own * share * z >= 1:
                break
            attempt = own * (1 - tested + share) / (1 - own * share * z)
            least = min(least, size * log(attempt) - spare * log(z))
        assert least < -20 * log(2)


@pytest.mark.parametrize(
    ("file", "genuine", "planted"),
    [
        ("noise.c", "leading << 48 | word >> 16", "leading << 48 | word >> 18"),
        ("noise.c", "(double)(height >> 11)", "(double)(height >> 12)"),
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
    assert source.read_text().count(genuine) == 1
    source.write_text(source.read_text().replace(genuine, planted))
    flawed = built(tmp_path)
    monkeypatch.setattr(self_test, "library", lambda: (flawed, "compiled"))
    assert not self_test.kernels_agree()
    monkeypatch.setattr(self_test, "distinct", lambda lines: len(lines) == 1)  # these are not what is planted
    monkeypatch.setattr(self_test, "FRESH", 0)
    with pytest.raises(AssertionError, match="other numbers than NumPy"):
        self_test.self_test()


def test_kernels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "library", lambda: (compiled_kernels(), "compiled"))
    assert self_test.kernels_agree()


def test_without_a_library_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "library", lambda: (None, "none"))
    assert self_test.kernels_agree()
