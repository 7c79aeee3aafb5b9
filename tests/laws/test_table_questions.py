"""Sensitivities of sums over declared columns: never passed for any cut and any edges, and almost reached."""

from dataclasses import dataclass
from itertools import cycle
from math import inf, nan, sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from core.mechanisms.lattice import round_parts
from core.oracle import Oracle
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.noise import grid_for
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency, Facts, Ranges
from core.queries.gradients import Question
from core.queries.looks import CellCounts, MagnitudeCounts
from core.queries.sums import table
from core.queries.sums.table import TableProblem
from core.queries.tables import (
    Axis,
    Cut,
    CutProducts,
    CutSums,
    InfluenceSquares,
    Partition,
    SplitCut,
    StandardCut,
    TableCounts,
)
from tests.support.grey_box import check_neighbours, run
from tests.support.problems import repeatable_generator

NUMBERS, LEVELS = 3, 4
WIDTH = NUMBERS + 1
"""Three numbers and a category of four values."""
RANGES = Ranges(
    kinds=("number",) * NUMBERS + ("constant",),
    lower=(0.0,) * WIDTH,
    upper=(1.0,) * NUMBERS + (3.0,),
    target=(0.0, 1.0),
)
HALVES = Axis(column=0, edges=(0.25, 0.5))
GROUPS = Axis(column=3, values=LEVELS)
TABLES = TableCounts(
    sigma=1.0,
    partitions=(
        Partition(axes=(HALVES,)),
        Partition(axes=(GROUPS,)),
        Partition(axes=(GROUPS, Axis(column=1, edges=(0.5,)))),
    ),
)
MISSING = TableCounts(
    sigma=1.0, partitions=tuple(Partition(axes=(one,), only_missing=True) for one in (HALVES, GROUPS))
)
MIXED = TableCounts(sigma=1.0, partitions=(*TABLES.partitions[:1], *MISSING.partitions[1:]))
SUMS = CutSums(sigma=1.0, columns=tuple(SplitCut(column=at, centre=0.5, reach=0.4) for at in range(NUMBERS)))
SPLIT = CutSums(
    sigma=1.0, columns=tuple(SplitCut(column=at, centre=0.5, reach=0.01, rest=49.0) for at in range(NUMBERS))
)
BOTH = CutSums(sigma=1.0, columns=(SUMS.columns[0], SPLIT.columns[1]))
PRODUCTS = CutProducts(sigma=1.0, columns=tuple(Cut(column=at, centre=0.5, reach=0.3) for at in range(NUMBERS)))
PAIR = CutProducts(sigma=1.0, columns=PRODUCTS.columns[:2])
STANDARD = tuple(StandardCut(column=at, centre=0.5, reach=0.5, mean=0.0, deviation=0.2) for at in range(NUMBERS))
INFLUENCES = InfluenceSquares(sigma=1.0, columns=STANDARD, correlations=(0.3, 0.0, -0.9), cap=20.0)


@dataclass(frozen=True)
class Case:
    """A question, and the part of its claim that must be reached."""

    name: str
    question: Question
    reached: float = 0.999


CASES = [
    Case("tables", TABLES),
    Case("missing", MISSING),
    Case("tables and missing", MIXED),
    Case("sums", SUMS),
    Case("split sums", SPLIT),
    Case("both sums", BOTH),
    Case("products", PRODUCTS),
    Case("products of two", PAIR, 0.94),
    Case("influences", INFLUENCES),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))


def known(units: int, adjacency: Adjacency) -> Facts:
    return Facts(units=units, dimension=WIDTH, adjacency=adjacency, gradient_bound=1.0, ranges=RANGES)


