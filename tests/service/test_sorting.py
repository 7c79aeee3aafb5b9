"""Sorted lists: pages in every order walk the whole list once, and no order tells a name that is not to be read."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from sqlalchemy import delete

from core.db.model_reads import ModelFilter
from core.db.reads import JobFilter
from core.db.sorting import DATASET_COLUMNS, JOB_COLUMNS, MODEL_COLUMNS, NEWEST, Order
from core.db.tables import Access, Dataset, Job, Model, Principal
from core.jobs import jobs as rows
from core.methods.registry import source_of
from core.service import datasets, jobs, trained
from core.service.context import Caller, Context, Role
from farthing.schemas.jobs import JobView
from farthing.schemas.models import TrainedModel
from tests.service.test_federations import federated, make
from tests.service.test_federations import submit as submit_federated
from tests.support.released import released
from tests.support.store import STEP, Place, give, open_place, submit

Someone = Callable[[Role], Caller]
RELEASE = released().model_dump(mode="json")
NAMES = ("beta", None, "Alpha", "beta", None, 'zulu"; --', "\N{LATIN SMALL LETTER E WITH ACUTE}")
METHODS = ("noisy_newton", "describe")
WAYS = (False, True)


@dataclass(frozen=True)
class Bank:
    """An owner with two datasets, two analysts in one of them, and seven jobs."""

    owner: Caller
    analysts: tuple[Caller, Caller]
    places: tuple[Place, Place]


def rename(context: Context, place: Place, name: str) -> None:
    with context.database.write() as session:
        session.get_one(Dataset, place.dataset_id).name = name


def send(context: Context, place: Place, caller: Caller, grant: str | None, number: int) -> None:
    """Submit a job that has a name, or a target in place of one."""
    with context.database.write() as session:
        made = submit(session, place, (STEP,), grant=None if grant is None else (caller.id, grant))
        job = session.get_one(Job, made.id)
        job.labels = {"name": NAMES[number]} if NAMES[number] else {}
        job.spec = {**job.spec, "model": {"kind": "logistic", "target": f"y{number}"}}
        job.spec["optimizer"] = {"kind": METHODS[number % 2]}
        job.optimizer = METHODS[number % 2]


@pytest.fixture
def bank(context: Context, someone: Someone) -> Bank:
    owner, one, other = someone("owner"), someone("analyst"), someone("analyst")
    with context.database.write() as session:
        places = (open_place(session, owner.id), open_place(session, owner.id))
        grants = [give(session, places[0].dataset_id, caller.id) for caller in (one, other)]
        session.get_one(Principal, one.id).name, session.get_one(Principal, other.id).name = "Zoe", "adam"
    for place, name in zip(places, ("north", "East"), strict=True):
        rename(context, place, name)
    for number in range(3):
        send(context, places[0], one, grants[0], number)
    send(context, places[0], other, grants[1], 3)
    for number in range(4, 7):
        send(context, places[1], owner, None, number)
    return Bank(owner, (one, other), places)


def walk(context: Context, caller: Caller, order: Order, wanted: JobFilter | None = None) -> list[JobView]:
    """Return all jobs of a list, two a page."""
    found: list[JobView] = []
    while True:
        page = jobs.page(context, caller, wanted or JobFilter(), found[-1].id if found else None, 2, order)
        found += page
        if len(page) < 2:
            return found


def job_name(one: JobView) -> str:
    return (one.labels.get("name") or f"logistic of {one.model['target']}").lower()


@pytest.mark.parametrize("down", WAYS)
@pytest.mark.parametrize("column", JOB_COLUMNS)
def test_pages_of_jobs_walk_the_whole_list_in_order(context: Context, bank: Bank, column: str, down: bool) -> None:
    newest = walk(context, bank.owner, NEWEST)
    assert len(newest) == len(NAMES)
    datasets_ = {bank.places[0].dataset_id: "north", bank.places[1].dataset_id: "east"}
    keys: dict[str, Callable[[JobView], str]] = {
        "made": lambda one: one.id,
        "name": job_name,
        "dataset": lambda one: datasets_[str(one.dataset)],
        "by": lambda one: one.owner_name.lower(),
        "method": lambda one: source_of(one.method.kind).title.lower(),
    }
    found = walk(context, bank.owner, Order(column, down))
    key = keys[column]
    plain = [one for one in newest if key(one).isascii()]  # each database has an order of its own for other letters
    assert sorted(found, key=lambda one: one.id) == sorted(newest, key=lambda one: one.id), "each job once"
    assert [one for one in found if one in plain] == sorted(plain, key=key, reverse=down)


def test_a_filter_stays_while_the_list_is_sorted(context: Context, bank: Bank) -> None:
    wanted = JobFilter(dataset=bank.places[0].dataset_id)
    found = walk(context, bank.owner, Order("name", descending=True), wanted)
    assert [job_name(one) for one in found] == ["logistic of y1", "beta", "beta", "alpha"]
    assert found[1].id > found[2].id, "of two names that are alike the newest stands first"


def test_a_page_goes_on_after_a_row_that_left_the_filter(context: Context, bank: Bank) -> None:
    wanted = JobFilter(state="queued", dataset=bank.places[0].dataset_id)
    order = Order("name", descending=False)
    first = jobs.page(context, bank.owner, wanted, None, 2, order)
    context.database.transaction(rows.cancel, first[-1].id)
    rest = jobs.page(context, bank.owner, wanted, first[-1].id, 9, order)
    assert [job_name(one) for one in [*first, *rest]] == ["alpha", "beta", "beta", "logistic of y1"]


def test_a_row_of_somebody_else_is_no_place_to_go_on_from(context: Context, bank: Bank) -> None:
    """Else the place of a hidden job among one's own would tell its name."""
    one, other = bank.analysts
    theirs = jobs.page(context, other, JobFilter(), None, 9)[0].id
    order = Order("name", descending=False)
    whole = [found.id for found in jobs.page(context, one, JobFilter(), None, 9, order)]
    assert [found.id for found in jobs.page(context, one, JobFilter(), theirs, 9, order)] == whole
    assert len(whole) == 3


