"""The contract of a loss, and the common part of the robust ones.

A loss is a function of the margin m = x.b and the target y. Its class stands in a family `core.losses.<family>`, with
constants, words, catalogue entry and one example. Its code for records is `<Loss>Records` of
`core.losses.<family>_torch`. `core.losses.registry` lists the classes, and refuses one that lacks a part when it is
imported.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri

from core.base.errors import ensure
from core.losses.assumption import Assumption
from core.privacy.arithmetic import fill
from core.privacy.facts import Frozen

Array = NDArray[np.float64]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
T = TypeVar("T")
FINITE: Final = Assumption(text="the target is a finite number; other records count as null", checked="runtime")
SCALE: Final = Assumption(
    text="scale is declared, or planned from the declared range: never computed from the records", checked="declared"
)
NOT_CONVEX: Final = Assumption(text="no intervals and no Newton steps: the loss is not convex", checked="static")
CLIPPED: Final = Assumption(text="gradients are clipped: nothing else bounds them", checked="static")
ROBUST: Final = (
    "Coefficients are of a location that large residuals do not move, which is not the mean where residuals are "
    "skewed. Loss squared is of the mean."
)
NODES: Final = 400
"""Equally likely residuals, over which a score's moments are averaged."""
RESIDUALS_PER_RANGE: Final = 8
"""Without a declared scale, a residual scale is taken to be the target's declared range divided by this."""


def known(figure: T | None, name: str) -> T:
    """Return a figure that planning has filled.

    Raises:
        PrivacyInvariantError: it is open still.
    """
    ensure(figure is not None, f"{name} is open: planning fills it")
    return cast("T", figure)


class LossCard(Frozen):
    """A loss's entry: constants as formulas in the fields of the loss, None where there is none."""

    title: str
    models: tuple[str, ...] = Field(description="the kinds of models that may have it")
    weights: tuple[str, ...] = Field(default=("mallows", "clip"), description="the kinds of weights that it goes with")
    score_bound: str | None = Field(default=None, description="most of |d loss/d margin|")
    curvature_peak: str | None = Field(default=None, description="most of the second derivative in the margin")
    weak_convexity: str | None = Field(default="0", description="most of minus it; null: no bound before clipping")
    concordance: str | None = Field(default=None, description="least gamma of |f'''| <= gamma f''")
    assumptions: tuple[Assumption, ...]


def robust_card(
    title: str, concordance: str | None = None, score_bound: str = "c", weak_convexity: str = "0", *more: Assumption
) -> LossCard:
    """Return the entry of a robust loss."""
    return LossCard(
        title=title,
        models=("linear",),
        weights=("mallows", "schweppe", "clip"),
        score_bound=score_bound,
        curvature_peak="1/scale",
        weak_convexity=weak_convexity,
        concordance=concordance,
        assumptions=(FINITE, SCALE, *(() if weak_convexity == "0" else (NOT_CONVEX,)), *more),
    )


