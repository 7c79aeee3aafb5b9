"""Incidents: the error of a failed trainer for the operator's log, as a class and the places it passed.

A trainer's standard error goes nowhere, since texts of libraries and of exceptions may hold records. The trainer writes
one line about its error, `core.base.logs.describe` and nothing more, into a pipe whose number it gets at start. The
supervisor reads at most so much, drops other forms, and logs the rest beside the job. The job keeps its code alone.

Followers write into the pipe of their leader. A process writes before it ends, and others notice its end, so the first
line is about the first fault; later lines are not read.
"""

import os
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.base.logs import MOST_PLACES, describe
from core.training.order import Failed
from workers.outcome import Outcome

_MOST_BYTES: Final = 8192
Name = Annotated[str, Field(pattern=r"^\w{1,100}$")]
Place = Annotated[str, Field(pattern=r"^[\w.<>?-]{1,200}:\d{1,7}$")]


class Incident(BaseModel):
    """The failure of a process: names out of code, and none out of data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error: Name
    """The class of the exception."""
    at: Annotated[tuple[Place, ...], Field(max_length=MOST_PLACES)]
    """Modules and lines that it passed, the innermost last."""
    rank: int = 0
    """Which process of the job; 0 leads."""

    def explains(self, status: int) -> bool:
        """Say whether it is about how a trainer ended: a follower also fails because its leader is gone."""
        return not self.rank or status in _FAILED


_FAILED: Final = frozenset(
    {Outcome.FAILED_OPENING, Outcome.FAILED_TRAINING, Outcome.FAILED_PUBLISHING, Outcome.OUT_OF_MEMORY}
)


def tell(ending: BaseException, pipe: int, rank: int = 0) -> None:
    """Write the loggable part of an error into a pipe; of a wrapper, that of its cause.

    Args:
        ending: the exception that a process ends with.
        pipe: its number, as the process was given it; it has room for this.
        rank: which process of the job it is.
    """
    # `Failed` is raised `from None`, which leaves the error in `__context__` alone.
    described = describe(ending.__cause__ or (ending.__context__ if isinstance(ending, Failed) else None) or ending)
    try:
        line = Incident(error=described["error"], at=tuple(described["at"]), rank=rank).model_dump_json()
        os.write(pipe, line.encode() + b"\n")
    except (ValidationError, OSError):  # a name that no code of ours has, or nobody who reads: then the status says it
        return


def hear(pipe: int) -> Incident | None:
    """Return the first line of an ended process, None where it wrote none of that form; the pipe is closed."""
    try:
        os.set_blocking(pipe, False)
        content = os.read(pipe, _MOST_BYTES)
    except BlockingIOError:  # something that it started holds the other end still
        content = b""
    finally:
        os.close(pipe)
    try:
        return Incident.model_validate_json(content.partition(b"\n")[0]) if content else None
    except ValidationError:
        return None
