"""The end of a federated job: the notices of its people, and what its model's retraction takes away."""

from collections import Counter

import pytest
from sqlalchemy import func, select

from core.base.errors import Conflict, Forbidden, ModelRetracted, NotFound
from core.db.model_reads import ModelFilter
from core.db.notice_tables import Delivery
from core.db.tables import Checkpoint, Job, Model
from core.jobs import federations as store
from core.jobs import jobs as rows
from core.operations.retention import retire_models
from core.service import jobs, models, notices, trained, webhooks
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.service.test_federations import RELEASE, federated, make, pay, submit, take
from tests.support.api import COLUMNS
from tests.support.store import give, open_place
from tests.support.verified import verified_here

KINDS = ("job.ended", "approval.waiting")


def hooked(context: Context, people: list[Caller]) -> dict[str, str]:
    """Give each person one webhook; return its owner by its id."""
    url = "https://8.8.8.8/x"  # nothing is sent here
    return {webhooks.create(context, one, url, KINDS).id: one.id for one in people}


def noticed(context: Context, hooks: dict[str, str]) -> Counter[tuple[str, str, str]]:
    """Look for events three times; return who got which event about which job, and how often."""
    for _ in range(3):
        notices.read(context)
    with context.database.read() as session:
        found = session.execute(select(Delivery.target_id, Delivery.kind, Delivery.data)).all()
    return Counter((hooks[one.target_id], one.kind, one.data["job"]) for one in found)


def finish(context: Context, job_id: str, chunks: int = 1) -> str:
    """Have every site of the federated job that waits pay, and hand in the release; return the model."""
    claim = take(context.database)
    assert claim.claim.job_id == job_id
    for chunk in range(chunks):
        pay(context.database, claim, chunk)
    made = [context.database.transaction(store.finish, client.claim, RELEASE) for client in claim.clients]
    (model,) = [one for one in made if one is not None]
    return model.id


class TestNotices:
    def test_each_owner_hears_of_the_end_once(self, context: Context, someone: Someone) -> None:
        three, stranger = make(context, someone), someone("owner")
        with context.database.write() as session:  # the first owner has two of the four datasets
            more = open_place(session, three.owners[0].id, COLUMNS, units=100)
            give(session, more.dataset_id, three.analyst.id)
        hooks = hooked(context, [three.analyst, *three.owners, stranger])
        names = [*three.datasets, more.dataset_id]
        job = submit(context, three.analyst, federated(names))["id"]
        finish(context, job)
        people = [three.analyst, *three.owners]
        assert noticed(context, hooks) == {(one.id, "job.ended", job): 1 for one in people}

    @pytest.mark.parametrize("end", ["cancelled", "failed"])
    def test_an_end_without_a_model_is_heard_of_too(self, context: Context, someone: Someone, end: str) -> None:
        three = make(context, someone)
        hooks = hooked(context, [three.analyst, *three.owners])
        job = submit(context, three.analyst, federated(three.datasets))["id"]
        if end == "cancelled":
            jobs.cancel(context, three.analyst, job)
        else:
            claim = take(context.database)
            for client in claim.clients:
                context.database.transaction(rows.fail, client.claim, "trainer-failed", charge="all")
            context.database.transaction(rows.release_claim, claim.claim)
        assert jobs.get(context, three.analyst, job).state == end
        assert noticed(context, hooks) == {(one.id, "job.ended", job): 1 for one in [three.analyst, *three.owners]}

    def test_an_owner_whose_dataset_was_left_out_hears_of_the_end(self, context: Context, someone: Someone) -> None:
        three = make(context, someone)
        hooks = hooked(context, three.owners)
        job = submit(context, three.analyst, federated(three.datasets, 2))["id"]
        (client, *_) = jobs.get(context, three.owners[0], job).federation.sites
        jobs.cancel(context, three.owners[0], client.job)
        assert noticed(context, hooks) == Counter(), "the others go on"
        finish(context, job)
        assert noticed(context, hooks) == {(one.id, "job.ended", job): 1 for one in three.owners}

    def test_each_owner_that_is_asked_hears_that_a_release_waits(self, context: Context, someone: Someone) -> None:
        three = make(context, someone, ({"approval": True}, {}, {"approval": True}))
        first, second, third = three.owners
        hooks = hooked(context, [three.analyst, *three.owners])
        job = submit(context, three.analyst, federated(three.datasets))["id"]
        model = finish(context, job)
        ended = {(one.id, "job.ended", job): 1 for one in [three.analyst, *three.owners]}
        waiting = {(one.id, "approval.waiting", job): 1 for one in (first, third)}
        assert noticed(context, hooks) == ended | waiting
        models.judge(context, first, model, "approved")
        assert noticed(context, hooks) == ended | waiting, "the other one was told before"
        models.judge(context, third, model, "approved")
        late = hooked(context, [second, third])
        assert noticed(context, hooks | late) == ended | waiting, "nothing waits any more"


