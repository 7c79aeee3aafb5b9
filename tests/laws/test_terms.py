"""Sampling weights and offsets move no sensitivity, and a record that counts zero times is an absent one."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from core.losses.categorical import Logistic
from core.losses.counts import Poisson
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.losses.weights import Clip, Mallows
from core.oracle import Oracle
from core.oracle.noise import grid_for
from core.privacy.facts import Adjacency, Facts
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.gradients import Curvature, Gradient, GradientDifference, Looked, Question, Secant
from core.queries.looks import MagnitudeCounts, SecondMoments
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient
from core.queries.sums import blocks, looking, make_problem
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.linear import LinearProblem
from tests.laws.test_look_questions import BOUND, CASES, LEVERS, MOMENTS, WIDTH, Case, known, points, records
from tests.support.grey_box import check_neighbours, run
from tests.support.problems import LOGISTIC, WEIGHTS, facts

LOSSES: dict[str, Loss] = {
    "logistic": Logistic(),
    "huber": Huber(c=1.345, scale=1.0),
    "least squares": Huber(c=4.5, scale=1.0),
    "poisson": Poisson(cap=6.0),
}
SHIFTED = MOMENTS.model_copy(update={"offset_centre": 0.5, "offset_unit": 2.0})
SAMPLED = LEVERS.model_copy(update={"sampled": True})
SIZES_OF_WEIGHTS = MagnitudeCounts(sigma=1.0, of="weights", columns=1, bins=80, per_octave=4)
CUT = 0.02
"""Of the declared upper bound: most of the weights here are larger."""
GRADIENT = ReencodedGradient(sigma=1.0, loss=Logistic(), weight_bound=BOUND)
OFFSETS = (-1e3, -2.5, 0.0, 2.5, 1e3)
PARTS = (1e-300, 0.01, 0.5, 1.0)
MOST = 1 + 1e-9
every_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))


def encoded_cases() -> list[Case]:
    """Every question with weights, and moments with an offset beside."""
    own = [Case("moments with an offset", SHIFTED, reached=0.8), Case("weights, sampled", SAMPLED)]
    own += [case for case in CASES if case.question.places == "encoded"]
    return [*own, *trimmed_cases(own), Case("counts of weights", SIZES_OF_WEIGHTS)]


def trimmed_cases(cases: list[Case]) -> list[Case]:
    """Return those that weights enter, with weights cut far below their declared bound."""
    banded = BandTotals | BandGradients | BandScores
    kept = [
        case
        for case in cases
        if "sampling_cut" in type(case.question).model_fields
        and (isinstance(case.loss, Logistic) or isinstance(case.question, banded))
    ]
    return [
        replace(case, name=f"{case.name}, trimmed", question=case.question.model_copy(update={"sampling_cut": CUT}))
        for case in kept
    ]


every = pytest.mark.parametrize("case", encoded_cases(), ids=lambda case: case.name)


def beside(case: Case, count: int, draws: np.random.Generator) -> dict[str, Tensor]:
    """Offsets where a loss has one, and parts of the largest weight, 1 among them."""
    offsets = {} if isinstance(case.loss, Huber) else {"offset": torch.tensor(draws.choice(OFFSETS, count))}
    return {**offsets, "sampling": torch.tensor(draws.choice(PARTS, count))}


def largest(case: Case, adjacency: Adjacency) -> float:
    """The largest move of a sum by one record, over records, points, offsets and weights."""
    draws = np.random.default_rng(6)
    x, y = (torch.cat((one[::2], one[1::4])) for one in records(case, draws, 1))
    given = beside(case, len(y), draws)
    given["sampling"][: len(y) // 2] = max(PARTS)
    here, public = torch.ones(1).bool(), known(1, Adjacency.ZERO_OUT, case.loss)
    alone = [
        LinearProblem(
            x[at : at + 1].clone(), y[at : at + 1], here, case.loss, WEIGHTS,
            **{name: one[at : at + 1] for name, one in given.items()},
        )
        for at in range(len(y))
    ]  # fmt: skip
    most = 0.0
    for where in points(draws, 1)[1::3]:
        told = torch.stack([one.bounded_sum(case.question, public, where) for one in alone])
        told = torch.cat((told, torch.zeros_like(told[:1])))
        told = told[(..., *torch.triu_indices(*told.shape[1:]))] if told.ndim > 2 else told
        moved = torch.cdist(told, told) if adjacency is Adjacency.REPLACE_ONE else told.norm(dim=-1)
        most = max(most, float(moved.max()))
    return most


@every
@every_adjacency
def test_no_offset_and_no_weight_passes_a_sensitivity(case: Case, adjacency: Adjacency) -> None:
    claimed = case.question.sensitivity(known(1, adjacency, case.loss))
    assert 0.01 * claimed <= largest(case, adjacency) <= claimed * MOST  # how nearly it is reached: test_look_questions


def test_weights_over_a_cut_that_cuts_nothing_would_be_seen() -> None:
    """Planted bug: weights are divided by what was learned, and those above it count more than once."""

    def divided(question: Any, block: Any) -> Any:
        cut = getattr(question, "sampling_cut", 1.0)
        return block._replace(sampling=block.sampling / cut)

    for case in trimmed_cases([Case("moments", SHIFTED), Case("gradient", GRADIENT)]):
        claimed = case.question.sensitivity(known(1, Adjacency.ZERO_OUT, case.loss))
        with patch.object(looking, "_trimmed", divided):
            assert largest(case, Adjacency.ZERO_OUT) > 10 * claimed
        assert 0.5 * claimed <= largest(case, Adjacency.ZERO_OUT) <= claimed * MOST


def test_a_question_without_a_cut_is_written_as_it_was() -> None:
    for question in (MOMENTS, LEVERS, GRADIENT):
        assert "sampling_cut" not in question.model_dump()
        assert question.model_copy(update={"sampling_cut": CUT}).model_dump()["sampling_cut"] == CUT


UNCUT = [case for case in encoded_cases() if not any(one in case.name for one in ("weights", "counts", "trimmed"))]
"""Questions whose records come near their bounds here."""


@pytest.mark.parametrize("case", UNCUT, ids=lambda case: case.name)
def test_weights_above_one_would_be_seen(case: Case) -> None:
    """Planted bug: weights as they are uploaded, not over the declared upper bound."""
    claimed = case.question.sensitivity(known(1, Adjacency.ZERO_OUT, case.loss))
    with patch(f"{__name__}.PARTS", (3.0,)), patch.object(blocks, "counts_once", lambda sampling: sampling > 0):
        found = largest(case, Adjacency.ZERO_OUT)
    kept = isinstance(case.question, ReencodedCurvature) or not isinstance(
        case.question, SecondMoments | ReencodedGradient
    )  # matrices are cut to their bounds after they are weighted, and residuals are counted
    assert found <= claimed * MOST if kept else found > 1.5 * claimed


def test_an_offset_that_is_not_cut_would_be_seen() -> None:
    """Planted bug: moments with an offset of any size."""
    case = Case("moments", SHIFTED)
    with patch.object(looking, "_cut", lambda rows, numbers, centre, unit: (numbers - centre) / unit):  # noqa: ARG005
        assert largest(case, Adjacency.ZERO_OUT) > 100 * SHIFTED.sensitivity(known(1, Adjacency.ZERO_OUT))


def plain(loss: Loss) -> Iterator[tuple[Question, Any]]:
    """Questions of other methods with the weights that they go with."""
    yield Gradient(sigma=1.0), Mallows(bound=BOUND)
    yield Gradient(sigma=1.0), Clip(bound=0.7)
    yield GradientDifference(sigma=1.0, cap=0.3), Mallows(bound=BOUND)
    yield Secant(sigma=1.0), Mallows(bound=BOUND)
    for of in ("hessian", "score"):
        yield Curvature(sigma=1.0, of=of), Mallows(bound=BOUND)
    del loss


@pytest.mark.parametrize("name", LOSSES)
def test_neither_passes_a_sensitivity_of_other_methods(name: str) -> None:
    """Each record alone, at points far and near: its term stays within the claimed bound."""
    loss, draws = LOSSES[name], np.random.default_rng(9)
    case = Case(name, MOMENTS, loss)
    x, y = records(case, draws, 4)
    given = beside(case, len(y), draws)
    for question, weights in plain(loss):
        public = facts(1, WIDTH, loss, Adjacency.ZERO_OUT, weights=weights)
        claimed = question.sensitivity(public)
        most = 0.0
        for scale in (1.0, 1e4):
            theta, other = (torch.tensor(scale * draws.normal(size=WIDTH)) for _ in range(2))
            pair = {"other": other} if question.places == "pair" else {}
            for at in range(0, len(y), 5):
                here = slice(at, at + 1)
                problem = make_problem(
                    x[here].clone(), y[here], torch.ones(1).bool(), loss, weights,
                    **{one: told[here] for one, told in given.items()},
                )  # fmt: skip
                told = problem.bounded_sum(question, public, theta, **pair)
                assert bool(told.isfinite().all())
                told = told[(..., *torch.triu_indices(*told.shape))] if told.ndim > 1 else told
                most = max(most, float(told.norm()))
        assert 0.0 < most <= claimed * MOST


QUESTIONS = [case.question for case in encoded_cases() if isinstance(case.loss, Logistic)]


def scene(units: int, seed: int = 0) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    draws = np.random.default_rng(seed)
    x, y = torch.tensor(draws.uniform(-1, 1, (units, WIDTH))), torch.tensor(draws.integers(0, 2, units).astype(float))
    return x, y, {"offset": torch.tensor(draws.normal(size=units)), "sampling": torch.tensor(draws.random(units))}


def sums(problem: LinearProblem, public: Facts) -> list[Tensor]:
    """Every answer as integers."""
    at = torch.tensor(np.vstack((np.full(WIDTH, 0.3), np.eye(WIDTH))))
    told: list[Tensor] = []
    asked: list[Question] = [*QUESTIONS, *(case.question for case in CASES if case.question.places == "point")]
    asked += [question for question, weights in plain(LOGISTIC) if weights == Mallows(bound=BOUND)]
    for question in asked:
        where = at if question.places == "encoded" else at[0]
        pair = {"other": at[0] * 2} if question.places == "pair" else {}
        step = grid_for(question, public, problem.units).part_step
        told.append(problem.integer_sum(question, public, where, step, **pair))
    return told


def test_a_record_of_weight_zero_is_distributed_as_an_absent_one() -> None:
    """The integers are the same for every content of the record and every question, and with them the law."""
    x, y, given = scene(300)
    public, here = known(300, Adjacency.ZERO_OUT), torch.ones(300).bool()
    zeroed = {**given, "sampling": given["sampling"].clone()}
    zeroed["sampling"][7] = 0.0
    absent = here.clone()
    absent[7] = False
    wild = x.clone()
    wild[7] = 1e3
    first = sums(LinearProblem(x.clone(), y, absent, LOGISTIC, WEIGHTS, **given), public)
    second = sums(LinearProblem(wild, y, here, LOGISTIC, WEIGHTS, **zeroed), public)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    kept = sums(LinearProblem(x.clone(), y, here, LOGISTIC, WEIGHTS, **given), public)
    assert not all(torch.equal(one, other) for one, other in zip(first, kept, strict=True))


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("name", ["offset", "sampling"])
def test_numbers_that_are_none_make_a_record_absent(name: str, value: float) -> None:
    x, y, given = scene(100)
    public, here = known(100, Adjacency.ZERO_OUT), torch.ones(100).bool()
    strange = {**given, name: given[name].clone()}
    strange[name][3] = value
    absent = here.clone()
    absent[3] = False
    first = sums(LinearProblem(x.clone(), y, here, LOGISTIC, WEIGHTS, **strange), public)
    second = sums(LinearProblem(x.clone(), y, absent, LOGISTIC, WEIGHTS, **given), public)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_lists_of_records_carry_both() -> None:
    """A list's sum is that of its rows alone, left-out ones zeroed."""
    x, y, given = scene(64)
    public, rows = known(64, Adjacency.ZERO_OUT), torch.tensor([5, 9, 9, 40])
    included = torch.tensor([True, True, False, True])
    whole = LinearProblem(x.clone(), y, torch.ones(64).bool(), LOGISTIC, WEIGHTS, **given)
    some = [5, 9, 40]
    part = LinearProblem(
        x[some].clone(), y[some], torch.ones(3).bool(), LOGISTIC, WEIGHTS, **{k: v[some] for k, v in given.items()}
    )
    question, theta = Gradient(sigma=1.0), torch.full((WIDTH,), 0.3, dtype=torch.float64)
    step = grid_for(question, public, 64).part_step
    told = whole.integer_sum(question, public, theta, step, rows=rows, included=included)
    assert (told - part.integer_sum(question, public, theta, step)).abs().max() <= 1


