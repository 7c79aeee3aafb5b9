"""Rows as they were decoded, before bounds and categories, summarized under a key: batch by batch, in bounded memory.

A cell is a number, a day, a text or missing, under any declaration of its column: "1", " 1.0" and 1 are one number.
Numbers are compared in single precision, so that a column written with four bytes is still the same. Days are those of
ISO dates. Each cell gets a 64-bit hash under its column's own key; a row's hash by some columns is the sum of theirs.
The hashes are fast, not cryptographic: readers cannot see them since all of it is stored sealed.

Memory holds one batch's hashes, and counts of a fixed size for at most 31 sets of columns
(`core.records.decoding.likeness`). The time taken does not depend on values, but for texts, each of which is hashed
once.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import date
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.data.columns import ArrayColumn, Column, numbers_in
from core.data.dates import ISO_DATE
from core.records.decoding.likeness import (
    BUCKETS,
    LEVELS,
    ColumnSum,
    RowCounts,
    Summarized,
    Summary,
    bits_of,
    column_sets,
    spread_of,
    tag_of,
)

Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Above the 32 bits of a number, so that no number looks like a day or a gap.
_DAY: Final = np.uint64(1 << 32)
_MISSING: Final = np.uint64(1 << 33)
_BLOCK_ROWS: Final = 8192
"""Looked at together: their hashes stay in the processor's cache."""
_MOST_TEXTS: Final = 100_000
_BUCKET_SHIFT: Final = np.uint64(64 - BUCKETS.bit_length() + 1)
_LEVEL_SHIFT: Final = np.uint64(64 - LEVELS.bit_length() + 1)
_MIX: Final = tuple(
    (np.uint64(shift), np.uint64(factor)) for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
)


class ColumnCells:
    """The cells of one column: hashed under its key, and summed as a multiset."""

    def __init__(self, column: Column, key: bytes) -> None:
        self._key = blake2b(column.name.encode(), key=key).digest()
        first, second = np.frombuffer(self._key[:16], np.uint64)
        # Odd factors are invertible modulo 2^64, so that different cells stay different.
        self._factor, self._offset = first | np.uint64(1), second
        self._texts: dict[str | None, int] = {}
        width = numbers_in(column) if isinstance(column, ArrayColumn) else 0
        self._factors = _expanded(self._key, width)
        self.hashes: Hashes = np.zeros(0, np.uint64)
        """Of the last batch, a row each."""
        self._sums = [0, 0]
        self._levels = np.zeros(LEVELS, np.int64)

    def numbers(self, values: Floats) -> None:
        """Take a batch of numbers, NaN where missing."""
        self._take(_bits(values), np.isnan(values))

    def days(self, values: Floats) -> None:
        """Take a batch of days since 1 January of year 1, NaN where missing."""
        self._take(_bits(values) | _DAY, np.isnan(values))

    def codes(self, texts: Sequence[str | None], places: npt.NDArray[np.integer[Any]]) -> None:
        """Take a batch of texts: row i has `texts[places[i]]`, or none where `places[i]` is their number."""
        table = np.array([*(self._of_text(text) for text in texts), self._of_text(None)], np.uint64)
        self._add(table[places])

    def arrays(self, rows: int, places: npt.NDArray[np.int64], values: Floats) -> None:
        """Take a batch of arrays: those of the rows `places`, shape (len(places), numbers); the others are missing."""
        bits = _bits(values)
        bits[np.isnan(values)] = _MISSING
        found = np.full(rows, _MISSING)
        found[places] = (bits * self._factors).sum(axis=1, dtype=np.uint64)
        self._add(_mixed(found * self._factor + self._offset))

    def _take(self, found: Hashes, missing: npt.NDArray[np.bool_]) -> None:
        found[missing] = _MISSING
        for start in range(0, len(found), _BLOCK_ROWS):
            block = found[start : start + _BLOCK_ROWS]
            block *= self._factor
            block += self._offset
            _mixed(block)
        self._add(found)

    def _add(self, hashes: Hashes) -> None:
        self.hashes = hashes
        for start in range(0, len(hashes), _BLOCK_ROWS):
            block = hashes[start : start + _BLOCK_ROWS]
            self._sums[0] += int(block.sum(dtype=np.uint64))
            self._sums[1] += int(np.dot(block, block))
            self._levels += np.bincount((block >> _LEVEL_SHIFT).view(np.int64), minlength=LEVELS)

    def _of_text(self, text: str | None) -> int:
        """Return the hash of a text, as that of the number or day that it says."""
        found = self._texts.get(text)
        if found is None:
            # Free text has no end of kinds; one that comes again is only hashed again.
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            found = self._texts[text] = self._hash(text)
        return found

    def _hash(self, text: str | None) -> int:
        text = (text or "").strip()
        if not text:
            kind = np.array([_MISSING])
        elif _NUMBER.fullmatch(text):
            kind = _bits(np.array([float(text)]))
        elif (day := _day(text)) is not None:
            kind = _bits(np.array([float(day)])) | _DAY
        else:
            return int.from_bytes(blake2b(text.encode(), digest_size=8, key=self._key).digest(), "little")
        return int(_mixed(kind * self._factor + self._offset)[0])

    @property
    def sum(self) -> ColumnSum:
        """The sum of all batches."""
        return ColumnSum(digest=_digest(self._sums), bits=round(bits_of(self._levels.tolist()), 3))


