"""Products of skewed numbers in wide bounds: centred by what the look learned, so no interval is withheld or silent."""

import numpy as np
import pytest

from benchmarks.trust.jobs import Cell, Job, run
from benchmarks.trust.shapes import Outcome

JOBS = 4


def job(seed: int) -> Job:
    return run(Cell("area_by_price", 8000, 5, 1.0, Outcome("logistic", 0.45)), (41, seed))


@pytest.mark.parametrize("seed", range(JOBS))
def test_skewed_numbers_in_wide_bounds_have_intervals_that_cover(seed: int) -> None:
    """Off by four of its own standard errors by chance in one coefficient of 16,000."""
    found = job(seed)
    assert not found.flagged.any(), found.words
    assert found.truth is not None
    assert (np.abs(found.estimate - found.truth) < 4 * found.error).all()
    assert (found.error < 2 * found.plain_error).all()
