"""Tables, tests, contrasts, predictions and text from one released value, for every kind of model."""

from collections import Counter
from decimal import Decimal
from math import exp
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from scipy.stats import chi2, norm
from statsmodels.stats.weightstats import ztost

from core.base.errors import Invalid
from core.inference.check_words import of_coefficient
from core.inference.checks import Checks, ColumnLook, Learned, TailLine
from core.inference.coefficient_document import document
from core.inference.error_bound import ErrorBound
from core.inference.hypotheses import contrast, wald_test
from core.inference.predictions import predict
from core.inference.regions import intervals
from core.inference.released import Released, declared, residual_scale
from core.inference.rendering import text_of
from core.inference.results import line, ratios, summary
from core.inference.settings import UNCHECKED
from core.inference.wording import claim, loss_words, notes
from core.losses.counts import Poisson
from core.losses.robust import LogCosh
from core.losses.squares import Squared
from core.losses.weights import Clip, Mallows, Schweppe
from core.methods.m_estimation.sufficient_statistics.spec import SufficientStatistics
from core.models.features import Feature
from core.privacy.budget import plan_orders
from core.privacy.events import Sampled, compose
from core.privacy.facts import Adjacency
from core.privacy.reports import report
from tests.support.released import COVARIANCE, KINDS, THETA, of_kind, released, rows_of, shown_of, spread

ROW: dict[str, Any] = {"age": 40, "job": "c", "y": "yes"}


@pytest.mark.parametrize("kind", KINDS)
def test_survives_storage(kind: str) -> None:
    assert Released.model_validate_json(of_kind(kind).model_dump_json()) == of_kind(kind)


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
        assert set(row) == {"name", "estimate", "std_error", "z", "p_value", "interval"}


@pytest.mark.parametrize(
    ("value", "error", "z"),
    [
        (-0.1835649, 0.002066234, -88.84036),
        (0.6434390, 0.001411104, 455.98285),
        (0.4578594, 0.001696891, 269.82252),
        (-0.2743499, 0.003084991, -88.93053),
        (0.8731473, 0.004160866, 209.84747),
        (-0.1559515, 0.003732295, -41.78435),
        (0.2388637, 0.002969860, 80.42928),
        (-0.6718810, 0.003007074, -223.43350),
    ],
)
def test_z_and_p_of_the_printed_table(value: float, error: float, z: float) -> None:
    """U12: the eight lines of Table 1, all of whose p values are printed as 0."""
    row = line(value, error, (0.95,))
    assert row["z"] == pytest.approx(z, rel=1e-5)
    assert row["p_value"] < 1e-300


def _declared_value(feature: Feature) -> float:
    if feature.column is None:
        return 1.0
    return float(ROW[feature.column] if feature.level is None else ROW[feature.column] == feature.level)


@pytest.mark.parametrize("kind", KINDS)
def test_declared_coefficients_give_the_same_margins_as_encoded_ones(kind: str) -> None:
    """For each class, and with covariances that give the margin the same variance."""
    model = of_kind(kind)
    shown = declared(model)
    plain = np.array([[_declared_value(feature) for feature in model.design.features]])
    blocks = np.kron(np.eye(len(model.levels) or 1), plain)
    encoded = np.kron(np.eye(len(model.levels) or 1), [model.design.encode_row(ROW)])
    coding = model.design.target
    margins = coding.centre + coding.scale * (encoded @ model.coefficients)
    np.testing.assert_allclose(blocks @ np.asarray(shown.estimate), margins, rtol=1e-12)
    own = np.asarray(model.covariance)[: len(model.names), : len(model.names)]
    np.testing.assert_allclose(
        blocks @ np.asarray(shown.covariance) @ blocks.T, coding.scale**2 * encoded @ own @ encoded.T, rtol=1e-10
    )


def test_names_of_a_multinomial_model_go_class_after_class_without_the_baseline() -> None:
    model = of_kind("multinomial")
    assert model.names == ("b: intercept", "b: age", "b: y", "c: intercept", "c: age", "c: y")
    assert [row["name"] for row in ratios(model)] == ["b: age", "b: y", "c: age", "c: y"]


