"""KL-Spider's settings: plans made of the facts, refusals with a way out of each, and claims."""

from math import log, sqrt

import pytest

from core.base.errors import Invalid
from core.methods.kl.condition import KlCondition
from core.methods.kl.spider.schedule import proved, proved_budget
from core.methods.kl.spider.spec import MOST_STEPS, KlSpider, KlSpiderPlan
from core.planning.planner import check_lattice
from core.privacy.conversions import rho_of_mu
from core.privacy.facts import Adjacency, Facts, UnknownScale
from core.queries.gradients import Gradient, GradientDifference
from studies.kl.problems import power

CUBE = power(3.0)
MU = sqrt(2)


def cube(units: int = 100_000, adjacency: Adjacency = Adjacency.REPLACE_ONE, **changes: object) -> Facts:
    return CUBE.facts(units, 10, adjacency).model_copy(update=changes)


def logistic(**changes: object) -> Facts:
    """Return the facts of a logistic loss with a ridge, weights bounded by sqrt(2)."""
    usual = {
        "units": 40_000,
        "dimension": 5,
        "adjacency": Adjacency.ZERO_OUT,
        "gradient_bound": sqrt(2),
        "smoothness": 0.5,
        "weak_convexity": 0.0,
        "start_gap": log(2),
        "ridge": 0.1,
    }
    return Facts.model_validate(usual | changes)


def planned(facts: Facts | None = None, mu: float = MU, **options: object) -> KlSpiderPlan:
    return KlSpider.model_validate({"condition": CUBE.condition} | options).plan(facts or cube(), mu)


def refused(facts: Facts, settings: KlSpider, mu: float = MU) -> tuple[str, list[str]]:
    with pytest.raises(Invalid) as caught:
        settings.plan(facts, mu)
    return caught.value.detail, [field.pointer for field in caught.value.fields]


class TestPlan:
    def test_the_golden_schedule_is_what_is_planned(self) -> None:
        settings = planned()
        ground = settings.ground(cube())
        assert settings.course(cube()) == proved(ground, proved_budget(ground, rho_of_mu(MU)), 0.05)
        assert settings.steps == 1876
        assert len(settings.schedule(cube())) == settings.steps
        assert settings.radius == pytest.approx(42.2154, rel=1e-6)
        assert settings.bound(cube()).value == pytest.approx(0.0517908326)
        assert settings.passes(cube()) == 2 * 655 + 4 * (1876 - 655)

    @pytest.mark.parametrize("variant", ["proved", "calibrated"])
    @pytest.mark.parametrize("adjacency", list(Adjacency))
    def test_planned_settings_stay_as_they_are(self, variant: str, adjacency: Adjacency) -> None:
        facts = cube(adjacency=adjacency)
        settings = planned(facts, variant=variant)
        assert settings.plan(facts, 5.0) == settings
        assert KlSpiderPlan.model_validate_json(settings.model_dump_json()) == settings
        assert KlSpiderPlan.model_validate_json(settings.model_dump_json()).schedule(facts) == settings.schedule(facts)

    def test_a_convex_loss_with_a_ridge_has_its_condition_from_them(self) -> None:
        facts = logistic()
        settings = KlSpider(variant="calibrated").plan(facts, 2.0)
        assert settings.condition == KlCondition.strongly_convex(0.1)
        assert settings.mean_smoothness == pytest.approx(0.6)
        assert settings.smoothness == 0.5
        assert settings.start_gap == log(2)
        assert settings.ground(facts).replaced == 1
        assert settings.error_bound(facts).conditions == ()
        assert settings.error_bound(facts).value == settings.bound(facts).value

    def test_the_gap_is_the_least_that_is_known(self) -> None:
        assert planned(cube(start_gap=None)).start_gap == pytest.approx(1.0)
        assert planned(cube(start_gap=None), start_gap=9.0).start_gap == pytest.approx(1.0)
        assert planned(cube(start_gap=0.9)).start_gap == 0.9
        assert planned(cube(start_gap=0.9), start_gap=0.8).start_gap == 0.8

    def test_a_start_where_the_ridge_pulls_has_a_larger_gamma(self) -> None:
        """There the slope may be the clip and the ridge's; a larger gamma is always safe."""
        facts = logistic(start_gap=None)
        away = KlSpider(variant="calibrated", start=(3.0, 0.0, 4.0, 0.0, 0.0)).plan(facts, 2.0)
        assert away.ground(facts).condition.gamma == pytest.approx(away.condition.gamma * (1 + 0.5 / sqrt(2)))
        assert away.start_gap == pytest.approx((away.condition.gamma * (sqrt(2) + 0.5)) ** 2)

    def test_steps_follow_the_mean_and_caps_a_unit(self) -> None:
        one, two = planned(mean_smoothness=6.0), planned(mean_smoothness=3.0, smoothness=6.0)
        assert two.ground(cube()).ratio == 2
        first, second = (settings.course(cube()).rounds[0] for settings in (one, two))
        assert second.step / second.cap == pytest.approx(first.step / first.cap)
        assert second.step * 3.0 / second.threshold == pytest.approx(first.step * 6.0 / first.threshold)

    def test_questions_are_the_extremes_of_what_is_asked(self) -> None:
        settings = planned(variant="calibrated")
        rounds = settings.course(cube()).rounds
        gradient, *differences = settings.questions()
        assert gradient == Gradient(sigma=rounds[0].gradient_sigma)
        assert {type(one) for one in differences} == {GradientDifference}
        asked = [one for one in rounds if one.difference_sigma is not None]
        assert {one.sigma for one in differences} == {
            min(one.difference_sigma or 0 for one in asked),
            max(one.difference_sigma or 0 for one in asked),
        }
        check_lattice(settings.questions(), cube(), "/privacy")
        square = power(2.0)
        flat = KlSpider(condition=square.condition).plan(square.facts(100_000, 10), MU)
        assert [one.kind for one in flat.questions()] == ["gradient"]

    def test_its_price_is_at_most_the_budget(self) -> None:
        for variant in ("proved", "calibrated"):
            for mu in (0.5, 1.0, 3.0):
                settings = planned(cube(1_000_000), mu, variant=variant)
                assert 0.95 * rho_of_mu(mu) < settings.course(cube(1_000_000)).rho() <= rho_of_mu(mu)

    def test_calibrated_certifies_less(self) -> None:
        bounds = [planned(variant=variant).bound(cube()) for variant in ("proved", "calibrated")]
        assert bounds[1].value is not None
        assert bounds[0].value is not None
        assert bounds[1].value < bounds[0].value / 50
        assert [bound.trivial for bound in bounds] == [1.0, 1.0]
        assert not any(bound.vacuous for bound in bounds)
        assert "extension" in bounds[1].source
        assert "extension" not in bounds[0].source


