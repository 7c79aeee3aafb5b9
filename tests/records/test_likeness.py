"""Comparison of two summaries: shares of rows, with errors, false alarms and misses; the canonical form of cells."""

import itertools
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from core.data.columns import ArrayColumn, BinaryColumn, CategoryColumn, Column, DateColumn, NumberColumn
from core.records.decoding import cells
from core.records.decoding.likeness import (
    BUCKETS,
    CERTAIN_BITS,
    Summarized,
    are_same,
    best_set,
    bits_of,
    column_sets,
    counts_of,
    shared,
    tag_of,
)
from core.records.decoding.summary import RowSummary

KEY = b"k" * 32


def numbers(values: Any, names: list[str] | None = None, key: bytes = KEY, batch: int = 5000) -> Summarized:
    """Summarize a table of numbers."""
    names = names or [f"c{place}" for place in range(values.shape[1])]
    made = RowSummary([NumberColumn(name=name, lower=0, upper=1) for name in names], key)
    for start in range(0, len(values), batch):
        for place, column in enumerate(made.columns):
            column.numbers(np.array(values[start : start + batch, place], dtype=np.float64))
        made.add()
    return made.finish()


def share(first: Summarized, second: Summarized) -> float | None:
    tag = best_set(first.summary.spreads, second.summary.spreads)
    if tag is None:
        return None
    one, two = (next(c.content for c in each.counts if tag_of(c.columns) == tag) for each in (first, second))
    return shared(counts_of(one), counts_of(two))


def fine(random: np.random.Generator, rows: int) -> Any:
    """Rows of which no two are equal."""
    return random.normal(size=(rows, 5))


def coarse(random: np.random.Generator, rows: int) -> Any:
    """Rows of 420 kinds, not equally frequent: most come often."""
    ages = np.minimum(random.integers(18, 88, rows), random.integers(18, 88, rows))
    return np.stack([ages, random.integers(0, 3, rows), random.random(rows) < 0.3], axis=1)


@pytest.mark.parametrize("population", [fine, coarse])
@pytest.mark.parametrize("rows", [300, 3000])
def test_unrelated_uploads_raise_no_alarm(population: Any, rows: int) -> None:
    """None of 1,000 comparisons of samples of one population: a rate of 1e-2 would pass with probability 4e-5."""
    random = np.random.default_rng(rows)
    made = [numbers(population(random, rows)) for _ in range(46)]
    pairs = list(itertools.combinations(made, 2))[:1000]
    assert len(pairs) == 1000
    assert not any(share(one, two) is not None for one, two in pairs)


@pytest.mark.parametrize("population", [fine, coarse])
def test_two_populations_raise_no_alarm(population: Any) -> None:
    """Of which one is where the other is densest: pairs across are many, and explained by pairs within."""
    random = np.random.default_rng(1)
    for _ in range(50):
        rows = population(random, 4000)
        dense = population(random, 4000)
        dense[:, 0] = np.where(random.random(4000) < 0.8, np.median(rows[:, 0]), dense[:, 0])
        assert share(numbers(rows), numbers(dense)) is None


def kinds(random: np.random.Generator, rows: int, each: int = 8) -> Any:
    """Rows of three columns of codes: of `each`**3 kinds, by default 512, equally frequent."""
    return random.integers(0, each, size=(rows, 3))


def many_kinds(random: np.random.Generator, rows: int) -> Any:
    """Rows of 19,683 kinds: within a small upload hardly two are equal, and in a large one many."""
    return kinds(random, rows, 27)


def skewed(random: np.random.Generator, rows: int) -> Any:
    """Rows of three columns of codes, of which the low ones come most."""
    return np.minimum(random.geometric(0.15, size=(rows, 3)), 25)


@pytest.mark.parametrize("population", [fine, coarse, kinds, many_kinds, skewed])
@pytest.mark.parametrize(("rows", "others"), [(1000, 8000), (500, 20_000), (100, 30_000)])
def test_samples_of_unequal_size_raise_no_alarm(population: Any, rows: int, others: int) -> None:
    """None of 80 pairs of independent samples; the old rule raised 5 to 40 of them where rows repeat."""
    random = np.random.default_rng([rows, others])
    alarms = [share(numbers(population(random, rows)), numbers(population(random, others))) for _ in range(80)]
    assert [found for found in alarms if found is not None] == []


