"""The part of a column's spread that weights keep, and the word `weighted`, against records that are there."""

import numpy as np
import pytest
from numpy.typing import NDArray

from core.inference.looks import SeenSizes
from core.methods.m_estimation.whitened_newton.column_look import seen_sizes
from core.methods.m_estimation.whitened_newton.inference import lost_weight as lost
from core.methods.m_estimation.whitened_newton.inference.lost_weight import Parts, parts_of
from core.privacy.facts import Ranges

RANGES = Ranges(
    kinds=("constant", "number", "number"),
    lower=(1.0, -1.0, -1.0),
    upper=(1.0, 1.0, 1.0),
    target=(0.0, 1.0),
    origin=(1.0, -1.0, -1.0),
)
UNITS, BOUND, WIDTH = 40_000, 2.5, 1000.0


def encoding_of(rows: NDArray[np.float64], weight_bound: float) -> NDArray[np.float64]:
    """Return an encoding in which weighted rows have the second moments I."""
    encoding = np.linalg.inv(np.linalg.cholesky(rows.T @ rows / len(rows)))
    for _ in range(30):
        made = rows @ encoding.T
        weights = np.minimum(1, weight_bound**2 / (made**2).sum(1))
        encoding = np.linalg.inv(np.linalg.cholesky(made.T @ (made * weights[:, None]) / len(rows))) @ encoding
    return encoding


def counted(values: NDArray[np.float64], centre: float) -> SeenSizes:
    """Return sizes without noise."""
    bins = np.clip(np.floor(-np.log2(np.maximum(np.abs(values - centre), 1e-12) / WIDTH)), 0, 21).astype(int)
    return seen_sizes(np.bincount(bins, minlength=22).astype(float), 1.0, WIDTH)


@pytest.mark.parametrize(("shape", "far"), [("normal", False), ("uniform", False), ("lognormal", True)])
def test_the_kept_part_is_that_of_the_records(shape: str, far: bool) -> None:
    draws = np.random.default_rng(5)
    made = {
        "normal": draws.normal(size=UNITS),
        "uniform": draws.uniform(-2, 2, UNITS),
        "lognormal": np.exp(1.2 * draws.normal(size=UNITS)),
    }[shape]
    rows = np.column_stack((np.ones(UNITS), made, draws.normal(size=UNITS)))
    centre, encoding = np.median(rows, axis=0), encoding_of(rows, BOUND)
    parts = parts_of({1: counted(made, centre[1])}, centre, encoding, BOUND)[1]
    weights = np.minimum(1, BOUND**2 / ((rows @ encoding.T) ** 2).sum(1))
    squares = (made - centre[1]) ** 2
    assert parts.kept == pytest.approx((weights @ squares) / squares.sum(), abs=0.1)
    assert (parts.lost > 0.1) == far


def test_a_slope_has_the_word_where_far_records_may_move_it_and_takes_the_intercept_along() -> None:
    encoding, theta = np.eye(3), np.array([0.0, 2.0, 2.0])
    parts = {1: Parts(0.5, 0.4), 2: Parts(0.9, 0.01)}

    def words(errors: tuple[float, ...], ranges: Ranges = RANGES) -> tuple[bool, ...]:
        return lost.lost_weight(parts, theta, np.array(errors), encoding, ranges).weighted

    moved = lost.OTHER_EFFECT * 0.4 * 2  # .2, and .25 of the intercept one encoded unit away
    assert words((9, moved * 1.9, 0.1)) == (False, True, False)
    assert words((0.4, moved * 1.9, 0.1)) == (True, True, False)
    assert words((0.4, moved * 2.1, 0.1)) == (False, False, False)
    middle = RANGES.model_copy(update={"origin": (1.0, 0.0, 0.0)})
    assert words((0.4, moved * 1.9, 0.1), middle) == (False, True, False)


def test_columns_that_nobody_counted_have_no_part_and_classes_each_their_words() -> None:
    theta = np.array([[0.0, 2.0, 2.0], [0.0, 0.1, 2.0]])
    found = lost.lost_weight({1: Parts(0.5, 0.4)}, theta, np.full((2, 3), 0.3), np.eye(3), RANGES)
    assert found.kept == (None, 0.5, None) * 2
    assert found.weighted == (True, True, False, False, False, False)
    assert parts_of({1: SeenSizes(np.array([]), np.array([]))}, np.zeros(3), np.eye(3), BOUND) == {}
