"""Sweeps: their plans and refusals, the run that is released, and that no failed or uncounted run is seen."""

from collections.abc import Callable
from math import isfinite, sqrt
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from core.base.errors import Invalid, PrivacyInvariantError
from core.data.columns import Column
from core.losses.categorical import Multinomial
from core.losses.robust import Huber
from core.losses.weights import Mallows
from core.mechanisms.counted import number_of_runs
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import fit
from core.methods.selection.sweep.spec import SweepPlan
from core.oracle import Answer, Status, runs
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.planning.job import JobSpec, PlannedSpec
from core.planning.planner import PlannedJob, plan_job, read_planned
from core.privacy.events import Gaussian, Repeated, Selected
from core.privacy.facts import Adjacency
from core.privacy.renyi import cost_nano
from core.queries.errors import MeanError
from core.queries.gradients import Question
from core.queries.sums import make_problem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.multinomial import MultinomialProblem
from core.training.draws import count_of
from tests.planning.test_planning import COLUMNS
from tests.support.problems import LOGISTIC, WEIGHTS, facts, repeatable_generator, rows
from tests.support.store import TERMS

UNITS = 4000
GRID = [
    {"optimizer": {"kind": "noisy_gd", "steps": steps}, "ridge": ridge}
    for steps in (5, 40)
    for ridge in (0.0, 0.1, 10.0)
]
NEWTON = [{"optimizer": {"kind": "noisy_newton", "steps": 6}, "ridge": ridge} for ridge in (0.0, 0.3)]


def asked(
    candidates: list[dict[str, Any]] | None = None,
    *,
    model: dict[str, Any] | None = None,
    privacy: dict[str, str] | None = None,
    columns: tuple[Column, ...] = COLUMNS,
    **changed: Any,
) -> PlannedJob:
    """Plan a sweep."""
    optimizer = {"kind": "sweep", "candidates": candidates or GRID, **changed.pop("optimizer", {})}
    body = {
        "model": {"kind": "logistic", "target": "y"} | (model or {}),
        "privacy": privacy or {"epsilon": "1"},
        "inference": {"intervals": False},
        "optimizer": optimizer,
        **changed,
    }
    return plan_job(
        JobSpec.model_validate(body), columns=columns, units=UNITS, adjacency=Adjacency.ZERO_OUT, terms=TERMS
    )


def plan_of(planned: PlannedJob) -> SweepPlan:
    assert isinstance(planned.spec.optimizer, SweepPlan)
    return planned.spec.optimizer


def records(planned: PlannedJob, units: int = UNITS) -> LinearProblem:
    features, target, present = rows(units, planned.facts.dimension)
    return LinearProblem(features, target, present, LOGISTIC, WEIGHTS)


