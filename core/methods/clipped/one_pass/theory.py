"""The two theorems about DP-Clipped-SGD at any clipping level, with the constants of their proofs.

`paper_convex` bounds the excess risk of the best iterate, `paper_nonconvex` its squared gradient norm, with probability
at least 1 - beta. The step sizes are those of the appendix; the formulas that the main text prints lack a factor sigma
and a cap. The best iterate is nothing that may be released: to know it takes the records. `refined` bounds the average.

The paper is about one sample in each step. A larger batch of fixed size divides the variance bound by it and changes
nothing else; that extension is ours, and so says `source`.

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint), theorem 4.1 with (45) to (51) and theorem 4.4
with (174) to (180).
"""

from math import log, sqrt

from core.methods.clipped.one_pass.guarantee import Guarantee, Run, over, power
from core.methods.clipped.one_pass.lemma import worst_bias, worst_moment

PAPER = "Vatan Khah et al. (preprint)"


def paper_convex(smoothness: float, distance: float, run: Run) -> Guarantee:
    """Return theorem 4.1 for an L-smooth convex f.

    The iterates stay within sqrt(2) R of the minimiser too, with the same probability.

    Args:
        smoothness: L, of f on the ball of radius 2 R round the minimiser.
        distance: R, at least the start's distance from it.
        run: the rest.
    """
    L, R, lam, N = smoothness, distance, run.clip, run.iterates
    largest = 2 * L * R
    moment = worst_moment(largest, run)
    bias = worst_bias(largest, run)
    caps = {
        "smoothness": 1 / (8 * L),
        "variance": sqrt(run.batch) * over(R, 42 * _spread(run, moment)),
        "bias": over(R, 28 * N * bias),
        "noise_drift": over(R, 56 * _drift(run)),
        "travel": (2 - sqrt(2)) * R / _travel(run),
        "jump": R / (56 * lam * run.l8),
        "noise_length": over(R, 2 * run.noise * sqrt(7 * run.squared_noise)),
    }
    return Guarantee(
        theorem="paper_convex",
        source=_source("theorem 4.1", run),
        quantity="excess_risk",
        certified_for="the best iterate, which is not released: to know it takes the records",
        confidence=1 - run.beta,
        iterates=N,
        caps=caps,
        bias=bias,
        trivial=L * R**2 / 2,
        leading=4 * R**2,
        second=64 * L * R**4 / lam**2,
    )


def paper_nonconvex(smoothness: float, gap: float, run: Run) -> Guarantee:
    """Return theorem 4.4 for an L-smooth f, convex or not.

    The iterates also keep f - f* below 2 Delta, with the same probability. The constant of `noise_drift` is the printed
    one: the printed argument would need twice as much, a direct one for a normal sum does with it.

    Args:
        smoothness: L, of f on all of space.
        gap: Delta, at least the start's excess risk.
        run: the rest.
    """
    L, lam, N = smoothness, run.clip, run.iterates
    slope, radius = sqrt(L * gap), sqrt(gap / L)
    largest = 2 * slope
    moment = worst_moment(largest, run)
    bias = worst_bias(largest, run)
    caps = {
        "smoothness": 1 / (4 * L),
        "variance": sqrt(run.batch) * over(radius, 21 * _spread(run, moment)),
        "bias": over(radius, 14 * N * bias),
        "noise_drift": over(radius, 14 * _drift(run)),
        "travel": radius / (20 * _travel(run)),
        "jump": radius / (28 * lam * run.l8),
        "noise_length": over(radius, run.noise * sqrt(7 * run.squared_noise)),
    }
    return Guarantee(
        theorem="paper_nonconvex",
        source=_source("theorem 4.4", run),
        quantity="squared_gradient",
        certified_for="the best iterate, which is not released: to know it takes the records",
        confidence=1 - run.beta,
        iterates=N,
        caps=caps,
        bias=bias,
        trivial=2 * L * gap,
        leading=8 * gap,
        second=128 * gap**2 / lam**2,
    )


def jump_is_free(largest: float, run: Run) -> bool:
    """Return whether the jump cap is above the variance cap, so that it may be dropped; for one sample in each step.

    lambda^alpha is at most 3.375 (c + 1) (sigma^alpha + zeta^alpha) N/log(8 N/beta): the exact form of what the paper's
    corollaries C.3 and F.3 ask for in orders, without a factor sigma.

    Args:
        largest: 2 L R, or 2 sqrt(L Delta).
        run: the rest.
    """
    return power(run.clip, run.alpha) <= 3.375 * (run.c + 1) * worst_moment(largest, run) * run.iterates / run.l8


def _spread(run: Run, moment: float) -> float:
    """Return sqrt(c + 1) lambda^(1 - alpha/2) sqrt(6 N l8 A)."""
    return sqrt(run.c + 1) * power(run.clip, 1 - run.alpha / 2) * sqrt(6 * run.iterates * run.l8 * moment)


def _drift(run: Run) -> float:
    """Return noise sqrt(2 d N) (1 + sqrt(3 l4))."""
    return run.noise * sqrt(run.dimension * run.iterates) * sqrt(2) * (1 + sqrt(3 * run.l4))


def _travel(run: Run) -> float:
    """Return what a step moves by, over its size: lambda + noise (sqrt(d) + sqrt(2 log(N/beta)))."""
    return run.clip + run.noise * (sqrt(run.dimension) + sqrt(2 * log(run.iterates / run.beta)))


def _source(theorem: str, run: Run) -> str:
    """Return where it is from, and what is ours in it."""
    extended = "" if run.batch == 1 else ", its variance divided by the batch (extension (b), ours)"
    return f"{PAPER}, {theorem}{extended}"
