"""The last step of least squares, and its covariance, from noised sums by bands of the residual's size.

With g the sum of all bands' gradients, theta - M^-1 g solves the weighted normal equations. No residual is left out, so
the interval holds whatever the tails are: the `counted` line. The `light` line, of the same answers, takes only bands
up to the largest one whose records are seen. It assumes that nobody lies beyond, and is narrower where bounds are wide.

Post-processing of noised answers: nothing here costs anything or meets a record. Residuals are in residual scales.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from core.inference.shrinkage import TINY, assembled, drawn_in, kept_part, shrink
from core.methods.m_estimation.whitened_newton.inference.last_step import (
    HIDDEN_DEVIATIONS,
    HIDDEN_PART,
    LEAST_MEAN_PART,
    LEAST_SCORES,
    MEAN_FLOOR,
    NOISE_FLOOR,
    NoisedAnswer,
)
from core.methods.m_estimation.whitened_newton.shares import NEAREST

Array = NDArray[np.float64]
RATIO: Final = 3.0
"""Of one edge to the next, about."""
SEEN: Final = 3.0
"""Deviations of the noise beyond which a band's energy, or its records, are seen."""


def edges_up_to(reach: float, most: int) -> tuple[float, ...]:
    """Return the bands' upper edges: from NEAREST up to the reach, in steps of about RATIO, or one band alone.

    Args:
        reach: largest residual that counts whole, in residual scales.
        most: number of bands.
    """
    if reach <= NEAREST:
        return (reach,)
    steps = min(max(1, round(log(reach / NEAREST) / log(RATIO))), most - 1)
    between = [NEAREST * (reach / NEAREST) ** (place / steps) for place in range(steps)]
    return (*between, reach)


@dataclass(frozen=True)
class BandLine:
    """An estimate with its covariance, shapes (p,) and (p, p)."""

    theta: Array
    covariance: Array
    sampling: Array


