"""check_bound by the gradient alone: of every model, at the price of one answer, and true as often as it says."""

from collections import Counter
from decimal import Decimal
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.base.errors import Invalid
from core.data.columns import BinaryColumn, CategoryColumn, Column, NumberColumn
from core.inference.error_bound import SEEN, ErrorBound
from core.inference.parameters import penalised_gradient
from core.inference.wording import claim as said_of
from core.losses.weights import Mallows
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.methods.fits import fit
from core.methods.registry import PLANS
from core.methods.second_order import norms
from core.methods.second_order.check_bound.spec import CheckBound, NormPlan
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.planning.federating import PublicSite, plan_federation
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian, compose
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient
from core.queries.sums.linear import LinearProblem
from core.queries.sums.network.problem import NetworkProblem
from core.records.records import Encoded
from core.training.fitting import make_problem
from tests.support.peer_groups import Mail, ThreadPeerGroup, together
from tests.support.problems import LOGISTIC, facts

TERMS = plan_orders(Decimal(3), Decimal("1e-6"))
COLUMNS: tuple[Column, ...] = (
    NumberColumn(name="x", lower=-1, upper=1),
    NumberColumn(name="y", lower=0, upper=4),
    BinaryColumn(name="b", values=("no", "yes")),
    CategoryColumn(name="c", values=("a", "b", "c")),
)
GRADIENT: dict[str, Any] = {"kind": "check_bound", "claims": "gradient"}
UNITS = 500
LAYERS = [{"kind": "linear", "units": 3}, {"kind": "activation", "of": "tanh"}, {"kind": "linear", "units": 2}]
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "logistic": ({"kind": "logistic", "target": "b", "features": ["x"], "ridge": 0.5}, "coefficients"),
    "multinomial": ({"kind": "multinomial", "target": "c", "features": ["x"]}, "coefficients"),
    "unknown scale": (
        {"kind": "linear", "target": "y", "features": ["x"], "loss": {"kind": "huber", "joint": True}, "ridge": 0.5},
        "coefficients and scale",
    ),
    "kinks": (
        {"kind": "phase_retrieval", "target": "y", "features": ["x"], "loss": {"kind": "robust"}}
        | {"weights": {"kind": "clip"}},
        "coefficients",
    ),
    "network": ({"kind": "network", "target": "b", "features": ["x"], "layers": LAYERS}, "trained parameters"),
    "low rank": (
        {"kind": "network", "target": "b", "features": ["x"], "layers": LAYERS, "train": {"lora": {"rank": 1}}},
        "trained parameters",
    ),
}


def planned(model: dict[str, Any], count: int = UNITS, **optimizer: Any) -> PlannedJob:
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_1",
            "model": model,
            "models": ["mdl_1"],
            "optimizer": GRADIENT | optimizer,
            "privacy": {"mu": "0.5"},
            "inference": {"intervals": False},
        }
    )
    return plan_job(spec, columns=COLUMNS, units=count, adjacency=Adjacency.ZERO_OUT, terms=TERMS)


def records(job: PlannedJob, seed: int = 0) -> Encoded:
    """Return encoded records of a planned job, features in the ball that its weights leave alone."""
    generator, design = np.random.default_rng(seed), job.design
    kind = np.float32 if job.spec.model.kind == "network" else np.float64
    features = generator.uniform(-1, 1, (UNITS, design.dimension)).astype(kind)
    if design.intercept:
        features[:, 0] = 1
    classes = {"multinomial": 3, "logistic": 2, "network": 2}.get(job.spec.model.kind)
    target = generator.uniform(0, 1, UNITS) if classes is None else generator.integers(0, classes, UNITS)
    codes = np.int64 if job.spec.model.kind == "network" else np.float64
    return Encoded(features=features, target=target.astype(codes), present=np.ones(UNITS, dtype=bool))


def settings_of(job: PlannedJob) -> NormPlan:
    assert isinstance(job.spec.optimizer, NormPlan)
    return job.spec.optimizer


