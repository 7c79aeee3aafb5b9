"""Products of numbers in wide bounds: centred by what the look learned, so that no interval is withheld or silent.

Data sets have fixed seeds and the noise follows from a test's name, so a run repeats.
"""

from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter

from benchmarks.trust.jobs import Cell, Job, run
from benchmarks.trust.shapes import Outcome
from core.data.columns import CategoryColumn, Columns
from core.inference.looks import Columns as Looked
from core.mechanisms.generator import SystemGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.whitened_newton import product_look
from core.methods.m_estimation.whitened_newton.inference.recentring import (
    at_centres,
    at_origin,
    carried,
    recentred,
    recentring,
    rounded_off,
)
from core.methods.m_estimation.whitened_newton.product_look import look_at_products
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.planning.job import JobSpec, PlannedSpec
from core.planning.planner import PlannedJob, plan_job, read_planned
from core.privacy.events import Gaussian, compose
from core.privacy.facts import Adjacency, Ranges
from core.queries.looks import ProductMagnitudeCounts
from core.training.fitting import make_problem
from tests.methods.test_whitened_newton import Noting
from tests.support import terms

Array = NDArray[np.float64]
UNITS, JOBS = 3000, 3
CROSSED = (("age", "dose"), ("age", "smoker"), ("dose", "smoker"), ("age", "dose", "smoker"), ("job", "smoker"))
KINDS = {"logistic": "ill", "poisson": "visits", "linear": "score", "multinomial": "place"}
PLACE = CategoryColumn(name="place", values=("home", "work", "road"))
every = pytest.mark.parametrize("kind", KINDS)


def job(seed: int) -> Job:
    return run(Cell("area_by_price", 8000, 5, 1.0, Outcome("logistic", 0.45)), (41, seed))


@pytest.mark.parametrize("seed", range(JOBS))
def test_skewed_numbers_in_wide_bounds_have_intervals_that_cover(seed: int) -> None:
    """Off by four of its own standard errors by chance in one coefficient of 16,000."""
    found = job(seed)
    assert not found.flagged.any(), found.words
    assert found.truth is not None
    assert (np.abs(found.estimate - found.truth) < 4 * found.error).all()
    assert (found.error < 2 * found.plain_error).all()


def test_products_centred_in_the_middle_of_their_ranges_would_be_seen() -> None:
    """Planted bug: learned centres move no product."""
    with patch.object(product_look, "recentring", lambda ranges, _: np.eye(len(ranges.kinds))):
        assert job(0).flagged.any()


def plan(kind: str = "logistic", mu: float = 1.0, crossed: Any = CROSSED, **settings: object) -> PlannedJob:
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "model": {"kind": kind, "target": KINDS[kind], "features": terms.MAINS, "interactions": crossed},
            "optimizer": {"kind": "whitened_newton", **settings},
            "privacy": {"mu": str(mu)},
        }
    )
    columns = (*terms.COLUMNS, PLACE)
    return plan_job(spec, columns=columns, units=UNITS, adjacency=Adjacency.ZERO_OUT, terms=terms.TERMS)


def ranges_of(planned: PlannedJob) -> Ranges:
    assert planned.facts.ranges is not None
    return planned.facts.ranges


def settings_of(planned: PlannedJob) -> WhitenedNewtonPlan:
    assert isinstance(planned.spec.optimizer, WhitenedNewtonPlan)
    return planned.spec.optimizer


def people(planned: PlannedJob) -> tuple[dict[str, Array], Array]:
    """Return columns in declared units, and encoded rows."""
    table = terms.people(np.random.default_rng(2), UNITS)
    rows = np.empty((UNITS, planned.design.dimension))
    planned.design.encode_columns(table, rows)
    return table, rows


def oracle(planned: PlannedJob, table: dict[str, Array]) -> FullOracle:
    """Return an oracle that answers what was priced, and no more."""
    drawn = np.random.default_rng(5).integers(0, 3, UNITS)
    with patch.object(terms, "COLUMNS", (*terms.COLUMNS, PLACE)):
        read = terms.records(planned, table | {"place": drawn})
    payments = CountingFilter(compose(Counter(planned.schedule)))
    return FullOracle(make_problem(planned, read, {}), planned.facts, payments, SystemGenerator())


