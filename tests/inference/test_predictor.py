"""Shrunk predictors: the coefficients where they are known, the base rate where nothing is, and flags of rows."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit

from core.inference.checks import Checks, Learned
from core.inference.predictions import predict, predict_encoded
from core.inference.predictor import shrunk
from core.inference.released import Released
from core.inference.row_flags import PAST, job_flags
from tests.support.released import checked, of_kind, rows_of

Array = NDArray[np.float64]
KINDS = ("logistic", "linear", "poisson", "multinomial")
ROWS = [{"age": age, "y": answer, "job": job} for age in (20, 47, 80) for answer in ("no", "yes") for job in "abc"]


def with_covariance(model: Released, times: float) -> Released:
    covariance = rows_of(times * np.asarray(model.covariance))
    return model.model_copy(update={"covariance": covariance})


def middles(model: Released) -> Array:
    rows = np.array([model.design.encode_row(row) for row in ROWS])
    return predict_encoded(model, rows, np.zeros(len(rows)), None).middle


@pytest.mark.parametrize("kind", KINDS)
def test_known_coefficients_predict_as_they_are(kind: str) -> None:
    """Within a tenth of a standard error of the predictor."""
    model = with_covariance(checked(kind), 1e-4)
    np.testing.assert_allclose(middles(model), middles(of_kind(kind)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("kind", "base"), [("logistic", [0.3]), ("poisson", [0.3]), ("multinomial", [0.5, 0.3, 0.2])])
def test_hidden_coefficients_predict_the_base_rate(kind: str, base: list[float]) -> None:
    found = middles(with_covariance(checked(kind), 1e8))
    np.testing.assert_allclose(found, np.tile(base, (len(ROWS), 1)), atol=0.01)


def test_hidden_slopes_of_a_linear_model_predict_its_middle() -> None:
    found = middles(with_covariance(checked("linear"), 1e8))
    assert float(np.ptp(found)) < 0.02 * float(np.ptp(middles(of_kind("linear"))))


def learned_of(size: int, **changed: Any) -> Learned:
    model = checked("logistic")
    assert model.checks is not None
    draws = np.random.default_rng(3)
    encoding = np.eye(size) + draws.normal(0, 0.3, (size, size))
    return model.checks.learned.model_copy(update={"encoding": rows_of(encoding), **changed})


def test_two_classes_predict_as_a_logistic_model_does() -> None:
    """Contrasts treat classes alike, so a multinomial model of two classes is the logistic one."""
    draws, size = np.random.default_rng(4), 5
    theta, root = draws.normal(size=(1, size)), draws.normal(size=(size, size))
    covariance, rows = root @ root.T / 4, draws.normal(size=(50, size))
    binary = shrunk(theta, covariance, learned_of(size, base_rate=0.3, class_rates=None))
    classes = shrunk(theta, covariance, learned_of(size, base_rate=None, class_rates=(0.7, 0.3)))
    for one in (binary, classes):
        spread = np.einsum("ni,ij,nj->n", rows, one.left, rows)[:, None, None]
        found = one.moderated(rows @ one.theta.T, np.zeros(50), spread)
        if one is binary:
            expected = found
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_classes_are_treated_alike_whichever_is_the_baseline() -> None:
    draws, size = np.random.default_rng(5), 4
    theta, root = draws.normal(size=(2, size)), draws.normal(size=(2 * size, 2 * size)) / 3
    covariance, rates = root @ root.T, (0.5, 0.3, 0.2)
    turn = np.kron(np.array([[-1.0, 0.0], [-1.0, 1.0]]), np.eye(size))  # the second class as the baseline
    rows = draws.normal(size=(20, size))
    found = []
    for change, order in ((np.eye(2 * size), (0, 1, 2)), (turn, (1, 0, 2))):
        own = change @ theta.ravel()
        learned = learned_of(size, class_rates=tuple(rates[place] for place in order), base_rate=None)
        one = shrunk(own.reshape(2, size), change @ covariance @ change.T, learned)
        parts = one.left.reshape(2, size, 2, size)
        spread = np.einsum("ni,aibj,nj->nab", rows, parts, rows)
        margins = one.moderated(rows @ one.theta.T, np.zeros(20), spread)
        whole = np.pad(margins, ((0, 0), (1, 0)))[:, list(order)]
        found.append(whole - whole.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(*found, atol=1e-9)


def test_an_offset_counts_in_full_where_nothing_else_is_known() -> None:
    size = 3
    one = shrunk(np.ones((1, size)), 1e8 * np.eye(size), learned_of(size, base_rate=0.3, offset=0.4))
    rows, offsets = np.ones((2, size)), np.array([0.4, 2.4])
    spread = np.einsum("ni,ij,nj->n", rows, one.left, rows)[:, None, None]
    found = one.moderated(rows @ one.theta.T + offsets[:, None], offsets, spread)[:, 0]
    np.testing.assert_allclose(found, logit(0.3) + np.array([0.0, 2.0]), atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_are_those_of_the_coefficients_and_rows_past_them_say_so(kind: str) -> None:
    model = with_covariance(checked(kind), 9.0)
    assert model.checks is not None
    plain = predict(model.model_copy(update={"checks": None}), ROWS, 0.6)
    name = "intervals" if kind == "multinomial" else "interval"
    past = 0
    for own, row in zip(predict(model, ROWS, 0.6), plain, strict=True):
        assert own[name] == row[name]
        assert (
            own["std_errors" if kind == "multinomial" else "std_error"]
            == row["std_errors" if kind == "multinomial" else "std_error"]
        )
        figure = own.get("probabilities") or next(iter(own.values()))
        values = figure.items() if isinstance(figure, dict) else [(None, figure)]
        ends = [(own[name] if key is None else own[name][key], value) for key, value in values]
        outside = any(not low <= value <= high for (low, high), value in ends)
        assert (PAST in own.get("flags", ())) == outside
        past += outside
    if kind in {"logistic", "multinomial"}:
        assert past, "the case is met"


def test_flags_are_those_of_coefficients_that_move_a_row() -> None:
    """Places: intercept, age, job[b], job[c]."""
    model = checked("logistic", flagged={1: ("clipped",), 2: ("separated", "not identified")})
    told = predict(model, [{"age": 40, "job": "a"}, {"age": 40, "job": "b"}])
    assert [one["flags"] for one in told] == [
        ["age: clipped"],
        ["age: clipped", "job[b]: separated, not identified"],
    ]
    assert all("flags" not in one for one in predict(checked("logistic"), [{"age": 40, "job": "b"}]))
    assert job_flags(checked("logistic", job=("not converged",))) == ["not converged"]


def test_a_flagged_job_predicts_by_the_covariance_that_it_does_not_show() -> None:
    flagged, sound = checked("logistic", job=("not converged",)), checked("logistic")
    assert flagged.covariance is None
    assert predict(flagged, ROWS) == predict(sound, ROWS)
    assert Released.model_validate(flagged.model_dump(mode="json")) == flagged


def test_a_release_of_before_is_read_and_predicts_by_its_coefficients() -> None:
    """Without a covariance nothing says how far to shrink."""
    flagged = checked("logistic", job=("not converged",))
    assert flagged.checks is not None
    stored = flagged.checks.model_dump(mode="json")
    del stored["unshown_covariance"]
    old = flagged.model_copy(update={"checks": Checks.model_validate(stored)})
    assert "unshown_covariance" not in old.checks.model_dump()  # type: ignore[union-attr] # it has checks
    assert middles(old)[:, 0] == pytest.approx(middles(of_kind("logistic"))[:, 0])


def test_a_row_of_large_variance_goes_to_the_base_and_others_stay() -> None:
    size, learned = 2, learned_of(2, base_rate=0.2, encoding=rows_of(np.eye(2)))
    one = shrunk(np.array([[-1.0, 1.0]]), np.diag([1e-4, 0.04]), learned)
    rows = np.array([[1.0, 0.5], [1.0, 500.0]])
    spread = np.einsum("ni,ij,nj->n", rows, one.left, rows)[:, None, None]
    near, far = expit(one.moderated(rows @ one.theta.T, np.zeros(2), spread)[:, 0])
    assert near == pytest.approx(float(expit(-0.5)), abs=0.02)
    assert 0.9 < far < 0.9999, "500 deviations away the plain predictor says 1 but for e-217"
    assert size == len(rows)
