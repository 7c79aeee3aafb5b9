"""Two models side by side: no p value is ever too small, and none is given where no law justifies one."""

import numpy as np
import pytest

from core.base.errors import Invalid
from core.inference.comparison import Relation, compare
from core.inference.error_bound import Records
from core.inference.released import Released
from core.inference.results import summary
from core.losses.weights import Clip, Mallows
from tests.support.released import COVARIANCE, THETA, of_kind, released, rows_of, spread

OTHER = released(optimizer="noisy_gd", theta=(0.35, -1.0, 0.4, 0.3), covariance=rows_of(spread(4, seed=9)))


@pytest.mark.parametrize(
    ("other", "records", "relation"),
    [
        (OTHER, "same_dataset", "same_equation"),
        (OTHER.model_copy(update={"ridge": 0.1}), "same_dataset", "same_people"),
        (OTHER.model_copy(update={"weights": Mallows(bound=2.0, power=3)}), "same_dataset", "same_people"),
        (OTHER.model_copy(update={"weights": Mallows(bound=3.0)}), "same_dataset", "same_people"),
        (OTHER, "same_people", "same_people"),
        (OTHER, "different_people", "different_people"),
        (OTHER.model_copy(update={"covariance": None}), "same_dataset", "no_covariance"),
    ],
)
def test_what_may_be_assumed_follows_from_equation_and_records(
    other: Released, records: Records, relation: Relation
) -> None:
    found = compare(released(), other, records)
    assert found["relation"] == relation
    assert found["assumes"]
    assert (found["joint"] is not None) == (relation in ("same_equation", "different_people"))


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("records", ["same_dataset", "same_people", "different_people"])
def test_a_standard_error_is_never_below_the_true_one(records: Records, correlation: float) -> None:
    """This holds for all sampling errors that each relation allows."""
    same = COVARIANCE
    for noises in ((0.2, 3.0), (1.0, 1.0), (5.0, 0.01)):
        one, other = (same + noise * spread(4, seed=40) for noise in noises)
        models = [released(covariance=rows_of(matrix), theta=THETA) for matrix in (one, other)]
        found = compare(models[0], models[1], records)
        for index, row in enumerate(found["coefficients"][1:], start=1):
            unit = models[0].design.features[index].scale
            noise = sum(noises) * spread(4, seed=40)[index, index]
            sampling = {
                "same_equation": 0.0,  # one and the same error in both
                "same_people": 2 * (1 - correlation) * same[index, index],
                "different_people": 2 * same[index, index],
            }[found["relation"]]
            true = np.sqrt(noise + sampling) / unit
            assert row["std_error_bound"] >= true * (1 - 1e-12)
            assert abs(row["z_bound"]) <= abs(row["difference"]) / true + 1e-12


def test_a_standard_error_that_ignores_correlation_would_be_too_small() -> None:
    """The planted bug: sqrt(s1^2 + s2^2) for the same people and different equations."""
    found = compare(released(), OTHER.model_copy(update={"ridge": 0.1}), "same_dataset")
    for row in found["coefficients"]:
        one, other = row["first"]["std_error"], row["second"]["std_error"]
        naive = np.sqrt(one**2 + other**2)
        assert row["std_error_bound"] == pytest.approx(one + other)
        assert naive < row["std_error_bound"]


def test_the_joint_bound_is_no_larger_than_the_statistic_of_the_noise_alone() -> None:
    noise = spread(4, seed=40)
    models = [released(covariance=rows_of(COVARIANCE + noise), theta=theta) for theta in (THETA, OTHER.theta)]
    found = compare(models[0], models[1], "same_dataset")["joint"]
    away = np.subtract(OTHER.theta, THETA)
    assert found["statistic_bound"] == pytest.approx(away @ np.linalg.inv(2 * (COVARIANCE + noise)) @ away)
    assert found["statistic_bound"] <= away @ np.linalg.inv(2 * noise) @ away
    assert found["degrees_of_freedom"] == 4


def test_clipping_is_shown_in_the_robust_ones_standard_errors_without_a_test() -> None:
    clipped = released(covariance=None, weights=Clip(bound=1.0), theta=(0.5, -0.9, 0.2, 0.0))
    for pair in ((released(), clipped), (clipped, released())):
        found = compare(pair[0], pair[1], "same_dataset")
        sign = 1 if pair[1] is clipped else -1
        robust = {row["name"]: row for row in summary(released())["coefficients"]}
        bias = {row["name"]: row for row in summary(clipped)["coefficients"]}
        for row in found["coefficients"]:
            known, unknown = robust[row["name"]], bias[row["name"]]
            expected = sign * (unknown["estimate"] - known["estimate"]) / known["std_error"]
            assert row["difference_in_std_errors"] == pytest.approx(expected)
            for name in ("std_error_bound", "z_bound", "p_value_bound", "intervals_overlap", "width_ratio"):
                assert row[name] is None
        assert "biased" in " ".join(found["models"][pair.index(clipped)]["notes"])


def test_widths_overlaps_and_costs_stand_beside_each_other() -> None:
    wide = released(covariance=rows_of(4 * COVARIANCE))
    far = released(theta=tuple(np.add(THETA, 50.0)))
    for row in compare(released(), wide, "same_people")["coefficients"]:
        assert row["width_ratio"] == pytest.approx(2.0)
        assert row["intervals_overlap"]
    assert not compare(released(), far, "same_people")["coefficients"][2]["intervals_overlap"]
    for model in compare(released(), wide, "same_people")["models"]:
        assert model["privacy"]["mu"] == "0.5"
        assert model["n"] == 1000


def test_a_coefficient_of_one_model_alone_has_no_difference() -> None:
    full = of_kind("linear")
    design = full.design.model_copy(update={"features": full.design.features[:2], "columns": full.design.columns[:1]})
    small = full.model_copy(update={"design": design, "theta": full.theta[:2], "covariance": rows_of(spread(2))})
    found = {row["name"]: row for row in compare(full, small, "same_dataset")["coefficients"]}
    assert found["y"]["second"] is None
    assert found["y"]["difference"] is None
    assert found["age"]["p_value_bound"] is not None


def test_models_of_other_targets_or_kinds_are_not_compared() -> None:
    for other in (of_kind("poisson"), of_kind("linear")):
        with pytest.raises(Invalid) as refusal:
            compare(released(), other, "same_dataset")
        assert refusal.value.fields[0].pointer == "/other"
