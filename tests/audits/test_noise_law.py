"""The noise law: the drawn noise is the priced noise, and the bugs that break it are seen.

Each planted bug stays here as a fixture that must fail the same judgement the real noise passes. Seeds are fixed, but
for draws of the system and of fresh processes: there a judgement is a false alarm in 3e-7 of all runs. At their sizes
each planted bug is 20 standard deviations or more beyond a threshold, so that none is missed.
"""

import subprocess
import sys
from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from core.mechanisms.gaussian import noise_symmetric, noise_vector
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.mechanisms.lattice import matrix_grid, vector_grid
from core.privacy.facts import Adjacency
from tests.support.noise_law import MOST_Z, independent, judge

SIGMA = 5.0e6
DRAWS = 400_000
Noise = Callable[[SimulationGenerator, int], NDArray[np.int64]]

PROCESS = """
import sys
from core.mechanisms.gaussian import noise_vector
from core.mechanisms.generator import SystemGenerator
sys.stdout.buffer.write(noise_vector(SystemGenerator(), 5.0e6, 100_000).tobytes())
"""


def honest(generator: SimulationGenerator, size: int) -> NDArray[np.int64]:
    return noise_vector(generator, SIGMA, size)


def a_fifth_too_small(generator: SimulationGenerator, size: int) -> NDArray[np.int64]:
    return noise_vector(generator, 0.8 * SIGMA, size)


def a_twentieth_too_small(generator: SimulationGenerator, size: int) -> NDArray[np.int64]:
    return noise_vector(generator, 0.95 * SIGMA, size)


def drawn_once_and_repeated(generator: SimulationGenerator, size: int) -> NDArray[np.int64]:
    return np.resize(noise_vector(generator, SIGMA, 1000), size)


def each_draw_half_the_last(generator: SimulationGenerator, size: int) -> NDArray[np.int64]:
    fresh = noise_vector(generator, SIGMA, size + 1)
    return np.rint((fresh[1:] + fresh[:-1]) / sqrt(2)).astype(np.int64)


def cut_at_two_and_a_half(generator: SimulationGenerator, size: int) -> NDArray[np.int64]:
    return np.clip(noise_vector(generator, SIGMA, size), int(-2.5 * SIGMA), int(2.5 * SIGMA))


def uniform_of_equal_variance(generator: SimulationGenerator, size: int) -> NDArray[np.int64]:
    words = generator.bits(size).astype(np.float64) / 2**64 - 0.5
    return np.rint(words * sqrt(12) * SIGMA).astype(np.int64)


class TestVectors:
    def test_the_noise_passes(self) -> None:
        assert judge(honest(SimulationGenerator(21), DRAWS), SIGMA).passes()

    @pytest.mark.statistical
    def test_the_system_generators_noise_passes(self) -> None:
        assert judge(noise_vector(SystemGenerator(), SIGMA, DRAWS), SIGMA).passes()

    @pytest.mark.parametrize(
        "planted",
        [
            a_fifth_too_small,
            a_twentieth_too_small,
            drawn_once_and_repeated,
            each_draw_half_the_last,
            cut_at_two_and_a_half,
            uniform_of_equal_variance,
        ],
    )
    def test_a_planted_bug_fails(self, planted: Noise) -> None:
        assert not judge(planted(SimulationGenerator(21), DRAWS), SIGMA).passes()

    @pytest.mark.parametrize(
        ("coordinates", "diameter", "moved"),
        [(30, None, 2 * 1.98), (1, None, 2 * 1.98), (31, 3.9102868, 3.9102868)],
        ids=["gradient", "slope", "gradient with an unknown scale"],
    )
    def test_the_scale_is_the_priced_multiple_of_the_sensitivity(
        self, coordinates: int, diameter: float | None, moved: float
    ) -> None:
        """End to end over the grid: deviation in the sum's units = multiplier * sensitivity, z-test at 5.5."""
        grid = vector_grid(1.98, 45_211, coordinates, Adjacency.REPLACE_ONE, diameter)
        drawn = noise_vector(SimulationGenerator(22), grid.parameter(3.0), DRAWS) * grid.step
        assert 3.0 * moved < 3.0 * grid.sensitivity * grid.step < 3.0 * moved * 1.002
        ratio = (drawn**2).mean() / (3.0 * grid.sensitivity * grid.step) ** 2
        assert abs(ratio - 1) / sqrt(2 / DRAWS) < MOST_Z


