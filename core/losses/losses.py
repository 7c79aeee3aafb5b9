"""Losses and weights as public values with their public constants; per-record code is in `core.queries.sums`.

A loss is a function of the margin m = x.b and the target y; a weight tames it for records with large features. Both
together bound, for every possible record, the norm of its gradient (B), the Frobenius norm of its Hessian (Bbar) and,
for some, the Hessian's rate of change. Robust losses are scale * rho((y - m)/scale), so that gradients carry no 1/scale
and Hessians do.

Source: Avella-Medina, Bradshaw and Loh (2023), losses (6) and (7), examples 1 and 2, section 5 and appendices C and H;
the self-concordant losses are those of Ostrovskii and Bach (2021).
"""

from math import erf, exp, hypot, log, log1p, pi, sqrt
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from core.losses.bases import AbstractLoss, AbstractRobust, PositiveNumber
from core.losses.nonconvex import Brier, Cauchy, GemanMcClure, RobustPhase, SineLink, SmoothPhase
from core.privacy.facts import Frozen


class Mallows(Frozen):
    """w(x) = min(1, (t/|x|)^power) with t = `bound`, on the scaled features, intercept included; None: planned.

    For every power and every x, |w x| <= t, so no row needs to be bounded. From the second power on, w |x|^2 <= t^2,
    and w |x|^3 <= t^3 for the third. A matrix question that lacks its bound is refused. The paper's W1, W2, W3.
    """

    kind: Literal["mallows"] = "mallows"
    bound: PositiveNumber | None = None
    power: Literal[1, 2, 3] = 2


class Schweppe(Frozen):
    """v(x) = min(1, C/|x|) with C = `bound`, inside the loss: phi((y - x.b) v/scale); |v x| <= C.

    The loss of v x and v y without any weight: robust losses only. None: planned.
    """

    kind: Literal["schweppe"] = "schweppe"
    bound: PositiveNumber | None = None


class Clip(Frozen):
    """No weight: each record's gradient g is clipped to g * min(1, h/|g|), h = `bound`; None: planned.

    The usual way of machine learning, for comparison. The clipped gradient is that of no loss, so its zero is another
    parameter than the requested one (inconsistent in logistic regression), and it has no intervals.
    """

    kind: Literal["clip"] = "clip"
    bound: PositiveNumber | None = None


Weights = Annotated[Mallows | Schweppe | Clip, Field(discriminator="kind")]


class Logistic(AbstractLoss):
    """Logistic regression: log(1 + exp(m)) - y m, y in {0, 1}."""

    kind: Literal["logistic"] = "logistic"

    @property
    def score_bound(self) -> float:
        """1: |p - y| <= 1."""
        return 1.0

    @property
    def curvature_peak(self) -> float:
        """1/4: p (1 - p) <= 1/4."""
        return 0.25

    @property
    def concordance(self) -> float:
        """1: f''' = f'' (1 - 2 p)."""
        return 1.0

    def gap_at_zero(self, reach: float) -> float:
        """Return log 2."""
        del reach  # targets are 0 and 1
        return log(2)


