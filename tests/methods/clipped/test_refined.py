"""The refined certificates: golden values, dimensions, and never worse than the theorem they follow."""

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from core.methods.clipped.one_pass.refined import refined_convex, refined_nonconvex
from core.methods.clipped.one_pass.theory import paper_convex
from tests.support.clipped import GOLDEN, Problem, draws, off_by, scaled


def convex(given: Problem):  # noqa: ANN201 - a guarantee
    return refined_convex(given.smoothness, given.size, given.run)


def nonconvex(given: Problem):  # noqa: ANN201 - a guarantee, or None
    return refined_nonconvex(given.smoothness, given.size, given.run)


class TestGoldenValues:
    @pytest.mark.parametrize(
        ("name", "step", "bound", "active"),
        [
            ("C1", 6.46723899e-5, 3.09220059, "variance"),
            ("C2", 1.05425278e-4, 1.89707634e-2, "variance"),
            ("C3", 1.38810906e-5, 2198.42211, "bias"),
        ],
    )
    def test_of_the_average(self, name: str, step: float, bound: float, active: str) -> None:
        found = convex(GOLDEN[name])
        assert (found.step_size, found.bound) == pytest.approx((step, bound), rel=1e-8)
        assert found.active_cap == active

    def test_of_the_average_in_between(self) -> None:
        found = convex(GOLDEN["C1"])
        assert found.bias == pytest.approx(4.74596942e-2, rel=1e-8)
        run = GOLDEN["C1"].run
        variance = 1 / (found.caps["variance"] ** 2 * 2352 * run.iterates * run.l8)
        assert variance == pytest.approx(0.711512474, rel=1e-8)

    @pytest.mark.parametrize(
        ("name", "step", "bound"), [("N1", 9.14605709e-5, 4.37303201), ("N3", 6.00238274e-5, 199.720886)]
    )
    def test_without_convexity(self, name: str, step: float, bound: float) -> None:
        found = nonconvex(GOLDEN[name])
        assert found is not None
        assert (found.step_size, found.bound) == pytest.approx((step, bound), rel=1e-8)
        if name == "N1":
            assert found.bias == pytest.approx(5.67217910e-2, rel=1e-8)

    @pytest.mark.parametrize("name", ["C1", "C2", "C3"])
    def test_steps_in_place_of_iterates_are_off_them(self, name: str) -> None:
        given = GOLDEN[name]
        wrong = convex(replace(given, run=replace(given.run, steps=given.run.steps - 1)))
        assert off_by(wrong.step_size, convex(given).step_size) > 1e-7


def test_both_have_the_units_of_what_they_bound() -> None:
    random = np.random.default_rng(1)
    for given in draws(500):
        height, length = (exp(random.uniform(-5, 5)) for _ in range(2))
        after = convex(scaled(given, height=height, length=length, convex=True)).bound
        assert after == pytest.approx(convex(given).bound * height, rel=1e-12)
        slope = sqrt(given.smoothness * given.size)
        wide = replace(given, run=replace(given.run, clip=4 * slope + given.run.clip))
        moved = scaled(wide, height=height, length=length, convex=False)
        assert nonconvex(moved).bound == pytest.approx(nonconvex(wide).bound * (height / length) ** 2, rel=1e-12)


@pytest.mark.parametrize("count", [4000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_refined_bound_is_never_above_the_theorems(count: int) -> None:
    ratios = [
        paper_convex(given.smoothness, given.size, given.run).bound / convex(given).bound for given in draws(count)
    ]
    assert min(ratios) >= 1
    assert np.quantile(ratios, 0.05) > 2.8
    assert np.median(ratios) > 1e6


def test_below_four_slopes_nothing_is_certified_without_convexity() -> None:
    given = GOLDEN["N1"]
    assert nonconvex(replace(given, run=replace(given.run, clip=3.99))) is None
    assert nonconvex(given) is not None


def test_the_dimension_counts_through_the_length_of_the_noise_only() -> None:
    given = GOLDEN["C1"]
    few, many = convex(given), convex(replace(given, run=replace(given.run, dimension=1000)))
    assert many.caps.pop("noise_length") < few.caps.pop("noise_length") / 9
    assert many.caps == few.caps


def test_a_batch_divides_the_variance_and_nothing_else() -> None:
    given = GOLDEN["C1"]
    one, many = convex(given), convex(replace(given, run=replace(given.run, batch=25)))
    assert many.caps.pop("variance") == pytest.approx(5 * one.caps.pop("variance"))
    assert many.caps == one.caps


def test_without_convexity_the_neighbourhood_is_the_bias_squared() -> None:
    """With enough steps for nothing else to count: 42 B^2, whatever Delta is."""
    for gap in (1.0, 0.01):
        given = replace(GOLDEN["N1"], size=gap, run=replace(GOLDEN["N1"].run, steps=10**15, noise=0.0))
        found = nonconvex(given)
        assert found.active_cap == "bias"
        assert found.bound == pytest.approx(42 * found.bias**2, rel=1e-9)