def claimed(claim: ErrorBound | None) -> ErrorBound:
    assert claim is not None
    assert claim.norm is not None
    return claim


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_told_its_gradients_length_at_the_price_of_one_answer(kind: str) -> None:
    model, of = KINDS[kind]
    job = planned(model)
    settings, public = settings_of(job), job.facts
    point = torch.linspace(0.3, 0.7, public.dimension, dtype=torch.float64)
    payments = CountingFilter()
    oracle = FullOracle(make_problem(job, records(job), {}), public, payments, SystemGenerator())
    estimate = fit(settings, oracle, point.unsqueeze(0)).value
    assert torch.equal(estimate.theta, point), "the very point"
    assert [payments.totals[-1]] == [compose(Counter(job.schedule))] == [Gaussian(sigma=2.0)]
    claim = claimed(estimate.error_bound)
    assert claim.norm is not None
    beside = FullOracle(make_problem(job, records(job), {}), public, UnlimitedFilter(), SystemGenerator())
    exact = penalised_gradient(public, beside.ask(Gradient(sigma=1e-5), point).value, point)
    # Nine standard deviations of its noise: a false alarm in 10^18.
    assert claim.norm.told == pytest.approx(float(exact.norm()), abs=9 * claim.norm.noise)
    assert claim.norm.of == of
    added = sqrt(2 * log(20) * (claim.norm.noise**2 + _apart(public) ** 2 / UNITS))
    assert claim.value == pytest.approx(claim.norm.told + added)
    assert (claim.confidence, claim.quantity, claim.second_order) == (0.95, "gradient_norm", None)
    assert job.bound.value == pytest.approx(added, rel=1e-3)
    assert "Of curvature nothing is said" in said_of(claim.about(("mdl_1",), "different_people"))


ROUNDS: dict[str, Any] = {
    "claims": "second_order",
    "mode": "given",
    "smoothness": 2.0,
    "hessian_smoothness": 2.0,
    "batch": 40,
    "difference_batch": 10,
    "restart_drift": 0.1,
    "step_size": 0.1,
    "error_radius": 0.4,
    "escape_distance": 50.0,
    "round_steps": 3,
    "rounds": 2,
}


def test_rounds_at_low_rank_changes_move_the_trained_numbers() -> None:
    """With constants declared, as of any network; no round goes 50 away in 3 steps of a tenth of a clipped gradient."""
    job = planned(KINDS["low rank"][0], **ROUNDS)
    public, problem = job.facts, make_problem(job, records(job), {})
    assert isinstance(problem, NetworkProblem)
    plan = job.spec.optimizer
    sampling = plan.sampling(public)
    oracle = Simulation(problem, public, SimulationGenerator(1), noiseless=True, sampling=sampling)
    point = torch.linspace(0.3, 0.7, public.dimension, dtype=torch.float64)
    estimate = fit(plan, oracle, point.unsqueeze(0)).value
    assert torch.equal(estimate.theta, point)
    assert estimate.error_bound is not None
    found = estimate.error_bound.second_order
    assert found is not None
    assert (found.outcome, found.rounds, found.escapes) == ("no_escape_observed", 2, 0)


def _apart(public: Facts) -> float:
    return (public.gradient_diameter or 2 * public.gradient_bound) / 2


RUNS, DRAWN, SPREAD = 2000, 400, 0.5


def misses(tolerance: Any = norms.Tolerance) -> float:
    """Return how often a claim is false, of targets that are as spread as was declared.

    The model is the intercept alone, at a point where its probability is .7 and the truth .5. Units' gradients are .2
    give or take .5; no law of numbers so spread passes that. The noise on a norm is .3 of the sampling error.
    """
    weights = Mallows(bound=1.0)
    public = facts(DRAWN, 1, weights=weights)
    settings = CheckBound(claims="gradient", spread=SPREAD).plan(public, 1 / (0.3 * SPREAD * sqrt(DRAWN)))
    target = torch.from_numpy(np.random.default_rng(7).integers(0, 2, (RUNS, DRAWN)).astype(np.float64))
    ones = torch.ones(RUNS, DRAWN, 1, dtype=torch.float64)
    drawn = LinearProblem(ones, target, torch.ones(RUNS, DRAWN).bool(), LOGISTIC, weights)
    oracle = Simulation(drawn, public, SimulationGenerator(8))
    point = torch.full((RUNS, 1), log(0.7 / 0.3), dtype=torch.float64)
    answer = oracle.ask(settings.length_question(), point)
    claims = settings.tolerance(public)
    added = tolerance(**claims.model_dump()).at(answer.scale)
    honest = claimed(settings.claim_of_norm(public, float(answer.value[0, 0]), answer.scale, 0.0))
    if tolerance is norms.Tolerance:
        assert honest.value == max(0.0, float(answer.value[0, 0])) + added, "what is counted is what is claimed"
    return float((answer.value.clamp(min=0) + added < 0.2).double().mean())


