"""The planner: nothing left open, prices that add up, contradictions and absent features named."""

from collections import Counter
from decimal import Decimal
from math import sqrt
from typing import Any

import pytest

from core.base.errors import Invalid
from core.data.columns import BinaryColumn, CategoryColumn, NumberColumn
from core.mechanisms.gaussian import LARGEST_PARAMETER, SMALLEST_PARAMETER
from core.methods.kl.repeats import Repeats
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.methods.m_estimation.noisy_newton.options import NewtonOptions
from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan
from core.models.modelling import encoded_loss
from core.oracle.noise import grid_for
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, chunks, plan_job
from core.privacy.budget import plan_orders
from core.privacy.conversions import gdp_delta
from core.privacy.events import Event, Gaussian, Repeated, compose
from core.privacy.facts import Adjacency
from core.privacy.totals import total_rho
from tests.support.unchecked import accepting

COLUMNS = (
    NumberColumn(name="age", lower=18, upper=95),
    NumberColumn(name="income", lower=0, upper=100_000, centre=20_000),
    CategoryColumn(name="job", values=("a", "b", "c")),
    BinaryColumn(name="y", values=("no", "yes")),
)
LINEAR = {"kind": "linear", "target": "income", "features": ["age"]}
TERMS = plan_orders(Decimal(3), Decimal("1e-6"))


def plan(adjacency: Adjacency = Adjacency.ZERO_OUT, units: int = 5000, **changes: Any) -> PlannedJob:
    body = {
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": {"kind": "noisy_newton"},
        "privacy": {"mu": "0.5"},
    } | changes
    spec = JobSpec.model_validate(accepting(body))
    return plan_job(spec, columns=COLUMNS, units=units, adjacency=adjacency, terms=TERMS)


def flat(event: Event) -> Counter[float]:
    """Count the noise multipliers of Gaussian answers."""
    if isinstance(event, Gaussian):
        return Counter([event.sigma])
    if isinstance(event, Repeated):
        assert isinstance(event.event, Gaussian)
        return Counter({event.event.sigma: event.times})
    return sum((flat(part) for part in event.events), Counter())  # type: ignore[union-attr]  # composed


def worth(schedule: tuple[Event, ...]) -> float:
    counted = sum((flat(event) for event in schedule), Counter())
    return sqrt(sum(times / sigma**2 for sigma, times in counted.items()))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("kind", ["noisy_gd", "noisy_newton"])
@pytest.mark.parametrize(
    "model", [{"kind": "logistic", "target": "y"}, {"kind": "linear", "target": "income", "features": ["age", "job"]}]
)
@pytest.mark.parametrize("intervals", [True, False])
def test_nothing_is_left_open_and_the_price_is_the_target(
    adjacency: Adjacency, kind: str, model: dict[str, Any], intervals: bool
) -> None:
    planned = plan(adjacency, optimizer={"kind": kind}, model=model, inference={"intervals": intervals})
    assert worth(planned.schedule) == pytest.approx(0.5, rel=1e-9)
    assert len(planned.schedule) <= 100
    still_open = {name for name, value in planned.spec.optimizer.model_dump().items() if value is None}
    assert still_open <= NewtonOptions.model_fields.keys(), "options that nobody asked for stay out"
    assert planned.spec.model.weights.bound is not None
    if intervals:
        assert None not in planned.spec.inference.model_dump().values()
    again = plan_job(planned.spec, columns=COLUMNS, units=5000, adjacency=adjacency, terms=TERMS)
    assert again == planned, "a filled job is its own plan"
    assert PlannedJob.model_validate_json(planned.model_dump_json()) == planned
    assert planned.bound.value is not None
    assert planned.bound.vacuous == (planned.bound.value >= planned.bound.trivial)


def test_the_weight_bound_spares_ordinary_rows_and_is_public() -> None:
    planned = plan()
    assert planned.spec.model.weights.bound == pytest.approx(2.0)  # the intercept and three columns
    ordinary = {"age": 95, "income": 30_000, "job": "c"}
    assert sum(x * x for x in planned.design.encode_row(ordinary)) <= planned.spec.model.weights.bound**2 + 1e-12


