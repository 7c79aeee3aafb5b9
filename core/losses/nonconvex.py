"""Losses that are not convex in the margin: their public constants. Per-record code is in `core.queries.sums`.

Their Hessians may have negative eigenvalues, so no question about a mean of positive semidefinite matrices may be asked
of them: no Newton steps and no intervals. Their known properties are smoothness, negative curvature and height at the
start (`core.models.loss_geometry`). The methods of Menart, Ullah, Arora, Bassily and Guzman (2024) need these.
"""

from abc import abstractmethod
from math import cbrt, hypot, log1p, sqrt
from typing import Annotated, Final, Literal

from pydantic import Field

from core.losses.bases import AbstractLoss, AbstractRobust, PositiveNumber

_ROOT_OF_33: Final = sqrt(33)
_NEWTON_STEPS: Final = 60
# The middle root of 60 p^3 - 108 p^2 + 57 p - 8: Brier's third derivative is largest there.
_BRIER_TURN: Final = 0.6362642907


class GemanMcClure(AbstractRobust):
    """rho(t) = c^2/2 t^2/(c^2 + t^2): redescending, records far off count for nothing; never above scale c^2/2.

    With u = t/c: rho' = c u/(1 + u^2)^2, most at u = 1/sqrt(3), where it is 3 sqrt(3) c/16. The curvature is rho'' = (1
    - 3 u^2)/(1 + u^2)^3, 1 at zero and least at u = 1, where it is -1/4. The constant c = 3.787 has 95 % efficiency for
    normal errors.

    Source: Geman and McClure (1987).
    """

    kind: Literal["geman_mcclure"] = "geman_mcclure"
    c: PositiveNumber = 3.787

    def rho(self, residual: float) -> float:
        """Return c^2/2 u^2/(1 + u^2), as the square of u/sqrt(1 + u^2)."""
        u = residual / self.c
        # Two forms: neither u^2 nor its reciprocal overflows.
        sine = u / hypot(1, u) if u < 1 else 1 / hypot(1, 1 / u)
        return self.c * self.c / 2 * sine * sine

    @property
    def score_bound(self) -> float:
        """3 sqrt(3) c/16."""
        return 3 * sqrt(3) / 16 * self.c

    @property
    def weak_convexity(self) -> float:
        """1/(4 scale)."""
        return 1 / (4 * self.known_scale)

    @property
    def third_derivative(self) -> float:
        """12 u (1 - u^2)/(1 + u^2)^4/(c scale^2) at u^2 = 1 - 2/sqrt(5), the lesser root of 5 u^4 - 10 u^2 + 1."""
        square = 1 - 2 / sqrt(5)
        return 12 * sqrt(square) * (1 - square) / (1 + square) ** 4 / (self.c * self.known_scale**2)


class Cauchy(AbstractRobust):
    """rho(t) = c^2/2 log(1 + (t/c)^2): redescending, the likelihood of Cauchy errors.

    With u = t/c: rho' = c u/(1 + u^2), most at u = 1, where it is c/2. The curvature is rho'' = (1 - u^2)/(1 + u^2)^2,
    1 at zero and least at u^2 = 3, where it is -1/8. The constant c = 2.385 has 95 % efficiency for normal errors.
    """

    kind: Literal["cauchy"] = "cauchy"
    c: PositiveNumber = 2.385

    def rho(self, residual: float) -> float:
        """Return c^2/2 log(1 + u^2)."""
        u = residual / self.c
        return self.c * self.c / 2 * log1p(u * u)

    @property
    def score_bound(self) -> float:
        """c/2."""
        return self.c / 2

    @property
    def weak_convexity(self) -> float:
        """1/(8 scale)."""
        return 1 / (8 * self.known_scale)

    @property
    def third_derivative(self) -> float:
        """2 u (3 - u^2)/(1 + u^2)^3/(c scale^2) at u = sqrt(2) - 1, a root of u^4 - 6 u^2 + 1."""
        u = sqrt(2) - 1
        return 2 * u * (3 - u * u) / (1 + u * u) ** 3 / (self.c * self.known_scale**2)


