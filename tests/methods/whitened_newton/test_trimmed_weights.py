"""Sampling weights count up to the largest that a job sees, so that a wide declaration costs next to nothing."""

from typing import Any, Final

import numpy as np
import pytest
from pydantic import TypeAdapter

from core.methods.fits import fit_and_infer
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.models.term_words import term_notes
from core.planning.job import PlannedSpec
from core.planning.planner import PlannedJob, read_planned
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency
from core.queries.looks import MagnitudeCounts
from tests.methods.test_whitened_newton import Noting
from tests.support.terms import COLUMNS, Table, fitted, oracle, people, plan

UNITS: Final = 6000
LARGEST: Final = 25.0
"""Declared; weights lie far below it."""


def model_of(kind: str = "logistic", *, weighted: bool = True) -> dict[str, Any]:
    target = {"logistic": "ill", "poisson": "visits", "linear": "score"}[kind]
    weights = {"sampling_weights": "w"} if weighted else {}
    return {"kind": kind, "target": target, "features": ["age", "smoker"], **weights}


def strata(seed: int, largest: float = 0.4) -> Table:
    """Return people of three strata whose weights are up to 1.6 % of the declared bound."""
    draws = np.random.default_rng(seed)
    table = people(draws, UNITS, crossed=False, shifted=False)
    table["w"] = draws.choice([0.05, 0.15, 0.4], UNITS, p=[0.5, 0.3, 0.2]) * largest / 0.4
    return table


def settings_of(planned: PlannedJob) -> WhitenedNewtonPlan:
    settings = planned.spec.optimizer
    assert isinstance(settings, WhitenedNewtonPlan)
    return settings


@pytest.mark.parametrize("kind", ["logistic", "poisson", "linear"])
def test_weights_far_below_their_declared_bound_cost_little(kind: str) -> None:
    """Errors within 45 % of those where weights reach their declared bound."""
    planned = plan(UNITS, 2.0, model=model_of(kind))
    errors = []
    for largest in (0.4, LARGEST):
        _, error, estimate = fitted(planned, strata(1, largest))
        assert estimate.checks is not None
        assert not estimate.checks.withheld
        sampling = estimate.checks.learned.sampling
        assert sampling is not None
        assert largest <= sampling.reach * LARGEST * (1 + 1e-9) <= max(1.5 * largest, LARGEST)
        assert sampling.mean * LARGEST == pytest.approx(strata(1, largest)["w"].mean(), rel=0.1)
        assert (sampling.beyond is None) == (largest == LARGEST)
        errors.append(error)
    np.testing.assert_allclose(errors[0], errors[1], rtol=0.45)


def test_few_records_of_larger_weight_are_cut_and_said_so() -> None:
    planned, table = plan(UNITS, 2.0, model=model_of()), strata(2)
    table["w"][:3] = LARGEST
    _, _, estimate = fitted(planned, table)
    assert estimate.checks is not None
    sampling = estimate.checks.learned.sampling
    assert sampling is not None
    assert sampling.beyond is not None
    assert sampling.reach * LARGEST < 1
    assert 3 <= sampling.beyond < 200
    said = term_notes(planned.design, UNITS, sampling)[-1]
    cut = f"{sampling.reach * LARGEST:.3g}"
    assert said.startswith(f"Weights above {cut} were counted as {cut}; the noise could hide ")


@pytest.mark.parametrize("kind", ["logistic", "poisson", "linear"])
def test_it_asks_one_question_more_that_was_priced(kind: str) -> None:
    planned = plan(UNITS, 1.0, model=model_of(kind))
    settings, noting = settings_of(planned), Noting(oracle(planned, strata(3)))
    fit_and_infer(planned.spec.optimizer, planned.spec.inference, noting)  # type: ignore[arg-type] # it passes everything on
    assert [one.event() for one in noting.questions] == list(planned.schedule)
    assert [one.kind for one in noting.questions] == [one.kind for one in settings.questions()]
    sizes = [one for one in noting.questions if isinstance(one, MagnitudeCounts) and one.of == "weights"]
    assert sizes == [settings.trimming_question()]
    worth = sum(event.sigma**-2 for event in planned.schedule if isinstance(event, Gaussian))
    assert worth == pytest.approx(1.0, rel=1e-9), "mu is 1"
    cuts = {one.sampling_cut for one in noting.questions if "sampling_cut" in type(one).model_fields}
    assert len(cuts) == 1, "all sums have the same weights"
    assert cuts.pop() < 0.05


def test_without_weights_nothing_is_asked_and_nothing_is_paid() -> None:
    settings = settings_of(plan(UNITS, 1.0, model=model_of(weighted=False)))
    assert settings.trimmed is False
    assert settings.trimming_question() is None
    assert settings.column_shares()[4] == 0
    assert all("sampling_cut" not in one.model_dump() for one in settings.questions())


def test_where_a_description_has_looked_weights_count_up_to_their_declared_bound() -> None:
    """It has no sizes of weights, and the job pays for no look."""
    planned = plan(UNITS, 1.0, model=model_of(), models=["mdl_" + "0" * 26])
    settings = settings_of(planned)
    assert settings.looked
    assert settings.trimmed is False
    assert not any(isinstance(one, MagnitudeCounts) for one in settings.questions())
    worth = sum(event.sigma**-2 for event in planned.schedule if isinstance(event, Gaussian))
    assert worth == pytest.approx(1.0, rel=1e-9), "mu is 1"


def test_a_stored_plan_of_release_0_1_0_counts_weights_up_to_their_declared_bound() -> None:
    planned = plan(UNITS, 1.0, model=model_of())
    stored = planned.spec.model_dump(mode="json")
    del stored["optimizer"]["trimmed"]
    spec = TypeAdapter(PlannedSpec).validate_python(stored)
    again = read_planned(spec, columns=COLUMNS, units=UNITS, adjacency=Adjacency.ZERO_OUT)
    assert settings_of(again).trimming_question() is None
    assert len(again.schedule) == len(planned.schedule) - 1
    _, _, estimate = fitted(again, strata(4, LARGEST))
    assert estimate.checks is not None
    assert estimate.checks.learned.sampling is not None
    assert estimate.checks.learned.sampling.reach == 1


def test_weights_that_the_noise_hides_count_up_to_their_declared_bound() -> None:
    planned = plan(UNITS, 0.005, model=model_of())
    _, _, estimate = fitted(planned, strata(5))
    assert estimate.checks is not None
    assert estimate.checks.learned.sampling is not None
    assert estimate.checks.learned.sampling.reach > 0.05
