"""Gradients over one block without kernels: the operations of the walk over blocks, in their order, by fewer calls."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LARGEST_SUM, LEAST_NUMBER
from core.queries.sums import rows as compiled
from core.queries.sums.rows import Score
from core.queries.sums.single import numbers_of
from core.queries.sums.terms import Records, overwrite

Array = NDArray[np.float64]


def limits(records: Records, bound: float) -> Tensor:
    """Return the largest numbers whose products with x have at most a norm; infinite for excluded rows."""
    return records.norms.reciprocal().mul_(bound)


class _Block(NamedTuple):
    """Some records as arrays of shape (m, ...), with the limits that a clip sets to their numbers."""

    features: Array
    target: Array
    weights: Array
    lowest: Array
    highest: Array


class ClippedRecords:
    """Records as arrays, and what a clip makes of their norms; kept for the clip of the last question.

    Lists are copied to where the last one was. The values beside the features are then in rows, so that a record's
    numbers lie in one place and not in four.
    """

    def __init__(self, records: Records, bound: float, *, clips: bool) -> None:
        self.bound, self.clips = bound, clips
        self._records = records
        self._rows: Array | None = None
        self._copied = self._beside = torch.empty((0, 0), dtype=torch.float64)
        kernels = compiled.KERNELS
        self.compiled = None if kernels is None else compiled.Block(kernels, records, self._limit() if clips else None)

    @cached_property
    def all(self) -> _Block:
        """All of them."""
        records, limit = self._records, self._limit()
        several = records.features, records.target, records.weights, -limit, limit
        return _Block(*(one.numpy() for one in several))

    def _limit(self) -> Tensor:
        """Return the largest numbers; zero for excluded rows, all of which is zeros then, as what is left out is."""
        return torch.where(self._records.norms > 0, limits(self._records, self.bound), 0.0)

    def listed(self, rows: NDArray[np.int64], included: Tensor | None) -> _Block:
        """Return the records of a list, until the next one is asked for; zeros in place of those that are left out."""
        if self._rows is None:
            self._rows = np.stack(self.all[1:], 1)
        if len(self._copied) != len(rows):  # torch puts both at multiples of 64 bytes
            self._copied = torch.empty(len(rows), self.all.features.shape[1], dtype=torch.float64)
            self._beside = torch.empty(len(rows), self._rows.shape[1], dtype=torch.float64)
        ensure(0 <= rows.min() <= rows.max() < len(self._rows), "a list names records")
        # NumPy would buffer `out` in its default mode; the line above has checked the numbers.
        self.all.features.take(rows, axis=0, out=self._copied.numpy(), mode="clip")
        self._rows.take(rows, axis=0, out=self._beside.numpy(), mode="clip")
        if included is not None:
            overwrite(self._copied, included)
            overwrite(self._beside, included)
        return _Block(self._copied.numpy(), *self._beside.numpy().T)

    def gradient(
        self, score: Score, theta: Tensor, step: float, rows: Tensor | None, included: Tensor | None
    ) -> Tensor:
        """Return the sum of clipped gradients, int64, shape (p,), in steps; see `core.queries.sums.Problem`."""
        block = self.all if rows is None else self.listed(rows.numpy(), included)
        # No warning tells of a record, and what is not finite is selected away.
        with torch.inference_mode(), np.errstate(all="ignore"):
            margin = np.dot(block.features, theta.numpy())
            left = None if included is None or rows is not None else included.numpy()
            numbers = numbers_of(score, margin, block.target, block.weights, left, LEAST_NUMBER)
        if self.clips:
            np.minimum(numbers, block.highest, out=numbers)
            np.maximum(numbers, block.lowest, out=numbers)
        steps = np.dot(numbers, block.features)
        steps /= step
        ensure(np.abs(steps).max() < LARGEST_SUM, "every part is finite and within its public bound")
        return torch.from_numpy(np.rint(steps, out=steps).astype(np.int64))
