"""Plans: worked cases, monotone in every figure, the same in all units, and found again by what they look for."""

from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from core.base.errors import AdjacencyMismatch, Invalid, NotOfferedYet, Refusal
from core.methods.clipped.one_pass.spec import CertifiedClippedSgd, Moment
from core.privacy.conversions import gdp_mu
from core.privacy.facts import Adjacency, Facts
from public_planner.clipped.planner import plan
from public_planner.clipped.plans import ClippedPlan
from public_planner.clipped.request import ClippedPlanRequest
from tests.public_planner.test_advice import PROXY

BASE: dict[str, Any] = {
    "problem": "convex",
    "units": 10**6,
    "dimension": 10,
    "smoothness": 1.0,
    "distance": 1.0,
    "moments": [{"order": 1.5, "size": 0.1}],
    "epsilon": "2",
    "delta": "1e-7",
}
FIXED: dict[str, Any] = {"scheme": "fixed_batch", "steps": [100, 1000, 10_000, 100_000]}
SCHEMES = ("one_pass", "poisson", "fixed_batch")


def planned(**changes: Any) -> ClippedPlan:
    return remembered(ClippedPlanRequest.model_validate({**BASE, **changes}).model_dump_json(exclude_unset=True))


@cache
def remembered(text: str) -> ClippedPlan:
    """Plan once for all tests that ask for the same."""
    return plan(ClippedPlanRequest.model_validate_json(text))


def nonconvex(**changes: Any) -> ClippedPlan:
    kept = {name: value for name, value in BASE.items() if name != "distance"}
    return plan(ClippedPlanRequest.model_validate({**kept, "problem": "nonconvex", "start_gap": 1.0, **changes}))


def sigma(size: float, order: float = 1.5) -> dict[str, Any]:
    return {"moments": [{"order": order, "size": size}]}


class TestWorkedCases:
    """d = 10, L = R = 1, alpha = 1.5, epsilon = 2, delta = 1e-7, beta = .05; clips of a coarse grid make 10 %."""

    @pytest.mark.parametrize(
        ("units", "size", "certificate", "wanted"),
        [
            (10**5, 0.01, "paper", 5.5),
            (10**6, 0.01, "paper", 0.38),
            (10**6, 0.1, "paper", 3.4),
            (10**7, 0.1, "paper", 2.6),
            (10**5, 0.01, "refined", 0.075),
            (10**6, 0.01, "refined", 0.059),
            (10**6, 0.1, "refined", 0.42),
            (10**7, 0.1, "refined", 0.42),
        ],
    )
    def test_with_privacy(self, units: int, size: float, certificate: str, wanted: float) -> None:
        found = planned(units=units, certificate=certificate, **sigma(size), **FIXED)
        assert found.certified_bound == pytest.approx(wanted, rel=0.06)
        assert found.vacuous == (wanted > 0.5)
        assert found.trivial_bound == 0.5

    @pytest.mark.parametrize(
        ("order", "steps", "wanted"),
        [(2, 10**5, 1.60), (2, 10**6, 0.54), (2, 10**7, 0.18), (1.5, 10**6, 2.2), (1.5, 10**8, 0.51)],
    )
    def test_without_privacy_at_one_sample_a_step(self, order: float, steps: int, wanted: float) -> None:
        found = planned(
            units=10**9,
            epsilon=None,
            scheme="fixed_batch",
            batches=[1],
            steps=[steps],
            certificate="paper",
            **sigma(0.1, order),
        )
        assert found.certified_bound == pytest.approx(wanted, rel=0.015)
        assert found.privacy is None
        assert found.noise == 0


def few(scheme: str) -> dict[str, Any]:
    """Return a grid that is soon searched."""
    if scheme == "one_pass":
        return {"batch_fractions": [1e-5, 1e-3, 0.1]}
    return {"batch_fractions": [0.001, 0.02], "steps": [1000, 100_000]}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("certificate", ["refined", "paper", "order"])