class WithoutSampling(norms.Tolerance):
    """As if the records were the population."""

    def at(self, noise: float) -> float:
        return sqrt(self.depth) * noise


class Halved(norms.Tolerance):
    """A constant of one half too many."""

    def at(self, noise: float) -> float:
        return super().at(noise) / 2


MOST = 0.05 + 4.5 * sqrt(0.05 * 0.95 / RUNS)
"""A rate of .05 is above it once in 3 10^5 draws; the seeds are fixed."""


def test_claims_are_false_as_seldom_as_they_say() -> None:
    assert misses() <= MOST


@pytest.mark.parametrize("bug", [WithoutSampling, Halved])
def test_a_tolerance_that_is_too_small_is_seen(bug: Any) -> None:
    assert misses(bug) > MOST


def test_a_told_norm_below_zero_claims_the_tolerance() -> None:
    job = planned(KINDS["logistic"][0])
    claim = claimed(settings_of(job).claim_of_norm(job.facts, -0.5, 0.1, 0.2))
    assert claim.norm is not None
    assert claim.value == claim.norm.tolerance
    assert claim.untrained == pytest.approx(job.facts.gradient_bound + 0.2)
    assert claimed(settings_of(job).claim_of_norm(job.facts, 9.0, 0.1, 0.2)).is_vacuous


def test_a_declared_spread_makes_the_tolerance_smaller_and_is_a_condition() -> None:
    plain, spread = planned(KINDS["logistic"][0]), planned(KINDS["logistic"][0], spread=0.1)
    assert spread.bound.value is not None
    assert plain.bound.value is not None
    assert spread.bound.value < plain.bound.value / 5
    for job in (plain, spread):
        claim = settings_of(job).claim_of_norm(job.facts, 0.1, 0.01, 0.0)
        assert (norms.SPREAD in claim.conditions) == (job is spread)
        assert {norms.POPULATION, norms.APART} < set(claim.conditions)


def test_records_that_the_model_has_seen_claim_nothing() -> None:
    job = planned(KINDS["logistic"][0])
    claim = settings_of(job).claim_of_norm(job.facts, 0.1, 0.01, 0.0).about(("mdl_1",), "same_people")
    assert (claim.value, claim.conditions) == (None, (SEEN,))
    assert "nothing is claimed" in said_of(claim)


def test_planning_again_changes_nothing_and_it_survives_the_wire() -> None:
    for model, _ in KINDS.values():
        job = planned(model)
        again = plan_job(job.spec, columns=COLUMNS, units=UNITS, adjacency=Adjacency.ZERO_OUT, terms=TERMS)
        assert again == job
        assert PLANS.validate_json(job.spec.optimizer.model_dump_json()) == job.spec.optimizer