class Brier(AbstractLoss):
    """Half the squared error of a probability: (p - y)^2/2, p = expit(m), y in {0, 1}; never above 1/2.

    For y = 0 (y = 1 is its mirror image): the score p^2 (1 - p) is most at p = 2/3, 4/27. The second derivative
    p^2 (1 - p) (2 - 3 p) has its extremes where 12 p^2 - 15 p + 4 = 0: about 0.0770 at p = (15 - sqrt(33))/24, about
    -0.0601 at p = (15 + sqrt(33))/24.

    Source: Brier (1950), a proper score: the expected loss is least at the true probability.
    """

    kind: Literal["brier"] = "brier"

    @property
    def score_bound(self) -> float:
        """4/27."""
        return 4 / 27

    @property
    def curvature_peak(self) -> float:
        """p^2 (1 - p) (2 - 3 p) at p = (15 - sqrt(33))/24."""
        return _bend((15 - _ROOT_OF_33) / 24)

    @property
    def weak_convexity(self) -> float:
        """Minus p^2 (1 - p) (2 - 3 p) at p = (15 + sqrt(33))/24; less than the peak, so that is the smoothness."""
        return -_bend((15 + _ROOT_OF_33) / 24)

    @property
    def third_derivative(self) -> float:
        """p^2 (1 - p) |12 p^2 - 15 p + 4| at p = 0.63626, the middle root of 60 p^3 - 108 p^2 + 57 p - 8."""
        p = _BRIER_TURN
        return p**2 * (1 - p) * abs(12 * p**2 - 15 * p + 4)

    def gap_at_zero(self, reach: float) -> float:
        """Return 1/8: p = 1/2 there, and the loss falls to 0."""
        del reach  # targets are 0 and 1
        return 0.125


class SineLink(AbstractLoss):
    """(s(m) - y)^2/2 with the link s(m) = m + a sin m, 0 < a < 1: a non-convex generalised linear model, one minimum.

    s' = 1 + a cos m lies in [1 - a, 1 + a], so s grows and takes every value. The score (s - y) s' has no bound, so
    gradients are clipped. Where it is clipped to [-b, b], |s - y| <= b/s'. The second derivative s'^2 + (s - y) s''
    then differs from s'^2 by at most b |s''|/s' = b a |sin m|/(1 + a cos m). That is most at cos m = -a: b a/sqrt(1 -
    a^2). The clipped score is thus Lipschitz with (1 + a)^2 + b a/sqrt(1 - a^2), and the loss has negative curvature of
    at most b a/sqrt(1 - a^2) - (1 - a)^2: bounds, not attained.

    Source: Menart, Ullah, Arora, Bassily and Guzman (2024), section 1: generalised linear models satisfy the KL
    condition with kappa = 2 where their link's slope is bounded away from zero.
    """

    kind: Literal["sine_link"] = "sine_link"
    amplitude: Annotated[float, Field(gt=0, lt=1)] = 0.9

    @property
    def score_bound(self) -> None:
        """None: clipped gradients only."""
        return

    @property
    def curvature_peak(self) -> None:
        """None: residuals have no bound."""
        return

    @property
    def smoothness(self) -> None:
        """None before clipping."""
        return

    @property
    def weak_convexity(self) -> None:
        """None before clipping."""
        return

    def clipped_smoothness(self, slope: float) -> float:
        """Return (1 + a)^2 + slope a/sqrt(1 - a^2)."""
        return (1 + self.amplitude) ** 2 + slope * self._turn

    def clipped_weak_convexity(self, slope: float) -> float:
        """Return slope a/sqrt(1 - a^2) - (1 - a)^2, or 0."""
        return max(0.0, slope * self._turn - (1 - self.amplitude) ** 2)

    def clipped_third_derivative(self, slope: float) -> float:
        """Return 3 a (1 + a) + slope a/(1 - a), a bound, not attained: of 3 s' s" and of (s - y) times the next."""
        return 3 * self.amplitude * (1 + self.amplitude) + slope * self.amplitude / (1 - self.amplitude)

    def gap_at_zero(self, reach: float) -> float:
        """Return reach^2/2: s(0) = 0, and some margin has no loss."""
        return reach * reach / 2

    @property
    def _turn(self) -> float:
        """Most of |s''|/s'."""
        return self.amplitude / sqrt(1 - self.amplitude**2)