class TestMonotone:
    @staticmethod
    def value(scheme: str, certificate: str, **changes: Any) -> float:
        found = planned(scheme=scheme, certificate=certificate, **few(scheme), **changes)
        return found.order.bound if found.bound is None else found.bound

    @pytest.mark.parametrize(
        "worse",
        [
            {"units": 3 * 10**5},
            {"epsilon": "0.5"},
            {"delta": "1e-10"},
            {"dimension": 1000},
            {"smoothness": 1.7},
            {"distance": 1.7},
            {"beta": 1e-4},
            {"moments": [{"order": 1.5, "size": 0.2}]},
        ],
        ids=lambda worse: next(iter(worse)),
    )
    def test_less_of_what_helps_promises_no_less_error(
        self, scheme: str, certificate: str, worse: dict[str, Any]
    ) -> None:
        assert self.value(scheme, certificate, **worse) >= self.value(scheme, certificate) * (1 - 1e-6)

    def test_what_is_spent_is_at_most_what_was_asked(self, scheme: str, certificate: str) -> None:
        for epsilon in ("0.3", "2", "7.77"):
            found = planned(scheme=scheme, certificate=certificate, epsilon=epsilon, **few(scheme))
            assert found.privacy is not None
            assert Decimal(epsilon) * Decimal("0.95") < Decimal(found.privacy.epsilon_spent) <= Decimal(epsilon)


class TestUnits:
    @pytest.mark.parametrize("certificate", ["refined", "paper", "order"])
    def test_with_the_clip_given_a_plan_is_the_same_in_all_units(self, certificate: str) -> None:
        height, length = 7.3, 0.21
        steep = height / length
        one = planned(certificate=certificate, clips=[5.0, 9.0])
        other = planned(
            certificate=certificate,
            smoothness=height / length**2,
            distance=length,
            clips=[5.0 * steep, 9.0 * steep],
            **sigma(0.1 * steep),
        )
        assert (other.bound or other.order.bound) == pytest.approx((one.bound or one.order.bound) * height, rel=1e-12)
        assert other.step_size == pytest.approx(one.step_size * length**2 / height, rel=1e-12)
        assert other.multiplier == one.multiplier
        assert other.steps == one.steps

    def test_and_with_the_clip_searched_up_to_the_search(self) -> None:
        one = nonconvex()
        other = nonconvex(smoothness=2.0, start_gap=3.0, **sigma(0.1 * 6**0.5))
        assert other.bound == pytest.approx(one.bound * 6, rel=1e-6)
        assert other.clip == pytest.approx(one.clip * 6**0.5, rel=1e-4)


class TestAnswer:
    def test_the_same_request_has_the_same_answer(self) -> None:
        assert plan(ClippedPlanRequest.model_validate(BASE)) == planned()

    def test_the_plan_is_the_guarantee_of_its_own_figures(self) -> None:
        found = planned()
        assert found.noise == pytest.approx(found.multiplier * found.clip / found.batch)
        assert found.iterates == found.steps + 1
        assert found.step_size == min(cap for cap in found.caps.values() if cap is not None)
        assert found.step_size == found.caps[found.active_cap or ""]
        assert found.terms is not None
        assert max(found.terms.model_dump().values()) == found.bound == found.certified_bound
        assert found.batch * found.steps <= found.units
        assert found.privacy is not None
        assert found.privacy.compositions == 1
        assert found.privacy.sensitivity == pytest.approx(found.clip / found.batch)
        assert found.trained_by == "certified_clipped_sgd"

    def test_of_several_moments_the_most_useful_is_taken(self) -> None:
        several = [{"order": 1.2, "size": 0.05}, {"order": 1.5, "size": 0.1}, {"order": 1.9, "size": 0.9}]
        alone = [planned(moments=[moment]) for moment in several]
        found = planned(moments=several)
        assert found.bound == min(one.bound or 9.0 for one in alone)
        assert found.moment_order in {1.2, 1.5, 1.9}

    def test_without_privacy_it_promises_no_more(self) -> None:
        found = planned(units=10**5, **FIXED)
        assert found.without_privacy is not None
        assert found.bound is not None
        assert found.without_privacy.bound < found.bound
        assert planned(epsilon=None).without_privacy is None

    def test_three_radii_are_told_and_the_certificate_is_far_above_the_estimate(self) -> None:
        found = planned(
            units=20_000, dimension=6, scheme="fixed_batch", batches=[200], steps=[1000],
            proxy=PROXY.model_dump(), epsilon="1", delta="1e-5",
        )  # fmt: skip
        assert found.semi_analytic is not None
        assert found.semi_analytic.clip == pytest.approx(6.3, rel=0.1)
        assert found.semi_analytic.value is not None
        assert found.certified_bound is not None
        assert found.certified_bound > 10 * found.semi_analytic.value
        assert found.public_tail is not None
        assert found.public_tail.heavy
        assert any("variance is infinite" in warning for warning in found.warnings)
        assert found.order.radius <= found.order.bound

    def test_corollaries_tell_the_best_clips_with_and_without_privacy_and_that_small_ones_say_nothing(self) -> None:
        told = planned(**sigma(0.5)).order.corollaries
        assert told.private is not None
        assert told.private_small is not None
        assert told.private.clip >= 4
        assert told.unprivate.clip >= 4
        assert told.unprivate.bound < told.private.bound
        assert told.private_small.bound > 1
        free = planned(epsilon=None).order.corollaries
        assert (free.private, free.private_small) == (None, None)

    def test_the_method_that_runs_a_plan_certifies_what_the_plan_does_but_for_the_lattices_noise(self) -> None:
        found = planned()
        method = CertifiedClippedSgd(
            batch=found.batch,
            clip=found.clip,
            smoothness=1.0,
            distance=1.0,
            moment=Moment(order=found.moment_order, size=found.moment_size),
        )
        facts = Facts(
            units=found.units, dimension=10, adjacency=Adjacency.ZERO_OUT, gradient_bound=1e6, weak_convexity=0.0
        )
        bound = method.plan(facts, gdp_mu(2.0, 1e-7)).bound(facts)
        assert bound.value == pytest.approx(found.certified_bound, rel=0.03)
        assert bound.trivial == found.trivial_bound

    def test_an_empty_certificate_keeps_its_step_and_suggests_another(self) -> None:
        found = planned(units=1000)
        assert found.vacuous
        assert found.practical_step_size is not None
        assert found.practical_step_size > found.step_size
        assert any("safe and of no use" in warning for warning in found.warnings)
        assert planned(units=10**8, **sigma(0.001)).practical_step_size is None


