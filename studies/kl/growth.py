"""Implications among the KL condition, growth around the minimisers, and other conditions of their kind.

F has (rate, power)-growth when F(w) - F* >= rate^power |w - w_p|^power, w_p the nearest minimiser. Constants lost on
the way from one condition to another and back are those of the lemmas.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), section 2, lemmas 16 and 17, remark 18.
"""

from math import exp, inf, log

from pydantic import Field

from core.methods.kl.condition import KlCondition, PositiveNumber
from core.privacy.facts import Frozen

_ROUNDING = 1 - 1e-9


class Growth(Frozen):
    """F(w) - F* >= (rate * distance to the nearest minimiser)^power."""

    rate: PositiveNumber
    power: float = Field(ge=1, allow_inf_nan=False, description="2: quadratic; 1: sharp")

    def gap_at(self, distance: float) -> float:
        """Return the least excess at a distance."""
        return 0.0 if distance == 0 else exp(self.power * log(self.rate * distance))


def growth_of(condition: KlCondition) -> Growth:
    """Return the growth that a KL condition implies, convex or not: rate (kappa - 1)/(gamma kappa), kappa/(kappa - 1).

    Source: lemma 17, which has kappa >= 1; at 1 the power has no finite value.

    Raises:
        ValueError: kappa is 1, with which no growth comes.
    """
    if condition.kappa == 1:
        raise ValueError("kappa = 1 says nothing of growth: take a larger kappa, with its own gamma")
    power = condition.kappa / (condition.kappa - 1)
    return Growth(rate=1 / (condition.gamma * power), power=power)


def from_growth(growth: Growth) -> KlCondition:
    """Return the KL condition that growth implies of a *convex* F: gamma = 1/rate, kappa = power/(power - 1).

    F - F* <= |grad F| |w - w_p| by convexity, and |w - w_p| <= (F - F*)^(1/power)/rate. Source: lemma 16.

    Raises:
        ValueError: the power is 1: sharp minima have a KL condition of every kappa, see `from_sharpness`.
    """
    if growth.power == 1:
        raise ValueError("sharp minima have every kappa: choose one and take from_sharpness")
    return KlCondition(gamma=1 / growth.rate, kappa=growth.power / (growth.power - 1))


def from_polyak(modulus: float) -> KlCondition:
    """Return F - F* <= |grad F|^2/(2 modulus), the Polyak-Lojasiewicz condition: kappa = 2."""
    return KlCondition.strongly_convex(modulus)


def polyak_modulus(condition: KlCondition) -> float:
    """Return the modulus of `from_polyak`, 1/(2 gamma^2).

    Raises:
        ValueError: kappa is not 2.
    """
    if condition.kappa != 2:  # noqa: PLR2004 - the condition's own
        raise ValueError("only kappa = 2 is the Polyak-Lojasiewicz condition")
    return 1 / (2 * condition.gamma**2)


def from_lojasiewicz(exponent: float, constant: float) -> KlCondition:
    """Return |grad F| >= constant (F - F*)^exponent as a KL condition: kappa = 1/exponent, gamma = 1/constant.

    Args:
        exponent: theta, in (0, 1].
        constant: positive.
    """
    assert 0 < exponent <= 1, "an exponent above 1 is no condition near a minimiser"
    return KlCondition(gamma=1 / constant, kappa=1 / exponent)


def lojasiewicz(condition: KlCondition) -> tuple[float, float]:
    """Return the exponent and the constant of `from_lojasiewicz`: 1/kappa and 1/gamma."""
    return 1 / condition.kappa, 1 / condition.gamma


def from_sharpness(slope: float, gap: float, kappa: float) -> KlCondition:
    """Return the KL condition of any kappa where no gradient is shorter than `slope` and no excess above `gap`.

    (gap^(1/kappa)/slope * |grad F|)^kappa >= gap wherever |grad F| >= slope.
    """
    return KlCondition(gamma=exp(log(gap) / kappa) / slope, kappa=kappa)


def convex_within(radius: float) -> KlCondition:
    """Return what every convex F has within a distance of a minimiser: gamma = radius, kappa = 1 (Cauchy-Schwarz)."""
    return KlCondition(gamma=radius, kappa=1.0)


def minimiser_within(condition: KlCondition, gap: float) -> float:
    """Return the radius around a start of that gap within which there is a minimiser, if the condition holds there.

    kappa/(kappa - 1) gamma gap^((kappa - 1)/kappa), from the growth of lemma 17; infinite at kappa = 1. Source: remark
    18.
    """
    if condition.kappa == 1:
        return inf
    growth = growth_of(condition)
    return exp(log(gap) / growth.power) / growth.rate


def contradictions(
    condition: KlCondition, *, lipschitz: float, smoothness: float | None, gap: float
) -> tuple[str, ...]:
    """Return, in words, what declared constants cannot all be true, or are looser than need be.

    * F0 <= (gamma L0)^kappa wherever the condition holds at the start;
    * no smooth loss has kappa above 2 near its minimisers;
    * smoothness gives |grad F|^2 <= 2 L1 (F - F*), and with the condition gamma^2 L1 F0^-e >= 1/2, e = (2-kappa)/kappa,
      wherever the gap F0 is attained.

    Args:
        condition: of the mean loss.
        lipschitz: L0.
        smoothness: L1; None: the loss has kinks.
        gap: F0.
    """
    found = []
    most = condition.gap_at(lipschitz)
    if gap * _ROUNDING > most:
        found.append(
            f"the start's gap {gap:.4g} is above (gamma L0)^kappa = {most:.4g}, the most that the condition allows"
        )
    if smoothness is None:
        return tuple(found)
    if condition.kappa > 2:  # noqa: PLR2004 - the condition's own
        return (
            *found,
            f"no smooth loss has kappa = {condition.kappa:.4g}: it is at most 2 where gradients are Lipschitz",
        )
    stretch = condition.gamma**2 * smoothness * exp(-condition.flatness * log(gap))
    if stretch < 0.5 * _ROUNDING:
        found.append(
            f"gamma^2 L1 F0^-(2-kappa)/kappa is {stretch:.4g}, below 1/2: the gap is looser than the condition "
            "allows, or gamma or the smoothness is too small"
        )
    return tuple(found)
