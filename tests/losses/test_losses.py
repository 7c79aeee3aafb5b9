"""The catalogue of losses and weights says what the code promises; requests name what is wrong with a model."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from core.base.validation_errors import field_errors
from core.losses.categorical import Multinomial
from core.losses.counts import Poisson
from core.losses.registry import LOSSES, Loss, example_of
from core.losses.robust import Huber
from core.losses.weights import Clip, Mallows, Schweppe, Weights, curvature_bound, gradient_bound
from core.models.kinds import LinearModel, LogisticModel
from core.planning.job import JobSpec

FILLED = [
    *map(example_of, LOSSES),
    Multinomial(classes=2),
    Poisson(cap=7.0),
    Poisson(cap=7.0, c=9.0),
]
FILLED_WEIGHTS = [*(Mallows(bound=1.7, power=power) for power in (1, 2, 3)), Schweppe(bound=1.7), Clip(bound=1.7)]


def worth(formula: str | None, fields: Mapping[str, Any]) -> float | None:
    """Compute a formula of the catalogue."""
    if formula is None:
        return None
    return eval(formula, {"min": min, "__builtins__": {}}, dict(fields))


def close(figure: float | None) -> object:
    """Return a value that equals a figure up to roundings, or None."""
    return None if figure is None else pytest.approx(figure, rel=1e-12)


@pytest.mark.parametrize("loss", FILLED, ids=str)
def test_formulas_of_a_loss_are_what_the_code_promises(loss: Loss) -> None:
    card, fields = loss.card, vars(loss)
    assert worth(card.score_bound, fields) == close(loss.score_bound)
    assert worth(card.curvature_peak, fields) == close(loss.curvature_peak)
    assert worth(card.weak_convexity, fields) == close(loss.weak_convexity)
    assert worth(card.concordance, fields) == pytest.approx(loss.concordance)


@pytest.mark.parametrize("weights", FILLED_WEIGHTS, ids=str)
def test_formulas_of_weights_are_what_the_code_promises(weights: Weights) -> None:
    card = weights.card
    for loss in FILLED:
        if weights.kind not in loss.card.weights or (loss.score_bound is None and weights.kind != "clip"):
            continue  # squares are bounded by the target's range, which a plan makes a robust loss of
        fields = {"t": weights.bound, "score_bound": loss.score_bound, "curvature_peak": loss.curvature_peak}
        fields |= vars(weights)
        assert worth(card.gradient_bound, fields) == gradient_bound(loss, weights)
        bent = worth(card.curvature_bound, fields) if loss.weak_convexity == 0 else None
        assert bent == curvature_bound(loss, weights), "and none of a loss that is not convex"


def body(kind: str, **model: Any) -> dict[str, Any]:
    return {
        "model": {"kind": kind, "target": "y", **model},
        "optimizer": {"kind": "noisy_gd"},
        "privacy": {"mu": "0.5"},
    }


@pytest.mark.parametrize(
    ("kind", "model", "pointer"),
    [
        ("linear", {"loss": {"c": -1}}, "/model/loss/c"),
        ("linear", {"loss": {"kind": "huber", "c": 0}}, "/model/loss/c"),
        ("linear", {"loss": {"kind": "smoothed_huber", "h": 0}}, "/model/loss/h"),
        ("linear", {"loss": {"kind": "ostrovskii_bach", "scale": -2}}, "/model/loss/scale"),
        ("linear", {"loss": {"kind": "squared", "c": 1}}, "/model/loss/c"),
        ("linear", {"loss": {"kind": "log_cosh", "huber": {"c": 1}}}, "/model/loss/huber"),
        ("linear", {"loss": {"kind": "huber", "scale_floor": 1}}, "/model/loss/scale_floor"),
        ("linear", {"loss": {"kind": "pinball"}}, "/model/loss/kind"),
        ("linear", {"weights": {"bound": 0}}, "/model/weights/bound"),
        ("linear", {"weights": {"power": 4}}, "/model/weights/power"),
        ("linear", {"weights": {"kind": "schweppe", "power": 2}}, "/model/weights/power"),
        ("linear", {"weights": {"kind": "clip", "bound": "inf"}}, "/model/weights/bound"),
        ("linear", {"ridge": -1}, "/model/ridge"),
        ("logistic", {"weights": {"kind": "schweppe"}}, "/model/weights/kind"),
        ("logistic", {"weights": {"kind": "clip", "bound": -1}}, "/model/weights/bound"),
        ("logistic", {"loss": {"kind": "huber"}}, "/model/loss/kind"),
        ("logistic", {"loss": {"kind": "brier", "c": 1}}, "/model/loss/c"),
        ("linear", {"loss": {"kind": "geman_mcclure", "c": 0}}, "/model/loss/c"),
        ("linear", {"loss": {"kind": "cauchy", "h": 1}}, "/model/loss/h"),
        ("linear", {"loss": {"kind": "sine_link", "amplitude": 1}}, "/model/loss/amplitude"),
        ("linear", {"loss": {"kind": "brier"}}, "/model/loss/kind"),
        ("phase_retrieval", {"loss": {"kind": "huber"}}, "/model/loss/kind"),
        ("phase_retrieval", {"loss": {"cap": 0}}, "/model/loss/cap"),
        ("phase_retrieval", {"weights": {"kind": "mallows"}}, "/model/weights/kind"),
        ("phase_retrieval", {"weights": {"bound": -1}}, "/model/weights/bound"),
        ("poisson", {"loss": {"cap": 0}}, "/model/loss/cap"),
        ("poisson", {"loss": {"kind": "huber"}}, "/model/loss/kind"),
        ("multinomial", {"classes": 3}, "/model/classes"),
    ],
)
def test_a_wrong_figure_is_named_without_the_unions_branches(kind: str, model: dict[str, Any], pointer: str) -> None:
    sent = body(kind, **model)
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(sent)
    assert [field.pointer for field in field_errors(caught.value.errors(), sent)] == [pointer]


def test_a_request_that_names_no_kind_gets_the_default() -> None:
    given = JobSpec.model_validate(body("linear", loss={"c": 2.0, "scale": 3.0}, weights={"bound": 4.0}))
    assert isinstance(given.model, LinearModel)
    assert given.model.loss == Huber(c=2.0, scale=3.0)
    assert given.model.weights == Mallows(bound=4.0)
    left_out = JobSpec.model_validate(body("logistic"))
    assert isinstance(left_out.model, LogisticModel)
    assert left_out.model.weights == Mallows()


def test_every_field_of_a_model_is_written() -> None:
    plain = JobSpec.model_validate(body("linear")).model_dump(mode="json")["model"]
    assert plain["loss"] == {"kind": "squared"}, "of the mean"
    told = JobSpec.model_validate(body("linear", loss={})).model_dump(mode="json")["model"]
    assert told["ridge"] == 0
    assert (told["loss"]["kind"], told["loss"]["joint"], told["loss"]["scale_floor"]) == ("huber", False, None)
    assert told["weights"] == {"kind": "mallows", "bound": None, "power": 2}
    newer = body("linear", ridge=0.5, loss={"joint": True, "scale_floor": 1.0}, weights={"power": 3})
    told = JobSpec.model_validate(newer).model_dump(mode="json")["model"]
    assert (told["ridge"], told["loss"]["joint"], told["loss"]["scale_floor"]) == (0.5, True, 1.0)
    assert told["weights"]["power"] == 3
