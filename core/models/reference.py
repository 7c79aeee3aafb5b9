"""The public reference design: plausible records by the declaration and the assumptions alone.

No record is read. Columns are independent. A number, integer or date is uniform on its declared range, unless a
deviation is assumed: then normal around its assumed mean (or `centre`, or the middle), cut to the range. Values of a
category or binary column are equally frequent, unless frequencies are assumed. Residuals are normal with the assumed
residual scale, or that of the loss. Events have the assumed base rate, or one half, and counts the assumed mean, or the
target's `centre` or middle. Classes are equally frequent. Features thus do not explain the target, where a logistic
model's curvature is largest.

Hessians and scores are averaged over POINTS fixed points whose columns all have exact margins: a Latin hypercube, its
order given by an integer hash (Steele, Lea and Flood, 2014). Nothing is drawn, so a prediction can be repeated.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, Coded, Column, bounds_of, centre_of
from core.losses.bases import NODES, AbstractRobust, Array
from core.losses.categorical import Multinomial
from core.losses.counts import Poisson
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.losses.weights import Clip, Mallows, Schweppe, Weights
from core.models.assumed import Assumed
from core.models.design import Design
from core.models.kinds import LogisticModel, RegressionModel
from core.models.modelling import encoded_loss
from core.privacy.facts import Sampling

POINTS: Final = 2048


@dataclass(frozen=True)
class Reference:
    """Expected matrices at the true parameters, in encoded units, shapes (p, p), an unknown scale last.

    `curvature` is the Hessian as the oracle tells it: without the ridge, and times an unknown scale.
    """

    curvature: Array
    score: Array
    scale: float
    """An unknown residual scale; 1 where none is unknown."""


def reference_of(
    design: Design, model: RegressionModel, assumed: Assumed | None = None, *, filled: float = 1.0
) -> Reference:
    """Return what matrices to expect.

    Args:
        design: the encoding.
        model: filled.
        assumed: checked assumptions; None: none.
        filled: part of a declared range, around its centre, that numbers are spread over where nothing is assumed.
    """
    assumed = assumed or Assumed()
    loss, weights = encoded_loss(model, design), model.weights
    points = _points(design, assumed, filled)
    found = expected(loss, weights, points, _spread_of(loss, design, assumed))
    sampling, dispersion = sampling_of(design, assumed), assumed.dispersion or 1.0
    if sampling is None:
        return Reference(found.curvature, found.score * dispersion, found.scale)
    return Reference(found.curvature * sampling.mean, found.score * dispersion * sampling.square, found.scale)


def sampling_of(design: Design, assumed: Assumed) -> Sampling | None:
    """Return what weights are taken to be; None where there are none."""
    coding = design.sampling
    if coding is None:
        return None
    return coding.expected(assumed.means.get(coding.column.name), assumed.deviations.get(coding.column.name))


def expected(loss: Loss, weights: Weights, points: Array, spread: float) -> Reference:
    """Return the matrices of a loss over encoded rows, shape (N, p).

    Args:
        loss: in encoded units.
        weights: not `Clip`, which has no intervals.
        points: the rows, each as likely as any other.
        spread: standard deviation of residuals, base rate, or mean count, in encoded units.
    """
    assert not isinstance(weights, Clip), "clipped gradients are those of no loss"
    assert loss.weak_convexity == 0, "no covariance is known for other losses"
    norms = np.sqrt((points**2).sum(-1))
    power = weights.power if isinstance(weights, Mallows) else 1
    # A row of zeros has no length, and it divides.
    weight = np.minimum(1.0, (weights.known_bound / np.maximum(norms, 1e-300)) ** power)
    if isinstance(loss, Huber) and loss.joint:
        return _joint(loss, points, weight, spread)
    if isinstance(weights, Schweppe):
        assert isinstance(loss, AbstractRobust), "Schweppe's weight stands inside a robust loss"
        # Interpolated: a mean over NODES for each of POINTS rows would take far longer.
        grid = np.linspace(max(weight.min(), 1e-6), 1.0, 33)
        slopes, squares = (np.interp(weight, grid, one) * weight**2 for one in loss.inside(spread, grid))
        return Reference(_moment(points, slopes), _moment(points, squares), 1.0)
    moments = loss.moments(spread)
    assert moments is not None, "losses that offer intervals have them"
    bent, scored = (np.kron(one, _moment(points, weight**power)) for power, one in enumerate(moments, 1))
    return Reference(bent, scored, 1.0)


def scattered(count: int, salt: int) -> Array:
    """Return numbers in (0, 1) without visible pattern, shape (count,); the same ones each time."""
    # The constants of SplitMix64.
    state = (np.arange(count, dtype=np.uint64) + np.uint64(1 + salt * 2**32)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    # The half keeps numbers off 0, at which ndtri is infinite.
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _points(design: Design, assumed: Assumed, filled: float) -> Array:
    """Return encoded rows, shape (POINTS, p)."""
    values: dict[str, NDArray[np.generic]] = {}
    for salt, column in enumerate((*design.columns, *design.aside)):
        spots = (np.argsort(scattered(POINTS, salt)) + 0.5) / POINTS
        values[column.name] = _values(column, spots, assumed, filled)
    rows = np.empty((POINTS, design.dimension))
    design.encode_columns(values, rows)
    return rows


def _values(column: Column, spots: Array, assumed: Assumed, filled: float) -> NDArray[np.generic]:
    """Return values of a column at these quantiles, as the store keeps them."""
    if isinstance(column, Coded):
        frequencies = assumed.frequencies.get(column.name, (1 / len(column.values),) * len(column.values))
        # Without the last sum, which rounding may leave below 1: it would open one more code.
        codes: NDArray[np.generic] = np.searchsorted(np.cumsum(frequencies)[:-1], spots, side="right")
        return codes
    lower, upper = bounds_of(column)
    centre, deviation = assumed.means.get(column.name, centre_of(column)), assumed.deviations.get(column.name)
    if deviation is None:
        # Moved inwards: the spread must lie within the declared range.
        centre = min(max(centre, lower + filled * (upper - lower) / 2), upper - filled * (upper - lower) / 2)
        return centre + filled * (upper - lower) * (spots - 0.5)
    numbers: Array = np.clip(centre + deviation * ndtri(spots), lower, upper)
    return numbers


def _spread_of(loss: Loss, design: Design, assumed: Assumed) -> float:
    """Return the residuals' deviation, the base rate or the mean count, in encoded units."""
    given = assumed.base_rate if assumed.residual_scale is None else assumed.residual_scale / design.target.scale
    if given is not None:
        return given
    usual = loss.usual_spread(0.0 if isinstance(design.target_column, Coded) else centre_of(design.target_column))
    assert usual is not None, "losses that offer intervals have one"
    return usual