@dataclass(frozen=True)
class Banded:
    """The last answers of least squares, at one point; by band where an axis is of length K."""

    theta: Array
    """Where residuals are, shape (p,)."""
    edges: Array
    """Shape (K,)."""
    design: NoisedAnswer
    """M, the mean of w x x'."""
    gradients: Array
    """Shape (K, p), each with its own noise."""
    gradient_deviations: Array
    scores: Array
    """Shape (K, p, p)."""
    score_deviations: Array
    energies: Array
    """Means of w^2 x'x r^2/p: a band's part of the scores' mean eigenvalue."""
    energy_deviations: Array
    counts: Array
    """Shares of all records."""
    count_deviation: float
    units: int
    unidentified: float
    """Plausible deviation of the predictor along a hidden direction, in residual scales."""

    @property
    def size(self) -> int:
        """Number of coefficients, p."""
        return len(self.theta)

    @cached_property
    def _shrunk(self) -> tuple[Array, Array, float, float]:
        """Eigenvectors and floored eigenvalues of M, the part of their spread that is kept, and their mean."""
        found = shrink(self.design.value, self.design.deviation, LEAST_MEAN_PART)
        floor = max(NOISE_FLOOR * found.kept * self.design.deviation * sqrt(self.size), MEAN_FLOOR * found.mean)
        return found.vectors, np.maximum(found.values, floor), found.kept, found.mean

    @cached_property
    def inverse(self) -> Array:
        """M^-1."""
        vectors, values, _, _ = self._shrunk
        return assembled(vectors, 1 / values)

    @property
    def hessian_noise(self) -> float:
        """2 s sqrt(p) over the mean eigenvalue of M."""
        return 2 * self.design.deviation * sqrt(self.size) / max(self._shrunk[3], TINY)

    @cached_property
    def hiding(self) -> Array:
        """Projector on eigenvectors of M along which noise hides it."""
        vectors, _, _, mean = self._shrunk
        along = np.einsum("ij,ik,kj->j", vectors, self.design.value, vectors)
        deviation = self.design.deviation
        hidden = along < max(deviation * sqrt(self.size), HIDDEN_DEVIATIONS * deviation, HIDDEN_PART * mean)
        found: Array = vectors[:, hidden] @ vectors[:, hidden].T
        return found

    @property
    def guess(self) -> Array:
        """The part of the covariance that is a public guess."""
        found: Array = self.unidentified**2 * self.level * self.hiding
        return found

    @cached_property
    def _energetic(self) -> NDArray[np.bool_]:
        """Bands whose energy is seen, and the first one."""
        found = self.energies > SEEN * self.energy_deviations
        found[0] = True
        return found

    @cached_property
    def lightly(self) -> NDArray[np.bool_]:
        """Bands up to the largest one whose records are seen, alone or together with a neighbour's."""
        alone = self.counts > SEEN * self.count_deviation
        # The first band holds most records, so it says nothing of a neighbour.
        together = self.counts[2:] + self.counts[1:-1] > SEEN * sqrt(2) * self.count_deviation
        alone[2:] |= together
        found: NDArray[np.bool_] = np.arange(len(self.edges)) <= max(np.flatnonzero(alone), default=0)
        return found

    @property
    def level(self) -> float:
        """Mean square of residuals in bands that are seen, weighted: the scores' mean eigenvalue."""
        return self._level(np.ones(len(self.edges), dtype=np.bool_))

    def _level(self, kept: NDArray[np.bool_]) -> float:
        used = self._energetic & kept
        scores = float(np.trace(self.scores[used].sum(0))) / self.size
        precisions = 1 / float((self.energy_deviations[used] ** 2).sum()), self.size / self._noise(used) ** 2
        energies = float(self.energies[used].sum())
        both = (precisions[0] * energies + precisions[1] * scores) / sum(precisions)
        return max(both, LEAST_SCORES)

    def _noise(self, used: NDArray[np.bool_]) -> float:
        """Return the deviation of the noise on an entry of the scores of some bands together."""
        return sqrt(float((self.score_deviations[used] ** 2).sum()))

    def _scores(self, kept: NDArray[np.bool_]) -> Array:
        """Return the scores of some bands: those seen, shrunk to their mean level, and the energies of the others.

        An energy is right on average, so unseen records count over many jobs for what they are.
        """
        used, size = self._energetic & kept, self.size
        level, noise = self._level(kept), self._noise(used)
        values, vectors = np.linalg.eigh(self.scores[used].sum(0))
        apart = values - values.mean()
        spread = drawn_in(apart, noise, size, kept_part(apart, noise))
        unseen = float(np.maximum(self.energies[kept & ~self._energetic], 0.0).sum())
        return assembled(vectors, np.maximum(level + spread, LEAST_SCORES * level) + unseen)

    def line(self, kept: NDArray[np.bool_]) -> BandLine:
        """Return the step by the gradients of some bands, and its covariance."""
        kept_part_of_noise = self._shrunk[2]
        step = self.inverse @ self.gradients[kept].sum(0)
        # n - p allows for fitted parameters; n/2 keeps it positive where these are many.
        sampling = self.inverse @ self._scores(kept) @ self.inverse / max(self.units - self.size, self.units / 2)
        private = float((self.gradient_deviations[kept] ** 2).sum())
        private += kept_part_of_noise * self.design.deviation**2 * float(step @ step)
        covariance = sampling + private * self.inverse @ self.inverse + self.guess
        return BandLine(self.theta - step, (covariance + covariance.T) / 2, sampling)

    @property
    def counted(self) -> BandLine:
        """The line of all bands."""
        return self.line(np.ones(len(self.edges), dtype=np.bool_))

    @property
    def light(self) -> BandLine:
        """The line that assumes nobody beyond the largest band seen."""
        return self.line(self.lightly)

    @property
    def unseen(self) -> float:
        """Number of records that the noise could hide in one band beyond the largest one seen; 0: there is none."""
        far = ~self.lightly
        if not far.any():
            return 0.0
        return (max(float(self.counts[far].max()), 0.0) + 2 * self.count_deviation) * self.units
