"""Jobs about released models: the models that may be named, their lifetime, and the parts that a trainer receives."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from core.base.errors import Conflict, Invalid, Refusal
from core.data.columns import Column
from core.db.tables import Dataset, Job
from core.inference.error_bound import ErrorBound
from core.inference.released import Released, fitted_loss_of
from core.jobs import jobs as rows
from core.jobs.subjects import subjects_of
from core.ledger import ledger
from core.ledger.claims import Claim
from core.operations import retention
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.facts import Adjacency
from core.privacy.reports import report
from core.service import estimates, intake, jobs, models, trained
from core.service.context import Caller, Context
from core.service.estimates import EstimateSpec
from core.service.quotes import COLUMNS
from core.training.points import points_of
from tests.service.conftest import Someone
from tests.service.test_federations import described
from tests.support import entry
from tests.support.api import COLUMNS as DECLARED
from tests.support.released import UNTOUCHED
from tests.support.store import TERMS

MODEL: dict[str, Any] = {
    "kind": "logistic",
    "target": "y",
    "features": ["age"],
    "loss": {"kind": "brier"},
    "weights": {"kind": "clip"},
}
CHECK_BOUND: dict[str, Any] = {
    "kind": "check_bound",
    "mode": "given",
    "hessian_smoothness": 0.001,
    "batch": 10,
    "difference_batch": 1,
    "restart_drift": 0.1,
    "step_size": 1.0,
    "error_radius": 0.05,
    "escape_distance": 0.5,
    "round_steps": 3,
    "rounds": 2,
}
PLAIN: dict[str, Any] = {"kind": "noisy_gd", "steps": 3}
THETA = (0.25, -0.5)
LEASE = 600.0

on_one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""Of what is not the database's to do."""


def spec(dataset: str, *named: str, model: dict[str, Any] = MODEL, **optimizer: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "dataset": dataset,
            "model": model,
            "models": named,
            "optimizer": optimizer or CHECK_BOUND,
            "privacy": {"mu": "0.05"},
            "inference": {"intervals": False},
        }
    )


def describe(planned: PlannedJob, **changed: Any) -> Released:
    """Return a release of a planned job, as its trainer would write it, at `THETA`."""
    model = planned.spec.model
    assert model.kind != "network"
    assert model.weights.bound is not None
    fields: dict[str, Any] = {
        "kind": model.kind,
        "target": model.target,
        "optimizer": planned.spec.optimizer.kind,
        "units": planned.facts.units,
        "steps": 1,
        "status": "finished",
        "level": 0.95,
        "correction": "stationary",
        "design": planned.design,
        "theta": THETA,
        "covariance": None,
        "flags": UNTOUCHED,
        "loss": fitted_loss_of(model, planned.design),
        "weights": model.weights,
        "ridge": model.ridge,
    }
    return Released.model_validate(fields | changed)