class TestRefusals:
    def test_no_condition(self) -> None:
        for facts in (logistic(ridge=0.0), logistic(weak_convexity=0.2), logistic(weak_convexity=None)):
            assert refused(facts, KlSpider())[1] == ["/optimizer/condition"]

    def test_no_smoothness(self) -> None:
        assert refused(logistic(smoothness=None), KlSpider())[1] == ["/optimizer/smoothness"]
        assert KlSpider(smoothness=0.5, variant="calibrated").plan(logistic(smoothness=None), 2.0).smoothness == 0.5

    def test_several_figures_at_once(self) -> None:
        pointers = refused(logistic(smoothness=None, ridge=0.0), KlSpider())[1]
        assert pointers == ["/optimizer/condition", "/optimizer/smoothness"]

    def test_sharper_than_smooth(self) -> None:
        detail, pointers = refused(cube(), KlSpider(condition=KlCondition(gamma=1.0, kappa=2.01)))
        assert pointers == ["/optimizer/condition/kappa"]
        assert "kl_spider" in detail

    def test_an_unknown_scale(self) -> None:
        assert refused(logistic(scale=UnknownScale(start=1.0, floor=0.1)), KlSpider())[1] == ["/model/loss"]

    @pytest.mark.parametrize("units", [2, 5000])
    def test_noise_that_allows_no_target_below_the_start(self, units: int) -> None:
        settings = KlSpider(condition=CUBE.condition)
        detail, pointers = refused(cube(units), settings, mu=MU if units > 2 else 0.05)
        assert ("trivial_regime" in detail) == (units > 2)
        assert ("target_above_F0" in detail) == (units == 2)
        assert {"/privacy", "/optimizer/variant", "/optimizer/kind", "/optimizer/force"} == set(pointers)
        assert "1" in detail

    def test_force_runs_where_there_are_rounds_and_claims_nothing(self) -> None:
        settings = planned(cube(5000), force=True)
        bound = settings.bound(cube(5000))
        assert bound.value is None
        assert bound.vacuous
        assert settings.error_bound(cube(5000)).value is None
        detail, _ = refused(cube(2), KlSpider(condition=CUBE.condition, force=True), mu=0.05)
        assert "target_above_F0" in detail

    def test_too_many_rounds_or_answers(self) -> None:
        hard = KlCondition(gamma=1000.0, kappa=1.5)
        assert "too_many_rounds" in refused(cube(10**13), KlSpider(condition=hard))[0]
        flat = KlSpider(condition=KlCondition(gamma=1 / 3, kappa=1.0), variant="calibrated")
        detail, pointers = refused(cube(10**8), flat)
        assert str(MOST_STEPS) in detail
        assert pointers == ["/optimizer/condition"]

    @pytest.mark.parametrize("given", [{"steps": 7}, {"extremes": (Gradient(sigma=1.0),)}])
    def test_what_follows_from_the_rest_is_not_chosen(self, given: dict[str, object]) -> None:
        (name,) = given
        settings = KlSpider.model_validate({"condition": CUBE.condition} | given)
        assert refused(cube(), settings)[1] == [f"/optimizer/{name}"]


class TestConditions:
    def test_what_is_declared_is_told_and_what_the_loss_says_is_not(self) -> None:
        (only,) = planned().error_bound(cube()).conditions
        assert "KL within 42.2154 of the start" in only
        told = " / ".join(
            planned(clip=2.5, smoothness=5.9, mean_smoothness=5.5, start_gap=0.5).error_bound(cube()).conditions
        )
        assert "nothing is clipped" in told
        assert "each unit's loss is 5.9-smooth" in told
        assert "the mean loss is 5.5-smooth" in told
        assert "at most 0.5 above" in told

    def test_constants_that_contradict_each_other_are_told(self) -> None:
        told = planned(smoothness=3.0).error_bound(cube()).conditions
        assert any("contradict" in one for one in told)
        assert not any("contradict" in one for one in planned().error_bound(cube()).conditions)

    def test_every_assumption_says_how_it_is_checked(self) -> None:
        card = KlSpider.card()
        assert card.kind == "kl_spider"
        assert {one.checked for one in card.assumptions} == {"declared", "static", "runtime"}
        assert set(card.adjacency) == set(Adjacency)
