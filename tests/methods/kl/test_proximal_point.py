"""The proximal-point settings: values that a plan fills, its charges, claims and refusals; nothing is run."""

from collections import Counter
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from core.base.errors import Invalid
from core.methods.kl.condition import KlCondition
from core.methods.kl.proximal_point.spec import MOST_GRADIENTS, ProximalPoint, ProximalPointPlan
from core.methods.kl.repeats import Repeats
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency, Facts, UnknownScale

SHARP = KlCondition(gamma=2 / 3, kappa=3)
SHARPEST = KlCondition(gamma=2 / 3, kappa=20)
FACTS = Facts(
    units=1_000_000,
    dimension=5,
    adjacency=Adjacency.REPLACE_ONE,
    gradient_bound=1.5,
    weak_convexity=1.0,
    start_gap=1.0,
)
MU = sqrt(2)
"""rho = 1."""
SMALL = FACTS.model_copy(update={"units": 200, "weak_convexity": 0.0})
"""A round's printed steps are few enough to take all of them."""
COVERED = ProximalPoint(condition=SHARP, max_inner=10_000_000, constant=0.1)


def spent(settings: ProximalPointPlan, facts: Facts) -> float:
    """Return rho from the very events that are priced."""
    schedule = settings.schedule(facts)
    assert isinstance(schedule, Repeats)
    ((event, times),) = schedule.counted().items()
    assert isinstance(event, Gaussian)
    return times / (2 * event.sigma**2)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("weight", ["scheduled", "paper"])
@pytest.mark.parametrize("max_inner", [None, 2, 300, 10_000_000])
def test_no_plan_costs_more_than_its_budget_and_exact_noise_all_of_it(
    adjacency: Adjacency, weight: str, max_inner: int | None
) -> None:
    facts = FACTS.model_copy(update={"adjacency": adjacency})
    asked = ProximalPoint.model_validate({"condition": SHARP, "prox_weight": weight, "max_inner": max_inner})
    exact = asked.model_copy(update={"noise": "exact"}).plan(facts, MU)
    assert 1 - 1e-9 <= spent(exact, facts) <= 1
    printed = asked.plan(facts, MU)
    factor = 1.0 if adjacency is Adjacency.REPLACE_ONE else 0.25
    part = (printed.solver_steps - 1) / printed.solver_steps
    assert spent(printed, facts) == pytest.approx(factor * part / 2, rel=1e-9)
    assert printed.rho == pytest.approx(spent(printed, facts), rel=1e-12)


def test_printed_noise_is_the_printed_one_whatever_a_records_change_may_be() -> None:
    near = FACTS.model_copy(update={"gradient_diameter": 1.6})
    zeroed = FACTS.model_copy(update={"adjacency": Adjacency.ZERO_OUT})
    settings = ProximalPoint(condition=SHARP, max_inner=100)
    deviations = []
    for facts in (FACTS, near, zeroed):
        planned = settings.plan(facts, MU)
        (gradient,) = planned.questions()
        deviations.append(gradient.sigma * gradient.sensitivity(facts))
        expected = 2 * 1.5 * sqrt(100 * planned.rounds) / facts.units
        assert deviations[-1] == pytest.approx(expected, rel=1e-12)


def test_a_plan_leaves_nothing_open_and_survives_the_wire() -> None:
    planned = ProximalPoint(condition=SHARP).plan(FACTS, MU)
    assert {name for name, value in planned.model_dump().items() if value is None} == {"clip"}
    assert ProximalPointPlan.model_validate_json(planned.model_dump_json()) == planned
    assert planned.plan(FACTS, MU) == planned
    assert planned.solver_steps == MOST_GRADIENTS // planned.rounds + 1
    assert planned.inner_binds(FACTS)
    assert planned.steps <= MOST_GRADIENTS
    assert planned.passes(FACTS) == 2 * planned.steps


def test_a_schedule_of_millions_takes_no_room() -> None:
    planned = COVERED.plan(SMALL, MU)
    schedule = planned.schedule(SMALL)
    assert len(schedule) == planned.steps > 50_000
    assert isinstance(schedule, Repeats)
    part = schedule[10:20_000_000:7]
    assert isinstance(part, Repeats)
    assert part.counted() == Counter(part)
    assert schedule[-1] == planned.questions()[0].event()
    assert Repeats(Gaussian(sigma=1.0), 0).counted() == Counter()
    with pytest.raises(IndexError):
        schedule[planned.steps]


