"""Lemma B.1 by numerical integration, on skewed Pareto noise of known moments: never below, and not far above."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from core.methods.clipped.one_pass.guarantee import Run
from core.methods.clipped.one_pass.lemma import bias_bound, variance_bound, worst_bias

_PLACES = np.linspace(0.0, 400.0, 80_001)  # y = -log t, of t uniform on (0, 1)
_WEIGHTS = np.full(len(_PLACES), _PLACES[1]) * np.exp(-_PLACES)
_WEIGHTS[0] /= 2
_WEIGHTS /= _WEIGHTS.sum()


@dataclass(frozen=True)
class Pareto:
    """t^(-1/tail) less its mean, t uniform: skewed, of mean zero, with moments below its tail index alone."""

    tail: float

    @property
    def values(self) -> np.ndarray:
        return np.exp(_PLACES / self.tail) - self.tail / (self.tail - 1)

    def size(self, order: float) -> float:
        """Return the root of its absolute moment, by the substitution that keeps the integrand bounded."""
        rest = 1 - order / self.tail
        places = np.linspace(0.0, 60.0 / rest, 200_001)
        heights = np.abs(1 - self.tail / (self.tail - 1) * np.exp(-places / self.tail)) ** order * np.exp(
            -rest * places
        )
        return float(np.trapezoid(heights, places) ** (1 / order))


def ratios(tail: float, order: float, *, tight: bool) -> tuple[float, float]:
    """Return the largest ratios of what clipping does to what the lemma allows."""
    noise = Pareto(tail)
    values, size = noise.values, noise.size(order)
    worst = [0.0, 0.0]
    for clip, norm, sign in product((0.1, 0.3, 1, 3, 10, 30, 100), (0, 0.1, 0.5, 1, 2, 5, 10, 20), (1, -1)):
        clipped = np.clip(norm + sign * values, -clip, clip)
        mean = float(_WEIGHTS @ clipped)
        variance = float(_WEIGHTS @ (clipped - mean) ** 2)
        aimed = min(norm, clip / 2)
        worst[0] = max(worst[0], abs(mean - aimed) / bias_bound(norm, order, size, clip, tight=tight))
        worst[1] = max(worst[1], variance / variance_bound(norm, order, size, clip, tight=tight))
    return worst[0], worst[1]


TAILS = [(1.3, 1.1), (1.3, 1.25), (1.5, 1.2), (1.5, 1.45), (1.8, 1.5), (1.8, 1.7), (2.5, 1.5), (2.5, 2.0)]


def test_the_oracles_moment_is_right() -> None:
    """Of order 2 in closed form: tail/((tail - 1)^2 (tail - 2)); and of order 1.5 by many quantiles."""
    assert Pareto(2.5).size(2.0) ** 2 == pytest.approx(2.5 / (1.5**2 * 0.5), rel=1e-6)
    assert _WEIGHTS @ Pareto(2.5).values == pytest.approx(0.0, abs=1e-4)


def test_the_bounds_hold_and_are_within_a_factor_of_30() -> None:
    """A bound that was computed 100 times too large would hold as well."""
    found = np.array([ratios(tail, order, tight=False) for tail, order in TAILS])
    assert found.max() <= 1
    assert found[:, 0].max() >= 0.03
    assert found[:, 1].max() >= 0.03


def test_the_tight_forms_hold_and_are_tighter() -> None:
    plain = np.array([ratios(tail, order, tight=False) for tail, order in TAILS])
    tight = np.array([ratios(tail, order, tight=True) for tail, order in TAILS])
    assert tight.max() <= 1
    assert (tight >= plain).all()
    assert tight[:, 0].max() > 1.5 * plain[:, 0].max()


def test_a_comparison_with_the_whole_clip_would_not_be_the_lemmas() -> None:
    """The bias is that against clip(x, lambda/2): a large gradient without noise is off by half the clip, exactly."""
    assert bias_bound(20.0, 1.5, 0.0, 10.0) >= 5.0
    assert bias_bound(4.0, 1.5, 0.0, 10.0) == 0.0


def test_the_worst_bias_is_the_lemmas_where_the_true_gradient_is_largest() -> None:
    for largest, clip in ((2.0, 1.0), (2.0, 3.9), (2.0, 4.0), (2.0, 40.0)):
        run = Run(1.5, 0.3, clip, 100, 0.05, 3, 0.0)
        assert worst_bias(largest, run) == pytest.approx(bias_bound(largest, 1.5, 0.3, clip), rel=1e-12)
