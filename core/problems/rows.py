"""The compiled twins of products with rows, where they were built; their callers check shapes, types and addresses.

They add up in an order of their own, the same on every processor, where BLAS has some other: what is charged holds for
any (`core.problems.blocks`, `core.problems.single`), so both err by no more. All else they do is what the twins do:
numbers are made by the same operations, zero is a selection by a mask of bits, no branch and no loop's length asks for
a number, and a part that breaks its public bound is told of and no integer is made of it.
"""

from collections.abc import Callable
from ctypes import CDLL
from typing import NamedTuple

import torch
from torch import Tensor

from core.errors import ensure
from core.native.library import Kernel, library
from core.native.signatures import MARGINS, SINGLE_MARGINS, SINGLE_SUM, SUM
from core.problems.terms import Records, overwrite

Score = Callable[[Tensor, Tensor], Tensor]
"""Of a loss, at margins and targets."""


class Kernels(NamedTuple):
    """All of them."""

    margins: Kernel
    sum: Kernel
    single_margins: Kernel
    single_sum: Kernel


def kernels_of(found: CDLL | None) -> Kernels | None:
    """Return a library's kernels, None where there is none."""
    several = [one.of(found) for one in (MARGINS, SUM, SINGLE_MARGINS, SINGLE_SUM)]
    return None if found is None else Kernels(*(one for one in several if one is not None))


KERNELS = kernels_of(library()[0])
"""Of this process; None: NumPy does their work."""


def place(tensor: Tensor, dtype: torch.dtype, size: int) -> int:
    """Return where a vector begins, checking that a kernel can walk it."""
    ensure(tensor.dtype == dtype, "a kernel is told what numbers it reads")
    ensure(tensor.shape == (size,), "a kernel is told how many numbers it reads")
    ensure(tensor.is_contiguous(), "a kernel walks one number after the other")
    ensure(tensor.is_cpu, "a kernel reads a processor's memory")
    return tensor.data_ptr()


class Block:
    """Records that one sum reads in double precision, with a clip's limits.

    Args:
        kernels: compiled.
        records: on a CPU, without lanes; they are read only.
        highest: the largest numbers that the clip allows, shape (m,); None: it cuts none.
    """

    def __init__(self, kernels: Kernels, records: Records, highest: Tensor | None) -> None:
        self._kernels, self._records, self._highest = kernels, records, highest
        self._units, self._width = records.features.shape
        ensure(records.features.dtype == torch.float64, "features are float64")
        ensure(records.features.is_contiguous(), "rows stand one after the other")
        self._features = records.features.data_ptr()
        self._weights = place(records.weights, torch.float64, self._units)
        self._limits = None if highest is None else place(highest, torch.float64, self._units)
        self._margin = torch.empty(self._units, dtype=torch.float64)
        self._at = self._margin.data_ptr()

    def of(self, rows: Tensor, included: Tensor | None) -> "Block":
        """Return a copy of the records of a list; zeros stand in place of those that are left out."""
        ensure(bool(((rows >= 0) & (rows < self._units)).all()), "a list names records")
        highest = None if self._highest is None else self._highest.index_select(0, rows)
        if highest is not None and included is not None:
            overwrite(highest, included)
        return Block(self._kernels, self._records.listed(rows, included), highest)

    def gradient(self, score: Score, theta: Tensor, step: float, included: Tensor | None) -> Tensor:
        """Return the sum of clipped gradients, int64, shape (p,), in steps; see `core.problems.Problem`."""
        units, width = self._units, self._width
        theta = theta.contiguous()
        self._kernels.margins(self._features, units, width, place(theta, torch.float64, width), self._at)
        scores = score(self._margin, self._records.target)
        scored = place(scores, torch.float64, units)
        left = None if included is None else place(included, torch.bool, units)
        total = torch.empty(width, dtype=torch.int64)
        broken = self._kernels.sum(
            self._features, units, width, scored, self._at, self._weights, self._limits, left, step, total.data_ptr()
        )
        ensure(not broken, "every part is finite and within its public bound")
        return total
