"""Counts what an attempt draws, and what it goes on from was made of, against what its job has reserved."""

from dataclasses import dataclass
from functools import lru_cache

from core.base.errors import ensure
from core.planning.planner import PlannedJob
from core.privacy.draws import MOST_COUNTED, SAMPLE_DRAWS
from core.queries.gradients import Question
from core.queries.sampling import PoissonSampling


@dataclass
class DrawCount:
    """Units of draws (`core.privacy.draws`) in one run: an attempt's own, and those of the answers that it was left.

    Draws of an attempt that nobody keeps are in none of these counts: the reservation has whole runs for that.

    Args:
        most: units of a whole run.
        dimension: of a point.
        beside: units of the sample that each question draws, beside the noise.

    Attributes:
        drawn: draws so far, with the present answer.
        answered: in what was answered, which is what is kept.
    """

    most: int = MOST_COUNTED
    dimension: int = 1
    beside: int = 0
    drawn: int = 0
    answered: int = 0

    def begin(self, before: int) -> None:
        """Go on from answers that so many units are in."""
        # An earlier attempt drew these units within the same reservation.
        self.drawn = self.answered = before

    def add(self, question: Question, points: int) -> None:
        """Count an answer before it is drawn.

        Raises:
            PrivacyInvariantError: the run would draw more than its job has reserved.
        """
        drawn = self.drawn + _draws_of(question, self.dimension, points) + self.beside
        ensure(drawn <= self.most, "a run draws no more than was reserved for it")
        self.drawn = drawn

    def keep_drawn(self) -> None:
        """Note that all that was drawn has been answered."""
        self.answered = self.drawn


@lru_cache(maxsize=64)  # a method asks the same few questions in every step
def _draws_of(question: Question, dimension: int, points: int) -> int:
    """Return how many units of draws one answer takes."""
    return question.draws(dimension, points)


def count_of(planned: PlannedJob) -> DrawCount:
    """Return the count of an attempt at a job."""
    facts = planned.facts
    sampled = isinstance(planned.spec.optimizer.sampling(facts), PoissonSampling)
    return DrawCount(planned.draws.run, facts.dimension, SAMPLE_DRAWS if sampled else 0)