def test_the_map_makes_products_of_centred_numbers_of_encoded_rows() -> None:
    planned = plan()
    design, ranges, (table, rows) = planned.design, ranges_of(planned), people(planned)
    centre = np.random.default_rng(1).uniform(-1, 1, design.dimension)
    found = rows @ recentring(ranges, centre).T
    names = list(design.names)
    age, dose = (rows[:, names.index(name)] - centre[names.index(name)] for name in ("age", "dose"))
    smoker = table["smoker"]
    expected = {
        "age:dose": age * dose,
        "age:smoker": age * smoker,
        "dose:smoker": dose * smoker,
        "age:dose:smoker": age * dose * smoker,
    }
    for place, name in enumerate(names):
        assert (ranges.kinds[place] == "product") == (name in expected)
        np.testing.assert_allclose(found[:, place], expected.get(name, rows[:, place]), atol=1e-12)


def test_shown_coefficients_are_those_of_declared_units_but_for_their_scale() -> None:
    planned = plan()
    ranges, matrix = ranges_of(planned), planned.design.to_declared()[0]
    moved = recentring(ranges, np.full(planned.design.dimension, 0.3))
    shown = at_origin(np.eye(len(matrix)), ranges, moved)
    np.testing.assert_allclose(shown / np.diag(shown)[:, None], matrix / np.diag(matrix)[:, None], atol=1e-9)
    theta = np.random.default_rng(3).normal(size=len(matrix))
    np.testing.assert_allclose(moved.T @ at_centres(theta, moved), theta)
    row = moved @ np.array(ranges.origin)
    np.testing.assert_allclose(recentred(ranges, moved).origin, row)
    assert at_centres(theta, moved) @ row == pytest.approx((shown @ theta)[0])


@pytest.mark.parametrize("crossed", [(("age", "dose", "smoker"),), (("job", "smoker"),)], ids=["lacking", "indicators"])
def test_a_product_without_its_lower_terms_or_without_numbers_is_looked_at_as_it_was(crossed: Any) -> None:
    ranges = ranges_of(plan(crossed=crossed))
    assert (ranges.places("product"), ranges.factors, ranges.origin) == ((), (), ())
    assert settings_of(plan(crossed=crossed)).product_question() is None


def test_beside_a_product_that_lacks_a_term_others_are_centred() -> None:
    planned = plan(crossed=(("age", "dose"), ("dose", "job", "smoker")))
    found = {
        name: kind for name, kind in zip(planned.design.names, ranges_of(planned).kinds, strict=True) if ":" in name
    }
    assert found == {"age:dose": "product", "dose:job[clerk]:smoker": "number", "dose:job[nurse]:smoker": "number"}


@every
def test_it_asks_what_was_priced_in_that_order_and_spends_all_of_it(kind: str) -> None:
    planned = plan(kind)
    settings, table = settings_of(planned), people(planned)[0]
    assert (settings.numbers, settings.products, settings.two_valued) == (2, 4, 5)
    noting = Noting(oracle(planned, table))
    iterate(settings, noting)  # type: ignore[arg-type] # it passes everything else on
    assert [one.event() for one in noting.questions] == list(planned.schedule)
    assert [one.kind for one in noting.questions] == [one.kind for one in settings.questions()]
    size = planned.facts.dimension
    pairs = zip(noting.questions, settings.questions(), strict=True)
    assert all(one.draws(size) <= priced.draws(size) for one, priced in pairs), "no answer draws more than planned"
    worth = sum(event.sigma**-2 for event in planned.schedule if isinstance(event, Gaussian))
    assert worth == pytest.approx(1.0, rel=1e-9), "mu is 1"


