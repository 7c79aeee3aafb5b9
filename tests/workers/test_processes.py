"""Jobs over several processes, in the running service: the law and price of one, and no way to hang or read unpaid."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.db.tables import Account, Job
from core.ledger import allowance
from core.ledger.accounts import balance_of
from core.privacy.events import compose
from core.privacy.renyi import cost_nano
from tests.support.embedded import LOGISTIC, START_SECONDS, Embedded, embedded, readings, toy_csv
from tests.support.unchecked import accepting
from workers.gather import LEAST_PATIENCE_SECONDS

TWO: dict[str, Any] = {"resources": {"processes": 2}}
ROWS = 20_000
"""Three parts: either process holds some."""
SOON_SECONDS = LEAST_PATIENCE_SECONDS / 2
"""Half of what a process takes that notices an end only because nobody answers."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), observed={"SLOW": "0.05"}, max_processes=4) as running:
        yield running


@pytest.fixture(scope="module")
def dataset(service: Embedded) -> str:
    return service.upload(toy_csv(ROWS, seed=70_001))


def unpaid(service: Embedded, job_id: str, rank: int) -> bool:
    """Say whether a process read more than the job was charged for."""
    database = service.database()
    with database.read() as session:
        job = session.get_one(Job, job_id)
        orders = balance_of(session.get_one(Account, job.scope_id)).terms.orders
        charged = allowance.charged(job, job.scope_id)
    database.dispose()
    read = cost_nano(compose(readings(service.home, rank).get(job_id, {})), orders)
    return any(one > most for one, most in zip(read, charged, strict=False))


def followers(service: Embedded) -> list[psutil.Process]:
    return [process for process in service.children("rank") if process.is_running()]


def wait_for_follower(service: Embedded) -> list[psutil.Process]:
    deadline = time.monotonic() + START_SECONDS
    while not (found := followers(service)):
        assert time.monotonic() < deadline, "no follower came"
        time.sleep(0.05)
    return found


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=SOON_SECONDS)[1]


@pytest.mark.statistical
@pytest.mark.parametrize("method", ["noisy_newton", "whitened_newton"])
def test_a_job_over_two_processes_is_the_same_job(service: Embedded, dataset: str, method: str) -> None:
    """Same chunks, same price, same questions read by either process, and a model that agrees within its noise."""
    body: dict[str, Any] = {"privacy": {"mu": "0.5"}, "optimizer": {"kind": method}}
    ended = [service.wait(service.submit(dataset, **body, **more)) for more in ({}, TWO)]
    assert [view["state"] for view in ended] == ["succeeded", "succeeded"]
    one, two = (view["cost"]["spent"] for view in ended)
    assert (one["rho"], one["mu"]) == (two["rho"], two["mu"])
    alone, leader = (readings(service.home)[view["id"]] for view in ended)
    assert alone == leader == readings(service.home, rank=1)[ended[1]["id"]]
    assert ended[0]["id"] not in readings(service.home, rank=1)
    first, second = (service.get(f"/v1/models/{view['result']['model']}/summary") for view in ended)
    for a, b in zip(first["coefficients"], second["coefficients"], strict=True):
        assert abs(a["estimate"] - b["estimate"]) < 6 * (a["std_error"] + b["std_error"])
    assert followers(service) == []


def test_the_estimate_shows_the_processes(service: Embedded, dataset: str) -> None:
    body = {"dataset": dataset, "model": LOGISTIC, "optimizer": {"kind": "noisy_newton"}, "privacy": {"mu": "0.2"}}
    one, several = (service.http.post("/v1/estimates", json=accepting({**body, **more})).json() for more in ({}, TWO))
    assert several["plan"]["resources"]["processes"] == 2
    assert several["plan"]["resources"]["device"] == "cpu"
    assert several["cost"] == one["cost"]