def everything(oracle: Oracle) -> Tensor:
    """Ask every question, each at a point made of the answer before it."""
    at = torch.tensor(np.vstack((np.zeros(WIDTH), np.eye(WIDTH))))
    for question in QUESTIONS:
        assert isinstance(question, Looked)
        told = float(oracle.ask(question, at if question.places == "encoded" else at[0]).value.sum().tanh())
        at = at * (1 + 0.1 * told) + 0.01 * told
    return at[0]


@every_adjacency
def test_neighbours_differ_in_integer_sums_alone(adjacency: Adjacency) -> None:
    """Grey box: a neighbour has another record, offset and weight; replayed sums give the same bytes."""
    x, y, given = scene(200)
    public, here = known(200, adjacency), torch.ones(200).bool()
    first = run(LinearProblem(x.clone(), y, here, LOGISTIC, WEIGHTS, **given), public, everything)
    for change in ({"sampling": 0.0}, {"offset": nan}, {"offset": 1e9, "sampling": 1.0}):
        if adjacency is Adjacency.ZERO_OUT and "sampling" in change and change["sampling"]:
            continue
        other = {name: one.clone() for name, one in given.items()}
        for name, value in change.items():
            other[name][7] = value
        problem = LinearProblem(x.clone(), y, here, LOGISTIC, WEIGHTS, **other)
        check_neighbours(first, run(problem, public, everything, recorded=first))


