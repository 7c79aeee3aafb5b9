"""The gate's cells on fresh data and the system's noise, five times as many jobs: the nightly half of `test_trust`.

Slacks of coverage are five deviations and more of its simulation, by the normal law 6e-7 a cell. Of a cell that ought
to be flagged, .9 of 200 jobs must be: .97 are, and fewer than that come in 1e-7 of runs by the binomial law.
"""

from secrets import randbits
from typing import Final
from unittest.mock import patch

import pytest

from benchmarks.trust import verdicts
from benchmarks.trust.grid import GATE
from benchmarks.trust.jobs import run

JOBS: Final = 200
SLACKS: Final = {"MEAN_SLACK": 5.0, "WORST_SLACK": 5.5, "LEAST_FLAGGED": 0.9}


@pytest.mark.nightly
@pytest.mark.parametrize("name", GATE)
def test_fresh_noise_keeps_the_rules(name: str) -> None:
    row, seed = GATE[name], randbits(32)
    found = verdicts.judge([run(row.cell, (seed, number)) for number in range(JOBS)], row.named)
    with patch.multiple(verdicts, **SLACKS):
        said = verdicts.broken(found, row.expected, row.stored)
    assert said == [], (seed, found)
