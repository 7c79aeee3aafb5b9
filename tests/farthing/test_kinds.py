"""Every kind of model, trained by the real service and read through the SDK: answers are those that were asked for."""

from collections.abc import Callable
from typing import Any

import pytest

from farthing import Client, FarthingError, Model
from tests.support.embedded import Embedded

FEATURES = ["age"]
LINEAR = {"kind": "linear", "target": "balance", "features": ["age"]}
JOINT = LINEAR | {"loss": {"kind": "huber", "joint": True}}
CLIPPED = {"kind": "logistic", "target": "y", "features": ["age"], "weights": {"kind": "clip"}}
ROBUST = {"kind": "logistic", "target": "y", "features": ["age"]}
POISSON = {"kind": "poisson", "target": "balance", "features": ["age"]}
MULTINOMIAL = {"kind": "multinomial", "target": "job", "features": ["age"]}
GEMAN = LINEAR | {"loss": {"kind": "geman_mcclure"}}
SQUARES = {"kind": "phase_retrieval", "target": "balance", "features": ["age"]}
SUFFICIENT = LINEAR | {"loss": {"kind": "squared"}, "weights": {"kind": "clip"}}
Train = Callable[..., Model]


@pytest.fixture(scope="module")
def dataset(service: Embedded) -> str:
    return service.upload()


@pytest.fixture(scope="module")
def train(client: Client, dataset: str) -> Train:
    """Train a model, each kind once."""
    made: dict[str, Model] = {}

    def run(
        name: str, model: dict[str, Any], method: str = "noisy_gd", *, intervals: bool = True, **optimizer: Any
    ) -> Model:
        if name not in made:
            job = {
                "dataset": dataset,
                "model": model,
                "optimizer": {"kind": method, **optimizer},
                "privacy": {"mu": "0.5"},
                "inference": {"intervals": intervals, "accept_unchecked": True},
            }
            done = client.wait(client.submit(job).id)
            assert done.released is not None
            made[name] = client.model(done.released)
        return made[name]

    return run


def estimates(model: Model) -> dict[str, float]:
    return {one.name: one.estimate or 0.0 for one in model.table().coefficients}


@pytest.mark.statistical
def test_an_unknown_scale_is_estimated_beside_the_coefficients(train: Train) -> None:
    """Balance is 5 + age/10 with normal errors of 2; bounds of the test are many of the model's own standard errors."""
    model = train("joint", JOINT)
    table = model.table()
    assert [one.name for one in table.coefficients] == ["intercept", "age"]
    assert table.scale is not None
    assert table.scale.std_error is not None
    assert abs(table.scale.estimate - 2) < 6 * table.scale.std_error + 0.5
    assert abs(estimates(model)["age"] - 0.1) < 0.1
    assert "residual scale estimated" in model.methods()
    assert "(residual scale)" in model.summary()
    assert model.ellipsoid(["intercept", "age"], point={"intercept": 5, "age": 0.1}).point is not None
    assert model.wald_test("intercept = 5, age = 0.1").degrees_of_freedom == 2


def test_a_clipped_model_is_shown_beside_the_robust_one_without_a_test(train: Train) -> None:
    robust = train("robust", ROBUST)
    clipped = train("clipped", CLIPPED, intervals=False)
    assert all(one.interval is None for one in clipped.table().coefficients)
    found = robust.compare(clipped)
    assert found.relation == "no_covariance"
    errors = {one.name: one.std_error for one in robust.table().coefficients}
    for one in found.coefficients:
        assert one.p_value_bound is None
        assert one.difference is not None
        assert one.difference_in_std_errors == pytest.approx(one.difference / (errors[one.name] or 1))
    assert "biased" in clipped.summary().replace("\n  ", " ")
    for refused in (clipped.intervals, clipped.cov_params):
        with pytest.raises(FarthingError) as none:
            refused()
        assert none.value.status == 422
    assert clipped.bse.isna().all()
    assert clipped.params.notna().all()


def test_sufficient_statistics_stand_beside_the_robust_regression(train: Train) -> None:
    other = train("sufficient", SUFFICIENT, "sufficient_statistics", intervals=False)
    found = train("joint", JOINT).compare(other)
    assert found.relation == "no_covariance"
    assert all(one.difference_in_std_errors is not None for one in found.coefficients)
    assert "sufficient statistics" in other.methods()
    assert "rows within their declared bounds" in other.methods()


def test_counts_have_rate_ratios_and_means(train: Train) -> None:
    model = train("poisson", POISSON)
    (ratio,) = model.rate_ratios([0.8, 0.95])
    assert ratio.name == "age"
    assert len(ratio.intervals) == 2
    (found,) = model.predict([{"age": 50}], level=0.9)
    assert 0 < found["interval"][0] < found["mean"] < found["interval"][1] <= 30
    with pytest.raises(FarthingError):
        model.odds_ratios()


def test_classes_have_coefficients_each_and_probabilities_that_add_up(train: Train) -> None:
    model = train("multinomial", MULTINOMIAL)
    assert model.names == ("b: intercept", "b: age", "c: intercept", "c: age")
    (found,) = model.predict([{"age": 50}], level=0.9)
    assert sum(found["probabilities"].values()) == pytest.approx(1.0)
    assert list(found["probabilities"]) == ["a", "b", "c"]
    assert set(found["intervals"]) == {"a", "b", "c"}
    assert [one.name for one in model.odds_ratios()] == ["b: age", "c: age"]
    assert model.wald_test("b: age = c: age").degrees_of_freedom == 1
    frame = model.get_prediction([{"age": 50}]).summary_frame(alpha=0.1)
    assert list(frame.index) == [(0, "a"), (0, "b"), (0, "c")]
    assert frame["mean"].tolist() == list(found["probabilities"].values())


@pytest.mark.slow
def test_a_redescending_loss_finds_what_a_convex_one_finds_without_outliers(train: Train) -> None:
    """Balance is 5 + age/10, as above; the noise adds about 0.001 to the slope, a tenth of the allowed error."""
    model = train("geman", GEMAN, intervals=False)
    assert abs(estimates(model)["age"] - 0.1) < 0.02
    assert "Geman-McClure loss (c = 3.787" in model.methods()
    assert "not convex" in model.summary().replace("\n  ", " ")
    (found,) = model.predict([{"age": 50}])
    assert found["value"] == pytest.approx(10, abs=2)


@pytest.mark.slow
def test_squares_are_predicted_from_a_random_start(train: Train) -> None:
    """The mean of ((b age)^2 - balance)^2 is least at b = 0.0491; noise and sampling move it by about 0.0006 each."""
    model = train("squares", SQUARES, intervals=False, start="random")
    (slope,) = estimates(model).values()
    assert abs(abs(slope) - 0.0491) < 0.005, "either sign"
    (found,) = model.predict([{"age": 60}])
    assert found["value"] == pytest.approx((60 * slope) ** 2)
    assert "Phase retrieval of balance" in model.summary()
    assert "signs of all coefficients" in model.page()
    with pytest.raises(FarthingError) as none:
        model.intervals()
    assert none.value.status == 422


def test_a_start_at_the_saddle_is_refused_before_anything_is_reserved(client: Client, dataset: str) -> None:
    job = {"dataset": dataset, "model": SQUARES, "optimizer": {"kind": "noisy_gd"}, "privacy": {"mu": "0.1"}}
    with pytest.raises(FarthingError) as refused:
        client.submit(job | {"inference": {"intervals": False}})
    assert refused.value.status == 422
    assert "/optimizer/start" in str(refused.value)
