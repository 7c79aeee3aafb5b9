"""Readings of models whose loss is not convex: estimates, notes and predictions, and no intervals anywhere."""

from typing import Any, Literal

import numpy as np
import pytest
from scipy.special import expit

from api.pages.standalone import summary_page
from core.base.errors import Invalid
from core.inference.comparison import compare
from core.inference.predictions import predict
from core.inference.released import Released, declared
from core.inference.rendering import text_of
from core.inference.results import ratios
from core.inference.wording import LOSSES, check_worded, loss_words, notes
from core.losses.losses import Clip, Loss
from core.losses.nonconvex import Brier, Cauchy, GemanMcClure, RobustPhase, SineLink, SmoothPhase
from core.models.design import make_design
from core.models.kinds import LinearModel, LogisticModel, PhaseRetrievalModel, RegressionModel
from core.service.readings import whole_of
from tests.support.released import MORE, UNTOUCHED, released, shown_of

FEATURES = ("age", "y")
CLIP = Clip(bound=1.5)
ROW: dict[str, Any] = {"age": 65, "y": "yes"}


def of(model: RegressionModel, loss: Loss, theta: tuple[float, ...], **changed: Any) -> Released:
    return released(
        kind=model.kind, target=model.target, design=make_design(MORE, model), theta=theta, loss=loss, covariance=None,
        flags=UNTOUCHED, optimizer="noisy_gd", **changed,
    )  # fmt: skip


PHASE = of(
    PhaseRetrievalModel(target="visits", features=FEATURES),
    SmoothPhase(cap=40),
    (0.7, -0.4),
    weights=CLIP,
)
SINE = of(
    LinearModel(target="spent", features=FEATURES), SineLink(amplitude=0.5), (0.3, 0.2, -0.1), weights=Clip(bound=2)
)
BRIER = of(LogisticModel(target="y", features=("age",)), Brier(), (0.3, 0.2))
GEMAN = of(LinearModel(target="spent", features=FEATURES), GemanMcClure(scale=20), (0.3, 0.2, -0.1))
EVERY = pytest.mark.parametrize("model", [PHASE, SINE, BRIER, GEMAN], ids=lambda model: model.loss.kind)


@EVERY
def test_every_view_is_whole_and_says_why_there_are_no_intervals(model: Released) -> None:
    assert Released.model_validate_json(model.model_dump_json()) == model
    shown = shown_of(model)
    assert all(row["interval"] is None and row["estimate"] is not None for row in shown["coefficients"])
    assert shown["notes"][0].startswith("There are no intervals: no covariance is known")
    whole = whole_of(model, shown)
    views = (text_of(whole.document), summary_page(whole), shown["methods"])
    for words in views:
        assert loss_words(model) in " ".join(words.split())
    with pytest.raises(Invalid, match="no covariance"):
        predict(model, [ROW], level=0.9)


def test_a_square_is_predicted_whatever_the_sign_of_its_root() -> None:
    estimate = np.array(declared(PHASE).estimate)
    (found,) = predict(PHASE, [ROW])
    assert found == {"value": pytest.approx((estimate @ [65, 1]) ** 2)}
    opposite = PHASE.model_copy(update={"theta": tuple(-one for one in PHASE.theta)})
    assert predict(opposite, [ROW]) == [found]
    assert any("signs" in note for note in notes(PHASE))


def test_a_sine_link_is_predicted_through_its_link() -> None:
    margin = np.array([1.0, 0.5, 1.0]) @ SINE.theta
    (found,) = predict(SINE, [ROW])
    assert found == {"value": pytest.approx(100 + 200 * (margin + 0.5 * np.sin(margin)))}
    assert any("linear predictor" in note for note in notes(SINE))


def test_brier_probabilities_and_odds_are_those_of_a_logistic_model() -> None:
    (found,) = predict(BRIER, [ROW])
    assert found == {"probability": pytest.approx(expit(0.3 + 0.2 * 0.5))}
    assert [row["name"] for row in ratios(BRIER)] == ["age"]
    logistic = BRIER.model_copy(update={"loss": None})
    assert logistic.equation != BRIER.equation


@pytest.mark.parametrize("loss", [Cauchy(scale=2), RobustPhase(cap=9)], ids=lambda loss: loss.kind)
def test_every_loss_has_words(loss: Loss) -> None:
    assert loss_words(PHASE.model_copy(update={"loss": loss})) in {
        "Cauchy loss (c = 2.385, residual scale known, 2)",
        "size of the error of a square, targets up to 9",
    }


def test_two_of_them_are_compared_without_a_test() -> None:
    other = PHASE.model_copy(update={"theta": (0.6, -0.3)})
    found = compare(PHASE, other, "same_dataset")
    assert found["relation"] == "no_covariance"
    assert all(line["p_value_bound"] is None for line in found["coefficients"])


class Welsch(Cauchy):
    kind: Literal["welsch"] = "welsch"  # type: ignore[assignment]


def test_a_loss_without_words_is_refused_where_words_are_imported() -> None:
    check_worded(LOSSES)
    with pytest.raises(TypeError, match=r"welsch: core\.inference\.wording has no words for this loss"):
        check_worded([*LOSSES, Welsch])