def test_an_estimated_scale_is_told_in_the_targets_units_and_is_no_coefficient() -> None:
    model = of_kind("joint")
    assert model.names == ("intercept", "age", "y")
    found = residual_scale(model)
    assert found is not None
    assert model.covariance is not None
    assert found.estimate == pytest.approx(200 * 0.15)
    assert found.std_error == pytest.approx(200 * np.sqrt(model.covariance[3][3]))
    told = summary(model)["scale"]
    assert told["estimate"] == found.estimate
    assert not {"z", "p_value"} & set(told), "no test of a scale against zero means anything"
    assert summary(of_kind("linear"))["scale"] is None


def test_several_levels_at_once() -> None:
    one = summary(released(), [0.9, 0.99])
    assert (one["level"], one["levels"]) == (0.9, [0.9, 0.99])
    for row in one["coefficients"]:
        narrow, wide = (told["interval"] for told in row["intervals"])
        assert row["interval"] == narrow
        assert wide[0] < narrow[0] < narrow[1] < wide[1]
    assert [told["level"] for told in one["coefficients"][0]["intervals"]] == [0.9, 0.99]


def test_predictions_agree_with_declared_coefficients() -> None:
    table = {row["name"]: row["estimate"] for row in summary(released())["coefficients"]}
    margin = table["intercept"] + 40 * table["age"] + table["job[c]"]
    (one,) = predict(released(), [{"age": 40, "job": "c"}])
    assert one == {"probability": pytest.approx(1 / (1 + np.exp(-margin)))}
    with pytest.raises(Invalid) as refusal:
        predict(released(), [{"age": 40, "job": "c"}, {"age": 40}])
    assert refusal.value.fields[0].pointer == "/rows/1/job"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_known_of_a_mean_is_its_gradients_variance(kind: str) -> None:
    """The delta method, with gradients by finite differences of the prediction itself."""
    model = of_kind(kind)
    (found,) = predict(model, [ROW], level=0.9)
    chances = kind == "multinomial"
    names = list(found["probabilities"]) if chances else [next(iter(found))]

    def at(theta: np.ndarray) -> np.ndarray:
        (one,) = predict(model.model_copy(update={"theta": tuple(theta)}), [ROW])
        return np.array([one["probabilities"][name] if chances else one[name] for name in names])

    slopes = np.atleast_2d(approx_fprime(np.asarray(model.theta), at, 1e-7))
    expected = np.sqrt(np.diag(slopes @ np.asarray(model.covariance) @ slopes.T))
    told = list(found["std_errors"].values()) if chances else [found["std_error"]]
    np.testing.assert_allclose(told, expected, rtol=1e-5)
    for name, error in zip(names, told, strict=True):
        value = found["probabilities"][name] if chances else found[name]
        low, high = found["intervals"][name] if chances else found["interval"]
        assert low < value < high
        assert (high - low) / (2 * norm.ppf(0.95) * error) == pytest.approx(1.0, abs=0.1)
        if kind in ("logistic", "multinomial"):
            assert 0 < low < high < 1


def test_probabilities_of_classes_are_a_softmax_with_the_baseline_at_zero() -> None:
    model = of_kind("multinomial")
    rows = [{"age": age, "y": answer} for age in (20, 47, 80) for answer in ("no", "yes")]
    encoded = torch.tensor([model.design.encode_row(row) for row in rows], dtype=torch.float64)
    theta = torch.tensor(model.theta, dtype=torch.float64).reshape(2, 3)
    margins = torch.cat([torch.zeros(6, 1, dtype=torch.float64), encoded @ theta.mT], dim=1)
    expected = torch.softmax(margins, dim=1).tolist()
    found = predict(model, rows)
    assert [list(one["probabilities"]) for one in found] == [["a", "b", "c"]] * 6
    np.testing.assert_allclose([list(one["probabilities"].values()) for one in found], expected, rtol=1e-12)