class Poisson(AbstractLoss):
    """Poisson regression with log link, bounded: F(m) - y m, F' = min(exp(m), cap), 0 <= y <= cap.

    Convex, for F' never falls. Counts above the cap are cut to it. Where every mean is below the cap and no count is
    cut this is maximum likelihood; `c` cuts the residual too, which resists outliers and is inconsistent like clipping
    wherever residuals are asymmetric. The cap is that of the target's declared bound where none is given.
    """

    kind: Literal["poisson"] = "poisson"
    cap: PositiveNumber | None = Field(default=None, description="largest count and largest mean; null: planned")
    c: PositiveNumber | None = Field(default=None, description="largest residual; null: the cap's")

    @property
    def score_bound(self) -> float:
        """min(c, cap): both mean and count lie in [0, cap]."""
        assert self.cap is not None, "plan first"
        return self.cap if self.c is None else min(self.c, self.cap)

    @property
    def curvature_peak(self) -> float:
        """The cap: F'' = exp(m) up to where it is the cap, 0 beyond."""
        assert self.cap is not None, "plan first"
        return self.cap

    @property
    def concordance(self) -> None:
        """None: at the cap the second derivative falls at once."""
        return

    def gap_at_zero(self, reach: float) -> float:
        """Return the most of F(0) - F(log y) + y log y, convex in y: its value at 0 or at the largest count.

        Residuals that are cut to c make it no larger. For y = 0 it is F(0), for F falls to 0.
        """
        assert self.cap is not None, "plan first"
        at_zero = 1.0 if self.cap >= 1 else self.cap * (1 - log(self.cap))  # a cap below 1 is reached before margin 0
        largest = min(reach, self.cap)
        return max(at_zero, at_zero - largest * (1 - log(largest)))


class Multinomial(AbstractLoss):
    """Multinomial logistic regression over `classes` values, the first one the baseline; -log softmax.

    Margins are x.b_k, k = 1 .. classes - 1; parameters are the b_k one after the other, p (classes - 1) of them. The
    gradient of a record is (q - e_y) kron w x and its Hessian (diag(q) - q q^T) kron w x x^T, positive semidefinite but
    not of rank one. The norm |q - e_y| is at most sqrt(2) (on two classes: 1). The Frobenius norm of diag(q) - q q^T,
    over all classes but the baseline, is largest where two of them share all probability: 1/2 (on two classes: 1/4).
    """

    kind: Literal["multinomial"] = "multinomial"
    classes: Annotated[int, Field(ge=2, le=100)] | None = Field(default=None, description="null: as declared")

    @property
    def known_classes(self) -> int:
        """K, once it is filled."""
        assert self.classes is not None, "plan first"
        return self.classes

    @property
    def score_bound(self) -> float:
        """Sqrt(2), 1 for two classes."""
        assert self.classes is not None, "plan first"
        return 1.0 if self.classes == 2 else sqrt(2)  # noqa: PLR2004 - two classes: plain logistic regression

    @property
    def curvature_peak(self) -> float:
        """1/2, 1/4 for two classes; of the Frobenius norm."""
        assert self.classes is not None, "plan first"
        return 0.25 if self.classes == 2 else 0.5  # noqa: PLR2004 - as above

    def gap_at_zero(self, reach: float) -> float:
        """Return the logarithm of the number of classes."""
        del reach  # targets are codes
        assert self.classes is not None, "plan first"
        return log(self.classes)


class Huber(AbstractRobust):
    """rho quadratic up to c and linear beyond; with `joint` the scale is estimated too.

    Joint: the loss is scale * rho(r) + kappa * scale/2 as a function of both, kappa = E psi_c(Z)^2 for normal Z, which
    makes the scale that of the errors where they are normal.
    """

    kind: Literal["huber"] = "huber"
    joint: bool = Field(
        default=False, description="estimate the scale with the coefficients; `scale` is then where it starts"
    )
    scale_floor: PositiveNumber | None = Field(
        default=None, description="no iterate's scale is below it, in the target's declared units; null: planned"
    )

    @model_validator(mode="after")
    def _floored_only_if_joint(self) -> Self:
        if self.scale_floor is not None and not self.joint:
            raise PydanticCustomError(
                "floor_of_a_known_scale", "is for joint scales; leave it out or set joint", {"field": "scale_floor"}
            )
        return self

    @property
    def curvature_peak(self) -> float:
        """1/scale, or 1 for the Hessian times an unknown scale."""
        return 1.0 if self.joint else super().curvature_peak

    def rho(self, residual: float) -> float:
        """Return t^2/2 up to c and c t - c^2/2 beyond."""
        return residual * residual / 2 if residual <= self.c else self.c * (residual - self.c / 2)

    def gap_at_zero(self, reach: float) -> float:
        """Return scale rho(reach/scale), and kappa scale/2 with it where the scale is unknown and starts there."""
        return super().gap_at_zero(reach) + (self.kappa * self.known_scale / 2 if self.joint else 0.0)

    @property
    def kappa(self) -> float:
        """E psi_c(Z)^2 for standard normal Z."""
        return self.scale_curvature + self.c**2 * (1 - erf(self.c / sqrt(2)))

    @property
    def scale_curvature(self) -> float:
        """E Z^2 1{|Z| < c} for standard normal Z: the scale's entry of the Hessian times the scale, at the truth."""
        density = exp(-(self.c**2) / 2) / sqrt(2 * pi)
        return erf(self.c / sqrt(2)) - 2 * self.c * density