@pytest.mark.parametrize(("of_small", "of_large"), [(0.5, 0.02), (0.1, 0.5), (0.8, 0.01)])
@pytest.mark.parametrize(("rows", "others"), [(1000, 8000), (500, 20_000)])
def test_one_repeated_part_raises_no_alarm(of_small: float, of_large: float, rows: int, others: int) -> None:
    """Two populations repeat the same 100 rows, the one often and the other seldom; all other rows differ."""
    random = np.random.default_rng([rows, others, int(100 * of_small)])

    def upload(count: int, part: float) -> Any:
        drawn = fine(random, count)
        core = random.random(count) < part
        drawn[core] = random.integers(0, 100, size=(core.sum(), 1))
        return drawn

    alarms = [share(numbers(upload(rows, of_small)), numbers(upload(others, of_large))) for _ in range(60)]
    assert [found for found in alarms if found is not None] == []


@pytest.mark.parametrize(
    ("population", "part"), [(fine, 2), (fine, 10), (fine, 30), (kinds, 2), (many_kinds, 2), (many_kinds, 5)]
)
def test_part_of_a_table_is_found_where_rows_repeat(population: Any, part: int) -> None:
    """At most 3 of 50 parts of 12,000 rows are missed."""
    random = np.random.default_rng(part)
    missed = 0
    for _ in range(50):
        rows = population(random, 12_000)
        missed += share(numbers(rows), numbers(rows[random.permutation(12_000)[: 12_000 // part]])) is None
    assert missed <= 3


@pytest.mark.parametrize("population", [fine, coarse])
@pytest.mark.parametrize(("common", "found"), [(0.35, 0.0), (0.65, 1.0), (0.9, 1.0)])
def test_shares_are_told_from_a_half(population: Any, common: float, found: float) -> None:
    """200 pairs each; at most 1 in 100 goes wrong (binomial, p below 1e-6 where the rate were 8 %)."""
    random = np.random.default_rng(2)
    alarms = 0
    for _ in range(200):
        rows = population(random, 4000)
        kept = rows[random.permutation(4000)[: int(4000 * common)]]
        other = np.vstack([kept, population(random, 4000 - len(kept))])
        alarms += share(numbers(rows), numbers(other)) is not None
    assert abs(alarms / 200 - found) <= 0.01


@pytest.mark.parametrize(("part", "most_missed"), [(2, 0.0), (10, 0.0), (30, 0.02), (60, 0.4)])
def test_part_of_a_table_is_found(part: int, most_missed: float) -> None:
    """Whole rows, 1 in `part` of 30,000; a sixtieth is missed in two cases of five."""
    random = np.random.default_rng(3)
    missed = 0
    for _ in range(50):
        rows = fine(random, 30_000)
        missed += share(numbers(rows), numbers(rows[random.permutation(30_000)[: 30_000 // part]])) is None
    assert stats.binomtest(missed, 50, max(most_missed, 1e-3), "greater").pvalue > 1e-4


def test_a_share_is_estimated() -> None:
    random = np.random.default_rng(4)
    rows = fine(random, 20_000)
    found = [
        share(numbers(rows, key=bytes([seed]) * 32), numbers(rows[:14_000], key=bytes([seed]) * 32))
        for seed in range(40)
    ]
    assert np.mean([one for one in found if one is not None]) == pytest.approx(1, abs=0.03)
    assert np.std([one for one in found if one is not None]) < 0.08


@pytest.mark.parametrize("count", [5, 8, 16, 40, 200])
def test_tables_that_differ_in_a_few_columns_have_a_set_in_common(count: int) -> None:
    """Any one column dropped; and of ten random ones, with 16 columns or more, in nine of ten cases."""
    names = [f"column {place}" for place in range(count)]
    sets = set(column_sets(names))
    assert len(sets) <= 31
    for name in names:
        assert sets & set(column_sets([one for one in names if one != name]))
    if count >= 16:
        random = np.random.default_rng(5)
        hit = [
            bool(sets & set(column_sets(sorted(random.permutation(names)[: count - 10].tolist())))) for _ in range(200)
        ]
        assert np.mean(hit) >= 0.9


def test_the_same_records_in_any_order_and_any_batches() -> None:
    random = np.random.default_rng(6)
    rows = fine(random, 9000)
    one, two = numbers(rows), numbers(rows[::-1], batch=777)
    assert one == two
    assert are_same(one.summary, two.summary)
    assert not are_same(one.summary, numbers(rows[1:]).summary)
    assert not are_same(one.summary, numbers(rows, key=b"x" * 32).summary), "another owner's key"


def test_columns_swapped_between_rows_are_other_records() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert not are_same(numbers(rows).summary, numbers(rows[:, ::-1]).summary)
    mixed = np.array([[1.0, 4.0], [3.0, 2.0]])  # each column as before
    assert not are_same(numbers(rows).summary, numbers(mixed).summary)


def test_columns_that_say_little_are_no_proof() -> None:
    """Two tables with one yes-or-no column in common, half and half in both."""
    yes = np.tile([[0.0], [1.0]], (200, 1))
    random = np.random.default_rng(7)
    one = numbers(np.hstack([yes, random.normal(size=(400, 1))]), ["y", "a"])
    two = numbers(np.hstack([yes, random.normal(size=(400, 1))]), ["y", "b"])
    assert one.summary.columns["y"].digest == two.summary.columns["y"].digest
    assert not are_same(one.summary, two.summary)
    assert share(one, two) is None


def test_bits_bound_the_chance_that_two_samples_agree() -> None:
    """Of 16 levels, 400 rows: the exact chance of equal counts is below 2^-bits times 4."""
    assert bits_of([400]) == bits_of([]) == 0
    random = np.random.default_rng(8)
    for weights in ([0.5, 0.5], [0.7, 0.2, 0.1]):
        draws = random.multinomial(400, weights, 400_000)
        equal = np.mean((draws[::2] == draws[1::2]).all(axis=1))
        bits = np.mean([bits_of(draw) for draw in draws[:200].tolist()])
        assert 0.25 < equal * 2**bits < 4
    assert bits_of(random.multinomial(400, [1 / 16] * 16).tolist()) > CERTAIN_BITS


def one_column(column: Column, values: pa.Array) -> str:
    made = RowSummary([column], KEY)
    cells.convert(column, values, made.columns[0])  # type: ignore[arg-type] # a column of single values
    made.add()
    return made.finish().summary.records


NUMBER = NumberColumn(name="x", lower=0, upper=1)
WORDS = CategoryColumn(name="x", values=("1", "2"))


def test_a_cell_is_the_same_however_it_is_declared_or_written() -> None:
    texts = pa.array(["1", "2.5", None, " 3e0 ", "-0", ""])
    expected = one_column(NUMBER, texts)
    floats = [1.0, 2.5, None, 3.0, 0.0, None]
    assert one_column(NUMBER, pa.array(floats)) == expected
    assert one_column(NUMBER, pa.array(floats, pa.float32())) == expected
    assert one_column(WORDS, texts) == expected
    assert one_column(BinaryColumn(name="x", values=("a", "b")), texts) == expected
    assert one_column(NumberColumn(name="x", lower=2, upper=3, missing=("1",), fill=2.0), texts) == expected
    assert one_column(NumberColumn(name="z", lower=0, upper=1), texts) != expected, "another column"
    assert one_column(NUMBER, pa.array(["1", "2.5", None, "3", "0", "0"])) != expected, "zero is not missing"


def test_a_day_is_the_same_however_it_is_declared() -> None:
    texts = pa.array(["2020-02-29", None, "1999-12-31"])
    days = pa.array([date(2020, 2, 29), None, date(1999, 12, 31)])
    one = DateColumn(name="x", lower=date(2000, 1, 1), upper=date(2001, 1, 1))
    two = DateColumn(name="x", lower=date(1900, 1, 1), upper=date(2101, 1, 1))
    assert one_column(one, texts) == one_column(two, days) == one_column(WORDS, texts)


def test_arrays_count_by_all_their_numbers() -> None:
    column = ArrayColumn(name="x", shape=(2, 2), lower=0, upper=255)

    def of(values: Any) -> str:
        made = RowSummary([column], KEY)
        made.columns[0].arrays(len(values) + 1, np.arange(len(values)), np.array(values, dtype=np.float64))
        made.add()
        return made.finish().summary.records

    images = [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert of(images) == of(images[::-1])
    assert of(images) != of([[1, 0, 2, 3], [4, 5, 6, 7]])
    assert of(images) != of([[0, 1, 2, 3], [4, 5, 6, 8]])


def test_memory_is_bounded_by_the_sets_of_columns() -> None:
    made = numbers(fine(np.random.default_rng(9), 2000), [f"c{place}" for place in range(5)])
    assert all(len(one.content) == 4 * BUCKETS for one in made.counts)
