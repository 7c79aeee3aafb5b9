"""Inputs and outputs of a theorem about clipped descent.

Its letters: `alpha` is the order of the moment that bounds the gradients' noise (not a Renyi order). `sigma` is that
moment's root (not a noise multiplier). `noise` is the standard deviation of the privacy noise on each coordinate of a
batch's MEAN gradient (the paper's sigma_omega). `beta` is the probability that the claim fails.

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov, Differentially private Clipped-SGD: high-probability
convergence with arbitrary clipping level (preprint), which is about one sample in each step.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from math import inf, log, sqrt
from typing import Final

from core.privacy.facts import Frozen

CAPS: Final = {
    "smoothness": "the step that descent on a smooth function may take at all (gamma0)",
    "variance": "the spread of clipped gradients (gamma1)",
    "bias": "the shift of the mean gradient by clipping (gamma2)",
    "noise_drift": "the distance that privacy's noise may carry the iterates (gamma3)",
    "travel": "the length of one step (gamma4)",
    "jump": "the largest single clipped gradient (gamma5)",
    "jump_squared": "the same, squared and summed; of the refined certificate alone",
    "noise_length": "the total length of privacy's noise: where the dimension counts (gamma6)",
}
"""Upper limits of the step size, by name."""


@dataclass(frozen=True)
class Run:
    """The public figures of a run, problem apart.

    Attributes:
        alpha: order of the moment, in (1, 2].
        sigma: E |grad f_xi(x) - grad f(x)|^alpha is at most sigma^alpha; 0 and above.
        clip: lambda, the l2 norm that each record's gradient is clipped to.
        steps: K, noised updates; the iterates are x^0 to x^K.
        beta: in (0, 1].
        dimension: d.
        noise: standard deviation on each coordinate of the mean gradient; 0 and above.
        batch: b records in each step, drawn as one batch of fixed size.
    """

    alpha: float
    sigma: float
    clip: float
    steps: int
    beta: float
    dimension: int
    noise: float
    batch: int = 1

    @property
    def iterates(self) -> int:
        """N = K + 1, x^0 included."""
        return self.steps + 1

    @cached_property
    def l8(self) -> float:
        """Return log(8 N/beta)."""
        return log(8 * self.iterates / self.beta)

    @cached_property
    def l4(self) -> float:
        """Return log(4 N/beta)."""
        return log(4 * self.iterates / self.beta)

    @property
    def c(self) -> float:
        """Return 2^(2 alpha - 1), of the paper's lemma B.1."""
        return power(2.0, 2 * self.alpha - 1)

    @cached_property
    def squared_noise(self) -> float:
        """Upper bound of |sum of squared noise vectors| over noise^2: N d + 2 sqrt(N d l4) + 2 l4."""
        total = self.iterates * self.dimension
        return total + 2 * sqrt(total * self.l4) + 2 * self.l4


class Guarantee(Frozen):
    """The largest step size that a theorem allows, and what it promises of a run with it.

    `quantity` is `excess_risk` (f - f*) or `squared_gradient` (|grad f|^2).
    """

    theorem: str
    source: str
    quantity: str
    certified_for: str
    confidence: float
    iterates: int
    caps: dict[str, float]
    """Step sizes by the names of `CAPS`; infinite where there is nothing to limit."""
    bias: float
    """Largest bias of the clipped gradient's mean."""
    trivial: float
    """The value that the untrained start satisfies."""
    leading: float
    second: float

    @cached_property
    def active_cap(self) -> str:
        """The name of the smallest cap."""
        return min(self.caps, key=lambda name: self.caps[name])

    @property
    def step_size(self) -> float:
        """The smallest cap."""
        return self.caps[self.active_cap]

    @property
    def bound(self) -> float:
        """The promised value at that step size."""
        return self.bound_at(self.step_size)

    @property
    def vacuous(self) -> bool:
        """Whether the untrained start satisfies as much."""
        return self.bound >= self.trivial

    def at(self, step_size: float) -> float | None:
        """Return what is promised of a run with another step size; None: it is larger than the theorem allows."""
        return self.bound_at(step_size) if step_size <= self.step_size else None

    def bound_at(self, step_size: float) -> float:
        """Return leading/(gamma N) + second/(gamma N)^2, allowed or not."""
        travelled = step_size * self.iterates
        inverse = inf if travelled == 0 else 1 / travelled
        # Zero times infinity is nan: a second term that is missing must stay 0.
        return self.leading * inverse + (self.second * inverse * inverse if self.second else 0.0)


def power(base: float, exponent: float) -> float:
    """Return a power of what is not negative: a float, where the operator may return a complex number."""
    return math.pow(base, exponent)


def over(numerator: float, denominator: float) -> float:
    """Return a quotient; infinite where there is nothing to divide by."""
    return inf if denominator == 0 else numerator / denominator