@pytest.mark.parametrize(
    ("figures", "pointer"),
    [
        ({"smoothness": 2.0}, "/optimizer/smoothness"),
        ({"rounds": 3}, "/optimizer/rounds"),
        ({"radius": 3.0}, "/optimizer/radius"),
        ({"clip": 99.0}, "/optimizer/clip"),
        ({"units": UNITS + 1}, "/optimizer/units"),
        ({"claims": "second_order", "units": 10}, "/optimizer/units"),
    ],
)
def test_what_is_of_no_use_is_refused_by_name(figures: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        planned(KINDS["logistic"][0], **figures)
    assert [one.pointer for one in refused.value.fields] == [pointer]


def test_too_few_units_are_told_how_many_would_do() -> None:
    with pytest.raises(Invalid, match="from about 9 units on") as refused:
        planned(KINDS["logistic"][0], count=4)
    assert [one.pointer for one in refused.value.fields] == ["/optimizer/failure"]
    assert planned(KINDS["logistic"][0], count=9)
    with pytest.raises(Invalid):
        planned(KINDS["logistic"][0], count=8)


@pytest.mark.parametrize(
    ("kind", "pointer", "said"),
    [
        ("logistic", "/optimizer/hessian_smoothness", "not known of convex losses"),
        ("unknown scale", "/model/loss", "give the released one"),
        ("kinks", "/optimizer/smoothness", "not known of this loss"),
        ("network", "/optimizer/smoothness", "known of no network's loss"),
    ],
)
def test_rounds_that_a_loss_has_no_constants_for_name_the_claim_that_needs_none(
    kind: str, pointer: str, said: str
) -> None:
    with pytest.raises(Invalid) as refused:
        planned(KINDS[kind][0], claims="second_order")
    first = refused.value.fields[0]
    assert first.pointer == pointer
    assert said in first.detail
    assert "claims: gradient" in first.detail


def test_clients_tell_their_gradients_for_a_mean_of_norms_is_no_norm_of_a_mean() -> None:
    """Two clients whose gradients point opposite ways, each about a half long: their mean is next to nothing."""
    model = KINDS["logistic"][0]
    asked = {"dataset": None, "optimizer": {"kind": "check_bound", "claims": "gradient"}}
    asked |= {"federation": {"datasets": ["ds_0", "ds_1"]}}
    spec = JobSpec.model_validate(planned(model).spec.model_dump() | asked)
    clients = [
        PublicSite(f"ds_{place}", COLUMNS, UNITS + place * 100, "record", Adjacency.ZERO_OUT, TERMS)
        for place in range(2)
    ]
    found = plan_federation(spec, clients)
    settings, other = (settings_of(one) for one in found.clients)
    assert settings == other
    assert (settings.sites, settings.units) == (2, UNITS)
    job, point = found.clients[0], torch.zeros(2, dtype=torch.float64)

    def work(peers: ThreadPeerGroup) -> tuple[Tensor, ErrorBound]:
        paying = SiteFilter(CountingFilter(), MessageRounds(peers))
        held = records(job)
        held.target[:] = peers.place
        own = FullOracle(make_problem(job, held, {}), job.facts, paying, SystemGenerator())
        estimate = fit(settings, FederatedOracle(own, paying, "fed_test"), point.unsqueeze(0)).value
        return estimate.theta, claimed(estimate.error_bound)

    (theta, claim), (_, second) = together(Mail(2), work)
    assert claim == second
    assert torch.equal(theta, point)
    assert claim.norm is not None
    assert claim.norm.told < 0.1, "of their mean"
    assert claim.value == pytest.approx(claim.norm.left + claim.norm.tolerance)
    assert norms.POPULATIONS in claim.conditions
    alone = settings.model_copy(update={"sites": 1}).tolerance(job.facts).at(0.0)
    shorter = settings.tolerance(job.facts).at(0.0)
    assert shorter == pytest.approx(alone / sqrt(2) * sqrt(log(1 / 0.045) / log(20)))


def test_noise_across_is_taken_away_as_far_as_is_sure() -> None:
    """A gradient of four noises' length in 500 entries, answered without sampling: false in 1 of 20 at most.

    Taking noise away with no room for chance makes a third of all claims false, and is seen. And it is worth it: the
    answered length is 22 noises and more; 12 at most are left of it.
    """
    drawn = np.random.default_rng(3).normal(size=(RUNS, 500))
    drawn[:, 0] += 4.0
    lengths = np.linalg.norm(drawn, axis=1)
    tolerance = norms.Tolerance(reach=1e-9, units=1, clients=2, failure=0.05, entries=500)
    assert tolerance.across == pytest.approx(396.163, abs=1e-3), "499 - 2 sqrt(499 ln 200)"
    left = np.array([tolerance.left(length, 1.0) for length in lengths])
    assert (left + tolerance.at(1.0) < 4.0).mean() <= MOST
    without_room = np.sqrt(np.maximum(0, lengths**2 - 499))
    assert (without_room + tolerance.at(1.0) < 4.0).mean() > MOST
    assert np.median(lengths) > 22
    assert np.median(left) < 12
