"""Keyed summaries of an upload's records, and what two of them say: the same records, many in common, or nothing.

Everything here is for the records' owner alone: it is stored sealed (`core.ledger.identities`), and nobody else sees
it.

*Same records.* Of each column the multiset of its decoded cells has a digest that no order changes, and so has the
multiset of whole rows. Two uploads with the same columns hold the same records where the digests of rows agree. With
other columns, all that both have must agree, and one of them must vary enough that this is no coincidence.

*Records in common.* Rows are counted in `BUCKETS` buckets by a keyed hash of their cells. This is done for up to 31
sets of columns (`column_sets`), so that uploads with some columns of their own share a set. Let uploads of n and m
rows, n <= m, have counts a and b. Of their pairs of rows, across both and within each, these parts are equal:

    c = <a, b>/(n m),   p = (|a|^2 - n)/(n (n - 1)),   q = (|b|^2 - m)/(m (m - 1)),

each then freed of collisions: (B c - 1)/(B - 1) with B buckets. The share of the n rows that are among the m is
estimated by m (c - sqrt(p q)). That is equal pairs across, less the number that equal rows within each explain. (By
Cauchy and Schwarz no two unrelated populations have more.) This is the sketch of Alon, Gibbons, Matias and Szegedy
(1999) in the bucketed form of Cormode and Garofalakis (2005).

*Chance.* Let P and Q be p and q before they are freed. Samples of one population differ from it by d/n and e/m, of
which c has <d, e>/(n m), p has |d|^2/n^2 and q has |e|^2/m^2 beside terms that are linear in d and e. The linear terms
of c - sqrt(p q) cancel where both populations are one. The rest are uncorrelated, with variances P/(n m), 2 P/n^2 and
2 Q/m^2. The share then has the variance

    m/n sqrt(P Q) + (m/n)^2 P/2 q/p + Q/2 p/q,

which is ((n + m)/n)^2 P/2 for p = q. Where rows hardly repeat, p is mostly noise. The square root then loses at most
all that repeats explain: m q, which the larger upload shows with a deviation of sqrt(2 Q). The pairs across remain,
and the smaller upload's rows show their variance one by one. Chance is the lesser of the two bounds.
"""

import json
from array import array
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from itertools import chain
from math import inf, log2, pi, sqrt
from operator import mul
from sys import byteorder
from typing import Final

from pydantic import Field

from core.privacy.facts import Frozen

BUCKETS: Final = 2048
"""Of 4 bytes each: a set of columns takes 8 KiB, an upload at most 31 sets."""
LEVELS: Final = 16
"""Buckets by which a column's variety is judged."""
NEAR: Final = 0.5
"""Above this share of rows in common an upload is a near-copy."""
LEAST_SPREAD: Final = 64.0
"""Rows that fill fewer buckets than this say nothing about a near-copy."""
DEVIATIONS: Final = 5.0
"""A share below this many standard deviations is chance."""
CERTAIN_BITS: Final = 40.0
"""Columns that agree by a chance of 2^-40 at most are the same records."""
_SURE: Final = 3.0
"""Deviations by which equal rows of the smaller upload are no chance."""
_AS_GOOD: Final = 0.8
_FEW: Final = 4
_GROUPS: Final = 16


class ColumnSum(Frozen):
    """A column's cells, as a multiset."""

    digest: str
    bits: float = Field(description="minus log2 of the chance that another sample of the same population agrees")


class RowCounts(Frozen):
    """Counts of rows in each bucket, by the cells of some columns."""

    columns: tuple[str, ...] = Field(description="their names, sorted")
    counts: str = Field(description="unsigned 32-bit numbers, the lower byte first, as base64")

    @property
    def content(self) -> bytes:
        """The counts as they are stored."""
        return b64decode(self.counts)


class Summary(Frozen):
    """The summary of an upload's records, which the next upload is compared with."""

    rows: int
    records: str = Field(description="digest of the multiset of rows, over all columns")
    columns: dict[str, ColumnSum]
    spreads: dict[str, float] = Field(description="of each set of columns, by its tag")


class Summarized(Frozen):
    """A summary with its counts, which are stored one by one."""

    summary: Summary
    counts: tuple[RowCounts, ...]


