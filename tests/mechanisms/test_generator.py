"""Random bits: fresh per generator, process and fork; never a seed near private records."""

import copy
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from core.mechanisms.generator import (
    LAWS_AHEAD,
    MOST_AHEAD,
    Generator,
    SimulationGenerator,
    SystemGenerator,
    _Forks,
    require_system,
)
from core.mechanisms.self_test import DRAWS, distinct, noise_line, self_test

WORDS = 64


def in_forked_child(generator: Generator) -> bytes:
    """Fork, let the child draw WORDS words from the generator it inherited, and return them."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, generator.bits(WORDS).tobytes())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        drawn = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return drawn


def fair(words: np.ndarray) -> bool:
    """Say whether each of 64 bits is set in about half of the words."""
    ones = [int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    return max(abs(count - words.size / 2) for count in ones) / np.sqrt(words.size / 4) < 6


class TestSystemGenerator:
    @pytest.mark.statistical
    def test_two_generators_differ(self) -> None:
        """Equal by chance: 2^-4096."""
        assert not np.array_equal(SystemGenerator().bits(WORDS), SystemGenerator().bits(WORDS))

    @pytest.mark.statistical
    def test_no_word_comes_twice(self) -> None:
        words = SystemGenerator().bits(100_000)  # equal words by chance: 3e-10
        assert np.unique(words).size == words.size

    @pytest.mark.statistical
    def test_every_bit_is_fair(self) -> None:
        """False alarm 1.3e-7: 64 z-tests at 6."""
        assert fair(SystemGenerator().bits(200_000))

    def test_a_bit_that_is_set_too_often_is_seen(self) -> None:
        """Set in 52.5 % of words, it is 16 deviations beyond the threshold."""
        words, other = SimulationGenerator(5).bits(200_000), SimulationGenerator(6).bits(200_000)
        assert fair(words)
        assert not fair(words | ((other % np.uint64(20) == 0).astype(np.uint64) << np.uint64(17)))

    @pytest.mark.statistical
    def test_leading_bits_are_uniform(self) -> None:
        """Chi-square, false alarm 1e-7."""
        counts = np.bincount((SystemGenerator().bits(400_000) >> np.uint64(56)).astype(np.int64), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-7

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_forked_children_differ_from_parent_and_from_each_other(self) -> None:
        generator = SystemGenerator()
        generator.bits(1)
        drawn = [in_forked_child(generator), in_forked_child(generator), generator.bits(WORDS).tobytes()]
        assert len(set(drawn)) == 3
        assert all(len(words) == 8 * WORDS for words in drawn)

    def test_a_fork_is_seen_even_when_the_process_id_is_the_same(self) -> None:
        generator = SystemGenerator()
        generator.bits(1)
        before = generator._SystemGenerator__stream  # type: ignore[attr-defined]  # the key's stream, not its state
        generator.bits(1)
        assert generator._SystemGenerator__stream is before  # type: ignore[attr-defined]  # as above
        _Forks.one_more()
        generator.bits(1)
        assert generator._SystemGenerator__stream is not before  # type: ignore[attr-defined]  # as above

    def test_the_fork_test_sees_a_generator_that_forgets_to_rekey(self) -> None:
        generator = SimulationGenerator(7)  # the planted bug: it follows its seed through a fork
        assert in_forked_child(generator) == generator.bits(WORDS).tobytes()

    def test_what_is_drawn_ahead_comes_once_and_in_its_order(self) -> None:
        generator, made = SystemGenerator(), iter(range(10**6))
        asked: list[int] = []

        def draw(many: int) -> np.ndarray:
            asked.append(many)
            return np.array([next(made) for _ in range(many)])

        told = np.concatenate([generator.ahead(1.0, size, draw) for size in (3, 3, 50, 1, 7, 0, 40) * 9])
        assert (np.diff(told) > 0).all(), "later draws are later numbers, so none comes twice"
        assert sum(asked) < 3 * told.size + MOST_AHEAD
        assert len(asked) < 15, "more and more at a time"

    def test_laws_are_drawn_apart_and_few_are_kept(self) -> None:
        generator = SystemGenerator()
        for law in range(3 * LAWS_AHEAD):
            told = [generator.ahead(law, 2, lambda many, law=law: np.full(many, law)) for _ in range(3)]
            assert (np.concatenate(told) == law).all()
        assert len(generator._SystemGenerator__ahead) == LAWS_AHEAD  # type: ignore[attr-defined]  # how many, not what

    def test_a_forked_child_drops_what_was_drawn_ahead(self) -> None:
        generator, made = SystemGenerator(), iter(range(10**6))
        draw = lambda many: np.array([next(made) for _ in range(many)])  # noqa: E731 - numbered, to tell them apart
        parents = np.concatenate([generator.ahead(1.0, 5, draw) for _ in range(4)])
        last = next(made)
        _Forks.one_more()
        assert generator.ahead(1.0, 5, draw).min() > last > parents.max()

    def test_what_waits_comes_once_by_its_law_and_not_in_a_fork(self) -> None:
        generator, made = SystemGenerator(), iter(range(10**6))
        asked: list[object] = []

        def several(law: object) -> list[tuple[object, int]]:
            asked.append(law)
            return [(law, next(made)) for _ in range(8)]

        told = [generator.next_of(law, lambda law=law: several(law)) for _ in range(20) for law in ("a", "b")]
        assert [law for law, _ in told] == ["a", "b"] * 20
        assert len({number for _, number in told}) == 40
        assert len(asked) == 6, "eight at a time"
        last = next(made)
        _Forks.one_more()
        assert generator.next_of("a", lambda: several("a"))[1] > last
        for law in range(3 * LAWS_AHEAD):
            assert generator.next_of(law, lambda law=law: several(law))[0] == law
        assert len(generator._SystemGenerator__waiting) == LAWS_AHEAD  # type: ignore[attr-defined]  # how many, not what

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_cannot_be_copied_or_stored(self, duplicate: object) -> None:
        assert callable(duplicate)
        with pytest.raises(TypeError, match="neither copied nor stored"):
            duplicate(SystemGenerator())

    def test_takes_no_seed_and_shows_no_state(self) -> None:
        with pytest.raises(TypeError):
            SystemGenerator(1)  # type: ignore[call-arg]  # the point of the test
        generator = SystemGenerator()
        assert repr(generator) == "SystemGenerator()"
        assert not hasattr(generator, "__dict__")

    def test_no_words_are_no_words(self) -> None:
        assert SystemGenerator().bits(0).size == 0


class TestSimulationGenerator:
    def test_a_seed_repeats(self) -> None:
        one, other = SimulationGenerator(3), SimulationGenerator(3)
        assert np.array_equal(one.bits(WORDS), other.bits(WORDS))
        assert one.normal(4, 5).equal(other.normal(4, 5))

    def test_seeds_differ(self) -> None:
        one, other = SimulationGenerator(3), SimulationGenerator(4)
        assert not np.array_equal(one.bits(WORDS), other.bits(WORDS))
        assert not one.normal(9).equal(other.normal(9))

    def test_float_noise_is_standard_normal(self) -> None:
        """Kolmogorov-Smirnov; the seed is fixed."""
        drawn = SimulationGenerator(1).normal(100, 1000).numpy()
        assert drawn.dtype == np.float64
        assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-4

    @pytest.mark.parametrize("seed", [-1, 2**32])
    def test_refuses_seeds_that_would_collide(self, seed: int) -> None:
        with pytest.raises(AssertionError):
            SimulationGenerator(seed)

    def test_never_noises_private_records(self) -> None:
        assert not issubclass(SimulationGenerator, SystemGenerator)
        with pytest.raises(TypeError, match="need a SystemGenerator"):
            require_system(SimulationGenerator(1))
        generator = SystemGenerator()
        assert require_system(generator) is generator


class TestSelfTest:
    def test_passes_here(self) -> None:
        self_test()

    def test_sees_equal_and_empty_noise(self) -> None:
        line = noise_line(SystemGenerator())
        assert len(line.split()) == DRAWS
        assert not distinct([line, line])
        assert not distinct([line, ""])
        assert distinct([line, noise_line(SystemGenerator())])

    def test_stops_a_worker_whose_processes_draw_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("core.mechanisms.self_test.distinct", lambda lines: distinct([lines[0], lines[0]]))
        with pytest.raises(AssertionError, match="same noise"):
            self_test()
