"""Selection as a job: planned, priced and refused from public figures alone."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from core.base.errors import Invalid
from core.data.columns import BinaryColumn, CategoryColumn, Column, NumberColumn
from core.methods.selection.select_model.spec import SelectModel, SelectModelPlan
from core.planning.federating import PublicSite, plan_federation
from core.planning.job import JobSpec, Resources
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import BoundedRange, Gaussian, Pure, compose
from core.privacy.facts import Adjacency
from core.privacy.renyi import cost_nano

TERMS = plan_orders(Decimal(3), Decimal("1e-6"))
COLUMNS: Sequence[Column] = (
    NumberColumn(name="x", lower=-1, upper=1),
    NumberColumn(name="y", lower=0, upper=4),
    BinaryColumn(name="b", values=("no", "yes")),
    CategoryColumn(name="c", values=("a", "b", "c")),
)
MODELS = ("mdl_1", "mdl_2", "mdl_3")
SELECT = {"kind": "select_model", "alpha": 0.02, "gamma_star": 0.1}
LOGISTIC = {"kind": "logistic", "target": "b", "features": ["x"]}


def planned(model: dict[str, Any] = LOGISTIC, target: dict[str, str] | None = None, **optimizer: Any) -> PlannedJob:
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_1",
            "model": model,
            "models": MODELS,
            "optimizer": SELECT | optimizer,
            "privacy": target or {"mu": "0.5"},
            "inference": {"intervals": False},
        }
    )
    return plan_job(spec, columns=COLUMNS, units=100_000, adjacency=Adjacency.REPLACE_ONE, terms=TERMS)


def settings(job: PlannedJob) -> SelectModelPlan:
    assert isinstance(job.spec.optimizer, SelectModelPlan)
    return job.spec.optimizer


def test_candidates_are_the_models_that_are_named() -> None:
    job = planned()
    assert settings(job).candidates == 3
    assert job.facts.hessian_rank == 1
    assert settings(planned(candidates=7)).answers == 14


def test_planning_again_changes_nothing() -> None:
    for mode in ("sound", "printed", "hessian_products", "above_threshold", "exponential"):
        job = planned(mode=mode)
        again = plan_job(job.spec, columns=COLUMNS, units=100_000, adjacency=Adjacency.REPLACE_ONE, terms=TERMS)
        assert again == job


JOINT = {"kind": "linear", "target": "y", "features": ["x"], "loss": {"kind": "huber", "joint": True}}
KINKS = {"kind": "phase_retrieval", "target": "y", "features": ["x"], "loss": {"kind": "robust"}}
MULTINOMIAL = {"kind": "multinomial", "target": "c", "features": ["x"]}


@pytest.mark.parametrize("model", [LOGISTIC, MULTINOMIAL, JOINT, KINKS | {"weights": {"kind": "clip"}}], ids=str)
def test_gradients_alone_are_looked_at_of_every_regression(model: dict[str, Any]) -> None:
    job = planned(model, mode="gradient", gamma_star=None)
    assert settings(job).answers == len(job.schedule) == 3
    assert (settings(job).smoothness, settings(job).gamma_star, job.facts.hessian_rank) == (None, None, None)
    assert job.bound.value == settings(job).claimed(job.facts)[0]
    again = plan_job(job.spec, columns=COLUMNS, units=100_000, adjacency=Adjacency.REPLACE_ONE, terms=TERMS)
    assert again == job
    with pytest.raises(Invalid) as refused:
        planned(model, mode="gradient", smoothness=1.0)
    assert [one.pointer for one in refused.value.fields] == ["/optimizer/gamma_star", "/optimizer/smoothness"]


@pytest.mark.parametrize("target", [{"mu": "0.5"}, {"rho": "0.1"}, {"budget_share": "0.20"}, {"epsilon": "1"}])
def test_a_pure_choice_takes_what_its_target_allows(target: dict[str, str]) -> None:
    job = planned(target=target, mode="above_threshold")
    (event,) = job.schedule
    assert event == Pure(epsilon=2 / settings(job).multiplier)
    assert event.epsilon >= {"mu": 0.49, "rho": 0.4, "budget_share": 0.2, "epsilon": 0.9}[next(iter(target))]


def test_a_bounded_choice_costs_what_a_gaussian_answer_of_the_same_mu_does() -> None:
    job = planned(mode="exponential")
    assert job.schedule == (BoundedRange(epsilon=1.0),)


@pytest.mark.parametrize(("mode", "answers"), [("sound", 6), ("printed", 6), ("hessian_products", 63)])
def test_answers_together_are_worth_mu(mode: str, answers: int) -> None:
    job = planned(mode=mode)
    assert settings(job).answers == answers
    together, one = (
        cost_nano(event, TERMS.orders) for event in (compose(Counter(job.schedule)), Gaussian(sigma=1 / 0.5))
    )
    assert together == pytest.approx(one, abs=1), "in whole nano-nats"


@pytest.mark.parametrize(
    ("model", "optimizer", "pointer"),
    [
        (LOGISTIC, {"alpha": None}, "/optimizer/alpha"),
        (LOGISTIC, {"gamma_star": None}, "/optimizer/gamma_star"),
        (LOGISTIC, {"epsilon": 0.1}, "/optimizer/epsilon"),
        (LOGISTIC, {"units": 100_001}, "/optimizer/units"),
        ({"kind": "multinomial", "target": "c", "features": ["x"]}, {}, "/model/kind"),
        (
            {"kind": "linear", "target": "y", "features": ["x"], "loss": {"kind": "huber", "joint": True}},
            {},
            "/model/loss/joint",
        ),
        (
            {
                "kind": "phase_retrieval",
                "target": "y",
                "features": ["x"],
                "loss": {"kind": "robust"},
                "weights": {"kind": "clip"},
            },
            {},
            "/model/loss",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_selected_is_refused_by_name(
    model: dict[str, Any], optimizer: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(Invalid) as refused:
        planned(model, **optimizer)
    assert [one.pointer for one in refused.value.fields] == [pointer]
    if pointer.startswith("/model"):
        assert "take mode: gradient" in refused.value.fields[0].detail


def test_phase_retrieval_with_a_smooth_loss_has_a_hessian_of_either_sign() -> None:
    model = {
        "kind": "phase_retrieval",
        "target": "y",
        "features": ["x"],
        "loss": {"kind": "smooth"},
        "weights": {"kind": "clip"},
    }
    assert settings(planned(model)).smoothness is not None


@pytest.mark.parametrize("mode", ["above_threshold", "exponential"])
def test_scores_are_made_by_one_process(mode: str) -> None:
    """A follower pays for each sum that it is asked for, and one choice is paid for once, of however many sums."""
    spec = planned(mode=mode).spec

    def several(kind: str) -> PlannedJob:
        optimizer = SelectModel.model_validate(SELECT | {"mode": kind})
        asked = spec.model_copy(update={"optimizer": optimizer, "resources": Resources(processes=2)})
        return plan_job(asked, columns=COLUMNS, units=100_000, adjacency=Adjacency.REPLACE_ONE, terms=TERMS)

    assert several("sound").spec.resources.processes == 2
    with pytest.raises(Invalid) as refused:
        several(mode)
    assert [one.pointer for one in refused.value.fields] == ["/resources/processes"]


class TestClients:
    def planned(self, mode: str, units: tuple[int, ...] = (50_000, 80_000), given: int | None = None) -> Any:
        asked = {
            "dataset": None,
            "optimizer": SELECT | {"mode": mode, "units": given},
            "federation": {"datasets": [f"ds_{place}" for place in range(len(units))]},
        }
        spec = JobSpec.model_validate(planned(mode=mode).spec.model_dump() | asked)
        clients = [
            PublicSite(f"ds_{place}", COLUMNS, count, "record", Adjacency.REPLACE_ONE, TERMS)
            for place, count in enumerate(units)
        ]
        return plan_federation(spec, clients)

    @pytest.mark.parametrize("mode", ["sound", "printed", "hessian_products"])
    def test_all_test_alike_by_the_units_of_the_smallest(self, mode: str) -> None:
        found = self.planned(mode)
        one, other = (client.spec.optimizer for client in found.clients)
        assert one == other
        assert (one.sites, one.units, one.candidates) == (2, 50_000, 3)

    def test_none_claims_by_more_units_than_it_has(self) -> None:
        with pytest.raises(Invalid, match="ds_0") as refused:
            self.planned("sound", given=60_000)
        assert refused.value.fields[0].pointer == "/optimizer/units"

    @pytest.mark.parametrize("mode", ["above_threshold", "exponential"])
    def test_scores_are_for_one_dataset(self, mode: str) -> None:
        with pytest.raises(Invalid, match="mode") as refused:
            self.planned(mode)
        assert "one side only" in refused.value.fields[0].detail
