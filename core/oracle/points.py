"""The common point of all sites of a federation: the first one's, where another's differs by rounding alone.

Sites run one method on one sequence of means, and the means are the same bits everywhere: sums and quotients of 64-bit
floats, in one order. A method's results may differ in their last bits between different machines, by sums of products,
exponentials or norms. The first site therefore sends its point, and every site answers there. Each continues from its
own point, which the means alone move, so rounding errors stay rounding errors.

No privacy rests on it. A point is made of what was released before, and may be anything: an oracle's price holds at
any. A point that differs by more than rounding ends the attempt, before any site pays.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Final

import torch
from pydantic import BaseModel
from torch import Tensor

from core.base.errors import PeerLost

CLOSE: Final = 1e-6
"""Far above what rounding adds up to in a job, far below a step."""


def told_by(points: Sequence[Tensor]) -> bytes:
    """Return what the first client says of its points."""
    return b"".join(point.contiguous().numpy().tobytes() for point in points)


def adopted(own: Sequence[Tensor], received: bytes) -> tuple[Tensor, ...]:
    """Return the first client's points, for a client with points of its own, of the same shapes and types.

    Raises:
        PeerLost: they are no such points, or others than one's own.
    """
    if len(received) != sum(point.numel() * point.element_size() for point in own):
        raise PeerLost
    found, place = [], 0
    for point in own:
        size = point.numel() * point.element_size()
        # An empty buffer is refused, so an empty point stands for itself.
        taken = torch.frombuffer(bytearray(received[place : place + size]), dtype=point.dtype) if size else point
        found.append(taken.reshape(point.shape))
        place += size
    if not all(map(_same, own, found)):
        raise PeerLost
    return tuple(found)


def _same(point: Tensor, other: Tensor) -> bool:
    """Say whether two points are one but for rounding."""
    # Sites that all arrive at NaN agree, too.
    return torch.allclose(point, other, rtol=CLOSE, atol=CLOSE, equal_nan=True)


def parts_of(value: object) -> tuple[bytes, list[Tensor]]:
    """Return a value in two parts: bytes that equal values have in common, and the numbers that rounding may change.

    Args:
        value: made of dataclasses, pydantic models, tensors and plain values.
    """
    if isinstance(value, float):
        value = torch.tensor(value, dtype=torch.float64)
    if isinstance(value, Tensor) and value.is_floating_point():
        return repr((value.dtype, tuple(value.shape))).encode(), [value.detach().cpu()]
    if isinstance(value, Tensor):
        return repr((value.dtype, tuple(value.shape))).encode() + value.contiguous().numpy().tobytes(), []
    if isinstance(value, BaseModel):
        value = [getattr(value, name) for name in type(value).model_fields]
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, list | tuple):
        found = [parts_of(one) for one in value]
        return b"".join(text for text, _ in found), [number for _, numbers in found for number in numbers]
    return repr(value).encode(), []
