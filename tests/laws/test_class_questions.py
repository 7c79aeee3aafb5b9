"""Sensitivities of a multinomial model's sums: never passed for any encoding, almost reached; laws of their noise."""

from dataclasses import dataclass
from functools import cache
from itertools import cycle
from math import inf, nan, sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from core.data.contrasts import contrast_rows
from core.losses.categorical import Multinomial
from core.losses.weights import Mallows
from core.methods.m_estimation.whitened_newton.inference.class_coordinates import effective, matrix_of, unfolded
from core.models.modelling import parameters
from core.oracle import Oracle
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.noise import grid_for
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency, Facts, Ranges
from core.queries.classes import ClassCounts, ClassCurvature, ClassGradient, ClassMoments
from core.queries.gradients import Question
from core.queries.looks import WeightSums
from core.queries.sums import class_sums, looking
from core.queries.sums.multinomial import MultinomialProblem
from tests.support.grey_box import check_neighbours, neighbours, run
from tests.support.problems import repeatable_generator

BOUND, WIDTH = 1.7, 4
WEIGHTS = Mallows(bound=10.0)
Asked = ClassCounts | ClassMoments | ClassGradient | ClassCurvature | WeightSums
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))


@dataclass(frozen=True)
class Case:
    """A question about so many classes, and the part of its claim that must be reached."""

    name: str
    question: Asked
    classes: int
    reached: float = 0.97

    @property
    def loss(self) -> Multinomial:
        return Multinomial(classes=self.classes)

    @property
    def encoded(self) -> bool:
        return self.question.places == "encoded"


def _cases() -> list[Case]:
    found = []
    for k in (2, 3):
        shared = {"sigma": 1.0, "classes": k, "weight_bound": BOUND}
        found += [
            Case(f"counts of {k}", ClassCounts(sigma=1.0, classes=k), k),
            Case(f"moments of {k}", ClassMoments.model_validate(shared), k, 0.75),
            Case(f"gradient of {k}", ClassGradient.model_validate(shared), k),
            Case(f"hessian of {k}", ClassCurvature.model_validate(shared | {"of": "hessian"}), k, 0.95),
            Case(f"score of {k}", ClassCurvature.model_validate(shared | {"of": "score"}), k, 0.95),
        ]
    return [*found, Case("weights of 3", WeightSums(sigma=1.0, weight_bound=BOUND), 3)]


CASES = _cases()
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
ENCODED = [case for case in CASES if case.encoded]


def known(case: Case, units: int, adjacency: Adjacency) -> Facts:
    size = WIDTH - 1
    ranges = Ranges(
        kinds=("constant", *["number"] * size),
        lower=(1.0, *[-1.0] * size),
        upper=(1.0, *[1.0] * size),
        target=(0.0, 1.0),
    )
    return Facts(
        units=units,
        dimension=parameters(case.loss, WIDTH),
        adjacency=adjacency,
        gradient_bound=1.0,
        curvature_bound=1.0,
        ranges=ranges,
    )


def problem_of(case: Case, x: Tensor, y: Tensor, present: Tensor | None = None) -> MultinomialProblem:
    here = torch.ones(len(y)).bool() if present is None else present
    return MultinomialProblem(x.clone(), y.clone(), here, case.loss, WEIGHTS)


