"""Messages by which a federation's sites exchange noised answers, and the mean that each of them makes.

Sums and quotients of 64-bit floats in the order of places: the same bits everywhere.
"""

from collections.abc import Sequence
from math import hypot
from struct import Struct
from typing import Final

import torch

from core.base.errors import PeerLost
from core.oracle import Answer

_SCALE: Final = Struct(">d")
_NUMBER_BYTES: Final = 8


def told_by(answer: Answer) -> bytes:
    """Return what a client says of its own answer."""
    return _SCALE.pack(answer.scale) + answer.value.contiguous().numpy().tobytes()


def heard(content: bytes, shape: torch.Size) -> Answer:
    """Return the answer in another site's message.

    Args:
        content: the message, as `told_by` makes it.
        shape: of this site's own answer, which the other one must have.

    Raises:
        PeerLost: the message has another length, a number that is not finite, or a negative scale.
    """
    values = content[_SCALE.size :]
    if len(values) != shape.numel() * _NUMBER_BYTES:
        raise PeerLost
    # A bytearray, for `frombuffer` wants memory that can be written.
    value = torch.frombuffer(bytearray(values), dtype=torch.float64).reshape(shape)
    (scale,) = _SCALE.unpack_from(content)
    if not (bool(value.isfinite().all()) and 0 <= scale < float("inf")):
        raise PeerLost
    return Answer(value=value, scale=scale)


def mean(answers: Sequence[Answer]) -> Answer:
    """Return the plain mean; its scale is that of the mean, from every site's own."""
    total = answers[0].value
    for answer in answers[1:]:
        total = total + answer.value
    clients = len(answers)
    return Answer(value=total / clients, scale=hypot(*(answer.scale for answer in answers)) / clients)


def weighted(answers: Sequence[Answer], shares: Sequence[float]) -> Answer:
    """Return the mean with public weights that add up to 1, by place."""
    total = shares[0] * answers[0].value
    for share, answer in zip(shares[1:], answers[1:], strict=True):
        total = total + share * answer.value
    scales = (share * answer.scale for share, answer in zip(shares, answers, strict=True))
    return Answer(value=total, scale=hypot(*scales))
