"""Sensitivities of sums with public arguments of their own: never passed for any encoding, and almost reached."""

from dataclasses import dataclass
from functools import cache
from itertools import cycle
from math import inf, nan, sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from core.losses.categorical import Logistic
from core.losses.counts import CutPoisson, Poisson
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.mechanisms.lattice import round_parts
from core.oracle import Oracle
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.noise import grid_for
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency, Facts, Ranges
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.gradients import Looked, Question
from core.queries.looks import (
    CellCounts,
    IntegerCounts,
    LinearResidualCounts,
    MagnitudeCounts,
    ProductMagnitudeCounts,
    ResidualMagnitudeCounts,
    SecondMoments,
    ValueCounts,
    WeightSums,
)
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient
from core.queries.sums import looking
from core.queries.sums.linear import LinearProblem
from tests.support.grey_box import check_neighbours, neighbours, run
from tests.support.problems import LOGISTIC, WEIGHTS, facts, repeatable_generator

LOSSES: dict[str, Logistic | Huber | CutPoisson] = {
    "logistic": Logistic(),
    "huber": Huber(c=1.345, scale=1.0),
    "least squares": Huber(c=4.5, scale=1.0),
    "counts": CutPoisson(rate_cap=6.0, cut=5.0),
    "dispersed counts": CutPoisson(rate_cap=6.0, cut=40.0, dispersion=0.5),
}
BOUND = 1.7
"""t of the weights."""
COLUMNS, VALUES, PRODUCTS, FEW = 3, 2, 2, (5, 3)
PEAK = 0.7
"""Far below the largest rate of the counts here."""
RANGES = Ranges(
    kinds=("constant", *["number"] * COLUMNS, *["two"] * VALUES, *["product"] * PRODUCTS, *["few"] * len(FEW)),
    lower=(1.0, *[-1.0] * (COLUMNS + VALUES + PRODUCTS + len(FEW))),
    upper=(1.0, *[1.0] * (COLUMNS + VALUES + PRODUCTS + len(FEW))),
    values=(*[0] * (1 + COLUMNS + VALUES + PRODUCTS), *FEW),
    target=(0.0, 1.0),
)
WIDTH = 1 + COLUMNS + VALUES + PRODUCTS + len(FEW)
CELLS = CellCounts(sigma=1.0, level=3, cells=((0, 3), (1, 6, 7), (2, 5)))
QUARTILES = CellCounts(sigma=1.0, of="target", level=2, cells=((0, 3),))
RESIDUALS = LinearResidualCounts(sigma=1.0, bins=9, per_octave=2, top=4.0, target_centre=0.5, target_unit=0.5)
SIZES = MagnitudeCounts(sigma=1.0, columns=COLUMNS, bins=22)
MULTIPLIED = ProductMagnitudeCounts(sigma=1.0, columns=PRODUCTS, bins=34)
COUNTS = MagnitudeCounts(sigma=1.0, of="target", columns=1, bins=44, per_octave=2)
ONES = ValueCounts(sigma=1.0, columns=VALUES)
EVENTS = ValueCounts(sigma=1.0, of="target", columns=1)
COUNT_RESIDUALS = ResidualMagnitudeCounts(sigma=1.0, rate_cap=6.0, top=20.0, bins=44, per_octave=2)
INTEGERS = IntegerCounts(sigma=1.0, values=FEW)
COUNTED = (CELLS, QUARTILES, RESIDUALS, SIZES, MULTIPLIED, COUNTS, COUNT_RESIDUALS, ONES, EVENTS, INTEGERS)
MOMENTS = SecondMoments(sigma=1.0, weight_bound=BOUND, target_centre=0.5, target_unit=0.5)
LEVERS = WeightSums(sigma=1.0, weight_bound=BOUND)
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))


@dataclass(frozen=True)
class Case:
    """A question of a loss, and the part of its claim that must be reached."""

    name: str
    question: Looked
    loss: Loss = LOGISTIC
    reached: float = 0.97


