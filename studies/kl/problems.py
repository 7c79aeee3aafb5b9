"""Problems whose constants under the KL condition are known, and those constants with where they come from.

A constant is a promise about every unit (Lipschitz, smoothness) or about the mean loss (the others), on a region that
is named with it; none of them is measured on the records.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), sections 2 and 3; each function derives its own.
"""

from math import exp, inf, log, pi, sqrt

from pydantic import Field

from core.methods.kl.condition import KlCondition
from core.privacy.facts import Adjacency, Facts, Frozen


class Constants(Frozen):
    """Constants of a problem that are known before any record of it is read."""

    lipschitz: float = Field(gt=0, description="L0: no unit's gradient is longer")
    smoothness: float | None = Field(description="L1, a unit's; null: its gradient jumps")
    weak_convexity: float = Field(ge=0, description="Lt, a unit's: loss + (Lt/2)|w|^2 is convex; 0: convex")
    gamma: float | None = Field(gt=0, description="null: no condition is known")
    kappa: float | None = Field(ge=1, description="null with gamma")
    start_gap: float = Field(gt=0, description="F0: the mean loss at the start is at most so far above its least")
    region: str = Field(description="where they hold")

    @property
    def condition(self) -> KlCondition:
        """The KL condition; there has to be one."""
        assert self.gamma is not None, "no condition is known of this problem"
        assert self.kappa is not None, "no condition is known of this problem"
        return KlCondition(gamma=self.gamma, kappa=self.kappa)

    def facts(self, units: int, dimension: int, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> Facts:
        """Return the facts that an oracle receives about a number of units of such a problem."""
        return Facts(
            units=units,
            dimension=dimension,
            adjacency=adjacency,
            gradient_bound=self.lipschitz,
            smoothness=self.smoothness,
            weak_convexity=self.weak_convexity,
            start_gap=self.start_gap,
        )


def power(
    exponent: float, *, coefficient: float = 1.0, radius: float = 1.0, distance: float = 1.0, steepness: float = 1.0
) -> Constants:
    """Return the constants of a |w - m|^p, continued linearly beyond a radius, for a start so far from m.

    With r = |w - m| <= R the gradient has norm a p r^(p-1), so a r^p = (a p r^(p-1))^kappa / (p a^(1/p))^kappa for
    kappa = p/(p-1): the condition holds with equality, gamma = 1/(p a^(1/p)). The gradient is longest at R; its
    derivative has eigenvalues a p r^(p-2) across and a p (p-1) r^(p-2) along the radius, largest at R for p >= 2 and
    unbounded for p < 2. Convex for p >= 1.

    Args:
        exponent: p > 1.
        coefficient: a.
        radius: R, of the ball where the loss is the power itself.
        distance: of the start from m, at most R.
        steepness: at least 1; on one side of a line the loss is so many times steeper (one dimension only). The
            gentle side decides gamma, the steep one L0 and L1.
    """
    assert exponent > 1, "at p = 1 the condition has no finite exponent"
    assert 0 < distance <= radius, "the start is inside the radius"
    assert steepness >= 1, "the gentle side comes first"
    a, p = coefficient, exponent
    return Constants(
        lipschitz=steepness * a * p * exp((p - 1) * log(radius)),
        smoothness=steepness * a * p * max(1.0, p - 1) * exp((p - 2) * log(radius)) if p >= 2 else None,  # noqa: PLR2004 - see above
        weak_convexity=0.0,
        gamma=1 / (p * exp(log(a) / p)),
        kappa=p / (p - 1),
        start_gap=a * exp(p * log(distance)),
        region=f"within {radius:g} of the minimiser for the condition, everywhere for the bounds",
    )


def least_squares(
    eigenvalue: float, *, label_bound: float, radius: float, row_bound: float = 1.0, start_gap: float | None = None
) -> Constants:
    """Return the constants of (x.w - y)^2/2 for |x| <= row_bound, |y| <= label_bound, |w| <= radius, started at zero.

    A unit's gradient is (x.w - y) x and its Hessian x x^T. With G = X^T X/n the mean loss is a quadratic. On the range
    of G, where all gradients lie, |G v|^2 >= lambda v.G v for lambda, its smallest eigenvalue that is not zero. This is
    PL with gamma = 1/sqrt(2 lambda), strongly convex or not. At zero the loss is at most label_bound^2/2.

    Args:
        eigenvalue: a public lower bound on the smallest eigenvalue of G that is not zero.
        label_bound: of |y|.
        radius: of |w|.
        row_bound: of |x|.
        start_gap: where less is known than label_bound^2/2.

    Raises:
        ValueError: the eigenvalue is zero, as the smallest of all is where there are more columns than rows; it is the
            smallest one that is *not* zero that counts.
    """
    if not 0 < eigenvalue < inf:
        raise ValueError("the smallest eigenvalue that is not zero, a positive number; zero bounds nothing")
    return Constants(
        lipschitz=row_bound * (row_bound * radius + label_bound),
        smoothness=row_bound**2,
        weak_convexity=0.0,
        gamma=1 / sqrt(2 * eigenvalue),
        kappa=2.0,
        start_gap=label_bound**2 / 2 if start_gap is None else start_gap,
        region=f"|w| <= {radius:g}",
    )


def strongly_convex(
    modulus: float, *, lipschitz: float, smoothness: float | None, start_gap: float, region: str
) -> Constants:
    """Return the constants of a convex loss with a ridge (or any strongly convex one): PL, gamma = 1/sqrt(2 modulus).

    Convexity gives F - F* <= g.v - (m/2)|v|^2 for v the way to the minimiser, at most |g|^2/(2 m) whatever v is.

    Args:
        modulus: m.
        lipschitz: L0 of a unit's loss, without the ridge.
        smoothness: L1 of a unit's loss, without the ridge.
        start_gap: F0.
        region: where they hold.
    """
    condition = KlCondition.strongly_convex(modulus)
    return Constants(
        lipschitz=lipschitz,
        smoothness=smoothness,
        weak_convexity=0.0,
        gamma=condition.gamma,
        kappa=condition.kappa,
        start_gap=start_gap,
        region=region,
    )


def monotone_link(
    eigenvalue: float,
    *,
    gentlest: float,
    steepest: float,
    bend: float,
    apart: float,
    label_bound: float,
    row_bound: float = 1.0,
) -> Constants:
    """Return the constants of (s(x.w) - s(x.w*))^2/2 with a monotone link s and s(0) = 0, started at zero.

    With a <= s' <= b and residuals r = s(u) - s(u*), which lie between a and b times u - u*:

    * a unit's gradient r s' x is at most b^2 |x|^2 |w - w*| long;
    * its Hessian (s'^2 + r s'') x x^T is at most b^2 + b |x| |w - w*| sup|s''|, and at least the negative of the second
      term, times |x|^2: not convex;
    * along v = w - w*, v.grad F = mean r s' (u - u*) >= a^2 v.G v for G = X^T X/n, while F <= b^2/2 v.G v and
      v.G v >= lambda |v|^2. Therefore |grad F| >= a^2 sqrt(lambda v.G v): PL with gamma^2 = b^2/(2 a^4 lambda), very
      loose. And a step along the gradient comes closer to w*, so nearness to w* lasts.

    Args:
        eigenvalue: lambda, a public lower bound on the least eigenvalue of G.
        gentlest: a > 0.
        steepest: b.
        bend: sup |s''|.
        apart: most of |w - w*|, at least |w*| where methods start at zero.
        label_bound: of |s(u*)|.
        row_bound: of |x|.
    """
    assert 0 < gentlest <= steepest, "the link rises everywhere"
    down = steepest * row_bound * apart * bend * row_bound**2
    return Constants(
        lipschitz=steepest**2 * row_bound**2 * apart,
        smoothness=steepest**2 * row_bound**2 + down,
        weak_convexity=down,
        gamma=steepest / (gentlest**2 * sqrt(2 * eigenvalue)),
        kappa=2.0,
        start_gap=label_bound**2 / 2,
        region=f"|w - w*| <= {apart:g}",
    )


def phase_retrieval(
    dimension: int, *, signal: float = 1.0, within: float = 0.2, slack: float = 0.5, row_bound: float | None = None
) -> Constants:
    """Return the constants of ((x.w)^2 - (x.w*)^2)^2/4 near w*, for rows that fill a sphere of radius sqrt(d).

    With u = x.w, |x| <= A and |w|, |w*| bounded, the gradient is (u^2 - u*^2) u x and the Hessian (3 u^2 - u*^2) x x^T,
    whose negative part is at most A^4 |w*|^2. Over the sphere E (x.v)^2 (x.w)^2 = (|w|^2 |v|^2 + 2 (v.w)^2) d/(d + 2).
    At w = w* + e with |e| <= c|w*| the mean Hessian is therefore at least (3 (1 - c)^2 - 1 - 3 c^2) = 2 - 6 c times
    |w*|^2 d/(d + 2). This is the least of 3 |w|^2 + 6 (v.w)^2 - |w*|^2 - 2 (v.w*)^2 over the directions of v. For c <
    1/3 the mean loss is strongly convex there, and PL. At zero it has a saddle, where no condition holds.

    Args:
        dimension: d.
        signal: |w*|.
        within: c, how far from w* (or -w*), relative to its length.
        slack: the share of the modulus that a sample is trusted to have.
        row_bound: A, default sqrt(d).
    """
    assert 0 < within < 1 / 3, "beyond a third of its length it is not convex"
    longest, radius = sqrt(dimension) if row_bound is None else row_bound, signal * (1 + within)
    modulus = slack * (2 - 6 * within) * signal**2 * dimension / (dimension + 2)
    return Constants(
        lipschitz=longest**4 * radius**3,
        smoothness=longest**4 * (3 * radius**2),
        weak_convexity=longest**4 * signal**2,
        gamma=1 / sqrt(2 * modulus),
        kappa=2.0,
        start_gap=(longest * signal) ** 4 * (within * (2 + within)) ** 2 / 4,
        region=f"within {within * signal:g} of w* or of -w*",
    )


def robust_phase_retrieval(
    dimension: int, kappa: float, *, signal: float = 1.0, within: float = 0.2, slack: float = 0.5
) -> Constants:
    """Return the constants of |(x.w)^2 - (x.w*)^2| near w*, for rows that fill a sphere of radius sqrt(d): sharp.

    It is |x.v| |x.z| with v = w - w* and z = w + w*. Over the sphere E |x.v| |x.z| >= (2/pi) |v| |z|, the value of
    orthogonal ones, so the mean loss rises from w* by at least m = (2/pi) (2 - c) |w*| for each unit of way. A
    subgradient is 2 (x.w) x times a sign; adding d |w|^2 to a unit's loss makes it convex, and adding |w|^2
    the mean's, for E x x^T = I. Therefore, for |v| <= c |w*|, a subgradient g of the mean has |g| >= (F - |v|^2)/|v|
    >= m - c |w*|. A slope that is bounded below is a KL condition of every exponent, gamma = F0^(1/kappa)/slope.

    Args:
        dimension: d.
        kappa: any, at least 2; larger ones are served by smaller targets.
        signal: |w*|.
        within: c.
        slack: the share of the slope that a sample is trusted to have.
    """
    assert kappa >= 2, "sharp minima"  # noqa: PLR2004 - where the method begins
    rise = 2 / pi * (2 - within) * signal
    slope = slack * (rise - within * signal)
    gap = dimension * signal**2 * within * (2 + within)
    return Constants(
        lipschitz=2 * dimension * signal * (1 + within),
        smoothness=None,
        weak_convexity=2.0 * dimension,
        gamma=exp(log(gap) / kappa) / slope,
        kappa=kappa,
        start_gap=gap,
        region=f"within {within * signal:g} of w* or of -w*",
    )


def geman_mcclure(row_bound: float = 1.0, scale: float = 1.0) -> Constants:
    """Return the constants of scale^2 t^2/(1 + t^2)/2 in t = (y - x.w)/scale: bounded, not convex, with no condition.

    With p(t) = t^2/(2 (1 + t^2)): p' = t/(1 + t^2)^2 is largest, 3 sqrt(3)/16, at t^2 = 1/3; p'' = (1 - 3 t^2)/(1 +
    t^2)^3 lies between -1/4, at t^2 = 1, and 1, at 0.
    """
    return Constants(
        lipschitz=scale * row_bound * 3 * sqrt(3) / 16,
        smoothness=row_bound**2,
        weak_convexity=row_bound**2 / 4,
        gamma=None,
        kappa=None,
        start_gap=scale**2 / 2,
        region="everywhere",
    )
