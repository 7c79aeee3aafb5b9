"""Tables, tests, contrasts and text from one released value."""

from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from scipy.stats import chi2, norm

from core.catalogue.columns import BinaryColumn, CategoryColumn, NumberColumn
from core.catalogue.design import make_design
from core.catalogue.models import LogisticModel
from core.errors import Invalid
from core.inference.results import (
    Flags,
    Released,
    contrast,
    intervals,
    methods_paragraph,
    odds_ratios,
    predict,
    summary,
    wald_test,
)
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian, compose
from core.privacy.facts import Adjacency
from core.privacy.reports import report

COLUMNS = (
    NumberColumn(name="age", lower=20, upper=80),
    CategoryColumn(name="job", values=("a", "b", "c")),
    BinaryColumn(name="y", values=("no", "yes")),
)
THETA = (0.3, -1.2, 0.5, 0.1)
ROOT = np.random.default_rng(5).standard_normal((4, 4)) / 10
COVARIANCE = ROOT @ ROOT.T


def released(*, with_covariance: bool = True) -> Released:
    design = make_design(COLUMNS, LogisticModel(target="y"))
    drawn = compose(Counter({Gaussian(sigma=4.0): 4}))
    return Released(
        kind="logistic",
        target="y",
        optimizer="noisy_newton",
        units=1000,
        steps=8,
        status="finished",
        level=0.95,
        correction="stationary",
        design=design,
        theta=THETA,
        covariance=tuple(map(tuple, COVARIANCE.tolist())) if with_covariance else None,
        flags=Flags(
            eigenvalues_floored=1, curvature_floored=1, score_floored=0, optimizer_floored=0, slow_directions=0
        ),
        privacy=report(drawn, plan_orders(Decimal(3), Decimal("1e-6")), Adjacency.ZERO_OUT),
        weight_bound=2.0,
    )


def test_survives_storage() -> None:
    assert Released.model_validate_json(released().model_dump_json()) == released()


def test_the_table_is_in_declared_units_and_its_arithmetic_holds() -> None:
    table = {row["name"]: row for row in summary(released())["coefficients"]}
    assert list(table) == ["intercept", "age", "job[b]", "job[c]"]
    age = table["age"]
    assert age["estimate"] == pytest.approx(THETA[1] / 30)
    assert age["std_error"] == pytest.approx(np.sqrt(COVARIANCE[1, 1]) / 30)
    for row in table.values():  # U12
        assert row["z"] == pytest.approx(row["estimate"] / row["std_error"], rel=1e-12)
        assert row["p_value"] == pytest.approx(2 * norm.cdf(-abs(row["z"])), rel=1e-9)
        assert row["interval"][1] - row["interval"][0] == pytest.approx(2 * norm.ppf(0.975) * row["std_error"])
    wider = intervals(released(), 0.99)[1]["interval"]
    assert wider[0] < age["interval"][0] < age["interval"][1] < wider[1]


def test_predictions_agree_with_declared_coefficients() -> None:
    table = {row["name"]: row["estimate"] for row in summary(released())["coefficients"]}
    margin = table["intercept"] + 40 * table["age"] + table["job[c]"]
    (one,) = predict(released(), [{"age": 40, "job": "c"}])
    assert one["probability"] == pytest.approx(1 / (1 + np.exp(-margin)))
    with pytest.raises(Invalid) as refusal:
        predict(released(), [{"age": 40, "job": "c"}, {"age": 40}])
    assert refusal.value.fields[0].pointer == "/rows/1/job"


def test_contrasts_odds_ratios_and_the_wald_test() -> None:
    table = {row["name"]: row for row in summary(released())["coefficients"]}
    same = contrast(released(), {"job[b]": 1.0})
    assert same["std_error"] == pytest.approx(table["job[b]"]["std_error"])
    joint = wald_test(released(), [{"job[b]": 1.0}])
    assert joint["statistic"] == pytest.approx(table["job[b]"]["z"] ** 2)
    assert joint["p_value"] == pytest.approx(table["job[b]"]["p_value"])
    both = wald_test(released(), [{"job[b]": 1.0}, {"job[c]": 1.0}, {"job[b]": 1.0, "job[c]": 1.0}])
    assert both["degrees_of_freedom"] == 2, "the third hypothesis follows from the others"
    assert both["p_value"] == pytest.approx(float(chi2.sf(both["statistic"], 2)))
    ratio = {row["name"]: row for row in odds_ratios(released())}
    assert "intercept" not in ratio
    assert ratio["age"]["odds_ratio"] == pytest.approx(np.exp(table["age"]["estimate"]))
    with pytest.raises(Invalid):
        contrast(released(), {"nothing": 1.0})


def test_without_intervals_there_is_no_covariance_to_ask_for() -> None:
    bare = released(with_covariance=False)
    assert all(row["std_error"] is None for row in summary(bare)["coefficients"])
    for ask in (intervals, lambda one: contrast(one, {"age": 1.0}), lambda one: wald_test(one, [{"age": 1.0}])):
        with pytest.raises(Invalid):
            ask(bare)


def test_both_promises_are_printed() -> None:
    block = summary(released())["privacy"]
    assert block["adjacency"] == "zero_out"
    assert float(block["mu"]) == pytest.approx(0.5)
    assert float(block["implies"]["replace_one"]["mu"]) == pytest.approx(1.0)
    text = methods_paragraph(released())
    assert "zero_out" in text
    assert "replace_one" in text
    assert "1,000 records" in text