class TestKnown:
    """Constants that follow from the loss and the ridge, and constants that must be declared."""

    def test_a_ridge_above_the_weak_convexity_makes_a_condition(self) -> None:
        facts = FACTS.model_copy(update={"ridge": 0.5, "weak_convexity": 0.3})
        planned = ProximalPoint(constant=1.0).plan(facts, MU)
        assert planned.condition.kappa == 2
        assert planned.condition.gamma == pytest.approx(1 / sqrt(2 * 0.2), rel=1e-14)
        assert planned.ground(facts).weak_convexity == 0
        assert planned.ground(facts.model_copy(update={"ridge": 0.1})).weak_convexity == pytest.approx(0.2, rel=1e-14)

    def test_the_gap_is_the_least_that_is_known(self) -> None:
        facts = FACTS.model_copy(update={"start_gap": None, "ridge": 2.0})
        settings = ProximalPoint(condition=SHARP, constant=0.1)
        assert settings.plan(facts, MU).start_gap == pytest.approx(1.0, rel=1e-14)
        assert settings.plan(FACTS.model_copy(update={"start_gap": 0.6}), MU).start_gap == 0.6
        given = settings.model_copy(update={"start_gap": 0.4})
        assert given.plan(FACTS, MU).start_gap == 0.4
        away = settings.model_copy(update={"start": (3.0, 4.0, 0.0, 0.0, 0.0)})
        assert away.plan(facts, MU).start_gap == pytest.approx((2 / 3 * (1.5 + 2 * 5)) ** 3, rel=1e-12)
        near = settings.model_copy(update={"start": (0.3, 0.4, 0.0, 0.0, 0.0)})
        known = facts.model_copy(update={"start_gap": 0.1})
        assert near.plan(known, MU).start_gap == 0.1, "the facts are about the planned start"

    @pytest.mark.parametrize(
        ("settings", "facts", "fields"),
        [
            (ProximalPoint(), FACTS, {"/optimizer/condition", "/model/ridge"}),
            (ProximalPoint(condition=SHARP), FACTS.model_copy(update={"weak_convexity": None}), {"weak_convexity"}),
            (ProximalPoint(condition=KlCondition(gamma=1, kappa=1.9)), FACTS, {"/optimizer/condition/kappa"}),
            (
                ProximalPoint(condition=SHARP),
                FACTS.model_copy(update={"scale": UnknownScale(start=1.0, floor=0.1)}),
                {"/model/loss"},
            ),
        ],
        ids=["no condition", "no weak convexity", "a flat minimum", "an unknown scale"],
    )
    def test_what_is_not_known_is_named(self, settings: ProximalPoint, facts: Facts, fields: set[str]) -> None:
        with pytest.raises(Invalid) as refused:
            settings.plan(facts, MU)
        assert fields == {one.pointer for one in refused.value.fields} or fields == {
            one.pointer.removeprefix("/optimizer/") for one in refused.value.fields
        }


@pytest.mark.parametrize(
    ("regime", "changes", "given"),
    [
        ("trivial_regime", {"units": 100}, {}),
        ("target_above_F0", {"start_gap": 1e-20}, {"prox_weight": "paper"}),
        ("too_many_rounds", {"weak_convexity": 1e6, "units": 10**9}, {}),
        (
            "budget_too_small",
            {"units": 30, "dimension": 750},
            {"round_schedule": "practical", "inner_steps": "practical", "prox_weight": "paper", "condition": SHARPEST},
        ),
    ],
)
def test_a_plan_without_rounds_is_refused_by_name(
    regime: str, changes: dict[str, float], given: dict[str, object]
) -> None:
    facts = FACTS.model_copy(update=changes)
    settings = ProximalPoint.model_validate({"condition": SHARP, **given})
    with pytest.raises(Invalid, match=regime) as refused:
        settings.plan(facts, MU)
    assert refused.value.fields


extreme = st.sampled_from([1e-300, 1e-100, 1e-6, 0.5, 1.0, 30.0, 1e6, 1e100, 1e300])


@given(
    gamma=extreme,
    kappa=st.sampled_from([2.0, 2.001, 5.0, 1000.0]),
    weak=extreme,
    gap=extreme,
    constant=extreme,
    weight=st.sampled_from(["scheduled", "paper"]),
    round_schedule=st.sampled_from(["proved", "practical"]),
    mu=st.sampled_from([1e-9, 0.1, 1e9]),
)
@hypothesis_settings(max_examples=40, deadline=None)
def test_whatever_is_declared_is_planned_or_refused(
    gamma: float, kappa: float, weak: float, gap: float, constant: float, weight: str, round_schedule: str, mu: float
) -> None:
    declared = {"condition": {"gamma": gamma, "kappa": kappa}, "weak_convexity": weak, "start_gap": gap}
    chosen = {"constant": constant, "prox_weight": weight, "round_schedule": round_schedule, "beta": 1e-100}
    try:
        planned = ProximalPoint.model_validate({**declared, **chosen}).plan(FACTS, mu)
    except Invalid:
        return
    assert planned.rho <= mu**2 / 2
    assert planned.error_bound(FACTS).variant.startswith(weight)
    assert planned.bound(FACTS).trivial <= gap