def test_an_epsilon_is_meant_at_the_scopes_delta() -> None:
    planned = plan(privacy={"epsilon": "1"})
    assert gdp_delta(1.0, worth(planned.schedule)) <= 1e-6
    assert gdp_delta(1.0, worth(planned.schedule) * 1.001) > 1e-6


def test_the_huber_scale_is_declared_in_the_targets_units() -> None:
    planned = plan(model={"kind": "linear", "target": "income", "features": ["age"], "loss": {"scale": 10_000}})
    assert encoded_loss(planned.spec.model, planned.design).scale == pytest.approx(10_000 / 50_000)
    assert planned.facts.curvature_bound == pytest.approx(planned.spec.model.weights.bound**2 / 0.2)


def test_replace_one_doubles_the_noise_on_gradients_and_raises_that_on_matrices() -> None:
    one, other = plan(), plan(Adjacency.REPLACE_ONE)
    assert isinstance(one.spec.optimizer, NoisyNewtonPlan)
    gradient, curvature = one.spec.optimizer.questions()
    assert gradient.sensitivity(other.facts) == pytest.approx(2 * gradient.sensitivity(one.facts))
    assert curvature.sensitivity(other.facts) == pytest.approx(sqrt(2) * curvature.sensitivity(one.facts))


def newton(planned: PlannedJob) -> NoisyNewtonPlan:
    assert isinstance(planned.spec.optimizer, NoisyNewtonPlan)
    return planned.spec.optimizer


@pytest.mark.parametrize("memory", [0, 1])
def test_the_paper_asks_for_a_hessian_at_every_step_and_takes_care_where_they_are_noisy(memory: int) -> None:
    settings = {"kind": "noisy_newton", "memory": memory}
    small, large = newton(plan(units=500, optimizer=settings)), newton(plan(units=1_000_000, optimizer=settings))
    assert small.eigenvalue_floor > large.eigenvalue_floor
    if memory == 0:
        assert (small.damping, large.damping) == (0.5, 1.0)
        assert {small.late_steps, large.late_steps} == {0}
        assert len({one.sigma for one in (*small.gradients(), *small.curvatures())}) == 2
    else:
        assert (small.damping, large.damping) == (0.5, 1.0)
        assert min(small.late_steps, large.late_steps) > 0
        assert small.growth == 1 < large.growth


def test_the_last_gradients_take_most_where_hardly_any_noise_is_left() -> None:
    loud, quiet = plan(units=100_000), plan(units=100_000, privacy={"mu": "1000"})
    assert newton(loud).curvature_share > 0.5 > newton(quiet).curvature_share
    assert newton(quiet).last_gradient_share > 0.95
    assert newton(quiet).late_steps < newton(loud).late_steps


def test_a_printed_correction_plans_the_printed_method() -> None:
    settings = newton(plan(inference={"correction": "printed"}))
    assert (settings.memory, settings.late_steps, settings.averaged) == (0.0, 0, 1)


def test_pooled_noise_is_that_of_the_weighted_mean() -> None:
    settings = newton(plan(optimizer={"kind": "noisy_newton", "steps": 12, "hessians": 5, "memory": 0.6, "growth": 3}))
    public = plan().facts
    precisions = [(one.sigma * one.sensitivity(public)) ** -2 for one in settings.curvatures()]
    for last, deviation in enumerate(settings.matrix_deviations(public)):
        weights = [0.6 ** (last - step) * precisions[step] for step in range(last + 1)]
        variance = sum(weight**2 / one for weight, one in zip(weights, precisions, strict=False)) / sum(weights) ** 2
        assert deviation == pytest.approx(sqrt(variance), rel=1e-12)
    floors = settings.floors(public)
    assert floors[-1] == settings.eigenvalue_floor
    assert floors == tuple(sorted(floors, reverse=True))


