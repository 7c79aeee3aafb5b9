"""Whitened Newton for several classes: it draws what was priced, and without noise it solves the weighted equation.

Coverage is judged in `tests/benchmarks/test_trust_classes.py`, on fresh data sets.
"""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.trust.class_cells import ClassCell
from benchmarks.trust.class_jobs import class_minimum, planned_classes
from benchmarks.trust.class_shapes import draw_classes
from benchmarks.trust.jobs import TERMS
from core.base.errors import Invalid
from core.inference.estimate import Estimate
from core.methods.fits import fit_and_infer
from core.methods.m_estimation.whitened_newton import fit_classes as whitened_classes
from core.oracle import Answer, Oracle
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.planning.planner import plan_job
from core.privacy.events import Gaussian, compose
from core.privacy.facts import Adjacency
from core.queries.gradients import Question
from core.queries.sums.peer_group import PeerGroup
from tests.support.grey_box import check_neighbours, neighbours, run
from tests.support.peer_groups import Mail, together
from tests.support.planned_scenes import ClassScene
from tests.support.problems import repeatable_generator

CELL = ClassCell("indicators", 4000, 4, 1.0, 3)
EXACT, QUIET = 1e5, 300.0
"""mu at which noise is nothing, and a small part of the error that sampling leaves."""
SIZES = (400, 1200, 2400)


class Noting:
    """An oracle that notes what it is asked."""

    def __init__(self, oracle: FullOracle) -> None:
        self._oracle = oracle
        self.questions: list[Question] = []

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        self.questions.append(question)
        return self._oracle.ask(question, theta, other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)


@pytest.mark.parametrize("classes", [3, 6])
def test_it_asks_what_was_priced_in_that_order_and_no_answer_moves_a_price(classes: int) -> None:
    scene = ClassScene(replace(CELL, classes=classes))
    oracle = Noting(scene.oracle())
    scene.fitted(oracle)  # type: ignore[arg-type] # it passes everything else on
    assert [one.event() for one in oracle.questions] == list(scene.plan.schedule)
    assert [one.kind for one in oracle.questions] == [one.kind for one in scene.settings.questions()]
    size = scene.plan.facts.dimension
    pairs = zip(oracle.questions, scene.settings.questions(), strict=True)
    assert all(one.draws(size) <= planned.draws(size) for one, planned in pairs), "no answer draws more than planned"
    worth = sum(event.sigma**-2 for event in scene.plan.schedule if isinstance(event, Gaussian))
    assert worth == pytest.approx(1.0, rel=1e-9), "mu is 1"


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_neighbours_differ_in_integer_sums_alone(adjacency: Adjacency) -> None:
    """Grey box: the whole method, replayed on neighbours with the first run's sums, releases the same bytes."""
    scene = ClassScene(replace(CELL, units=400, mu=20.0, adjacency=adjacency))

    def fit(oracle: Oracle) -> Tensor:
        estimate = whitened_classes.iterate(scene.settings, oracle)[0]
        assert estimate.sandwich is not None
        assert estimate.checks is not None
        text = torch.tensor(list(estimate.checks.model_dump_json().encode()), dtype=torch.float64)
        return torch.cat((estimate.theta, estimate.sandwich.covariance.flatten(), text))

    features, target = (torch.from_numpy(one) for one in scene.records)
    first = run(scene.problem(), scene.plan.facts, fit)
    for kind, rows in neighbours(features, target, torch.ones(len(target)).bool(), row=7).items():
        if adjacency is Adjacency.ZERO_OUT and kind not in {"zeroed", "not a number"}:
            continue
        check_neighbours(first, run(scene.problem(rows), scene.plan.facts, fit, recorded=first))


@pytest.mark.parametrize("structure", ["even", "uneven"])
@pytest.mark.parametrize("classes", [3, 5])
def test_without_noise_it_is_the_root_of_the_weighted_equation_and_its_sandwich(classes: int, structure: Any) -> None:
    """Against Newton's method and a sandwich written out in NumPy, in the encoding that the job learned."""
    scene = ClassScene(replace(CELL, mu=EXACT, classes=classes, structure=structure))
    estimate = scene.fitted(scene.oracle())
    checks = estimate.checks
    assert checks is not None
    assert estimate.sandwich is not None
    assert (checks.job, set(checks.coefficients)) == ((), {()})
    exact, covariance, _ = class_minimum(checks.learned, scene.records, estimate.theta.numpy())
    errors = np.sqrt(np.diag(covariance))
    assert (np.abs(estimate.theta.numpy() - exact) < 0.02 * errors).all()
    np.testing.assert_allclose(np.sqrt(np.diag(estimate.sandwich.covariance)) / errors, 1.0, atol=0.1)
    assert checks.learned.class_rates is not None
    counts = np.bincount(scene.records[1].astype(int)) / len(scene.records[1])
    np.testing.assert_allclose(checks.learned.class_rates, counts, atol=1e-3)


