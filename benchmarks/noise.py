"""Noise samples per second on one core: ``python -m benchmarks.noise``. Float generators stand by, as no substitute.

Exits with status 1 when a width falls below the target of one million samples a second.
"""

import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter, process_time

import numpy as np
import torch

from core.mechanisms.gaussian import DiscreteGaussian, noise_symmetric, noise_vector
from core.mechanisms.generator import SystemGenerator

SIGMAS = (1e3, 5e6, 1e9)
SAMPLES = 2_000_000
ROUNDS = 5
TARGET = 1e6


def rate(draw: Callable[[], object], samples: int = SAMPLES) -> float:
    """Return samples per second of processor time, the median of ROUNDS after one warm-up."""
    draw()
    seconds = []
    for _ in range(ROUNDS):
        start = process_time()
        draw()
        seconds.append(process_time() - start)
    return samples / median(seconds)


def making_milliseconds(sigma: float) -> float:
    """Return the time to make a law, before its first draw."""
    start = perf_counter()
    DiscreteGaussian(sigma)
    return 1e3 * (perf_counter() - start)


def main() -> int:
    """Print the table; return the exit status."""
    torch.set_num_threads(1)
    generator, floats = SystemGenerator(), np.random.default_rng(1)
    torch_rate = rate(lambda: torch.randn(SAMPLES, dtype=torch.float64))
    numpy_rate = rate(lambda: floats.standard_normal(SAMPLES))
    print(f"float references (unsafe): torch.randn {torch_rate / 1e6:.1f} M/s, numpy {numpy_rate / 1e6:.1f} M/s")
    print(f"{'sigma':>8} {'make ms':>8} {'M/s':>7} {'/ torch':>8} {'/ numpy':>8}")
    slowest = np.inf
    for sigma in SIGMAS:
        ours = rate(partial(noise_vector, generator, sigma, SAMPLES))
        slowest = min(slowest, ours)
        print(
            f"{sigma:8.0e} {making_milliseconds(sigma):8.1f} {ours / 1e6:7.1f} "
            f"{ours / torch_rate:8.2f} {ours / numpy_rate:8.2f}"
        )
    dimension = 1000
    matrix = rate(lambda: noise_symmetric(generator, 5e6, dimension), dimension * (dimension + 1) // 2)
    print(f"symmetric {dimension} x {dimension} at 5e+06: {matrix / 1e6:.1f} M independent entries/s")
    print(f"slowest {slowest / 1e6:.1f} M/s, target {TARGET / 1e6:.0f} M/s: {'met' if slowest >= TARGET else 'MISSED'}")
    return int(slowest < TARGET)


if __name__ == "__main__":
    sys.exit(main())
