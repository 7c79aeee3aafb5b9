"""The visible standing of jobs, for all who wait for news of them."""

from dataclasses import dataclass

from core.db.tables import TERMINAL_STATES
from farthing.schemas.jobs import EventView


@dataclass(frozen=True)
class Head:
    """The visible standing of a job: its state, the last line of its history, the approval of its release."""

    state: str
    seq: int
    approval: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing will follow."""
        return self.state in TERMINAL_STATES


@dataclass(frozen=True)
class SeenJob:
    """A job as it was just seen, with the lines of its history that were asked for."""

    head: Head
    lines: list[EventView]
