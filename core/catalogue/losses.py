"""Losses and weights as public values with their public constants; per-record code is in `core.problems`.

With Mallows weights w(x) = min(1, t^2/|x|^2) (W2 of Avella-Medina, Bradshaw and Loh, 2023): |w x| <= t and
|sqrt(w) x|^2 <= t^2 for every x, so no row needs to be bounded.
"""

from math import erf, exp, pi, sqrt
from typing import Annotated, Literal

from pydantic import Field

from core.privacy.facts import Frozen

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Mallows(Frozen):
    """w(x) = min(1, t^2/|x|^2) with t = `bound`, on the scaled features, intercept included; None: planned."""

    kind: Literal["mallows"] = "mallows"
    bound: PositiveNumber | None = None


class Logistic(Frozen):
    """Weighted logistic regression: mean of w [log(1 + exp(x.b)) - y x.b], y in {0, 1}."""

    kind: Literal["logistic"] = "logistic"

    def gradient_bound(self, weight_bound: float) -> float:
        """Return B = t: |(p - y) w x| <= |w x| <= t."""
        return weight_bound

    def curvature_bound(self, weight_bound: float) -> float:
        """Return Bbar = t^2/4: p (1 - p) <= 1/4 and w |x|^2 <= t^2."""
        return weight_bound**2 / 4


class Huber(Frozen):
    """Huber regression with known scale: mean of scale * rho_c((y - x.b)/scale) w, rho_c quadratic up to c."""

    kind: Literal["huber"] = "huber"
    c: PositiveNumber = 1.345
    scale: PositiveNumber | None = Field(
        default=None, description="known residual scale, in the target's declared units; null: planned"
    )

    def gradient_bound(self, weight_bound: float) -> float:
        """Return B = t c; the gradient -psi_c(r) w x carries no 1/scale."""
        return weight_bound * self.c

    def curvature_bound(self, weight_bound: float, scale: float) -> float:
        """Return Bbar = t^2/scale: the Hessian 1{|r| < c} w x x^T / scale does carry it."""
        return weight_bound**2 / scale

    @property
    def kappa(self) -> float:
        """E psi_c(Z)^2 for standard normal Z."""
        density = exp(-(self.c**2) / 2) / sqrt(2 * pi)
        tail = (1 - erf(self.c / sqrt(2))) / 2
        return (1 - 2 * tail) - 2 * self.c * density + 2 * self.c**2 * tail


Loss = Annotated[Logistic | Huber, Field(discriminator="kind")]