class TestWarnings:
    def test_poisson_batches_are_certified_nothing(self) -> None:
        found = planned(scheme="poisson")
        assert found.certified_bound is None
        assert found.bound is not None
        assert found.vacuous
        assert found.certified_for == "nothing"
        assert any("outside the proof" in warning for warning in found.warnings)

    def test_the_theorem_of_the_paper_says_what_is_not_its_own_and_what_is_not_released(self) -> None:
        said = " ".join(planned(certificate="paper").warnings)
        assert "extension (b)" in said
        assert "best iterate" in said
        assert "extension (b)" not in " ".join(planned(certificate="paper", scheme="fixed_batch", batches=[1]).warnings)

    def test_moments_next_to_the_tail_index(self) -> None:
        assert "tail index" in " ".join(planned(tail_index=1.55).warnings)
        assert "tail index" not in " ".join(planned(tail_index=1.9).warnings)

    def test_a_jump_that_limits_the_step(self) -> None:
        found = planned(**sigma(1e-9), units=10**9, scheme="fixed_batch")
        assert found.active_cap == "jump"
        assert "jump cap" in " ".join(found.warnings)

    def test_clips_below_what_is_certified(self) -> None:
        found = planned(clips=[0.5])
        assert found.vacuous
        assert "deep learning" in " ".join(found.warnings)
        assert found.regime.empty

    def test_orders_are_no_certificate(self) -> None:
        found = planned(certificate="order")
        assert found.certified_bound is None
        assert found.caps == {}
        assert found.vacuous

    def test_small_rates_outputs_and_schemes_nobody_runs(self) -> None:
        assert "small a sampling rate" in " ".join(planned(scheme="poisson", batch_fractions=[1e-4]).warnings)
        assert "none runs it" in " ".join(planned(scheme="fixed_batch").warnings)
        assert "drawn uniformly" in " ".join(nonconvex(output="average").warnings)
        assert "in the mean" in " ".join(planned(output="random_iterate").warnings)


