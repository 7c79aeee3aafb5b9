"""Predictions for rows in declared units: probabilities, mean counts or values, with what is not known of the mean.

Where the method checks itself, predictions go towards the base rate as far as noise hides the coefficients
(`core.inference.predictor`). Standard errors and intervals are of the mean by the coefficients as they are, sampling
and privacy noise together (delta method); a new observation scatters around it. They are reckoned for margins, or
logits of probabilities, and carried over, so they stay within the range of what is predicted. A row whose interval does
not hold its prediction has a flag.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Any, Final

import numpy as np
from scipy.special import expit, log_softmax, logit

from core.base.errors import Invalid
from core.data.columns import Coded
from core.inference.predicted import Predicted
from core.inference.predictor import ShrunkPredictor, predictor_of
from core.inference.released import Array, Released
from core.inference.results import asked, need_covariance, need_sound, pointwise
from core.inference.row_flags import PAST, row_flags
from core.losses.counts import Poisson
from core.models.design import Design

BLOCK_ROWS: Final = 128
"""Rows whose covariances of margins are in memory at once, at most."""
_BLOCK_NUMBERS: Final = 2**22


def predict(released: Released, rows: Sequence[Mapping[str, Any]], level: float | None = None) -> list[dict[str, Any]]:
    """Predict rows given in the dataset's own columns.

    Args:
        released: a model's row.
        rows: a value for each column of the model.
        level: of an interval of the mean; None: the prediction alone.

    Returns:
        For each row `probability` (logistic), `value` in the target's units (linear, squares), `mean` (Poisson), or
        `probabilities` by class (multinomial). With a level also `std_error` and `interval`, by class `std_errors` and
        `intervals`. `flags` where some concern this row and not all.

    Raises:
        Invalid: a row misses a column of the model or has a value that cannot be read; pointers start at /rows. Or
            an interval was asked for where there is no covariance.
    """
    need_intervals(released, level)
    encoded = np.array(encoded_rows(released.design, rows))
    offsets = np.array([released.design.encode_offset(row, f"/rows/{place}") for place, row in enumerate(rows)])
    return predict_encoded(released, encoded, offsets, level).listed()


def need_intervals(released: Released, level: float | None) -> None:
    """Refuse a level where the model's predictions have no intervals.

    Raises:
        Invalid: there is no covariance, or it is not sound.
    """
    if level is not None:
        need_covariance(released)
        need_sound(released, range(len(released.names)), "/level")


def predict_encoded(released: Released, encoded: Array, offsets: Array, level: float | None) -> Predicted:
    """Predict rows that are encoded. A row's figures do not depend on the rows beside it.

    Args:
        released: a model's row.
        encoded: shape (rows, p).
        offsets: in encoded units, shape (rows,).
        level: of the intervals; None: the predictions alone.
    """
    margins = _margins(released.coefficients.reshape(len(released.levels) or 1, -1), encoded, offsets)
    predictor = predictor_of(released)
    shown = margins if predictor is None else _shrunk(predictor, encoded, offsets)
    found = _figures(released, encoded, margins, shown, level)
    flags = row_flags(released, encoded)
    if flags is not None and found.lows is not None and found.highs is not None:
        outside = (found.middle < found.lows) | (found.middle > found.highs)
        flags = flags.also(PAST, outside.sum(axis=1) > 0)
    return replace(found, flags=flags)


def _figures(released: Released, encoded: Array, margins: Array, shown: Array, level: float | None) -> Predicted:
    """Return what margins stand for that are shown, and intervals by those of the coefficients as they are."""
    of = _by_class if released.kind == "multinomial" else _single
    if level is None:
        return of(released, shown, margins, None, 0.0)
    parts = []
    covariance = np.asarray(released.covariance)
    for start, spread in _margin_covariances(covariance, encoded, margins.shape[1]):
        rows = slice(start, start + len(spread))
        parts.append(of(released, shown[rows], margins[rows], spread, pointwise(level)))
    return Predicted.joined(parts)


def _shrunk(predictor: ShrunkPredictor, encoded: Array, offsets: Array) -> Array:
    """Return margins drawn towards the base, shape (rows, classes)."""
    margins = _margins(predictor.theta, encoded, offsets)
    for start, spread in _margin_covariances(predictor.left, encoded, margins.shape[1]):
        rows = slice(start, start + len(spread))
        margins[rows] = predictor.moderated(margins[rows], offsets[rows], spread)
    return margins


def _margins(theta: Array, encoded: Array, offsets: Array) -> Array:
    """Return the linear predictors of rows by theta of shape (classes, p)."""
    # Not by BLAS, which adds up in another order where the number of rows is another one.
    found: Array = np.einsum("ni,ci->nc", encoded, theta)
    return found + offsets[:, None]


def level_of(released: Released) -> float | None:
    """Return the level of the intervals that predictions may have: the job's own, or None where they have none."""
    try:
        need_intervals(released, asked(released, ())[0])
    except Invalid:
        return None
    return asked(released, ())[0]