def _reencoded() -> list[Case]:
    cases = [Case("moments", MOMENTS, reached=0.85), Case("weights", LEVERS)]
    for name, loss in LOSSES.items():
        model = Poisson(cap=1e7) if isinstance(loss, CutPoisson) else loss
        cases.append(Case(f"gradient, {name}", ReencodedGradient(sigma=1.0, loss=loss, weight_bound=BOUND), model))
        cases += [
            Case(f"{of}, {name}", ReencodedCurvature(sigma=1.0, of=of, loss=loss, weight_bound=BOUND), model, 0.95)
            for of in ("hessian", "score")
        ]
    peaked = ReencodedCurvature(sigma=1.0, of="hessian", loss=LOSSES["counts"], weight_bound=BOUND, peak=PEAK)
    cases.append(Case("hessian, counts up to a rate", peaked, Poisson(cap=1e7), 0.95))
    robust, shared = LOSSES["huber"], {"sigma": 1.0, "weight_bound": BOUND, "edges": (0.5, 2.0, 6.0)}
    squares = ReencodedCurvature(sigma=1.0, of="hessian", loss=Squared(), weight_bound=BOUND)
    cases.append(Case("hessian, squares", squares, robust, 0.95))
    for kind in (BandTotals, BandGradients, BandScores):
        question: BandTotals | BandGradients | BandScores = kind.model_validate(shared)
        cases.append(Case(question.kind, question, robust, 0.95))
    return cases


CASES = _reencoded() + [Case(f"{one.kind} {number}", one) for number, one in enumerate(COUNTED)]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
ENCODED = [case for case in CASES if case.question.places == "encoded"]
COUNTS_OF_ENCODED = LinearResidualCounts | ProductMagnitudeCounts | ResidualMagnitudeCounts
WEIGHED = [case for case in ENCODED if not isinstance(case.question, COUNTS_OF_ENCODED)]

SQUARED = [case for case in CASES if isinstance(case.question, ReencodedCurvature | SecondMoments | WeightSums)]


def known(units: int, adjacency: Adjacency, loss: Loss = LOGISTIC) -> Facts:
    return facts(units, WIDTH, loss, adjacency).model_copy(update={"ranges": RANGES})


