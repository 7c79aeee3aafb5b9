"""Laws with heavy tails against quadrature, printed values and each other."""

from collections.abc import Callable
from itertools import pairwise
from math import inf, log

import pytest
from scipy.integrate import quad

from studies.clipped.heavy_tails import (
    HeavyTail,
    IsotropicPareto,
    SkewedPareto,
    SymmetricStable,
    close_to_tail,
    root_moment,
)

SKEWED = SkewedPareto(1.5)


def expected(law: SkewedPareto, of: Callable[[float], float]) -> float:
    """Return E of(xi), by quadrature over y = U^(-1/a), in pieces."""
    density = lambda y: of(law.scale * (y - law.mean)) * law.tail * y ** (-law.tail - 1)  # noqa: E731 - one line
    ends = [1.0, law.mean, 2 * law.mean, 10.0, 100.0, 1e4, 1e7]
    return sum(quad(density, one, other, limit=400)[0] for one, other in pairwise(ends))


class TestSkewed:
    @pytest.mark.parametrize(
        ("clip", "point"),
        [(5, 0.742392), (10, 0.567212), (20, 0.420898), (50, 0.275438), (100, 0.197255), (1000, 0.0631529)],
    )
    def test_fixed_points_are_those_worked_out_before(self, clip: float, point: float) -> None:
        assert SKEWED.fixed_point(clip) == pytest.approx(point, rel=2e-6)

    @pytest.mark.parametrize("clip", [0.3, 1.0, 5.0, 50.0])
    def test_at_the_fixed_point_the_clipped_mean_is_zero(self, clip: float) -> None:
        point = SKEWED.fixed_point(clip)
        assert expected(SKEWED, lambda xi: min(max(point + xi, -clip), clip)) == pytest.approx(0, abs=1e-6 * clip)

    def test_it_falls_as_the_clip_to_the_power_one_less_the_index(self) -> None:
        slope = log(SKEWED.fixed_point(1e8) / SKEWED.fixed_point(1e7)) / log(10)
        assert slope == pytest.approx(-0.5, abs=1e-3)

    @pytest.mark.parametrize("scale", [0.01, 3.0])
    def test_a_scale_scales_all(self, scale: float) -> None:
        scaled = SkewedPareto(1.5, scale)
        assert scaled.fixed_point(7 * scale) == pytest.approx(scale * SKEWED.fixed_point(7), rel=1e-9)
        assert scaled.moment(1.3) == pytest.approx(scale**1.3 * SKEWED.moment(1.3), rel=1e-9)

    @pytest.mark.parametrize(("tail", "order"), [(1.5, 1.2), (1.6, 1.5), (2.5, 2.0), (3.0, 0.7)])
    def test_moments_are_those_of_quadrature(self, tail: float, order: float) -> None:
        law = SkewedPareto(tail, 2.0)
        rest = 2.0**order * tail / (tail - order) * 1e7 ** (order - tail)  # beyond the last piece, to first order
        assert law.moment(order) == pytest.approx(expected(law, lambda xi: abs(xi) ** order) + rest, rel=1e-4)

    def test_close_to_the_index_a_moment_is_finite_and_useless(self) -> None:
        assert SkewedPareto(1.55).moment(1.5) > 25

    @pytest.mark.parametrize(("shift", "clip"), [(0.5, 5.0), (0.5, 1.0), (-1.0, 0.7), (9.0, 2.0), (2.5, 0.5)])
    def test_what_clipping_leaves_is_that_of_quadrature(self, shift: float, clip: float) -> None:
        def clipped(xi: float) -> float:
            return min(max(shift + xi, -clip), clip)

        mean = expected(SKEWED, clipped)
        assert SKEWED.mean_clipped(shift, clip) == pytest.approx(mean, abs=2e-5 * clip)
        spread = expected(SKEWED, lambda xi: (clipped(xi) - mean) ** 2)
        assert SKEWED.variance_clipped(shift, clip) == pytest.approx(spread, abs=2e-4 * clip**2)
        kept = expected(SKEWED, lambda xi: float(abs(shift + xi) <= clip))
        assert SKEWED.unclipped(shift, clip) == pytest.approx(kept, abs=2e-3)
        factor = expected(SKEWED, lambda xi: min(1.0, clip / max(abs(shift + xi), 1e-300)))
        assert SKEWED.mean_factor(shift, clip) == pytest.approx(factor, abs=2e-4)


@pytest.mark.parametrize(("order", "moment"), [(0.5, 1.08043), (0.7, 1.22561)])
def test_stable_moments_are_those_worked_out_before(order: float, moment: float) -> None:
    assert SymmetricStable(1.5).moment(order) == pytest.approx(moment, rel=1e-5)


@pytest.mark.parametrize("law", [IsotropicPareto(1.7), SkewedPareto(1.7), SymmetricStable(1.7)], ids=str)
class TestTails:
    def test_moments_are_infinite_from_the_index_on(self, law: HeavyTail) -> None:
        assert law.moment(1.69) < inf
        assert law.moment(1.7) == inf
        assert root_moment(law, 1.9) == inf
        assert root_moment(law, 1.4) == pytest.approx(law.moment(1.4) ** (1 / 1.4))

    def test_only_skewed_noise_has_somewhere_else_to_rest(self, law: HeavyTail) -> None:
        assert (law.fixed_point(3.0) > 0.1) == isinstance(law, SkewedPareto)


def test_orders_close_to_the_index_are_named() -> None:
    assert close_to_tail(1.5, 1.5)
    assert close_to_tail(1.45, 1.5)
    assert not close_to_tail(1.3, 1.5)


@pytest.mark.parametrize(
    "make", [lambda: SkewedPareto(1.0), lambda: IsotropicPareto(1.5, 0), lambda: SymmetricStable(2.0)]
)
def test_laws_without_a_mean_or_a_tail_are_refused(make: Callable[..., object]) -> None:
    with pytest.raises(AssertionError):
        make()
