"""In orders: every term has the units of an error, and the forms that are printed otherwise do not."""

from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import pytest

from core.methods.clipped.one_pass.guarantee import Run, over
from core.privacy.conversions import gdp_mu
from studies.clipped.order_level import (
    Scale,
    order_bias,
    order_step_size,
    order_terms,
    privacy_cost,
)
from tests.support.clipped import Problem, draws, off_by, scaled


def printed_bias(scale: Scale, run: Run) -> float:
    """The bracket of (8), (13), (24), (29), whose last term lacks a factor sigma."""
    zeta = max(0.0, 2 * scale.slope - run.clip / 2)
    moment = run.sigma**run.alpha + zeta**run.alpha
    part = moment / run.clip ** (run.alpha - 1)
    return float(
        part * (scale.slope / run.clip + run.clip ** (run.alpha - 1) * zeta / moment + moment ** (-1 / run.alpha))
    )


def printed_step_size(scale: Scale, run: Run, *, bias: float | None = None) -> float:
    """The four caps of (8): without the jump, and with that bracket unless another one is given."""
    zeta = max(0.0, 2 * scale.slope - run.clip / 2)
    moment = run.sigma**run.alpha + zeta**run.alpha
    return min(
        1 / scale.smoothness,
        over(scale.reach, run.clip ** (1 - run.alpha / 2) * sqrt(run.steps * run.l8 * moment)),
        over(scale.reach, run.steps * (printed_bias(scale, run) if bias is None else bias)),
        over(scale.reach, run.noise * sqrt(run.dimension * run.steps * run.l8)),
    )


def printed_stat(scale: Scale, run: Run) -> float:
    """(12) as printed: clip^alpha multiplies its second term."""
    shrunk = order_terms(scale, run).stat
    zeta = max(0.0, 2 * scale.slope - run.clip / 2)
    second = scale.start * (run.sigma**run.alpha + zeta**run.alpha) * run.l8 / run.steps
    return float(shrunk - second / run.clip**run.alpha + second * run.clip**run.alpha)


def scale_of(given: Problem, *, convex: bool) -> Scale:
    return (Scale.convex if convex else Scale.nonconvex)(given.smoothness, given.size)


def moved(given: Problem, *, convex: bool) -> tuple[Problem, float, float, float]:
    """Return a problem of other units, and what errors, steps and gradients are multiplied by."""
    height, length = 7.3, 0.21
    error = height if convex else (height / length) ** 2
    return scaled(given, height=height, length=length, convex=convex), error, length**2 / height, height / length


SOME = [given for given in draws(400, seed=11) if given.run.steps > 0 and given.run.sigma > 0]


@pytest.mark.parametrize("convex", [True, False], ids=["convex", "nonconvex"])
class TestDimensions:
    def test_every_term_has_the_units_of_an_error(self, convex: bool) -> None:
        for given in SOME:
            other, error, step, steep = moved(given, convex=convex)
            before = order_terms(scale_of(given, convex=convex), given.run)
            after = order_terms(scale_of(other, convex=convex), other.run)
            for name in ("det", "stat", "bias", "dp"):
                assert getattr(after, name) == pytest.approx(getattr(before, name) * error, rel=1e-9)
            sizes = [order_step_size(scale_of(one, convex=convex), one.run) for one in (given, other)]
            assert sizes[1] == pytest.approx(sizes[0] * step, rel=1e-9)
            biases = [order_bias(scale_of(one, convex=convex), one.run) for one in (given, other)]
            assert biases[1] == pytest.approx(biases[0] * steep, rel=1e-9)

    def test_the_printed_step_size_has_not_for_it_lacks_a_factor_sigma(self, convex: bool) -> None:
        printed, restored = [], []
        for given in SOME:
            other, _, step, _ = moved(given, convex=convex)
            scales = [scale_of(one, convex=convex) for one in (given, other)]
            plain = [printed_step_size(scale, one.run) for scale, one in zip(scales, (given, other), strict=True)]
            printed.append(off_by(plain[1], plain[0] * step))
            mended = [
                printed_step_size(scale, one.run, bias=order_bias(scale, one.run))
                for scale, one in zip(scales, (given, other), strict=True)
            ]
            restored.append(off_by(mended[1], mended[0] * step))
        assert max(printed) > 1
        assert max(restored) < 1e-9

    def test_the_printed_spread_has_not_for_a_power_of_the_clip_is_upside_down(self, convex: bool) -> None:
        wrong = []
        for given in SOME:
            other, error, _, _ = moved(given, convex=convex)
            scales = [scale_of(one, convex=convex) for one in (given, other)]
            found = [printed_stat(scale, one.run) for scale, one in zip(scales, (given, other), strict=True)]
            wrong.append(off_by(found[1], found[0] * error))
        assert max(wrong) > 1


