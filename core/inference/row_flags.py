"""Flags of a model that concern a row: those of the whole job, and those of coefficients that move its prediction.

A coefficient does not move a row whose encoded product is 0, or whose indicator is 0: it is then of other records.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from core.inference.released import Released
from core.models.features import Feature

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
PAST: Final = "shrunk past its interval"
"""Said of a row whose interval, that of the coefficients as they are, does not hold its prediction."""
HALF: Final = 0.5


@dataclass(frozen=True)
class RowFlags:
    """Flags of some rows.

    Attributes:
        job: those of the whole estimate, which concern every row.
        words: further ones, each with its coefficient's name.
        marks: the rows that each of these concerns, shape (rows, words).
    """

    job: tuple[str, ...]
    words: tuple[str, ...]
    marks: Marks

    def joined(self, others: list[Self]) -> Self:
        """Return the flags of these rows and of those after them."""
        return type(self)(self.job, self.words, np.concatenate([self.marks, *(one.marks for one in others)]))

    def also(self, word: str, marks: Marks) -> Self:
        """Return these flags with one more, of some rows, shape (rows,)."""
        return type(self)(self.job, (*self.words, word), np.column_stack([self.marks, marks]))

    def listed(self) -> list[list[str]]:
        """Return each row's own flags, without the job's."""
        return [[self.words[place] for place in np.flatnonzero(marks)] for marks in self.marks]

    def texts(self) -> NDArray[np.object_]:
        """Return each row's flags, the job's first, as one text, shape (rows,)."""
        kinds, places = np.unique(self.marks, axis=0, return_inverse=True)
        made = [
            "; ".join((*self.job, *(word for word, raised in zip(self.words, kind, strict=True) if raised)))
            for kind in kinds
        ]
        found: NDArray[np.object_] = np.array(made, dtype=object)[places.ravel()]
        return found


def job_flags(released: Released) -> list[str]:
    """Return the flags of the whole estimate, which concern every row."""
    return [] if released.checks is None else list(released.checks.job)


def row_flags(released: Released, encoded: Array) -> RowFlags | None:
    """Return the flags of encoded rows, shape (rows, p); None of a method that does not check itself."""
    checks = released.checks
    if checks is None:
        return None
    features = released.design.features
    flagged = [(place, words) for place, words in enumerate(checks.coefficients) if words]
    columns = [_moved(features[place % len(features)], encoded[:, place % len(features)]) for place, _ in flagged]
    return RowFlags(
        job=checks.job,
        words=tuple(f"{released.names[place]}: {', '.join(words)}" for place, words in flagged),
        marks=np.array(columns, dtype=np.bool_).reshape(len(flagged), len(encoded)).T,
    )


def _moved(feature: Feature, encoded: Array) -> Marks:
    """Say which rows a coefficient moves, of its feature's encoded values, shape (rows,)."""
    if feature.factors:
        found: Marks = encoded != 0
        return found
    if feature.code is None:
        return np.ones(len(encoded), dtype=np.bool_)
    indicator: Marks = encoded * feature.scale + feature.centre > HALF
    return indicator
