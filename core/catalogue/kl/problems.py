"""Problems whose constants under the KL condition are known, and those constants with where they come from.

A constant is a promise about every unit (Lipschitz, smoothness) or about the mean loss (the others), on a region that
is named with it; none of them is measured on the records.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), sections 2 and 3; each function derives its own.
"""

from math import exp, inf, log, sqrt

from pydantic import Field

from core.catalogue.kl.condition import KlCondition
from core.privacy.facts import Adjacency, Facts, Frozen


class Constants(Frozen):
    """What is known of a problem before any record of it is read."""

    lipschitz: float = Field(gt=0, description="L0: no unit's gradient is longer")
    smoothness: float | None = Field(description="L1, a unit's; null: its gradient jumps")
    weak_convexity: float = Field(ge=0, description="Lt, a unit's: loss + (Lt/2)|w|^2 is convex; 0: convex")
    gamma: float = Field(gt=0)
    kappa: float = Field(ge=1)
    start_gap: float = Field(gt=0, description="F0: the mean loss at the start is at most so far above its least")
    region: str = Field(description="where they hold")

    @property
    def condition(self) -> KlCondition:
        """The KL condition."""
        return KlCondition(gamma=self.gamma, kappa=self.kappa)

    def facts(self, units: int, dimension: int, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> Facts:
        """Return what a door is told of so many units of such a problem."""
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

    A unit's gradient is (x.w - y) x and its Hessian x x^T. With G = X^T X/n the mean loss is a quadratic, and on the
    range of G, where all gradients lie, |G v|^2 >= lambda v.G v for its smallest eigenvalue that is not zero: PL with
    gamma = 1/sqrt(2 lambda), strongly convex or not. At zero the loss is at most label_bound^2/2.

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
