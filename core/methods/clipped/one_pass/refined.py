"""Certificates of ours for what is released: the average iterate, from the theorems' argument with less given away.

They follow the proofs of theorems 4.1 and 4.4 and are not in the paper; nothing here may be called its theorem.
Differences from print: The average runs over x^0 to x^K, by Jensen's inequality on the theorem's event. This halves the
leading term, removes the second one, and gives an output that may be released. A batch of fixed size divides the
variance. The noise's inner products carry no dimension. The event has the tighter radius sqrt(2) R, and the lemma its
tight forms. Without convexity the neighbourhood is in the bias squared, by Young's inequality. The printed event about
one step's length has an uncharged probability; where f is smooth on all of space it is not needed.

Batches are of fixed size, or drawn without replacement: Poisson samples have no bounded jump and are not covered.

Source: ours, after Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint), theorems 4.1 and 4.4.
"""

from math import sqrt

from core.methods.clipped.one_pass.guarantee import Guarantee, Run, over
from core.methods.clipped.one_pass.lemma import bias_bound, variance_bound

CLOSE = 1 - 1e-12
"""A clip that was computed as four times the slope is not refused for its last bit."""
OURS = "refined certificate of Farthing, after Vatan Khah et al. (preprint)"


def refined_convex(smoothness: float, distance: float, run: Run) -> Guarantee:
    """Return what is certified of the average iterate of an L-smooth convex f, and of the mean excess risk.

    With the same probability all iterates stay within sqrt(2) R of the minimiser. The bound is stretched below
    lam = 2 sqrt(2) L R and means little there.

    Args:
        smoothness: L, of f on the ball of radius 2 R round the minimiser.
        distance: R, at least the start's distance from it.
        run: the rest; its batches have a fixed size.
    """
    L, R, lam, N = smoothness, distance, run.clip, run.iterates
    largest = sqrt(2) * L * R
    bias = bias_bound(largest, run.alpha, run.sigma, lam, tight=True)
    variance = variance_bound(largest, run.alpha, run.sigma, lam, tight=True) / run.batch
    caps = {
        "smoothness": 1 / (8 * L),
        "jump": R / (28 * sqrt(2) * lam * run.l8),
        "jump_squared": R / (lam * sqrt(112 * run.l8)),
        "variance": over(R, sqrt(2352 * variance * N * run.l8)),
        "bias": over(R, 14 * sqrt(2) * N * bias),
        "noise_drift": over(R, 28 * run.noise * sqrt(N * run.l8)),
        "noise_length": over(R, 2 * run.noise * sqrt(7 * run.squared_noise)),
    }
    return Guarantee(
        theorem="refined_convex",
        source=f"{OURS}, theorem 4.1",
        quantity="excess_risk",
        certified_for="the average of all iterates, the start included",
        confidence=1 - run.beta,
        iterates=N,
        caps=caps,
        bias=bias,
        trivial=L * R**2 / 2,
        leading=max(1.0, 2 * sqrt(2) * L * R / lam) * 2 * R**2,
        second=0.0,
    )


def refined_nonconvex(smoothness: float, gap: float, run: Run) -> Guarantee | None:
    """Return what is certified of the mean squared gradient norm over all iterates; None for clips below 4 S.

    S = sqrt(L Delta). An iterate picked uniformly, without a look at the records, has at most 1/p times as much, but
    for a further probability p.

    Args:
        smoothness: L, of f on all of space.
        gap: Delta, at least the start's excess risk.
        run: the rest; its batches have a fixed size.
    """
    L, lam, N = smoothness, run.clip, run.iterates
    slope = sqrt(L * gap)
    if lam < 4 * slope * CLOSE:
        return None
    # The clip is at least 4 S and slopes at most 2 S, hence the lemma's z is 0.
    clipped = min(1.0, run.c * run.sigma**run.alpha / lam**run.alpha)
    bias = min(run.sigma * clipped ** ((run.alpha - 1) / run.alpha) + 2 * slope * clipped, 1.5 * lam)
    variance = min(9 / 4 * (run.c + 1) * lam ** (2 - run.alpha) * run.sigma**run.alpha, lam**2) / run.batch
    caps = {
        "smoothness": 1 / (8 * L),
        "jump": gap / (28 * lam * slope * run.l8),
        "jump_squared": sqrt(gap / (112 * L * run.l8)) / lam,
        "variance": over(gap, slope * sqrt(1176 * variance * N * run.l8)),
        "bias": over(2 * gap, 21 * N * bias**2),
        "noise_drift": over(gap, 14 * sqrt(2) * slope * run.noise * sqrt(N * run.l8)),
        "noise_length": over(sqrt(gap / L), run.noise * sqrt(7 * run.squared_noise)),
    }
    return Guarantee(
        theorem="refined_nonconvex",
        source=f"{OURS}, theorem 4.4",
        quantity="squared_gradient",
        certified_for="the mean over all iterates, so also one picked uniformly without the records, in the mean",
        confidence=1 - run.beta,
        iterates=N,
        caps=caps,
        bias=bias,
        trivial=2 * L * gap,
        leading=4 * gap,
        second=0.0,
    )
