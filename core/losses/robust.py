"""Robust losses of a number: Huber's, smooth ones after it, and two that redescend and are not convex.

Source: Avella-Medina, Bradshaw and Loh (2023), loss (6), examples 1 and 2 and appendix C; the self-concordant losses
are those of Ostrovskii and Bach (2021).
"""

from math import erf, exp, hypot, log, log1p, pi, sqrt
from typing import ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from core.losses.assumption import Assumption
from core.losses.bases import AbstractRobust, Array, PositiveNumber, known, robust_card
from core.privacy.arithmetic import fill

SCALE_FLOOR_PART: Final = 0.01
"""Of where an unknown scale starts."""


class Huber(AbstractRobust):
    """rho quadratic up to c and linear beyond; with `joint` the scale is estimated too.

    Joint: the loss is scale * rho(r) + kappa * scale/2 as a function of both, kappa = E psi_c(Z)^2 for normal Z, which
    makes the scale that of the errors where they are normal.
    """

    card: ClassVar = robust_card(
        "scale rho_c(r), r = (y - m)/scale: quadratic up to c, linear beyond",
        None,
        "c",
        "0",
        Assumption(text="joint: Mallows weights; no scale is below scale_floor", checked="static"),
    ).model_copy(update={"curvature_peak": "1 if joint else 1/scale"})
    phrase: ClassVar = "Huber loss (c = {c:g}, residual scale known, {scale:g})"
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

    def words(self) -> str:
        """Return the same, where the scale is estimated too without it."""
        return f"Huber loss (c = {self.c:g}, residual scale estimated)" if self.joint else super().words()

    @property
    def known_floor(self) -> float:
        """The scale's floor, once it is filled."""
        return known(self.scale_floor, "scale_floor")

    @property
    def one_margin(self) -> bool:
        """False with an unknown scale."""
        return not self.joint

    def filled(self, largest: float, unit: float) -> Self:
        """Return the same with a floor, where the scale is unknown."""
        found = super().filled(largest, unit)
        return fill(found, scale_floor=SCALE_FLOOR_PART * found.known_scale) if self.joint else found

    def encoded(self, unit: float) -> Self:
        """Return the same, its floor in these units too."""
        floor = None if self.scale_floor is None else self.scale_floor / unit
        return super().encoded(unit).model_copy(update={"scale_floor": floor})

    @property
    def curvature_peak(self) -> float:
        """1/scale, or 1 for the Hessian times an unknown scale."""
        return 1.0 if self.joint else super().curvature_peak

    def rho(self, residual: float) -> float:
        """Return t^2/2 up to c and c t - c^2/2 beyond."""
        return residual * residual / 2 if residual <= self.c else self.c * (residual - self.c / 2)

    def psi(self, residual: Array) -> Array:
        """Return t, cut to [-c, c]."""
        return np.clip(residual, -self.c, self.c)

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

    card: ClassVar = robust_card("Huber's, its corner a quartic on (c, c + h)", score_bound="c + h/2")
    phrase: ClassVar = "smoothed Huber loss (c = {c:g}, residual scale known, {scale:g})"
    example: ClassVar = {"scale": 2.5, "c": 0.9, "h": 0.4}
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

    def psi(self, residual: Array) -> Array:
        """Return t up to c, and the quartic beyond."""
        size = np.abs(residual)
        part = np.clip((size - self.c) / self.h, 0.0, 1.0)
        beyond = self.c + self.h * (part - part**3 + part**4 / 2)
        return np.sign(residual) * np.where(size <= self.c, size, beyond)

    @property
    def lipschitz(self) -> float:
        """Sup |third derivative in the margin|: 3/(2 h scale^2)."""
        return 1.5 / (self.h * self.known_scale**2)


class LogCosh(AbstractRobust):
    """rho(t) = c^2 log cosh(t/c)."""

    card: ClassVar = robust_card("scale c^2 log cosh(r/c)", "2/(c*scale)")
    phrase: ClassVar = "log-cosh loss (c = {c:g}, residual scale known, {scale:g})"
    concordance_factor: ClassVar = 2.0  # the paper's 3 is valid and loose
    kind: Literal["log_cosh"] = "log_cosh"

    def rho(self, residual: float) -> float:
        """Return c^2 log cosh(t/c), which overflows nowhere."""
        u = residual / self.c
        return self.c * self.c * (u + log1p(exp(-2 * u)) - log(2))

    def psi(self, residual: Array) -> Array:
        """Return c tanh(t/c)."""
        return self.c * np.tanh(residual / self.c)