def records(case: Case, draws: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Return extreme records and random ones, each in every class."""
    axes = np.eye(WIDTH)
    rows = [sign * axes[at] + 0.02 * other * axes[-1] for at in range(WIDTH) for sign in (1, -1) for other in (1, -1)]
    rows += list(draws.uniform(-1, 1, (count, WIDTH)))
    codes = list(range(case.classes))
    return torch.tensor(np.repeat(rows, len(codes), 0)), torch.tensor(codes * len(rows), dtype=torch.float64)


def points(case: Case, draws: np.random.Generator, count: int) -> list[Tensor]:
    """Return points above encodings: chances all alike, shared by two, all of one class, wild ones."""
    others, found = case.classes - 1, []
    basis = np.array(contrast_rows(case.classes))
    sure = [1e3 * (np.eye(case.classes)[k] - 1 / case.classes) @ basis for k in range(case.classes)]
    two = [sum(sure[k] for k in pair) for pair in ((0, 1), (case.classes - 2, case.classes - 1))]
    thetas = [np.kron(one, np.eye(WIDTH)[at]) for one in (*sure, *two) for at in (0, WIDTH - 1)]
    thetas += [np.zeros(others * WIDTH), *draws.normal(0, 3, (count, others * WIDTH))]
    encodings = [scale * np.eye(WIDTH) for scale in (1e-3, BOUND, 1e4)]
    encodings += [10.0 ** draws.uniform(-3, 3) * draws.normal(0, 1, (WIDTH, WIDTH)) for _ in range(count)]
    for theta in thetas:
        for encoding in encodings:
            wide = np.zeros((WIDTH, others * WIDTH))
            wide[:, :WIDTH] = encoding
            found.append(torch.tensor(np.vstack((theta, wide))))
    return found


@cache
def moves(case: Case, count: int = 1) -> dict[Adjacency, float]:
    """Return the largest move of a sum of records by one of them, over records, points and encodings."""
    draws = np.random.default_rng(3)
    x, y = records(case, draws, 2)
    problems = [problem_of(case, x[at : at + 1], y[at : at + 1]) for at in range(len(y))]
    public = known(case, 1, Adjacency.ZERO_OUT)
    wheres = points(case, draws, count) if case.encoded else [torch.zeros(public.dimension).double()]
    largest = dict.fromkeys(Adjacency, 0.0)
    for at in wheres:
        found = torch.stack([one.bounded_sum(case.question, public, at) for one in problems])
        found = torch.cat((found, torch.zeros_like(found[:1])))  # of an excluded row
        largest[Adjacency.ZERO_OUT] = max(largest[Adjacency.ZERO_OUT], float(found.norm(dim=-1).max()))
        largest[Adjacency.REPLACE_ONE] = max(largest[Adjacency.REPLACE_ONE], float(torch.cdist(found, found).max()))
    return largest


@every
@every_adjacency
def test_sensitivity_is_never_passed_and_almost_reached(case: Case, adjacency: Adjacency) -> None:
    claimed = case.question.sensitivity(known(case, 1, adjacency))
    assert case.reached * claimed <= moves(case)[adjacency] <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("case", [one for one in CASES if isinstance(one.question, ClassGradient)], ids=str)
def test_a_bound_without_the_root_of_two_would_be_seen(case: Case) -> None:
    """Planted bug: t, a binary model's bound, in place of sqrt(2) t."""
    assert moves(case)[Adjacency.ZERO_OUT] > 1.35 * BOUND


@pytest.mark.parametrize("case", [one for one in CASES if isinstance(one.question, ClassCurvature)], ids=str)
def test_a_binary_models_bounds_on_matrices_would_be_seen(case: Case) -> None:
    """Planted bug: t^2/4 for a Hessian, t^2 for scores."""
    assert isinstance(case.question, ClassCurvature)
    binary = BOUND**2 * (0.25 if case.question.of == "hessian" else 1.0)
    assert moves(case)[Adjacency.ZERO_OUT] > 1.8 * binary


@pytest.mark.parametrize("case", ENCODED, ids=lambda case: case.name)
def test_weights_left_out_would_be_seen(case: Case) -> None:
    """Planted bug: no weights, and the bound is kept."""
    if isinstance(case.question, WeightSums):
        return  # cut after the weights
    with patch.object(looking, "record_weights", lambda norms, _: torch.ones_like(norms)):
        assert moves.__wrapped__(case)[Adjacency.ZERO_OUT] > 100 * case.question.sensitivity(
            known(case, 1, Adjacency.ZERO_OUT)
        )


def test_coordinates_listed_twice_would_be_seen() -> None:
    """Planted bug: every entry off a diagonal twice as large, as if both of its places were listed at full size."""
    case = next(one for one in CASES if one.name == "hessian of 3")
    with patch.object(class_sums, "sqrt", lambda _: 2.0):
        assert moves.__wrapped__(case)[Adjacency.ZERO_OUT] > 1.2 * case.question.sensitivity(
            known(case, 1, Adjacency.ZERO_OUT)
        )


@every
def test_a_lost_factor_of_replace_one_would_be_seen(case: Case) -> None:
    """Planted bug: a unit that is only zeroed."""
    wrong, right = (case.question.sensitivity(known(case, 1, adjacency)) for adjacency in Adjacency)
    assert right == wrong or moves(case)[Adjacency.REPLACE_ONE] > 1.05 * wrong


@pytest.mark.parametrize("value", [nan, inf, -1e308, 5e-324, 1e308])
@pytest.mark.parametrize("case", ENCODED, ids=lambda case: case.name)
def test_no_point_or_encoding_makes_a_sum_pass_its_bound(case: Case, value: float) -> None:
    """Others may choose them: at any, each record counts by its bound at most, or as zero."""
    x, y = records(case, np.random.default_rng(0), 0)
    public = known(case, len(y), Adjacency.ZERO_OUT)
    problem = problem_of(case, x, y)
    grid = grid_for(case.question, public, len(y))
    for entry in ((0, 1), (0, -1), (1, 0), (WIDTH, WIDTH - 1)):
        at = points(case, np.random.default_rng(1), 1)[-1].clone()
        at[entry] = value
        total = problem.integer_sum(case.question, public, at, grid.part_step).double()
        assert float(total.norm()) * grid.part_step <= len(y) * case.question.bound(public) * 1.002


@every
@every_adjacency
def test_the_lattice_charges_at_least_the_sensitivity_and_little_more(case: Case, adjacency: Adjacency) -> None:
    for units in (1, 1000, 1_000_000):
        public = known(case, units, adjacency)
        grid = grid_for(case.question, public, units)
        exact = case.question.sensitivity(public)
        assert exact / (1 - 2**-10) <= grid.sensitivity * grid.step / units <= exact * 1.002


@every
def test_questions_survive_the_wire_and_cost_one_gaussian(case: Case) -> None:
    assert TypeAdapter(Question).validate_json(case.question.model_dump_json()) == case.question
    assert case.question.event() == Gaussian(sigma=1.0)


def _of(classes: int) -> list[Case]:
    return [case for case in CASES if case.classes == classes]


@every_adjacency
def test_zeroed_is_distributed_as_absent_and_neighbours_differ_in_integer_sums_alone(adjacency: Adjacency) -> None:
    """Grey box: replayed on neighbours, with the first run's sums, every byte that leaves is the same."""
    draws = np.random.default_rng(1)
    x, y = torch.tensor(draws.uniform(-1, 1, (200, WIDTH))), torch.tensor(draws.integers(0, 3, 200).astype(float))
    cases, present = _of(3), torch.ones(200).bool()
    public = known(cases[0], 200, adjacency)
    start = points(cases[0], draws, 1)[-1]

    def everything(oracle: Oracle) -> Tensor:
        at, told = start, 0.0
        for case in cases:
            told = float(oracle.ask(case.question, at if case.encoded else at[0]).value.sum().tanh())
            at = at * (1 + 0.1 * told) + 0.01 * told
        return at[0] + told

    first = run(problem_of(cases[0], x, y), public, everything)
    for name, (rows, targets, here) in neighbours(x, y, present, row=7).items():
        if adjacency is Adjacency.ZERO_OUT and name not in {"zeroed", "not a number"}:
            continue
        check_neighbours(first, run(problem_of(cases[0], rows, targets, here), public, everything, recorded=first))


@pytest.mark.parametrize("row", ["absent", "zeros", "no such class", "not a number"])
def test_what_counts_as_null_adds_nothing(row: str) -> None:
    """A record that is absent, zero, of no class or not finite: the same integers as without it."""
    draws = np.random.default_rng(2)
    x, y = torch.tensor(draws.uniform(-1, 1, (50, WIDTH))), torch.tensor(draws.integers(0, 3, 50).astype(float))
    here = torch.ones(50).bool()
    without = here.clone()
    without[7] = False
    other, codes, there = x.clone(), y.clone(), here.clone()
    match row:
        case "absent":
            there[7] = False
        case "zeros":
            other[7], there[7] = 0.0, False
        case "no such class":
            codes[7] = 3.0
        case _:
            other[7, 1] = nan
    for case in _of(3):
        public = known(case, 50, Adjacency.ZERO_OUT)
        at = points(case, draws, 1)[-1]
        at = at if case.encoded else at[0]
        step = grid_for(case.question, public, 50).part_step
        sums = [
            problem_of(case, *one).integer_sum(case.question, public, at, step)
            for one in ((x, y, without), (other, codes, there))
        ]
        assert torch.equal(*sums), case.name


@pytest.mark.parametrize(
    ("case", "adjacency"), list(zip(_of(3), cycle(Adjacency), strict=False)), ids=lambda one: getattr(one, "name", one)
)
def test_noise_law(case: Case, adjacency: Adjacency) -> None:
    """The deviation is the priced one on every coordinate: false alarm 1 in 150,000 each, the generator forced."""
    draws = np.random.default_rng(5)
    x, y = torch.tensor(draws.uniform(-1, 1, (50, WIDTH))), torch.tensor(draws.integers(0, 3, 50).astype(float))
    public, problem = known(case, 50, adjacency), problem_of(case, x, y)
    at = points(case, draws, 1)[-1]
    at = at if case.encoded else at[0]
    oracle = FullOracle(problem, public, UnlimitedFilter(), repeatable_generator())
    exact = problem.bounded_sum(case.question, public, at) / 50
    claimed = case.question.sigma * case.question.sensitivity(public)
    answers = [oracle.ask(case.question, at) for _ in range(600)]
    assert claimed <= answers[0].scale <= 1.002 * claimed
    errors = torch.stack([one.value - exact for one in answers]).numpy()
    assert abs(errors.std() / claimed - 1) < 0.002 + 4.5 / sqrt(2 * errors.size)
    assert abs(errors.mean()) < 4.5 * claimed / sqrt(errors.size)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_sums_are_those_of_the_formulas(classes: int) -> None:
    """Against the formulas written out in NumPy, at a point and an encoding that are nobody's axes."""
    draws, others = np.random.default_rng(8), classes - 1
    x, y = draws.uniform(-1, 1, (300, WIDTH)), draws.integers(0, classes, 300)
    theta, encoding = draws.normal(size=(others, WIDTH)), draws.normal(size=(WIDTH, WIDTH))
    rows, basis = x @ encoding.T, np.array(contrast_rows(classes))
    weights = np.minimum(1, BOUND**2 / (rows**2).sum(1))
    chances = np.exp(rows @ (basis @ theta).T)
    chances /= chances.sum(1, keepdims=True)
    seen = np.eye(classes)[y]
    scores = (chances - seen) @ basis * weights[:, None]
    hessian = sum(
        weight * np.kron(basis.T @ (np.diag(q) - np.outer(q, q)) @ basis, np.outer(row, row))
        for weight, q, row in zip(weights, chances, rows, strict=True)
    )
    joined = (scores[:, :, None] * rows[:, None, :]).reshape(300, -1)
    wide = np.zeros((WIDTH, others * WIDTH))
    wide[:, :WIDTH] = encoding
    at = torch.tensor(np.vstack((theta.ravel(), wide)))
    told = {}
    for case in _of(classes):
        public = known(case, 300, Adjacency.ZERO_OUT)
        problem, grid = problem_of(case, torch.tensor(x), torch.tensor(y, dtype=torch.float64)), None
        grid = grid_for(case.question, public, 300)
        point = at if case.encoded else at[0]
        sums = problem.integer_sum(case.question, public, point, grid.part_step)
        told[case.name.split()[0]] = sums.numpy() * grid.part_step
    np.testing.assert_allclose(told["counts"], np.bincount(y, minlength=classes))
    np.testing.assert_allclose(told["gradient"], (scores.T @ rows).ravel(), atol=1e-4)
    np.testing.assert_allclose(unfolded(told["hessian"], others, WIDTH), hessian, atol=1e-4)
    np.testing.assert_allclose(unfolded(told["score"], others, WIDTH), joined.T @ joined, atol=1e-4)
    own = WIDTH * (WIDTH + 1) // 2
    np.testing.assert_allclose(matrix_of(told["moments"][:own], WIDTH), (rows * weights[:, None]).T @ rows, atol=1e-4)
    cross = (rows * weights[:, None]).T @ (seen @ basis)
    np.testing.assert_allclose(told["moments"][own:].reshape(WIDTH, others) / sqrt(2), cross, atol=1e-4)


def test_noise_on_coordinates_spreads_eigenvalues_as_the_effective_deviation_says() -> None:
    """To 15 %, over sizes, seeds fixed: the largest eigenvalue of many draws to 20 %, and the energy."""
    draws = np.random.default_rng(4)
    for contrasts, features in ((2, 4), (3, 6), (5, 16)):
        size, numbers = contrasts * features, contrasts * (contrasts + 1) // 2 * features * (features + 1) // 2
        found = [np.linalg.eigvalsh(unfolded(draws.normal(size=numbers), contrasts, features)) for _ in range(40)]
        own = effective(contrasts, features)
        assert np.mean([np.abs(one).max() for one in found]) == pytest.approx(2 * own * sqrt(size), rel=0.2)
        assert np.mean([(one**2).sum() for one in found]) == pytest.approx((own * size) ** 2, rel=0.15)