def test_more_than_the_service_allows_is_refused(service: Embedded, dataset: str) -> None:
    for route in ("/v1/estimates", "/v1/jobs"):
        answer = service.http.post(
            route,
            json={
                "dataset": dataset,
                "model": LOGISTIC,
                "optimizer": {"kind": "noisy_gd"},
                "privacy": {"mu": "0.1"},
                "resources": {"processes": 5},
            },
            headers={"Idempotency-Key": "five"},
        )
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/resources/processes"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGABRT])
def test_a_lost_follower_ends_the_attempt_at_its_whole_price(
    service: Embedded, dataset: str, how: signal.Signals
) -> None:
    job = service.submit(dataset, retry_allowance=0, **TWO)
    service.wait_until(job, lambda view: view["progress"]["step"] > 1)
    (follower,) = wait_for_follower(service)
    leaders = service.children("trainer")
    follower.send_signal(how)
    started = time.monotonic()
    ended = service.wait(job)
    assert time.monotonic() - started < SOON_SECONDS
    assert (ended["state"], ended["error"]) == ("failed", {"code": "trainer-failed"})
    assert ended["cost"]["spent"]["budget_share"] == ended["cost"]["reserved"]["budget_share"]
    assert gone([follower, *leaders])
    assert not any(unpaid(service, job, rank) for rank in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["trainer", "supervisor"])
def test_followers_outlive_nobody(service: Embedded, dataset: str, victim: str) -> None:
    job = service.submit(dataset, **TWO)
    service.wait_until(job, lambda view: view["progress"]["step"] > 1)
    found = wait_for_follower(service)
    assert service.kill(victim)
    assert gone(found)
    service.wait(job)
    assert not any(unpaid(service, job, rank) for rank in (0, 1))


@pytest.mark.slow
def test_a_cancelled_job_is_charged_what_was_spent(service: Embedded, dataset: str) -> None:
    job = service.submit(dataset, **TWO)
    service.wait_until(job, lambda view: view["progress"]["step"] > 1)
    found = wait_for_follower(service)
    assert service.http.post(f"/v1/jobs/{job}/cancel").status_code in (200, 202)
    ended = service.wait(job)
    assert ended["state"] == "cancelled"
    assert float(ended["cost"]["spent"]["budget_share"]) < float(ended["cost"]["reserved"]["budget_share"])
    assert gone(found)


@pytest.mark.slow
def test_a_cancel_while_followers_start_costs_nothing(service: Embedded, dataset: str) -> None:
    job = service.submit(dataset, **TWO)
    wait_for_follower(service)
    assert service.http.post(f"/v1/jobs/{job}/cancel").status_code in (200, 202)
    ended = service.wait(job)
    assert ended["state"] == "cancelled"
    assert float(ended["cost"]["spent"]["budget_share"]) == 0


@pytest.mark.slow
def test_a_drained_job_goes_on_elsewhere(tmp_path: Path) -> None:
    """SIGTERM reaches the whole group; followers leave it to their leader, who stops between two payments."""
    with embedded(tmp_path / "home", observed={"SLOW": "0.1"}, max_processes=2) as service:
        job = service.submit(service.upload(toy_csv(ROWS, seed=70_002)), **TWO)
        service.wait_until(job, lambda view: view["progress"]["step"] > 1)
        (follower,) = wait_for_follower(service)
        assert service.kill("supervisor", signal.SIGTERM)
        assert gone([follower])
        ended = service.wait(job)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
        assert not any(unpaid(service, job, rank) for rank in (0, 1))
        assert readings(service.home)[job] == readings(service.home, rank=1)[job]


@pytest.mark.slow
def test_paying_after_reading_would_be_seen_in_every_process(tmp_path: Path) -> None:
    """Planted bug: payments are announced, and committed later."""
    with embedded(tmp_path / "home", observed={"SLOW": "0.1", "NAIVE": "1"}, max_processes=2) as service:
        job = service.submit(service.upload(toy_csv(ROWS, seed=70_003)), retry_allowance=0, **TWO)
        service.wait_until(job, lambda view: view["progress"]["step"] > 2)
        assert service.kill("supervisor")
        service.wait(job)
        assert unpaid(service, job, rank=0)
        assert unpaid(service, job, rank=1)


@pytest.mark.slow
def test_a_certified_stream_of_two_processes_costs_one_answer_and_reads_as_one_process_does(
    service: Embedded, dataset: str
) -> None:
    optimizer = {"kind": "one_pass_clipped_sgd", "batch": 900, "clip": 1.0}
    settings = {"optimizer": optimizer, "inference": {"intervals": False}, "privacy": {"mu": "0.1"}}
    ended = {many: service.wait(service.submit(dataset, **settings, resources={"processes": many})) for many in (1, 2)}
    assert [view["state"] for view in ended.values()] == ["succeeded", "succeeded"]
    assert [view["progress"]["step"] for view in ended.values()] == [ROWS // 900] * 2
    costs = [view["cost"]["spent"] for view in ended.values()]
    assert costs[0] == costs[1]
    assert not unpaid(service, ended[2]["id"], rank=0)
