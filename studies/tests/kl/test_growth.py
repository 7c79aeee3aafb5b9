"""Conditions that follow from each other: checked on functions whose excess, slope and distance are known."""

from math import inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.methods.kl.condition import KlCondition
from studies.kl.growth import (
    Growth,
    contradictions,
    convex_within,
    from_growth,
    from_lojasiewicz,
    from_polyak,
    from_sharpness,
    growth_of,
    lojasiewicz,
    minimiser_within,
    polyak_modulus,
)
from studies.kl.problems import power

EXPONENTS = st.floats(1.05, 8)
POSITIVE = st.floats(0.01, 100)


@given(exponent=EXPONENTS, coefficient=POSITIVE, distance=st.floats(1e-3, 1e3))
def test_for_powers_growth_is_exact_and_coming_back_costs_the_exponent(
    exponent: float, coefficient: float, distance: float
) -> None:
    """Lemma 17 is tight for a |w|^p; lemma 16 then gives p times its gamma, and is a valid weaker condition."""
    condition = power(exponent, coefficient=coefficient).condition
    growth = growth_of(condition)
    assert growth.power == pytest.approx(exponent)
    excess = coefficient * distance**exponent
    assert growth.gap_at(distance) == pytest.approx(excess)
    back = from_growth(growth)
    assert back.kappa == pytest.approx(condition.kappa)
    assert back.gamma == pytest.approx(exponent * condition.gamma)
    slope = coefficient * exponent * distance ** (exponent - 1)
    assert excess <= back.gap_at(slope) * (1 + 1e-9)
    assert minimiser_within(condition, excess) == pytest.approx(distance)


def test_without_convexity_growth_says_nothing_of_slopes() -> None:
    """Lemma 16 needs convexity: w^2 + 0.9 sin(w^2) grows quadratically and has slopes of zero away from zero."""
    growth = Growth(rate=0.3**0.5, power=2.0)
    slope, excess = 0.0, 2.69 + 0.9 * 0.436
    assert growth.gap_at(2.69**0.5) < excess
    assert from_growth(growth).gap_at(slope) < excess


@given(modulus=POSITIVE, slope=POSITIVE)
def test_the_condition_of_polyak_is_kappa_2(modulus: float, slope: float) -> None:
    condition = from_polyak(modulus)
    assert condition.kappa == 2.0
    assert condition.gap_at(slope) == pytest.approx(slope**2 / (2 * modulus))
    assert polyak_modulus(condition) == pytest.approx(modulus)
    with pytest.raises(ValueError, match="kappa = 2"):
        polyak_modulus(KlCondition(gamma=1.0, kappa=1.5))


@given(exponent=st.floats(0.01, 1), constant=POSITIVE, gap=POSITIVE)
def test_an_exponent_of_lojasiewicz_is_one_over_kappa(exponent: float, constant: float, gap: float) -> None:
    condition = from_lojasiewicz(exponent, constant)
    assert condition.slope_at(gap) == pytest.approx(constant * gap**exponent)
    assert lojasiewicz(condition) == pytest.approx((exponent, constant))


@given(
    gamma=POSITIVE,
    kappa=st.floats(1.2, 6),
    lower=st.floats(0, 1),
    gap=POSITIVE,
    share=st.floats(1e-6, 1),
)
def test_a_weaker_condition_allows_all_that_the_stronger_one_does_up_to_the_gap(
    gamma: float, kappa: float, lower: float, gap: float, share: float
) -> None:
    condition = KlCondition(gamma=gamma, kappa=kappa)
    weaker = condition.weaker(1 + lower * (kappa - 1), gap)
    slope = condition.slope_at(share * gap)
    assert weaker.gap_at(slope) >= share * gap * (1 - 1e-9)
    assert weaker.slope_at(gap) == pytest.approx(condition.slope_at(gap))


@given(slope=POSITIVE, gap=POSITIVE, kappa=st.floats(2, 10), share=st.floats(1e-9, 1))
def test_sharp_minima_have_every_exponent(slope: float, gap: float, kappa: float, share: float) -> None:
    condition = from_sharpness(slope, gap, kappa)
    assert share * gap <= condition.gap_at(slope) * (1 + 1e-9)
    short = condition.model_copy(update={"gamma": 0.9 * condition.gamma})
    assert gap > short.gap_at(slope)


def test_convexity_is_kappa_1_and_says_nothing_of_growth() -> None:
    condition = convex_within(3.0)
    assert condition.gap_at(0.5) == pytest.approx(1.5)
    assert minimiser_within(condition, 1.0) == inf
    with pytest.raises(ValueError, match="kappa = 1"):
        growth_of(condition)
    with pytest.raises(ValueError, match="every kappa"):
        from_growth(Growth(rate=1.0, power=1.0))


def test_flatness_is_exactly_zero_for_polyak_and_logs_carry_extreme_figures() -> None:
    assert KlCondition(gamma=1.0).flatness == 0.0
    assert KlCondition(gamma=1.0, kappa=1.0).flatness == 1.0
    assert KlCondition(gamma=1e-200, kappa=3.0).gap_at(1e-100) == pytest.approx(0.0, abs=1e-300)
    assert log(KlCondition(gamma=1e200, kappa=1.5).gap_at(1e-100)) == pytest.approx(150 * log(10))


class TestContradictions:
    def found(self, condition: KlCondition, **figures: float | None) -> tuple[str, ...]:
        return contradictions(condition, **({"lipschitz": 3.0, "smoothness": 6.0, "gap": 1.0} | figures))

    def test_constants_of_a_power_contradict_nothing(self) -> None:
        for exponent in (2.0, 3.0, 4.0):
            one = power(exponent)
            assert not self.found(one.condition, lipschitz=one.lipschitz, smoothness=one.smoothness)
        one = power(1.5)
        assert not self.found(one.condition, lipschitz=one.lipschitz, smoothness=None)

    def test_a_gap_above_what_slopes_allow(self) -> None:
        (text,) = self.found(KlCondition(gamma=1 / 3, kappa=1.5), gap=1.1)
        assert "(gamma L0)^kappa" in text

    def test_smooth_and_sharp(self) -> None:
        (text,) = self.found(KlCondition(gamma=1.0, kappa=3.0))
        assert "at most 2" in text

    def test_a_gamma_that_smoothness_refutes(self) -> None:
        (text,) = self.found(KlCondition(gamma=0.5, kappa=2.0), smoothness=1.9)
        assert "below 1/2" in text
        assert not self.found(KlCondition(gamma=0.5, kappa=2.0), smoothness=2.0)
