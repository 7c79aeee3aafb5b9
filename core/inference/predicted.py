"""Predictions of some rows as arrays, and their two forms: a mapping for each row, and a column for each figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from core.inference.row_flags import RowFlags

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Predicted:
    """Predictions of some rows.

    Attributes:
        name: `probability`, `probabilities`, `mean` or `value`.
        middle: the predictions, shape (rows, 1), or (rows, classes) of `probabilities`.
        classes: the target's values; None: one number is predicted.
        errors: standard errors in the same shape; None: there are no intervals, and no `lows` and `highs` either.
        lows: lower ends of the intervals.
        highs: upper ends.
        flags: those that concern each row; None of a model that does not check itself.
    """

    name: str
    middle: Array
    classes: tuple[str, ...] | None = None
    errors: Array | None = None
    lows: Array | None = None
    highs: Array | None = None
    flags: RowFlags | None = None

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the predictions of several parts, one after the other."""
        first = parts[0]
        if len(parts) == 1:
            return first
        arrays: dict[str, Any] = {
            name: None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])
            for name in ("middle", "errors", "lows", "highs")
        }
        flags = first.flags
        if flags is not None:
            flags = flags.joined([part.flags for part in parts[1:] if part.flags is not None])
        return cls(name=first.name, classes=first.classes, flags=flags, **arrays)

    def listed(self) -> list[dict[str, Any]]:
        """Return a mapping for each row, as JSON answers have it; `flags` where a row has some of its own."""
        found = self._figures()
        if self.flags is not None:
            for one, flags in zip(found, self.flags.listed(), strict=True):
                one.update({"flags": flags} if flags else {})
        return found

    def _figures(self) -> list[dict[str, Any]]:
        if self.classes is None:
            found: list[dict[str, Any]] = [{self.name: value} for value in self.middle[:, 0].tolist()]
        else:
            found = [{self.name: dict(zip(self.classes, row, strict=True))} for row in self.middle.tolist()]
        if self.errors is None or self.lows is None or self.highs is None:
            return found
        every = zip(found, self.errors.tolist(), self.lows.tolist(), self.highs.tolist(), strict=True)
        for one, errors, lows, highs in every:
            if self.classes is None:
                one |= {"std_error": errors[0], "interval": [lows[0], highs[0]]}
                continue
            one["std_errors"] = dict(zip(self.classes, errors, strict=True))
            one["intervals"] = {name: list(ends) for name, *ends in zip(self.classes, lows, highs, strict=True)}
        return found

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return each figure of all rows by its column's name, shape (rows,), and flags as texts, as tables have it."""
        flags = {} if self.flags is None else {"predicted_flags": self.flags.texts()}
        return self._columns() | flags

    def _columns(self) -> dict[str, NDArray[Any]]:
        plural = "" if self.classes is None else "s"
        figures = [(f"predicted_{self.name}", self.middle)]
        if self.errors is not None and self.lows is not None and self.highs is not None:
            figures += [(f"predicted_std_error{plural}", self.errors)]
            figures += [("predicted_lower", self.lows), ("predicted_upper", self.highs)]
        if self.classes is None:
            return {name: values[:, 0] for name, values in figures}
        return {
            f"{name}[{level}]": values[:, place] for name, values in figures for place, level in enumerate(self.classes)
        }
