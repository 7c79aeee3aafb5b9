"""Streams of disjoint batches over two processes, in the running service: either may be killed in the middle of one.

Both processes write down which records they are about to read, and the leader each total, so that a test can compare
the integers with those of one process, and the readings with the payments.
"""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from core.db.tables import Job
from core.ledger.claims import Claim
from core.privacy.facts import Facts
from core.queries.gradients import Question
from core.records.records import open_records, read_records
from core.training.attempt import planned_of
from core.training.fitting import make_problem
from core.training.order import stored_order
from tests.support.embedded import LINEAR, Embedded, embedded, readings, toy_csv
from tests.workers.test_kills import charged, check, repeated
from tests.workers.test_processes import gone, wait_for_follower

pytestmark = pytest.mark.slow
"""Each starts jobs of two processes, which load torch each, and waits for leases to run out."""

ROWS = 55_000
SEEDS = count(80_001)
MODEL = {**LINEAR, "loss": {"kind": "squared"}, "weights": {"kind": "clip", "bound": 1.0}}
CERTIFIED: dict[str, Any] = {"kind": "one_pass_clipped_sgd", "batch": 5_000, "clip": 1.0}
"""Eleven batches of two blocks each: either process sums one."""
SEARCH: dict[str, Any] = {
    "kind": "gauss_psgd",
    "mode": "given",
    "batch": 5_000,
    "difference_batch": 9_000,
    "restart_drift": 1e6,
    "error_radius": 1e-6,
    "escape_distance": 0.4,
    "round_steps": 1,
    "rounds": 1,
    "step_size": 0.1,
    "hessian_smoothness": 1.0,
    "steps": 40,
}
"""A fresh gradient of two blocks, and changes of two parts."""
METHODS = {"certified": CERTIFIED, "search": SEARCH}
QUESTION: TypeAdapter[Question] = TypeAdapter(Question)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    observed = {"LISTEN": "1", "SLOW": "0.05"}
    with embedded(tmp_path_factory.mktemp("home"), observed=observed, max_processes=2) as running:
        yield running


@pytest.fixture(scope="module")
def dataset(service: Embedded) -> str:
    return upload(service)


def upload(service: Embedded) -> str:
    return service.upload(toy_csv(ROWS, seed=next(SEEDS)), budget={"epsilon": "20", "delta": "1e-6"})


def stream(optimizer: dict[str, Any], processes: int = 2) -> dict[str, Any]:
    return {
        "optimizer": optimizer,
        "model": MODEL,
        "privacy": {"mu": "0.2"},
        "inference": {"intervals": False},
        "resources": {"processes": processes},
    }


def told(service: Embedded, job: str, what: str) -> list[dict[str, Any]]:
    """Return the sums or totals that a job's processes wrote down, over all attempts."""
    lines = map(json.loads, (service.home / "transcripts.jsonl").read_text().splitlines())
    return [line[what] | {"rank": line["rank"]} for line in lines if line["job"] == job and what in line]


def rows_read(service: Embedded, job: str) -> Counter[int]:
    """Return how often each record was read, by either process and over all attempts."""
    return Counter(row for line in told(service, job, "sum") for row in line["rows"])


def check_integers(service: Embedded, job: str) -> None:
    """Assert that each total is the very one that a single process makes of all records, to the last bit."""
    database = service.database()
    with database.read() as session:
        row = session.get_one(Job, job)
        order = stored_order(session, Claim(row.id, row.attempt, row.fence_epoch, row.fence, row.request_id), {})
    database.dispose()
    planned = planned_of(order)
    with open_records(service.settings, order.records) as file:
        alone = make_problem(planned, read_records(file, planned.design), {})
    totals = told(service, job, "total")
    assert totals, "the leader wrote down what all of them summed"
    for one in totals:
        question, facts = QUESTION.validate_python(one["question"]), Facts.model_validate(one["facts"])
        theta, rows = torch.tensor(one["theta"], dtype=torch.float64), torch.tensor(one["rows"])
        other = None if one["other"] is None else torch.tensor(one["other"], dtype=torch.float64)
        found = alone.integer_sum(question, facts, theta, one["step"], other=other, rows=rows)
        assert found.tolist() == one["integers"]


