"""Notes: the state that an attempt leaves to the next one, with the noised answers received since.

Both have left the oracle, so telling them again is post-processing: free and exact. Nothing else is kept: no generator,
no noise drawn ahead, nothing that has not been noised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from pydantic import TypeAdapter
from safetensors.torch import load, save
from torch import Tensor

from core.base.errors import ensure
from core.oracle import Answer
from core.queries.gradients import Question
from core.queries.looks import CellCounts, ValueCounts

_QUESTION: Final[TypeAdapter[Question]] = TypeAdapter(Question)
_ANSWER: Final = "answer/"
_PARTS: Final = ("question", "theta", "value", "scale")
_OTHER: Final = "other"
_DRAWN: Final = "units-drawn"
_LONG: Final = 2**12
"""Entries from which on a copy is made when it is needed."""

_ROUNDING: Final = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Another machine may round otherwise between two answers, by precision."""


class Noted(NamedTuple):
    """An answer that was given, to which question, where: at one point, two, or a list of them."""

    question: Question
    theta: Tensor
    answer: Answer
    other: Tensor | None = None

    def answers(self, question: Question, theta: Tensor, other: Tensor | None = None) -> bool:
        """Say whether this is the answer to that question."""
        return _is_asked(question, self.question) and _same(theta, self.theta) and _same(other, self.other)


@dataclass(frozen=True)
class Notes:
    """The method's last state, None where it has kept none, and the answers since, in the order they were given.

    `drawn` counts the units of draws that all of it is made of, see `core.privacy.draws`.
    """

    state: dict[str, Tensor] | None = None
    answers: tuple[Noted, ...] = ()
    drawn: int = 0

    def pack(self) -> bytes:
        """Return the bytes that are stored, in the safetensors format."""
        tensors = {} if self.state is None else dict(self.state)
        taken = any(name.startswith(_ANSWER) or name == _DRAWN for name in tensors)
        # State and answers share one file of tensors, so their names must not meet.
        ensure(not taken, "a method's state has names of its own")
        if self.drawn:
            tensors[_DRAWN] = torch.tensor(self.drawn)
        for number, noted in enumerate(self.answers):
            text = bytearray(_QUESTION.dump_json(noted.question))
            values = (
                torch.frombuffer(text, dtype=torch.uint8),
                noted.theta,
                noted.answer.value,
                torch.tensor(noted.answer.scale, dtype=torch.float64),
            )
            named = [*zip(_PARTS, values, strict=True), *([] if noted.other is None else [(_OTHER, noted.other)])]
            tensors |= {f"{_ANSWER}{number}/{part}": value for part, value in named}
        # safetensors refuses tensors that are views with gaps.
        return save({name: value.contiguous() for name, value in tensors.items()})


def held(value: Tensor) -> Tensor:
    """Return a copy, of whatever is done to the original in place; a long one's memory is shared until then.

    Answers, points and states of networks are mostly never changed in place, and each is as long as all parameters.
    Torch copies it for whoever writes first, the method or the notes.
    """
    if value.requires_grad:
        value = value.detach()
    if value.numel() < _LONG or not value.is_cpu:
        return value.clone()
    try:
        return value._lazy_clone()  # noqa: SLF001 - torch's name for copy-on-write
    except RuntimeError:  # memory that is not torch's own, but NumPy's
        return value.clone()


def unpack(kept: bytes | None) -> Notes:
    """Return what was stored; nothing at all where nothing was."""
    tensors = {} if kept is None else load(kept)
    # A state that no draw was counted for has no such entry.
    drawn = int(tensors.pop(_DRAWN, torch.tensor(0)))
    state = {name: value for name, value in tensors.items() if not name.startswith(_ANSWER)}
    count = sum(name.startswith(_ANSWER) and name.endswith(f"/{_PARTS[0]}") for name in tensors)
    return Notes(state or None, tuple(_noted(tensors, number) for number in range(count)), drawn)


def _noted(tensors: Mapping[str, Tensor], number: int) -> Noted:
    text, theta, value, scale = (tensors[f"{_ANSWER}{number}/{part}"] for part in _PARTS)
    question = _QUESTION.validate_json(bytes(text.tolist()))
    other = tensors.get(f"{_ANSWER}{number}/{_OTHER}")
    return Noted(question, theta, Answer(value=value, scale=float(scale)), other)


def _is_asked(question: Question, noted: Question) -> bool:
    """Say whether a question is the noted one, or counts both outcomes where release 0.1.0 noted a count of one."""
    if isinstance(noted, ValueCounts) and noted.of == "target" and isinstance(question, CellCounts):
        return (question.of, question.level, question.sigma) == ("target", 1, noted.sigma)
    return question == noted


def _same(point: Tensor | None, noted: Tensor | None) -> bool:
    """Say whether two points are one, up to rounding."""
    if point is None or noted is None:
        return point is noted
    if (point.shape, point.dtype) != (noted.shape, noted.dtype):
        return False
    return torch.allclose(point, noted, rtol=_ROUNDING[point.dtype], atol=_ROUNDING[point.dtype])
