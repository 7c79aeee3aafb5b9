"""The answer log of an attempt: its answers, after those of an earlier attempt, for the attempt after it."""

from collections import deque
from typing import Final

from torch import Tensor

from core.base.errors import ensure
from core.oracle import Answer
from core.queries.gradients import Question
from core.training.draws import DrawCount
from core.training.notes import Noted, Notes, held, unpack


class AttemptLog:
    """Holds the method's last state and the answers since; first recalls those that an earlier attempt left.

    Args:
        kept: the state of an earlier attempt, `Notes` packed; None: nothing.
        draws: counts what is drawn against the reservation.

    Attributes:
        draws: as above.
        step: of the last state.
    """

    def __init__(self, kept: bytes | None, draws: DrawCount) -> None:
        notes = unpack(kept)
        self._state, self._answers = notes.state, list(notes.answers)
        self._recalled = deque(notes.answers)
        self._resumed = notes.state
        self.step = 0 if self._resumed is None else int(self._resumed.get("step", 0))
        self.draws: Final = draws
        self.draws.begin(notes.drawn)

    @property
    def next_recalled(self) -> Question | None:
        """The question whose answer is recalled next; None where all were."""
        return self._recalled[0].question if self._recalled else None

    def recall(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer | None:
        """Return the next answer that an earlier attempt was given after the state it kept; None after the last.

        One that was not given yet is about to be drawn, and is counted.

        Raises:
            PrivacyInvariantError: another question than then; the method is not deterministic given its answers. Or
                it draws more than was reserved for it.
        """
        if not self._recalled:
            # Before the draw, so that a run ends before it passes its reservation.
            self.draws.add(question, len(theta) if question.places == "list" else 1)
            return None
        noted = self._recalled.popleft()
        # Replay is free only for the same question; any other one would be a draw that nobody paid.
        ensure(noted.answers(question, theta, other), "a resumed method asks again what it asked before")
        return noted.answer

    def note(self, question: Question, theta: Tensor, answer: Answer, other: Tensor | None = None) -> None:
        """Hold an answer just given."""
        self.draws.keep_drawn()
        # Methods may change an answer in place, and the next attempt must recall what was given.
        copied = Answer(held(answer.value), answer.scale)
        self._answers.append(Noted(question, held(theta), copied, None if other is None else held(other)))

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Hold a state, in place of the answers noted before."""
        # A state replaces the answers before it, so one that was not yet replayed would be forgotten.
        ensure(self.next_recalled is None, "answers of an earlier attempt come before a new state")
        self._answers.clear()  # first: an answer about a network is as long as its state
        self._state = {name: held(value) for name, value in state.items()}
        self.step = step

    def resume(self) -> dict[str, Tensor] | None:
        """Return the state that an earlier attempt kept, if any."""
        return self._resumed

    def pack(self) -> bytes:
        """Return what the next attempt resumes from, as it is stored."""
        return Notes(self._state, tuple(self._answers), self.draws.answered).pack()
