"""Cells of one column that its declaration does not expect: misspelt values, and extremes for those who ask."""

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.data.columns import ArrayColumn, CategoryColumn, Coded, Column, DateColumn, Ordered, key_of
from core.data.reading import FileReading
from core.records.decoding.cells import Floats, missing_numbers
from farthing.schemas.local import ExtremesView, MisspeltView

_MOST_TEXTS: Final = 10_000
"""Different undeclared texts of a column that are counted."""
_LOOKED_AT: Final = 50
_SHOWN: Final = 20
_LETTERS: Final = 60
"""Longer texts are no misspelt values."""
_ALIKE: Final = 0.82
_WORD: Final = 0.6


class Strange:
    """Takes the cells of a column as they were read (`core.records.decoding.cells.RawCells`).

    Args:
        column: as declared.
        reading: of its file.
    """

    def __init__(self, column: Column, reading: FileReading) -> None:
        self._column = column
        self._least, self._most = np.inf, -np.inf
        self._texts: Counter[str] = Counter()
        self._codes = missing_numbers(column, reading) if isinstance(column, Ordered) else []
        self._known = _known(column) if isinstance(column, Coded) else frozenset()

    def numbers(self, values: Floats) -> None:
        """Take numbers, NaN where a cell is none."""
        self._take(values[~np.isin(values, self._codes)])

    def days(self, values: Floats) -> None:
        """Take days since 1 January of year 1, NaN where a cell is none."""
        assert isinstance(self._column, DateColumn)
        coded = np.isin(values - self._column.lower.toordinal(), self._codes)
        self._take(values[~coded])

    def arrays(self, rows: int, places: npt.NDArray[np.int64], values: Floats) -> None:
        """Take the arrays of some rows."""
        del rows, places
        column = self._column
        coded = np.isin(values, column.missing) if isinstance(column, ArrayColumn) and column.missing else False
        self._take(np.where(coded, np.nan, values))

    def codes(self, texts: Sequence[str | None], places: npt.NDArray[np.integer[Any]]) -> None:
        """Take texts: row i has `texts[places[i]]`, or none where `places[i]` is their number."""
        assert isinstance(self._column, Coded)
        counts = np.bincount(places, minlength=len(texts)).tolist()
        for text, count in zip(texts, counts, strict=False):
            cell = (text or "").strip()
            if count and key_of(self._column, cell) not in self._known:
                cell = cell[:200]
                if cell in self._texts or len(self._texts) < _MOST_TEXTS:
                    self._texts[cell] += count

    def misspelt(self) -> list[MisspeltView]:
        """Return the commonest undeclared texts that are nearly a value, with that value."""
        column = self._column
        if not isinstance(column, Coded):
            return []
        folded = {value.casefold(): value for value in column.values if len(value) <= _LETTERS}
        found = []
        for text, cells in self._texts.most_common(_LOOKED_AT):
            near = difflib.get_close_matches(text.casefold(), folded, n=1, cutoff=_ALIKE) if _is_short(text) else []
            if near and _are_words_alike(text.casefold(), near[0]):
                found.append(MisspeltView(column=column.name, text=text, cells=cells, nearest=folded[near[0]]))
        return found

    def extremes(self) -> ExtremesView:
        """Return the least and the greatest cell, and the commonest undeclared texts."""
        empty = self._least > self._most
        return ExtremesView(
            column=self._column.name,
            least=None if empty else self._shown(self._least),
            most=None if empty else self._shown(self._most),
            undeclared=[text for text, _ in self._texts.most_common(_SHOWN)],
        )

    def _take(self, values: Floats) -> None:
        values = values[~np.isnan(values)]
        if len(values):
            self._least, self._most = min(self._least, values.min()), max(self._most, values.max())

    def _shown(self, value: float) -> str:
        return date.fromordinal(int(value)).isoformat() if isinstance(self._column, DateColumn) else f"{value:.15g}"


def _known(column: Coded) -> frozenset[str]:
    """Return the keys of all texts that mean a value, or that none is known."""
    other = [column.other] if isinstance(column, CategoryColumn) and column.other is not None else []
    return frozenset({"", *column.places, *(key_of(column, text) for text in (*column.missing, *other))})


def _is_short(text: str) -> bool:
    return len(text) <= _LETTERS


def _are_words_alike(text: str, value: str) -> bool:
    """Tell whether two texts differ by spelling alone: `type 2` and `type 3` are two values."""
    if re.findall(r"\d", text) != re.findall(r"\d", value):
        return False
    words, others = (re.findall(r"[^\W_]+", one) for one in (text, value))
    if len(words) != len(others):
        return True
    pairs = zip(words, others, strict=True)
    return all(difflib.SequenceMatcher(None, one, other).ratio() >= _WORD for one, other in pairs)
