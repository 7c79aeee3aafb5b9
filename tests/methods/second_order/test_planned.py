"""Planning fills open settings once and for all, and refuses those that allow no claim, with figures and fields."""

from collections import Counter
from typing import Any

import pytest

from core.base.errors import Invalid
from core.methods.registry import PLANS
from core.methods.second_order.figures import MOST_ROUNDS
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.privacy.events import NOTHING, Gaussian, compose
from core.privacy.facts import Adjacency, Facts, UnknownScale
from core.privacy.renyi import cost_nano
from tests.support.second_order import given

ESCAPES = {"error_radius", "escape_distance", "round_steps", "rounds", "restart_drift", "hessian_smoothness"}


def facts(units: int = 10_000_000, **more: Any) -> Facts:
    usual: dict[str, Any] = {
        "units": units,
        "dimension": 10,
        "adjacency": Adjacency.REPLACE_ONE,
        "gradient_bound": 5.7,
        "smoothness": 1.5,
        "start_gap": 20.0,
    }
    return Facts(**usual | more)


def settings(**options: Any) -> GaussPsgd:
    return GaussPsgd.model_validate({"hessian_smoothness": 1.5} | options)


CASES: dict[str, dict[str, Any]] = {
    "strict": {},
    "explicit": {"margin": "explicit", "spread": 0.05, "difference_spread": 0.05, "hessian_smoothness": 0.05},
    "fast": {"preset": "fast", "escape_distance": 0.1},
    "several epochs": {"epochs": 4},
    "a batch by hand": {"batch": 200_000, "difference_batch": 1500, "rounds": 8},
    "DIFF2": {"estimator": "period"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_planned_settings_stay_as_they_are(case: str, adjacency: Adjacency) -> None:
    known = facts(adjacency=adjacency)
    filled = settings(**CASES[case]).plan(known, 0.27)
    assert filled.plan(known, 5.0) == filled
    assert PLANS.validate_json(filled.model_dump_json()) == filled
    still_open = {name for name, value in filled.model_dump().items() if value is None}
    declared = {"clip", "start_gap", "spread", "difference_spread"}
    if case == "DIFF2":
        declared |= ESCAPES
    else:
        declared |= {"period"}
    assert still_open <= declared


@pytest.mark.parametrize("case", CASES)
def test_the_price_is_one_answer_a_pass(case: str) -> None:
    known, filled = facts(), settings(**CASES[case]).plan(facts(), 0.27)
    schedule = list(filled.schedule(known))
    assert len(schedule) <= 97
    priced = [event for event in schedule if event != NOTHING]
    assert len(priced) == filled.epochs
    assert all(isinstance(event, Gaussian) for event in priced)
    assert len(schedule) % filled.epochs == 0
    whole = cost_nano(compose(Counter(schedule)), (2, 9))
    assert whole == pytest.approx(cost_nano(Gaussian(sigma=1 / 0.27), (2, 9)), abs=filled.epochs)
    assert {question.event() for question in filled.questions()} == set(priced)
    assert set(filled.sampling(known).batches) == {filled.batch, filled.difference_batch}


def test_planned_batches_leave_room_for_descent() -> None:
    filled = settings().plan(facts(), 0.27)
    assert 4 * filled.rounds * (filled.batch + filled.round_steps * filled.difference_batch) <= 10_000_000
    assert filled.phase_units() == filled.rounds * (filled.batch + (filled.round_steps - 1) * filled.difference_batch)
    figures = filled.figures(facts())
    assert figures["chance_of_escape_per_round"] == pytest.approx(filled.chance(facts()))
    assert (1 - filled.chance(facts())) ** filled.rounds <= 0.01


@pytest.mark.parametrize(
    ("options", "more", "pointer", "said"),
    [
        ({}, {"smoothness": None}, "/optimizer/smoothness", "not known"),
        ({"hessian_smoothness": None}, {}, "/optimizer/hessian_smoothness", "declare it"),
        ({"mode": "theory"}, {"start_gap": None}, "/optimizer/start_gap", "declare it"),
        ({"mode": "theory"}, {}, "/optimizer/mode", "calibrated"),
        ({"mode": "given"}, {}, "/optimizer/rounds", "is given"),
        ({"preset": "fast"}, {}, "/optimizer/escape_distance", "by hand"),
        ({"clip": 6.0}, {}, "/optimizer/clip", "above 5.7"),
        ({}, {"units": 20_000}, "/privacy", "no target is enough: bring more units"),
        ({"batch": 1_000_000}, {}, "/optimizer/batch", "2 Q (b1 + Gamma b2)"),
        ({"estimator": "period", "mode": "theory"}, {}, "/optimizer/mode", "drift"),
        ({"estimator": "period", "batch": 20_000_000}, {}, "/optimizer/batch", "there are 10000000"),
        ({}, {"scale": UnknownScale(start=1.0, floor=0.1)}, "/model/loss", "unknown scale"),
    ],
)
def test_what_allows_no_claim_is_refused(
    options: dict[str, Any], more: dict[str, Any], pointer: str, said: str
) -> None:
    with pytest.raises(Invalid) as refused:
        settings(**options).plan(facts(**more), 0.27)
    told = {field.pointer: field.detail for field in refused.value.fields}
    assert said in told[pointer]


def test_given_figures_are_checked_and_kept() -> None:
    known = facts(units=1000, gradient_bound=1.0)
    assert given(error_radius=0.1).plan(known, 1.0) == given(error_radius=0.1)
    with pytest.raises(Invalid, match="no curvature would be excluded"):
        given(hessian_smoothness=100.0).plan(known, 1.0)
    with pytest.raises(Invalid, match="twice"):
        given(rounds=100, error_radius=0.1).plan(known, 1.0)


def test_the_claim_says_what_it_is() -> None:
    """Certified is a word of the theorem; calibrated figures are reported as observations, without a confidence."""
    known = facts()
    counts = dict.fromkeys(("phases", "rounds", "escapes", "restarts", "differences"), 1)
    filled = settings(preset="fast", escape_distance=0.1).plan(known, 0.27)
    seen = filled.ended(known, "certified", counts)
    assert seen.outcome == "no_escape_observed"
    claim = filled.claim(known, seen, strayed=False)
    assert (claim.value, claim.confidence) == (None, None)
    assert "no theorem" in claim.conditions[-1]
    proved = filled.model_copy(update={"mode": "theory"})
    claim = proved.claim(known, proved.ended(known, "certified", counts), strayed=False)
    assert (claim.value, claim.confidence) == (pytest.approx(seen.alpha), pytest.approx(0.95))
    assert proved.claim(known, proved.ended(known, "certified", counts), strayed=True).value is None
    assert proved.claim(known, proved.ended(known, "data_exhausted", counts), strayed=False).value is None
    rewound = filled.model_copy(update={"round_mode": "rewind"}).ended(known, "certified", counts)
    assert rewound.missed == pytest.approx(1 - rewound.chance), "rounds that share one noise are one round"


def test_an_explicit_radius_bounds_the_gradient_and_nothing_more() -> None:
    known = facts(units=10**12)
    filled = settings(margin="explicit").plan(known, 0.27)
    counts = dict.fromkeys(("phases", "rounds", "escapes", "restarts", "differences"), 1)
    claim = filled.claim(known, filled.ended(known, "certified", counts), strayed=False)
    assert (claim.quantity, claim.confidence) == ("gradient_norm", pytest.approx(0.975))
    assert claim.value == pytest.approx(4 * filled.error_radius)
    assert filled.bound(known).confidence is None


def test_a_chance_that_vanishes_is_passed_over() -> None:
    known = facts(units=50_000_000, start_gap=None)
    assert settings(restart_drift=1e-3, round_steps=30).plan(known, 0.27).rounds <= MOST_ROUNDS
