"""Runs as they are certified (V7, V7b, V10): they keep the proofs' bounds, by a count that can fail.

As many runs may fail as 99.9 % of binomial draws with beta = .05 allow; the theorems' slack makes it none.
"""

from math import sqrt

import pytest
import torch

from studies.clipped.certificates import (
    DISTANCE,
    LAW,
    START,
    Certified,
    Sums,
    allowed_failures,
    certified,
    failures,
    leaves,
)
from studies.clipped.populations import NoisySlope
from studies.clipped.runs import UNCLIPPED, Descent, descend


@pytest.fixture(scope="module", params=["paper", "refined"])
def found(request: pytest.FixtureRequest) -> Certified:
    return certified(request.param, 100, 800, 70)


class TestCertified:
    def test_no_more_runs_fail_than_may(self, found: Certified) -> None:
        counted = failures(found)
        assert len(counted) >= 3
        assert all(count <= allowed_failures(100) for count in counted.values()), counted
        assert 5 < allowed_failures(100) < 20

    def test_all_iterates_were_looked_at(self, found: Certified) -> None:
        assert found.sums.count == 801
        assert float(found.sums.farthest.min()) >= 1, "the start is one of them"

    def test_the_average_is_no_worse_than_the_mean_of_the_gaps(self, found: Certified) -> None:
        gaps = found.sums.gaps / found.sums.count
        assert bool((found.average <= gaps * (1 + 1e-12)).all())

    def test_it_says_when_a_certificate_says_nothing(self, found: Certified) -> None:
        assert found.guarantee.vacuous == (found.bound >= 0.5)


class TestPower:
    """V7 with steps and noise that are not tiny."""

    def test_clipped_runs_stay_and_unclipped_ones_do_not(self) -> None:
        assert leaves(5.0, replicates=2000, steps=800, seed=71) == 0
        assert leaves(UNCLIPPED, replicates=2000, steps=800, seed=72) >= 0.01

    def test_the_inequalities_are_broken_by_steps_a_thousand_times_too_large(self) -> None:
        """At noise a hundred times as large, too; then the paper's counts see it."""
        problem = NoisySlope(type(LAW)(LAW.tail, 100 * LAW.scale), 100, 400, len(START))
        sums = Sums(problem, UNCLIPPED)
        descend(Descent(UNCLIPPED, 0.5, 400, start=START), problem, 5, sums)
        far = sums.farthest > sqrt(2) * DISTANCE
        assert int(far.sum()) > allowed_failures(100)
        assert int((0.5 * sums.weighted > 2 * DISTANCE**2).sum()) > allowed_failures(100)

    def test_sums_are_of_what_was_seen(self) -> None:
        problem = NoisySlope(LAW, 2, 10, 3)
        sums = Sums(problem, 1.0)
        for step, first in enumerate((2.0, 0.0)):
            sums(step, torch.tensor([[first, 0, 0], [1, 1, 1]], dtype=torch.float64))
        assert sums.gaps.tolist() == [2.0, 3.0]
        assert sums.weighted[0] == pytest.approx(2.0 * 1.0 / 4.0)
        assert sums.roots[0] == pytest.approx(sqrt(2.0))
        assert sums.best.tolist() == [0.0, 1.5]
        assert sums.farthest[0] == 2.0