class RowSummary:
    """Summarizes the rows of one upload. For each batch: every column's cells, then `add`."""

    def __init__(self, columns: Sequence[Column], key: bytes) -> None:
        """Prepare to hash under `key`, 32 bytes."""
        self.columns = [ColumnCells(column, key) for column in columns]
        self._names = [column.name for column in columns]
        self._sets = column_sets(self._names)
        self._plans = _plans(self._sets)
        self._counts = np.zeros((len(self._sets), BUCKETS), np.int64)
        self._sums = [0, 0]
        self._rows = 0

    def add(self) -> None:
        """Count a batch's rows, whose cells every column has."""
        rows = len(self.columns[0].hashes)
        for start in range(0, rows, _BLOCK_ROWS):
            self._add(
                {
                    name: column.hashes[start : start + _BLOCK_ROWS]
                    for name, column in zip(self._names, self.columns, strict=True)
                }
            )
        self._rows += rows

    def _add(self, hashes: "dict[str | tuple[str, ...], Hashes]") -> None:
        for place, parts in zip(reversed(range(len(self._sets))), self._plans, strict=True):
            found = hashes[self._sets[place]] = _summed([hashes[part] for part in parts])
            self._counts[place] += np.bincount((found >> _BUCKET_SHIFT).view(np.int64), minlength=BUCKETS)
        rows = hashes[self._sets[0]]
        self._sums[0] += int(rows.sum(dtype=np.uint64))
        self._sums[1] += int(_mixed(rows.copy()).sum(dtype=np.uint64))

    def finish(self) -> Summarized:
        """Return the summary of all batches."""
        counts = self._counts.astype("<u4")
        tags = [tag_of(names) for names in self._sets]
        return Summarized(
            summary=Summary(
                rows=self._rows,
                records=_digest(self._sums),
                columns={name: cells.sum for name, cells in zip(self._names, self.columns, strict=True)},
                spreads={tag: round(spread_of(row.tolist()), 1) for tag, row in zip(tags, self._counts, strict=True)},
            ),
            counts=tuple(
                RowCounts(columns=names, counts=b64encode(row.tobytes()).decode())
                for names, row in zip(self._sets, counts, strict=True)
            ),
        )


def _plans(sets: Sequence[tuple[str, ...]]) -> list[list[str | tuple[str, ...]]]:
    """Return of which columns and of which sets before it each set is the sum, from the last set to the first."""
    done: list[tuple[str, ...]] = []
    plans = []
    for names in reversed(sets):
        left, parts = set(names), list[str | tuple[str, ...]]()
        for one in sorted(done, key=len, reverse=True):
            if left.issuperset(one):
                parts.append(one)
                left.difference_update(one)
        plans.append([*parts, *sorted(left)])
        done.append(names)
    return plans


def _summed(parts: Sequence[Hashes]) -> Hashes:
    if len(parts) == 1:
        return parts[0]
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total


def _bits(values: Floats) -> Hashes:
    """Return numbers as the bits of single precision; zero has one sign."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
    single += np.float32(0)  # -0 becomes +0
    return single.view(np.uint32).astype(np.uint64)


def _mixed(found: Hashes) -> Hashes:
    """Mix the bits of each number, in place (the finalizer of SplitMix64)."""
    for shift, factor in _MIX:
        found ^= found >> shift
        found *= factor
    found ^= found >> np.uint64(31)
    return found


def _expanded(key: bytes, count: int) -> Hashes:
    """Return odd factors, one for each number of an array."""
    blocks = (blake2b(place.to_bytes(8, "little"), key=key).digest() for place in range(-(-count // 8)))
    return np.frombuffer(b"".join(blocks), np.uint64)[:count] | np.uint64(1)


def _day(text: str) -> int | None:
    if re.match(ISO_DATE, text) is None:
        return None
    try:
        return date.fromisoformat(text[:10]).toordinal()
    except ValueError:
        return None


def _digest(sums: Sequence[int]) -> str:
    return "".join(f"{part % 2**64:016x}" for part in sums)