def mirrored(generator: SimulationGenerator, dimension: int) -> NDArray[np.int64]:
    return noise_symmetric(generator, SIGMA, dimension)


def averaged(generator: SimulationGenerator, dimension: int) -> NDArray[np.int64]:
    """Plant the bug: a full matrix of noise averaged with its transpose."""
    full = noise_vector(generator, SIGMA, dimension**2).reshape(dimension, dimension)
    return (full + full.T) // 2


def orthogonal_ensemble(generator: SimulationGenerator, dimension: int) -> NDArray[np.int64]:
    """Plant the bug: variance two on the diagonal."""
    matrix = noise_symmetric(generator, SIGMA, dimension)
    matrix[np.diag_indices(dimension)] = noise_vector(generator, sqrt(2) * SIGMA, dimension)
    return matrix


def factor_one(generator: SimulationGenerator, dimension: int) -> NDArray[np.int64]:
    """Plant the bug: the zero-out constant under replace-one."""
    proper, planted = (
        matrix_grid(1.0, 1000, dimension, adjacency).sensitivity
        for adjacency in (Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)
    )
    return noise_symmetric(generator, SIGMA * planted / proper, dimension)


def matrix_passes(matrices: list[NDArray[np.int64]]) -> bool:
    """Judge the diagonal and what lies above it apart, and symmetry to the bit."""
    above = np.triu_indices(matrices[0].shape[0], 1)
    return (
        all(np.array_equal(matrix, matrix.T) for matrix in matrices)
        and judge(np.concatenate([np.diagonal(matrix) for matrix in matrices]), SIGMA).passes()
        and judge(np.concatenate([matrix[above] for matrix in matrices]), SIGMA).passes()
    )


class TestMatrices:
    def test_the_noise_passes(self) -> None:
        generator = SimulationGenerator(23)
        assert matrix_passes([mirrored(generator, 40) for _ in range(500)])

    @pytest.mark.parametrize("planted", [averaged, orthogonal_ensemble, factor_one])
    def test_a_planted_bug_fails(self, planted: Noise) -> None:
        generator = SimulationGenerator(23)
        assert not matrix_passes([planted(generator, 40) for _ in range(500)])

    def test_asymmetric_noise_fails(self) -> None:
        full = noise_vector(SimulationGenerator(24), SIGMA, 1600).reshape(40, 40)
        assert not matrix_passes([full])


class TestProcesses:
    @pytest.mark.statistical
    def test_fresh_processes_draw_independent_noise(self) -> None:
        """False alarm 7e-7: two judgements of 3e-7, and 7.6e-8 for their independence."""
        command = [sys.executable, "-c", PROCESS]
        one, other = (
            np.frombuffer(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout, dtype=np.int64)
            for _ in range(2)
        )
        assert judge(one, SIGMA).passes()
        assert judge(other, SIGMA).passes()
        assert independent(one, other, SIGMA)

    def test_shared_and_half_shared_noise_is_seen(self) -> None:
        one, other = (noise_vector(SimulationGenerator(seed), SIGMA, 100_000) for seed in (25, 26))
        assert independent(one, other, SIGMA)
        assert not independent(one, one, SIGMA)
        assert not independent(one, -one, SIGMA)
        assert not independent(one, np.rint((one + 9 * other) / sqrt(82)).astype(np.int64), SIGMA)
