"""The only way to the records: bounded, noised, metered questions about private records.

Optimizers see this module only. `ask` reads records, in one call that pays first, sums under a bound, adds noise, and
returns. Everything that an optimizer then computes is post-processing of these answers. `core.oracle.full` and
`core.oracle.samples` hold the oracles over a scope's records, `core.oracle.simulation` the one to synthetic data.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from core.privacy.events import Event
from core.privacy.facts import Facts
from core.queries.gradients import Question

T = TypeVar("T")
S = TypeVar("S")
T_co = TypeVar("T_co", covariant=True)

EVERYTHING: Final = ""
"""The part of the records that is in no named block."""

Part = str | int
"""A named part of the records, or the number of a pass of a stream."""


class Status(StrEnum):
    """Ending of a method; decided from noised values only."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """Its own private stopping rule."""
    NONE = "none"
    """It looked for something among public candidates, and none of them passed."""


@dataclass(frozen=True)
class Answer:
    """A noised mean.

    `value` has the question's shape, with replicates first in a simulation. It is float64; a gradient, or a change of
    one, has the precision of the point where it was asked. `scale` is the standard deviation of the noise on each
    coordinate (on and above the diagonal of a matrix), in the value's units.
    """

    value: Tensor
    scale: float


@dataclass(frozen=True)
class Release(Generic[T]):
    """Output of the oracle: a value made of noised answers, the method's ending, and the draws."""

    value: T
    status: Status
    event: Event


class PublicRandomness(Protocol):
    """Data-free draws, secret until released: start vectors, random iterates.

    They are not repeated after a loss: a method keeps what came of them before it asks on.
    """

    def normal(self, size: int) -> Tensor:
        """Return a float64 vector of independent standard normal draws, shape (size,)."""

    def integer(self, below: int) -> int:
        """Return a uniform integer in [0, below)."""


class Oracle(Protocol):
    """The one way to the records. Answers are noised and paid for; facts and public randomness are free."""

    @property
    def facts(self) -> Facts:
        """Public facts: units, dimension, bounds, adjacency."""

    @property
    def randomness(self) -> PublicRandomness:
        """Data-free draws."""

    @property
    def precision(self) -> torch.dtype:
        """The least that points may be given in: float32 where gradients are computed in it, else float64."""

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Pay for, sum, noise and return an answer at theta, shape (..., p); replicates exist in simulations only.

        `other`, of the same shape and precision, is the second point of a question about two.
        """

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say whether price and units are left for this question, and for `then` after it: a branch, no exception."""

    def block(self, name: str) -> "Oracle":
        """Return the oracle over a named set of records disjoint from the rest (a holdout)."""

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the last kept state of an earlier attempt, or `initial`."""

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Offer the noised state after `step` steps, which makes the answers before it dispensable.

        It is stored with the next chunk's payment, and the answers given since with it.
        """

    def release(self, value: T, status: Status) -> Release[T]:
        """Close the oracle and return the value with what was drawn."""


class AnswerLog(Protocol):
    """Keeps what an attempt was answered, for the attempt that resumes after it."""

    def recall(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer | None:
        """Return the answer that an earlier attempt was given here, after the state it kept; None where it had none.

        A method is deterministic given its answers, so it asks the same questions in the same order again; an answer
        that has left the oracle once is free and exact.
        """

    def note(self, question: Question, theta: Tensor, answer: Answer, other: Tensor | None = None) -> None:
        """Hold an answer just given, to be stored with the next payment."""

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Store this state with the next payment, in place of the answers noted before."""

    def resume(self) -> dict[str, Tensor] | None:
        """Return the last stored state, if any."""


class PrivacyFilter(Protocol):
    """Counts draws part by part, admits those within what the job reserved, and refuses any other.

    Draws about one part compose. Parts share no unit, so their totals stand side by side and the most expensive one
    counts. A number for a part is that of a pass of a stream, in which no two questions read the same unit. Draws of
    one pass are parallel, and equal ones cost no more than one; passes compose.
    """

    @property
    def log(self) -> AnswerLog:
        """The answers so far; they are stored with each payment."""

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Pay for one more draw, ahead of reading; only then may records be read.

        Args:
            event: its price.
            part: of the records that it reads.
            length: questions that the position grows by, 1; on a stream, the units that are then behind.

        Returns:
            Whether the ledger was written to: later draws then need a key of their own.

        Raises:
            StaleAttempt: the job is no longer ours.
        """

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        """Say whether the reservation covers these draws besides those made."""

    def close(self) -> Event:
        """Let nothing more be drawn and return what was, as one event."""
