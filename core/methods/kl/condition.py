"""The KL condition as a public value: its statement, conditions that imply it, and facts that contradict it.

F is (gamma, kappa)-KL on a set when F(w) - F* <= gamma^kappa |grad F(w)|^kappa for all w in it. kappa = 2 is the
Polyak-Lojasiewicz condition; kappa towards 1, flatter minima; above 2, sharper than quadratic ones.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), section 2, lemmas 16 and 17.
"""

from math import exp, log, sqrt
from typing import Annotated, Self

from pydantic import Field

from core.privacy.facts import Facts, Frozen

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Kappa = Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)]
SMALLEST_GAP = 1e-300
"""A larger gap than the true one is always safe, and its logarithm is a number."""


class KlCondition(Frozen):
    """The declared condition on the mean loss, ridge included; checking it would need the records.

    A gamma that is too small, or a kappa that is too large, makes a method stop early with a false certificate; it
    costs no privacy.
    """

    gamma: PositiveNumber = Field(description="larger is safer, for one kappa")
    kappa: Kappa = Field(default=2.0, description="smaller is safer, with gamma raised to match (`weaker`)")

    @classmethod
    def strongly_convex(cls, modulus: float) -> Self:
        """Return what strong convexity of a modulus implies: gamma = 1/sqrt(2 modulus), kappa = 2."""
        return cls(gamma=1 / sqrt(2 * modulus), kappa=2.0)

    @property
    def flatness(self) -> float:
        """(2 - kappa)/kappa, exactly 0 at kappa = 2; 1 at kappa = 1 and towards -1 for sharp minima."""
        return 0.0 if self.kappa == 2 else (2 - self.kappa) / self.kappa  # noqa: PLR2004 - the condition's own 2

    def gap_at(self, slope: float) -> float:
        """Return the largest excess that a gradient norm allows: (gamma slope)^kappa, by way of logarithms."""
        # exp overflows just above 709.
        return 0.0 if slope == 0 else exp(min(self.kappa * log(self.gamma * slope), 700.0))

    def slope_at(self, gap: float) -> float:
        """Return the least gradient norm at an excess: gap^(1/kappa)/gamma."""
        return 0.0 if gap == 0 else exp(log(gap) / self.kappa) / self.gamma

    def weaker(self, kappa: float, gap: float) -> "KlCondition":
        """Return the condition with a smaller kappa that this one implies wherever the excess is at most `gap`.

        Source: gamma' = gamma gap^(1/kappa' - 1/kappa), from raising gap-normalised excesses to a smaller power.
        """
        assert 1 <= kappa <= self.kappa, "only a smaller kappa is implied"
        return KlCondition(gamma=self.gamma * exp(log(gap) * (1 / kappa - 1 / self.kappa)), kappa=kappa)


def known_gap(given: float | None, condition: KlCondition, clip: float, away: float, facts: Facts) -> float:
    """Return F0, the least of what is given, what the facts say of the planned start, and what the condition says.

    Args:
        given: None: nothing is declared.
        condition: of the mean loss, its ridge included.
        clip: no unit's gradient is longer; at the start no slope is longer than this and the ridge's together.
        away: distance of the start from zero.
        facts: public; their gap is about that start.
    """
    implied = condition.gap_at(clip + facts.ridge * away)
    return max(SMALLEST_GAP, min(gap for gap in (given, facts.start_gap, implied) if gap is not None))