class SmoothedHuber(AbstractRobust):
    """Huber's psi with its corner replaced by a quartic on (c, c + h): twice differentiable; |psi| <= c + h/2.

    With s = (|t| - c)/h: psi = c + h (s - s^3 + s^4/2), psi' = 1 - 3 s^2 + 2 s^3, sup |psi''| = 3/(2 h). Not
    self-concordant for any constant.
    """

    kind: Literal["smoothed_huber"] = "smoothed_huber"
    h: PositiveNumber = 0.5

    @property
    def score_bound(self) -> float:
        """C + h/2."""
        return self.c + self.h / 2

    def rho(self, residual: float) -> float:
        """Return the integral of psi, each piece growing only where the others have stopped."""
        s = min(max((residual - self.c) / self.h, 0.0), 1.0)
        bent = self.c * self.h * s + self.h * self.h * (s**2 / 2 - s**4 / 4 + s**5 / 10)
        beyond = self.score_bound * max(residual - self.c - self.h, 0.0)
        within = min(residual, self.c)
        return within * within / 2 + bent + beyond

    @property
    def lipschitz(self) -> float:
        """Sup |third derivative in the margin|: 3/(2 h scale^2)."""
        return 1.5 / (self.h * self.known_scale**2)


class LogCosh(AbstractRobust):
    """rho(t) = c^2 log cosh(t/c)."""

    kind: Literal["log_cosh"] = "log_cosh"

    def rho(self, residual: float) -> float:
        """Return c^2 log cosh(t/c), which overflows nowhere."""
        u = residual / self.c
        return self.c * self.c * (u + log1p(exp(-2 * u)) - log(2))

    @property
    def concordance(self) -> float | None:
        """2/(c scale); the paper's 3/c is valid and loose."""
        return self._concordance(2.0)


class PseudoHuber(AbstractRobust):
    """rho(t) = c^2 (sqrt(1 + (t/c)^2) - 1)."""

    kind: Literal["pseudo_huber"] = "pseudo_huber"

    def rho(self, residual: float) -> float:
        """Return c^2 (sqrt(1 + (t/c)^2) - 1)."""
        return self.c * self.c * (hypot(1, residual / self.c) - 1)

    @property
    def concordance(self) -> float | None:
        """3/(2 c scale); the paper's 3/c is valid and loose."""
        return self._concordance(1.5)


class OstrovskiiBach(AbstractRobust):
    """rho(t) = c^2/2 [s - 1 + log(2/(1 + s))], s = sqrt(1 + 4 (t/c)^2): heavier tails than the others.

    The printed form has 0/0 at zero; this one is equal to it elsewhere.
    """

    kind: Literal["ostrovskii_bach"] = "ostrovskii_bach"

    def rho(self, residual: float) -> float:
        """Return c^2/2 (q - log(1 + q/2)), q = s - 1."""
        q = hypot(1, 2 * residual / self.c) - 1
        return self.c * self.c / 2 * (q - log1p(q / 2))

    @property
    def concordance(self) -> float | None:
        """1.5908/(c scale), the supremum of |rho'''|/rho''; the printed (2/c, 3) is too small."""
        return self._concordance(1.5908)