def encoded_rows(design: Design, rows: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return rows as a model takes them.

    Raises:
        Invalid: a row misses a column of the model or has a value that cannot be read; pointers start at /rows.
    """
    return [design.encode_row(dict(row), f"/rows/{index}") for index, row in enumerate(rows)]


def _margin_covariances(whole: Array, encoded: Array, classes: int) -> Iterator[tuple[int, Array]]:
    """Yield a first row's place and covariances of margins from there on, shape (some rows, classes, classes)."""
    width = encoded.shape[1]
    size = classes * width
    # An unknown scale is the last parameter, and no margin depends on it.
    covariance = whole[:size, :size].reshape(classes, width, classes, width)
    flat = np.ascontiguousarray(covariance.transpose(1, 0, 2, 3)).reshape(width, -1)
    rows = max(1, min(BLOCK_ROWS, _BLOCK_NUMBERS // flat.shape[1]))
    block = np.zeros((rows, width))
    for start in range(0, len(encoded), rows):
        part = encoded[start : start + rows]
        # Every block has as many rows, so that BLAS adds up each of them in the same order.
        block[: len(part)] = part
        half = (block @ flat).reshape(rows, classes * classes, width)[: len(part)]
        yield start, np.einsum("nkj,nj->nk", half, part).reshape(-1, classes, classes)


def _single(released: Released, shown: Array, margins: Array, spread: Array | None, reach: float) -> Predicted:
    """Return one number a row, with its standard error and interval, by the margins, where there is a spread."""
    name, middle, _ = _mean(released, shown)
    if spread is None:
        return Predicted(name, middle)
    slope = _mean(released, margins)[2]
    # Rounding may make a variance of zero negative.
    error = np.sqrt(spread[:, 0].clip(min=0.0))
    lows, highs = (_mean(released, margins + sign * reach * error)[1] for sign in (-1, 1))
    return Predicted(name, middle, None, slope * error, lows, highs)


def _mean(released: Released, margin: Array) -> tuple[str, Array, Array]:
    """Return what a margin stands for, its values and their slopes in the margin."""
    if released.kind == "logistic":
        chance = expit(margin)
        return "probability", chance, chance * (1 - chance)
    if released.kind == "poisson":
        loss = released.loss
        assert isinstance(loss, Poisson), "Poisson models have that loss"
        # The fitted loss caps rates, too; exp of a larger margin could overflow.
        mean = np.exp(np.minimum(margin, log(loss.known_cap)))
        return "mean", mean, mean
    coding, loss = released.design.target, released.loss
    if released.kind == "phase_retrieval":
        return "value", coding.scale * margin**2, 2 * coding.scale * margin
    value, slope = loss.link(margin)
    return "value", coding.centre + coding.scale * value, coding.scale * slope


def _by_class(released: Released, shown: Array, margins: Array, spread: Array | None, reach: float) -> Predicted:
    """Return a probability for each class, baseline first, as `_single` does."""
    column = released.design.target_column
    assert isinstance(column, Coded), "a multinomial model's target is a category"
    middle = _softmax(shown)
    if spread is None:
        return Predicted("probabilities", middle, column.values)
    chances = _softmax(margins)
    # d chance_j / d margin_k = chance_j (1[j = k] - chance_k), k without the baseline
    slopes = chances[:, :, None] * (np.eye(chances.shape[1])[None, :, 1:] - chances[:, None, 1:])
    errors = np.sqrt(((slopes @ spread) * slopes).sum(axis=2).clip(min=0.0))
    # The logit of 0 or 1 is infinite.
    inner = np.clip(chances, 1e-300, 1 - 1e-16)
    half = reach * errors / (inner * (1 - inner))
    lows, highs = (expit(logit(inner) + sign * half) for sign in (-1, 1))
    return Predicted("probabilities", middle, column.values, errors, lows, highs)


def _softmax(margins: Array) -> Array:
    """Return the chances of all classes, the baseline first, shape (rows, classes + 1)."""
    found: Array = np.exp(log_softmax(np.pad(margins, ((0, 0), (1, 0))), axis=1))
    return found
