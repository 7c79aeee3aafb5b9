"""Denoising of a symmetric matrix: shrinks eigenvalues together as far as the known noise pushed them apart.

Additive noise of one variance on all entries spreads eigenvalues. Linear shrinkage towards their mean removes the
spread that noise alone explains (Ledoit and Wolf, 2004, with the noise known). An eigenvalue beyond the noise's edge
gets its value in a spiked model (Benaych-Georges and Nadakuditi, 2011). Post-processing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
TINY = 1e-300


class Shrunk(NamedTuple):
    """A shrunk symmetric matrix by eigenvalues and eigenvectors, columns of `vectors`."""

    values: Array
    vectors: Array
    kept: float
    """The part of the spread that noise does not explain, 0 to 1."""
    mean: float
    """Mean eigenvalue, before any floor."""


def shrink(measured: Array, deviation: float, least: float = 0.0, shape: Array | None = None) -> Shrunk:
    """Shrink a noised symmetric matrix.

    Args:
        measured: shape (p, p).
        deviation: of the noise on each entry on and above the diagonal.
        least: the mean eigenvalue is taken to be no less.
        shape: target, up to a multiple, of trace p, shape (p, p); None: the identity.
    """
    if shape is not None:
        return _around(shape, measured, deviation, least)
    size = len(measured)
    values, vectors = np.linalg.eigh((measured + measured.T) / 2)
    mean = float(values.mean())
    apart = values - mean
    kept = kept_part(apart, deviation)
    mean = max(mean, least)
    return Shrunk(mean + drawn_in(apart, deviation, size, kept), vectors, kept, mean)


def _around(shape: Array, measured: Array, deviation: float, least: float) -> Shrunk:
    """Shrink what a noised matrix has beyond a multiple of an expected one."""
    mean = float(np.trace(measured)) / len(measured)
    beyond = shrink(measured - mean * shape, deviation)
    mean = max(mean, least)
    values, vectors = np.linalg.eigh(mean * shape + assembled(beyond.vectors, beyond.values))
    return Shrunk(values, vectors, beyond.kept, mean)


def kept_part(apart: Array, deviation: float) -> float:
    """Return the part of eigenvalues' squared distances from their mean that noise does not explain."""
    seen = float((apart**2).sum())
    # One degree less: the mean eigenvalue was taken off.
    return max(0.0, 1 - deviation**2 * (len(apart) ** 2 - 1) / seen) if seen > 0 else 0.0


def drawn_in(apart: Array, deviation: float, size: int, kept: float) -> Array:
    """Return eigenvalues' distances from their mean with the noise's part taken back."""
    length = np.abs(apart)
    # Noise alone spreads eigenvalues up to 2 sqrt(p) deviations: within it nothing is seen.
    root = np.sqrt(np.maximum(length**2 - 4 * size * deviation**2, 0.0))
    spiked = np.where(root > 0, (length + root) / 2, 0.0)
    found: Array = np.sign(apart) * np.maximum(kept * length, spiked)
    return found


def assembled(vectors: Array, values: Array) -> Array:
    """Return the symmetric matrix with these eigenvectors and eigenvalues."""
    found: Array = (vectors * values) @ vectors.T
    return found


def positive_part(measured: float, noise: float) -> float:
    """Return what is left of a squared length once the noise's is taken off, as a part of it: 0 to 1."""
    return max(0.0, 1 - noise / max(measured, TINY))