class TestPlans:
    def test_the_cheaper_way_is_taken_and_both_are_shown(self) -> None:
        many, few = plan_of(asked()), plan_of(asked(privacy={"rho": "0.02"}))
        for plan in (many, few):
            both = {"selection": plan.selection_mu or 0.0, "composition": plan.composition_mu}
            assert plan.mu == max(both.values()) == both[plan.way]
        assert (many.way, few.way) == ("selection", "composition")
        assert isinstance(many.event(), Selected)
        assert few.event() == Repeated(event=few.event().event, times=len(GRID))
        assert few.selection_mu is None, "the price of the choice alone passes this rho"
        with pytest.raises(Invalid, match="No noise is enough"):
            asked(privacy={"rho": "0.02"}, optimizer={"way": "selection"})

    @pytest.mark.parametrize("privacy", [{"epsilon": "0.3"}, {"mu": "1.5"}, {"rho": "1.5"}, {"budget_share": "0.3"}])
    @pytest.mark.parametrize("way", ["selection", "composition"])
    def test_the_price_fits_the_target_and_hardly_less_noise_would(self, privacy: dict[str, str], way: str) -> None:
        planned = asked(privacy=privacy, optimizer={"way": way})
        plan = plan_of(planned)
        assert planned.schedule == (plan.event(),)
        with pytest.raises(Invalid, match="more than the target allows"):
            asked(privacy=privacy, optimizer={"way": way, "mu": plan.mu * 1.001})
        asked(privacy=privacy, optimizer={"way": way, "mu": plan.mu * 0.999})

    @pytest.mark.parametrize("candidates", [GRID, GRID + NEWTON, NEWTON])
    def test_each_run_draws_what_it_is_priced_for(self, candidates: list[dict[str, Any]]) -> None:
        planned = asked(candidates)
        plan = plan_of(planned)
        run = plan.event().event
        for one in plan.candidates:
            drawn = [*one.optimizer.schedule(planned.facts), plan.score().event()]
            prices = [sum(cost_nano(event, (order,))[0] for event in drawn) for order in (2, 9, 44)]
            most = cost_nano(run, (2, 9, 44))
            assert all(price <= limit + len(drawn) for price, limit in zip(prices, most, strict=True))
            assert all(price >= 0.999 * limit for price, limit in zip(prices, most, strict=True))

    def test_candidates_that_take_as_long_are_a_group(self) -> None:
        plan = plan_of(asked(GRID + NEWTON, optimizer={"way": "selection", "runs": 16.0}))
        event = plan.event()
        assert plan.groups == ((0, 1, 2), (3, 4, 5), (6, 7))
        assert isinstance(event, Selected)
        assert event.means == (6.0, 6.0, 4.0)
        assert all(most > mean for most, mean in zip(event.slots, event.means, strict=True))

    def test_numbers_of_steps_are_planned_where_they_are_open(self) -> None:
        kinds = [
            {"optimizer": {"kind": kind}, "ridge": ridge}
            for kind in ("noisy_gd", "noisy_newton")
            for ridge in (0.1, 1.0)
        ]
        plan = plan_of(asked(kinds))
        assert plan.groups == ((0, 1), (2, 3)) or plan.way == "composition"
        assert all(one.optimizer.steps > 0 for one in plan.candidates)

    def test_a_stored_sweep_is_read_as_it_was_planned(self) -> None:
        for model in ({}, {"kind": "linear", "target": "income"}):
            planned = asked(GRID + NEWTON, model=model)
            stored = PlannedSpec.read(planned.spec.model_dump(mode="json"))
            again = read_planned(stored, columns=COLUMNS, units=UNITS, adjacency=Adjacency.ZERO_OUT)
            assert again == planned
            cloned = JobSpec.model_validate(planned.spec.model_dump(mode="json"))
            clone = plan_job(cloned, columns=COLUMNS, units=UNITS, adjacency=Adjacency.ZERO_OUT, terms=TERMS)
            assert clone == planned, "a stored job can be submitted again"

    def test_it_shows_as_one_step(self) -> None:
        assert asked().spec.optimizer.steps == 1

    def test_a_candidate_without_a_ridge_has_the_models(self) -> None:
        plan = plan_of(asked([{"optimizer": {"kind": "noisy_gd"}}, GRID[1]], model={"ridge": 0.7}))
        assert [one.ridge for one in plan.candidates] == [0.7, 0.1]

    @pytest.mark.parametrize(
        ("changed", "pointer"),
        [
            (
                {"candidates": [GRID[0], {"optimizer": {"kind": "noisy_gd", "stop": "private"}}]},
                "/optimizer/candidates/1/optimizer/stop",
            ),
            (
                {"candidates": [GRID[0], {"optimizer": {"kind": "noisy_gd", "radius": 0.1}}]},
                "/optimizer/candidates/1/optimizer/radius",
            ),
            (
                {"candidates": [GRID[0], {"optimizer": {"kind": "noisy_gd", "start": "random"}}]},
                "/optimizer/candidates/1/optimizer/start",
            ),
            (
                {"candidates": [GRID[0], {"optimizer": {"kind": "noisy_gd", "mu": 0.1}}]},
                "/optimizer/candidates/1/optimizer/mu",
            ),
            (
                {"candidates": [GRID[0], {"optimizer": {"kind": "noisy_newton", "eigenvalue_floor": 1e-300}}]},
                "/optimizer/candidates/1/optimizer/eigenvalue_floor",
            ),
            (
                {"candidates": [GRID[0], {"optimizer": {"kind": "noisy_newton", "line_search": {}}}]},
                "/optimizer/candidates/1/optimizer/line_search",
            ),
            (
                {"candidates": [GRID[0], {"optimizer": {"kind": "noisy_newton", "steps": 3, "hessians": 9}}]},
                "/optimizer/candidates/1/optimizer/hessians",
            ),
            ({"optimizer": {"selection_mu": 1.0}}, "/optimizer/selection_mu"),
            ({"optimizer": {"error_width": 9.0}}, "/optimizer/error_width"),
            ({"inference": {"intervals": True}}, "/inference/intervals"),
            ({"resources": {"processes": 2}}, "/resources/processes"),
            ({"model": {"kind": "poisson", "target": "age"}}, "/model/kind"),
            (
                {"model": {"kind": "linear", "target": "income", "loss": {"kind": "huber", "joint": True}}},
                "/model/loss/joint",
            ),
            ({"candidates": NEWTON, "model": {"weights": {"kind": "clip"}}}, "/optimizer/candidates/0/optimizer/kind"),
            (
                {
                    "candidates": [
                        {"optimizer": {"kind": "noisy_gd", "steps": 20_000}, "ridge": r} for r in (0.1, 0.2)
                    ],
                    "optimizer": {"way": "selection", "runs": 900},
                },
                "/optimizer/candidates",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused_at_its_own_field(self, changed: dict[str, Any], pointer: str) -> None:
        with pytest.raises(Invalid) as caught:
            asked(**changed)
        assert pointer in [one.pointer for one in caught.value.fields]


def released(
    planned: PlannedJob, counted: Callable[[float, int], int] | None = None
) -> tuple[Any, Status, CountingFilter]:
    """Run a planned sweep at an oracle over records, on a filter of its price; `counted` takes the place of the law."""
    chosen = number_of_runs if counted is None else lambda _, mean, slots: counted(mean, slots)
    with patch.object(runs, "number_of_runs", chosen):
        account = CountingFilter(planned.price)
        oracle = FullOracle(records(planned), facts(UNITS, planned.facts.dimension), account, repeatable_generator())
        found = fit(planned.spec.optimizer, oracle)
    return found.value, found.status, account


class TestRuns:
    def test_one_payment_covers_all_runs_and_the_outcome_names_its_candidate(self) -> None:
        planned = asked(GRID + NEWTON)
        estimate, status, account = released(planned)
        assert account.totals == [planned.schedule[0]]
        outcome = estimate.swept
        assert status is Status.FINISHED
        assert outcome.candidates == len(GRID + NEWTON)
        chosen = plan_of(planned).candidates[outcome.candidate]
        assert outcome.optimizer == chosen.optimizer.model_dump(mode="json")
        assert outcome.ridge == chosen.ridge
        assert isfinite(outcome.score)
        assert bool(estimate.theta.isfinite().all())

    def test_no_run_drawn_releases_nothing(self) -> None:
        estimate, status, account = released(asked(optimizer={"way": "selection"}), lambda *_: 0)
        assert status is Status.NONE
        assert estimate.swept.candidate is estimate.swept.score is None
        assert not estimate.theta.any()
        assert len(account.totals) == 1

    def test_as_much_is_asked_and_in_the_same_order_however_many_count(self) -> None:
        planned = asked(GRID + NEWTON, optimizer={"way": "selection"})
        orders: list[list[str]] = []
        for counted in (lambda *_: 0, lambda *_: 1, lambda _, slots: slots):
            seen: list[str] = []
            ask = FullOracle.ask

            def noting(
                own: FullOracle,
                question: Question,
                theta: Tensor,
                other: Tensor | None = None,
                seen: list[str] = seen,
                ask: Any = ask,
            ) -> Answer:
                seen.append(question.kind)
                return ask(own, question, theta, other)  # type: ignore[no-any-return]

            with patch.object(FullOracle, "ask", noting):
                released(planned, counted)
            orders.append(seen)
        assert orders[0] == orders[1] == orders[2]
        plan = plan_of(planned)
        assert len(orders[0]) + len(plan.groups) == plan.most_asked(planned.facts)

    def test_the_draws_are_those_that_are_reserved(self) -> None:
        planned = asked(GRID + NEWTON)
        drawn = count_of(planned)
        features = planned.facts.dimension
        plan, total = plan_of(planned), 0
        for at, most in plan._most_runs():
            each = plan.candidates[at].optimizer
            widest = max(question.draws(features) for question in each.questions())
            total += most * ((len(each.schedule(planned.facts)) + 1) * widest)
        assert total <= drawn.most

    def test_a_run_that_draws_more_than_its_price_is_stopped(self) -> None:
        planned = asked()
        oracle = FullOracle(
            records(planned), facts(UNITS, planned.facts.dimension), CountingFilter(), repeatable_generator()
        )

        def greedy(own: runs.RunsOracle, group: int) -> tuple[int, float]:
            for _ in range(3):
                own.ask(plan_of(planned).score(), torch.zeros(planned.facts.dimension, dtype=torch.float64))
            return group, 0.0

        event = plan_of(planned).event()
        cheap = event.model_copy(update={"event": plan_of(planned).score().event()})
        with pytest.raises(PrivacyInvariantError, match="never exceeds its price"):
            oracle.best_of(cheap, greedy)

    def test_a_run_that_fails_fails_no_other_and_is_never_chosen(self) -> None:
        wild = {"optimizer": {"kind": "noisy_gd", "steps": 5, "step_size": 1e9}}
        planned = asked([wild, GRID[0]], optimizer={"way": "composition"})
        estimate, status, _ = released(planned)
        assert (status, estimate.swept.candidate) == (Status.FINISHED, 1)
        both = asked([wild, wild | {"ridge": 0.1}], optimizer={"way": "composition"})
        estimate, status, _ = released(both)
        assert (status, estimate.swept.candidate) == (Status.NONE, None)

    def test_the_best_candidate_wins_where_nothing_blurs(self) -> None:
        planned = asked(optimizer={"way": "composition"}, privacy={"mu": "1000"})
        features, target, present = rows(UNITS, planned.facts.dimension)
        simulation = Simulation(
            LinearProblem(features, target, present, LOGISTIC, WEIGHTS),
            facts(UNITS, planned.facts.dimension),
            SimulationGenerator(1),
            noiseless=True,
        )
        found = fit(planned.spec.optimizer, simulation)
        assert found.value.swept is not None
        assert found.value.swept.candidate == 3, "many steps, no ridge"
        chance = torch.sigmoid(features @ found.value.theta)
        assert found.value.swept.score == pytest.approx(float((chance - target).square().mean()), rel=1e-5)

    def test_each_run_has_the_ridge_of_its_own_candidate(self) -> None:
        lengths = []
        for ridge in (0.0, 1.0):
            # Of one size, or a ridge's shorter steps would keep the estimate at its start.
            own = {"kind": "noisy_gd", "step_size": 0.5}
            both = [{"optimizer": own | {"steps": steps}, "ridge": ridge} for steps in (20, 30)]
            estimate, _, _ = released(asked(both, privacy={"mu": "100"}))
            lengths.append(float(estimate.theta.norm()))
        assert lengths[1] < 0.5 * lengths[0]

    def test_candidates_are_drawn_as_often_as_one_another(self) -> None:
        planned = asked(GRID[:3], optimizer={"way": "selection"})
        drawn: list[int] = []
        generator = repeatable_generator()
        for _ in range(200):
            oracle = FullOracle(records(planned, 50), facts(50, planned.facts.dimension), CountingFilter(), generator)

            def run(own: runs.RunsOracle, group: int) -> tuple[int, float]:
                drawn.append(own.randomness.integer(3))
                return group, 0.0

            oracle.best_of(plan_of(planned).event(), run)
        counts = [drawn.count(place) for place in range(3)]
        expected = len(drawn) / 3
        assert all(abs(one - expected) < 5 * sqrt(expected) for one in counts)


class TestMeanError:
    @pytest.mark.parametrize("units", [300, 20_000])
    def test_of_a_category_it_is_the_brier_score(self, units: int) -> None:
        features, target, present = rows(units, 3)
        present[::7] = False
        theta = torch.tensor([0.2, -1.0, 2.0], dtype=torch.float64)
        wanted = ((torch.sigmoid(features @ theta) - target).square() * present).sum()
        held = LinearProblem(features.clone(), target, present, LOGISTIC, WEIGHTS)
        question, public = MeanError(sigma=1.0), facts(units, 3)
        assert float(held.integer_sum(question, public, theta, 2.0**-30)[0]) * 2.0**-30 == pytest.approx(
            float(wanted), rel=1e-6
        )
        assert float(held.bounded_sum(question, public, theta)[0]) == pytest.approx(float(wanted))

    def test_of_a_number_it_is_the_squared_residual_over_the_range_cut_at_one(self) -> None:
        features, target, present = rows(500, 3, Huber(scale=0.7))
        theta = torch.tensor([0.5, 4.0, -9.0], dtype=torch.float64)
        wanted = ((features @ theta - target) / 2).square().clamp(max=1.0).sum()
        held = LinearProblem(features, target, present, Huber(scale=0.7), WEIGHTS)
        question = MeanError(sigma=1.0, width=2.0)
        assert float(held.bounded_sum(question, facts(500, 3), theta)[0]) == pytest.approx(float(wanted))

    def test_of_classes_it_is_half_the_squared_distance(self) -> None:
        features, _, present = rows(400, 3)
        target = torch.arange(400, dtype=torch.float64) % 3
        theta = torch.linspace(-1, 2, 6, dtype=torch.float64)
        margins = torch.cat((torch.zeros(400, 1, dtype=torch.float64), features @ theta.view(2, 3).mT), 1)
        wanted = (torch.softmax(margins, 1) - torch.nn.functional.one_hot(target.long(), 3)).square().sum() / 2
        held = MultinomialProblem(features, target, present, Multinomial(classes=3), Mallows(bound=1.5))
        assert float(held.bounded_sum(MeanError(sigma=1.0), facts(400, 6), theta)[0]) == pytest.approx(float(wanted))

    def test_sampling_weights_and_offsets_count(self) -> None:
        features, target, present = rows(300, 3)
        weights = torch.linspace(0.1, 1.0, 300, dtype=torch.float64)
        offset = torch.linspace(-2, 2, 300, dtype=torch.float64)
        theta = torch.tensor([0.2, -1.0, 2.0], dtype=torch.float64)
        wanted = ((torch.sigmoid(features @ theta + offset) - target).square() * weights).sum()
        held = make_problem(features, target, present, LOGISTIC, WEIGHTS, offset=offset, sampling=weights)
        assert float(held.bounded_sum(MeanError(sigma=1.0), facts(300, 3), theta)[0]) == pytest.approx(float(wanted))

    @pytest.mark.parametrize("width", [None, 1e-3])
    @pytest.mark.parametrize("huge", [1e300, 1e180, 5.0])
    def test_one_record_moves_the_sum_by_at_most_one_wherever_it_is_asked(
        self, width: float | None, huge: float
    ) -> None:
        features, target, present = rows(60, 3)
        theta = torch.tensor([huge, -huge, 2.0], dtype=torch.float64)
        whole = LinearProblem(features.clone(), target, present, LOGISTIC, WEIGHTS)
        question, public = MeanError(sigma=1.0, width=width), facts(60, 3)
        step = 2.0**-20
        sums = [int(whole.integer_sum(question, public, theta, step)[0])]
        for left in range(60):
            without = present.index_fill(0, torch.tensor(left), value=False)
            other = LinearProblem(features.clone(), target, without, LOGISTIC, WEIGHTS)
            sums.append(int(other.integer_sum(question, public, theta, step)[0]))
        assert all(0 <= sums[0] - one <= 2**20 + 1 for one in sums[1:])
        assert sums[0] > 0
        assert question.event() == Gaussian(sigma=1.0)
        assert question.sensitivity(public) == 1 / 60