class House:
    """A service with an owner, who has datasets, and models that jobs on them released."""

    def __init__(self, context: Context, owner: Caller) -> None:
        self.context, self.owner = context, owner

    def dataset(
        self, columns: Sequence[dict[str, Any]] = DECLARED, scope: str | None = None, owner: Caller | None = None
    ) -> str:
        """Store a dataset of which nothing is ever read, in a scope of its own unless one is named."""
        holder = owner or self.owner
        with self.context.database.write() as session:
            if scope is None:
                declared = {"epsilon": str(TERMS.epsilon), "delta": str(TERMS.delta)}
                scope = ledger.open_scope(
                    session,
                    owner_id=holder.id,
                    unit="record",
                    adjacency="zero_out",
                    units=100,
                    terms=TERMS,
                    declared=declared,
                ).id
            return described(session, holder, scope, columns)

    def submit(self, asked: JobSpec, caller: Caller | None = None) -> str:
        return str(entry.submit(self.context, caller or self.owner, asked, uuid4().hex).body["id"])

    def finish(self, job_id: str, approval: str = "not-needed", **changed: Any) -> str:
        """End a queued job with a model, by the store's own functions."""
        database = self.context.database
        with database.read() as session:
            job = session.get_one(Job, job_id)
            dataset = session.get_one(Dataset, job.dataset_id)
            terms = ledger.balance(session, job.scope_id).terms
            columns: list[Column] = COLUMNS.validate_python(dataset.columns)
            stored = JobSpec.model_validate(job.spec)
        assert dataset.rows is not None
        planned = plan_job(stored, columns=columns, units=dataset.rows, adjacency=Adjacency.ZERO_OUT, terms=terms)
        told = report(planned.schedule[0], terms, Adjacency.ZERO_OUT, declared=True)
        claim = self.claim()
        assert claim.job_id == job_id, "no other waits"
        release = describe(planned, privacy=told, **changed)
        return database.transaction(rows.finish, claim, release.model_dump(mode="json"), approval).id

    def claim(self) -> Claim:
        claim = self.context.database.transaction(rows.claim, "test", LEASE)
        assert claim is not None
        return claim

    def model(self, dataset: str, approval: str = "not-needed", **changed: Any) -> str:
        """Return a model of ordinary steps on a dataset."""
        return self.finish(self.submit(spec(dataset, **PLAIN)), approval, **changed)

    def faults(self, asked: JobSpec, caller: Caller | None = None) -> list[tuple[str, str]]:
        """Return what is wrong with a job, which an estimate tells as a submission does."""
        with pytest.raises(Refusal) as refused:
            estimates.estimate(self.context, caller or self.owner, EstimateSpec.model_validate(asked.model_dump()))
        with pytest.raises(type(refused.value)) as again:
            self.submit(asked, caller)
        assert again.value.fields == refused.value.fields
        assert isinstance(refused.value, Invalid)
        return [(one.pointer, one.detail) for one in refused.value.fields]


@pytest.fixture
def house(context: Context, someone: Someone) -> House:
    return House(context, someone("owner"))


def test_a_job_says_what_it_is_about_and_its_trainer_gets_the_points(house: House) -> None:
    seen, fresh = house.dataset(), house.dataset()
    named = house.model(seen, iterates=((0.5, 0.5), THETA))
    asked = spec(fresh, named)
    told = estimates.estimate(house.context, house.owner, EstimateSpec.model_validate(asked.model_dump()))
    assert told.steps == 7
    assert told.plan["figures"]["units_of_a_certificate"] == 24
    job = house.submit(asked)
    assert jobs.get(house.context, house.owner, job).models == [named]
    assert jobs.spec_of(house.context, house.owner, job).models == (named,)
    with house.context.database.read() as session:
        stored = session.get_one(Job, job)
        dataset = session.get_one(Dataset, fresh)
        terms = ledger.balance(session, stored.scope_id).terms
        subjects = subjects_of(session, stored)
        columns = COLUMNS.validate_python(dataset.columns)
        filled = JobSpec.model_validate(stored.spec)
    assert subjects is not None
    assert subjects.records == "different_people"
    planned = plan_job(filled, columns=columns, units=100, adjacency=Adjacency.ZERO_OUT, terms=terms)
    points = points_of(planned, subjects, {})
    assert points is not None
    assert points.tolist() == [[0.5, 0.5], list(THETA)], "a model with iterates stands for all of them"
    model = house.finish(job, error_bound=certificate_of(named))
    assert models.get(house.context, house.owner, model).models == [named]
    (listed,) = models.get(house.context, house.owner, named).error_bounds
    assert (listed["model"], listed["job"], listed["ended_by"]) == (model, job, "escaped")
    assert models.get(house.context, house.owner, model).error_bounds == []


def certificate_of(model: str) -> ErrorBound:
    made = ErrorBound(ended_by="escaped", quantity="gradient_norm", value=None, confidence=None, variant="given")
    return made.about((model,), "different_people")


@on_one_database
def test_a_certificate_stands_with_the_model_that_it_is_about_and_with_no_other(house: House) -> None:
    """Planted: a job whose label has another model's name in it."""
    seen, fresh = house.dataset(), house.dataset()
    first, second = house.model(seen), house.model(seen)
    asked = spec(fresh, first).model_copy(update={"labels": {"beside": second}})
    house.finish(house.submit(asked), error_bound=certificate_of(first))
    assert len(models.get(house.context, house.owner, first).error_bounds) == 1
    assert models.get(house.context, house.owner, second).error_bounds == []