class PseudoHuber(AbstractRobust):
    """rho(t) = c^2 (sqrt(1 + (t/c)^2) - 1)."""

    card: ClassVar = robust_card("scale c^2 (sqrt(1 + (r/c)^2) - 1)", "3/(2*c*scale)")
    phrase: ClassVar = "pseudo-Huber loss (c = {c:g}, residual scale known, {scale:g})"
    concordance_factor: ClassVar = 1.5  # as above
    kind: Literal["pseudo_huber"] = "pseudo_huber"

    def rho(self, residual: float) -> float:
        """Return c^2 (sqrt(1 + (t/c)^2) - 1)."""
        return self.c * self.c * (hypot(1, residual / self.c) - 1)

    def psi(self, residual: Array) -> Array:
        """Return t/sqrt(1 + (t/c)^2)."""
        return residual / np.sqrt(1 + (residual / self.c) ** 2)


class OstrovskiiBach(AbstractRobust):
    """rho(t) = c^2/2 [s - 1 + log(2/(1 + s))], s = sqrt(1 + 4 (t/c)^2): heavier tails than the others.

    The printed form has 0/0 at zero; this one is equal to it elsewhere.
    """

    card: ClassVar = robust_card("scale c^2/2 (s - 1 + log(2/(1 + s))), s = sqrt(1 + 4 (r/c)^2)", "1.5908/(c*scale)")
    phrase: ClassVar = "Ostrovskii-Bach loss (c = {c:g}, residual scale known, {scale:g})"
    concordance_factor: ClassVar = 1.5908  # the supremum of |rho'''|/rho'' for c = 1; the printed (2, 3) is too small
    kind: Literal["ostrovskii_bach"] = "ostrovskii_bach"

    def rho(self, residual: float) -> float:
        """Return c^2/2 (q - log(1 + q/2)), q = s - 1."""
        q = hypot(1, 2 * residual / self.c) - 1
        return self.c * self.c / 2 * (q - log1p(q / 2))

    def psi(self, residual: Array) -> Array:
        """Return 2 t/(1 + s)."""
        slower: Array = 1 + np.sqrt(1 + 4 * (residual / self.c) ** 2)
        return 2 * residual / slower


class GemanMcClure(AbstractRobust):
    """rho(t) = c^2/2 t^2/(c^2 + t^2): redescending, records far off count for nothing; never above scale c^2/2.

    With u = t/c: rho' = c u/(1 + u^2)^2, most at u = 1/sqrt(3), where it is 3 sqrt(3) c/16. The curvature is rho'' = (1
    - 3 u^2)/(1 + u^2)^3, 1 at zero and least at u = 1, where it is -1/4. The constant c = 3.787 has 95 % efficiency for
    normal errors.

    Source: Geman and McClure (1987).
    """

    card: ClassVar = robust_card(
        "scale c^2/2 u^2/(1 + u^2), u = r/c: redescending, bounded", None, "3*3**0.5/16*c", "1/(4*scale)"
    )
    phrase: ClassVar = "Geman-McClure loss (c = {c:g}, residual scale known, {scale:g})"
    kind: Literal["geman_mcclure"] = "geman_mcclure"
    c: PositiveNumber = 3.787

    def rho(self, residual: float) -> float:
        """Return c^2/2 u^2/(1 + u^2), as the square of u/sqrt(1 + u^2)."""
        u = residual / self.c
        # Two forms: neither u^2 nor its reciprocal overflows.
        sine = u / hypot(1, u) if u < 1 else 1 / hypot(1, 1 / u)
        return self.c * self.c / 2 * sine * sine

    def psi(self, residual: Array) -> Array:
        """Return c u/(1 + u^2)^2."""
        return residual / (1 + (residual / self.c) ** 2) ** 2

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

    card: ClassVar = robust_card("scale c^2/2 log(1 + u^2), u = r/c: redescending", None, "c/2", "1/(8*scale)")
    phrase: ClassVar = "Cauchy loss (c = {c:g}, residual scale known, {scale:g})"
    kind: Literal["cauchy"] = "cauchy"
    c: PositiveNumber = 2.385

    def rho(self, residual: float) -> float:
        """Return c^2/2 log(1 + u^2)."""
        u = residual / self.c
        return self.c * self.c / 2 * log1p(u * u)

    def psi(self, residual: Array) -> Array:
        """Return c u/(1 + u^2)."""
        return residual / (1 + (residual / self.c) ** 2)

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
