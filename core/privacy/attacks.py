"""Epsilon as an attacker's success: the rate of right guesses about one unit, and the rate of people found."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from core.privacy.conversions import dp_advantage, dp_power, gdp_advantage, gdp_mu, gdp_power


@dataclass(frozen=True)
class Attack:
    """The most that an attacker can do, of 100."""

    right: str
    """Right guesses."""
    found: str
    """People found of those present, where 1 in 100 of those absent may be wrongly accused."""


def attack(epsilon: float, delta: float) -> dict[str, Attack]:
    """Return the most that (epsilon, delta) lets an attacker do: where all answers are Gaussian, and for any draws."""
    mu = gdp_mu(epsilon, delta)
    return {
        "gaussian": Attack(_up(50 + 50 * gdp_advantage(mu)), _up(100 * gdp_power(mu, 0.01))),
        "any": Attack(_up(50 + 50 * dp_advantage(epsilon, delta)), _up(100 * dp_power(epsilon, delta, 0.01))),
    }


def _up(value: float) -> str:
    """Write a figure of at most 100 with three digits, rounded up."""
    digits = "0.1" if value >= 10 else "0.01"  # noqa: PLR2004 - three digits of it
    return format(min(Decimal(value).quantize(Decimal(digits), ROUND_CEILING), Decimal(100)), "f")


def right_of_100(epsilon: float, delta: float, mu: float | None) -> str:
    """Return the most right guesses of 100 about one person: from mu where it is not None (Gaussian answers only)."""
    return _up(50 + 50 * (dp_advantage(epsilon, delta) if mu is None else gdp_advantage(mu)))