class TestFinding:
    @staticmethod
    def without(name: str, **changes: Any) -> ClippedPlan:
        kept = {key: value for key, value in {**BASE, **changes}.items() if key != name}
        if name == "sigma":
            kept["moments"] = [{"order": 1.5}]
        return plan(ClippedPlanRequest.model_validate({**kept, "find": name, "target": 0.3}))

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("name", ["units", "epsilon", "sigma"])
    def test_what_is_found_reaches_the_target_and_a_little_less_of_it_does_not(self, scheme: str, name: str) -> None:
        small = {**sigma(0.03), **few(scheme), "units": 10**7 if scheme == "one_pass" else 30_000}
        found = self.without(name, scheme=scheme, **small)
        assert found.bound is not None
        assert found.bound <= 0.3
        assert found.solved is not None
        told = {key: value for key, value in found.solved.model_dump().items() if value is not None}
        assert set(told) == {"target", name}
        less = {
            "units": {"units": int(float(found.solved.units or 0) * 0.97)},
            "epsilon": {"epsilon": str(round(float(found.solved.epsilon or 0) * 0.95, 9))},
            "sigma": sigma((found.solved.sigma or 0) * 1.02),
        }[name]
        assert planned(scheme=scheme, **{**small, **less}).bound > 0.3
        same = {
            "units": {"units": found.solved.units},
            "epsilon": {"epsilon": found.solved.epsilon},
            "sigma": sigma(found.solved.sigma or 0),
        }[name]
        again = planned(scheme=scheme, **{**small, **same})
        assert again.model_copy(update={"solved": found.solved}) == found

    def test_a_target_that_nothing_reaches_is_refused_at_its_field(self) -> None:
        for name in ("units", "epsilon", "sigma"):
            kept = {key: value for key, value in BASE.items() if key != name}
            if name == "sigma":
                kept["moments"] = [{"order": 1.5}]
            with pytest.raises(Invalid) as refused:
                plan(ClippedPlanRequest.model_validate({**kept, "find": name, "target": 1e-9}))
            assert refused.value.fields[0].pointer == "/target"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"distance": None}, "/distance"),
        ({"start_gap": 1.0}, "/start_gap"),
        ({"units": None}, "/units"),
        ({"find": "units", "target": 0.1}, "/units"),
        ({"find": "epsilon", "target": 0.1}, "/epsilon"),
        ({"find": "sigma", "target": 0.1}, "/moments/0/size"),
        ({"moments": [{"order": 1.5}]}, "/moments/0/size"),
        ({"target": 0.1}, "/target"),
        ({"find": "units", "units": None}, "/target"),
        ({"find": "units", "units": None, "target": 0.1, "batches": [10]}, "/batches"),
        ({"delta": None}, "/delta"),
        ({"delta": "0.6"}, "/delta"),
        ({"delta": "1e-20"}, "/delta"),
        ({"epsilon": "0.0001"}, "/epsilon"),
        ({"epsilon": "1000"}, "/epsilon"),
        ({"tail_index": 1.5}, "/moments/0/order"),
        ({"steps": [100]}, "/steps"),
        ({"batches": [10, 10**7]}, "/batches/1"),
        ({"batches": [10], "batch_fractions": [0.1]}, "/batch_fractions"),
        ({"scheme": "poisson", "batches": list(range(1, 17)), "steps": list(range(1, 17))}, "/batches"),
        ({"proxy": PROXY.model_dump(), "epsilon": None}, "/proxy"),
        ({"scheme": "poisson", "units": 10}, "/batch_fractions"),
    ],
)
def test_what_cannot_be_planned_is_refused_at_its_field(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        planned(**changes)
    assert refused.value.fields[0].pointer == pointer


@pytest.mark.parametrize(
    ("changes", "refusal", "pointer"),
    [
        ({"scheme": "poisson", "adjacency": "replace_one"}, AdjacencyMismatch, "/adjacency"),
        ({"adjacency": "add_remove"}, AdjacencyMismatch, "/adjacency"),
        ({"output": "last"}, NotOfferedYet, "/output"),
    ],
)
def test_what_no_price_or_theorem_is_known_of(changes: dict[str, Any], refusal: type[Refusal], pointer: str) -> None:
    with pytest.raises(refusal) as refused:
        planned(**changes)
    assert refused.value.fields[0].pointer == pointer


def test_without_convexity_clips_below_four_slopes_are_refused_by_the_refined_certificate() -> None:
    with pytest.raises(Invalid) as refused:
        nonconvex(clips=[3.9])
    assert refused.value.fields[0].pointer == "/clips"
    assert nonconvex(clips=[3.9, 4.0]).clip == 4.0