@on_one_database
def test_one_dataset_makes_no_claim_as_if_others_had_answered_too(house: House) -> None:
    """Errors of a mean of m sites are smaller by the root of m; a single site has none to average with."""
    seen, fresh = house.dataset(), house.dataset()
    named = house.model(seen)
    select = {"kind": "select_model", "alpha": 0.02, "gamma_star": 0.1, "smoothness": 1.0}
    for optimizer in (CHECK_BOUND, select):
        ((pointer, detail),) = house.faults(spec(fresh, named, **optimizer, sites=100))
        assert pointer == "/optimizer/sites"
        assert "one dataset" in detail
    assert house.submit(spec(fresh, named, **CHECK_BOUND, sites=1))


@on_one_database
def test_models_that_are_no_points_of_the_job_are_refused_by_their_pointers(house: House, someone: Someone) -> None:
    seen, fresh = house.dataset(), house.dataset()
    named = house.model(seen)
    assert house.faults(spec(fresh)) == [("/models", "names 0: check_bound is about 1 released models")]
    assert house.faults(spec(fresh, named, **PLAIN)) == [("/models", "names 1: noisy_gd is about no released models")]
    assert house.faults(spec(fresh, named, named))[0][0] == "/models"
    assert "does not exist" in house.faults(spec(fresh, "mdl_0"))[0][1]
    assert house.faults(spec(seen, named)) == [
        ("/models/0", f"{named} was made of the records of {seen}: name a dataset that it has not seen")
    ]
    for changed, said in (
        ({"features": ["age", "job"]}, "reads other columns"),
        ({"intercept": False}, "has an intercept where the job has none"),
        ({"ridge": 0.5}, "another ridge"),
        ({"loss": {"kind": "logistic"}}, "another loss"),
        ({"weights": {"kind": "clip", "bound": 0.5}}, "another weights"),
    ):
        ((pointer, detail),) = house.faults(spec(fresh, named, model=MODEL | changed))
        assert pointer == "/models/0"
        assert said in detail, detail
    wider = [{**DECLARED[0], "upper": 120}, *DECLARED[1:]]
    assert "column age is declared otherwise" in house.faults(spec(house.dataset(wider), named))[0][1]
    ((pointer, detail),) = house.faults(spec(fresh, named, **CHECK_BOUND, radius=0.3))
    assert "outside the radius" in detail
    stranger = someone("owner")
    own = house.dataset(owner=stranger)
    assert "does not exist" in house.faults(spec(own, named), stranger)[0][1]


JOINT: dict[str, Any] = {"kind": "linear", "target": "age", "features": ["job"]}
LOSS: dict[str, Any] = {"kind": "huber", "joint": True}


@on_one_database
def test_a_released_scale_may_be_taken_for_known(house: House) -> None:
    """Where the job estimates it too, all of theta is the point; at the released scale the coefficients are."""
    seen, fresh = house.dataset(), house.dataset()
    theta = (0.25, -0.5, 0.125, 0.3)
    trained = spec(seen, model=JOINT | {"loss": LOSS}, **PLAIN)
    named = house.finish(house.submit(trained), theta=theta)
    gradient = {"kind": "check_bound", "claims": "gradient"}
    scale = 0.3 * (95 - 18) / 2

    def points(loss: dict[str, Any]) -> Any:
        job = house.submit(spec(fresh, named, model=JOINT | {"loss": loss}, **gradient))
        with house.context.database.read() as session:
            stored = session.get_one(Job, job)
            subjects = subjects_of(session, stored)
            columns = COLUMNS.validate_python(session.get_one(Dataset, fresh).columns)
            filled = JobSpec.model_validate(stored.spec)
        planned = plan_job(filled, columns=columns, units=100, adjacency=Adjacency.ZERO_OUT, terms=TERMS)
        told = points_of(planned, subjects, {})
        assert told is not None
        return told.tolist()

    assert points(LOSS) == [list(theta)]
    assert points({"kind": "huber", "scale": scale}) == [list(theta[:-1])]
    for loss, said in (
        ({"kind": "huber"}, f"residual scale {scale!r}: give it"),
        ({"kind": "huber", "scale": 1.001 * scale}, "give it as scale in /model/loss"),
        ({"kind": "huber", "scale": scale, "c": 2.0}, "another loss"),
        ({"kind": "pseudo_huber", "scale": scale}, "another loss"),
    ):
        ((pointer, detail),) = house.faults(spec(fresh, named, model=JOINT | {"loss": loss}, **gradient))
        assert (pointer, said in detail) == ("/models/0", True), detail


