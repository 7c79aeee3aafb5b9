"""A model's figures under the names of statsmodels: labelled, in declared units, and NaN where they are withheld."""

import math
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from farthing import Client, FarthingError, Model, WrongInput
from tests.farthing.conftest import Released

NAMES = ["intercept", "age", "job[b]", "job[c]"]


@pytest.fixture
def model(client: Client, released: Released) -> Model:
    return client.model(released.model)


@pytest.fixture
def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_figures_are_series_and_agree_with_the_table(model: Model) -> None:
    lines = {line.name: line for line in model.table().coefficients}
    for found, field in ((model.params, "estimate"), (model.bse, "std_error"), (model.tvalues, "z"),
                         (model.pvalues, "p_value")):  # fmt: skip
        assert isinstance(found, pd.Series)
        assert found.to_dict() == {name: getattr(line, field) for name, line in lines.items()}
    assert model.nobs == 2000
    covariance = model.cov_params()
    assert list(covariance.index) == list(covariance.columns) == NAMES
    assert np.sqrt(np.diag(covariance)) == pytest.approx(model.bse.to_numpy())
    assert covariance.to_numpy() == pytest.approx(covariance.to_numpy().T, rel=1e-9, abs=1e-15)
    # An independent way to the same number: the service's contrast.
    sd = math.sqrt(covariance.loc["age", "age"] + covariance.loc["job[b]", "job[b]"] - 2 * covariance["age"]["job[b]"])
    assert model.contrast({"age": 1, "job[b]": -1}).std_error == pytest.approx(sd)


def test_intervals_are_asked_by_alpha_or_level(model: Model) -> None:
    found = model.conf_int(0.1)
    assert (list(found.index), list(found.columns)) == (NAMES, [0, 1])
    assert found.equals(model.conf_int(level=0.9))
    assert model.conf_int().equals(model.conf_int(alpha=0.05))
    assert (found[1] - found[0]).to_numpy() == pytest.approx(2 * 1.6448536 * model.bse.to_numpy())
    assert "0.995]" in model.summary(alpha=0.01)
    for level_by_mistake in (0.95, 0, 1, -1, math.nan):
        with pytest.raises(WrongInput, match="/alpha"):
            model.conf_int(level_by_mistake)


@pytest.mark.usefixtures("without_pandas")
def test_without_pandas_they_are_dicts_with_the_same_keys(model: Model) -> None:
    assert model.params == {line.name: line.estimate for line in model.table().coefficients}
    assert model.cov_params()["age"]["age"] == pytest.approx(model.bse["age"] ** 2)
    assert model.conf_int()[0]["age"] < model.params["age"] < model.conf_int()[1]["age"]
    assert model.t_test({"age": 0}).pvalue["age = 0"] == pytest.approx(model.pvalues["age"])
    frame = model.get_prediction([{"age": 40, "job": "b"}]).summary_frame()
    assert frame["mean_ci_lower"][0] < frame["mean"][0] < frame["mean_ci_upper"][0]
    with pytest.raises(ImportError, match=r"farthing\[notebook\]"):
        model.frame()


def test_t_tests_go_one_by_one_and_wald_tests_together(model: Model) -> None:
    both = model.t_test("age = 0.01, job[b] - job[c] = 0.5")
    labels = ["age = 0.01", "job[b] - job[c] = 0.5"]
    assert list(both.effect.index) == labels
    assert both.effect.iloc[0] == model.params["age"]
    assert both.tvalue.iloc[0] == pytest.approx((model.params["age"] - 0.01) / model.bse["age"])
    assert both.pvalue.iloc[1] == pytest.approx(model.wald_test("job[b] - job[c] = 0.5").pvalue)
    frame = both.summary_frame(alpha=0.1)
    assert list(frame.columns) == ["coef", "std err", "z", "P>|z|", "Conf. Int. Low", "Conf. Int. Upp."]
    assert frame.loc[labels[0], "Conf. Int. Low"] == pytest.approx(model.conf_int(0.1)[0]["age"])
    assert (both.conf_int()[0] < frame["Conf. Int. Low"]).all()
    assert labels[1] in repr(both)
    assert model.wald_test({"age": 0.01, "job[b]": 0}).degrees_of_freedom == 2
    with pytest.raises(FarthingError, match="wages"):
        model.t_test({"wages": 0})


@pytest.mark.parametrize("kind", ["mappings", "pandas", "polars", "arrow"])
def test_predictions_have_a_frame_for_rows_of_any_kind(model: Model, kind: str) -> None:
    rows = [{"age": 40, "job": "b"}, {"age": 60.5, "job": "a"}]
    given = {
        "mappings": rows,
        "pandas": pd.DataFrame(rows, index=["first", "second"]).astype({"job": "category"}),
        "polars": pl.DataFrame(rows, strict=False),
        "arrow": pa.Table.from_pylist(rows),
    }[kind]
    found = model.get_prediction(given)
    frame = found.summary_frame(alpha=0.1)
    assert list(frame.index) == (["first", "second"] if kind == "pandas" else [0, 1])
    told = model.predict(rows, level=0.9)
    assert frame["mean"].tolist() == [row["probability"] for row in told]
    assert frame["mean_se"].tolist() == found.se_mean.tolist() == [row["std_error"] for row in told]
    assert frame[["mean_ci_lower", "mean_ci_upper"]].to_numpy().tolist() == [row["interval"] for row in told]
    assert (found.conf_int()[0] < frame["mean_ci_lower"]).all()
    assert found.predicted_mean.tolist() == frame["mean"].tolist()


def test_no_rows_and_missing_cells(model: Model) -> None:
    with pytest.raises(FarthingError, match="/rows"):
        model.get_prediction([])
    with pytest.raises(FarthingError, match="/rows/0/age"):
        model.get_prediction(pd.DataFrame({"age": [float("nan")], "job": ["a"]}))
