"""The judge of forecasts: widths of a cell's jobs lie between the ends of one who knows the population."""

from unittest.mock import patch

import pytest

from benchmarks.trust.forecasts import Foretold, foretold, misforetold, population_of
from benchmarks.trust.jobs import Cell, drawn, run
from benchmarks.trust.shapes import Outcome
from core.planning import width_ranges

CELL = Cell("normal", 2000, 4, 1.0, Outcome("logistic", 0.3))
COUNTS = Cell("indicators", 6000, 4, 1.0, Outcome("poisson", 60.0, noise="thirtyfold"), wide=15.0)


def judged(cell: Cell) -> Foretold:
    found = foretold(cell, [run(cell, (5, seed)) for seed in range(6)])
    assert found is not None
    return found


def test_a_sound_cell_is_foretold() -> None:
    found = judged(CELL)
    assert found.inside == 1
    assert found.above < 1 < found.ratio
    assert not misforetold(found)


def test_planted_an_upper_end_below_the_formula_is_seen() -> None:
    with patch.object(width_ranges, "OUTER", 0.7):
        (said,) = misforetold(judged(CELL))
    assert "outside their ends" in said


def test_planted_counts_that_are_taken_to_vary_by_poissons_law_are_seen() -> None:
    assert population_of(COUNTS, drawn(COUNTS, 1)).dispersion == pytest.approx(30, rel=0.2)
    assert not misforetold(judged(COUNTS))
    with (
        patch.object(width_ranges, "_dispersed", lambda counts, _: counts),
        patch(
            "benchmarks.trust.forecasts.population_of",
            lambda cell, data: population_of(cell, data).model_copy(update={"dispersion": None}),
        ),
    ):
        assert misforetold(judged(COUNTS))


def test_what_is_called_informative_is_at_most_twice_as_wide() -> None:
    found = Foretold(inside=1.0, above=0.9, informative=True, ratio=2.5)
    assert misforetold(found) == ["called informative at 2.50 times the non-private width"]