def test_less_noise_than_the_budget_allows_is_refused_and_more_is_charged_as_it_is() -> None:
    planned = ProximalPoint(condition=SHARP, noise="exact").plan(FACTS, MU)
    with pytest.raises(Invalid, match="sigma"):
        ProximalPoint(condition=SHARP, sigma=planned.sigma * 0.99).plan(FACTS, MU)
    more = ProximalPoint(condition=SHARP, sigma=planned.sigma * 2).plan(FACTS, MU)
    assert spent(more, FACTS) == pytest.approx(1 / 4, rel=1e-9)


class TestClaims:
    """Statements of a certificate, and the cases where it says that nothing is proved."""

    def test_the_last_target_is_certified_where_the_theorem_covers_everything(self) -> None:
        planned = COVERED.plan(SMALL, MU)
        course = planned.arithmetic(SMALL)
        certificate, bound = planned.error_bound(SMALL), planned.bound(SMALL)
        assert planned.uncovered(SMALL) == ()
        assert certificate.value == bound.value == course.target
        assert certificate.confidence == bound.confidence == 0.95
        assert (certificate.ended_by, certificate.variant) == ("rounds", "scheduled")
        assert not bound.vacuous
        assert bound.trivial == 1.0
        assert any("a = 0.1" in text for text in certificate.conditions)
        assert any("(0.666667, 3)-KL" in text for text in certificate.conditions)

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"round_schedule": "practical"}, "practical schedule"),
            ({"inner_steps": "practical"}, "practical inner steps"),
            ({"step_rule": "telescoping"}, "telescoping"),
            ({"max_inner": 50}, "max_inner"),
            ({"prox_weight": "paper"}, "gap"),
        ],
    )
    def test_nothing_is_claimed_outside_the_proof(self, changes: dict[str, object], named: str) -> None:
        planned = COVERED.model_copy(update=changes).plan(SMALL, MU)
        (uncovered,) = planned.uncovered(SMALL)
        assert named in uncovered
        certificate, bound = planned.error_bound(SMALL), planned.bound(SMALL)
        assert certificate.value is None
        assert certificate.confidence is None
        assert bound.value is None
        assert bound.vacuous
        assert any(named in text for text in certificate.conditions)

    def test_more_noise_than_printed_is_not_covered_and_less_is(self) -> None:
        planned = COVERED.plan(SMALL, MU)
        louder = COVERED.model_copy(update={"sigma": 2 * planned.sigma}).plan(SMALL, MU)
        assert louder.uncovered(SMALL) == ("more noise than printed",)
        exact = COVERED.model_copy(update={"noise": "exact"}).plan(SMALL, MU)
        assert exact.uncovered(SMALL) == ()
        assert exact.variant == "scheduled, exact noise"

    def test_the_papers_weight_is_proved_at_kappa_two_and_says_whose_it_is(self) -> None:
        square = COVERED.model_copy(update={"condition": KlCondition(gamma=2 / 3, kappa=2), "prox_weight": "paper"})
        planned = square.plan(SMALL, MU)
        assert planned.uncovered(SMALL) == ()
        assert planned.error_bound(SMALL).variant == "paper"
        assert planned.error_bound(SMALL).value == planned.arithmetic(SMALL).target

    def test_only_what_the_loss_does_not_say_is_declared(self) -> None:
        facts = SMALL.model_copy(update={"ridge": 1.0})
        planned = ProximalPoint(max_inner=10_000_000, constant=0.01).plan(facts, MU)
        assert [text.split(" ")[:3] for text in planned.error_bound(facts).conditions] == [["the", "inner", "solver's"]]
        bold = COVERED.model_copy(update={"clip": 1.2, "start_gap": 0.3, "weak_convexity": 0.0})
        rough = FACTS.model_copy(update={"units": 200})
        conditions = " ".join(bold.plan(rough, MU).error_bound(rough).conditions)
        for part in ("0-weakly convex", "longer than 1.2", "at most 0.3 above"):
            assert part in conditions


def test_the_card_is_one_that_the_catalogue_can_show() -> None:
    card = ProximalPoint.card()
    assert card.kind == ProximalPoint().kind
    assert not ProximalPoint.offers_intervals
    assert {one.checked for one in card.assumptions} == {"static", "declared"}