def test_with_two_classes_it_is_a_logistic_model_to_part_of_an_error() -> None:
    """The same equation in coordinates sqrt(2) times as small: at no noise the same root."""
    scene = ClassScene(replace(CELL, mu=EXACT, classes=2))
    estimate = scene.fitted(scene.oracle())
    assert estimate.checks is not None
    exact, covariance, _ = class_minimum(estimate.checks.learned, scene.records, estimate.theta.numpy())
    assert (np.abs(estimate.theta.numpy() - exact) < 0.02 * np.sqrt(np.diag(covariance))).all()


def test_classes_in_another_order_have_the_same_errors() -> None:
    """No class is noisier for being the baseline: class 2 first, its errors against class 0 are the same to 15 %."""
    first, second = ClassScene(CELL), ClassScene(CELL)
    features, codes = second.records
    second.records = features, (codes + 1) % 3  # class 2 is 0 now, class 0 is 1: the same contrast, negated
    one, other = (scene.fitted(scene.oracle()) for scene in (first, second))
    assert one.sandwich is not None
    assert other.sandwich is not None
    size = len(one.theta) // 2
    told = one.sandwich.covariance.diagonal()[size:].sqrt(), other.sandwich.covariance.diagonal()[:size].sqrt()
    assert float((told[0] / told[1] - 1).abs().max()) < 0.15


@pytest.mark.parametrize(
    ("shape", "structure", "word", "places"),
    [
        ("alias", "even", "not identified", (1, 2, 5, 6)),
        ("indicators", "never", "separated", (5,)),
        ("normal", "decided", "separated", ()),
    ],
)
def test_what_nothing_identifies_is_flagged_by_class_and_column(
    shape: str, structure: Any, word: str, places: tuple[int, ...]
) -> None:
    scene = ClassScene(replace(CELL, shape=shape, structure=structure, mu=3.0))
    checks = scene.fitted(scene.oracle()).checks
    assert checks is not None
    if not places:
        assert checks.job, "of the whole job"
        return
    assert checks.job == ()
    assert tuple(at for at, words in enumerate(checks.coefficients) if word in words) == places


@pytest.mark.parametrize(("structure", "named"), [("rare_last", {1}), ("rare_first", {0, 1})])
def test_a_class_with_few_records_is_flagged_and_a_baseline_s_concern_all(structure: Any, named: set[int]) -> None:
    """About 20 to 30 of 1,000 records, where 40 are asked for; other classes keep their intervals."""
    scene = ClassScene(replace(CELL, shape="normal", units=1000, structure=structure, mu=10.0))
    checks = scene.fitted(scene.oracle()).checks
    assert checks is not None
    size = CELL.features
    few = {at // size for at, words in enumerate(checks.coefficients) if "too few events" in words}
    assert few == named


def test_too_many_classes_and_features_are_refused() -> None:
    cell = replace(CELL, shape="normal", features=42, classes=40, units=100_000)
    data = draw_classes(np.random.default_rng(0), "normal", 50, 41, 40, "even")
    with pytest.raises(Invalid, match="at most 1000"):
        planned_classes(cell, data)


def test_a_filled_job_is_its_own_plan() -> None:
    scene = ClassScene(CELL)
    columns = (*scene.plan.design.columns, scene.plan.design.target_column)
    again = plan_job(scene.plan.spec, columns=columns, units=CELL.units, adjacency=CELL.adjacency, terms=TERMS)
    assert again == scene.plan


def test_three_owners_of_unlike_people_find_what_one_would_with_the_same_errors() -> None:
    """Beside one oracle over all records: apart by part of a standard error, and these agree within a twentieth."""
    scene = ClassScene(replace(CELL, mu=QUIET))
    features, target = scene.records
    order, edges = np.argsort(features[:, 3], kind="stable"), np.cumsum((0, *SIZES))
    owned = [
        (torch.from_numpy(features[rows]), torch.from_numpy(target[rows]), torch.ones(len(rows)).bool())
        for rows in (order[first:last] for first, last in pairwise(edges))
    ]

    def work(peers: PeerGroup) -> Estimate:
        records = owned[peers.place]
        paying = SiteFilter(CountingFilter(compose(Counter(scene.plan.schedule))), MessageRounds(peers))
        facts = scene.plan.facts.model_copy(update={"units": len(records[1])})
        own = FullOracle(scene.problem(records), facts, paying, repeatable_generator(bytes([peers.place + 1]) * 32))
        oracle = FederatedOracle(own, paying, "fed_test")
        return fit_and_infer(scene.settings, scene.plan.spec.inference, oracle).value.estimate

    alone, (joined, *others) = scene.fitted(scene.oracle()), together(Mail(len(SIZES)), work)
    assert all(torch.equal(joined.theta, other.theta) for other in others)
    assert alone.sandwich is not None
    assert joined.sandwich is not None
    own, shared = (one.covariance.diagonal().sqrt() for one in (alone.sandwich, joined.sandwich))
    assert float(((alone.theta - joined.theta).abs() / own).max()) < 0.25
    assert float((shared / own - 1).abs().max()) < 0.05
