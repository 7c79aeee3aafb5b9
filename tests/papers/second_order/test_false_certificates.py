"""Rates of phases at a saddle that end without an escape, by the start of their rounds: fresh ones may be trusted.

The optimizer's own controller and estimator, over the mean gradient of rank-one PCA, |u|^2 u - Sigma u, and noise of a
stated size: N(0, r1^2) on a fresh gradient, N(0, (r2 |D|)^2) on a change. The start is beyond the strict saddle
sqrt(lambda_2) v_2. Seeds are fixed. The table has 400 runs of each (slow); with fresh rounds at Gamma = 140 a rate of
0.008 passes 0.03 by chance in less than one of 1000 tables.
"""

from math import sqrt
from statistics import mean

import pytest

from core.methods.second_order import ada_spider
from studies.second_order import levels
from studies.second_order.rounds import GATED, rounds_to_escape, saddle_phases, stays
from tests.support.second_order import planted


def test_fresh_rounds_seldom_certify_a_saddle() -> None:
    """The gate, on 20 runs: none of them, as of 400 in the prototype."""
    phases = saddle_phases("fresh", GATED, 0.0, 20)
    assert stays(phases) <= 0.03
    first = mean(one.escaped and one.rounds == 1 for one in phases)
    assert abs(first - 0.83) < 4.5 * sqrt(0.83 * 0.17 / 20)
    assert rounds_to_escape(phases) > 1, "where one round has failed another one may not"


@pytest.mark.parametrize("mode", ["rewind", "continue"])
def test_rounds_that_share_one_noise_are_one_round(mode: str) -> None:
    """Without noise in changes all rounds of a phase are the same one: it escapes in the first, or never."""
    phases = saddle_phases(mode, GATED, 0.0, 8)
    assert rounds_to_escape(phases) == 1
    assert stays(phases) == pytest.approx(1 - mean(one.escaped and one.rounds == 1 for one in phases))


def test_rounds_that_are_fresh_in_name_only_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: nothing is asked afresh. Then no phase leaves in its second round or later."""
    wrong = planted(ada_spider, 'if mode == "fresh":', 'if mode == "never":')
    monkeypatch.setattr(levels, "AdaSpider", wrong.AdaSpider)
    assert rounds_to_escape(saddle_phases("fresh", GATED, 0.0, 10)) == 1
