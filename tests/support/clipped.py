"""Material to test the theory of clipped descent: golden cases and random problems."""

from dataclasses import dataclass, replace
from math import exp, log

import numpy as np

from core.methods.clipped.one_pass.guarantee import Guarantee, Run

CAPS = ("variance", "bias", "noise_drift", "travel", "jump", "noise_length")
"""gamma1 to gamma6."""


@dataclass(frozen=True)
class Problem:
    """L, R or Delta, and a run."""

    smoothness: float
    size: float
    run: Run


def problem(smoothness: float, size: float, *run: float) -> Problem:
    """Write a problem in the order of the golden tables: alpha, sigma, clip, steps, beta, dimension, noise."""
    alpha, sigma, clip, steps, beta, dimension, noise = run
    return Problem(smoothness, size, Run(alpha, sigma, clip, int(steps), beta, int(dimension), noise))


GOLDEN = {
    "C1": problem(1, 1, 1.5, 0.1, 4, 10_000, 0.05, 10, 0.01),
    "C2": problem(1, 1, 2, 0.01, 4, 1_000_000, 0.05, 10, 0),
    "C3": problem(2, 3, 1.2, 0.5, 10, 1000, 0.01, 100, 0.2),
    "C4": problem(1, 1, 1.5, 0, 4, 1000, 0.05, 1, 0),
    "N1": problem(1, 1, 1.5, 0.1, 4, 10_000, 0.05, 10, 0.01),
    "N2": problem(2, 3, 1.2, 0.5, 5, 1000, 0.01, 100, 0.2),
    "N3": problem(2, 3, 1.2, 0.5, 12, 1000, 0.01, 100, 0.2),
}


def draws(count: int, seed: int = 20261121) -> list[Problem]:
    """Return random problems, spread over many decades; K = 0 is among them."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        smoothness, size, sigma, noise = (exp(random.uniform(-9, 9)) for _ in range(4))
        found.append(
            problem(
                smoothness,
                size,
                random.uniform(1.01, 2.0),
                0.0 if random.uniform() < 0.05 else sigma,
                smoothness * size * exp(random.uniform(-6, 9)),
                int(exp(random.uniform(0, 16))) - 1,
                exp(random.uniform(-12, 0)),
                int(exp(random.uniform(0, 14))),
                0.0 if random.uniform() < 0.1 else noise,
            )
        )
    return found


def scaled(given: Problem, *, height: float, length: float, convex: bool) -> Problem:
    """Return the problem of height f(x/length), whose bound is height (or (height/length)^2) times as large."""
    run, steep = given.run, height / length
    return Problem(
        given.smoothness * height / length**2,
        given.size * (length if convex else height),
        replace(run, sigma=run.sigma * steep, clip=run.clip * steep, noise=run.noise * steep),
    )


def off_by(found: float, wanted: float) -> float:
    """Return how far apart two positive figures are, as a logarithm."""
    return abs(log(found / wanted))


def by_printed_caps(found: Guarantee) -> tuple[float, ...]:
    """Return gamma1 to gamma6."""
    return tuple(found.caps[name] for name in CAPS)