class TestRetraction:
    @pytest.mark.parametrize("who", ["analyst", "owner"])
    def test_each_owner_and_the_submitter_take_the_model_back(
        self, context: Context, someone: Someone, who: str
    ) -> None:
        three, auditor, stranger = make(context, someone), someone("auditor"), someone("owner")
        job = submit(context, three.analyst, federated(three.datasets))["id"]
        model = finish(context, job, chunks=2)
        with pytest.raises(Forbidden):
            trained.retract(context, auditor, model)
        with pytest.raises(NotFound):
            trained.retract(context, stranger, model)
        assert not trained.may_retract(context, auditor, model)
        caller = three.analyst if who == "analyst" else three.owners[2]
        assert trained.may_retract(context, caller, model)
        answer = trained.retract(context, caller, model)
        assert (answer.id, answer.approval, answer.dataset, answer.dataset_name) == (model, "retracted", None, None)
        assert trained.retract(context, three.owners[1], model) == answer
        for reader in (three.analyst, *three.owners, auditor):
            with pytest.raises(ModelRetracted):
                models.get(context, reader, model)
            seen = jobs.get(context, reader, job)
            assert (seen.state, seen.approval, seen.result) == ("succeeded", "retracted", None)
        listed = trained.page(context, three.owners[0], ModelFilter(approval="retracted", job=job), None, 10)
        assert [one.id for one in listed] == [model]
        for owner, scope in zip(three.owners, three.scopes, strict=True):
            assert verified_here(context, owner, scope).ok
        with context.database.read() as session:
            assert session.get_one(Model, model).release == {}
        assert kept(context, job) == 0, "the answers, from which the figures follow, go with them"

    def test_a_release_that_one_owner_has_not_judged_is_not_taken_back(
        self, context: Context, someone: Someone
    ) -> None:
        three = make(context, someone, ({"approval": True}, {}, {"approval": True}))
        model = finish(context, submit(context, three.analyst, federated(three.datasets))["id"])
        models.judge(context, three.owners[0], model, "approved")
        with pytest.raises(Conflict, match="is pending"):
            trained.retract(context, three.owners[0], model)
        with pytest.raises(NotFound):
            trained.retract(context, three.owners[1], model)
        models.judge(context, three.owners[2], model, "approved")
        assert trained.retract(context, three.owners[1], model).approval == "retracted"

    def test_a_model_that_is_kept_no_more_takes_the_states_of_all_sites(
        self, context: Context, someone: Someone
    ) -> None:
        three = make(context, someone)
        job = submit(context, three.analyst, federated(three.datasets))["id"]
        model = finish(context, job, chunks=2)
        assert kept(context, job) == 3
        assert context.database.transaction(retire_models, 0.0) == [model]
        assert kept(context, job) == 0


def kept(context: Context, job_id: str) -> int:
    """Return the number of states that a federated job and its sites keep."""
    together = select(Job.id).where((Job.id == job_id) | (Job.federation_id == job_id))
    with context.database.read() as session:
        return session.execute(select(func.count()).where(Checkpoint.job_id.in_(together))).scalar_one()