def test_the_printed_four_caps_miss_the_one_that_decides_when_noise_is_negligible() -> None:
    """Without the jump cap the step is far larger than the theorem allows."""
    scale, run = Scale.convex(1, 1), Run(1.5, 1e-6, 40.0, 10**5, 0.05, 10, 0.0)
    mended = printed_step_size(scale, run, bias=order_bias(scale, run))
    assert order_step_size(scale, run) == pytest.approx(1 / (40 * run.l8))
    assert mended > 100 * order_step_size(scale, run)


class TestSense:
    scale, run = Scale.convex(1, 1), Run(1.5, 0.1, 8.0, 10_000, 0.05, 10, 0.02)

    def test_more_steps_leave_the_bias_and_a_longer_pass_leaves_nothing_of_privacys_noise(self) -> None:
        terms = order_terms(self.scale, self.run)
        later = order_terms(self.scale, replace(self.run, steps=10**12))
        assert later.bias == terms.bias
        assert max(later.det, later.stat, later.dp) < terms.bias / 100

    def test_the_bias_vanishes_with_the_noise_where_the_clip_is_four_slopes(self) -> None:
        quiet = replace(self.run, sigma=0.0)
        assert order_terms(self.scale, quiet).bias == 0
        assert order_terms(self.scale, replace(quiet, clip=3.0)).bias > 0.4

    def test_cost_is_one_letter_for_any_rule_of_noise(self) -> None:
        assert privacy_cost(self.run) == pytest.approx(0.02 / 8 * sqrt(10 * self.run.l8 / 10_000))
        assert order_terms(self.scale, self.run).dp == pytest.approx(
            8 * privacy_cost(self.run) + privacy_cost(self.run) ** 2
        )

    def test_a_batch_divides_the_spread(self) -> None:
        one, many = order_terms(self.scale, self.run), order_terms(self.scale, replace(self.run, batch=100))
        assert many.stat < one.stat / 9.9
        assert (many.det, many.bias, many.dp) == (one.det, one.bias, one.dp)


def test_rates_fall_with_the_root_of_the_steps_to_the_neighbourhood() -> None:
    scale, steps = Scale.convex(1, 1), np.array([1e4, 1e6, 1e8])
    stats = [order_terms(scale, Run(1.5, 0.1, 4.0, int(K), exp(-3), 10, 0.0)).stat for K in steps]
    assert np.polyfit(np.log(steps), np.log(stats), 1)[0] == pytest.approx(-0.46, abs=0.03)


def paper_rule(*, sensitivity: float, steps: int, epsilon: float, delta: float) -> float:
    """Return the noise that the paper's advanced composition asks of every step, its constants filled in; for tables.

    4 S sqrt(K log(2/delta) log(2.5 K/delta))/epsilon, for epsilon at most 1: 15 to 18 times what exact composition
    of K Gaussian answers takes, and one pass over disjoint batches composes nothing at all. The constants are ours.

    Args:
        sensitivity: S, of what a step tells.
        steps: K.
        epsilon: in (0, 1].
        delta: in (0, 1).
    """
    return 4 * sensitivity * sqrt(steps * log(2 / delta) * log(2.5 * steps / delta)) / epsilon


def test_the_papers_rule_for_a_stream_is_15_to_18_times_exact_composition() -> None:
    for steps in (100, 1000, 10_000):
        for epsilon in (0.5, 1.0):
            ratio = paper_rule(sensitivity=2.0, steps=steps, epsilon=epsilon, delta=1e-5) / (
                2 * sqrt(steps) / gdp_mu(epsilon, 1e-5)
            )
            assert 14.5 < ratio < 18.5
