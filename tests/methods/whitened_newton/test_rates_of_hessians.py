"""Hessians of counts pay for a rate that few records pass, not for the largest rate that weighs as much as any."""

from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pytest

from core.inference.checks import Checks
from core.methods.fits import fit_and_infer
from core.methods.m_estimation.whitened_newton import questions
from core.methods.m_estimation.whitened_newton.count_look import usual_rate
from core.methods.m_estimation.whitened_newton.inference.count_moments import rates
from core.queries.reencoded import ReencodedCurvature
from tests.methods.test_whitened_newton import Noting
from tests.support.terms import Table, fitted, oracle, people, plan

UNITS: Final = 8000
MODEL: Final[dict[str, Any]] = {"kind": "poisson", "target": "visits", "features": ["age", "dose", "smoker", "job"]}


def dispersed(seed: int) -> Table:
    """Return people whose visits have a variance of their mean and 1.5 times its square."""
    draws = np.random.default_rng(seed)
    table = people(draws, UNITS, crossed=False, shifted=False)
    eta = 0.8 + 0.3 * (table["dose"] - 0.5) + 0.2 * table["smoker"]
    table["visits"] = draws.poisson(np.exp(eta) * draws.gamma(1 / 1.5, 1.5, UNITS)).clip(0, 400).astype(float)
    return table


def checks_of(seed: int) -> Checks:
    found = fitted(plan(UNITS, 1.0, model=MODEL), dispersed(seed))[2].checks
    assert found is not None
    return found


@pytest.mark.parametrize("length", [0.0, 0.3, 0.6, 1.0, 1.5])
def test_records_beyond_it_are_a_small_part_of_a_hessian(length: float) -> None:
    """At most 2 % of a normal predictor's Hessian is cut, in the mean and along the slopes."""
    most = usual_rate(np.array([0.5, length, 0.0]), 1e9)
    found = rates(np.array([0.5, length, 0.0]), 1e6)
    for along in (np.ones_like(found.deviations), found.deviations**2):
        whole = float(found.parts @ (found.means * along))
        assert float(found.parts @ (np.minimum(found.means, most) * along)) > 0.98 * whole
    assert most >= 3 * np.exp(0.5 + length**2 / 2) * (1 - 1e-9)


@pytest.mark.parametrize("start", [-1e4, -3.0, 1.0, 1e4])
def test_it_is_a_positive_number_and_at_most_the_largest_that_counts(start: float) -> None:
    assert 0 < usual_rate(np.array([start, 2.0]), 40.0) <= 40.0


def test_dispersed_counts_do_not_make_hessians_noisy() -> None:
    """Planted bug: the bound of rates that count at all. It hid directions in a quarter of jobs on real counts."""
    kept = checks_of(1)
    assert kept.learned.rate_cap is not None
    assert kept.learned.base_rate is not None
    assert kept.hessian_noise < 0.15
    with patch.object(questions, "usual_rate", lambda _, rate_cap: rate_cap):
        assert checks_of(1).hessian_noise > 1.5 * kept.hessian_noise


def test_each_hessian_names_the_rate_at_its_own_point_and_gradients_are_as_they_were() -> None:
    planned = plan(UNITS, 1.0, model=MODEL)
    noting = Noting(oracle(planned, dispersed(2)))
    fit_and_infer(planned.spec.optimizer, planned.spec.inference, noting)  # type: ignore[arg-type] # passes all on
    matrices = [one for one in noting.questions if isinstance(one, ReencodedCurvature)]
    assert [one.of for one in matrices] == ["hessian"] * (len(matrices) - 1) + ["score"]
    assert all(one.peak is not None and one.peak < one.curvature_peak for one in matrices[:-1])
    assert matrices[-1].peak is None
    assert "peak" not in matrices[-1].model_dump()
    assert [one.event() for one in noting.questions] == list(planned.schedule)
