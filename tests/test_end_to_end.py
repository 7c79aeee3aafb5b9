"""The main job, end to end, through HTTP against the embedded service as `farthing up` starts it."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.db.tables import Dataset
from core.ledger import verification
from tests.support.embedded import KEY, LINEAR, LOGISTIC, ROOT, TERMINAL, Embedded, embedded
from tests.support.unchecked import accepting
from tests.support.verified import verified

LONG: dict[str, Any] = {"optimizer": {"kind": "noisy_gd", "steps": 20_000}}
"""A job that takes longer than any of these tests wants to wait."""


@pytest.fixture(scope="module")
def dataset(service: Embedded) -> str:
    return service.upload()


@pytest.mark.statistical
@pytest.mark.parametrize("adjacency", ["zero_out", pytest.param("replace_one", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("model", "optimizer", "slope"),
    [
        pytest.param(LOGISTIC, "noisy_newton", 1 / 20, marks=pytest.mark.slow),  # as in tests/integration
        (LINEAR | {"loss": {"kind": "huber"}}, "noisy_gd", 1 / 10),
    ],
    ids=["newton", "gd"],
)
def test_a_job_ends_with_intervals_and_costs_what_was_quoted(
    service: Embedded, adjacency: str, model: dict[str, Any], optimizer: str, slope: float
) -> None:
    dataset = service.upload(adjacency=adjacency)
    body = accepting({"model": model, "optimizer": {"kind": optimizer}, "privacy": {"mu": "1"}})
    quoted = service.http.post("/v1/estimates", json={"dataset": dataset, **body}).json()["cost"]
    job = service.wait(service.submit(dataset, **body))
    assert job["state"] == "succeeded", job
    assert job["error"] is None
    assert job["attempt"] == 1
    assert job["progress"]["step"] == job["progress"]["steps"] > 0
    assert job["cost"]["spent"]["mu"] == quoted["mu"] == "1"
    summary = service.get(f"/v1/models/{job['result']['model']}/summary")
    assert summary["privacy"]["adjacency"] == adjacency
    assert summary["privacy"]["mu"] == "1"
    table = {line["name"]: line for line in summary["coefficients"]}
    assert set(table) == {"intercept", "age", "job[b]", "job[c]"}
    age = table["age"]  # a fixed truth and six standard errors: false alarm 2e-9
    assert abs(age["estimate"] - slope) < 6 * age["std_error"]
    assert age["std_error"] < slope
    budget = service.get(f"/v1/datasets/{dataset}/budget")
    assert budget["rho"]["spent"] == "0.5"
    assert budget["budget_share"]["reserved"] == "0"
    assert verified(service.http, budget["scope"])["ok"] is True


def whole(job: dict[str, Any]) -> float:
    """Return all that a job reserved, in per cent: its price, and what it might have paid again."""
    return sum(float(job["cost"][name]["budget_share"]) for name in ("reserved", "retry_allowance"))


def test_a_queued_and_a_running_job_can_be_cancelled(service: Embedded) -> None:
    dataset = service.upload()
    running, queued = service.submit(dataset, **LONG), service.submit(dataset, **LONG)
    assert service.http.post(f"/v1/jobs/{queued}/cancel").json()["state"] == "cancelled"
    half_way = service.wait_until(running, lambda view: view["progress"]["step"] > 0)
    assert half_way["state"] == "running"
    service.http.post(f"/v1/jobs/{running}/cancel")
    ended = service.wait(running)
    assert ended["state"] == "cancelled"
    assert ended["result"] is None
    spent = service.get(f"/v1/datasets/{dataset}/budget")["budget_share"]
    assert spent["reserved"] == "0"
    assert 0 < float(spent["spent"]) < float(ended["cost"]["reserved"]["budget_share"])  # what was read stays paid
    assert service.children("trainer") == []
    assert service.http.post(f"/v1/jobs/{running}/cancel").json()["state"] == "cancelled"


def test_a_job_over_its_wall_clock_limit_is_charged_whole(service: Embedded) -> None:
    dataset = service.upload()
    job = service.wait(service.submit(dataset, **LONG, resources={"max_runtime_seconds": 10.0}))
    assert job["state"] == "failed"
    assert job["error"] == {"code": "limit-exceeded"}
    shares = service.get(f"/v1/datasets/{dataset}/budget")["budget_share"]
    assert shares["reserved"] == "0"
    assert shares["spent"] == job["cost"]["spent"]["budget_share"]
    assert float(shares["spent"]) == pytest.approx(whole(job), rel=1e-3)


@pytest.mark.parametrize("memory", [50_000_000, 1_000_000_000])
def test_too_little_memory_is_refused_with_the_figure_that_is_enough(service: Embedded, memory: int) -> None:
    """Such jobs were accepted, failed, and paid their whole price."""
    dataset = service.upload()
    refused = service.try_submit(dataset, resources={"memory_bytes": memory})
    assert refused.status_code == 422, refused.text
    (field,) = refused.json()["errors"]
    assert field["pointer"] == "/resources/memory_bytes"
    enough = next(int(word) for word in field["detail"].replace(",", "").split() if word.isdigit())
    job = service.wait(service.submit(dataset, resources={"memory_bytes": enough}))
    assert job["state"] == "succeeded", job["error"]


def test_missing_records_fail_the_job_with_one_code(service: Embedded) -> None:
    dataset = service.upload()
    database = service.database()
    with database.read() as session:
        location = session.get_one(Dataset, dataset).location
    database.dispose()
    (service.settings.records_path / str(location)).unlink()
    job = service.wait(service.submit(dataset))
    assert (job["state"], job["error"]) == ("failed", {"code": "trainer-failed"})


@pytest.mark.slow
def test_a_job_beyond_the_budget_is_refused_and_leaves_nothing(service: Embedded, dataset: str) -> None:
    before = service.get(f"/v1/datasets/{dataset}/budget")
    refused = service.try_submit(dataset, privacy={"epsilon": "9"})
    assert refused.status_code == 403
    assert refused.json()["code"] == "privacy-budget-exhausted"
    assert service.get(f"/v1/datasets/{dataset}/budget") == before


@pytest.mark.slow
def test_ten_submissions_with_one_key_are_one_run(service: Embedded) -> None:
    dataset = service.upload()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: service.try_submit(dataset, key="one-key"), range(10)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    (job,) = {answer.json()["id"] for answer in answers if answer.status_code == 202}
    assert service.wait(job)["state"] == "succeeded"
    attempts = service.get(f"/v1/jobs/{job}/attempts")["data"]
    assert len(attempts) == 1


@pytest.mark.slow
def test_a_restart_keeps_everything_and_goes_on_where_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with embedded(home, workers=0) as service:
        dataset = service.upload()
        waiting = service.submit(dataset)
        budget = service.get(f"/v1/datasets/{dataset}/budget")
    with embedded(home) as service:  # the same key: it was made once
        assert service.get(f"/v1/datasets/{dataset}/budget")["scope"] == budget["scope"]
        assert service.wait(waiting)["state"] == "succeeded"
        model = service.get(f"/v1/jobs/{waiting}")["result"]["model"]
        drained = service.submit(dataset, **LONG)
        service.wait_until(drained, lambda view: view["progress"]["step"] > 0)
    with embedded(home, workers=0) as service:
        assert service.get(f"/v1/models/{model}/summary")["coefficients"]
        job = service.get(f"/v1/jobs/{drained}")
        assert job["state"] == "queued"  # it stopped where nothing paid was lost
        step = job["progress"]["step"]
        assert step > 0
    with embedded(home) as service:
        service.wait_until(drained, lambda view: view["progress"]["step"] > step or view["state"] in TERMINAL)
        service.http.post(f"/v1/jobs/{drained}/cancel")
        assert service.wait(drained)["state"] == "cancelled"
        database = service.database()
        with database.read() as session:
            assert verification.verify(session, budget["scope"]).ok
        database.dispose()


def test_a_home_is_used_by_one_service_only(service: Embedded) -> None:
    import subprocess  # noqa: PLC0415 - for this test alone
    import sys  # noqa: PLC0415 - as above

    second = subprocess.run(
        [sys.executable, "-m", "workers.embedded", "--home", str(service.home), "--port", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert "is in use by another Farthing" in second.stderr


def test_no_process_shows_a_secret_in_its_arguments_or_environment(service: Embedded, dataset: str) -> None:
    job = service.submit(dataset, **LONG)
    service.wait_until(job, lambda view: view["progress"]["step"] > 0)
    for module in ("api", "supervisor", "trainer"):
        (process, *_) = service.children(module)
        told = " ".join([*process.cmdline(), *process.environ().values()])
        assert KEY not in told
    (trainer,) = service.children("trainer")
    assert not [name for name in trainer.environ() if name.startswith("FARTHING_")]
    service.http.post(f"/v1/jobs/{job}/cancel")
    assert service.wait(job)["state"] == "cancelled"


@pytest.mark.service
def test_trainers_end_with_their_supervisor(service: Embedded) -> None:
    dataset = service.upload()
    job = service.submit(dataset, **LONG, retry_allowance=0)
    service.wait_until(job, lambda view: view["progress"]["step"] > 0)
    (trainer,) = service.children("trainer")
    assert service.kill("supervisor")
    deadline = time.monotonic() + 30
    while trainer.is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not trainer.is_running()
    assert service.wait(job)["state"] == "failed"
