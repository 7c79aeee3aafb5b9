"""Sums over private records, one bounded way per kind of problem; only a door may call them."""

from typing import Protocol

from torch import Tensor

from core.catalogue.questions import Question
from core.privacy.facts import Facts


class Problem(Protocol):
    """Records behind a door."""

    @property
    def units(self) -> int:
        """n, null records included."""

    @property
    def dimension(self) -> int:
        """The number of parameters, p."""

    @property
    def lanes(self) -> int | None:
        """R, the number of independent sets of synthetic records; None for a scope's."""

    def bounded_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        *,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Return the sum over records of their clipped answers, float64, with the error that the lattice charges.

        Args:
            question: what to sum.
            facts: the public bounds to clip to.
            theta: float64, shape (p,), or (R, p) for lanes.
            rows: int64 indices to read, shape (m,), m public; default all.
            included: bool, shape (n,): rows left out count as zero in a full pass. Not together with `rows`.
        """