def ranks(service: Embedded, job: str) -> set[int]:
    """Return which processes read anything of a job."""
    return {line["rank"] for line in told(service, job, "sum")}


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_of_two_processes_has_the_integers_and_the_price_of_one(
    service: Embedded, dataset: str, method: str
) -> None:
    ended = {many: service.wait(service.submit(dataset, **stream(METHODS[method], many)), 180) for many in (1, 2)}
    assert [view["state"] for view in ended.values()] == ["succeeded", "succeeded"], ended
    one, two = ended[1], ended[2]
    assert one["cost"]["spent"] == two["cost"]["spent"]
    assert one["progress"] == two["progress"]
    assert ranks(service, two["id"]) == {0, 1}
    assert set(rows_read(service, two["id"]).values()) == {1}
    assert sum(rows_read(service, one["id"]).values()) == sum(rows_read(service, two["id"]).values())
    check_integers(service, two["id"])
    check(service, [two["id"]], stream=True)


@pytest.mark.parametrize("victim", ["leader", "follower"])
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_process_ends_a_stream_at_its_whole_price(service: Embedded, method: str, victim: str) -> None:
    """As any trainer's death does; the other process does not outlive it, and nothing is read after."""
    job = service.submit(upload(service), **stream(METHODS[method]))
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    (follower,) = wait_for_follower(service)
    (leader,) = service.children("trainer")
    (leader if victim == "leader" else follower).kill()
    ended = service.wait(job)
    assert (ended["state"], ended["error"], ended["attempt"]) == ("failed", {"code": "trainer-failed"}, 1)
    assert gone([leader, follower])
    whole = sum(float(ended["cost"][name]["budget_share"]) for name in ("reserved", "retry_allowance"))
    assert float(ended["cost"]["spent"]["budget_share"]) == pytest.approx(whole, rel=1e-3)
    assert set(rows_read(service, job).values()) == {1}
    check_integers(service, job)
    check(service, [job], stream=True)


@pytest.mark.parametrize("place", ["paid 0", "told 0", "paid 3", "told 3"])
@pytest.mark.parametrize("method", METHODS)
def test_a_stream_whose_machine_is_lost_goes_on_and_reads_nothing_twice(
    service: Embedded, method: str, place: str
) -> None:
    """Supervisor, leader and follower die at once, between a payment and its reading, or after it."""
    ended = service.lose_worker(place, upload(service), **stream(METHODS[method]))
    job = ended["id"]
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    assert ended["cost"]["spent"] == ended["cost"]["reserved"], "one price, whoever was lost"
    assert repeated(service, job) == [], "a stream is paid for once"
    assert ranks(service, job) == {0, 1}
    assert set(rows_read(service, job).values()) == {1}, "what was lost is not read again"
    assert len({line["rank"] for line in told(service, job, "sum")[-2:]}) == 2, "both read in the second attempt, too"
    check_integers(service, job)
    check(service, [job], stream=True)


@pytest.mark.parametrize("place", ["paid 0", "told 0"])
def test_a_single_step_that_is_lost_is_paid_and_read_again_by_both(service: Embedded, place: str) -> None:
    single = {**CERTIFIED, "batch": ROWS // 2, "steps": 1}
    ended = service.lose_worker(place, upload(service), **stream(single))
    job = ended["id"]
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    assert repeated(service, job) == [(0, 2)]
    schedule, paid = charged(service, job)
    assert sum(paid.values()) == sum(schedule.values()) + 1
    read = rows_read(service, job)
    assert len(read) == ROWS // 2, "the same batch, for its order is the job's"
    assert set(read.values()) == {1 if place == "paid 0" else 2}
    check_integers(service, job)
    check(service, [job])


def test_a_drained_stream_loses_nothing(service: Embedded) -> None:
    job = service.submit(upload(service), **stream(CERTIFIED))
    service.wait_until(job, lambda view: view["progress"]["step"] > 2)
    assert service.kill("supervisor", signal.SIGTERM)
    ended = service.wait(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    assert ended["progress"] == {"step": 11, "steps": 11, "left": 0}
    read = rows_read(service, job)
    assert (len(read), set(read.values())) == (ROWS, {1}), "every record, once"
    check_integers(service, job)


def test_a_leader_that_reads_a_batch_again_is_refused_by_its_follower(tmp_path: Path) -> None:
    """Planted bug: every second batch is that of the one before it."""
    with embedded(tmp_path / "home", observed={"LISTEN": "1", "BUG": "reread"}, max_processes=2) as service:
        ended = service.wait(service.submit(upload(service), **stream(CERTIFIED)))
        assert (ended["state"], ended["error"]) == ("failed", {"code": "trainer-failed"}), ended
        follower = Counter(row for line in told(service, ended["id"], "sum") if line["rank"] for row in line["rows"])
        assert set(follower.values()) == {1}, "it summed the first batch, and would not sum it again"
        assert readings(service.home, rank=1)[ended["id"]]
