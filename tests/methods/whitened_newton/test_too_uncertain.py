"""Coefficients that are withheld since noise leaves them open far beyond anything plausible: a rule a test."""

import numpy as np
import pytest
from numpy.typing import NDArray

from core.inference.check_words import _SAID_OF_ONE
from core.methods.m_estimation.whitened_newton.inference.coefficient_checks import (
    HEAP_REACH,
    at_origin,
    too_uncertain,
)
from core.privacy.facts import Ranges

RANGES = Ranges(
    kinds=("constant", "few", "number", "two"),
    lower=(1.0, -1.0, -1.0, -1.0),
    upper=(1.0, 1.0, 1.0, 1.0),
    target=(0.0, 1.0),
    values=(0, 5, 0, 0),
    origin=(1.0, -1.5, -1.0, 1.0),
)
NONE = np.zeros(4, dtype=np.bool_)


def flags(
    errors: tuple[float, ...],
    *,
    centre: tuple[float, ...] = (1.0, -1.5, -1.0, 1.0),
    scale: float = 0.1,
    sparse: NDArray[np.bool_] = NONE,
    heaped: NDArray[np.bool_] = NONE,
) -> list[bool]:
    """Return flags of coefficients with these errors, by default with centres at the declared zero."""
    columns = np.array(centre), np.full(4, scale), sparse, heaped
    return too_uncertain(np.diag(np.square(errors)), RANGES, columns).tolist()


def at(place: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.arange(4) == place
    return found


def test_a_column_of_few_values_is_judged_across_its_range() -> None:
    assert flags((1.0, 2.6, 9.0, 9.0)) == [False, True, False, False]
    assert flags((1.0, 2.4, 9.0, 9.0)) == [False] * 4


def test_of_a_wide_range_six_scales_count_and_four_steps_at_least() -> None:
    wide = RANGES.model_copy(update={"values": (0, 41, 0, 0)})

    def flagged(error: float, scale: float) -> bool:
        columns = np.array(RANGES.origin), np.full(4, scale), NONE, NONE
        return bool(too_uncertain(np.diag([1.0, error**2, 1.0, 1.0]), wide, columns)[1])

    for scale, reach in ((0.1, 0.1 * HEAP_REACH), (0.01, 4 * 0.05), (9.0, 2.0)):
        assert flagged(5.1 / reach, scale)
        assert not flagged(4.9 / reach, scale)


def test_a_heaped_column_is_judged_across_six_scales() -> None:
    limit = 5 / (HEAP_REACH * 0.1)
    assert flags((1.0, 1.0, 1.01 * limit, 99.0), heaped=at(2)) == [False, False, True, False]
    assert flags((1.0, 1.0, 0.99 * limit, 99.0), heaped=at(2)) == [False] * 4
    assert flags((1.0, 1.0, 1.01 * limit, 99.0)) == [False] * 4, "a spread is judged by other checks"


@pytest.mark.parametrize(("error", "withheld"), [(2.4, False), (2.6, True)])
def test_an_intercept_that_such_a_column_carries_is_judged_by_its_error(error: float, *, withheld: bool) -> None:
    """The column's centre is 1 away from zero: of its slope's error as much is the intercept's."""
    centre = (1.0, -0.5, -1.0, 1.0)
    assert flags((error, 0.6 * error, 0.1, 0.1), centre=centre)[0] is withheld
    assert not flags((error, 0.4 * error, 0.1, 0.1), centre=centre)[0], "less than half of it"
    assert not flags((error, 0.6 * error, 0.1, 0.1))[0], "no distance"
    assert not flags((error, 0.0, 0.6 * error, 0.0), centre=(1.0, -1.5, 0.0, 1.0))[0], "of a spread column"
    assert flags((error, 0.0, 0.6 * error, 0.0), centre=(1.0, -1.5, 0.0, 1.0), heaped=at(2))[0] is withheld


def test_a_sparse_column_withholds_an_intercept_that_it_carries_however_small_the_error() -> None:
    centre = (1.0, -1.5, 0.0, 1.0)
    assert flags((0.1, 0.0, 0.06, 0.0), centre=centre, sparse=at(2)) == [True, False, False, False]
    assert flags((0.1, 0.0, 0.04, 0.0), centre=centre, sparse=at(2)) == [False] * 4


def test_the_intercept_is_that_of_declared_units() -> None:
    back = np.diag([1.0, 2.0, 3.0, 4.0])
    expected = back.copy()
    expected[0] = [1.0, -3.0, -3.0, 4.0]
    np.testing.assert_allclose(at_origin(back, RANGES), expected)
    unknown = RANGES.model_copy(update={"origin": ()})
    np.testing.assert_allclose(at_origin(back, unknown), back)


def test_it_has_words() -> None:
    assert "several logits" in _SAID_OF_ONE["too uncertain"]