@pytest.mark.parametrize("intervals", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 6, 7, 300])
def test_any_number_of_steps_can_be_asked_for(steps: int, intervals: bool) -> None:
    settings = {"kind": "noisy_newton", "steps": steps}
    planned = plan(optimizer=settings, inference={"intervals": intervals})
    assert worth(planned.schedule) == pytest.approx(0.5, rel=1e-9)
    assert len(planned.schedule) <= 99
    assert len(newton(planned).gradients()) == steps


@pytest.mark.parametrize("steps", [1, 97, 98, 1000, 20_000])
def test_chunks_hold_every_step(steps: int) -> None:
    cut = chunks([Gaussian(sigma=2.0)] * steps)
    assert len(cut) <= 97
    assert sum((flat(chunk) for chunk in cut), Counter()) == Counter({2.0: steps})


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"model": {"kind": "logistic", "target": "nothing"}}, "/model/target"),
        ({"model": {"kind": "logistic", "target": "age"}}, "/model/target"),
        ({"model": {"kind": "linear", "target": "job"}}, "/model/target"),
        ({"model": {"kind": "logistic", "target": "y", "features": ["age", "nothing"]}}, "/model/features/1"),
        ({"optimizer": {"kind": "noisy_gd", "mu": 0.6}}, "/optimizer/mu"),
        ({"optimizer": {"kind": "noisy_gd", "mu": 0.6}, "inference": {"intervals": False}}, "/optimizer/mu"),
        ({"optimizer": {"kind": "noisy_newton", "start": [0.0, 1.0]}}, "/optimizer/start"),
        ({"optimizer": {"kind": "noisy_newton", "steps": 8, "hessians": 9}}, "/optimizer/hessians"),
        ({"optimizer": {"kind": "noisy_newton", "steps": 8, "hessians": 6, "averaged": 3}}, "/optimizer/averaged"),
        ({"optimizer": {"kind": "noisy_newton", "last_gradient_share": 1}}, "/optimizer/last_gradient_share"),
        pytest.param(
            {"optimizer": {"kind": "noisy_newton", "steps": 9000, "hessians": 9000, "growth": 8}},
            "/privacy/mu",
            marks=pytest.mark.slow,
        ),
        (
            {"optimizer": {"kind": "noisy_newton", "memory": 1}, "inference": {"correction": "printed"}},
            "/inference/correction",
        ),
        ({"inference": {"curvature_sigma": 1.0}}, "/inference/curvature_sigma"),
        ({"privacy": {"mu": "1e-9"}}, "/privacy/mu"),
        ({"privacy": {"rho": "1e-20"}}, "/privacy/rho"),
        ({"optimizer": {"kind": "noisy_gd", "mu": 1e-10}, "inference": {"intervals": False}}, "/optimizer/mu"),
        (
            {
                "inference": {"shares": {"estimate": 1 - 2e-9, "curvature": 1e-9, "score": 1e-9}},
                "privacy": {"mu": "1e-5"},
            },
            "/inference/shares",
        ),
        ({"model": {"kind": "logistic", "target": "y", "weights": {"bound": 1e-60}}}, "/model"),
        ({"model": LINEAR | {"weights": {"power": 1}}}, "/model/weights/power"),
        ({"model": LINEAR | {"weights": {"power": 1}}, "optimizer": {"kind": "noisy_gd"}}, "/model/weights/power"),
        (
            {"model": LINEAR | {"weights": {"power": 1}}, "inference": {"intervals": False}},
            "/model/weights/power",
        ),
        ({"model": LINEAR | {"weights": {"kind": "clip"}}}, "/model/weights/kind"),
        (
            {"model": LINEAR | {"weights": {"kind": "clip"}}, "optimizer": {"kind": "noisy_gd"}},
            "/inference/intervals",
        ),
        ({"model": LINEAR | {"loss": {"kind": "squared"}, "weights": {"kind": "schweppe"}}}, "/model/weights/kind"),
        ({"model": LINEAR | {"loss": {"joint": True}, "weights": {"kind": "schweppe"}}}, "/model/weights/kind"),
        ({"optimizer": {"kind": "sufficient_statistics"}, "inference": {"intervals": False}}, "/optimizer/kind"),
        (
            {
                "model": LINEAR | {"loss": {"kind": "squared"}, "weights": {"kind": "clip"}},
                "optimizer": {"kind": "sufficient_statistics"},
            },
            "/inference/intervals",
        ),
        (
            {"model": LINEAR | {"loss": {"joint": True}}, "optimizer": {"kind": "noisy_gd", "start": [0.0, 0.0, 0.0]}},
            "/optimizer/start",
        ),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        plan(**changes)
    assert [field.pointer for field in refusal.value.fields] == [pointer]


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        (LINEAR | {"weights": {"power": 1}}, "noisy_gd"),
        (LINEAR | {"weights": {"kind": "clip"}}, "noisy_gd"),
        ({"kind": "logistic", "target": "y", "weights": {"kind": "clip"}}, "noisy_gd"),
        (LINEAR | {"loss": {"kind": "squared"}, "weights": {"kind": "clip"}}, "noisy_gd"),
        (LINEAR | {"loss": {"kind": "squared"}, "weights": {"kind": "clip"}}, "sufficient_statistics"),
    ],
)
def test_without_a_bound_on_hessians_estimates_alone_are_planned(model: dict[str, Any], optimizer: str) -> None:
    planned = plan(model=model, optimizer={"kind": optimizer}, inference={"intervals": False})
    assert worth(planned.schedule) == pytest.approx(0.5, rel=1e-9)
    settings = planned.spec.optimizer
    if isinstance(settings, NoisyGradientDescent):
        largest = planned.design.norm_bound
        loss = encoded_loss(planned.spec.model, planned.design)  # type: ignore[arg-type]  # no network
        assert settings.step_size is not None
        assert settings.step_size >= 0.99 / (loss.curvature_peak * largest**2), "no row's Hessian is larger"
        assert settings.step_size <= 1 / (loss.curvature_peak * min(1.0, largest))


