"""Weights, which tame a loss for records with large features, and the bounds that they have with it: these are priced.

Bounds hold for every possible record: of the norm of its gradient (B), of the Frobenius norm of its Hessian (Bbar) and,
for some, of the Hessian's rate of change. Robust losses are scale * rho((y - m)/scale), so that gradients carry no
1/scale and Hessians do.

Source: Avella-Medina, Bradshaw and Loh (2023), losses (6) and (7), section 5 and appendices C and H.
"""

from math import sqrt
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from core.losses.assumption import Assumption
from core.losses.bases import AbstractLoss, PositiveNumber, known
from core.losses.robust import Huber
from core.privacy.facts import Frozen


class WeightsCard(Frozen):
    """An entry of weights."""

    title: str
    formula: str
    gradient_bound: str = Field(description="B, most of a record's gradient norm")
    curvature_bound: str | None = Field(description="Bbar, most of its Hessian's norm; null: no question needs one")
    assumptions: tuple[Assumption, ...]


class AbstractWeights(Frozen):
    """Common part of all weights: entry and words."""

    card: ClassVar[WeightsCard]
    phrase: ClassVar[str]
    """The weights in a summary, a template of their figures."""

    if TYPE_CHECKING:  # a field of all weights

        @property
        def bound(self) -> float | None:
            """In encoded units; None: planned."""

    @property
    def known_bound(self) -> float:
        """The bound, once it is filled."""
        return known(self.bound, "bound")

    def words(self) -> str:
        """Return the weights as a phrase of a summary."""
        return self.phrase.format(**vars(self))


class Mallows(AbstractWeights):
    """w(x) = min(1, (t/|x|)^power) with t = `bound`, on the scaled features, intercept included; None: planned.

    For every power and every x, |w x| <= t, so no row needs to be bounded. From the second power on, w |x|^2 <= t^2,
    and w |x|^3 <= t^3 for the third. A matrix question that lacks its bound is refused. The paper's W1, W2, W3.
    """

    card: ClassVar = WeightsCard(
        title="every record's loss times w(x), x with the intercept's 1",
        formula="w(x) = min(1, (t/|x|)^power)",
        gradient_bound="t*score_bound",
        curvature_bound="None if power == 1 else t**2*curvature_peak",
        assumptions=(
            Assumption(text="Hessians and intervals: power 2 or 3, power 1 bounds none", checked="static"),
            Assumption(text="rows with |x| > t count for less, whatever their target", checked="declared"),
        ),
    )
    phrase: ClassVar = "Mallows weights (bound {bound:.3g})"
    kind: Literal["mallows"] = "mallows"
    bound: PositiveNumber | None = None
    power: Literal[1, 2, 3] = 2

    def words(self) -> str:
        """Return the same, with a power that is not the usual one."""
        return super().words() if self.power == Mallows().power else f"{super().words()[:-1]}, power {self.power})"


class Schweppe(AbstractWeights):
    """v(x) = min(1, C/|x|) with C = `bound`, inside the loss: phi((y - x.b) v/scale); |v x| <= C.

    The loss of v x and v y without any weight: robust losses only. None: planned.
    """

    card: ClassVar = WeightsCard(
        title="v(x) inside a robust loss: that of v y and v x, unweighted",
        formula="v(x) = min(1, t/|x|)",
        gradient_bound="t*score_bound",
        curvature_bound="t**2*curvature_peak",
        assumptions=(Assumption(text="rows with |x| > t have their residuals cut later", checked="declared"),),
    )
    phrase: ClassVar = "Schweppe weights (bound {bound:.3g})"
    kind: Literal["schweppe"] = "schweppe"
    bound: PositiveNumber | None = None


class Clip(AbstractWeights):
    """No weight: each record's gradient g is clipped to g * min(1, h/|g|), h = `bound`; None: planned.

    The usual way of machine learning, for comparison. The clipped gradient is that of no loss, so its zero is another
    parameter than the requested one (inconsistent in logistic regression), and it has no intervals.
    """

    card: ClassVar = WeightsCard(
        title="no weight: every record's gradient g is cut to g min(1, t/|g|)",
        formula="1",
        gradient_bound="t",
        curvature_bound=None,
        assumptions=(
            Assumption(
                text="no intervals and no Newton steps: the clipped gradient is that of no loss", checked="static"
            ),
            Assumption(
                text="the estimate is the point where clipped gradients cancel, which is not the model's parameter",
                checked="declared",
            ),
        ),
    )
    phrase: ClassVar = "each record's gradient clipped at {bound:.3g}"
    kind: Literal["clip"] = "clip"
    bound: PositiveNumber | None = None


Weights = Annotated[Mallows | Schweppe | Clip, Field(discriminator="kind")]
WEIGHTS: Final[tuple[type[AbstractWeights], ...]] = (Mallows, Schweppe, Clip)
"""In the order in which weights are listed."""


def gradient_bound(loss: AbstractLoss, weights: Weights) -> float:
    """Return B, the bound on the norm of a record's gradient.

    |w x| <= t and |v x| <= C, times the bound of the score; clipped gradients are as long as their clip. With an
    unknown scale the gradient has one more entry, (kappa - psi^2) w/2, between (kappa - c^2)/2 and kappa/2.
    """
    bound = weights.known_bound
    if isinstance(weights, Clip):
        return bound
    assert loss.score_bound is not None, "the planner refuses weights that bound nothing"
    along = bound * loss.score_bound
    if isinstance(loss, Huber) and loss.joint:
        return sqrt(along**2 + max(loss.kappa, loss.c**2 - loss.kappa) ** 2 / 4)
    return along


def gradient_diameter(loss: AbstractLoss, weights: Weights) -> float | None:
    """Return the largest distance of two records' gradients where it is less than 2 B.

    With an unknown scale, the entry for it moves by at most c^2/2, so sqrt((2 t c)^2 + (c^2/2)^2): the printed bound,
    valid and not attained.
    """
    if isinstance(loss, Huber) and loss.joint:
        return sqrt((2 * weights.known_bound * loss.c) ** 2 + loss.c**4 / 4)
    return None


def curvature_bound(loss: AbstractLoss, weights: Weights) -> float | None:
    """Return Bbar, the bound on a record's Hessian; None where there is none, so that none may be asked.

    Nor may that of a loss that is not convex, for the answer is a mean of positive semidefinite matrices.

    w |x|^2 <= t^2 for Mallows weights of power two or more, v^2 |x|^2 <= C^2, times the peak of the curvature. With an
    unknown scale, the Hessian times it is w 1{|r| < c} u u^T, u = (x, r), and w (|x|^2 + r^2) <= t^2 + c^2.
    """
    bound = weights.known_bound
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
        return weights.known_bound**3
    return None
