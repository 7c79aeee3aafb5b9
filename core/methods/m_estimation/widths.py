"""Predicted widths of methods that ask for a Hessian and a score matrix after their steps, and make intervals of them.

The intervals' formula is applied to the matrices of the public reference design (`core.models.reference`), with as much
noise as the job's questions will have. A width is the median over some noise patterns, the same ones every time. The
noise of the optimizer, of Hessian and score matrix, and all floors thus count in full, and nothing is drawn.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5.1; Farthing's own plan as in `core.inference.late_covariance`.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

from core.inference.settings import Inference, PlannedInference
from core.methods.base import Plan
from core.methods.m_estimation.predicted_covariance import (
    Array,
    Noised,
    Pooled,
    inverted,
    noised_matrices,
    penalised,
)
from core.models.outlook import Outlook
from core.privacy.arithmetic import closed
from core.privacy.facts import Facts

EXACT: Final = 1e-9
COVERAGE_PRICE: Final = 20.0
COVERAGE_SLACK: Final = 0.005


class PredictsWidths(Plan):
    """A plan that predicts the widths of its intervals from the noise of its own steps."""

    @abstractmethod
    def covariance(self, outlook: Outlook, facts: Facts, inference: PlannedInference, noised: Noised) -> Array:
        """Return the covariance that intervals would be made of, shape (R, p, p), as `core.inference.sandwich` does."""

    def pool(self, facts: Facts) -> Pooled | None:
        """Return what the intervals take of the method's own Hessians; None: it asks for none."""
        del facts
        return None

    def predict_widths(self, outlook: Outlook, facts: Facts, inference: Inference) -> tuple[Array, Array] | None:
        """Return the widths of private and non-private intervals in declared units, shape (q,) each; None: no plan."""
        if not isinstance(inference, PlannedInference):
            return None
        quantile = 2 * float(ndtri(0.5 + inference.level / 2))
        private = np.median(self._deviations(outlook, facts, inference), axis=0)
        return quantile * private, quantile * sampling_deviations(outlook, facts)

    def demerit(self, outlook: Outlook, facts: Facts, inference: Inference) -> float:
        """Return the mean logarithm of how much wider private intervals are, and a penalty; infinite: not computable.

        Matrices that are all noise may make intervals that are narrow and wrong. Each point of predicted coverage, over
        the noise patterns, below the level less COVERAGE_SLACK therefore counts as much as COVERAGE_PRICE points of
        width. The estimate's own deviation is taken from exact matrices; without intervals it alone counts.
        """
        with np.errstate(all="ignore"):
            return _or_infinite(lambda: self._demerit(outlook, facts, inference))

    def _demerit(self, outlook: Outlook, facts: Facts, inference: Inference) -> float:
        without, exact = sampling_deviations(outlook, facts), self._exact(outlook, facts, inference)
        if not isinstance(inference, PlannedInference):
            return float(np.log(exact / without).mean())
        deviations, quantile = self._deviations(outlook, facts, inference), float(ndtri(0.5 + inference.level / 2))
        wider = float(np.log(np.median(deviations, axis=0) / without).mean())
        covered = float((2 * ndtr(quantile * deviations / exact) - 1).mean())
        return wider + COVERAGE_PRICE * max(0.0, inference.level - COVERAGE_SLACK - covered)

    def _deviations(self, outlook: Outlook, facts: Facts, inference: PlannedInference) -> Array:
        """Return the deviations that each noise pattern would tell, in declared units, shape (R, q)."""
        noised = noised_matrices(outlook, facts, inference, self.pool(facts))
        return _declared(outlook, self.covariance(outlook, facts, inference, noised))

    def _exact(self, outlook: Outlook, facts: Facts, inference: Inference) -> Array:
        """Return the deviations that exact matrices would tell, in declared units, shape (q,)."""
        # Next to no noise: a zero would divide.
        figures = dict.fromkeys(("curvature_sigma", "score_sigma", "curvature_floor", "score_floor"), EXACT)
        silent = closed(inference.model_copy(update={"intervals": True, **figures}), PlannedInference)
        if self.pool(facts) is None:
            outlook = replace(outlook, patterns=1)  # without any Hessian of its own all patterns are one
        return np.asarray(np.median(self._deviations(outlook, facts, silent), axis=0))


def sampling_deviations(outlook: Outlook, facts: Facts) -> Array:
    """Return the deviations without privacy, in declared units, shape (q,)."""
    reference = outlook.reference
    inverse = inverted(penalised(reference.curvature, facts, reference.scale))
    return _declared(outlook, reference.scale**2 * inverse @ reference.score @ inverse / facts.units)


def _or_infinite(figure: Callable[[], float]) -> float:
    """Return a figure, or infinity where it cannot be computed."""
    try:
        found = float(figure())
    except np.linalg.LinAlgError:
        return inf
    return found if isfinite(found) else inf


def _declared(outlook: Outlook, covariance: Array) -> Array:
    """Return the deviations of coefficients in declared units, shape (..., q)."""
    declared = outlook.to_declared
    return np.asarray(np.sqrt(np.einsum("ij,...jk,ik->...i", declared, covariance, declared)))
