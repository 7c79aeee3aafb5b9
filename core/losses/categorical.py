"""Losses of a target with two values or several: likelihoods, and the squared error of the probability, not convex."""

from math import log, sqrt
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from core.losses.assumption import Assumption
from core.losses.bases import NOT_CONVEX, AbstractLoss, Array, LossCard, known

_ROOT_OF_33: Final = sqrt(33)
# The middle root of 60 p^3 - 108 p^2 + 57 p - 8: Brier's third derivative is largest there.
_BRIER_TURN: Final = 0.6362642907


class Logistic(AbstractLoss):
    """Logistic regression: log(1 + exp(m)) - y m, y in {0, 1}."""

    card: ClassVar = LossCard(
        title="log(1 + exp(m)) - y m",
        models=("logistic",),
        score_bound="1",
        curvature_peak="1/4",
        concordance="1",
        assumptions=(Assumption(text="the target is one of two declared values", checked="static"),),
    )
    phrase: ClassVar = "logistic loss"
    example: ClassVar = {}
    score_bound: ClassVar[float] = 1.0  # |p - y| <= 1
    curvature_peak: ClassVar[float] = 0.25  # p (1 - p) <= 1/4
    concordance: ClassVar[float] = 1.0  # f''' = f'' (1 - 2 p)
    kind: Literal["logistic"] = "logistic"

    def gap_at_zero(self, reach: float) -> float:
        """Return log 2."""
        del reach  # targets are 0 and 1
        return log(2)

    def usual_spread(self, centre: float) -> float:
        """Return one half."""
        del centre
        return 0.5

    def moments(self, spread: float) -> tuple[Array, Array]:
        """Return the variance of an event, twice: features are taken to explain nothing."""
        variance = np.array([[spread * (1 - spread)]])
        return variance, variance


class Brier(AbstractLoss):
    """Half the squared error of a probability: (p - y)^2/2, p = expit(m), y in {0, 1}; never above 1/2.

    For y = 0 (y = 1 is its mirror image): the score p^2 (1 - p) is most at p = 2/3, 4/27. The second derivative
    p^2 (1 - p) (2 - 3 p) has its extremes where 12 p^2 - 15 p + 4 = 0: about 0.0770 at p = (15 - sqrt(33))/24, about
    -0.0601 at p = (15 + sqrt(33))/24.

    Source: Brier (1950), a proper score: the expected loss is least at the true probability.
    """

    card: ClassVar = LossCard(
        title="(p - y)^2/2, p = expit(m)",
        models=("logistic",),
        score_bound="4/27",
        # At p = (15 - sqrt(33))/24, and the next line at its conjugate: see the class.
        curvature_peak="(15 - 33**0.5)**2*(9 + 33**0.5)*(1 + 33**0.5)/(8*24**3)",
        weak_convexity="(15 + 33**0.5)**2*(9 - 33**0.5)*(33**0.5 - 1)/(8*24**3)",
        assumptions=(Assumption(text="the target is one of two declared values", checked="static"), NOT_CONVEX),
    )
    phrase: ClassVar = "squared error of the probability"
    example: ClassVar = {}
    score_bound: ClassVar[float] = 4 / 27
    kind: Literal["brier"] = "brier"

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


def _bend(p: float) -> float:
    """Return the second derivative of p^2/2 in the margin."""
    return p**2 * (1 - p) * (2 - 3 * p)


class Multinomial(AbstractLoss):
    """Multinomial logistic regression over `classes` values, the first one the baseline; -log softmax.

    Margins are x.b_k, k = 1 .. classes - 1; parameters are the b_k one after the other, p (classes - 1) of them. The
    gradient of a record is (q - e_y) kron w x and its Hessian (diag(q) - q q^T) kron w x x^T, positive semidefinite but
    not of rank one. The norm |q - e_y| is at most sqrt(2) (on two classes: 1). The Frobenius norm of diag(q) - q q^T,
    over all classes but the baseline, is largest where two of them share all probability: 1/2 (on two classes: 1/4).
    """

    card: ClassVar = LossCard(
        title="-log softmax, the first declared value the baseline",
        models=("multinomial",),
        score_bound="1 if classes == 2 else 2**0.5",
        curvature_peak="1/4 if classes == 2 else 1/2",
        assumptions=(Assumption(text="the target is one of the declared values", checked="static"),),
    )
    phrase: ClassVar = "multinomial logistic loss"
    example: ClassVar = {"classes": 5}
    kind: Literal["multinomial"] = "multinomial"
    classes: Annotated[int, Field(ge=2, le=100)] | None = Field(default=None, description="null: as declared")

    @property
    def one_margin(self) -> bool:
        """False: one for each class but the baseline."""
        return False

    @property
    def known_classes(self) -> int:
        """K, once it is filled."""
        return known(self.classes, "classes")

    @property
    def score_bound(self) -> float:
        """Sqrt(2), 1 for two classes."""
        return 1.0 if self.known_classes == 2 else sqrt(2)  # noqa: PLR2004 - two classes: plain logistic regression

    @property
    def curvature_peak(self) -> float:
        """1/2, 1/4 for two classes; of the Frobenius norm."""
        return 0.25 if self.known_classes == 2 else 0.5  # noqa: PLR2004 - as above

    def gap_at_zero(self, reach: float) -> float:
        """Return the logarithm of the number of classes."""
        del reach  # targets are codes
        return log(self.known_classes)

    def usual_spread(self, centre: float) -> float:
        """Return the share of each class: they are taken to be equally frequent."""
        del centre
        return 1 / self.known_classes

    def moments(self, spread: float) -> tuple[Array, Array]:
        """Return the covariance of the classes' indicators, twice."""
        del spread  # nothing else is assumed of classes
        covariance = np.eye(self.known_classes - 1) / self.known_classes - 1 / self.known_classes**2
        return covariance, covariance