def test_a_mean_count_is_never_above_its_cap() -> None:
    steep = of_kind("poisson", theta=(900.0, 0.0, 0.0), loss=Poisson(cap=40.0))
    (one,) = predict(steep, [ROW], level=0.95)
    assert one["mean"] == pytest.approx(40.0)
    assert one["interval"][1] == pytest.approx(40.0)


def test_contrasts_odds_ratios_and_the_wald_test() -> None:
    table = {row["name"]: row for row in summary(released())["coefficients"]}
    same = contrast(released(), {"job[b]": 1.0})
    assert same["std_error"] == pytest.approx(table["job[b]"]["std_error"])
    joint = wald_test(released(), [{"job[b]": 1.0}])
    assert joint["statistic"] == pytest.approx(table["job[b]"]["z"] ** 2)
    assert joint["p_value"] == pytest.approx(table["job[b]"]["p_value"])
    both = wald_test(released(), [{"job[b]": 1.0}, {"job[c]": 1.0}, {"job[b]": 1.0, "job[c]": 1.0}])
    assert both["degrees_of_freedom"] == 2, "the third hypothesis follows from the others"
    assert both["redundant"] == [2]
    assert both["p_value"] == pytest.approx(float(chi2.sf(both["statistic"], 2)))
    ratio = {row["name"]: row for row in ratios(released())}
    assert "intercept" not in ratio
    assert ratio["age"]["odds_ratio"] == pytest.approx(np.exp(table["age"]["estimate"]))
    with pytest.raises(Invalid):
        contrast(released(), {"nothing": 1.0})


def test_the_joint_test_is_that_of_any_statistics_package() -> None:
    """Against the textbook's formula with an explicit inverse, for random hypotheses and values."""
    draws = np.random.default_rng(11)
    shown = declared(released())
    beta, covariance = np.asarray(shown.estimate), np.asarray(shown.covariance)
    for count in (1, 2, 3, 4):
        rows, values = draws.standard_normal((count, 4)), draws.standard_normal(count)
        away = rows @ beta - values
        expected = away @ np.linalg.inv(rows @ covariance @ rows.T) @ away
        found = wald_test(
            released(), [dict(zip(shown.names, row, strict=True)) for row in rows.tolist()], values.tolist()
        )
        assert found["statistic"] == pytest.approx(expected, rel=1e-8)
        assert found["degrees_of_freedom"] == count


def test_units_that_differ_by_ten_orders_of_magnitude_change_no_rank() -> None:
    """A rank reckoned in declared units would be 1: one variance is 1e-20 of the other."""
    wild = released(covariance=rows_of(np.diag([1e-12, 1e-12, 1e8, 1e-4])), theta=(1e-6, 1e-6, 3e4, 0.01))
    found = wald_test(wild, [{"age": 1.0}, {"job[b]": 1.0}])
    assert found["degrees_of_freedom"] == 2
    assert found["statistic"] == pytest.approx(1.0 + 9.0)