@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_the_sums_are_those_of_the_formulas(name: str) -> None:
    """Against the formulas written out, over several blocks of rows."""
    loss = LOSSES[name]
    x, y, given = scene(3000, 2)
    if isinstance(loss, Poisson):
        y = (y * 3).round()
    public = facts(3000, WIDTH, loss, weights=Mallows(bound=BOUND))
    problem = LinearProblem(x.clone(), y, torch.ones(3000).bool(), loss, Mallows(bound=BOUND), **given)
    assert isinstance(problem, BlockProblem)
    problem._rows_per_block = 256
    theta = np.random.default_rng(1).normal(size=WIDTH)
    margin = x.numpy() @ theta + given["offset"].numpy()
    mean = 1 / (1 + np.exp(-margin)) if name == "logistic" else np.minimum(np.exp(margin), 6)
    norms = np.linalg.norm(x.numpy(), axis=1)
    weights = np.minimum(1, BOUND / norms) ** 2 * given["sampling"].numpy()
    expected = x.numpy().T @ (weights * (mean - y.numpy()))
    question = Gradient(sigma=1.0)
    step = grid_for(question, public, 3000).part_step
    told = problem.integer_sum(question, public, torch.tensor(theta), step).numpy() * step
    np.testing.assert_allclose(told, expected, atol=1e-4)
    np.testing.assert_allclose(problem.bounded_sum(question, public, torch.tensor(theta)).numpy(), expected, atol=1e-8)
    replicates = torch.stack((torch.tensor(theta), torch.tensor(2 * theta)))
    np.testing.assert_allclose(problem.bounded_sum(question, public, replicates)[0].numpy(), expected, atol=1e-8)
