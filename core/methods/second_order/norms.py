"""Bound on a gradient's norm from one noised answer of it: no round, no curvature and no constant of smoothness.

Let g be the population's mean gradient at a fixed point, its ridge's included, and h that of the n units that are read.
Let s be the noise on the answered norm, A = |h| + s Z, and r half of the largest distance between two units' gradients.
No record decides the direction u of g. Along it |h| >= u.h, and u.h is |g| plus the mean of n independent numbers of
mean 0 that lie within a length of 2 r. That mean is sub-Gaussian with variance r^2/n (Hoeffding's lemma). -s Z is
sub-Gaussian with s^2, and both together with the sum. Hence, whatever the dimension,

    |g| <= max(0, A) + sqrt(2 ln(1/omega) (s^2 + r^2/n))    with probability 1 - omega at least.

r is the clip, half of the gradients' diameter where less is known of it, or the declared spread around the mean.

Of m sites the answer is the mean of their gradients, a = h + s Z in d entries, s the noise on each. The mean of their
norms may be long where the mean gradient is 0. The variance r^2/n is then at most r^2/(m n), n the units of the
smallest site. Across h, noise is chi-square of k = d - 1 degrees, whatever it is along h. Except with probability
omega/10 it is at least q, where q = k - 2 sqrt(k ln(10/omega)) (Laurent and Massart, lemma 1). Hence A is
sqrt(max(0, |a|^2 - s^2 max(0, q))), and .9 omega is left for the rest.

Level: the chance of a claim that is not true is omega at most. Power: the norm of a mean of n units is about sqrt(|g|^2
+ v/n) with v the variance of units' gradients. At a point where g is 0 the answer is therefore about sqrt(v/n) more
than the tolerance.

Source: [derived] ours. Of one dataset the norm, and not the gradient, is asked for: both have one sensitivity, and the
noise of one number does not grow with the dimension. Laurent and Massart (2000), Adaptive estimation of a quadratic
functional by model selection.
"""

from dataclasses import dataclass
from math import ceil, log, sqrt

from core.inference.error_bound import ErrorBound, NoisedNorm
from core.privacy.facts import Facts, Frozen

POPULATION = "units are independent draws of one population, whose mean gradient it is about"
POPULATIONS = "each site's units are independent draws of one population; it is about the mean of their mean gradients"
SPREAD = "no unit's gradient is farther from the mean than the spread that was declared"
APART = "the model was made without the units that were read here"


ACROSS = 0.1
"""Part of omega that is for the noise across the gradient, where the whole gradient is answered."""


class Tolerance(Frozen):
    """Amount added to a noised norm, and its inputs; all of it public."""

    reach: float
    """r, in encoded units, as a length."""
    units: int
    """n, of the client with fewest."""
    clients: int
    """m."""
    failure: float
    """omega."""
    entries: int = 1
    """d of the answered gradient; 1 where the norm is answered."""

    @property
    def depth(self) -> float:
        """2 ln(1/omega), of .9 omega where some of it is for the noise across."""
        return 2 * log(1 / (self.failure if self.entries == 1 else (1 - ACROSS) * self.failure))

    @property
    def across(self) -> float:
        """Lower bound of the squared noise across the gradient, in squares of the noise on an entry."""
        degrees = self.entries - 1
        return max(0.0, degrees - 2 * sqrt(degrees * log(1 / (ACROSS * self.failure))))

    def left(self, length: float, noise: float) -> float:
        """Return the answer less the noise across: A, or 0."""
        if self.entries == 1:
            return max(0.0, length)
        return sqrt(max(0.0, length**2 - noise**2 * self.across))

    def at(self, noise: float) -> float:
        """Return the tolerance for a noise s on the answered norm."""
        return sqrt(self.depth * (noise**2 + self.reach**2 / (self.clients * self.units)))

    def units_below(self, limit: float, noise: float) -> int:
        """Return about how many units bring it below a limit, for a noise that falls as 1/n from what it is here.

        With x = 1/n it is a x^2 + b x = limit^2/depth, solved for x.
        """
        a, b, c = (noise * self.units) ** 2, self.reach**2 / self.clients, limit**2 / self.depth
        return ceil((b + sqrt(b * b + 4 * a * c)) / (2 * c))


def parameters_of(facts: Facts) -> str:
    """Return what the gradient is a gradient in."""
    if facts.clips_alone:
        return "trained parameters"
    return "coefficients" if facts.scale is None else "coefficients and scale"


@dataclass(frozen=True)
class ReceivedNorm:
    """Noised answer about a point's gradient, and its public facts."""

    norm: float
    """The noised norm, or that of the noised gradient, encoded units."""
    noise: float
    """The standard deviation of the noise on it, or on each entry of that gradient."""
    clip: float
    """To which units' gradients are shortened."""
    penalty: float
    """The length of the ridge's gradient there."""


def claim(facts: Facts, tolerance: Tolerance, received: ReceivedNorm, *, declared: bool) -> ErrorBound:
    """Return what is claimed of a point's gradient.

    Args:
        facts: public.
        tolerance: the amount added to the norm.
        received: of the point.
        declared: whether the reach is the spread that somebody declared.
    """
    added, clip = tolerance.at(received.noise), received.clip
    shortened = f"gradients longer than {clip:.6g} are shortened to it: it is about the loss's own where none is"
    return ErrorBound(
        ended_by="answered",
        quantity="gradient_norm",
        value=tolerance.left(received.norm, received.noise) + added,
        confidence=1 - tolerance.failure,
        conditions=(POPULATION if tolerance.clients == 1 else POPULATIONS, *[SPREAD] * declared, shortened, APART),
        variant="gradient",
        untrained=clip + received.penalty,
        norm=NoisedNorm(
            of=parameters_of(facts),
            told=received.norm,
            noise=received.noise,
            left=tolerance.left(received.norm, received.noise),
            tolerance=added,
            trivial=clip + received.penalty,
            failure=tolerance.failure,
        ),
    )