@every
def test_without_noise_it_learns_how_far_centred_products_vary(kind: str) -> None:
    planned = plan(kind, mu=1e5)
    table, rows = people(planned)
    estimate = iterate(settings_of(planned), oracle(planned, table))[0]
    assert estimate.checks is not None
    looked, ranges = estimate.checks.learned.columns, ranges_of(planned)
    moved = rows @ recentring(ranges, np.array([one.centre for one in looked])).T
    for place in ranges.places("product"):
        assert looked[place].centre == 0
        # A size counts as the middle of its octave.
        assert looked[place].scale == pytest.approx(np.sqrt((moved[:, place] ** 2).mean()), rel=0.15)


def test_a_plan_that_was_stored_before_looks_at_products_as_numbers() -> None:
    planned = plan()
    stored = planned.spec.model_dump(mode="json")
    del stored["optimizer"]["products"]
    stored["optimizer"]["numbers"] = 6
    again = read_planned(
        TypeAdapter(PlannedSpec).validate_python(stored),
        columns=TypeAdapter(Columns).validate_python([*terms.COLUMNS]),
        units=UNITS,
        adjacency=Adjacency.ZERO_OUT,
    )
    assert ranges_of(again).places("product") == ()
    assert settings_of(again).product_question() is None
    assert settings_of(again) == settings_of(plan(products=0))
    assert terms.fitted(again, people(again)[0])[2].checks is not None


def test_where_no_size_is_seen_a_products_scale_is_that_of_its_columns() -> None:
    """Noise of 3,000 records hides all sizes."""
    planned = plan()
    ranges, table = ranges_of(planned), people(planned)[0]
    size = planned.design.dimension
    given = Looked(
        np.full(size, 0.1),
        np.full(size, 0.2),
        *(np.zeros(size, dtype=np.bool_) for _ in "ab"),
        np.zeros(size, dtype=np.bool_),
    )
    asked = terms.oracle(planned, table)
    question = ProductMagnitudeCounts(sigma=1000.0, columns=4, bins=34)
    with patch.object(asked, "_payments", CountingFilter()):
        found = look_at_products(question, asked, given)
    own = dict(zip(planned.design.names, found.scale, strict=True))
    unseen = found.sparse[list(ranges.places("product"))]
    assert unseen.all()
    assert own["age:dose"] == pytest.approx(0.04)
    assert own["age:smoker"] == pytest.approx(0.2)


RANGES = Ranges(
    kinds=("constant", "number", "two", "product"),
    lower=(1.0, -1.0, -1.0, -2.0),
    upper=(1.0, 1.0, 1.0, 2.0),
    target=(0.0, 1.0),
    origin=(1.0, -1.0, -1.0, 0.0),
    factors=((), (), (), (1, 2)),
)
MOVED = recentring(RANGES, np.array([0.0, -0.9, 0.0, 0.0]))


def test_a_products_mark_reaches_the_coefficients_whose_error_it_carries() -> None:
    """The indicator's own slope is of number -1, a tenth from the centre."""
    mark = np.arange(4) == 3
    back = MOVED.T  # of coefficients in which products are centred anew
    for error, reached in ((0.1, False), (30.0, True)):
        covariance = np.diag(np.square([1.0, 1.0, 1.0, error]))
        assert carried(mark, back, covariance, RANGES, MOVED).tolist() == [False, False, reached, True]
    assert carried(mark, back, covariance, RANGES, None).tolist() == mark.tolist()
    others = np.arange(4) == 2
    assert carried(others, back, covariance, RANGES, MOVED).tolist() == others.tolist()


@pytest.mark.parametrize(("error", "lost"), [(1e-6, False), (1e8, True)])
def test_a_variance_that_rounding_loses_is_said_to_be_lost(error: float, *, lost: bool) -> None:
    """The product's coefficient is known to `error`, in wide units, and the intercept to 1 at zero."""
    ranges = RANGES.model_copy(update={"kinds": ("constant", "number", "number", "product")})
    moved = recentring(ranges, np.array([0.0, -1.0, -1.0, 0.0]))
    covariance = np.diag(np.square([1.0, 1.0, 1.0, error]))
    assert rounded_off(moved.T, covariance, ranges, moved).tolist() == [lost, lost, lost, False]
    assert not rounded_off(moved.T, covariance, ranges, None).any()