class AbstractPhase(AbstractLoss):
    """Of the square of a margin: y = (x.b)^2 is what intensities without their phase tell of b, up to its sign."""

    cap: PositiveNumber | None = Field(
        default=None,
        description="largest target, in its declared units: larger ones are cut to it; null: as declared",
    )

    @property
    def score_bound(self) -> None:
        """None: clipped gradients only."""
        return

    @property
    def curvature_peak(self) -> float | None:
        """None: the second derivative has no bound."""
        return None

    @property
    def smoothness(self) -> None:
        """None: the score grows without bound, or jumps."""
        return

    @property
    def known_cap(self) -> float:
        """The cap, once it is filled."""
        assert self.cap is not None, "the planner fills the cap"
        return self.cap

    @abstractmethod
    def value_at_zero(self, target: float) -> float:
        """Return the loss at margin zero; it grows with the target."""

    def gap_at_zero(self, reach: float) -> float:
        """Return the loss of the largest target at margin zero; the square root of a target has none."""
        return self.value_at_zero(min(reach, self.known_cap))


class SmoothPhase(AbstractPhase):
    """(m^2 - y)^2/4, y >= 0, cut to `cap`: score m (m^2 - y), second derivative 3 m^2 - y, at least -cap.

    Where the score is clipped to [-b, b], the second derivative is most at the largest margin with |score| <= b, for
    the largest target. There m (m^2 - cap) = b, and 3 m^2 - cap is at least 2 cap, more than its largest negative size.
    (As b grows with the target fixed m does; as the target grows with b fixed, 3 m^2 - y changes by 6 m^2/(3 m^2 - y) -
    1 >= 1 for each unit of it.) Times r^2, with b = h/r, it grows with the norm r of a row: its derivative has the sign
    of 6 m^4 - 3 m^2 y + y^2 > 0, so the longest row is the worst.

    At b = 0 all gradients vanish, and the mean loss has a saddle or a maximum there.

    Source: Menart, Ullah, Arora, Bassily and Guzman (2024), whose appendix has phase retrieval as an example.
    """

    kind: Literal["smooth"] = "smooth"

    @property
    def weak_convexity(self) -> float:
        """The cap, at margin zero."""
        return self.known_cap

    def clipped_smoothness(self, slope: float) -> float:
        """Return 3 m^2 - cap at the positive root of m (m^2 - cap) = slope.

        Newton's steps come down to it from above, for the cubic is convex and grows there. They begin where
        (m^2 - cap)^(3/2) is the slope, which is less than m (m^2 - cap).
        """
        margin = self._farthest(slope)
        return 3 * margin * margin - self.known_cap

    def clipped_third_derivative(self, slope: float) -> float:
        """Return 6 m at the same root: no margin with a score of at most `slope` is farther from zero."""
        return 6 * self._farthest(slope)

    def _farthest(self, slope: float) -> float:
        """Return the positive root of m (m^2 - cap) = slope."""
        cap = self.known_cap
        margin = hypot(sqrt(cap), cbrt(slope))
        # A fixed number is safe: steps that have converged move no further.
        for _ in range(_NEWTON_STEPS):
            margin -= (margin * (margin * margin - cap) - slope) / (3 * margin * margin - cap)
        return margin

    def value_at_zero(self, target: float) -> float:
        """Return y^2/4."""
        return target * target / 4


class RobustPhase(AbstractPhase):
    """|m^2 - y|, y >= 0, cut to `cap`: sharp at its minima and not smooth, weakly convex.

    The sum |m^2 - y| + m^2 is the larger of 2 m^2 - y and y, both convex, so 2 is its weak convexity. Clipping the
    score cuts its slopes at the ends of each piece, and keeps the jump at m^2 = y upwards.

    At b = 0 all gradients vanish, and the mean loss has a maximum there unless most targets are zero.

    Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorem 8, whose losses are weakly convex.
    """

    kind: Literal["robust"] = "robust"

    @property
    def weak_convexity(self) -> float:
        """2: minus the second derivative between the minima."""
        return 2.0

    def value_at_zero(self, target: float) -> float:
        """Return y."""
        return target


def _bend(p: float) -> float:
    """Return the second derivative of p^2/2 in the margin."""
    return p**2 * (1 - p) * (2 - 3 * p)
