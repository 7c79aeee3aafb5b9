"""Where a model is wrong in far records, the judge excuses coefficients that say so, and no others."""

from collections.abc import Iterator
from typing import Final
from unittest.mock import patch

import pytest

from benchmarks.trust.fresh_fifth import fifth_rows
from benchmarks.trust.jobs import run
from benchmarks.trust.verdicts import broken, judge
from core.methods.m_estimation.whitened_newton.inference import lost_weight

JOBS: Final = 20
ROW: Final = next(row for row in fifth_rows() if row.cell.shape == "saturating_exposure")


def said() -> list[str]:
    found = judge([run(ROW.cell, (ROW.seed, number)) for number in range(JOBS)], ROW.named)
    return [one for one in broken(found, ROW.expected) if "plain truth" in one]


@pytest.fixture
def unsaid() -> Iterator[None]:
    with patch.object(lost_weight, "MOST_DIFFERENCE", 1e9):
        yield


def test_an_effect_with_an_end_is_covered_or_said_to_be_weighted() -> None:
    assert not said()


@pytest.mark.usefixtures("unsaid")
def test_planted_an_estimand_without_a_note_fails_the_gate() -> None:
    assert said()
