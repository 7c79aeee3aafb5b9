"""Float sums of parts become integers, twice, compiled and by torch, bit for bit the same; points become parameters.

The compiled version (`core/native/parts.c`) is one pass over memory. Vectors as long as a network's parameters do not
stay in a core's cache from one pass to the next, so the memory decides the cost of a pass.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from core.base.errors import ensure
from core.data.limits import LARGEST_SUM, SMALLEST_SINGLE_STEP
from core.native.library import Kernel
from core.native.signatures import TRUNCATE

_TRUNCATE: Final = TRUNCATE.kernel()


def write_truncated(
    total: Tensor, part: Tensor, step: float, *, adding: bool, kernel: Kernel | None = _TRUNCATE
) -> None:
    """Truncate a part to the grid, toward zero, into a total, or add it there; the part is used up.

    Dividing by a power of two loses nothing that a truncation keeps, in single precision either.

    Args:
        total: int64, shape (p,), in steps.
        part: floats, shape (p,).
        step: a power of two.
        adding: whether the total holds other parts already.
        kernel: compiled, for parts in single precision; None: torch and NumPy do it.

    Raises:
        PrivacyInvariantError: a number of the part is none, or reaches LARGEST_SUM steps; the total is then nobody's.
    """
    ensure(SMALLEST_SINGLE_STEP < step < 1 / SMALLEST_SINGLE_STEP, "single precision holds the step and its inverse")
    if kernel and is_here(part, torch.float32):
        ensure(is_here(total, torch.int64), "integers add up where floats did")
        ensure(total.shape == part.shape == (len(part),), "a part has all coordinates")
        within = bool(kernel(part.data_ptr(), len(part), 1 / step, total.data_ptr(), adding))
        ensure(within, "every part is finite and within its public bound")
        return
    part.mul_(1 / step)
    ensure(_is_within(part), "every part is finite and within its public bound")
    if not adding:
        total.copy_(part)
    elif part.device.type == "cpu":
        sums = total.numpy()
        np.add(sums, part.numpy(), out=sums, dtype=np.int64, casting="unsafe")  # some at a time: without a long copy
    else:
        total.add_(part.to(torch.int64))


def truncated(parts: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """Return the sum of parts in steps, each truncated, int64, shape (p,), and whether all are within their bound.

    Args:
        parts: floats, shape (parts, p); they are used up.
        step: a power of two.
    """
    ensure(SMALLEST_SINGLE_STEP < step < 1 / SMALLEST_SINGLE_STEP, "single precision holds the step and its inverse")
    least, most = parts.mul_(1 / step).aminmax()
    return parts.to(torch.int64).sum(0), (least > -LARGEST_SUM) & (most < LARGEST_SUM)


@dataclass(frozen=True, slots=True)
class OpenSum:
    """A sum of parts whose last part is still floats; noising converts it to integers on the way.

    Attributes:
        total: int64, shape (p,), in steps, of the parts before; None: there are none.
        part: the last one, floats, shape (p,).
        step: of the grid for parts.
    """

    total: Tensor | None
    part: Tensor
    step: float

    def closed(self) -> Tensor:
        """Return the integers, shape (p,), in steps; this object is used up."""
        adding = self.total is not None
        total = torch.empty_like(self.part, dtype=torch.int64) if self.total is None else self.total
        write_truncated(total, self.part, self.step, adding=adding)
        return total


def closed(total: Tensor | OpenSum) -> Tensor:
    """Return a sum's integers, whatever it is."""
    return total.closed() if isinstance(total, OpenSum) else total


def _is_within(numbers: Tensor) -> bool:
    """Say whether no number of a part passes what one may reach; not if one is not a number."""
    least, most = numbers.aminmax()
    return bool(least > -LARGEST_SUM) and bool(most < LARGEST_SUM)


def moved(start: Tensor, change: Tensor) -> Tensor:
    """Return a start plus a change that is first rounded to its precision, in the start's shape.

    Args:
        start: floats.
        change: float64, or of the start's precision, of the same shape.
    """
    if change.dtype == start.dtype and change.device == start.device:
        return start + change
    return change.to(start, copy=True).add_(start)


def is_here(numbers: Tensor, dtype: torch.dtype) -> bool:
    """Say whether a kernel may walk these numbers one after the other; nobody asks for a derivative of them."""
    if numbers.device.type != "cpu" or numbers.dtype != dtype or numbers.requires_grad:
        return False
    # A tensor inside one of functorch's transformations has no memory of its own.
    return numbers.is_contiguous() and not is_functorch_wrapped_tensor(numbers)


def place_of(numbers: Tensor) -> int:
    """Return where numbers begin that are only read: memory that is shared until somebody writes stays shared."""
    base: int = torch._C._data_address(numbers)  # type: ignore[attr-defined] # noqa: SLF001 - torch's only name for it
    return base + int(numbers.storage_offset()) * numbers.element_size()