class AbstractLoss(Frozen, ABC):
    """Promises of a loss for every record; figures are for scales in the units of the margin."""

    card: ClassVar[LossCard]
    example: ClassVar[Mapping[str, Any]]
    """Settings of a loss with nothing open; the laws of the tests hold it to every promise."""
    phrase: ClassVar[str]
    """The loss in a summary, a template of its figures in declared units."""
    notes: ClassVar[tuple[str, ...]] = ()
    """Sentences of a summary: an unusual meaning of coefficients."""

    if TYPE_CHECKING:  # a field of each loss

        @property
        def kind(self) -> str:
            """Name in requests."""

    def words(self) -> str:
        """Return the loss as a phrase of a summary, its figures in declared units."""
        return self.phrase.format(**vars(self))

    @property
    @abstractmethod
    def score_bound(self) -> float | None:
        """Sup |d loss/d margin|; None where it has none."""

    @property
    @abstractmethod
    def curvature_peak(self) -> float | None:
        """Sup of the second derivative in the margin, times an unknown scale; None where it has no bound."""

    @property
    def concordance(self) -> float | None:
        """The smallest gamma of |f'''| <= gamma f'' in the margin; None where there is none."""
        return None

    @property
    def smoothness(self) -> float | None:
        """The Lipschitz constant of the score in the margin; None where there is none, or the score jumps.

        It is the curvature's peak, corners of the score included, of convex losses and of those that bend down less.
        """
        return self.curvature_peak

    @property
    def weak_convexity(self) -> float | None:
        """Sup of minus the second derivative in the margin, 0 for convex losses; None where it has none."""
        return 0.0

    @property
    def third_derivative(self) -> float | None:
        """Sup |third derivative in the margin|, of losses that bend down: of them alone is it asked.

        None where it has no bound, the second derivative jumps, or the loss is convex.
        """
        return None

    def clipped_third_derivative(self, slope: float) -> float | None:
        """Return the same over margins at which the score is at most `slope` long: where nothing is clipped."""
        del slope  # a part of all margins
        return self.third_derivative

    def clipped_smoothness(self, slope: float) -> float | None:
        """Return the Lipschitz constant of the score once it is clipped to [-slope, slope]."""
        del slope  # clipping makes no score change faster
        return self.smoothness

    def clipped_weak_convexity(self, slope: float) -> float | None:
        """Return the weak convexity of the loss whose score is this one's, clipped to [-slope, slope]."""
        del slope  # nor bend further down
        return self.weak_convexity

    @abstractmethod
    def gap_at_zero(self, reach: float) -> float:
        """Return how far the loss at margin zero may be above its least value over all margins.

        Args:
            reach: the largest size of a target, encoded as the loss sees it.
        """

    @property
    def one_margin(self) -> bool:
        """False: of several margins or an unknown scale, so that `core.queries.sums` has a problem of its own."""
        return True

    def filled(self, largest: float, unit: float) -> Self:
        """Return the loss with open figures filled.

        Args:
            largest: the declared upper bound of a target that is a number.
            unit: half of its declared range, in its declared units.
        """
        del largest, unit  # most losses leave nothing open
        return self

    def encoded(self, unit: float) -> Self:
        """Return the loss with its figures on targets in such units."""
        del unit  # most have no figure in the target's units
        return self

    def link(self, margin: Array) -> tuple[Array, Array]:
        """Return what margins of a linear model stand for in encoded units, and its slopes, same shape."""
        return margin, np.ones_like(margin)

    def usual_spread(self, centre: float) -> float | None:
        """Return the deviation of residuals, share of events or mean count that is expected; None: no forecast.

        Args:
            centre: the target's usual value, in its declared units.
        """
        del centre
        return None

    def moments(self, spread: float) -> tuple[Array, Array] | None:
        """Return the mean second derivative and the mean square of the score, in the margins, shape (K, K) each.

        None: no forecast. The registry refuses that of a loss that offers intervals.
        """
        del spread
        return None


class AbstractRobust(AbstractLoss):
    """scale * rho((y - m)/scale) with |rho'| bounded, rho'' <= 1 and rho(0) = 0 its least value."""

    example: ClassVar = {"scale": 2.5, "c": 0.9}
    notes: ClassVar[tuple[str, ...]] = (ROBUST,)
    concordance_factor: ClassVar[float | None] = None
    c: PositiveNumber = 1.345
    scale: PositiveNumber | None = Field(
        default=None, description="known residual scale, in the target's declared units; null: planned"
    )

    @abstractmethod
    def rho(self, residual: float) -> float:
        """Return rho of a scaled residual of at least zero; it grows with it."""

    @abstractmethod
    def psi(self, residual: Array) -> Array:
        """Return the derivative of rho at scaled residuals of either sign, same shape."""

    def filled(self, largest: float, unit: float) -> Self:
        """Return the loss with a scale from the declared range, which is two units of the encoding."""
        del largest
        return fill(self, scale=2 * unit / RESIDUALS_PER_RANGE)

    def encoded(self, unit: float) -> Self:
        """Return the loss with its scale in these units."""
        return self.model_copy(update={"scale": self.known_scale / unit})

    def usual_spread(self, centre: float) -> float:
        """Return the scale."""
        del centre
        return self.known_scale

    def moments(self, spread: float) -> tuple[Array, Array]:
        """Return the same for normal residuals of this deviation."""
        return self.inside(spread, np.ones((1, 1)))

    def inside(self, spread: float, weights: Array) -> tuple[Array, Array]:
        """Return the same, where residuals are multiplied by weights and the derivatives are not, shape of the weights.

        With r = v spread Z/scale for a weight v, E psi'(t Z) = E Z psi(t Z)/t: no second derivative is needed.
        """
        normal = ndtri((np.arange(NODES) + 0.5) / NODES)
        size = spread / self.known_scale * weights[..., None]
        scores = self.psi(size * normal)
        return (normal * scores).mean(-1) / size[..., 0] / self.known_scale, (scores**2).mean(-1)

    @property
    def known_scale(self) -> float:
        """The scale, once it is filled."""
        return known(self.scale, "scale")

    @property
    def score_bound(self) -> float:
        """Sup |rho'|: c, unless a loss says otherwise."""
        return self.c

    @property
    def curvature_peak(self) -> float:
        """1/scale."""
        return 1 / self.known_scale

    def gap_at_zero(self, reach: float) -> float:
        """Return scale rho(reach/scale)."""
        return self.known_scale * self.rho(reach / self.known_scale)

    @property
    def concordance(self) -> float | None:
        """The factor over c and the scale."""
        return None if self.concordance_factor is None else self.concordance_factor / (self.c * self.known_scale)