def records(draws: np.random.Generator, count: int) -> Tensor:
    """Return extreme records, records with values missing, and random ones."""
    corners = [[float(place >> at & 1) for at in range(NUMBERS)] for place in range(2**NUMBERS)]
    rows = [[*corner, level] for corner in corners for level in (0.0, 3.0)]
    rows += [[0.5, 0.5, 0.5, 1.0], [nan] * WIDTH, [nan, 1.0, 0.0, 2.0], [1.0, 0.0, 1.0, nan], [0.0, nan, nan, 3.0]]
    rows += [[*one, float(draws.integers(0, LEVELS))] for one in draws.uniform(0, 1, (count, NUMBERS))]
    return torch.tensor(rows, dtype=torch.float64)


def worst(question: Question, adjacency: Adjacency, count: int = 200) -> float:
    """Return the largest move of a sum by one record, over records, values missing and null ones among them."""
    rows, public = records(np.random.default_rng(3), count), known(1, Adjacency.ZERO_OUT)
    problems = [TableProblem(row.unsqueeze(0).clone(), torch.ones(1).bool()) for row in rows]
    problems.append(TableProblem(rows[:1].clone(), torch.zeros(1).bool()))
    found = torch.stack([one.bounded_sum(question, public, torch.zeros(WIDTH).double()) for one in problems])
    moved = torch.cdist(found, found) if adjacency is Adjacency.REPLACE_ONE else found.norm(dim=-1)
    return float(moved.max())


@every
@every_adjacency
def test_sensitivity_is_never_passed_and_almost_reached(case: Case, adjacency: Adjacency) -> None:
    claimed = case.question.sensitivity(known(1, adjacency))
    assert case.reached * claimed <= worst(case.question, adjacency) <= claimed * (1 + 1e-9)


@every_adjacency
def test_no_cut_passes_the_claim(adjacency: Adjacency) -> None:
    """Cuts are learned from noised answers: any centre and any reach."""
    draws = np.random.default_rng(4)
    for _ in range(25):
        centre, reach = draws.uniform(-1, 2), 10.0 ** draws.uniform(-9, 3)
        cut = {"centre": centre, "reach": reach}
        split = SplitCut(column=0, **cut, rest=10.0 ** draws.uniform(-9, 9))
        pair = (Cut(column=0, **cut), Cut(column=2, centre=0.1, reach=reach))
        standard = {"mean": draws.normal(), "deviation": 10.0 ** draws.uniform(-9, 3)}
        pairs = tuple(StandardCut(**one.model_dump(), **standard) for one in pair)
        for question in (
            CutSums(sigma=1.0, columns=(split,)),
            CutProducts(sigma=1.0, columns=pair),
            InfluenceSquares(sigma=1.0, columns=pairs, correlations=(draws.uniform(-1, 1),), cap=5.0),
        ):
            claimed = question.sensitivity(known(1, adjacency))
            assert worst(question, adjacency, 40) <= claimed * (1 + 1e-9)


def test_all_columns_at_the_price_of_one_would_be_seen() -> None:
    """Planted bug: 1 in place of the root of the number of partitions, columns or pairs."""
    for question, several in ((TABLES, 3), (MISSING, 2), (SUMS, 3), (SPLIT, 3), (PRODUCTS, 10), (INFLUENCES, 3)):
        assert worst(question, Adjacency.ZERO_OUT) == pytest.approx(sqrt(several))


@pytest.mark.parametrize("question", [TABLES, SUMS, SPLIT, PRODUCTS])
def test_a_lost_factor_of_replace_one_would_be_seen(question: Question) -> None:
    """Planted bug: a unit that is only zeroed."""
    assert worst(question, Adjacency.REPLACE_ONE) > 1.2 * question.sensitivity(known(1, Adjacency.ZERO_OUT))


def test_values_that_are_not_cut_would_be_seen() -> None:
    """Planted bug: the bound is kept, and what lies beyond the cut is summed as it is."""
    for question in (SUMS, SPLIT, PRODUCTS):
        with patch.object(table.Tensor, "clamp", lambda self, *_, **__: self):
            assert worst(question, Adjacency.ZERO_OUT) > 1.2 * question.sensitivity(known(1, Adjacency.ZERO_OUT))


