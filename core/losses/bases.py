"""Base classes of the catalogue's losses: the promises of all, and the common part of the robust ones."""

from abc import ABC, abstractmethod
from typing import Annotated

from pydantic import Field

from core.privacy.facts import Frozen

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scale = PositiveNumber | None


class AbstractLoss(Frozen, ABC):
    """Promises of a loss for every record; figures are for scales in the units of the margin."""

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


class AbstractRobust(AbstractLoss):
    """scale * rho((y - m)/scale) with |rho'| bounded, rho'' <= 1 and rho(0) = 0 its least value."""

    c: PositiveNumber = 1.345
    scale: Scale = Field(
        default=None, description="known residual scale, in the target's declared units; null: planned"
    )

    @abstractmethod
    def rho(self, residual: float) -> float:
        """Return rho of a scaled residual of at least zero; it grows with it."""

    @property
    def known_scale(self) -> float:
        """The scale, once it is filled."""
        assert self.scale is not None, "the planner fills the residual scale"
        return self.scale

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

    def _concordance(self, factor: float) -> float | None:
        return factor / (self.c * self.known_scale)