def test_one_sided_tests_and_tests_of_equivalence() -> None:
    two = contrast(released(), {"age": 1.0}, value=-0.045)
    greater = contrast(released(), {"age": 1.0}, value=-0.045, alternative="greater")
    less = contrast(released(), {"age": 1.0}, value=-0.045, alternative="less")
    assert two["z"] == pytest.approx((two["estimate"] + 0.045) / two["std_error"])
    assert greater["p_value"] + less["p_value"] == pytest.approx(1.0)
    assert two["p_value"] == pytest.approx(2 * min(greater["p_value"], less["p_value"]))
    for value, margin in ((-0.04, 0.02), (-0.05, 0.011), (0.0, 0.03)):
        found = contrast(released(), {"age": 1.0}, value=value, margin=margin)["equivalence"]
        away, error = (found["margin"] - 0, contrast(released(), {"age": 1.0})["std_error"])
        assert away == margin
        distance = two["estimate"] - value
        data = np.array([distance - error, distance + error])  # their mean has the standard error `error`
        expected, *_ = ztost(data, -margin, margin, usevar="pooled", ddof=1.0)
        assert found["p_value"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("hypotheses", "values", "pointer"),
    [
        ([], None, "/hypotheses"),
        ([{"age": 1.0}], [1.0, 2.0], "/values"),
        ([{"age": 1.0}, {"nope/x": 1.0}], None, "/hypotheses/1/nope~1x"),
        ([{"age": 1.0}, {"age": 0.0}], None, "/hypotheses/1"),
        ([{"age": 1.0}, {"job[b]": 1.0}, {"age": 2.0, "job[b]": 2.0}], [0.0, 1.0, 3.0], "/hypotheses/2"),
    ],
    ids=["nothing", "values", "unknown", "no weights", "contradiction"],
)
def test_hypotheses_that_make_no_sense_are_named(
    hypotheses: list[dict[str, float]], values: list[float] | None, pointer: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        wald_test(released(), hypotheses, values)
    assert refusal.value.fields[0].pointer == pointer
    assert refusal.value.fields[0].detail


def test_ratios_are_those_of_the_kind() -> None:
    rates = {row["name"]: row for row in ratios(of_kind("poisson"), (0.9, 0.5001), "rate_ratio")}
    table = {row["name"]: row for row in summary(of_kind("poisson"), [0.9])["coefficients"]}
    assert rates["y"]["rate_ratio"] == pytest.approx(exp(table["y"]["estimate"]))
    assert rates["y"]["interval"] == pytest.approx([exp(end) for end in table["y"]["interval"]])
    assert [told["level"] for told in rates["y"]["intervals"]] == [0.9, 0.5001]
    for kind, wrong in (("linear", "odds_ratio"), ("poisson", "odds_ratio"), ("logistic", "rate_ratio")):
        with pytest.raises(Invalid):
            ratios(of_kind(kind), (), wrong)


def test_without_intervals_there_is_no_covariance_to_ask_for() -> None:
    bare = released(with_covariance=False)
    assert all(row["std_error"] is None for row in summary(bare)["coefficients"])
    asks = (
        intervals,
        lambda one: contrast(one, {"age": 1.0}),
        lambda one: wald_test(one, [{"age": 1.0}]),
        lambda one: predict(one, [ROW], level=0.9),
    )
    for ask in asks:
        with pytest.raises(Invalid) as refusal:
            ask(bare)
        assert refusal.value.fields[0].pointer == "/model"
    assert predict(bare, [ROW])[0].keys() == {"probability"}


def test_flags_are_said_in_words_wherever_intervals_are() -> None:
    flagged = released(
        flags=released().flags.model_copy(update={"slow_directions": 2, "optimizer_floored": 3, "scale_floored": True})
    )
    said = " ".join(notes(flagged))
    for phrase in ("1 eigenvalue of", "3 eigenvalues", "2 directions", "was widened", "public floor", "too short"):
        assert phrase in said
    for shown in (
        summary(flagged),
        intervals(flagged),
        contrast(flagged, {"age": 1.0}),
        wald_test(flagged, [{"age": 1.0}]),
    ):
        assert shown["notes"] == notes(flagged)
        assert shown["flags"]["slow_directions"] == 2
    assert notes(of_kind("logistic")) == [UNCHECKED]
    assert "rule of thumb" in notes(of_kind("logistic", correction="printed"))[1]
    assert "left out" in notes(of_kind("logistic", correction="plain"))[1]
    assert "biased" in notes(of_kind("linear", weights=Clip(bound=1.0), covariance=None))[-1]
    assert "0.5" in notes(of_kind("linear", ridge=0.5))[1]


def test_both_promises_are_printed() -> None:
    block = summary(released())["privacy"]
    assert block["adjacency"] == "zero_out"
    assert float(block["mu"]) == pytest.approx(0.5)
    assert float(block["implies"]["replace_one"]["mu"]) == pytest.approx(1.0)
    text = shown_of(released())["methods"]
    assert "zero_out" in text
    assert "replace_one" in text
    assert "1,000 records" in text


def test_texts_call_n_what_was_declared_since_nobody_counted_excluded_records() -> None:
    """Of 8,000 records 3,300 lacked a value, and every text said 8,000 records."""
    model = released(units=8000)
    shown = shown_of(model)
    said = "8,000 declared; excluded ones are not counted"
    assert f"Records: {said}" in text_of(document(shown))
    assert "8,000 records declared (excluded ones are not counted)" in shown_of(model)["methods"]
    look, eye = ColumnLook(centre=0, scale=1), rows_of(np.eye(4))
    learned = Learned(columns=(look,) * 4, encoding=eye, weight_bound=3, complete=4700, complete_deviation=20)
    checks = Checks(
        coefficients=((),) * 4, learned=learned, gradient_excess=0.1, hessian_noise=0.1, unidentified=(0.0,) * 4
    )
    counted = released(units=8000, checks=checks)
    said = "8,000 declared, 4,700 of them complete (95 % interval 4,661 to 4,739, counted with noise)"
    assert said in shown_of(counted)["methods"]
    assert said in " ".join(text_of(document(shown_of(counted))).split())
    above = checks.model_copy(update={"learned": learned.model_copy(update={"complete": 8060.0})})
    said = "8,000 declared, 8,000 of them complete (95 % interval 7,961 to 8,000, counted with noise)"
    assert said in shown_of(released(units=8000, checks=above))["methods"], (
        "noise says more than there are: no width of zero"
    )


def test_a_weighted_coefficient_keeps_its_interval_and_every_view_says_what_it_is() -> None:
    look, eye = ColumnLook(centre=0, scale=1), rows_of(np.eye(4))
    checks = Checks(
        coefficients=((),) * 4,
        learned=Learned(columns=(look,) * 4, encoding=eye, weight_bound=3),
        hessian_noise=0.1,
        unidentified=(0.0,) * 4,
        kept=(None, 0.62, 0.97, None),
        weighted=(True, True, False, False),
    )
    model = released(checks=checks)
    shown = shown_of(model)
    first, second, third, _ = shown["coefficients"]
    assert (first["flags"], second["flags"], third["flags"]) == (["weighted"], ["weighted"], [])
    assert (first["kept_weight"], second["kept_weight"], third["kept_weight"]) == (None, 0.62, 0.97)
    assert second["interval"] is not None
    text = " ".join(text_of(document(shown)).split())
    assert f"{second['name']} (kept 62 %)" in text
    assert "97 %" not in text
    assert "Coefficients solve the weighted equation" in shown["methods"]
    _, notes = of_coefficient(model, 1)
    assert notes == ["weighted: far records count less (kept 62 %)"]
    plain = released(checks=checks.model_copy(update={"weighted": ()}))
    assert "weighted equation" not in shown_of(plain)["methods"] + " ".join(shown_of(plain)["notes"])


def squares(tails: str, hidden: float) -> Released:
    """Return a release of least squares with its other line."""
    learned = Learned(columns=(ColumnLook(centre=0, scale=1),) * 3, encoding=rows_of(np.eye(3)), weight_bound=2.5)
    line = {"tails": tails, "coefficients": (1.0, 2.0, 3.0), "std_errors": (0.1, 0.2, 0.3), "largest": 60.0}
    beside = TailLine.model_validate(line | {"hidden": hidden, "moves": (0.4, 0.5, 0.6), "times": 2.5})
    checks = Checks(
        coefficients=((), (), ("not identified",)), learned=learned, hessian_noise=0.1, unidentified=(0.0,) * 3,
        tails=beside,
    )  # fmt: skip
    return of_kind("linear", loss=Squared(), checks=checks)


def test_least_squares_shows_the_line_that_it_does_not_claim() -> None:
    """With what the noise could hide; a withheld coefficient has no interval there either."""
    shown = shown_of(squares("assumed_light", 12.4))
    text = " ".join(text_of(document(shown)).split())
    assert "Large residuals coef std err" in text
    assert "hide up to 12 records beyond 60" in text
    assert "whatever residuals of spent there are" in text
    assert "They hold whatever large residuals there are" in shown["methods"]
    last = shown["tails"]["coefficients"][-1]
    assert (last["estimate"], last["interval"], last["moved_by"]) == (3.0, None, 0.6)
    claimed = shown_of(squares("counted", 12.4))
    assert "Assumed: no residual of spent passes 60" in " ".join(claimed["notes"])
    assert "They assume that no residual passes 60." in claimed["methods"]


def test_where_no_record_can_hide_both_lines_are_one() -> None:
    shown = shown_of(squares("assumed_light", 0.0))
    assert shown["tails"] is None
    assert "Some were seen up to these." in shown["notes"][0]
    assert shown_of(of_kind("linear", loss=Squared(), covariance=None))["tails"] is None


def test_a_robust_regression_is_called_so() -> None:
    """Its coefficients are not of the mean."""
    shown = shown_of(of_kind("linear"))
    assert shown["title"] == "Robust regression of spent, differentially private"
    assert "a robust regression of spent" in shown["methods"]
    assert any("not the mean where residuals are skewed" in one for one in shown["notes"])
    assert shown_of(of_kind("linear", loss=Squared()))["title"].startswith("Linear regression")


@pytest.mark.parametrize("kind", KINDS)
def test_the_methods_paragraph_says_what_was_fitted(kind: str) -> None:
    words = {
        "logistic": "a logistic regression of y (logistic loss)",
        "linear": "Huber loss (c = 1.345, residual scale known, 20)",
        "joint": "residual scale estimated",
        "poisson": "means and counts up to 40",
        "multinomial": "a multinomial logistic regression of job",
    }
    assert words[kind] in shown_of(of_kind(kind))["methods"]
    assert "No intervals" in shown_of(of_kind(kind, covariance=None))["methods"]
    assert loss_words(of_kind("linear", loss=Squared())) == "squared loss"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"weights": Schweppe(bound=1.5)}, "Schweppe weights (bound 1.5)"),
        ({"weights": Mallows(bound=1.5, power=3)}, "Mallows weights (bound 1.5, power 3)"),
        ({"weights": Clip(bound=0.5)}, "gradient clipped at 0.5"),
        ({"row_words": SufficientStatistics.row_words, "weights": Clip(bound=1.0)}, "within their declared bounds"),
        ({"loss": LogCosh(scale=3.0)}, "log-cosh loss (c = 1.345, residual scale known, 3)"),
        ({"ridge": 0.25}, "a ridge penalty of 0.25"),
    ],
    ids=["schweppe", "mallows", "clip", "sufficient", "log-cosh", "ridge"],
)
def test_losses_and_weights_in_words(changed: dict[str, Any], words: str) -> None:
    assert words in shown_of(of_kind("linear", **changed))["methods"]
    assert "residuals cut at 3" in shown_of(of_kind("poisson", loss=Poisson(cap=40.0, c=3.0)))["methods"]