def test_names_that_are_not_to_be_read_sort_nothing(context: Context, bank: Bank) -> None:
    """An analyst who lost the access still sees the own jobs, but no longer the dataset's name."""
    one = bank.analysts[0]
    with context.database.write() as session:
        third = open_place(session, bank.owner.id)
        grant = give(session, third.dataset_id, one.id)
    rename(context, third, "aardvark")
    send(context, third, one, grant, 5)
    order = Order("dataset", descending=False)
    assert walk(context, one, order)[0].dataset == third.dataset_id
    with context.database.write() as session:
        session.execute(delete(Access).where(Access.dataset_id == bank.places[0].dataset_id))
    assert [found.dataset for found in walk(context, one, order)] == [bank.places[0].dataset_id] * 3 + [
        third.dataset_id
    ]


def test_a_federated_job_is_not_sorted_by_its_first_site(context: Context, someone: Someone) -> None:
    three = make(context, someone)
    whole = submit_federated(context, three.analyst, federated(three.datasets))["id"]
    with context.database.write() as session:
        session.get_one(Dataset, three.datasets[0]).name = "zebra"
        place = open_place(session, three.owners[0].id)
        grant = give(session, place.dataset_id, three.analyst.id)
    rename(context, place, "middle")
    send(context, place, three.analyst, grant, 0)
    found = walk(context, three.analyst, Order("dataset", descending=False))
    assert [one.dataset for one in found] == [None, place.dataset_id]
    assert found[0].id == whole


@pytest.mark.parametrize("down", WAYS)
@pytest.mark.parametrize("column", MODEL_COLUMNS)
def test_pages_of_models_walk_the_whole_list_in_order(context: Context, bank: Bank, column: str, down: bool) -> None:
    for _ in NAMES:
        claim = context.database.transaction(rows.claim, "worker", 60.0)
        assert claim is not None
        with context.database.write() as session:
            job = session.get_one(Job, claim.job_id)
            session.add(Model(**_model(job)))
            job.state = "succeeded"
    order, found = Order(column, down), list[TrainedModel]()
    while page := trained.page(context, bank.owner, ModelFilter(), found[-1].id if found else None, 2, order):
        found += page
    assert len({one.id for one in found}) == len(NAMES)
    keys = {
        "made": [one.id for one in found],
        "name": [one.name.lower() for one in found if one.name and one.name.isascii()],
        "dataset": [str(one.dataset_name).lower() for one in found],
        "kind": [one.kind for one in found],
        "method": [source_of(one.method).title.lower() for one in found],
        "by": [one.owner_name.lower() for one in found],
    }[column]
    assert keys == sorted(keys, reverse=down)


def _model(job: Job) -> dict[str, object]:
    return {
        "id": job.id.replace("job_", "mdl_"),
        "job_id": job.id,
        "dataset_id": job.dataset_id,
        "release": RELEASE,
        "approval": "not-needed",
        "created_at": job.created_at,
    }


@pytest.mark.parametrize("down", WAYS)
@pytest.mark.parametrize("column", DATASET_COLUMNS)
def test_pages_of_datasets_walk_the_whole_list_in_order(context: Context, bank: Bank, column: str, down: bool) -> None:
    with context.database.write() as session:
        third = open_place(session, bank.owner.id, units=7)
    rename(context, third, "Middle")
    order, found = Order(column, down), []
    while page := datasets.page(context, bank.owner, found[-1].id if found else None, 1, order):
        found += page
    keys = {
        "made": [one.id for one in found],
        "name": [one.name.lower() for one in found],
        "owner": [one.owner for one in found],
        "records": [one.rows for one in found],
    }[column]
    assert len({one.id for one in found}) == 3
    assert keys == sorted(keys, reverse=down)
