"""scikit-learn's estimators on the service: its own checks, both ways to fit, and what leaves with a fitted one."""

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from farthing import Client, FarthingError
from farthing.sklearn import DPLinearRegression, DPLogisticRegression
from tests.farthing.conftest import Released
from tests.support.embedded import KEY, Embedded

pytestmark = pytest.mark.service
NOISY = "two fits differ by noise, and by more than the tolerance on some dozens of records"
COPIES = "it fits parts of one table as if they were other people: refused with near-copy"
EXCLUDED: dict[type, dict[str, str]] = {
    DPLogisticRegression: {
        "check_classifier_data_not_an_array": NOISY,
        "check_classifiers_train": COPIES,
        "check_fit_idempotent": NOISY,
        "check_n_features_in": COPIES,
        "check_supervised_y_2d": NOISY,
    },
    DPLinearRegression: {
        "check_fit_idempotent": NOISY,
        "check_n_features_in": COPIES,
        "check_regressor_data_not_an_array": NOISY,
        "check_regressors_int": NOISY,
        "check_regressors_train": "noise at 200 records of ten columns is larger than half of the variance",
        "check_supervised_y_2d": NOISY,
    },
}
"""Checks of scikit-learn that cannot hold, with the reason."""
WEAK = {"epsilon": "45", "delta": "1e-3", "accept_weak_privacy": True, "accept_delta": True}
"""A budget with room for several fits of some dozens of records."""


@pytest.fixture(autouse=True)
def surroundings(service: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARTHING_URL", service.url)
    monkeypatch.setenv("FARTHING_KEY", KEY)


def records(rows: int = 3000, seed: int = 1) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, 3))
    yes = generator.random(rows) < 1 / (1 + np.exp(-(features @ [1.0, -1.0, 0.5])))
    return features, np.where(yes, "yes", "no")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [DPLogisticRegression, DPLinearRegression])
def test_scikit_learn_s_own_checks(kind: type) -> None:
    estimator = kind(epsilon=6.0, budget=WEAK)
    found = check_estimator(estimator, on_fail="raise", expected_failed_checks=EXCLUDED[kind], on_skip=None)
    excluded = [one["check_name"] for one in found if one["expected_to_fail"]]
    assert len(excluded) <= 0.3 * len(found), excluded


def test_records_are_uploaded_and_predicted_for_here(client: Client) -> None:
    features, outcome = records()
    frame = pd.DataFrame(features, columns=["age", "y", "dose"])
    estimator = DPLogisticRegression(epsilon=4.0, bounds=(-3.0, 3.0), classes=["no", "yes"])
    assert estimator.fit(frame, outcome) is estimator
    assert estimator.coef_.shape == (1, 3)
    assert estimator.coef_[0] == pytest.approx([1.0, -1.0, 0.5], abs=0.25)
    assert estimator.feature_names_in_.tolist() == ["age", "y", "dose"]
    budget = client.budget(estimator.dataset_)
    assert float(budget.budget_share.remaining) == pytest.approx(0.0, abs=1e-3), "a budget of its own, spent whole"
    declared = client.dataset(estimator.dataset_).columns
    assert [(one["name"], one["lower"], one["upper"]) for one in declared[:3]] == [
        (name, -3.0, 3.0) for name in ("age", "y", "dose")
    ]
    rows = [dict(zip(frame.columns, row, strict=True)) for row in [[0.1, 0.2, 9.0], [1.0, -7.0, 0.0]]]
    there = [one["probability"] for one in client.predict(estimator.model_, rows)]
    here = estimator.predict_proba(pd.DataFrame(rows))[:, 1]
    assert here == pytest.approx(there, abs=0.02), "cut to the bounds as the service does, which also shrinks a little"
    values = client.model(estimator.model_).params
    margins = [
        values["intercept"] + row @ values[frame.columns] for row in np.array([[0.1, 0.2, 3.0], [1.0, -3.0, 0.0]])
    ]
    assert here == pytest.approx(1 / (1 + np.exp(-np.array(margins))), rel=1e-9), "by the coefficients as they are"
    with pytest.raises(FarthingError, match="privacy-budget-exhausted"):
        clone(estimator).fit(frame, outcome)


