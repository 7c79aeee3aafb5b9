"""Predictor of a model whose method checks itself: it goes to the base rate as far as noise hides the coefficients.

Predictions alone use it; coefficients and their intervals stay as they are. The method's own encoding x = E v makes
columns of about unit variance, so one prior suits all slopes. Three things are drawn in:

- each eigenvector of the slopes' covariance, times tau^2/(tau^2 + variance), with tau^2 from the better-known half;
- the intercept at the columns' centres, towards the base rate, by PRIOR/(PRIOR + variance);
- a row's predictor, towards the base rate, over sqrt(1 + x'Vx/unit), with V the covariance that is left.

A linear model has no base rate: its intercept stays, and its variances are in residual scales. Post-processing.
"""

from dataclasses import dataclass
from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from core.data.contrasts import contrast_rows
from core.inference.checks import Learned
from core.inference.released import Released
from core.inference.shrinkage import TINY

Array = NDArray[np.float64]
LEAST_SPREAD: Final = 0.02
"""Smallest tau^2, in squared logits a deviation of a column."""
SURE: Final = 4.0
"""Squared deviations beyond which a direction's own square says more of its size than tau^2."""
KNOWN: Final = 0.3
"""Largest variance of such a direction: noise and scales that collapse make slopes of any length."""
PRIOR: Final = 0.5
"""Variance of the intercept about the base rate, in squared logits."""
UNIT: Final = 8 / pi
"""Variance of a predictor that halves a logit's square: the probit approximation of a logistic mean (MacKay, 1992)."""
LEAST_RATE: Final = 1e-6


@dataclass(frozen=True)
class ShrunkPredictor:
    """Coefficients that predictions use, with what is left unknown of them.

    Attributes:
        theta: encoded units, shape (classes, p), a class for each of a multinomial model but the baseline, else one.
        left: covariance of theta, shape (classes * p, classes * p).
        base: predictors of a row of which nothing is known, without its offset, shape (classes,).
        unit: variance of a predictor at which a row's distance from the base is divided by sqrt(2).
        contrasts: from contrasts of two classes' size to predictors against the baseline, shape (classes, classes).
    """

    theta: Array
    left: Array
    base: Array
    unit: float
    contrasts: Array

    def moderated(self, margins: Array, offsets: Array, spread: Array) -> Array:
        """Return predictors of rows, drawn towards the base as far as each row's is unknown.

        Args:
            margins: by `theta`, offsets included, shape (rows, classes).
            offsets: shape (rows,).
            spread: covariances of the margins, shape (rows, classes, classes).
        """
        middle = self.base[None, :] + offsets[:, None]
        apart = margins - middle
        if len(self.base) == 1:
            found: Array = middle + apart / np.sqrt(1 + spread[:, 0].clip(min=0.0) / self.unit)
            return found
        back = np.linalg.inv(self.contrasts)
        values, vectors = np.linalg.eigh(np.einsum("ai,nij,bj->nab", back, spread, back))
        along = np.einsum("nab,na->nb", vectors, np.einsum("ai,ni->na", back, apart))
        along /= np.sqrt(1 + values.clip(min=0.0) / self.unit)
        moved: Array = middle + np.einsum("ia,nab,nb->ni", self.contrasts, vectors, along)
        return moved


def predictor_of(released: Released) -> ShrunkPredictor | None:
    """Return the predictor that a release's predictions use; None: that of its coefficients as they are."""
    checks = released.checks
    covariance = None if checks is None else released.covariance or checks.unshown_covariance
    if checks is None or covariance is None:
        return None
    classes = len(released.levels) or 1
    return shrunk(released.coefficients.reshape(classes, -1), np.asarray(covariance), checks.learned)


def shrunk(theta: Array, covariance: Array, learned: Learned) -> ShrunkPredictor:
    """Shrink coefficients for predictions.

    Args:
        theta: encoded units, shape (classes, p).
        covariance: of theta, shape (classes * p, classes * p).
        learned: by the method, with its encoding and the base rate.
    """
    classes = len(theta)
    encoding, contrasts = np.asarray(learned.encoding), _contrasts(classes)
    back, unit = np.kron(contrasts, encoding.T), learned.residual_scale or 1.0
    inverse = np.linalg.inv(back)
    own, spread = inverse @ theta.ravel() / unit, inverse @ covariance @ inverse.T / unit**2
    # 1 = u'x of every row; least squares whitens the intercept with the columns, so u may have any direction.
    constant = np.linalg.inv(encoding)[0]
    level, slope = (np.kron(np.eye(classes), one) for one in (constant[:, None], null_space(constant[None, :])))
    middles = level.T / float(constant @ constant)
    middle, doubt = middles @ own, middles @ spread @ middles.T
    base = _base(learned, contrasts)
    if base is None:
        base = middle
    else:
        kept = PRIOR * np.linalg.inv(PRIOR * np.eye(classes) + doubt)
        middle, doubt = base + kept @ (middle - base), kept @ doubt
    slopes, remaining = _slopes(slope.T @ own, slope.T @ spread @ slope)
    left = level @ doubt @ level.T + slope @ remaining @ slope.T
    # Of linear models, residual scales have no natural unit: rows are measured by the predictor's own variance.
    size = UNIT if learned.residual_scale is None else unit**2 * (1 + float(slopes @ slopes))
    return ShrunkPredictor(
        theta=(unit * back @ (level @ middle + slope @ slopes)).reshape(classes, -1),
        left=unit**2 * back @ left @ back.T,
        base=unit * contrasts @ base,
        unit=size,
        contrasts=contrasts,
    )


def _contrasts(classes: int) -> Array:
    """Return the map to predictors against the baseline, from contrasts as large as a difference of two classes."""
    if classes == 1:
        return np.eye(1)
    rows = np.array(contrast_rows(classes + 1))
    found: Array = (rows[1:] - rows[0]) / np.sqrt(2)
    return found


def _base(learned: Learned, contrasts: Array) -> Array | None:
    """Return the predictors of the base rate in contrasts, less the mean offset; None: there is no such rate."""
    rates = learned.class_rates
    if rates is not None:
        logs = np.log(np.maximum(rates, LEAST_RATE))
        found: Array = np.linalg.solve(contrasts, logs[1:] - logs[0])
        return found
    rate, offset = learned.base_rate, learned.offset or 0.0
    if rate is None:
        return None
    rate = max(rate, LEAST_RATE)
    # A Poisson model learns a cap of counts, and its rate is a mean count.
    odds = rate if learned.cap is not None else rate / max(1 - rate, LEAST_RATE)
    return np.array([np.log(odds) - offset])


def _slopes(slopes: Array, covariance: Array) -> tuple[Array, Array]:
    """Return slopes along which noise is taken back, with the covariance that is left."""
    if not len(slopes):
        return slopes, covariance
    variances, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    variances = np.maximum(variances, TINY)
    along = vectors.T @ slopes
    better = slice((len(along) + 1) // 2)  # variances ascend
    usual = max(float(np.mean(along[better] ** 2 - variances[better])), LEAST_SPREAD)
    own = np.where(variances < KNOWN, np.maximum(usual, along**2 - SURE * variances), usual)
    kept = own / (own + variances)
    return vectors @ (kept * along), (vectors * (kept * variances)) @ vectors.T