def test_a_promise_that_no_mu_states_is_told_in_epsilon() -> None:
    sampled = report(
        compose(Counter({Sampled(numerator=2**60, sigma=2.0): 5})),
        plan_orders(Decimal(3), Decimal("1e-6")),
        Adjacency.ZERO_OUT,
    )
    text = shown_of(released(privacy=sampled))["methods"]
    assert "mu =" not in text
    assert "(epsilon, delta) = " in text


def test_a_covariance_of_the_wrong_block_would_be_seen() -> None:
    """The planted bug: classes' blocks swapped change a multinomial model's table."""
    right = of_kind("multinomial")
    swapped = np.roll(np.asarray(right.covariance), (3, 3), (0, 1))
    errors = [row["std_error"] for row in summary(right)["coefficients"]]
    wrong = [
        row["std_error"] for row in summary(right.model_copy(update={"covariance": rows_of(swapped)}))["coefficients"]
    ]
    assert wrong != pytest.approx(errors)
    assert spread(6)[0, 0] != spread(6)[3, 3]


@pytest.mark.parametrize(("untrained", "is_said"), [(None, False), (0.7, False), (0.5, True), (0.2, True)])
def test_a_claim_that_the_start_satisfies_is_said_to_be_none(untrained: float | None, is_said: bool) -> None:
    made = ErrorBound(
        ended_by="steps", quantity="excess_risk", value=0.5, confidence=0.95, variant="given", untrained=untrained
    )
    said = claim(made)
    assert "an excess risk of at most 0.5" in said
    assert ("without any training: the claim says nothing" in said) == is_said