NEW_MODELS = [
    {"kind": "poisson", "target": "income", "features": ["age"]},
    {"kind": "multinomial", "target": "job", "features": ["age"]},
    LINEAR | {"loss": {"joint": True}},
    LINEAR | {"loss": {"kind": "smoothed_huber"}, "weights": {"power": 3}},
    LINEAR | {"loss": {"kind": "ostrovskii_bach"}, "weights": {"kind": "schweppe"}},
    LINEAR | {"ridge": 0.1},
]


@pytest.mark.parametrize("model", NEW_MODELS)
@pytest.mark.parametrize("kind", ["noisy_gd", "noisy_newton"])
def test_every_model_is_planned_whole(model: dict[str, Any], kind: str) -> None:
    planned = plan(model=model, optimizer={"kind": kind}, privacy={"mu": "1"})
    assert worth(planned.schedule) == pytest.approx(1.0, rel=1e-9)
    assert planned.spec.inference.plausible_radius == (1.0 if model["kind"] == "linear" else 3.0)
    again = plan_job(planned.spec, columns=COLUMNS, units=5000, adjacency=Adjacency.ZERO_OUT, terms=TERMS)
    assert again == planned, "a filled job is its own plan"


def test_an_unknown_scale_starts_at_the_planned_one_and_never_falls_below_a_public_floor() -> None:
    planned = plan(model=LINEAR | {"loss": {"joint": True}})
    assert planned.facts.scale is not None
    assert planned.facts.scale.start == pytest.approx(2 / 8), "an eighth of the declared range, in halves of it"
    assert planned.facts.scale.floor == pytest.approx(0.01 * planned.facts.scale.start)
    assert planned.facts.dimension == 3


