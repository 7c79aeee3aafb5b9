"""The rows of one forward and backward pass, by public figures: the layers, the device and the rows of a part."""

from math import prod
from typing import Final

import torch

from core.models.network.layers import Layer, Shape
from core.models.network.trained import placed
from core.queries.sums.network.grams import numbers_saved
from core.queries.sums.parts_at_once import room

MOST_MICRO_ROWS: Final = 256
"""Rows of one pass: more would leave the caches, and gain nothing."""

MICRO_NUMBERS: Final = 2**24
"""Most numbers that one pass holds: 64 MB in single precision."""

GPU_MICRO_ROWS: Final = 2**16
"""Rows of one pass on a GPU."""

GPU_MICRO_NUMBERS: Final = 2**31
"""Most numbers that one pass holds on a GPU: 8 GB."""

_FREE_BYTES: Final = 16
"""Of a GPU's memory that are free for each of a pass's numbers."""


def micro_rows(
    part_rows: int, numbers: int, most_rows: int = MOST_MICRO_ROWS, most_numbers: int = MICRO_NUMBERS
) -> int:
    """Return the rows of one pass: a multiple or a divisor of a part's, as many as there is room for.

    Args:
        part_rows: of a part.
        numbers: that a pass holds for one row.
        most_rows: of a pass.
        most_numbers: that a pass holds.
    """
    most = max(1, min(most_rows, most_numbers // numbers))
    if most >= part_rows:
        return most // part_rows * part_rows
    return max(one for one in range(1, most + 1) if part_rows % one == 0)


def most_of(device: torch.device) -> tuple[int, int]:
    """Return the most rows of a pass on a device, and the most numbers that it holds."""
    if device.type == "cpu":
        return MOST_MICRO_ROWS, MICRO_NUMBERS
    return GPU_MICRO_ROWS, room(device, GPU_MICRO_NUMBERS, _FREE_BYTES)


def pass_numbers(layers: tuple[Layer, ...], given: Shape, part_rows: int) -> int:
    """Return about how many numbers one pass over records holds."""
    numbers = numbers_of(layers, given)
    return numbers * micro_rows(part_rows, numbers)


def numbers_of(layers: tuple[Layer, ...], given: Shape) -> int:
    """Return roughly how many numbers a pass holds for one record: layers' outputs, their slopes, and rows."""
    found = 0
    for _, layer, shape in placed(layers, given):
        made = layer.output(shape)
        found += 2 * prod(made)
        if len(made) > 1:
            found += sum(one.size for one in layer.parameters(shape)) - numbers_saved(layer, shape)
    return found
