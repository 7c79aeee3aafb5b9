"""Predictions for rows in declared units: probabilities, mean counts or values, with what is not known of the mean.

Standard errors are those of the mean that the model gives such a row, sampling and privacy noise together (delta
method); a new observation scatters around it. Intervals are reckoned for margins, or logits of probabilities, and
carried over, so they stay within the range of what is predicted.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Any, Final

import numpy as np
from scipy.special import expit, log_softmax, logit

from core.base.errors import Invalid
from core.data.columns import Coded
from core.inference.predicted import Predicted
from core.inference.released import Array, Released
from core.inference.results import asked, need_covariance, need_sound, pointwise
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
        `probabilities` by class (multinomial); with a level also `std_error` and `interval`, by class `std_errors` and
        `intervals`.

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
    classes = len(released.levels) or 1
    # Not by BLAS, which adds up in another order where the number of rows is another one.
    margins = np.einsum("ni,ci->nc", encoded, released.coefficients.reshape(classes, -1))
    margins += offsets[:, None]
    of = _by_class if released.kind == "multinomial" else _single
    if level is None:
        return of(released, margins, None, 0.0)
    parts = []
    for start, spread in _margin_covariances(released, encoded, classes):
        parts.append(of(released, margins[start : start + len(spread)], spread, pointwise(level)))
    return Predicted.joined(parts)


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


def _margin_covariances(released: Released, encoded: Array, classes: int) -> Iterator[tuple[int, Array]]:
    """Yield a first row's place and covariances of margins from there on, shape (some rows, classes, classes)."""
    width = encoded.shape[1]
    size = classes * width
    # An unknown scale is the last parameter, and no margin depends on it.
    covariance = np.asarray(released.covariance)[:size, :size].reshape(classes, width, classes, width)
    flat = np.ascontiguousarray(covariance.transpose(1, 0, 2, 3)).reshape(width, -1)
    rows = max(1, min(BLOCK_ROWS, _BLOCK_NUMBERS // flat.shape[1]))
    block = np.zeros((rows, width))
    for start in range(0, len(encoded), rows):
        part = encoded[start : start + rows]
        # Every block has as many rows, so that BLAS adds up each of them in the same order.
        block[: len(part)] = part
        half = (block @ flat).reshape(rows, classes * classes, width)[: len(part)]
        yield start, np.einsum("nkj,nj->nk", half, part).reshape(-1, classes, classes)


def _single(released: Released, margins: Array, spread: Array | None, reach: float) -> Predicted:
    """Return one number a row, with its standard error and interval where there is a spread."""
    name, middle, slope = _mean(released, margins)
    if spread is None:
        return Predicted(name, middle)
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


def _by_class(released: Released, margins: Array, spread: Array | None, reach: float) -> Predicted:
    """Return a probability for each class, baseline first."""
    column = released.design.target_column
    assert isinstance(column, Coded), "a multinomial model's target is a category"
    chances = np.exp(log_softmax(np.pad(margins, ((0, 0), (1, 0))), axis=1))
    if spread is None:
        return Predicted("probabilities", chances, column.values)
    # d chance_j / d margin_k = chance_j (1[j = k] - chance_k), k without the baseline
    slopes = chances[:, :, None] * (np.eye(chances.shape[1])[None, :, 1:] - chances[:, None, 1:])
    errors = np.sqrt(((slopes @ spread) * slopes).sum(axis=2).clip(min=0.0))
    # The logit of 0 or 1 is infinite.
    inner = np.clip(chances, 1e-300, 1 - 1e-16)
    half = reach * errors / (inner * (1 - inner))
    lows, highs = (expit(logit(inner) + sign * half) for sign in (-1, 1))
    return Predicted("probabilities", chances, column.values, errors, lows, highs)