def test_fits_of_one_scope_share_its_budget(client: Client) -> None:
    features, outcome = records(seed=2)
    asked = {"epsilon": 0.5, "scope": "ward 7", "budget": {"epsilon": "3"}}
    first = DPLogisticRegression(**asked).fit(features, outcome)
    second = DPLinearRegression(**asked).fit(features[:, :2], features[:, 2])
    assert client.dataset(first.dataset_).scope == client.dataset(second.dataset_).scope
    again = clone(first).fit(features, outcome)
    assert again.dataset_ == first.dataset_, "the same records and declaration are one dataset"
    assert not [one for one in client.datasets() if one.state == "draft" and one.name == "ward 7"], "no draft is left"


def test_several_classes_have_a_baseline_of_zeros(client: Client) -> None:
    features, _ = records(seed=3)
    outcome = np.argmax(features + np.random.default_rng(4).gumbel(size=features.shape), axis=1)
    estimator = DPLogisticRegression(epsilon=8.0).fit(features, outcome)
    assert estimator.coef_.shape == (3, 3)
    assert not estimator.coef_[0].any()
    rows = [{f"x{place}": value for place, value in enumerate(row)} for row in features[:3]]
    there = [list(one["probabilities"].values()) for one in client.predict(estimator.model_, rows)]
    assert estimator.predict_proba(features[:3]) == pytest.approx(np.array(there), abs=0.02), (
        "there also shrunk a little"
    )
    told = client.model(estimator.model_).params.to_numpy().reshape(2, 4)
    assert estimator.coef_[1:] == pytest.approx(told[:, 1:], rel=1e-12)
    assert estimator.intercept_[1:] == pytest.approx(told[:, 0], rel=1e-12)


def test_a_dataset_that_is_there_is_trained_on_without_records(client: Client, released: Released) -> None:
    estimator = DPLogisticRegression(client, released.dataset, target="y", features=["age", "job"], epsilon=0.5).fit()
    assert set(estimator.coefficients_) == {"intercept", "age", "job[b]", "job[c]"}
    rows = pd.DataFrame({"age": [30.0, 80.0], "job": ["a", "b"]})
    chances = estimator.predict_proba(rows)
    assert chances[:, 1] == pytest.approx(
        [one["probability"] for one in client.predict(estimator.model_, rows.to_dict("records"))]
    )
    assert estimator.predict(rows).tolist() == ["yes" if chance > 0.5 else "no" for chance in chances[:, 1]]
    with pytest.raises(ValueError, match="rows of declared columns"):
        estimator.decision_function([[1.0, 2.0]])


def test_what_leaves_with_a_fitted_estimator_has_no_key() -> None:
    features, outcome = records(seed=5)
    estimator = make_pipeline(FunctionTransformer(), DPLogisticRegression(epsilon=2.0)).fit(features, outcome)
    expected = estimator.predict_proba(features[:5])
    written = skops.io.dumps(estimator)
    trusted = skops.io.get_untrusted_types(data=written)
    assert all(name.startswith("farthing.sklearn.") for name in trusted)
    for content, read in (
        (pickle.dumps(estimator), pickle.loads),
        (written, lambda b: skops.io.loads(b, trusted=trusted)),
    ):
        assert KEY.encode() not in content
        assert read(content).predict_proba(features[:5]) == pytest.approx(expected, rel=1e-12)
    assert copy.deepcopy(estimator)[-1].model_ == estimator[-1].model_


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"bounds": [(-1.0, 1.0)] * 2}, "3 pairs"),
        ({"classes": ["no"]}, "two or more"),
        ({"classes": ["no", "maybe"]}, "not declared in classes: .*yes"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_sent(client: Client, settings: dict[str, Any], fault: str) -> None:
    features, outcome = records(rows=20)
    before = len(list(client.datasets()))
    with pytest.raises(ValueError, match=fault):
        DPLogisticRegression(**settings).fit(features, outcome)
    with pytest.raises(ValueError, match="`dataset` and `target`"):
        DPLogisticRegression().fit()
    assert len(list(client.datasets())) == before