def _joint(loss: Huber, points: Array, weight: Array, spread: float) -> Reference:
    """Return the matrices with an unknown scale, which is that of the errors; its row and column are apart from others.

    Of the scale: mean w 1{|r| < c} r^2, times the scale, and mean w^2 (kappa - psi^2)^2/4.
    """
    residuals = ndtri((np.arange(NODES) + 0.5) / NODES)
    scores = np.clip(residuals, -loss.c, loss.c)
    slope, square = float((residuals * scores).mean()), float((scores**2).mean())
    inner = float((residuals**2 * (np.abs(residuals) < loss.c)).mean())
    outer = float(((loss.kappa - scores**2) ** 2).mean()) / 4
    curvature = _bordered(slope * _moment(points, weight), inner * float(weight.mean()))
    score = _bordered(square * _moment(points, weight**2), outer * float((weight**2).mean()))
    return Reference(curvature, score, spread)


def _bordered(matrix: Array, corner: float) -> Array:
    """Return a matrix with one more row and column, zero but for their own corner."""
    larger = np.zeros((len(matrix) + 1, len(matrix) + 1))
    larger[:-1, :-1], larger[-1, -1] = matrix, corner
    return larger


def _moment(points: Array, weight: Array) -> Array:
    """Return the weighted mean of x x', shape (p, p)."""
    moment: Array = (points * weight[:, None]).T @ points / len(points)
    return moment


def check_assumed(assumed: Assumed, design: Design, model: RegressionModel) -> None:
    """Refuse assumptions about what is not there.

    Raises:
        Invalid: with pointers below /assume.
    """
    loss = encoded_loss(model, design)
    used = [column for column in design.used if not isinstance(column, ArrayColumn)]
    coded = {column.name: column for column in used if isinstance(column, Coded)}
    numbers = {column.name for column in used} - coded.keys()
    if isinstance(loss, Multinomial) and isinstance(design.target_column, Coded):  # how frequent its classes are
        coded[design.target_column.name] = design.target_column
    errors = []
    for field, known in (("means", numbers), ("deviations", numbers), ("frequencies", coded.keys())):
        errors += [
            FieldError(f"/assume/{field}/{name}", f"is no such feature; {field} can be assumed of {', '.join(known)}")
            for name in getattr(assumed, field)
            if name not in known
        ]
    for name, frequencies in assumed.frequencies.items():
        if name in coded and (len(frequencies) != len(coded[name].values) or abs(sum(frequencies) - 1) > 1e-6):  # noqa: PLR2004 - rounding
            errors.append(FieldError(f"/assume/frequencies/{name}", "needs one for each declared value; they sum to 1"))
    if assumed.base_rate is not None:
        most = 1.0 if isinstance(model, LogisticModel) else loss.cap if isinstance(loss, Poisson) else 0.0
        if most is not None and assumed.base_rate >= most:
            errors.append(FieldError("/assume/base_rate", "is for logistic models, below 1, and counts, below the cap"))
    if assumed.residual_scale is not None and not isinstance(loss, AbstractRobust):
        errors.append(FieldError("/assume/residual_scale", "is for linear models; leave it out"))
    if assumed.dispersion is not None and not isinstance(loss, Poisson):
        errors.append(FieldError("/assume/dispersion", "is for models of counts; leave it out"))
    if errors:
        raise Invalid(f"The assumptions do not fit the model: see {errors[0].pointer}.", *errors)
