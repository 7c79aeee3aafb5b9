"""Rare runs (V5, V6, V15): quantiles and rates in small sizes, and what unclipped descent does beside them.

Bands are those of the studies, far wider than what chance does to quantiles that hundreds of runs are beyond; seeds are
fixed, so a verdict repeats.
"""

import pytest

from studies.clipped import tails
from studies.clipped.heavy_tails import IsotropicPareto, SkewedPareto
from studies.clipped.runs import UNCLIPPED, log_slope, quantile
from studies.clipped.tails import FIXED, averaged_root, gaps_at_the_end, private_gaps, rare_slope

FAIR, UNFAIR = IsotropicPareto(1.5), SkewedPareto(1.5)


class TestLastIterate:
    """Q(.999) over Q(.5) of 4000 runs; four runs are beyond Q(.999)."""

    def test_with_a_clip_rare_runs_are_as_usual_ones(self) -> None:
        gaps = gaps_at_the_end(3.0, replicates=4000, steps=150, seed=3)
        assert quantile(gaps, 0.999) / quantile(gaps, 0.5) <= 20
        assert rare_slope(gaps, 1e-3) <= 0.30

    def test_without_one_they_are_disasters(self) -> None:
        gaps = gaps_at_the_end(UNCLIPPED, replicates=4000, steps=150, seed=4)
        assert quantile(gaps, 0.999) / quantile(gaps, 0.5) >= 200
        assert rare_slope(gaps, 1e-3) >= 0.9


class TestRates:
    steps = (200, 800)

    def test_at_a_fixed_clip_the_rate_is_the_root_s_without_bias_and_none_with_it(self) -> None:
        fair, unfair = (
            [averaged_root(law, 4.0, k**-0.5, k, 400, 600 + k) for k in self.steps] for law in (FAIR, UNFAIR)
        )
        assert -0.65 <= log_slope(self.steps, fair) <= -0.48
        assert log_slope(self.steps, unfair) > -0.3
        assert unfair[-1] > UNFAIR.fixed_point(4.0) ** 2 / 2


class TestUnderPrivacy:
    @pytest.mark.parametrize("law", [FAIR, UNFAIR], ids=["symmetric", "skewed"])
    def test_a_fixed_clip_is_ten_times_better_in_a_rare_run(self, law: tails.Law) -> None:
        clipped = private_gaps(law, FIXED, FIXED, replicates=1000, seed=1)
        none = private_gaps(law, UNCLIPPED, FIXED, replicates=1000, seed=2)
        assert quantile(none, 0.998) > 10 * quantile(clipped, 0.998)
        if law is UNFAIR:
            assert quantile(none, 0.5) < quantile(clipped, 0.5), "its price: the bias, in usual runs"
