"""The calibrated settings of the escape phase: distance, length and number of rounds.

They keep what the theorem is about and drop its constants, which make it empty below some 10^12 records. Two presets:

`strict`. A certificate should be right. One round may move twice as far as its error alone could carry it in a flat
direction, so flat directions are no escapes. Within that distance the Hessian changes by a quarter of gamma_star at
most. The round is the shortest that leaves every alpha-strict saddle with probability 1/2, by the noise of its own
fresh gradient alone.

`curved`. A certificate should be as right, and is for minima that are curved alone. The distance is planned so that the
Hessian changes by a quarter of gamma_star at most, and the round as above. Persistent errors may carry an iterate as
far in flat directions, which counts as an escape. With chi = 1.5 psi the distance is psi over 2/3 gamma_star, and a
persistent error moves an iterate by psi over the curvature. A minimum that is curved by twice gamma_star in every
direction mostly stays. Less curvature suffices where gradients spread less than their bound. Alpha is some ten times
smaller.

`fast`. The distance is given by hand and the round is the shortest with that probability. Sound only where minima are
curved by more than psi over the distance. In flat directions, persistent errors move the iterate by up to step_size *
round_steps * psi. That counts as an escape, and a run ends without a certificate.

Source: [derived] ours; algorithm 1 of Tao, Zhang, Yu, Cheng, Dressler and Wang with these in place of its equations 5
and 6.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Final

from core.methods.second_order.escape import chance_beyond, persistent_deviation
from core.methods.second_order.estimation import Errors
from core.privacy.facts import Frozen

THETA: Final = 0.25
"""Part of gamma_star by which the Hessian may change within the escape distance."""
ABOVE_SIZE: Final = 1.5
"""The error radius over the root mean square of the error."""
ENOUGH: Final = 0.5
"""Chance of leaving a saddle in one round."""
LONGEST_ROUND: Final = 100_000


class Escape(Frozen):
    """Settings of the escape phase for a target."""

    error_radius: float
    """chi; the trigger is 3 chi and alpha = 4 chi."""
    escape_distance: float
    """R."""
    round_steps: int
    """Gamma."""
    chance: float
    """p_round, of leaving an alpha-strict saddle in one round."""

    def sharpest(self, hessian_smoothness: float) -> float:
        """Return gamma_star."""
        return gamma_star(self.error_radius, hessian_smoothness)


class Unfit(Exception):
    """No such settings exist for these figures; says which figure is at fault.

    Args:
        detail: the quantity that is too large, and its limit, with the figures.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def gamma_star(error_radius: float, hessian_smoothness: float) -> float:
    """Return sqrt(rho alpha) with alpha = 4 chi."""
    return sqrt(4 * hessian_smoothness * error_radius)


def kept_part(preset: str) -> float:
    """Return the part of gamma_star that is left within the escape distance; all of it where that is by hand."""
    return 1.0 if preset == "fast" else 1 - THETA


def round_chance(errors: Errors, step_size: float, escape_distance: float, round_steps: int, curvature: float) -> float:
    """Return the chance that one round, with the noise of its own fresh gradient alone, moves so far."""
    if curvature <= 0:
        return 0.0
    deviation = persistent_deviation(errors.noise_at(0.0), step_size, curvature, round_steps)
    return chance_beyond(escape_distance, deviation)


def strict(
    errors: Errors,
    drift: float,
    *,
    step_size: float,
    smoothness: float,
    hessian_smoothness: float,
    least_radius: float | None = None,
) -> Escape:
    """Return the escape phase of the preset `strict`.

    Args:
        errors: of the estimate.
        drift: kappa.
        step_size: eta.
        smoothness: M, of the mean loss.
        hessian_smoothness: rho.
        least_radius: of the gradient's error, at least; None: 1.5 psi.

    Raises:
        Unfit: alpha is so large that gamma_star passes the smoothness, or rounds would be too long.
    """
    size = errors.size(drift)
    least = ABOVE_SIZE * size if least_radius is None else least_radius
    for steps in _lengths():
        distance = 2 * step_size * steps * size
        # rho R is at most THETA gamma_star, and gamma_star^2 is 4 rho chi.
        radius = max(least, hessian_smoothness * distance**2 / (4 * THETA**2))
        sharpest = gamma_star(radius, hessian_smoothness)
        if sharpest > smoothness:
            raise Unfit(
                f"alpha = {4 * radius:.4g} is too large for smoothness {smoothness:.4g} and Hessian smoothness "
                f"{hessian_smoothness:.4g}: sqrt(rho alpha) = {sharpest:.4g} is above the smoothness, so that the "
                f"second-order condition is empty (the error of a gradient is {size:.4g})"
            )
        chance = round_chance(errors, step_size, distance, steps, (1 - THETA) * sharpest)
        if chance >= ENOUGH:
            return Escape(error_radius=radius, escape_distance=distance, round_steps=steps, chance=chance)
    raise Unfit(f"rounds of {LONGEST_ROUND} steps do not leave a saddle: its noise is too small for psi = {size:.4g}")


def curved(
    errors: Errors,
    drift: float,
    *,
    step_size: float,
    smoothness: float,
    hessian_smoothness: float,
    least_radius: float | None = None,
) -> Escape:
    """Return the escape phase of the preset `curved`; arguments and errors as above."""
    size = errors.size(drift)
    radius = ABOVE_SIZE * size if least_radius is None else least_radius
    sharpest = _checked(radius, smoothness, hessian_smoothness)
    distance = THETA * sharpest / hessian_smoothness
    return _shortest(errors, step_size, distance, radius, (1 - THETA) * sharpest)


def fast(
    errors: Errors,
    drift: float,
    *,
    step_size: float,
    smoothness: float,
    hessian_smoothness: float,
    escape_distance: float,
    least_radius: float | None = None,
) -> Escape:
    """Return the escape phase of the preset `fast`; arguments and errors as above, the distance given by hand."""
    size = errors.size(drift)
    radius = ABOVE_SIZE * size if least_radius is None else least_radius
    sharpest = _checked(radius, smoothness, hessian_smoothness)
    # A distance by hand was not planned for a Hessian that changes: all of gamma_star counts.
    return _shortest(errors, step_size, escape_distance, radius, sharpest)


def _checked(radius: float, smoothness: float, hessian_smoothness: float) -> float:
    """Return gamma_star.

    Raises:
        Unfit: it is above the smoothness.
    """
    sharpest = gamma_star(radius, hessian_smoothness)
    if sharpest > smoothness:
        raise Unfit(
            f"alpha = {4 * radius:.4g} is too large: sqrt(rho alpha) = {sharpest:.4g} is above the smoothness "
            f"{smoothness:.4g}, so that the second-order condition is empty"
        )
    return sharpest


def _shortest(errors: Errors, step_size: float, distance: float, radius: float, curvature: float) -> Escape:
    """Return the shortest round that moves so far as often as not where the loss bends down so much.

    Raises:
        Unfit: rounds would be too long.
    """
    for steps in _lengths():
        chance = round_chance(errors, step_size, distance, steps, curvature)
        if chance >= ENOUGH:
            return Escape(error_radius=radius, escape_distance=distance, round_steps=steps, chance=chance)
    raise Unfit(f"rounds of {LONGEST_ROUND} steps do not move by {distance:.4g}: lower the escape distance")


def _lengths() -> Iterator[int]:
    """Go through the numbers of steps of a round."""
    return iter(range(1, LONGEST_ROUND + 1))