class Squared(AbstractLoss):
    """(y - m)^2/2, whose gradient nothing bounds: for clipped gradients and sufficient statistics only."""

    kind: Literal["squared"] = "squared"

    @property
    def score_bound(self) -> None:
        """None."""
        return

    @property
    def curvature_peak(self) -> float:
        """1."""
        return 1.0

    def gap_at_zero(self, reach: float) -> float:
        """Return reach^2/2."""
        return reach * reach / 2


Binary = Annotated[Logistic | Brier, Field(discriminator="kind")]
Robust = Annotated[
    Huber | SmoothedHuber | LogCosh | PseudoHuber | OstrovskiiBach | GemanMcClure | Cauchy | Squared | SineLink,
    Field(discriminator="kind"),
]
"""Of numbers: all but the last two are robust."""
Phase = Annotated[SmoothPhase | RobustPhase, Field(discriminator="kind")]
Loss = Annotated[
    Logistic
    | Brier
    | Poisson
    | Multinomial
    | Huber
    | SmoothedHuber
    | LogCosh
    | PseudoHuber
    | OstrovskiiBach
    | GemanMcClure
    | Cauchy
    | Squared
    | SineLink
    | SmoothPhase
    | RobustPhase,
    Field(discriminator="kind"),
]


def gradient_bound(loss: Loss, weights: Weights) -> float:
    """Return B, the bound on the norm of a record's gradient.

    |w x| <= t and |v x| <= C, times the bound of the score; clipped gradients are as long as their clip. With an
    unknown scale the gradient has one more entry, (kappa - psi^2) w/2, between (kappa - c^2)/2 and kappa/2.
    """
    bound = weights.bound
    assert bound is not None, "plan first"
    if isinstance(weights, Clip):
        return bound
    assert loss.score_bound is not None, "the planner refuses weights that bound nothing"
    along = bound * loss.score_bound
    if isinstance(loss, Huber) and loss.joint:
        return sqrt(along**2 + max(loss.kappa, loss.c**2 - loss.kappa) ** 2 / 4)
    return along


def gradient_diameter(loss: Loss, weights: Weights) -> float | None:
    """Return the largest distance of two records' gradients where it is less than 2 B.

    With an unknown scale, the entry for it moves by at most c^2/2, so sqrt((2 t c)^2 + (c^2/2)^2): the printed bound,
    valid and not attained.
    """
    if isinstance(loss, Huber) and loss.joint:
        assert weights.bound is not None, "plan first"
        return sqrt((2 * weights.bound * loss.c) ** 2 + loss.c**4 / 4)
    return None


def curvature_bound(loss: Loss, weights: Weights) -> float | None:
    """Return Bbar, the bound on a record's Hessian; None where there is none, so that none may be asked.

    Nor may that of a loss that is not convex, for the answer is a mean of positive semidefinite matrices.

    w |x|^2 <= t^2 for Mallows weights of power two or more, v^2 |x|^2 <= C^2, times the peak of the curvature. With an
    unknown scale, the Hessian times it is w 1{|r| < c} u u^T, u = (x, r), and w (|x|^2 + r^2) <= t^2 + c^2.
    """
    bound = weights.bound
    assert bound is not None, "plan first"
    if isinstance(weights, Clip) or (isinstance(weights, Mallows) and weights.power == 1) or loss.score_bound is None:
        return None
    if loss.weak_convexity != 0 or loss.curvature_peak is None:
        return None
    if isinstance(loss, Huber) and loss.joint:
        return bound**2 + loss.c**2
    return loss.curvature_peak * bound**2


def cubic_bound(weights: Weights) -> float | None:
    """Return the bound on w(x) |x|^3; None where the weights have none."""
    if isinstance(weights, Mallows) and weights.power == 3:  # noqa: PLR2004 - the third power
        assert weights.bound is not None, "plan first"
        return weights.bound**3
    return None