def column_sets(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns by which rows are counted, each sorted, the set of all first; none twice.

    Up to four columns: every subset. More: they are dealt into 16 groups by their names; the groups, four joined ones,
    and all unions of these four. Uploads whose declarations differ in a few columns therefore have sets in common.
    """
    if len(names) <= _FEW:
        groups = [[name] for name in sorted(names)]
        fine: list[list[str]] = []
    else:
        fine = [[] for _ in range(_GROUPS)]
        for name in sorted(names):
            # By the name alone, without a key: all uploads must deal a column into the same group.
            fine[blake2b(name.encode(), digest_size=8).digest()[0] % _GROUPS].append(name)
        groups = [list(chain.from_iterable(fine[first::_FEW])) for first in range(_FEW)]
    unions = [
        list(chain.from_iterable(group for place, group in enumerate(groups) if mask >> place & 1))
        for mask in range((1 << len(groups)) - 1, 0, -1)
    ]
    return tuple(dict.fromkeys(tuple(sorted(columns)) for columns in [*unions, *fine] if columns))


def tag_of(columns: Iterable[str]) -> str:
    """Return a short name for a set of columns: their names are public, so this is too."""
    return sha256(json.dumps(sorted(columns)).encode()).hexdigest()[:32]


def bits_of(levels: Sequence[int]) -> float:
    """Return how unlikely it is, in bits, that another sample of the same population fills the same levels."""
    filled = [count for count in levels if count]
    if len(filled) < 2:  # noqa: PLR2004 - one level: a constant, which says nothing
        return 0.0
    # Two Poisson counts of mean c agree with chance 1/sqrt(4 pi c); the total agrees anyway.
    return max(0.0, sum(log2(4 * pi * count) for count in filled) / 2 - log2(4 * pi * sum(filled)) / 2)


def spread_of(counts: Sequence[int]) -> float:
    """Return how many buckets are in use, by their weight: (sum)^2 / sum of squares."""
    squares = sum(map(mul, counts, counts))
    return sum(counts) ** 2 / squares if squares else 0.0


def are_same(first: Summary, second: Summary) -> bool:
    """Tell whether two uploads hold the same records, on the columns that both declare."""
    if first.rows != second.rows:
        return False
    if first.columns.keys() == second.columns.keys():
        return first.records == second.records
    both = first.columns.keys() & second.columns.keys()
    if any(first.columns[name].digest != second.columns[name].digest for name in both):
        return False
    return max((min(first.columns[name].bits, second.columns[name].bits) for name in both), default=0) >= CERTAIN_BITS


def best_set(first: Mapping[str, float], second: Mapping[str, float]) -> str | None:
    """Return the tag of the set of columns that tells two uploads' rows apart best; None where no set will do."""
    both = {tag: min(spread, second[tag]) for tag, spread in first.items() if tag in second}
    enough = max(LEAST_SPREAD / 2, _AS_GOOD * max(both.values(), default=0))
    return next(
        (tag for tag, spread in both.items() if spread >= enough), None
    )  # by falling masks: mostly larger first


def counts_of(content: bytes) -> "array[int]":
    """Return the counts in what is stored of them."""
    found = array("I")
    found.frombytes(content)
    if byteorder == "big":
        found.byteswap()
    return found


def shared(first: Sequence[int], second: Sequence[int], above: float = NEAR) -> float | None:
    """Return the share of rows that two uploads have in common, of the smaller one; None: chance, or little.

    Args:
        first: the counts of one upload, by bucket.
        second: those of the other, by the same set of columns under the same key.
        above: the least share to speak of.
    """
    small, large = sorted((first, second), key=sum)
    rows = sum(small)
    spread = spread_of([one + two for one, two in zip(small, large, strict=True)])
    if rows < 2 or spread < LEAST_SPREAD:  # noqa: PLR2004 - one row has no pairs
        return None
    share, chance = _share_and_chance(small, large, spread)
    return share if share > max(above, chance) else None


def _share_and_chance(small: Sequence[int], large: Sequence[int], spread: float) -> tuple[float, float]:
    """Return the share of the smaller upload's rows, and how much of it is chance: `DEVIATIONS` deviations."""
    rows, others = sum(small), sum(large)
    across = sum(map(mul, small, large))
    in_small, in_large = _within(small), _within(large)
    repeats, besides = max(0.0, _freed(in_small)), max(0.0, _freed(in_large))
    share = others * (_freed(across / rows / others) - sqrt(repeats * besides))

    # By luck all rows may differ; a variance of zero would make any share certain.
    in_small, in_large = max(in_small, 1 / spread), max(in_large, 1 / spread)
    crossing = others / rows * sqrt(in_small * in_large)
    of_small, of_large = (others / rows) ** 2 * in_small / 2, in_large / 2
    smooth = (
        sqrt(crossing + of_small * besides / repeats + of_large * repeats / besides) if repeats and besides else inf
    )

    squares = sum(one * two * two for one, two in zip(small, large, strict=True))
    by_row = (squares / rows - (across / rows) ** 2) / rows
    sure = repeats - _SURE * sqrt(2 * in_small) / rows
    whole = DEVIATIONS * sqrt(max(by_row, crossing) + 2 * in_large)
    return share, min(DEVIATIONS * smooth, others * max(besides, sure) + whole)


def _within(counts: Sequence[int]) -> float:
    """Return the chance that two different rows of an upload lie in one bucket, of at least two rows."""
    rows = sum(counts)
    alike: int = sum(map(mul, counts, counts)) - rows
    return alike / (rows * (rows - 1))


def _freed(chance: float) -> float:
    """Return the chance that two rows are equal, from the chance that they lie in one bucket."""
    return (chance * BUCKETS - 1) / (BUCKETS - 1)