@every
@pytest.mark.parametrize("value", [nan, inf, -inf, 1e308, -1e308, 5e-324])
def test_no_value_makes_a_sum_pass_its_bound(case: Case, value: float) -> None:
    """Each record counts by its bound at most, for any content."""
    rows, public = records(np.random.default_rng(0), 3), known(24, Adjacency.ZERO_OUT)
    for place in range(WIDTH):
        hostile = rows.clone()
        hostile[:, place] = value
        problem = TableProblem(hostile, torch.ones(len(rows)).bool())
        public = known(len(rows), Adjacency.ZERO_OUT)
        grid = grid_for(case.question, public, len(rows))
        total = problem.integer_sum(case.question, public, torch.zeros(WIDTH).double(), grid.part_step).double()
        assert float(total.norm()) * grid.part_step <= len(rows) * case.question.bound(public) * 1.002


@every
@every_adjacency
def test_the_lattice_charges_at_least_the_sensitivity_and_little_more(case: Case, adjacency: Adjacency) -> None:
    for units in (1, 1000, 1_000_000):
        public = known(units, adjacency)
        grid = grid_for(case.question, public, units)
        exact = case.question.sensitivity(public)
        assert exact / (1 - 2**-10) <= grid.sensitivity * grid.step / units <= exact * 1.002


@every
def test_questions_survive_the_wire_and_cost_one_gaussian(case: Case) -> None:
    assert TypeAdapter(Question).validate_json(case.question.model_dump_json()) == case.question
    assert case.question.event() == Gaussian(sigma=1.0)