@pytest.mark.parametrize("mu", ["1e-9", "1e-7", "1e-6", "1e-3", "1000", "999999"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("units", [10, 5000, 100_000_000])
def test_what_is_planned_the_lattice_carries(mu: str, adjacency: Adjacency, units: int) -> None:
    """A refusal costs nothing; the trainer's assertion would cost the reservation."""
    try:
        planned = plan(adjacency, units, privacy={"mu": mu})
    except Invalid:
        assert float(mu) < 1e-5 or float(mu) > 1e5
        return
    for question in (*planned.spec.optimizer.questions(), *planned.spec.inference.questions()):
        parameter = grid_for(question, planned.facts, units).parameter(question.sigma)
        assert SMALLEST_PARAMETER <= parameter <= LARGEST_PARAMETER


@pytest.mark.parametrize(("asked", "device"), [("auto", "cpu"), ("cpu", "cpu"), ("cuda", "cuda")])
def test_several_processes_run_on_the_cpu_at_the_price_of_one(asked: str, device: str) -> None:
    one, several = plan(), plan(resources={"processes": 4, "device": asked})
    assert several.spec.resources.served_by == device
    assert several.schedule == one.schedule
    assert plan(resources={"processes": 1, "device": asked}).spec.resources.device == asked


RIDGE = {"kind": "logistic", "target": "y", "ridge": 0.05}
PLAIN = {"kind": "logistic", "target": "y"}
PRACTICAL = {"round_schedule": "practical", "inner_steps": "practical"}


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    ("optimizer", "model"),
    [
        ({"kind": "kl_spider", "variant": "calibrated"}, RIDGE),
        ({"kind": "kl_spider", "variant": "calibrated", "condition": {"gamma": 1.0, "kappa": 1.4}}, RIDGE),
        ({"kind": "proximal_point"}, RIDGE),
        ({"kind": "proximal_point", "max_inner": 50, **PRACTICAL}, RIDGE),
        ({"kind": "adaptive_gd"}, PLAIN),
        ({"kind": "adaptive_gd", "step_cap": 40, "select": "exponential"}, PLAIN),
        ({"kind": "adaptive_gd", "start": "random"}, PLAIN),
        ({"kind": "noisy_gd", "start": "random"}, PLAIN),
    ],
    ids=lambda value: value["kind"],
)
def test_a_method_without_intervals_is_planned_whole_and_costs_at_most_its_target(
    adjacency: Adjacency, optimizer: dict[str, Any], model: dict[str, Any]
) -> None:
    planned = plan(
        adjacency, 200_000, optimizer=optimizer, model=model, inference={"intervals": False}, privacy={"mu": "2"}
    )
    rho = total_rho(compose(Counter(planned.schedule)))
    assert rho is not None
    assert 0.1 * 2 < rho <= 2 * (1 + 1e-9)
    assert 1 <= len(planned.schedule) <= 100
    again = plan_job(planned.spec, columns=COLUMNS, units=200_000, adjacency=adjacency, terms=TERMS)
    assert again == planned, "a filled job is its own plan"
    assert PlannedJob.model_validate_json(planned.model_dump_json()) == planned
    assert planned.spec.optimizer.passes(planned.facts) >= 2 * planned.spec.optimizer.steps


@pytest.mark.parametrize("kind", ["kl_spider", "proximal_point", "adaptive_gd", "sufficient_statistics"])
@pytest.mark.parametrize("inference", [{}, {"intervals": True}], ids=["unsaid", "asked"])
def test_a_method_without_intervals_refuses_them_whether_asked_or_left_unsaid(
    kind: str, inference: dict[str, Any]
) -> None:
    with pytest.raises(Invalid) as refused:
        plan(optimizer={"kind": kind}, model=RIDGE, inference=inference)
    assert "/inference/intervals" in {field.pointer for field in refused.value.fields}


@pytest.mark.parametrize("times", [1, 97, 98, 1000, 3 * 97])
def test_equal_events_are_counted_as_if_they_were_gone_through(times: int) -> None:
    event = Gaussian(sigma=7.0)
    assert chunks(Repeats(event, times)) == chunks([event] * times)
