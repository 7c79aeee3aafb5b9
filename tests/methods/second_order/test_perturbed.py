"""The settings of prior work: planned once and for all, priced as one answer a pass, refused with figures, no more."""

from collections import Counter
from typing import Any

import pytest

from core.base.errors import Invalid
from core.inference.network import read_released
from core.methods.registry import PLANS
from core.methods.second_order.perturbed_spider.spec import MOST_KEPT_NUMBERS, RECONSTRUCTION, PerturbedSpider
from core.privacy.events import NOTHING, Gaussian, compose
from core.privacy.facts import Adjacency, Facts, UnknownScale
from core.privacy.renyi import cost_nano
from tests.support.released import released


def facts(units: int = 10_000_000, **more: Any) -> Facts:
    usual: dict[str, Any] = {
        "units": units,
        "dimension": 10,
        "adjacency": Adjacency.REPLACE_ONE,
        "gradient_bound": 5.7,
        "smoothness": 1.5,
    }
    return Facts(**usual | more)


@pytest.mark.parametrize("options", [{}, {"epochs": 3}, {"batch": 200_000, "keep_iterates": 100}, {"extra_noise": 0}])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_planned_settings_stay_as_they_are_and_cost_one_answer_a_pass(
    options: dict[str, Any], adjacency: Adjacency
) -> None:
    known = facts(adjacency=adjacency)
    filled = PerturbedSpider.model_validate(options).plan(known, 0.27)
    assert filled.plan(known, 5.0) == filled
    assert PLANS.validate_json(filled.model_dump_json()) == filled
    still_open = {name for name, value in filled.model_dump().items() if value is None}
    assert still_open <= {"clip", "spread", "difference_spread", "keep_iterates"}
    priced = [event for event in filled.schedule(known) if event != NOTHING]
    assert len(priced) == filled.epochs
    whole = cost_nano(compose(Counter(filled.schedule(known))), (2, 9))
    assert whole == pytest.approx(cost_nano(Gaussian(sigma=1 / 0.27), (2, 9)), abs=filled.epochs)
    assert {question.event() for question in filled.questions()} == set(priced)


def test_what_is_open_follows_from_the_error_of_an_estimate() -> None:
    known = facts()
    filled = PerturbedSpider().plan(known, 0.27)
    error = filled.errors(known).size(filled.restart_drift)
    assert filled.step_size == pytest.approx(1 / 1.5)
    assert filled.error_radius == pytest.approx(1.5 * error)
    assert filled.extra_noise == pytest.approx(error / 10**0.5)
    assert filled.figures(known)["trigger"] == pytest.approx(4.5 * error)


@pytest.mark.parametrize(
    ("options", "more", "pointer", "said"),
    [
        ({}, {"smoothness": None}, "/optimizer/smoothness", "declare it"),
        ({"clip": 6.0}, {}, "/optimizer/clip", "above 5.7"),
        ({"batch": 20_000_000}, {}, "/optimizer/batch", "there are 10000000"),
        ({}, {"scale": UnknownScale(start=1.0, floor=0.1)}, "/model/loss", "unknown scale"),
        ({}, {"units": 2000}, "/optimizer/error_radius", "lower it"),
        ({"error_radius": 2.0}, {}, "/optimizer/error_radius", "3 chi = 6, above 5.7"),
        ({"keep_iterates": 1000}, {"dimension": 101}, "/optimizer/keep_iterates", "keep at most 990"),
    ],
)
def test_figures_that_mean_nothing_are_refused(
    options: dict[str, Any], more: dict[str, Any], pointer: str, said: str
) -> None:
    with pytest.raises(Invalid) as refused:
        PerturbedSpider.model_validate(options).plan(facts(**more), 0.27)
    told = {field.pointer: field.detail for field in refused.value.fields}
    assert said in told[pointer]
    assert 990 * 101 <= MOST_KEPT_NUMBERS < 991 * 101


def test_it_is_called_a_reconstruction_wherever_it_is_named_and_claims_nothing() -> None:
    known = facts()
    filled = PerturbedSpider().plan(known, 0.27)
    assert RECONSTRUCTION in PerturbedSpider.card().title
    assert "reconstructed" in PerturbedSpider.card().paper
    assert RECONSTRUCTION in filled.bound(known).source
    assert filled.bound(known).value is None
    assert filled.claim("steps").variant == RECONSTRUCTION
    assert "no privacy rests on it" in str(PerturbedSpider.model_fields["extra_noise"].description)


def test_rows_with_and_without_iterates_are_read_back() -> None:
    before = released()
    assert before.model_dump(mode="json")["iterates"] is None
    assert read_released(before.model_dump(mode="json")) == before
    theta = before.theta
    after = released(iterates=(theta, theta))
    assert read_released(after.model_dump(mode="json")) == after != before
