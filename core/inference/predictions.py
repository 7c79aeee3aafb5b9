"""Predictions for rows in declared units: probabilities, mean counts or values, with what is not known of the mean.

Standard errors are those of the mean that the model gives such a row, sampling and privacy noise together (delta
method); a new observation scatters around it. Intervals are reckoned for margins, or logits of probabilities, and
carried over, so they stay within the range of what is predicted.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, logit

from core.base.errors import Invalid
from core.data.columns import Coded
from core.inference.released import Array, Released
from core.inference.results import asked, need_covariance, need_sound, pointwise
from core.losses.counts import Poisson
from core.models.design import Design

BATCH = 256
"""Rows whose covariances of margins are in memory at once."""


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
    if level is not None:
        need_covariance(released)
        need_sound(released, range(len(released.names)), "/level")
    encoded = np.array(encoded_rows(released.design, rows))
    classes = len(released.levels) or 1
    margins = encoded @ released.coefficients.reshape(classes, -1).T
    margins += np.array([released.design.encode_offset(row, f"/rows/{place}") for place, row in enumerate(rows)])[
        :, None
    ]
    found: list[dict[str, Any]] = []
    for start in range(0, len(encoded), BATCH):
        part = slice(start, start + BATCH)
        spread = None if level is None else _margin_covariance(released, encoded[part], classes)
        reach = 0.0 if level is None else pointwise(level)
        tell = _by_class if released.kind == "multinomial" else _single
        found += tell(released, margins[part], spread, reach)
    return found


def level_of(released: Released) -> float | None:
    """Return the level of the intervals that predictions may have: the job's own, or None where they have none."""
    try:
        need_covariance(released)
        need_sound(released, range(len(released.names)), "/level")
    except Invalid:
        return None
    return asked(released, ())[0]


def encoded_rows(design: Design, rows: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return rows as a model takes them.

    Raises:
        Invalid: a row misses a column of the model or has a value that cannot be read; pointers start at /rows.
    """
    return [design.encode_row(dict(row), f"/rows/{index}") for index, row in enumerate(rows)]


def _margin_covariance(released: Released, encoded: Array, classes: int) -> Array:
    """Return the covariance of each row's margins, shape (rows, classes, classes)."""
    width = encoded.shape[1]
    size = classes * width
    # An unknown scale is the last parameter, and no margin depends on it.
    covariance = np.asarray(released.covariance)[:size, :size].reshape(classes, width, classes, width)
    half = np.einsum("ni,kilj->nklj", encoded, covariance)
    found: Array = np.einsum("nklj,nj->nkl", half, encoded)
    return found


def _single(released: Released, margins: Array, spread: Array | None, reach: float) -> list[dict[str, Any]]:
    """Return one number a row, with its standard error and interval where there is a spread."""
    name, middle, slope = _mean(released, margins[:, 0])
    found: list[dict[str, Any]] = [{name: value} for value in middle.tolist()]
    if spread is None:
        return found
    # Rounding may make a variance of zero negative.
    error = np.sqrt(spread[:, 0, 0].clip(min=0.0))
    lows, highs = (_mean(released, margins[:, 0] + sign * reach * error)[1] for sign in (-1, 1))
    errors = zip((slope * error).tolist(), lows.tolist(), highs.tolist(), strict=True)
    return [
        {**one, "std_error": wide, "interval": [low, high]}
        for one, (wide, low, high) in zip(found, errors, strict=True)
    ]


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


def _by_class(released: Released, margins: Array, spread: Array | None, reach: float) -> list[dict[str, Any]]:
    """Return a probability for each class, baseline first."""
    column = released.design.target_column
    assert isinstance(column, Coded), "a multinomial model's target is a category"
    chances = np.exp(log_softmax(np.pad(margins, ((0, 0), (1, 0))), axis=1))
    found: list[dict[str, Any]] = [
        {"probabilities": dict(zip(column.values, row, strict=True))} for row in chances.tolist()
    ]
    if spread is None:
        return found
    # d chance_j / d margin_k = chance_j (1[j = k] - chance_k), k without the baseline
    slopes = chances[:, :, None] * (np.eye(chances.shape[1])[None, :, 1:] - chances[:, None, 1:])
    errors = np.sqrt(np.einsum("njk,nkl,njl->nj", slopes, spread, slopes).clip(min=0.0))
    # The logit of 0 or 1 is infinite.
    inner = np.clip(chances, 1e-300, 1 - 1e-16)
    half = reach * errors / (inner * (1 - inner))
    lows, highs = (expit(logit(inner) + sign * half) for sign in (-1, 1))
    for one, wide, low, high in zip(found, errors.tolist(), lows.tolist(), highs.tolist(), strict=True):
        one["std_errors"] = dict(zip(column.values, wide, strict=True))
        one["intervals"] = {name: list(ends) for name, *ends in zip(column.values, low, high, strict=True)}
    return found