@on_one_database
def test_a_model_may_be_named_once_it_is_approved(house: House) -> None:
    seen, fresh = house.dataset(), house.dataset()
    refused, named = house.model(seen, "pending"), house.model(seen, "pending")
    assert "is pending" in house.faults(spec(fresh, named))[0][1], "even by its judge"
    models.judge(house.context, house.owner, refused, "rejected")
    assert "is rejected" in house.faults(spec(fresh, refused))[0][1]
    models.judge(house.context, house.owner, named, "approved")
    assert house.submit(spec(fresh, named))


@on_one_database
def test_records_that_went_into_a_model_by_another_model_have_been_seen_too(house: House) -> None:
    first, second, third = house.dataset(), house.dataset(), house.dataset()
    named = house.model(first)
    again = house.finish(house.submit(spec(second, named)))
    assert [pointer for pointer, _ in house.faults(spec(first, again))] == ["/models/0"]
    assert house.submit(spec(third, again))


@on_one_database
def test_records_of_the_same_people_are_told_to_the_trainer(house: House) -> None:
    seen = house.dataset()
    with house.context.database.read() as session:
        scope = session.get_one(Dataset, seen).scope_id
    other = house.dataset(scope=scope)
    job = house.submit(spec(other, house.model(seen)))
    with house.context.database.read() as session:
        subjects = subjects_of(session, session.get_one(Job, job))
    assert subjects is not None
    assert subjects.records == "same_people"


def test_a_model_stays_as_long_as_a_job_about_it(house: House) -> None:
    seen, fresh = house.dataset(), house.dataset()
    named = house.model(seen)
    job, database = house.submit(spec(fresh, named)), house.context.database
    for state in ("queued", "running"):
        claim = house.claim() if state == "running" else None
        assert jobs.get(house.context, house.owner, job).state == state
        assert database.transaction(retention.retire_models, 0.0) == [], "kept for the job"
        with pytest.raises(Conflict, match="A job about this model has not ended"):
            trained.retract(house.context, house.owner, named)
        assert models.get(house.context, house.owner, named).release["theta"]
    assert claim is not None
    database.transaction(rows.release_claim, claim)
    jobs.cancel(house.context, house.owner, job)
    late = intake.planned(house.context, house.owner, spec(fresh, named), "late", jobs.ROUTE)
    assert database.transaction(retention.retire_models, 0.0) == [named]
    assert "is kept no more" in house.faults(spec(fresh, named))[0][1]
    assert isinstance(late, intake.Submission)
    (refused,) = entry.take(house.context, [late])
    assert isinstance(refused, Invalid), "it was planned before"
    assert refused.fields[0].pointer == "/models/0"


def test_a_model_is_retracted_once_the_job_about_it_has_ended(house: House) -> None:
    seen, fresh = house.dataset(), house.dataset()
    named = house.model(seen)
    job = house.submit(spec(fresh, named))
    house.context.database.transaction(rows.fail, house.claim(), "trainer-failed", charge="all")
    assert jobs.get(house.context, house.owner, job).state == "failed"
    late = intake.planned(house.context, house.owner, spec(fresh, named), "late", jobs.ROUTE)
    assert trained.retract(house.context, house.owner, named).approval == "retracted"
    assert "was retracted" in house.faults(spec(fresh, named))[0][1]
    assert isinstance(late, intake.Submission)
    (refused,) = entry.take(house.context, [late])
    assert isinstance(refused, Invalid), "it was planned before"