@pytest.mark.parametrize(
    "axis", [{"edges": (0.5, 0.5)}, {"edges": (0.5, 0.1)}, {"edges": ()}, {}, {"values": 3, "edges": (0.5,)}]
)
def test_cells_that_overlap_are_refused(axis: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Axis.model_validate({"column": 0, **axis})


def everything(oracle: Oracle) -> Tensor:
    """Ask every question, each cut by what the one before answered."""
    at, told = torch.zeros(WIDTH, dtype=torch.float64), 0.0
    for case in CASES:
        question = case.question
        if isinstance(question, CutSums | CutProducts):
            moved = tuple(one.model_copy(update={"centre": 0.5 + 0.1 * told}) for one in question.columns)
            question = question.model_copy(update={"columns": moved})
        told = float(oracle.ask(question, at).value.sum().tanh())
    for question in (
        CellCounts(sigma=1.0, level=2, cells=((0, 1), (2,), (0, 3))),
        MagnitudeCounts(sigma=1.0, columns=NUMBERS, bins=5),
    ):
        told += float(oracle.ask(question, at).value.sum())
    return at + told


@every_adjacency
def test_neighbours_differ_in_integer_sums_alone(adjacency: Adjacency) -> None:
    """Grey box: replayed on neighbours, with the first run's sums, every byte that leaves is the same."""
    values = records(np.random.default_rng(1), 180)
    here = torch.ones(len(values)).bool()
    public = known(len(values), adjacency)
    first = run(TableProblem(values.clone(), here), public, everything)
    absent = here.clone()
    absent[7] = False
    changed = values.clone()
    changed[7] = torch.tensor([0.9, nan, 0.1, 2.0])
    neighbours = [TableProblem(values.clone(), absent)]
    if adjacency is Adjacency.REPLACE_ONE:
        neighbours.append(TableProblem(changed, here))
    for problem in neighbours:
        check_neighbours(first, run(problem, public, everything, recorded=first))


@pytest.mark.parametrize(
    ("case", "adjacency"), list(zip(CASES, cycle(Adjacency), strict=False)), ids=lambda one: getattr(one, "name", one)
)
def test_noise_law(case: Case, adjacency: Adjacency) -> None:
    """The deviation is the priced one, never zero: false alarm 1 in 150,000 each, the generator forced."""
    rows = records(np.random.default_rng(5), 30)
    public = known(len(rows), adjacency)
    problem, at = TableProblem(rows, torch.ones(len(rows)).bool()), torch.zeros(WIDTH).double()
    oracle = FullOracle(problem, public, UnlimitedFilter(), repeatable_generator())
    exact = problem.bounded_sum(case.question, public, at) / len(rows)
    claimed = case.question.sigma * case.question.sensitivity(public)
    answers = [oracle.ask(case.question, at) for _ in range(1500)]
    assert claimed <= answers[0].scale <= 1.002 * claimed
    errors = torch.stack([one.value - exact for one in answers]).numpy()
    assert abs(errors.std() / claimed - 1) < 0.002 + 4.5 / sqrt(2 * errors.size)
    assert abs(errors.mean()) < 4.5 * claimed / sqrt(errors.size)


def test_the_sums_are_those_of_the_formulas() -> None:
    """Against NumPy, over more records than one part has."""
    draws = np.random.default_rng(8)
    values = np.column_stack((draws.uniform(0, 1, (20_000, NUMBERS)), draws.integers(0, LEVELS, 20_000)))
    values[draws.random(values.shape) < 0.1] = nan
    here = draws.random(20_000) < 0.9
    problem = TableProblem(torch.tensor(values), torch.tensor(here))
    public, at = known(20_000, Adjacency.ZERO_OUT), torch.zeros(WIDTH).double()

    def told(question: Question) -> np.ndarray:
        grid = grid_for(question, public, 20_000)
        return problem.integer_sum(question, public, at, grid.part_step).numpy() * grid.part_step

    kept, gone = values[here], np.isnan(values[here])
    cell = np.digitize(kept[:, 0], [0.25, 0.5])
    expected = [(~gone[:, 0] & (cell == one)).sum() for one in range(3)] + [gone[:, 0].sum()]
    expected += [(kept[:, 3] == one).sum() for one in range(LEVELS)] + [gone[:, 3].sum()]
    either = gone[:, 3] | gone[:, 1]
    expected += [
        (~either & (kept[:, 3] == one) & ((kept[:, 1] >= 0.5) == high)).sum()
        for one in range(LEVELS)
        for high in (0, 1)
    ] + [either.sum()]
    assert told(TABLES).tolist() == expected
    grid = grid_for(TABLES, public, 20_000)
    counts = problem.integer_sum(TABLES, public, at, grid.part_step).numpy()
    assert round_parts(counts, grid).tolist() == [round(one / grid.step) for one in expected]
    assert told(MISSING).tolist() == [gone[:, 0].sum(), gone[:, 3].sum()]
    first = kept[~gone[:, 0], 0]
    score = (first - 0.5) / 0.01
    z = np.clip(score, -1, 1)
    r = np.clip((score - z) / 49, -1, 1)
    parts = [0.06, 0.42, 0.12, 0.28, 0.12]
    sums = [sqrt(part) * one.sum() for part, one in zip(parts, (np.ones_like(z), z, z * z, r, r * r), strict=True)]
    np.testing.assert_allclose(told(SPLIT)[:5], sums, atol=1e-2)
    whole = kept[~gone[:, :2].any(1)]
    u = np.column_stack((np.ones(len(whole)), np.clip((whole[:, :2] - 0.5) / 0.3, -1, 1)))
    np.testing.assert_allclose(told(PAIR), (u.T @ u)[np.triu_indices(3)], atol=1e-2)
    whole = kept[~gone[:, :3].any(1)]
    s = (np.clip((whole[:, :3] - 0.5) / 0.5, -1, 1)) / 0.2
    pairs = [(0, 1, 0.3), (0, 2, 0.0), (1, 2, -0.9)]
    squares = [
        np.minimum(1, (s[:, i] * s[:, j] - rho * (s[:, i] ** 2 + s[:, j] ** 2) / 2) ** 2 / 20).sum()
        for i, j, rho in pairs
    ]
    np.testing.assert_allclose(told(INFLUENCES), squares, atol=1e-2)
