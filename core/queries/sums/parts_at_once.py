"""Sums of many parts at once, where records live on a GPU: a product of a batch has each part's own rows.

A GPU takes longer to launch an operation than to make a part's sum, so a block of records is many parts there. A part's
rows, and so what is charged for its rounding, are those of the CPU.
"""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from core.privacy.facts import PART_UNITS
from core.queries.sums.terms import Factors

GPU_BLOCK_NUMBERS: Final = 2**27
"""Most numbers in a block of X: 1 GB, whose reading takes longer than the launches of its sums."""

_FREE_BYTES: Final = 64
"""Of memory that is free for each number of a block: eight arrays as large as it, more than any sum makes."""


def block_numbers(device: torch.device) -> int:
    """Return the most numbers in a block of X on a device that is no CPU."""
    return room(device, GPU_BLOCK_NUMBERS, _FREE_BYTES)


def room(device: torch.device, most: int, each: int) -> int:
    """Return how many numbers a device has room for, by public figures.

    Args:
        device: no CPU.
        most: numbers that are worth it.
        each: bytes that shall be free for each of them.
    """
    if device.type != "cuda":
        return most
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(most, free // each))


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """Return public numbers on a device. The host need not wait: it goes on once memory that is not pinned is read."""
    return numbers.to(device, non_blocking=device.type != "cpu" and not numbers.is_pinned())


def brought(numbers: Tensor) -> Tensor:
    """Return numbers on the host. Those of a GPU get there by pinned memory, which torch keeps for the next ones."""
    if numbers.device.type != "cuda":
        return numbers.cpu()
    return torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True).copy_(numbers)


def whole_parts(units: int) -> Iterator[tuple[slice, int]]:
    """Yield the rows of all whole parts of a block with the number of parts, then those of a last, shorter part."""
    whole = units // PART_UNITS
    if whole:
        yield slice(0, whole * PART_UNITS), whole
    if not whole or whole * PART_UNITS < units:
        yield slice(whole * PART_UNITS, units), 1


def by_part(numbers: Tensor, axis: int, parts: int) -> Tensor:
    """Return numbers with an axis of rows as two, of parts and of a part's rows."""
    shape = numbers.shape
    return numbers.view(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])


def part_sums(x: Tensor, factors: Factors) -> Tensor:
    """Return the sums of each part of a block, shape (parts, entries): of numbers, times x, and times x x^T.

    Args:
        x: the block's rows, shape (m, d).
        factors: their numbers, shape (how many, m) of each kind.
    """
    found = []
    for rows, parts in whole_parts(len(x)):
        some, pieces = by_part(x[rows], 0, parts), list[Tensor]()
        plain, linear, outer = (None if one is None else by_part(one[:, rows], 1, parts) for one in factors)
        if plain is not None:
            pieces.append(plain.sum(-1).mT)
        if linear is not None:
            pieces.append(torch.bmm(linear.transpose(0, 1), some).flatten(1))
        if outer is not None:
            pieces += [torch.bmm(some.mT, some * numbers.unsqueeze(-1)).flatten(1) for numbers in outer]
        found.append(torch.cat(pieces, 1) if len(pieces) > 1 else pieces[0])
    return torch.cat(found) if len(found) > 1 else found[0]