def records(case: Case, draws: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Return extreme records and random ones."""
    axes = np.eye(WIDTH)
    rows = [sign * axes[at] + 0.02 * other * axes[-1] for at in range(WIDTH) for sign in (1, -1) for other in (1, -1)]
    rows += [np.where(axes.sum(0) > 0, sign, 0.0) for sign in (1.0, -1.0)]
    cells = np.array([[-1, -0.6, -0.3], [-0.2, 0.9, 0.4]])
    rows += [np.r_[1.0, cell, [value] * (VALUES + PRODUCTS + len(FEW))] for cell in cells for value in (-1.0, 1.0)]
    rows += list(draws.uniform(-1, 1, (count, WIDTH)))
    targets = [0.0, 1.0] if isinstance(case.loss, Logistic) else [0.0, 1.0, 6.0, 1e6]
    if isinstance(case.loss, Huber):
        targets += [-1e6]
    return torch.tensor(np.repeat(rows, len(targets), 0)), torch.tensor(targets * len(rows), dtype=torch.float64)


def points(draws: np.random.Generator, count: int) -> list[Tensor]:
    """Return points above encodings: small, large, flat and wild ones, any matrix being allowed."""
    thetas = [np.zeros(WIDTH), 1e5 * np.eye(WIDTH)[-1], np.full(WIDTH, np.log(5.99) / BOUND)]
    thetas += list(draws.normal(0, 3, (count, WIDTH)))
    scales = [1e-3, 1.0, BOUND, 1e4]
    encodings = [scale * np.eye(WIDTH) for scale in scales]
    encodings += [10.0 ** draws.uniform(-3, 3) * draws.normal(0, 1, (WIDTH, WIDTH)) for _ in range(count)]
    encodings.append(np.outer(draws.normal(size=WIDTH), draws.normal(size=WIDTH)))
    return [torch.tensor(np.vstack((theta, encoding))) for theta in thetas for encoding in encodings]


def alone(case: Case, x: Tensor, y: Tensor) -> list[LinearProblem]:
    """Return a problem of each record alone."""
    here = torch.ones(1).bool()
    return [LinearProblem(x[at : at + 1].clone(), y[at : at + 1], here, case.loss, WEIGHTS) for at in range(len(y))]


def terms(case: Case, at: Tensor, problems: list[LinearProblem]) -> Tensor:
    """Return the answer about each record alone, in the question's units: entries on and above a diagonal."""
    public = known(1, Adjacency.ZERO_OUT, case.loss)
    found = torch.stack([one.bounded_sum(case.question, public, at) for one in problems])
    found = torch.cat((found, torch.zeros_like(found[:1])))  # of an excluded row
    return found[(..., *torch.triu_indices(*found.shape[1:]))] if found.ndim > 2 else found


@cache
def moves(case: Case, count: int = 1) -> dict[Adjacency, float]:
    """Return the largest move of a sum of records by one of them, over records, points and encodings."""
    draws = np.random.default_rng(3)
    problems = alone(case, *records(case, draws, 4))
    wheres = points(draws, count) if case.question.places == "encoded" else [torch.zeros(WIDTH).double()]
    largest = dict.fromkeys(Adjacency, 0.0)
    for at in wheres:
        found = terms(case, at, problems)
        largest[Adjacency.ZERO_OUT] = max(largest[Adjacency.ZERO_OUT], float(found.norm(dim=-1).max()))
        largest[Adjacency.REPLACE_ONE] = max(largest[Adjacency.REPLACE_ONE], float(torch.cdist(found, found).max()))
    return largest


@every
@every_adjacency
def test_sensitivity_is_never_passed_and_almost_reached(case: Case, adjacency: Adjacency) -> None:
    claimed = case.question.sensitivity(known(1, adjacency, case.loss))
    assert case.reached * claimed <= moves(case)[adjacency] <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("case", WEIGHED, ids=lambda case: case.name)
def test_weights_left_out_would_be_seen(case: Case) -> None:
    """Planted bug: no weights, and the bound is kept."""
    claimed = case.question.sensitivity(known(1, Adjacency.ZERO_OUT, case.loss))
    with patch.object(looking, "record_weights", lambda norms, _: torch.ones_like(norms)):
        found = moves.__wrapped__(case)[Adjacency.ZERO_OUT]
    # What is cut after the weights stays within its bound: the weights' own sums and the matrices of a loss.
    cut = isinstance(case.question, WeightSums | ReencodedCurvature | BandTotals | BandGradients | BandScores)
    assert (found <= claimed * (1 + 1e-9)) if cut else found > 100 * claimed


def test_a_look_priced_as_one_column_would_be_seen() -> None:
    """Planted bug: 1 in place of sqrt(P)."""
    for question, columns in (
        (CELLS, COLUMNS),
        (SIZES, COLUMNS),
        (MULTIPLIED, PRODUCTS),
        (ONES, VALUES),
        (INTEGERS, len(FEW)),
    ):
        assert moves(Case("look", question))[Adjacency.ZERO_OUT] == pytest.approx(sqrt(columns))


@pytest.mark.parametrize("case", SQUARED, ids=lambda case: case.name)
def test_t_in_place_of_its_square_would_be_seen(case: Case) -> None:
    """Planted bug: the gradient's bound on a Hessian."""
    assert moves(case)[Adjacency.ZERO_OUT] > 1.4 * case.question.bound(known(1, Adjacency.ZERO_OUT)) / BOUND


@every
def test_a_lost_factor_of_replace_one_would_be_seen(case: Case) -> None:
    """Planted bug: a unit that is only zeroed."""
    wrong, right = (case.question.sensitivity(known(1, adjacency, case.loss)) for adjacency in Adjacency)
    if right == wrong:
        assert isinstance(case.question, ValueCounts | WeightSums), "others are farther apart than from zero"
    else:
        assert moves(case)[Adjacency.REPLACE_ONE] > 1.2 * wrong


@pytest.mark.parametrize("value", [nan, inf, -1e308, 5e-324, 1e308])
@pytest.mark.parametrize("case", ENCODED, ids=lambda case: case.name)
def test_no_point_or_encoding_makes_a_sum_pass_its_bound(case: Case, value: float) -> None:
    """Others may choose them: at any, each record counts by its bound at most, or as zero."""
    draws = np.random.default_rng(0)
    x, y = records(case, draws, 0)
    public = known(len(y), Adjacency.ZERO_OUT, case.loss)
    problem = LinearProblem(x.clone(), y.clone(), torch.ones(len(y)).bool(), case.loss, WEIGHTS)
    grid = grid_for(case.question, public, len(y))
    for entry in ((0, 1), (1, 0), (WIDTH, WIDTH - 1)):
        at = torch.tensor(np.vstack((np.ones(WIDTH), np.eye(WIDTH))))
        at[entry] = value
        total = problem.integer_sum(case.question, public, at, grid.part_step).double()
        assert float(total.norm()) * grid.part_step <= sqrt(2) * len(y) * case.question.bound(public) * 1.002


@every
@every_adjacency
def test_the_lattice_charges_at_least_the_sensitivity_and_little_more(case: Case, adjacency: Adjacency) -> None:
    for units in (1, 1000, 1_000_000):
        public = known(units, adjacency, case.loss)
        grid = grid_for(case.question, public, units)
        exact = case.question.sensitivity(public)
        assert exact / (1 - 2**-10) <= grid.sensitivity * grid.step / units <= exact * 1.002


@every
def test_questions_survive_the_wire_and_cost_one_gaussian(case: Case) -> None:
    assert TypeAdapter(Question).validate_json(case.question.model_dump_json()) == case.question
    assert case.question.event() == Gaussian(sigma=1.0)


@pytest.mark.parametrize("cells", [((1, 1),), ((2, 1),), ((8,),), ((),)])
def test_cells_that_share_a_record_are_refused(cells: tuple[tuple[int, ...], ...]) -> None:
    """Named twice, a cell would count a record twice."""
    with pytest.raises(ValidationError):
        CellCounts(sigma=1.0, level=3, cells=cells)


def everything(oracle: Oracle) -> Tensor:
    """Ask every question, each at a point made of the answer before it: every answer depends on all before it."""
    at = torch.tensor(np.vstack((np.zeros(WIDTH), np.eye(WIDTH))))
    told = 0.0
    for case in CASES:
        if not isinstance(case.loss, Logistic):
            continue
        where = at if case.question.places == "encoded" else at[0]
        told = float(oracle.ask(case.question, where).value.sum().tanh())
        at = at * (1 + 0.1 * told) + 0.01 * told
    return at[0] + told


@every_adjacency
def test_neighbours_differ_in_integer_sums_alone(adjacency: Adjacency) -> None:
    """Grey box: replayed on neighbours, with the first run's sums, every byte that leaves is the same."""
    draws = torch.Generator().manual_seed(1)
    x = torch.rand(200, WIDTH, generator=draws, dtype=torch.float64) * 2 - 1
    y, present = (x[:, 1] > 0).double(), torch.ones(200).bool()
    public = known(200, adjacency)
    first = run(LinearProblem(x.clone(), y, present, LOGISTIC, WEIGHTS), public, everything)
    for name, rows in neighbours(x, y, present, row=7).items():
        if adjacency is Adjacency.ZERO_OUT and name not in {"zeroed", "not a number"}:
            continue
        problem = LinearProblem(*rows, LOGISTIC, WEIGHTS)
        check_neighbours(first, run(problem, public, everything, recorded=first))


@pytest.mark.parametrize(
    ("case", "adjacency"),
    list(zip(CASES[:5] + CASES[-9:], cycle(Adjacency), strict=False)),
    ids=lambda one: getattr(one, "name", one),
)
def test_noise_law(case: Case, adjacency: Adjacency) -> None:
    """The deviation is the priced one, on and off a diagonal: false alarm 1 in 150,000 each, the generator forced."""
    draws = np.random.default_rng(5)
    x, y = torch.tensor(draws.uniform(-1, 1, (50, WIDTH))), torch.tensor(draws.integers(0, 2, 50).astype(float))
    public = known(50, adjacency, case.loss)
    problem = LinearProblem(x.clone(), y, torch.ones(50).bool(), case.loss, WEIGHTS)
    at = torch.tensor(np.vstack((np.full(WIDTH, 0.1), np.eye(WIDTH))))
    at = at if case.question.places == "encoded" else at[0]
    oracle = FullOracle(problem, public, UnlimitedFilter(), repeatable_generator())
    exact = problem.bounded_sum(case.question, public, at) / 50
    claimed = case.question.sigma * case.question.sensitivity(public)
    answers = [oracle.ask(case.question, at) for _ in range(1500)]
    assert claimed <= answers[0].scale <= 1.002 * claimed
    errors = torch.stack([one.value - exact for one in answers]).numpy()
    parts = {"all": errors}
    if errors.ndim > 2:
        assert (errors == errors.transpose(0, 2, 1)).all(), "the noise is symmetric"
        size = errors.shape[-1]
        parts = {"diagonal": errors[:, range(size), range(size)], "above": errors[(..., *np.triu_indices(size, 1))]}
    for part, values in parts.items():
        assert abs(values.std() / claimed - 1) < 0.002 + 4.5 / sqrt(2 * values.size), part
        assert abs(values.mean()) < 4.5 * claimed / sqrt(values.size), part


def test_counts_are_exact_on_the_lattice() -> None:
    """A count of any size is answered in part steps as it is, and rounds to the nearest step."""
    draws = np.random.default_rng(2)
    x, y = torch.tensor(draws.uniform(-1, 1, (20_000, WIDTH))), torch.tensor(draws.integers(0, 2, 20_000).astype(float))
    public, present = known(20_000, Adjacency.ZERO_OUT), torch.tensor(draws.random(20_000) < 0.9)
    problem = LinearProblem(x.clone(), y, present, LOGISTIC, WEIGHTS)
    grid = grid_for(CELLS, public, 20_000)
    total = problem.integer_sum(CELLS, public, torch.zeros(WIDTH).double(), grid.part_step)
    cell = np.floor((x.numpy()[:, 1:4] + 1) / 2 * 8)[present.numpy()]
    counts = [int((cell[:, at] == one).sum()) for at, named in enumerate(CELLS.cells) for one in named]
    assert (total.numpy() * grid.part_step).tolist() == counts
    assert round_parts(total.numpy(), grid).tolist() == [round(count / grid.step) for count in counts]


def test_a_record_counts_at_the_nearest_value_of_its_integers_and_nowhere_if_one_is_missing() -> None:
    """Also beyond the range and between values, a record is in one set of each column at most."""
    x = torch.zeros(9, WIDTH).double()
    x[:, -2] = torch.tensor([-1.0, -0.51, 0.1, 0.7, 7.0, -3.0, -inf, nan, 1.0])
    x[:, -1] = torch.tensor([-1.0, -0.6, 0.4, 1.0, -7.0, 0.6, 0.0, 1.0, nan])
    present = torch.tensor([True] * 8 + [False])
    problem = LinearProblem(x, torch.zeros(9).double(), present, LOGISTIC, WEIGHTS)
    counts = problem.bounded_sum(INTEGERS, known(9, Adjacency.ZERO_OUT), torch.zeros(WIDTH).double())
    assert counts.tolist() == [2, 1, 1, 1, 1, 3, 1, 2]


def test_a_number_between_two_values_that_counts_at_both_would_be_seen() -> None:
    """Planted bug: sets of a column that overlap, with the same claim."""

    def overlapping(features: Tensor, present: Tensor, ranges: Ranges) -> Tensor:
        counts = genuine(features, present, ranges)
        return counts + genuine(features + 1e-9 + ranges.step(WIDTH - 2), present, ranges)

    genuine, case = looking._by_value, Case("look", INTEGERS)
    with patch.object(looking, "_by_value", overlapping):
        found = moves.__wrapped__(case)
    for adjacency, largest in found.items():
        assert largest > 1.2 * INTEGERS.sensitivity(known(1, adjacency))


@pytest.mark.parametrize("values", [(), (1,), (65,), (5, 0)])
def test_too_few_or_too_many_values_are_refused(values: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        IntegerCounts(sigma=1.0, values=values)


def test_values_of_other_columns_than_planned_are_refused() -> None:
    rows = torch.zeros(2, WIDTH).double(), torch.zeros(2).double(), torch.ones(2).bool()
    problem = LinearProblem(*rows, LOGISTIC, WEIGHTS)
    with pytest.raises(AssertionError, match="read together"):
        problem.bounded_sum(
            IntegerCounts(sigma=1.0, values=(5,)), known(2, Adjacency.ZERO_OUT), torch.zeros(WIDTH).double()
        )


def test_the_sums_are_those_of_the_formulas() -> None:
    """Against the formulas written out in NumPy, at a point and an encoding that are nobody's axes."""
    draws = np.random.default_rng(8)
    x, y = draws.uniform(-1, 1, (300, WIDTH)), draws.integers(0, 2, 300).astype(float)
    theta, encoding = draws.normal(size=WIDTH), draws.normal(size=(WIDTH, WIDTH))
    rows = x @ encoding.T
    norms = (rows**2).sum(1)
    weights = np.minimum(1, BOUND**2 / norms)
    chance = 1 / (1 + np.exp(-rows @ theta))
    beside = np.column_stack((rows, np.clip((y - 0.5) / 0.5, -1, 1)))
    expected = {
        "moments": beside.T @ (beside * weights[:, None]),
        "weights": np.array([(weights * norms).sum(), (weights**2 * norms).sum()]),
        "gradient, logistic": rows.T @ (weights * (chance - y)),
        "hessian, logistic": rows.T @ (rows * (weights * chance * (1 - chance))[:, None]),
        "score, logistic": rows.T @ (rows * ((weights * (chance - y)) ** 2)[:, None]),
    }
    residual = np.clip(rows @ theta - y, -6, 6)
    band = np.searchsorted([0.5, 2.0, 6.0], abs(residual))
    part = weights * residual / (BOUND * np.array([0.5, 2.0, 6.0])[band])
    own = np.eye(3)[band]
    expected["band_totals"] = np.concatenate((own.sum(0), own.T @ (part**2 * norms)))
    expected["band_gradients"] = ((own * part[:, None]).T @ rows).ravel()
    upper = np.triu_indices(WIDTH)
    scores = [(rows.T @ (rows * (part**2 * one)[:, None]))[upper] for one in own.T]
    expected["band_scores"] = np.concatenate(scores)
    problem = LinearProblem(torch.tensor(x), torch.tensor(y), torch.ones(300).bool(), LOGISTIC, WEIGHTS)
    public, at = known(300, Adjacency.ZERO_OUT), torch.tensor(np.vstack((theta, encoding)))
    for case in CASES:
        if case.name in expected:
            grid = grid_for(case.question, public, 300)
            told = problem.integer_sum(case.question, public, at, grid.part_step).numpy() * grid.part_step
            np.testing.assert_allclose(told, expected[case.name], atol=1e-5)
