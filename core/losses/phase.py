"""Losses of the square of a margin, for phase retrieval; not convex, and clipped.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024).
"""

from abc import abstractmethod
from math import cbrt, hypot, sqrt
from typing import ClassVar, Final, Literal, Self

from pydantic import Field

from core.losses.assumption import Assumption
from core.losses.bases import CLIPPED, NOT_CONVEX, AbstractLoss, LossCard, PositiveNumber, known
from core.privacy.arithmetic import fill

_NEWTON_STEPS: Final = 60
SQUARE: Final = (
    Assumption(text="the target's declared lower bound is 0 or more", checked="static"),
    Assumption(text="the method starts at random or from numbers: at zero it would stay", checked="static"),
    Assumption(text="b and -b tell the same: which of them is found means nothing", checked="declared"),
    CLIPPED,
    NOT_CONVEX,
)


class AbstractPhase(AbstractLoss):
    """Of the square of a margin: y = (x.b)^2 is what intensities without their phase tell of b, up to its sign."""

    example: ClassVar = {"cap": 2.5}
    notes: ClassVar = ("The signs of all coefficients together are not known: the opposite of each predicts the same.",)
    score_bound: ClassVar[None] = None
    curvature_peak: ClassVar[None] = None  # the second derivative has no bound
    smoothness: ClassVar[None] = None  # the score grows without bound, or jumps
    cap: PositiveNumber | None = Field(
        default=None,
        description="largest target, in its declared units: larger ones are cut to it; null: as declared",
    )

    def filled(self, largest: float, unit: float) -> Self:
        """Return the loss with the declared bound as its cap."""
        del unit
        return fill(self, cap=largest)

    def encoded(self, unit: float) -> Self:
        """Return the loss with its cap in these units."""
        return self.model_copy(update={"cap": self.known_cap / unit})

    @property
    def known_cap(self) -> float:
        """The cap, once it is filled."""
        return known(self.cap, "cap")

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

    card: ClassVar = LossCard(
        title="(m^2 - y)^2/4",
        models=("phase_retrieval",),
        weights=("clip",),
        weak_convexity="cap",
        assumptions=SQUARE,
    )
    phrase: ClassVar = "squared error of a square, targets up to {cap:g}"
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

    card: ClassVar = LossCard(
        title="|m^2 - y|, sharp and not smooth",
        models=("phase_retrieval",),
        weights=("clip",),
        weak_convexity="2",
        assumptions=SQUARE,
    )
    phrase: ClassVar = "size of the error of a square, targets up to {cap:g}"
    weak_convexity: ClassVar[float] = 2.0  # minus the second derivative between the minima
    kind: Literal["robust"] = "robust"

    def value_at_zero(self, target: float) -> float:
        """Return y."""
        return target
